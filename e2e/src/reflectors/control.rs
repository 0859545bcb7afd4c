//! Checks that the ground would have seen a fault, and measures the cost of idling.

use std::time::Duration;

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::stage::{Stage, calicos};
use super::step::Step;
use super::table::Row;
use crate::judge as checks;
use lab::bgp::Start;
use lab::checks::Check;

/// The time without events.
const IDLE: Duration = Duration::from_secs(30);
/// Routes go in a moment, and come back after two seconds.
const SHOWN: Duration = Duration::from_secs(3);

/// Nothing happens: what is written?
pub(super) async fn idle(stage: &mut Stage<'_>) -> Result<Check> {
    stage.say(&format!("nothing, for {} s …", IDLE.as_secs()));
    let since = Timestamp::now();
    tokio::time::sleep(IDLE).await;
    let events = stage.site.plane.audit_since(since)?;
    let check = checks::silence(&events, SignedDuration::try_from(IDLE)?);
    stage.say(&format!("==> {}", check.figure));
    Ok(check)
}

/// Switches the mesh off by hand, with no reflectors in its place: the mistake that the operator
/// never makes.
pub(super) async fn mistake(stage: &mut Stage<'_>) -> Result<Check> {
    stage.say("by hand: the mesh is switched off, and there are no reflectors …");
    let start = Start::now();
    mesh(stage, false).await?;
    tokio::time::sleep(SHOWN).await;
    let took = start.at.elapsed();
    let outcome = stage.measure.outcome(start, &stage.site.confd, &[].into()).await?;
    let row = Row::new(&Step::new("the mesh off, by hand", 0), took, outcome);
    mesh(stage, true).await?;
    stage.settled("the mesh again", async |_: &Stage| Ok(None)).await?;
    let nodes = stage.site.ground.machines().len();
    let pairs = nodes * (nodes - 1);
    let figure =
        format!("{} of {pairs} pairs without a route, {} probes lost", row.missing, row.lost);
    stage.say(&format!("==> {figure}"));
    Ok(Check::new("a mistake is seen", row.missing == pairs && row.lost > 0, figure))
}

async fn mesh(stage: &Stage<'_>, on: bool) -> Result<()> {
    let configurations = calicos(&stage.client, "BGPConfiguration", "bgpconfigurations");
    let patch = json!({"spec": {"nodeToNodeMeshEnabled": on}});
    configurations.patch("default", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}
