//! Reflectors and mesh retire where Felix programs the routes, which routes of another protocol
//! play.

use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::acts;
use super::foreign::Foreign;
use super::set::Set;
use super::stage::{NAME, Stage};
use super::step::Step;
use super::{PER_ZONE, ZONES};
use lab::bgp::Start;
use lab::checks::Check;

/// BIRD programs the routes of the one, Felix those of the other.
const MODES: [&str; 2] = ["Never", "Always"];

pub(super) async fn play(stage: &mut Stage<'_>, checks: &mut Vec<Check>) -> Result<()> {
    let foreign = Foreign::place(stage).await?;
    pool(stage, MODES[0]).await?;
    beside_the_mesh(stage).await?;
    refused(stage, checks).await?;
    retired(stage, checks).await?;
    needed_again(stage).await?;
    checks.push(foreign.check(stage).await?);
    Ok(())
}

async fn pool(stage: &Stage<'_>, vxlan: &str) -> Result<()> {
    let yaml = format!(
        "apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {{name: pods}}\n\
         spec: {{cidr: 10.91.0.0/16, ipipMode: Never, vxlanMode: {vxlan}}}\n"
    );
    stage.apply(&yaml).await.context("the IPPool")
}

async fn change(stage: &Stage<'_>, spec: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": spec}));
    let patched = stage.sets.patch(NAME, &PatchParams::default(), &patch).await;
    patched.context("changing the set").map(drop)
}

fn all_there(set: &Set) -> Option<String> {
    let (slots, mesh) = (set.slots.len(), &set.mesh);
    (slots != PER_ZONE * ZONES.len() || mesh != "On").then(|| format!("{slots} slots, mesh {mesh}"))
}

async fn beside_the_mesh(stage: &mut Stage<'_>) -> Result<()> {
    let leave = acts::SET
        .replace("mesh: Migrate", "mesh: Leave")
        .replace("deletionPolicy: RestoreMesh", "deletionPolicy: Retain");
    let act = async |stage: &mut Stage<'_>| stage.apply(&leave).await;
    let step = Step::new("reflectors beside the mesh", PER_ZONE * ZONES.len());
    stage.step(step, act, all_there).await
}

/// BIRD programs the routes of the pool.
async fn refused(stage: &mut Stage<'_>, checks: &mut Vec<Check>) -> Result<()> {
    let (name, start) = ("a pool needs BGP", Start::now());
    stage.say(&format!("{name} …"));
    change(stage, json!({"mesh": "Retire", "transition": {"wait": "60s"}})).await?;
    let refuses = |set: &Set| set.current && set.why.starts_with("PlanRefused");
    stage.until("a refusal", refuses).await?;
    stage.settled(name, async |stage: &Stage<'_>| Ok(all_there(&stage.reported().await?))).await?;
    let ready = stage.sets.get(NAME).await?.data["status"]["conditions"].to_string();
    stage.judge(Step::new(name, 0), start).await?;
    let writes = stage.rows.last().map_or(0, |row| row.writes.network());
    checks.push(Check::new(
        "nothing retires while a pool needs BGP, which is named",
        writes == 0 && ready.contains("routes of these IPPools: pods;"),
        format!("{writes} writes to the network"),
    ));
    Ok(())
}

/// Felix programs the routes of the pool: probes do not notice that BGP ends.
async fn retired(stage: &mut Stage<'_>, checks: &mut Vec<Check>) -> Result<()> {
    let (name, start) = ("everything retires", Start::now());
    stage.site.ground.program_routes()?;
    let gone = |set: &Set| {
        let (slots, mesh) = (set.slots.len(), &set.mesh);
        (slots > 0 || mesh != "Off").then(|| format!("{slots} slots, mesh {mesh}: {}", set.why))
    };
    pool(stage, MODES[1]).await?;
    stage.say(&format!("{name} …"));
    stage
        .settled(name, async |stage: &Stage<'_>| {
            let set = stage.reported().await?;
            Ok(gone(&set).or_else(|| (!set.converged || !set.safe).then_some(set.why)))
        })
        .await?;
    let outcome = stage.measure.outcome(start, &stage.site.confd, &[].into()).await?;
    stage.judge(Step::new(name, PER_ZONE * ZONES.len()), start).await?;
    let last = stage.site.confd.last();
    let (sessions, left): (usize, usize) = (
        last.sessions.values().map(std::collections::BTreeMap::len).sum(),
        last.world.nodes.values().filter(|node| node.cluster_id.is_some()).count(),
    );
    let peers = stage.rows.last().map_or(0, |row| row.peers);
    checks.push(Check::new(
        "nothing is left of BGP between nodes",
        (sessions, left, peers) == (0, 0, 0),
        format!("{sessions} session ends, {left} reflectors, {peers} BGPPeers"),
    ));
    let (pairs, lost) = (outcome.all.pairs().len(), outcome.all.losses());
    checks.push(Check::new(
        "no probe was lost while it went, not even of the nodes that changed",
        pairs == 0 && lost == 0 && outcome.all.sent > 0 && outcome.resets > 0,
        format!(
            "{pairs} pairs without a route, {lost} of {} probes lost, {} session ends closed",
            outcome.all.sent, outcome.resets
        ),
    ));
    Ok(())
}

/// What went last comes back first.
async fn needed_again(stage: &mut Stage<'_>) -> Result<()> {
    let (name, start) = ("BGP is needed again", Start::now());
    stage.say(&format!("{name} …"));
    pool(stage, MODES[0]).await?;
    stage
        .settled(name, async |stage: &Stage<'_>| {
            let mesh = stage.site.confd.last().world.mesh;
            Ok((!mesh).then(|| "the mesh is off".to_owned()))
        })
        .await?;
    stage.judge(Step::new(name, 0), start).await
}
