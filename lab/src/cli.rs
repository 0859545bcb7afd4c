//! The command line of the `lab` program.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use self::arguments::{Arguments, Command};
use crate::cluster::operator::{environment_file, write_environment};
use crate::cluster::{
    self, Cluster, Impairment, parse_delay, parse_rate, parse_share, teardown_leftovers,
};
use crate::control_plane::{self, ControlPlane};
use crate::history::History;
use crate::{bgp, cluster::leftovers, node, packages, progress, relay, sink, tools};

mod arguments;

/// Runs the program.
pub fn main() -> ExitCode {
    let ran = cluster::program::this_is_it().and_then(|()| run(Arguments::parse().command));
    match ran {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Lets another program be the `lab` program: a copy of it that is named `lab` is one, for the
/// processes of a cluster and for people who use it.
///
/// Returns the exit code, if this process is such a copy.
#[must_use]
pub fn stand_in() -> Option<ExitCode> {
    let name = std::env::args_os().next().map(PathBuf::from);
    if name.is_some_and(|name| name.file_name().is_some_and(|name| name == "lab")) {
        return Some(main());
    }
    match cluster::program::this_is_it() {
        Ok(()) => None,
        Err(error) => {
            eprintln!("lab: {error:#}");
            Some(ExitCode::FAILURE)
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        // These enter other namespaces, which only a single-threaded process may do.
        Command::Relay { listen, network, target } => relay::run(listen, &network, &target)?,
        Command::Sink { listen } => sink::run(listen)?,
        Command::NodeInit { config } => node::run(&config)?,
        Command::ImpairLine(config) => crate::impair::run(&config)?,
        Command::Guard { id } => cluster::run_guard(&id)?,
        Command::BgpGuard { id } => bgp::run_guard(&id)?,
        Command::Tools { print, names } => ensure_tools(print, &names)?,
        Command::Status => return Ok(status()),
        Command::Down => down()?,
        Command::Kubectl { arguments } => return kubectl(&arguments),
        Command::Env => match std::fs::read_to_string(environment_file()) {
            Ok(text) => print!("{text}"),
            Err(_) => bail!("no cluster is up: `lab up` starts one"),
        },
        Command::ControlPlane => interruptible(run_control_plane())?,
        Command::History { dir } => interruptible(run_history(dir))?,
        Command::Up { capacity, images, bare } => interruptible(up(capacity, images, bare))?,
        Command::Traffic { node, rate, seconds } => interruptible(traffic(node, rate, seconds))?,
        Command::Impair { node, seconds, loss, delay, longest } => {
            interruptible(impair(node, seconds, (loss, delay), longest))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Converts a verdict into the exit code.
#[must_use]
pub fn verdict(passed: bool) -> ExitCode {
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a task until it ends or a signal interrupts it. Dropping the task then takes down what it
/// has started.
///
/// # Errors
///
/// Those of the task, or if a signal interrupted it.
pub fn interruptible<T>(task: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            result = task => result,
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
        }
    });
    // A running build ends with this process; waiting for it would delay the interruption.
    runtime.shutdown_background();
    result
}

fn ensure_tools(print: bool, wanted: &[String]) -> Result<()> {
    let mut names: Vec<&str> = wanted.iter().map(String::as_str).collect();
    if names.is_empty() {
        names = tools::names();
        if nix::unistd::geteuid().is_root() {
            packages::ensure_installed()?;
        }
    }
    for (name, path) in names.iter().zip(tools::ensure_all(&names)?) {
        if print {
            println!("{name} {}", path.display());
        }
    }
    Ok(())
}

async fn run_control_plane() -> Result<()> {
    let plane = ControlPlane::start(control_plane::Options::default()).await?;
    println!("{}", plane.kubeconfig().display());
    progress("Ctrl-C ends it");
    std::future::pending::<()>().await;
    plane.stop().await
}

async fn run_history(dir: PathBuf) -> Result<()> {
    tools::prepare(vec!["prometheus", "promtool"]).await?;
    let history = History::start(&dir).await?;
    println!("{}", history.url());
    progress("Ctrl-C ends it");
    std::future::pending::<()>().await;
    Ok(())
}

async fn up(capacity: Option<String>, mut images: Vec<PathBuf>, bare: bool) -> Result<()> {
    if !bare {
        images.push(crate::images::product_archive());
    }
    let options = cluster::Options { capacity, images, ..cluster::Options::default() };
    let mut cluster = Cluster::start_keepable(options).await?;
    if !bare {
        cluster.deploy_operator().await?;
        progress("operator deployed");
        print!("{}", write_environment(&cluster).await?);
    }
    cluster.keep()
}

fn down() -> Result<()> {
    let count = teardown_leftovers(true)? + bgp::sweep()?;
    control_plane::sweep();
    let _ = std::fs::remove_file(environment_file());
    progress(&if count == 0 { "nothing was up".to_owned() } else { format!("{count} taken down") });
    Ok(())
}

fn status() -> ExitCode {
    let found = [leftovers(), bgp::leftovers()].concat();
    if found.is_empty() {
        println!("nothing left");
        return ExitCode::SUCCESS;
    }
    println!("{}", found.join("\n"));
    // As with grep: a script can distinguish found from not found.
    ExitCode::from(1)
}

fn kubectl(arguments: &[String]) -> Result<ExitCode> {
    let kubeconfig = cluster::kept_kubeconfig().context("no cluster is up: `lab up` starts one")?;
    let status = std::process::Command::new(tools::ensure("kubectl")?)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(arguments)
        .status()?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}

async fn traffic(node: String, rate: String, seconds: u64) -> Result<()> {
    let cluster = Cluster::attach().await?;
    let traffic = cluster.traffic(&node, parse_rate(&rate)?, Duration::from_secs(seconds))?;
    let bytes = traffic.wait().await?;
    println!("{node} sent {:.1} MB in {seconds} s", megabytes(bytes));
    Ok(())
}

async fn impair(
    node: String,
    seconds: u64,
    (loss, delay): (String, String),
    longest: Option<usize>,
) -> Result<()> {
    let cluster = Cluster::attach().await?;
    let impairment = Impairment { delay: parse_delay(&delay)?, loss: parse_share(&loss)?, longest };
    // The margin keeps it from ending by itself before it is ended here.
    let (time, margin) = (Duration::from_secs(seconds), Duration::from_secs(10));
    let impaired = cluster.impair(&node, impairment, time + margin).await?;
    progress(&format!("{node}: {delay} on each round trip, {loss} lost in each direction"));
    progress(Impairment::mechanism());
    tokio::time::sleep(time).await;
    let counts = impaired.lift().await?;
    println!("{node}: {} packets held, {} lost in {seconds} s", counts.held, counts.lost);
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "for people to read")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
