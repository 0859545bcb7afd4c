//! The product's jobs, played on a real cluster and judged.

pub mod all;
mod checks;
mod exposition;
mod leader;
mod objects;
pub mod prober;
pub mod reflectors;
mod story;
pub mod swarm;
mod view;

use std::time::Instant;

use anyhow::Result;

pub use checks::{Check, table};

use crate::cluster::operator::write_environment;
use crate::cluster::{Cluster, Options};
use crate::image;

/// The capacity written on the nodes: their links report 10 Gbit/s, too much for a test to fill.
const CAPACITY: &str = "1G";

/// Starts a cluster, plays the demo, prints the checks, and takes the cluster down unless it should
/// be kept.
///
/// Returns whether all checks passed.
///
/// # Errors
///
/// If the cluster cannot be started or taken down. A failure in between is a failed check.
pub async fn run(keep: bool) -> Result<bool> {
    let options = Options {
        capacity: Some(CAPACITY.to_owned()),
        images: vec![image::product_archive()],
        ..Options::default()
    };
    perform(options, keep, story::play).await
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

/// Prints the checks; returns whether all passed.
pub(crate) fn conclude(checks: &[Check], started: Instant) -> bool {
    let failed = checks.iter().filter(|check| !check.pass).count();
    println!("\n{}", table(checks));
    println!(
        "{}: {} of {} checks passed in {:.0} s",
        if failed == 0 { "PASS" } else { "FAIL" },
        checks.len() - failed,
        checks.len(),
        started.elapsed().as_secs_f64()
    );
    failed == 0
}
