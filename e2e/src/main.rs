//! The product on real nodes, judged: the tour, which is also what `make demo` and its companions
//! show, and every other promise that only a cluster can show.

mod acts;
mod all;
mod judge;
mod leader;
mod monitoring;
mod newcomers;
mod objects;
mod prober;
mod reflectors;
mod report;
mod stage;
mod swarm;
mod traffic_watch;
mod upgrading;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use futures::future::join_all;
use lab::cluster::operator::write_environment;
use lab::cluster::{Cluster, Monitoring, Options};

use acts::Scene;
use report::{Act, Report};

/// The capacity written on the nodes: their links report 10 Gbit/s, too much for a test to fill.
const CAPACITY: &str = "1G";
/// Two nodes in each of two zones: links within a zone and between zones.
const ZONES: [&str; 2] = ["zone-a", "zone-b"];
/// The acts without a cluster, and their parts: real BGP between nodes that have no other purpose.
const REFLECTORS: [(&str, &[reflectors::Part]); 3] = [
    ("reflectors", &reflectors::PARTS),
    ("reflectors-short", &[reflectors::Part::Short]),
    ("reflectors-retire", &[reflectors::Part::Retire]),
];

/// The product on real nodes: each claim is a PASS or a FAIL.
#[derive(Debug, Parser)]
#[command(name = "e2e", version)]
struct Arguments {
    /// Leave the cluster running.
    #[arg(long, global = true)]
    keep: bool,
    /// The archive with the product's image, and beside it the one of the original's agent.
    #[arg(long, global = true, env = "E2E_IMAGE", default_value_os_t = lab::images::product_archive())]
    image: PathBuf,
    /// The operator's program.
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
    /// Play everything: the tour and all other acts.
    Run {
        /// Only acts with one of these names, or whose names contain it.
        filters: Vec<String>,
    },
    /// List the names of all acts.
    List,
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
    let operator = std::path::absolute(&operator)?;
    let zones = ZONES.map(str::to_owned).to_vec();
    let agent = image::original_agent_archive(&image);
    let images = vec![image.clone(), agent];
    let capacity = Some(CAPACITY.to_owned());
    let plain = Options { monitoring: Monitoring::Plain, capacity, images, ..Options::default() };
    let whole = Options { nodes: 4, zones, monitoring: Monitoring::Operator, ..plain.clone() };
    let released = image == lab::images::product_archive();
    let alone = Report::new(false, released, keep);
    let (options, scenes) = match command {
        Command::Demo => (plain, acts::exactly(&["traffic-watch"])),
        Command::Swarm => (plain, acts::exactly(&["swarm-verbatim", "swarm"])),
        Command::Prober => (whole, acts::exactly(&["prober", "prober-outage"])),
        Command::All => (whole, acts::exactly(&["all-kinds"])),
        Command::Reflectors { parts } => {
            let [(name, _), ..] = REFLECTORS;
            let act = Act { report: &alone, name };
            reflectors::play(act, &parts, keep, &operator).await?;
            return Ok(alone.conclude());
        }
        Command::List => {
            let names =
                acts::ALL.iter().map(|scene| scene.name).chain(REFLECTORS.map(|(name, _)| name));
            names.for_each(|name| println!("{name}"));
            return Ok(true);
        }
        Command::Run { filters } => {
            return Box::pin(everything(whole, &image, &operator, &filters)).await;
        }
    };
    on_a_cluster(options, &alone, &operator, &scenes, keep).await?;
    Ok(alone.conclude())
}

/// Plays all acts, or some; those that need no cluster beside the others.
async fn everything(
    mut options: Options,
    image: &Path,
    operator: &Path,
    filters: &[String],
) -> Result<bool> {
    let report = Report::new(true, image == lab::images::product_archive(), false);
    let scenes = acts::like(filters);
    let reflectors = REFLECTORS
        .iter()
        .find(|(name, _)| filters.is_empty() || filters.iter().any(|filter| filter == name));
    for filter in filters.iter().filter(|filter| REFLECTORS.iter().all(|(name, _)| filter != name))
    {
        let found = !acts::like(std::slice::from_ref(filter)).is_empty();
        ensure!(found, "no act has a name like {filter:?}: see `e2e list`");
    }
    options.images.extend(upgrading::before().map(|before| upgrading::image(&before)));
    let reflecting = async {
        if let Some((name, parts)) = reflectors {
            let act = Act { report: &report, name };
            if let Err(error) = reflectors::play(act, parts, false, operator).await {
                act.claim("played to its end", false, format!("{error:#}"));
            }
        }
    };
    let played = async |scenes: Vec<&Scene>| {
        if !scenes.is_empty() {
            on_a_cluster(options.clone(), &report, operator, &scenes, false).await?;
        }
        anyhow::Ok(())
    };
    let on_clusters = join_all(acts::by_cluster(scenes).map(played));
    let (played, ()) = tokio::join!(on_clusters, reflecting);
    played.into_iter().collect::<Result<()>>()?;
    if filters.is_empty() {
        acts::image_is_small(&report, image)?;
    }
    Ok(report.conclude())
}

/// Starts a cluster with the operator, plays acts, and takes it down unless it is kept.
async fn on_a_cluster(
    options: Options,
    report: &Report,
    operator: &Path,
    scenes: &[&Scene],
    keep: bool,
) -> Result<()> {
    let act = Act { report, name: "cluster" };
    let whole = options.monitoring == Monitoring::Operator;
    let mut cluster = Cluster::start_keepable(options).await?;
    if whole {
        all::calico(&cluster).await.context("installing Calico's kinds")?;
    }
    act.say("deploying the operator from deploy/, as `make deploy` does");
    cluster.deploy_operator().await?;
    acts::play(&cluster, report, operator, scenes).await;
    if keep {
        let environment = write_environment(&cluster).await?;
        cluster.keep()?;
        println!(
            "\nThe cluster stays until `make lab-down`; to use it: . .lab/env\n\n{environment}"
        );
        return Ok(());
    }
    let (ending, dir) = (Instant::now(), cluster.dir().display().to_string());
    let down = cluster.down().await;
    let left: Vec<String> =
        lab::cluster::leftovers().into_iter().filter(|it| it.contains(&dir)).collect();
    let figure = down.as_ref().err().map_or_else(
        || format!("{:.1} s {}", ending.elapsed().as_secs_f64(), left.join(", ")),
        |error| format!("{error:#}"),
    );
    act.claim("everything taken down again", down.is_ok() && left.is_empty(), figure);
    Ok(())
}
