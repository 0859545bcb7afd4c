//! The way back to the mesh.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Next, Observed, choose,
    clock::last_step,
    counting::{discounted, expected, opens, unseen},
    status::figures,
};
use crate::{
    api::{RouteReflectorSet, route_reflector_set::Gate},
    route_reflector::{
        election,
        memory::{Figures, Memory},
        settings::Settings,
        steps::{self, Goal, Step},
        topology::BgpTopology,
    },
};

/// What is to be when the mesh is to carry everything again.
#[must_use]
pub fn restoration(settings: &Settings, bgp: &BgpTopology) -> Goal {
    let grouped = bgp.nodes.values().any(|actual| actual.labels.group.is_some());
    let reflects = bgp.reflectors().next().is_some();
    // Clients keep their groups until no reflector is left; who was one gets none: it has the wide peer.
    Goal {
        label: settings.label.clone(),
        slots: vec![],
        vacant: BTreeSet::new(),
        groups: (grouped && reflects).then(BTreeMap::new),
        peers: if reflects { kept(settings, bgp) } else { vec![] },
        mesh: Some(true),
        max_per_zone: settings.max_per_zone,
    }
}

/// The peers that are there, and the bridge.
fn kept(settings: &Settings, bgp: &BgpTopology) -> Vec<election::PeerSpec> {
    let ours = bgp.ours.iter().map(|(name, peer)| election::PeerSpec {
        name: name.clone(),
        node_selector: peer.node_selector.clone(),
        peer_selector: peer.peer_selector.clone(),
    });
    let mut peers: Vec<_> = ours.collect();
    if !peers.iter().any(|peer| peer.name == steps::WIDE) {
        peers.push(steps::way_back(bgp, &settings.label.0));
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
    pub figures: Figures,
}

/// What is next on the way back to the mesh.
#[must_use]
pub fn back(
    set: &RouteReflectorSet,
    observed: &Observed,
    settings: &Settings,
    bgp: &BgpTopology,
) -> Back {
    let goal = restoration(settings, bgp);
    let left = steps::pending(bgp, &goal);
    let discounted = discounted(bgp, &BTreeSet::new());
    let expected = expected(bgp, &discounted, true);
    let last = last_step(set, &observed.memory);
    let gate = |_: &Step| opens(settings, &expected, observed, last);
    let next = choose(bgp, &goal, &left, None, gate);
    let leaving = bgp.reflectors().map(|(node, _)| Arc::clone(node)).collect();
    let figures =
        Figures { steps_left: left.len(), ..figures(bgp, &leaving, observed.measured.as_ref()) };
    Back { goal, next, figures }
}

/// On the way back to the mesh: the nodes whose `CalicoNodeStatus` is still wanted.
#[must_use]
pub fn asked(
    settings: &Settings,
    bgp: &BgpTopology,
    memory: &Memory,
    set: &RouteReflectorSet,
) -> Vec<Arc<str>> {
    if settings.gate != Gate::NodeStatus {
        return vec![];
    }
    let expected = expected(bgp, &discounted(bgp, &BTreeSet::new()), true);
    unseen(&expected, memory, last_step(set, memory))
}
