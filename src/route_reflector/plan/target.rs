//! The target, derived from the current state.
use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::jiff::Timestamp;

use super::{Observed, eligible, retire};
use crate::{
    api::{RouteReflectorSet, RouteReflectorSetStatus, route_reflector_set::Topology},
    nodes::{Readiness, Speaker},
    route_reflector::{
        datastore::Idle,
        election::{self, Member, Previous, PreviousSlot, Refusal, Rules, Slot, Target},
        memory::elapsed,
        report,
        settings::Settings,
        steps::{self, Goal, Step},
        topology::BgpTopology,
    },
};

/// The target of a pass, and the missing steps.
pub struct Decision {
    pub target: Target,
    pub goal: Goal,
    pub left: Vec<Step>,
    /// The reason to take none of the steps except repairs: the goal would cost routes.
    pub unsound: Option<steps::Refused>,
    /// The reason to stay with the topology in use.
    pub refused: Option<String>,
    /// The time since which reflectors have been unfit.
    pub unfit_since: BTreeMap<Arc<str>, Timestamp>,
    /// Why no node is eligible, if none is.
    pub obstacles: Option<String>,
    /// With `mesh: Retire`: why no route depends on BGP, or why that is not known.
    pub retires: Option<Result<Idle, String>>,
}

/// Decides which nodes reflect, or that none does any more.
///
/// # Errors
/// The refusal of the rules and nodes, if nothing is in use yet; of the retirement, if nothing of
/// ours is in use.
pub fn decide(
    set: &RouteReflectorSet,
    observed: &Observed,
    settings: &Settings,
    bgp: &BgpTopology,
) -> Result<Decision, String> {
    let refused = if settings.retire {
        match retire::decide(set, settings, bgp)? {
            Ok(decision) => return Ok(decision),
            Err(needed) => Some(needed),
        }
    } else {
        None
    };
    let decision = elect(set, observed, settings, bgp).map_err(|refusal| refusal.to_string())?;
    Ok(Decision { refused: refused.or(decision.refused), ..decision })
}

/// Decides which nodes reflect. An impossible spec never stops repair: the topology in use is
/// then kept up.
///
/// # Errors
/// The refusal of the rules and nodes, if nothing is in use yet.
fn elect(
    set: &RouteReflectorSet,
    observed: &Observed,
    settings: &Settings,
    bgp: &BgpTopology,
) -> Result<Decision, Refusal> {
    let unfit_since = unfit_since(set, observed);
    let members = members(settings, observed, bgp, &unfit_since);
    let previous = previous(set, bgp);
    let towards = |rules: &Rules| -> Result<Decision, Refusal> {
        let target = election::target(rules, &members, &previous)?;
        let goal = goal(settings, bgp, &previous, &target);
        let left = steps::pending(bgp, &goal);
        let unsound = if left.is_empty() { None } else { steps::sound(bgp, &goal).err() };
        let unfit_since = unfit_since.clone();
        let obstacles = target.freeze.map(|_| eligible::obstacles(settings, observed, bgp));
        Ok(Decision {
            target,
            goal,
            left,
            unsound,
            refused: None,
            unfit_since,
            obstacles,
            retires: None,
        })
    };
    let mut wanted = towards(&settings.rules);
    if let Some(why) = not_multi(&settings.rules, &wanted) {
        let simple = Rules { topology: Topology::Simple, ..settings.rules.clone() };
        wanted = towards(&simple);
        if let Ok(decision) = &mut wanted {
            let note = format!("topology Simple is used in place of Multi: {why}");
            decision.target.notes.push(note);
        }
    }
    let refused = match &wanted {
        Ok(Decision { unsound: None, .. }) => return wanted,
        Ok(Decision { unsound: Some(why), target, .. }) => {
            format!("topology {}: {why}", target.topology.as_str())
        }
        Err(refusal) => refusal.to_string(),
    };
    let in_use = previous.topology.filter(|in_use| match &wanted {
        Ok(decision) => decision.target.topology != *in_use,
        Err(refusal) => settings.rules.topology != *in_use || refuses_ids(*in_use, refusal),
    });
    let Some(topology) = in_use else { return wanted };
    let mut rules = Rules { topology, ..settings.rules.clone() };
    let mut kept = towards(&rules);
    if kept.as_ref().is_err_and(|refusal| refuses_ids(topology, refusal)) {
        rules.ids.per = None;
        kept = towards(&rules);
    }
    let kept = kept.map(|kept| {
        let topology = topology.as_str();
        let refused = format!("{refused}; topology {topology} is kept, and repaired");
        Decision { refused: Some(refused), ..kept }
    });
    kept.or(wanted)
}

/// Reports whether only `clusterID.per` keeps a topology from being kept up. Zones in use have an
/// id each, unless they could have one for each slot.
fn refuses_ids(in_use: Topology, refusal: &Refusal) -> bool {
    in_use == Topology::Zonal && matches!(refusal, Refusal::ManyIds { .. } | Refusal::OneIdForZones)
}

