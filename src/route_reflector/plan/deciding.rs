//! What is to be, from what is there.
use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::jiff::Timestamp;

use super::{Observed, clock::elapsed};
use crate::{
    api::{RouteReflectorSet, RouteReflectorSetStatus, route_reflector_set::Topology},
    nodes::{Readiness, Speaker},
    route_reflector::{
        actual::Ground,
        planner::{self, Member, Previous, PreviousSlot, Refusal, Target},
        report,
        settings::Settings,
        steps::{self, Goal, Step},
        taints,
    },
    selector::Selector,
};

/// What is to be, and the writes that are missing.
pub struct Decision {
    pub target: Target,
    pub goal: Goal,
    pub left: Vec<Step>,
    /// Since when reflectors have been unfit.
    pub unfit_since: BTreeMap<Arc<str>, Timestamp>,
}

/// Decides what is to be.
///
/// # Errors
/// What rules and nodes do not allow.
pub fn decide(
    set: &RouteReflectorSet,
    observed: &Observed,
    settings: &Settings,
    ground: &Ground,
) -> Result<Decision, Refusal> {
    let unfit_since = unfit_since(set, observed);
    let members = members(settings, observed, ground, &unfit_since);
    let target = planner::target(&settings.rules, &members, &previous(set, ground))?;
    let goal = goal(settings, &target);
    let left = steps::pending(ground, &goal);
    Ok(Decision { target, goal, left, unfit_since })
}

/// Since when nodes have been unfit: as the status has it, and from now on for others. While there is no
/// evidence no clock runs.
fn unfit_since(set: &RouteReflectorSet, observed: &Observed) -> BTreeMap<Arc<str>, Timestamp> {
    let Some(fitness) = observed.fitness.as_ref().filter(|fitness| fitness.frozen.is_none()) else {
        return BTreeMap::new();
    };
    let known: BTreeMap<&str, Timestamp> = set
        .status
        .iter()
        .flat_map(|status| &status.slots)
        .filter_map(|slot| Some((slot.node.as_str(), slot.unfit_since.as_ref()?.0)))
        .collect();
    let since = |node: &Arc<str>| known.get(&**node).copied().unwrap_or(observed.now);
    fitness.unfit.iter().map(|node| (Arc::clone(node), since(node))).collect()
}

/// The nodes as the planner sees them.
fn members(
    settings: &Settings,
    observed: &Observed,
    ground: &Ground,
    unfit_since: &BTreeMap<Arc<str>, Timestamp>,
) -> Vec<Member> {
    let workloads = observed.memory.workloads.as_ref().map(|(_, workloads)| workloads);
    let member = |speaker: &Speaker| {
        let label = |key: &str| {
            let found = speaker.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
            Some(&*speaker.labels[found].1)
        };
        let matches =
            |selector: &Option<Selector>| selector.as_ref().map(|selector| selector.matches(label));
        let actual = ground.nodes.get(&speaker.name);
        let marks = actual.map(|actual| actual.marks.clone()).unwrap_or_default();
        let address = actual.and_then(|actual| actual.address);
        let not_ready_for = match speaker.readiness {
            Readiness::Ready => None,
            Readiness::NotReady(since) => since
                .and_then(|since| Timestamp::from_second(since).ok())
                .map(|since| elapsed(since, observed.now)),
        };
        Member {
            name: Arc::clone(&speaker.name),
            zone: ground.zone(&speaker.name).cloned(),
            created: speaker.created,
            address,
            ready: speaker.readiness == Readiness::Ready,
            not_ready_for,
            closed: speaker.cordoned
                || taints::keeping_out(&speaker.taints, &settings.tolerations).is_some(),
            // Who speaks no BGP, or that of another AS, reflects nothing.
            suitable: address.is_some()
                && matches(&settings.selector) != Some(false)
                && matches(&settings.forbidden) != Some(true),
            preferred: matches(&settings.preferred) == Some(true),
            unfit: observed.fitness.as_ref().is_some_and(|f| f.unfit.contains(&speaker.name)),
            unfit_for: unfit_since.get(&speaker.name).map(|since| elapsed(*since, observed.now)),
            workloads: workloads.and_then(|w| w.get(&speaker.name)).copied().unwrap_or_default(),
            slot: marks.slot,
            group: marks.group,
            cluster_id: marks.cluster_id,
            labelled: marks.label.is_some(),
        }
    };
    observed.speakers.iter().map(member).collect()
}

/// What the status remembers; clients keep the slots of their groups' BGPPeers.
fn previous(set: &RouteReflectorSet, ground: &Ground) -> Previous {
    let Some(status) = &set.status else { return Previous::default() };
    let topology = match status.topology.as_deref() {
        Some("Simple") => Some(Topology::Simple),
        Some("Zonal") => Some(Topology::Zonal),
        Some("Multi") => Some(Topology::Multi),
        _ => None,
    };
    let slots = status.slots.iter().filter_map(|slot| {
        Some(PreviousSlot {
            id: u32::try_from(slot.id).ok()?,
            node: slot.node.as_str().into(),
            zone: slot.zone.as_deref().map(Into::into),
            cluster_id: slot.cluster_id.as_ref().and_then(|id| id.parse().ok()),
        })
    });
    let groups = status.groups.iter().map(|group| {
        let slots = group.slots.iter().filter_map(|slot| u32::try_from(*slot).ok()).collect();
        (group.name.as_str().into(), slots)
    });
    let groups = if ground.ours.is_empty() { BTreeMap::new() } else { groups.collect() };
    Previous { topology, slots: slots.collect(), groups }
}

fn goal(settings: &Settings, target: &Target) -> Goal {
    let grouped = target.topology != Topology::Simple;
    Goal {
        label: settings.label.clone(),
        slots: target.slots.clone(),
        groups: grouped.then(|| target.groups.clone()),
        peers: target.peers.clone(),
        mesh: settings.migrate.then_some(false),
        max_per_zone: settings.max_per_zone,
    }
}

/// What the status would remember of a decision.
pub fn remembered(
    set: &RouteReflectorSet,
    decision: &Decision,
    ground: &Ground,
    now: Timestamp,
) -> RouteReflectorSetStatus {
    let mut status = set.status.clone().unwrap_or_default();
    report::remember(&mut status, &decision.target, ground, &decision.unfit_since, now);
    status
}
