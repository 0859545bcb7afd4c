//! The command line of the `lab` program.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::cluster::operator::{environment_file, write_environment};
use crate::cluster::{
    self, Cluster, Impairment, parse_delay, parse_rate, parse_share, teardown_leftovers,
};
use crate::control_plane::{self, ControlPlane};
use crate::image::{self, Compression};
use crate::{
    bgp, cluster::leftovers, dashboard, demo, node, packages, progress, relay, sink, tools,
};

/// The test ground of traffic-operator: real control planes and clusters, without Docker.
#[derive(Debug, Parser)]
#[command(name = "lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Find or build every program, and install the packages nodes are made of.
    Tools {
        /// Print where each program is.
        #[arg(long)]
        print: bool,
    },
    /// Start a control plane without nodes, print its kubeconfig and wait for Ctrl-C.
    ControlPlane,
    /// Start a cluster with Prometheus and the operator, and leave it running.
    Up {
        /// Link capacity to write on the nodes (bits per second, as 1G).
        #[arg(long)]
        capacity: Option<String>,
        /// Further image archives to import on every node.
        #[arg(long = "image", value_name = "FILE")]
        images: Vec<PathBuf>,
        /// Leave the operator out.
        #[arg(long)]
        bare: bool,
    },
    /// Play the product's main job on a cluster, and say PASS or FAIL.
    Demo {
        /// Leave the cluster running.
        #[arg(long)]
        keep: bool,
    },
    /// Play the network prober on a cluster, and say PASS or FAIL.
    DemoProber {
        /// Leave the cluster running.
        #[arg(long)]
        keep: bool,
    },
    /// Play the swarm on a cluster, and say PASS or FAIL.
    DemoSwarm {
        /// Leave the cluster running.
        #[arg(long)]
        keep: bool,
    },
    /// Play route reflectors on nodes with real BGP, and say PASS or FAIL.
    DemoReflectors {
        /// Leave the nodes running until Ctrl-C.
        #[arg(long)]
        keep: bool,
        /// Only from the mesh to reflectors and back, with one of them replaced on the way.
        #[arg(long)]
        short: bool,
        /// Only the part in four zones.
        #[arg(long, conflicts_with_all = ["keep", "short"])]
        four_zones: bool,
        /// The operator's program.
        #[arg(long, default_value = "target/debug/traffic-operator")]
        operator: PathBuf,
    },
    /// Measure real BGP between nodes whose losses are known, and say PASS or FAIL: does the ground
    /// see them?
    BgpCheck {
        /// Scenarios to measure: static, order, change, kill; all if none is named.
        scenarios: Vec<String>,
    },
    /// Measure what numbers of paths cost real BGP, and say PASS or FAIL: do tables hold what is
    /// predicted?
    BgpPaths,
    /// Take down the cluster, and whatever killed runs have left.
    Down,
    /// Say what runs or is left on this machine.
    Status,
    /// Print shell variables for the cluster that is up.
    Env,
    /// Send traffic from a node to a sink outside of all nodes.
    Traffic {
        /// The node, as node-2.
        node: String,
        /// Bits per second, as 400M or 1G.
        rate: String,
        /// For how long.
        seconds: u64,
    },
    /// Make the link of a node slow and lossy for its pods.
    Impair {
        /// The node, as node-2.
        node: String,
        /// For how long.
        seconds: u64,
        /// Share of the packets that are lost in each direction.
        #[arg(long, default_value = "0%")]
        loss: String,
        /// Delay added to each round trip.
        #[arg(long, default_value = "0ms")]
        delay: String,
    },
    /// Run kubectl on the cluster that is up.
    #[command(disable_help_flag = true)]
    Kubectl {
        /// Arguments of kubectl.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Draw a Grafana dashboard as SVG, from the data of any Prometheus.
    ///
    /// Fails if a panel has no data, and names it.
    Draw {
        /// The dashboard's JSON.
        file: PathBuf,
        /// URL of Prometheus, such as `http://127.0.0.1:9090`.
        #[arg(long, value_name = "URL")]
        prometheus: String,
        /// The picture to write.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Start of the picture, before now, as -15m, -6h or -2d.
        #[arg(long, default_value = "-15m", value_parser = parse_ago, allow_hyphen_values = true)]
        from: Duration,
        /// Value of `$__rate_interval`: four scrape intervals, such as 8s or 1m.
        #[arg(long, default_value = "1m", value_parser = parse_ago)]
        rate_interval: Duration,
        /// Panels without data are no failure.
        #[arg(long)]
        allow_empty: bool,
    },
    /// Put the static binaries of the operator and of its agent into an OCI image archive, and
    /// beside it into one under the name of the original prober's agent, which runs as the agent.
    Image {
        /// The binary of the operator.
        #[arg(long)]
        binary: PathBuf,
        /// The binary of the agent.
        #[arg(long)]
        agent: PathBuf,
        /// The image's full name.
        #[arg(long = "ref", default_value = image::PRODUCT_REFERENCE)]
        reference: String,
        /// The archive to write.
        #[arg(long, default_value_os_t = image::product_archive())]
        out: PathBuf,
    },
    /// Relay connections into a network namespace.
    #[command(hide = true)]
    Relay {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long)]
        network: String,
        #[arg(long)]
        target: String,
    },
    /// Throw away what is received.
    #[command(hide = true)]
    Sink {
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Hold and lose packets of a node's pods.
    #[command(hide = true)]
    ImpairLine(crate::impair::Config),
    /// Be the first process of a node.
    #[command(hide = true)]
    NodeInit { config: PathBuf },
    /// Take a cluster down when standard input ends.
    #[command(hide = true)]
    Guard { id: String },
    /// Take a BGP ground down when standard input ends.
    #[command(hide = true)]
    BgpGuard { id: String },
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        // These change namespaces, which only a process with one thread may.
        Command::Relay { listen, network, target } => relay::run(listen, &network, &target)?,
        Command::Sink { listen } => sink::run(listen)?,
        Command::NodeInit { config } => node::run(&config)?,
        Command::ImpairLine(config) => crate::impair::run(&config)?,
        Command::Guard { id } => cluster::run_guard(&id)?,
        Command::BgpGuard { id } => bgp::run_guard(&id)?,
        Command::Tools { print } => ensure_tools(print)?,
        Command::Image { binary, agent, reference, out } => {
            let original = image::original_agent_archive(&out);
            // The second one only travels from this disk to this disk.
            for archive in [
                image::product(&binary, &agent, &reference).write(&out, Compression::Gzip)?,
                image::original_agent(&binary, &agent).write(&original, Compression::None)?,
            ] {
                println!(
                    "{} {} {:.1} MB {}",
                    archive.reference,
                    archive.digest,
                    megabytes(archive.size),
                    archive.path.display()
                );
            }
        }
        Command::Status => return Ok(status()),
        Command::Down => down()?,
        Command::Kubectl { arguments } => return kubectl(&arguments),
        Command::Env => match std::fs::read_to_string(environment_file()) {
            Ok(text) => print!("{text}"),
            Err(_) => bail!("no cluster is up: `lab up` starts one"),
        },
        Command::ControlPlane => interruptible(run_control_plane())?,
        Command::Up { capacity, images, bare } => interruptible(up(capacity, images, bare))?,
        Command::Demo { keep } => {
            let passed = interruptible(demo::run(keep))?;
            return Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::DemoProber { keep } => {
            let passed = interruptible(demo::prober::run(keep))?;
            return Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::DemoSwarm { keep } => {
            let passed = interruptible(demo::swarm::run(keep))?;
            return Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::DemoReflectors { keep, short, four_zones, operator } => {
            let passed = if four_zones {
                interruptible(demo::reflectors::run_four_zones(&operator))?
            } else if short {
                interruptible(demo::reflectors::run_short(&operator))?
            } else {
                interruptible(demo::reflectors::run(keep, &operator))?
            };
            return Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::BgpCheck { scenarios } => {
            let passed = interruptible(bgp::check::run(&scenarios))?;
            return Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::BgpPaths => {
            let passed = interruptible(bgp::check::paths::run())?;
            return Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::Traffic { node, rate, seconds } => interruptible(traffic(node, rate, seconds))?,
        Command::Impair { node, seconds, loss, delay } => {
            interruptible(impair(node, seconds, loss, delay))?;
        }
        Command::Draw { file, prometheus, out, from, rate_interval, allow_empty } => {
            let options = dashboard::Options { prometheus, from, rate_interval };
            let size = interruptible(dashboard::write(&file, &options, &out, allow_empty))?;
            println!("{} {} kB", out.display(), size.div_ceil(1000));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a task until it ends or a signal asks it to; then it is dropped, which takes down what it
/// has started.
fn interruptible<T>(task: impl Future<Output = Result<T>>) -> Result<T> {
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
    // A build under way ends with this process; waiting for it would be no interruption.
    runtime.shutdown_background();
    result
}

fn ensure_tools(print: bool) -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        packages::ensure_installed()?;
    }
    let names = tools::names();
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

async fn up(capacity: Option<String>, mut images: Vec<PathBuf>, bare: bool) -> Result<()> {
    if !bare {
        images.push(image::product_archive());
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

async fn impair(node: String, seconds: u64, loss: String, delay: String) -> Result<()> {
    let cluster = Cluster::attach().await?;
    let impairment = Impairment { delay: parse_delay(&delay)?, loss: parse_share(&loss)? };
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

/// Reads a time before now, or any duration: a number and s, m, h or d; a minus before it changes
/// nothing.
fn parse_ago(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: a whole number and s, m, h or d, as 15m");
    let positive = text.strip_prefix('-').unwrap_or(text);
    let unit = positive.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let digits = &positive[..positive.len() - 1];
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let seconds = number.checked_mul(seconds).filter(|seconds| *seconds > 0).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds))
}

#[allow(clippy::cast_precision_loss, reason = "for people to read")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_now_are_read_with_and_without_minus() {
        for (text, seconds) in [("-15m", 900), ("6h", 21_600), ("-2d", 172_800), ("8s", 8)] {
            assert_eq!(parse_ago(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "-", "15", "m", "-0m", "1.5h", "--1m", "999999999999999999d", "5µ"] {
            assert!(parse_ago(text).unwrap_err().contains("is no duration"), "{text}");
        }
    }
}
