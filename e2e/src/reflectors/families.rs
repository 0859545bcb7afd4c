//! Dual stack and IPv6 alone: the same sessions in each address family, and routes in each.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::acts::{self, REPLACED, delete, reflector, served, served_without};
use super::foreign;
use super::set::Set;
use super::stage::Stage;
use super::step::Step;
use super::{PER_ZONE, ZONES};
use lab::bgp::{Family, Start};

/// The time for which a session of IPv6 is missing: the operator has had the time to go on.
const OUTAGE: Duration = Duration::from_secs(12);
/// Long enough for neighbors to see that a BIRD is gone.
const DEAD: Duration = Duration::from_secs(3);

pub(super) async fn dual_stack(stage: &mut Stage<'_>) -> Result<()> {
    without_ipv6_the_mesh_stays(stage).await?;
    let lone = of_ipv4_alone(stage).await?;
    replace(stage, "a", Some(&lone)).await?;
    bird6(stage).await?;
    reflector_deleted(stage).await?;
    acts::to_the_mesh(stage).await
}

pub(super) async fn ipv6(stage: &mut Stage<'_>) -> Result<()> {
    acts::from_the_mesh(stage).await?;
    replace(stage, "b", None).await?;
    acts::to_the_mesh(stage).await
}

/// A node has all sessions of IPv4 and none of IPv6: the mesh carries its routes until it has.
async fn without_ipv6_the_mesh_stays(stage: &mut Stage<'_>) -> Result<()> {
    let silent = stage.site.ground.machines().last().map_or_else(String::new, |m| m.name.clone());
    let act = async |stage: &mut Stage<'_>| {
        stage.site.ground.machine(&silent)?.stop_one(Family::V6)?;
        stage.dead.insert(silent.clone());
        stage.apply(acts::SET).await?;
        let waits = |set: &Set| set.current && set.why.starts_with("WaitingForSessions");
        stage.until("the gate shut", waits).await?;
        tokio::time::sleep(OUTAGE).await;
        let set = stage.reported().await?;
        ensure!(waits(&set) && set.mesh == "On", "mesh {}: {}", set.mesh, set.why);
        stage.say(&format!("    the mesh stays on: {}", set.why));
        stage.site.ground.machine(&silent)?.start_one(Family::V6)?;
        stage.dead.clear();
        Ok(())
    };
    // It may become a reflector.
    let step = Step::new("mesh -> reflectors, a node without IPv6", PER_ZONE * ZONES.len() + 1);
    stage.step(step.touching([&*silent]), act, |set| served(set, "Zonal")).await
}

/// A node that speaks IPv4 alone joins: it has routes, and cannot reflect.
async fn of_ipv4_alone(stage: &mut Stage<'_>) -> Result<String> {
    let clients = stage.reported().await?.groups.values().sum::<i64>();
    let new = stage.site.ground.add(1, &[Family::V4])?.remove(0);
    let act = async |stage: &mut Stage<'_>| {
        stage.measure.watch.add(&new)?;
        stage.site.nodes.create(&new, "a").await?;
        stage.monitoring.add(&new.name)?;
        foreign::mark(stage, &new.name).await
    };
    let joined = |set: &Set| {
        let alone = set.groups.values().sum::<i64>() <= clients;
        alone.then(|| "it has no group".to_owned())
    };
    let wanted = |set: &Set| served_without(set, &new.name).or_else(|| joined(set));
    stage.step(Step::new("a node of IPv4 alone joins", 1), act, wanted).await?;
    Ok(new.name.clone())
}

/// A reflector is cordoned, and another node takes its slot, but not `never`.
async fn replace(stage: &mut Stage<'_>, zone: &str, never: Option<&str>) -> Result<()> {
    let node = reflector(stage, zone).await?;
    let act = async |stage: &mut Stage<'_>| stage.site.nodes.set_cordoned(&node, true).await;
    let step = Step::new("a reflector cordoned", REPLACED);
    let took = |set: &Set| {
        never.filter(|never| set.holds(never)).map(|never| format!("{never} has a slot"))
    };
    stage.step(step, act, |set| took(set).or_else(|| served_without(set, &node))).await?;
    stage.site.nodes.set_cordoned(&node, false).await
}

/// The IPv6 BIRD of a reflector ends in order: the zone's other one carries the routes.
async fn bird6(stage: &mut Stage<'_>) -> Result<()> {
    let node = reflector(stage, "c").await?;
    let (name, start) = ("a reflector's IPv6 BIRD stopped", Start::now());
    stage.say(&format!("{name} …"));
    let machine = stage.site.ground.machine(&node)?;
    machine.stop_one(Family::V6)?;
    stage.dead.insert(node.clone());
    tokio::time::sleep(DEAD).await;
    let of_ipv6 = machine.established().iter().any(|name| name.contains("fd90"));
    ensure!(!of_ipv6 && !machine.established().is_empty(), "{name}: {:?}", machine.established());
    machine.start_one(Family::V6)?;
    stage.dead.clear();
    stage.settled(name, async |_: &Stage| Ok(None)).await?;
    stage.judge(Step::new(name, 1).touching([&*node]), start).await
}

async fn reflector_deleted(stage: &mut Stage<'_>) -> Result<()> {
    let node = reflector(stage, "b").await?;
    let act = async |stage: &mut Stage<'_>| delete(stage, &node).await;
    let step = Step::new("a reflector deleted", REPLACED);
    stage.step(step, act, |set| served_without(set, &node)).await
}
