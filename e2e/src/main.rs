//! The product on real nodes, judged.

mod all;
mod exposition;
mod judge;
mod leader;
mod objects;
mod prober;
mod reflectors;
mod story;
mod swarm;
mod view;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::{Parser, Subcommand};
use lab::checks::{Check, conclude};
use lab::cluster::operator::write_environment;
use lab::cluster::{Cluster, Monitoring, Options};

/// The capacity written on the nodes: their links report 10 Gbit/s, too much for a test to fill.
const CAPACITY: &str = "1G";
/// Two nodes in each of two zones: links within a zone and between zones.
const ZONES: [&str; 2] = ["zone-a", "zone-b"];

/// The product on real nodes: each command says PASS or FAIL.
#[derive(Debug, Parser)]
#[command(name = "e2e", version)]
struct Arguments {
    /// Leave the cluster running.
    #[arg(long, global = true)]
    keep: bool,
    /// The archive with the product's image, and beside it the one of the original's agent.
    #[arg(long, global = true, env = "E2E_IMAGE", default_value_os_t = lab::images::product_archive())]
    image: PathBuf,
    /// The operator's program, for route reflectors.
    #[arg(
        long,
        global = true,
        env = "E2E_OPERATOR",
        default_value = "target/debug/traffic-operator"
    )]
    operator: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Play the product's main job: a TrafficWatch.
    Demo,
    /// Play the network prober.
    Prober,
    /// Hand streams over between workers.
    Swarm,
    /// Replace route reflectors under real BGP.
    Reflectors {
        /// Only this part of it; may be repeated.
        #[arg(long = "part", default_values_t = reflectors::PARTS, value_enum)]
        parts: Vec<reflectors::Part>,
    },
    /// Play all four kinds on one cluster.
    All,
}

fn main() -> ExitCode {
    // The processes of a cluster are run from this program.
    if let Some(code) = lab::cli::stand_in() {
        return code;
    }
    match lab::cli::interruptible(run(Arguments::parse())) {
        Ok(passed) => lab::cli::verdict(passed),
        Err(error) => {
            eprintln!("e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<bool> {
    let Arguments { keep, image, operator, command } = arguments;
    let agent = image::original_agent_archive(&image);
    let zones = ZONES.map(str::to_owned).to_vec();
    let three = Options {
        monitoring: Monitoring::Plain,
        capacity: Some(CAPACITY.to_owned()),
        images: vec![image.clone()],
        ..Options::default()
    };
    let four = Options { nodes: 4, zones, images: vec![image, agent], ..Options::default() };
    match command {
        Command::Demo => perform(three, keep, story::play).await,
        Command::Swarm => perform(three, keep, swarm::play).await,
        Command::Prober => perform(four, keep, prober::play).await,
        Command::All => perform(four, keep, all::play).await,
        Command::Reflectors { parts } => reflectors::run(&parts, keep, &operator).await,
    }
}

/// Plays a story on a cluster of its own, prints what it has checked, and takes the cluster down
/// unless it is kept.
async fn perform(
    options: Options,
    keep: bool,
    play: impl AsyncFnOnce(&Cluster, Instant, &mut Vec<Check>) -> Result<()>,
) -> Result<bool> {
    let started = Instant::now();
    let mut cluster = Cluster::start_keepable(options).await?;
    let mut checks = Vec::new();
    if let Err(error) = play(&cluster, started, &mut checks).await {
        checks.push(Check::new("the demo ran to its end", false, format!("{error:#}")));
        println!("\nThe operator's log:\n{}", story::operator_log(&cluster));
    }
    if keep {
        let environment = write_environment(&cluster).await?;
        cluster.keep()?;
        println!(
            "\nThe cluster stays. `make lab-down` takes it down; to use it: . .lab/env\n\n{environment}"
        );
    } else {
        let ending = Instant::now();
        let result = cluster.down().await;
        let figure = result.as_ref().err().map_or_else(
            || format!("{:.1} s", ending.elapsed().as_secs_f64()),
            |error| format!("{error:#}"),
        );
        checks.push(Check::new("everything taken down again", result.is_ok(), figure));
    }
    Ok(conclude(&checks, started))
}
