//! The sessions that a step depends on, whether they were counted, and the gauges of a pass.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use super::{Counts, Observed};
use crate::{
    api::route_reflector_set::Gate,
    route_reflector::{
        bgp_model::Rule,
        datastore,
        gate::{self, GateClosed, Part, Wanted},
        memory::{Figures, Memory, elapsed, seconds},
        names::few,
        settings::Settings,
        topology::{BgpTopology, ReflectorLabels},
    },
};

/// Assumed maximum age of a custom query's samples, which have no known age. Two scrapes of most
/// installations.
const UNDATED: Duration = Duration::from_mins(1);

/// Assumed maximum time from the request of some reports to the last of them, in seconds.
const ROUND_SECONDS: f64 = 60.0;

/// Number of clients with a requested report at a time: half of the maximum number of reports.
const SUSPECTS: usize = datastore::MAX_NODES / 2;

/// Nodes with sessions that are not counted: those that are down, and surplus reflectors, which may
/// be broken.
#[must_use]
pub fn discounted(bgp: &BgpTopology, leaving: &BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
    let down = bgp.fabric.nodes().iter().filter(|node| !node.up).map(|node| &node.name);
    down.chain(leaving).cloned().collect()
}

/// The expected sessions between nodes; the gate depends on those of reflectors, or of all nodes if
/// a step depends on the mesh.
#[must_use]
pub fn expected(bgp: &BgpTopology, discounted: &BTreeSet<Arc<str>>, everybody: bool) -> Wanted {
    let mut wanted = Wanted::new(bgp.fabric.mesh());
    for node in bgp.fabric.nodes().iter().filter(|node| node.up) {
        let marked = bgp.labels(&node.name).is_some_and(ReflectorLabels::is_reflector);
        let reflector = marked || node.cluster_id.is_some();
        let gated = !discounted.contains(&node.name) && (everybody || node.cluster_id.is_some());
        wanted.node(&node.name, Part { gated, reflector });
    }
    for fabric in bgp.families() {
        for neighbors in fabric.neighbors() {
            let of = neighbors.of.iter().filter(|node| !discounted.contains(&node.name));
            let names = of.filter_map(|node| {
                let name = neighbors.kind.protocol(node.address?, bgp.port(&node.name));
                Some((name, Arc::clone(&node.name)))
            });
            wanted.sessions(names.collect(), neighbors.by.iter().map(|node| &node.name));
        }
    }
    wanted
}

/// Succeeds if the gate is open.
///
/// # Errors
/// Why not.
pub fn opens(
    settings: &Settings,
    expected: &Wanted,
    observed: &Observed,
    last_step: Option<Timestamp>,
) -> Result<(), GateClosed> {
    let left = |time: Duration| {
        let over = last_step.map(|last| elapsed(last, observed.now));
        over.map_or(0, |over| time.saturating_sub(over).as_secs())
    };
    // No session is expected while no node reflects yet.
    if settings.gate != Gate::Wait && expected.is_empty() {
        return Ok(());
    }
    let wait = match settings.gate {
        Gate::Wait => left(settings.wait),
        Gate::Prometheus if settings.query.is_some() => left(UNDATED),
        _ => 0,
    };
    if wait > 0 {
        return Err(GateClosed::Waiting(wait));
    }
    let since = reported_since(expected, last_step, observed.now);
    let last_step = last_step.map(seconds);
    match settings.gate {
        Gate::Wait => Ok(()),
        Gate::NodeStatus => gate::judge(expected, &observed.memory.statuses, Some(since)),
        Gate::Prometheus => match &observed.measured {
            Some(Ok(measured)) => gate::judge(expected, measured, last_step),
            Some(Err(text)) => Err(GateClosed::Unavailable(text.clone())),
            None => Err(GateClosed::Unavailable("nothing was asked".into())),
        },
    }
}

/// Returns the time, by our clock, from which reports count: the last step, or a later time. Once a
/// node was seen it is not asked again, and its report may become as old as a round of all nodes
/// takes.
fn reported_since(expected: &Wanted, last_step: Option<Timestamp>, now: Timestamp) -> f64 {
    let rounds = expected.gated().count() / datastore::MAX_NODES + 2;
    let rounds = f64::from(u32::try_from(rounds).unwrap_or(u32::MAX));
    let oldest = seconds(now) - rounds * ROUND_SECONDS;
    last_step.map_or(oldest, |step| seconds(step).max(oldest))
}

/// The nodes that were not seen to have their sessions: Calico advises fewer than ten reports at a
/// time. The own report of a client that reflectors lack is requested before some of them are
/// requested again.
pub fn unseen(
    expected: &Wanted,
    memory: &Memory,
    last_step: Option<Timestamp>,
    now: Timestamp,
) -> Vec<Arc<str>> {
    let statuses = &memory.statuses;
    let since = reported_since(expected, last_step, now);
    let unseen = gate::unseen(expected, statuses, Some(since));
    let missing = unseen.missing.iter().map(|(node, ..)| node);
    let lacked = unseen.missing.first().into_iter().flat_map(|(node, ..)| {
        let sets = expected.of(node).flat_map(|set| &set.names);
        let reported = statuses.reported.get(node);
        let lacked = sets.filter(move |(name, _)| {
            reported.is_none_or(|all| !all.contains(&(name.kind, name.address)))
        });
        lacked.map(|(_, other)| other).filter(move |other| *other != node)
    });
    let clients: BTreeSet<_> = expected.clients().collect();
    let mut wanted: Vec<Arc<str>> = Vec::new();
    let suspects = lacked.filter(|node| clients.contains(node)).take(SUSPECTS);
    for node in suspects.chain(&unseen.unknown).chain(&unseen.stale).chain(missing) {
        if wanted.len() < datastore::MAX_NODES && !wanted.contains(node) {
            wanted.push(Arc::clone(node));
        }
    }
    wanted
}

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

#[cfg(test)]
mod tests;
