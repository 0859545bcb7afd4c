//! Four zones: one loses both of its reflectors, and gets others.

use std::collections::BTreeSet;

use anyhow::Result;

use super::acts::{REPLACED, delete, reflector, served_in, to_the_mesh};
use super::set::Set;
use super::stage::Stage;
use super::step::Step;
use super::{FOUR_ZONES, PER_ZONE};
use lab::bgp::ZONE;

const SET: &str = include_str!("../../manifests/reflectors/four-zones.yaml");

pub async fn play(stage: &mut Stage<'_>) -> Result<()> {
    let act = async |stage: &mut Stage<'_>| stage.apply(SET).await;
    let step = Step::new("mesh -> reflectors", PER_ZONE * FOUR_ZONES.len());
    stage.step(step, act, served).await?;
    cordon(stage).await?;
    let dead = both_dead(stage, "b").await?;
    both_again(stage, &dead).await?;
    both_deleted(stage, "c").await?;
    to_the_mesh(stage).await
}

fn served(set: &Set) -> Option<String> {
    served_in(&FOUR_ZONES, set, "Zonal")
}

/// The same, without some nodes.
fn served_without(set: &Set, nodes: &[String]) -> Option<String> {
    let holder = nodes.iter().find(|node| set.holds(node));
    holder.map(|node| format!("{node} has a slot")).or_else(|| served(set))
}

async fn cordon(stage: &mut Stage<'_>) -> Result<()> {
    let node = reflector(stage, "a").await?;
    let act = async |stage: &mut Stage<'_>| stage.site.nodes.set_cordoned(&node, true).await;
    let gone = [node.clone()];
    let step = Step::new("a reflector cordoned", REPLACED);
    stage.step(step, act, |set| served_without(set, &gone)).await?;
    stage.site.nodes.set_cordoned(&node, false).await
}

/// The reflectors of a zone.
async fn reflectors(stage: &Stage<'_>, zone: &str) -> Result<Vec<String>> {
    Ok(stage.reported().await?.of_zone(zone).into_iter().map(str::to_owned).collect())
}

/// All nodes of a zone: without a reflector they are cut off.
fn nodes(stage: &Stage<'_>, zone: &str) -> BTreeSet<String> {
    let world = stage.site.confd.last().world;
    let all = world.nodes.into_iter();
    let of_zone = all.filter(|(_, node)| node.labels.get(ZONE).is_some_and(|of| of == zone));
    of_zone.map(|(name, _)| name).collect()
}

/// Both BIRDs of a zone end in order, which takes all routes away at once, and their nodes are
/// NotReady.
async fn both_dead(stage: &mut Stage<'_>, zone: &str) -> Result<Vec<String>> {
    let dead = reflectors(stage, zone).await?;
    let act = async |stage: &mut Stage<'_>| {
        for node in &dead {
            stage.site.ground.machine(node)?.stop()?;
            stage.dead.insert(node.clone());
            stage.site.nodes.set_ready(node, false).await?;
        }
        Ok(())
    };
    let step = Step::new("both reflectors of a zone dead", 2 * REPLACED)
        .touching(dead.iter().map(String::as_str))
        .cutting_off(nodes(stage, zone));
    let name = step.name.clone();
    stage.step(step, act, |set| served_without(set, &dead)).await?;
    let cut = stage.rows.last().map_or(0, |row| row.cut);
    if cut == 0 {
        stage.wrong.push(format!("{name}: nobody was cut off, so nothing was proven"));
    }
    Ok(dead)
}

/// The dead come back: nobody but these changes, and they get no slots.
async fn both_again(stage: &mut Stage<'_>, nodes: &[String]) -> Result<()> {
    let before = stage.reported().await?.slots;
    let act = async |stage: &mut Stage<'_>| {
        for node in nodes {
            stage.site.ground.machine(node)?.start(false)?;
            stage.site.nodes.set_ready(node, true).await?;
        }
        stage.dead.clear();
        Ok(())
    };
    let step = Step::new("the dead reflectors back", nodes.len())
        .touching(nodes.iter().map(String::as_str));
    let same =
        |set: &Set| (set.slots != before).then(|| format!("slots {:?}, not {before:?}", set.slots));
    stage.step(step, act, |set| served(set).or_else(|| same(set))).await
}

/// Both nodes of a zone are switched off, and their Nodes deleted.
async fn both_deleted(stage: &mut Stage<'_>, zone: &str) -> Result<()> {
    let gone = reflectors(stage, zone).await?;
    let act = async |stage: &mut Stage<'_>| {
        for node in &gone {
            delete(stage, node).await?;
        }
        Ok(())
    };
    let step = Step::new("both reflectors of a zone deleted", 2 * REPLACED)
        .cutting_off(nodes(stage, zone));
    stage.step(step, act, |set| served_without(set, &gone)).await
}
