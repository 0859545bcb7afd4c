//! Route reflectors with real BGP: a network that changes all the time, judged by what its nodes
//! see.

mod acts;
mod control;
mod families;
mod faults;
mod foreign;
mod operator;
mod retire;
mod set;
mod stage;
mod step;
mod table;
mod verdict;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::report::Act;
use foreign::Foreign;
use lab::bgp::Family;
use lab::checks::Check;
use stage::Stage;

const ZONES: [&str; 3] = ["a", "b", "c"];
/// Reflectors of a zone.
const PER_ZONE: usize = 2;
/// A busy machine judges and starts things late.
const PATIENCE: Duration = Duration::from_mins(1);
/// Lines of the operator's log that are shown when the demo does not finish.
const LINES: usize = 60;

/// A part of the demo, on nodes of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Everything that can happen to reflectors, in three zones.
    ThreeZones,
    /// Nodes that speak IPv4 and IPv6, and one that does not.
    DualStack,
    /// Nodes that speak IPv6 alone.
    Ipv6,
    /// The shortest way from the mesh to reflectors and back, with one of them replaced on the
    /// way, in both address families.
    Short,
    /// Reflectors and mesh go where Felix programs the routes, and come back when BGP is needed.
    Retire,
}

/// The parts of the whole demo.
pub const PARTS: [Part; 3] = [Part::ThreeZones, Part::DualStack, Part::Ipv6];

/// The ground of a part.
#[derive(Debug, Clone, Copy)]
struct Scene {
    /// The prefix of its checks' names; empty for the first part.
    name: &'static str,
    nodes: u8,
    zones: &'static [&'static str],
    families: &'static [Family],
    /// Steps that the part owes its name.
    steps: usize,
}

impl Part {
    fn scene(self) -> Scene {
        // Enough for clients in every zone.
        let few = Scene { name: "", nodes: 12, zones: &ZONES, families: &[Family::V4], steps: 3 };
        match self {
            Self::ThreeZones => Scene { nodes: 18, steps: 14, ..few },
            Self::DualStack => {
                Scene { name: "dual stack: ", families: &Family::ALL, steps: 6, ..few }
            }
            Self::Ipv6 => Scene { name: "IPv6: ", families: &[Family::V6], ..few },
            Self::Short => Scene { families: &Family::ALL, ..few },
            Self::Retire => Scene { name: "retirement: ", families: &Family::ALL, steps: 4, ..few },
        }
    }

    async fn play(self, stage: &mut Stage<'_>, checks: &mut Vec<Check>) -> Result<()> {
        match self {
            Self::ThreeZones => play_three_zones(stage, checks).await,
            Self::DualStack => families::dual_stack(stage).await,
            Self::Ipv6 => families::ipv6(stage).await,
            Self::Short => play_short(stage, checks).await,
            Self::Retire => retire::play(stage, checks).await,
        }
    }
}

/// Starts nodes and the operator as a process for each part, plays it, and takes everything down.
///
/// With `keep` the last part stays until Ctrl-C.
pub async fn play(act: Act<'_>, parts: &[Part], keep: bool, operator: &Path) -> Result<()> {
    for (number, part) in parts.iter().enumerate() {
        let keep = keep && number + 1 == parts.len();
        let name = part.scene().name;
        for check in perform(act, *part, operator, keep).await? {
            act.check(Check { name: format!("{name}{}", check.name), ..check });
        }
    }
    Ok(())
}

async fn perform(act: Act<'_>, part: Part, operator: &Path, keep: bool) -> Result<Vec<Check>> {
    let scene = part.scene();
    let mut stage = Stage::set(&scene, operator, act).await?;
    let mut checks = Vec::new();
    if let Err(error) = part.play(&mut stage, &mut checks).await {
        act.say(&format!("the operator's log:\n{}", stage.operator.log(LINES)));
        checks.push(Check::new("the part was played to its end", false, format!("{error:#}")));
    }
    println!("\n{}", table::table(&stage.rows));
    checks.splice(0..0, verdict::all(&stage, scene.steps));
    if keep {
        println!("\n{}", lab::checks::table(&checks));
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

async fn play_three_zones(stage: &mut Stage<'_>, checks: &mut Vec<Check>) -> Result<()> {
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

async fn play_short(stage: &mut Stage<'_>, checks: &mut Vec<Check>) -> Result<()> {
    let foreign = Foreign::place(stage).await?;
    acts::from_the_mesh(stage).await?;
    acts::cordon(stage).await?;
    acts::to_the_mesh(stage).await?;
    checks.push(foreign.check(stage).await?);
    checks.push(control::mistake(stage).await?);
    Ok(())
}
