//! Route reflectors with real BGP: a network that changes all the time, judged by what its nodes
//! see.

mod acts;
mod control;
mod faults;
mod foreign;
mod operator;
mod set;
mod stage;
mod step;
mod table;
mod verdict;
mod zones;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Check;
use foreign::Foreign;
use stage::Stage;

/// In three zones.
const NODES: u8 = 18;
/// Steps that the demo owes its name.
const STEPS: usize = 14;
/// Enough for clients in every zone.
const FEW_NODES: u8 = 12;
const FEW_STEPS: usize = 3;
const ZONES: [&str; 3] = ["a", "b", "c"];
const FOUR_ZONES: [&str; 4] = ["a", "b", "c", "d"];
/// A zone that has lost two reflectors twice still has a client.
const NODES_OF_FOUR_ZONES: u8 = 20;
const STEPS_OF_FOUR_ZONES: usize = 6;
/// Reflectors of a zone.
const PER_ZONE: usize = 2;
/// A busy machine judges and starts things late.
const PATIENCE: Duration = Duration::from_mins(1);
/// Lines of the operator's log that are shown when the demo does not finish.
const LINES: usize = 60;

/// Starts nodes and the operator as a process, plays the demo, prints the checks, and takes
/// everything down; first in three zones, then in four.
///
/// With `keep` it stays after the first part until Ctrl-C. Returns whether all checks passed.
///
/// # Errors
///
/// If the nodes cannot be started or taken down. What fails in between is a failed check.
pub async fn run(keep: bool, operator: &Path) -> Result<bool> {
    let started = Instant::now();
    let mut checks = perform(NODES, &ZONES, STEPS, operator, keep, play).await?;
    checks.extend(four_zones(operator).await?);
    Ok(super::conclude(&checks, started))
}

/// Only the part in four zones.
///
/// # Errors
///
/// As [`run`].
pub async fn run_four_zones(operator: &Path) -> Result<bool> {
    let started = Instant::now();
    let checks = four_zones(operator).await?;
    Ok(super::conclude(&checks, started))
}

async fn four_zones(operator: &Path) -> Result<Vec<Check>> {
    let play = async |stage: &mut Stage, _: &mut Vec<Check>| zones::play(stage).await;
    let (nodes, steps) = (NODES_OF_FOUR_ZONES, STEPS_OF_FOUR_ZONES);
    let checks = perform(nodes, &FOUR_ZONES, steps, operator, false, play).await?;
    let named = |check: Check| Check { name: format!("four zones: {}", check.name), ..check };
    Ok(checks.into_iter().map(named).collect())
}

/// The shortest way from the mesh to reflectors and back, with one of them replaced on the way.
///
/// # Errors
///
/// As [`run`].
pub async fn run_short(operator: &Path) -> Result<bool> {
    let started = Instant::now();
    let checks = perform(FEW_NODES, &ZONES, FEW_STEPS, operator, false, play_short).await?;
    Ok(super::conclude(&checks, started))
}

async fn perform(
    nodes: u8,
    zones: &'static [&'static str],
    steps: usize,
    operator: &Path,
    keep: bool,
    play: impl AsyncFnOnce(&mut Stage, &mut Vec<Check>) -> Result<()>,
) -> Result<Vec<Check>> {
    let started = Instant::now();
    let mut stage = Stage::set(nodes, zones, operator, started).await?;
    let mut checks = Vec::new();
    if let Err(error) = play(&mut stage, &mut checks).await {
        println!("\nThe operator's log:\n{}", stage.operator.log(LINES));
        checks.push(Check::new("the demo ran to its end", false, format!("{error:#}")));
    }
    println!("\n{}\n{}", table::table(&stage.rows), table::BESIDE_THE_ORIGINAL);
    checks.splice(0..0, verdict::all(&stage, steps));
    if keep {
        println!("\n{}", super::table(&checks));
        let kubeconfig = stage.site.plane.kubeconfig().display();
        println!("It stays until Ctrl-C: kubectl --kubeconfig {kubeconfig} get nodes,bgppeers,rrs");
        std::future::pending::<()>().await;
    }
    let ending = Instant::now();
    let struck = stage.strike().await;
    let figure = struck.as_ref().err().map_or_else(
        || format!("{:.1} s", ending.elapsed().as_secs_f64()),
        |error| format!("{error:#}"),
    );
    checks.push(Check::new("everything taken down again", struck.is_ok(), figure));
    Ok(checks)
}

async fn play(stage: &mut Stage, checks: &mut Vec<Check>) -> Result<()> {
    let foreign = Foreign::place(stage).await?;
    acts::watch_links(stage).await?;
    acts::from_the_mesh(stage).await?;
    acts::delete_a_reflector(stage).await?;
    acts::add_and_remove(stage).await?;
    acts::cordon(stage).await?;
    acts::not_ready(stage).await?;
    acts::unfit(stage).await?;
    faults::topologies(stage).await?;
    faults::bird(stage).await?;
    faults::prometheus(stage).await?;
    acts::all_fit(stage).await?;
    checks.push(control::idle(stage).await?);
    acts::to_the_mesh(stage).await?;
    acts::forget_links(stage).await?;
    checks.push(foreign.check(stage).await?);
    checks.push(control::mistake(stage).await?);
    Ok(())
}

async fn play_short(stage: &mut Stage, checks: &mut Vec<Check>) -> Result<()> {
    let foreign = Foreign::place(stage).await?;
    acts::from_the_mesh(stage).await?;
    acts::cordon(stage).await?;
    acts::to_the_mesh(stage).await?;
    checks.push(foreign.check(stage).await?);
    checks.push(control::mistake(stage).await?);
    Ok(())
}
