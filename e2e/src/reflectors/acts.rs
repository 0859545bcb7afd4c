//! The users' changes of the nodes and of the object.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::json;

use super::set::Set;
use super::stage::{NAME, Stage};
use super::step::Step;
use super::{PER_ZONE, ZONES, foreign};
use crate::objects::ours;
use lab::bgp::Family;
use lab::wait::until;

pub(super) const SET: &str = include_str!("../../manifests/reflectors/set.yaml");
const WATCH: &str = include_str!("../../manifests/reflectors/watch.yaml");
/// A link that is not busy, and one that is too busy.
pub(super) const LOADS: [f64; 2] = [20.0, 95.0];

/// Number of nodes in a reflector's replacement: one leaves, and one joins.
pub(super) const REPLACED: usize = 2;

/// Everything in its place: two reflectors for each zone, the mesh off.
pub(super) fn served(set: &Set, topology: &str) -> Option<String> {
    served_in(&ZONES, set, topology)
}

pub(super) fn served_in(zones: &[&str], set: &Set, topology: &str) -> Option<String> {
    if set.slots.len() != PER_ZONE * zones.len() {
        return Some(format!("{} slots", set.slots.len()));
    }
    if set.topology != topology {
        return Some(format!("topology {}", set.topology));
    }
    if topology == "Zonal"
        && let Some(zone) = zones.iter().find(|zone| set.of_zone(zone).len() != PER_ZONE)
    {
        return Some(format!("zone {zone} has {:?}", set.of_zone(zone)));
    }
    (set.mesh != "Off").then(|| "the mesh is on".to_owned())
}

/// The same, without a node.
pub(super) fn served_without(set: &Set, node: &str) -> Option<String> {
    if set.holds(node) { Some(format!("{node} has a slot")) } else { served(set, "Zonal") }
}

/// A node's link is judged by a `TrafficWatch` before there is a set.
pub(super) async fn watch_links(stage: &Stage<'_>) -> Result<()> {
    for machine in stage.site.ground.machines() {
        stage.monitoring.set_load(&machine.name, LOADS[0]);
    }
    stage.apply(WATCH).await?;
    let nodes: Api<Node> = Api::all(stage.client.clone());
    until("all links judged", super::PATIENCE, || async {
        let judged =
            nodes.list(&ListParams::default().labels("links.traffic.example.com/unfit")).await?;
        let (judged, all) = (judged.items.len(), stage.site.ground.machines().len());
        Ok((judged != all).then(|| format!("{judged} of {all}")))
    })
    .await
}

/// Waits until no link is loaded any more, and everybody knows.
pub(super) async fn all_fit(stage: &Stage<'_>) -> Result<()> {
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let unfit = ListParams::default().labels("links.traffic.example.com/unfit=true");
    until("all links fit", super::PATIENCE, || async {
        let unfit = nodes.list(&unfit).await?.items.len();
        Ok((unfit != 0).then(|| format!("{unfit} are not")))
    })
    .await?;
    stage.settled("everything at rest", async |_: &Stage| Ok(None)).await
}

pub(super) async fn forget_links(stage: &Stage<'_>) -> Result<()> {
    let watches = watches(stage);
    watches.delete("links", &DeleteParams::default()).await?;
    until("the TrafficWatch gone", super::PATIENCE, || async {
        Ok(watches.get_opt("links").await?.map(|_| "it is there".to_owned()))
    })
    .await
}

fn watches(stage: &Stage<'_>) -> Api<DynamicObject> {
    let watches = ours("TrafficWatch", "trafficwatches");
    Api::namespaced_with(stage.client.clone(), "default", &watches)
}

pub(super) async fn from_the_mesh(stage: &mut Stage<'_>) -> Result<()> {
    let act = async |stage: &mut Stage<'_>| stage.apply(SET).await;
    let step = Step::new("mesh -> reflectors", PER_ZONE * ZONES.len());
    stage.step(step, act, |set| served(set, "Zonal")).await
}

pub(super) async fn reflector(stage: &Stage<'_>, zone: &str) -> Result<String> {
    let set = stage.reported().await?;
    let found = set.of_zone(zone).first().map(|&node| node.to_owned());
    found.with_context(|| format!("no reflector in zone {zone}"))
}

/// A node of this zone that reflects nothing.
async fn client(stage: &Stage<'_>, zone: &str) -> Result<String> {
    let set = stage.reported().await?;
    let world = stage.site.confd.last().world;
    let in_zone = |labels: &std::collections::BTreeMap<String, String>| {
        labels.get(lab::bgp::ZONE).is_some_and(|of| of == zone)
    };
    let mut clients =
        world.nodes.iter().filter(|(name, node)| in_zone(&node.labels) && !set.holds(name));
    let found = clients.next().map(|(name, _)| name.clone());
    found.with_context(|| format!("no client in zone {zone}"))
}