/// The reason why topology Simple is used where the spec requests Multi.
fn not_multi(rules: &Rules, wanted: &Result<Decision, Refusal>) -> Option<String> {
    if rules.topology != Topology::Multi {
        return None;
    }
    match wanted {
        Ok(Decision { target, unsound, .. }) => {
            let unsound = || unsound.as_ref().map(ToString::to_string);
            target.crowded.clone().or_else(unsound)
        }
        Err(refusal @ Refusal::ManyIds { .. }) => Some(refusal.to_string()),
        Err(_) => None,
    }
}

/// Returns the time since which nodes have been unfit: as the status has it, and from now on for
/// others. While there is no evidence no clock runs.
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
    bgp: &BgpTopology,
    unfit_since: &BTreeMap<Arc<str>, Timestamp>,
) -> Vec<Member> {
    let workloads = observed.memory.workloads.as_ref().map(|(_, workloads)| workloads);
    let member = |speaker: &Speaker, complete: bool| {
        let actual = bgp.nodes.get(&speaker.name);
        let labels = actual.map(|actual| actual.labels.clone()).unwrap_or_default();
        let address = actual.and_then(|actual| actual.address);
        let not_ready_for = match speaker.readiness {
            Readiness::Ready => None,
            Readiness::NotReady(since) => since
                .and_then(|since| Timestamp::from_second(since).ok())
                .map(|since| elapsed(since, observed.now)),
        };
        Member {
            name: Arc::clone(&speaker.name),
            zone: bgp.zone(&speaker.name).cloned(),
            created: speaker.incarnation.created,
            address,
            ready: speaker.readiness == Readiness::Ready,
            not_ready_for,
            closed: eligible::closed(settings, speaker).is_some(),
            suitable: eligible::unsuitable(settings, speaker, actual, complete).is_none(),
            preferred: eligible::selected(speaker, settings.preferred.as_ref()) == Some(true),
            unfit: observed.fitness.as_ref().is_some_and(|f| f.unfit.contains(&speaker.name)),
            unfit_for: unfit_since.get(&speaker.name).map(|since| elapsed(*since, observed.now)),
            workloads: workloads.and_then(|w| w.get(&speaker.name)).copied().unwrap_or_default(),
            slot: labels.slot,
            group: labels.group,
            cluster_id: labels.cluster_id,
            labeled: labels.label.is_some(),
        }
    };
    let all = |complete| observed.speakers.iter().map(move |speaker| member(speaker, complete));
    // A node with only one address family reflects if no node has both.
    let complete = all(true).any(|member| member.suitable);
    all(complete).collect()
}

/// Returns the slots that the status remembers; clients keep the slots of their groups' BGPPeers.
fn previous(set: &RouteReflectorSet, bgp: &BgpTopology) -> Previous {
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
    let groups = if bgp.ours.is_empty() { BTreeMap::new() } else { groups.collect() };
    Previous { topology, slots: slots.collect(), groups }
}

fn goal(settings: &Settings, bgp: &BgpTopology, previous: &Previous, target: &Target) -> Goal {
    let grouped = target.topology != Topology::Simple;
    let up = |node: &str| bgp.fabric.node(node).is_some_and(|node| node.up);
    // A node that is up and no longer a reflector was demoted, unless it becomes one again. One that
    // has just retired beside the mesh has the sessions of the mesh to lose.
    let retired = settings.retire && bgp.fabric.mesh();
    let lost = previous.slots.iter().filter(|slot| {
        let again = |to: &Slot| to.id == slot.id && to.node == slot.node && !retired;
        !up(&slot.node) || target.slots.iter().any(again)
    });
    let known = lost.map(|slot| slot.id);
    let held = bgp.reflectors().filter_map(|(_, labels)| labels.slot);
    // A node without the label of reflectors has no sessions with the others.
    let living = |slot: &u32| {
        bgp.reflectors()
            .any(|(node, labels)| labels.slot == Some(*slot) && labels.label.is_some() && up(node))
    };
    Goal {
        label: settings.label.clone(),
        slots: target.slots.clone(),
        vacant: known.chain(held).filter(|slot| !living(slot)).collect(),
        groups: grouped.then(|| target.groups.clone()),
        peers: target.peers.clone(),
        mesh: settings.migrate.then_some(false),
        max_per_zone: settings.max_per_zone,
        retires: false,
    }
}

/// Returns the slots that the status would remember of a decision.
pub fn remembered(
    set: &RouteReflectorSet,
    decision: &Decision,
    bgp: &BgpTopology,
    now: Timestamp,
) -> RouteReflectorSetStatus {
    let mut status = set.status.clone().unwrap_or_default();
    report::remember(&mut status, &decision.target, bgp, &decision.unfit_since, now);
    status.mesh_before = retire::mesh_before(set, bgp, decision.retires.is_some());
    status
}
