//! The sessions that a step depends on, and whether they were counted.
use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;

use super::{
    Observed,
    clock::{elapsed, seconds},
};
use crate::{
    api::route_reflector_set::Gate,
    route_reflector::{
        datastore,
        gate::{self, GateClosed, Part, Wanted},
        memory::Memory,
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
pub(super) fn unseen(
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

#[cfg(test)]
mod tests;
