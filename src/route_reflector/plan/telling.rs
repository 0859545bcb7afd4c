//! What the gauges tell of a pass.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::Counts;
use crate::route_reflector::{actual::Ground, fabric::Rule, memory::Told};

/// What is there: by the sessions that are configured, and by what the gate has counted. What is to be,
/// callers add.
pub fn told(ground: &Ground, leaving: &BTreeSet<Arc<str>>, measured: Option<&Counts>) -> Told {
    let fabric = &ground.fabric;
    let worst = fabric.worst_without_one(Rule::Bird).map_or(0, |(_, missing)| missing.pairs);
    let missing = fabric.missing(Rule::Bird).pairs;
    let mut slots: BTreeMap<(Arc<str>, &'static str), usize> = BTreeMap::new();
    for (node, _) in ground.reflectors() {
        let up = fabric.node(node).is_some_and(|node| node.up);
        let state = match (up, leaving.contains(node)) {
            (_, true) => "leaving",
            (true, false) => "serving",
            (false, false) => "notready",
        };
        let zone = ground.zone(node).cloned().unwrap_or_default();
        *slots.entry((zone, state)).or_default() += 1;
    }
    let paths = fabric.most_paths(Rule::Bird);
    Told {
        slots,
        mesh: fabric.mesh(),
        missing,
        missing_without_one: worst.max(missing),
        at_risk: measured.and_then(|measured| at_risk(ground, measured)),
        foreign: ground.foreign,
        paths: paths.reflector.table.max(paths.client.table),
        ..Told::default()
    }
}

/// Clients with one established session or none, of those that are to have more and that were measured.
fn at_risk(ground: &Ground, measured: &Counts) -> Option<usize> {
    let measured = measured.as_ref().ok()?;
    let sessions = ground.fabric.sessions();
    let clients = ground.fabric.nodes().iter();
    let clients = clients.filter(|node| node.up && node.cluster_id.is_none());
    let at_risk = clients.filter(|node| {
        let wanted = sessions.of(&node.name).map_or(0, |sessions| sessions.up);
        let counted = measured.nodes.get(&node.name);
        wanted > 1 && counted.is_some_and(|counted| counted.established.unwrap_or(0) < 2)
    });
    Some(at_risk.count())
}
