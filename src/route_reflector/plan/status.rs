//! The gauges of a pass.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Counts,
    counting::{discounted, expected},
};
use crate::route_reflector::{bgp_model::Rule, memory::Figures, names::few, topology::BgpTopology};

/// Computes the gauges: from the configured sessions, and from the gate's counts. Callers add the
/// target.
pub fn figures(
    bgp: &BgpTopology,
    leaving: &BTreeSet<Arc<str>>,
    measured: Option<&Counts>,
) -> Figures {
    let fabric = &bgp.fabric;
    let worst = fabric.worst_without_one(Rule::Bird).map_or(0, |(_, missing)| missing.pairs);
    let missing = fabric.missing(Rule::Bird).pairs;
    let mut slots: BTreeMap<(Arc<str>, &'static str), usize> = BTreeMap::new();
    for (node, _) in bgp.reflectors() {
        let up = fabric.node(node).is_some_and(|node| node.up);
        let state = match (up, leaving.contains(node)) {
            (_, true) => "leaving",
            (true, false) => "serving",
            (false, false) => "notready",
        };
        let zone = bgp.zone(node).cloned().unwrap_or_default();
        *slots.entry((zone, state)).or_default() += 1;
    }
    // Routes that are there without it are there.
    let known = |missing: u64| Some(missing).filter(|n| *n == 0 || bgp.unreadable.is_empty());
    let paths = fabric.most_paths(Rule::Bird);
    Figures {
        slots,
        mesh: fabric.mesh(),
        missing: known(missing),
        missing_without_one: known(worst.max(missing)),
        unreadable: bgp.unreadable.len(),
        silent: measured.filter(|measured| measured.is_ok()).map(|_| silent(measured).len()),
        at_risk: measured.and_then(|measured| at_risk(bgp, measured)),
        foreign: bgp.foreign,
        paths: paths.reflector.table.max(paths.client.table),
        ..Figures::default()
    }
}

/// Measured clients with at most one of their expected sessions established, among those that
/// should have more.
fn at_risk(bgp: &BgpTopology, measured: &Counts) -> Option<usize> {
    let measured = measured.as_ref().ok()?;
    let nobody = BTreeSet::new();
    let here = || Arc::new(expected(bgp, &discounted(bgp, &nobody), false));
    let wanted = measured.asked.clone().unwrap_or_else(here);
    let clients = bgp.fabric.nodes().iter();
    let clients = clients.filter(|node| node.up && node.cluster_id.is_none());
    let at_risk = clients.filter(|node| {
        let counted = measured.nodes.contains_key(&node.name);
        let established = measured.established(&wanted, &node.name);
        counted && wanted.count(&node.name, &nobody) > 1 && established.is_some_and(|n| n < 2)
    });
    Some(at_risk.count())
}

/// Clients without any session, which no gate waits for.
fn silent(measured: Option<&Counts>) -> Vec<Arc<str>> {
    let measured = measured.and_then(|measured| measured.as_ref().ok());
    let silent = measured.and_then(|measured| Some(measured.silent(measured.asked.as_ref()?)));
    silent.into_iter().flatten().collect()
}

/// Returns remarks for people about the plan.
pub fn remarks(bgp: &BgpTopology, measured: Option<&Counts>) -> Vec<String> {
    let mut remarks = bgp.families.remarks();
    let silent = silent(measured);
    if !silent.is_empty() {
        let few = few(silent.iter());
        remarks
            .push(format!("Ready nodes without any BGP session, for which no step waits: {few}"));
    }
    remarks
}