/// A node is switched off and its Node deleted.
pub(super) async fn delete(stage: &Stage<'_>, node: &str) -> Result<()> {
    stage.measure.watch.remove(&*stage.site.ground.machine(node)?)?;
    stage.site.ground.remove(node)?;
    stage.monitoring.follow_machines()?;
    stage.monitoring.forget_load(node);
    stage.site.nodes.delete(node).await
}

pub(super) async fn delete_a_reflector(stage: &mut Stage<'_>) -> Result<()> {
    let node = reflector(stage, "a").await?;
    let act = async |stage: &mut Stage<'_>| delete(stage, &node).await;
    let step = Step::new("a reflector deleted", REPLACED);
    stage.step(step, act, |set| served_without(set, &node)).await
}

pub(super) async fn add_and_remove(stage: &mut Stage<'_>) -> Result<()> {
    let clients = clients(&stage.reported().await?);
    let act = async |stage: &mut Stage<'_>| {
        let new = stage.site.ground.add(1, &[Family::V4])?.remove(0);
        stage.measure.watch.add(&new)?;
        stage.monitoring.set_load(&new.name, LOADS[0]);
        stage.site.nodes.create(&new, "a").await?;
        stage.monitoring.add(&new.name)?;
        foreign::mark(stage, &new.name).await
    };
    let joined = |set: &Set| (self::clients(set) <= clients).then(|| "it has no group".to_owned());
    let step = Step::new("a node joins", 1);
    stage.step(step, act, |set| served(set, "Zonal").or_else(|| joined(set))).await?;
    let node = client(stage, "b").await?;
    let act = async |stage: &mut Stage<'_>| delete(stage, &node).await;
    let left = |set: &Set| (self::clients(set) > clients).then(|| "it has a group".to_owned());
    let step = Step::new("a client deleted", 1);
    stage.step(step, act, |set| served(set, "Zonal").or_else(|| left(set))).await
}

fn clients(set: &Set) -> i64 {
    set.groups.values().sum()
}

pub(super) async fn cordon(stage: &mut Stage<'_>) -> Result<()> {
    let node = reflector(stage, "b").await?;
    let act = async |stage: &mut Stage<'_>| stage.site.nodes.set_cordoned(&node, true).await;
    let step = Step::new("a reflector cordoned", REPLACED);
    stage.step(step, act, |set| served_without(set, &node)).await?;
    stage.site.nodes.set_cordoned(&node, false).await
}

pub(super) async fn not_ready(stage: &mut Stage<'_>) -> Result<()> {
    let node = reflector(stage, "c").await?;
    let act = async |stage: &mut Stage<'_>| stage.site.nodes.set_ready(&node, false).await;
    let step = Step::new("a reflector NotReady", REPLACED);
    stage.step(step, act, |set| served_without(set, &node)).await?;
    stage.site.nodes.set_ready(&node, true).await
}

pub(super) async fn unfit(stage: &mut Stage<'_>) -> Result<()> {
    let node = reflector(stage, "a").await?;
    let act = async |stage: &mut Stage<'_>| {
        stage.monitoring.set_load(&node, LOADS[1]);
        Ok(())
    };
    let step = Step::new("a reflector's link loaded", REPLACED);
    stage.step(step, act, |set| served_without(set, &node)).await?;
    stage.monitoring.set_load(&node, LOADS[0]);
    Ok(())
}

/// Changes the topology.
pub(super) async fn topology(stage: &Stage<'_>, topology: &str) -> Result<()> {
    let patch = json!({"spec": {"topology": topology}});
    let patched = stage.sets.patch(NAME, &PatchParams::default(), &Patch::Merge(&patch)).await;
    patched.context("changing the topology").map(drop)
}

/// Deletes the set, and waits until the mesh is back.
pub(super) async fn to_the_mesh(stage: &mut Stage<'_>) -> Result<()> {
    let name = "back to the mesh";
    let start = lab::bgp::Start::now();
    stage.say(&format!("{name} …"));
    stage.sets.delete(NAME, &DeleteParams::default()).await?;
    stage
        .settled(name, async |stage: &Stage<'_>| {
            if stage.sets.get_opt(NAME).await?.is_some() {
                return Ok(Some("it is still there".to_owned()));
            }
            let world = stage.site.confd.last().world;
            Ok((!world.mesh).then(|| "the mesh is off".to_owned()))
        })
        .await?;
    stage.judge(Step::new(name, PER_ZONE * stage.zones.len()), start).await?;
    let world = stage.site.confd.last().world;
    let left = world.nodes.values().filter(|node| node.cluster_id.is_some()).count();
    let peers = stage.rows.last().map_or(0, |row| row.peers);
    ensure!((left, peers) == (0, 0), "{left} reflectors and {peers} BGPPeers are left");
    Ok(())
}
