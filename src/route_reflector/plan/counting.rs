//! Which sessions a step stands on, and whether they were counted.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use super::{
    Observed,
    clock::{elapsed, seconds},
};
use crate::{
    api::route_reflector_set::Gate,
    route_reflector::{
        actual::Ground,
        datastore,
        fabric::{Fabric, Node},
        gate::{self, Shut},
        memory::Memory,
        settings::Settings,
    },
};

/// How old the samples of an author's query may be: they do not say. Two scrapes of most
/// installations.
const UNDATED: Duration = Duration::from_mins(1);

/// Nodes whose sessions are not counted: those that are down, and reflectors that are to be none, which may
/// be broken.
#[must_use]
pub fn discounted(ground: &Ground, leaving: &BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
    let down = ground.fabric.nodes().iter().filter(|node| !node.up).map(|node| &node.name);
    down.chain(leaving).cloned().collect()
}

/// The addresses that a count leaves out: those of such nodes, and everybody outside.
#[must_use]
pub fn excluded(ground: &Ground, discounted: &BTreeSet<Arc<str>>) -> Vec<IpAddr> {
    let addresses = discounted.iter().filter_map(|node| ground.fabric.node(node)?.address);
    let all: BTreeSet<_> = addresses.chain(ground.outside.iter().copied()).collect();
    all.into_iter().collect()
}

/// How many sessions each node is to have with the others: reflectors, or all nodes where the mesh is what
/// a step stands on.
#[must_use]
pub fn expected(
    ground: &Ground,
    discounted: &BTreeSet<Arc<str>>,
    everybody: bool,
) -> BTreeMap<Arc<str>, u32> {
    let counted = counting(ground, discounted);
    let sessions = counted.sessions();
    let nodes = counted.nodes().iter().filter(|node| node.up);
    let nodes = nodes.filter(|node| everybody || node.cluster_id.is_some());
    nodes
        .map(|node| (Arc::clone(&node.name), sessions.of(&node.name).map_or(0, |s| s.up)))
        .collect()
}

/// The network without those that are not counted.
fn counting(ground: &Ground, discounted: &BTreeSet<Arc<str>>) -> Fabric {
    if discounted.iter().all(|name| ground.fabric.node(name).is_none_or(|node| !node.up)) {
        return ground.fabric.clone();
    }
    let nodes = ground.fabric.nodes().iter().map(|node| {
        let up = node.up && !discounted.contains(&node.name);
        Node { up, ..node.clone() }
    });
    Fabric::new(nodes.collect(), ground.fabric.peers().to_vec(), ground.fabric.mesh())
}

/// Whether the gate is open.
///
/// # Errors
/// Why not.
pub fn opens(
    settings: &Settings,
    expected: &BTreeMap<Arc<str>, u32>,
    observed: &Observed,
    last_step: Option<Timestamp>,
) -> Result<(), Shut> {
    let left = |time: Duration| {
        let over = last_step.map(|last| elapsed(last, observed.now));
        over.map_or(0, |over| time.saturating_sub(over).as_secs())
    };
    // Nothing is expected where nobody reflects yet.
    if expected.values().all(|expected| *expected == 0) && settings.gate != Gate::Wait {
        return Ok(());
    }
    let wait = match settings.gate {
        Gate::Wait => left(settings.wait),
        Gate::Prometheus if settings.query.is_some() => left(UNDATED),
        _ => 0,
    };
    if wait > 0 {
        return Err(Shut::Waiting(wait));
    }
    let last_step = last_step.map(seconds);
    match settings.gate {
        Gate::Wait => Ok(()),
        Gate::NodeStatus => gate::judge(expected, &observed.memory.statuses, last_step),
        Gate::Prometheus => match &observed.measured {
            Some(Ok(measured)) => gate::judge(expected, measured, last_step),
            Some(Err(text)) => Err(Shut::Unavailable(text.clone())),
            None => Err(Shut::Unavailable("nothing was asked".into())),
        },
    }
}

/// The nodes that were not seen to have their sessions: Calico advises fewer than ten reports at a time.
pub(super) fn unseen(
    expected: &BTreeMap<Arc<str>, u32>,
    memory: &Memory,
    last_step: Option<Timestamp>,
) -> Vec<Arc<str>> {
    let last = last_step.map(seconds);
    let wanted = expected.iter().filter(|(_, expected)| **expected > 0);
    let wanted = wanted.filter(|(node, expected)| {
        let one = [(Arc::clone(node), **expected)].into();
        gate::judge(&one, &memory.statuses, last).is_err()
    });
    wanted.map(|(node, _)| Arc::clone(node)).take(datastore::MAX_NODES).collect()
}
