//! The way back to the mesh.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Next, Observed, choose,
    clock::last_step,
    counting::{discounted, expected, opens, unseen},
    status::told,
};
use crate::{
    api::{RouteReflectorSet, route_reflector_set::Gate},
    route_reflector::{
        election,
        memory::{Memory, Told},
        settings::Settings,
        steps::{self, Goal, Step},
        topology::Ground,
    },
};

/// What is to be when the mesh is to carry everything again.
#[must_use]
pub fn restoration(settings: &Settings, ground: &Ground) -> Goal {
    let grouped = ground.nodes.values().any(|actual| actual.marks.group.is_some());
    let reflects = ground.reflectors().next().is_some();
    // Clients keep their groups until no reflector is left; who was one gets none: it has the wide peer.
    Goal {
        label: settings.label.clone(),
        slots: vec![],
        vacant: BTreeSet::new(),
        groups: (grouped && reflects).then(BTreeMap::new),
        peers: if reflects { kept(settings, ground) } else { vec![] },
        mesh: Some(true),
        max_per_zone: settings.max_per_zone,
    }
}

/// The peers that are there, and the bridge.
fn kept(settings: &Settings, ground: &Ground) -> Vec<election::PeerSpec> {
    let ours = ground.ours.iter().map(|(name, peer)| election::PeerSpec {
        name: name.clone(),
        node_selector: peer.node_selector.clone(),
        peer_selector: peer.peer_selector.clone(),
    });
    let mut peers: Vec<_> = ours.collect();
    if !peers.iter().any(|peer| peer.name == steps::WIDE) {
        peers.push(steps::way_back(ground, &settings.label.0));
    }
    peers
}

/// What is to be, what is next on the way there, and what is told of it.
pub struct Back {
    /// The mesh, without reflectors.
    pub goal: Goal,
    /// The next step.
    pub next: Next,
    /// What the gauges tell.
    pub told: Told,
}

/// What is next on the way back to the mesh.
#[must_use]
pub fn back(
    set: &RouteReflectorSet,
    observed: &Observed,
    settings: &Settings,
    ground: &Ground,
) -> Back {
    let goal = restoration(settings, ground);
    let left = steps::pending(ground, &goal);
    let discounted = discounted(ground, &BTreeSet::new());
    let expected = expected(ground, &discounted, true);
    let last = last_step(set, &observed.memory);
    let gate = |_: &Step| opens(settings, &expected, observed, last);
    let next = choose(ground, &goal, &left, None, gate);
    let leaving = ground.reflectors().map(|(node, _)| Arc::clone(node)).collect();
    let told =
        Told { steps_left: left.len(), ..told(ground, &leaving, observed.measured.as_ref()) };
    Back { goal, next, told }
}

/// On the way back to the mesh: the nodes whose `CalicoNodeStatus` is still wanted.
#[must_use]
pub fn asked(
    settings: &Settings,
    ground: &Ground,
    memory: &Memory,
    set: &RouteReflectorSet,
) -> Vec<Arc<str>> {
    if settings.gate != Gate::NodeStatus {
        return vec![];
    }
    let expected = expected(ground, &discounted(ground, &BTreeSet::new()), true);
    unseen(&expected, memory, last_step(set, memory))
}
