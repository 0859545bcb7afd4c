//! `mesh: Retire`: reflectors and mesh go where no route depends on BGP, and come back where one
//! does again. Pure.
//!
//! That no route depends on BGP is known from who programs the routes ([`Routing`]), and not from
//! the absence of anything. While the mesh is on, reflectors become clients of it one by one, then
//! their BGPPeers go, and the mesh last: all but the last step would keep the routes of BGP too.
//! Where the mesh is off already, the BGPPeers go first, while all that served them is in place.
//!
//! [`Routing`]: crate::route_reflector::datastore::Routing
use std::collections::{BTreeMap, BTreeSet};

use super::{Decision, GateClosed, Pass};
use crate::{
    api::{RouteReflectorSet, route_reflector_set::Mesh},
    route_reflector::{
        cleanup::kept,
        datastore::{Idle, Needed},
        election::{Leave, Leaving, Target},
        memory::elapsed,
        names::few,
        settings::Settings,
        steps::{self, Goal, Step},
        topology::BgpTopology,
    },
};

/// Decides what goes, or what comes back; the inner error is why everything of ours stays and is
/// kept up.
///
/// # Errors
/// Why the mesh stays, where nothing of ours is in use.
pub(super) fn decide(
    set: &RouteReflectorSet,
    settings: &Settings,
    bgp: &BgpTopology,
) -> Result<Result<Decision, String>, String> {
    let (why, known) = match bgp.routing.retires() {
        Ok(idle) => match by_way_of_others(bgp, &idle) {
            None => return Ok(Ok(retirement(settings, bgp, Ok(idle)))),
            Some(why) => (why, false),
        },
        Err(Needed::Unknown(why)) => return Ok(Ok(retirement(settings, bgp, Err(why)))),
        Err(Needed::Known(why)) => (why, true),
    };
    let why = format!("spec.mesh: Retire would lose routes: {why}");
    let before = set.status.as_ref().and_then(|status| status.mesh_before.as_deref());
    if known && before == Some("On") && !bgp.fabric.mesh() {
        let goal = Goal { mesh: Some(true), retires: false, ..goal(settings, bgp) };
        let left = vec![Step::Mesh(true)];
        return Ok(Ok(Decision { goal, left, refused: Some(why), ..nothing() }));
    }
    if !known || before != Some("Off") && !in_use(bgp) {
        return Err(why);
    }
    Ok(Err(format!("{why}; what is in use stays, and is repaired")))
}

/// Reports whether something of ours is there.
fn in_use(bgp: &BgpTopology) -> bool {
    !bgp.ours.is_empty() || ours(bgp).next().is_some()
}

/// The reflectors that a set has made or adopted.
fn ours(bgp: &BgpTopology) -> impl Iterator<Item = Leaving> {
    bgp.reflectors().filter_map(|(node, labels)| {
        Some(Leaving { node: node.clone(), slot: labels.slot?, reason: Leave::Surplus })
    })
}

/// Where BIRD runs, it may tell peers outside of the cluster about the pods of other nodes.
fn by_way_of_others(bgp: &BgpTopology, idle: &Idle) -> Option<String> {
    let (peers, nodes) = bgp.by_way_of_others();
    if idle.reason == "BGPDisabled" || nodes.is_empty() {
        return None;
    }
    let (peers, nodes) = (few(peers.iter()), few(nodes.iter()));
    Some(format!(
        "peers outside of the cluster (BGPPeers {peers}) exchange routes with these nodes by way of other nodes: \
         {nodes}; give each node one such BGPPeer, or delete those"
    ))
}

fn nothing() -> Decision {
    Decision {
        target: Target::default(),
        goal: Goal::default(),
        left: vec![],
        unsound: None,
        refused: None,
        unfit_since: BTreeMap::new(),
        obstacles: None,
        retires: None,
    }
}

fn goal(settings: &Settings, bgp: &BgpTopology) -> Goal {
    let stay = bgp.fabric.mesh() && ours(bgp).next().is_some();
    Goal {
        label: settings.label.clone(),
        slots: vec![],
        groups: None,
        vacant: BTreeSet::new(),
        peers: if stay { kept(settings, bgp) } else { vec![] },
        mesh: Some(false),
        max_per_zone: settings.max_per_zone,
        retires: true,
    }
}

fn retirement(settings: &Settings, bgp: &BgpTopology, witness: Result<Idle, String>) -> Decision {
    let goal = goal(settings, bgp);
    let left = steps::pending(bgp, &goal);
    let target = Target { leaving: ours(bgp).collect(), ..Target::default() };
    Decision { target, goal, left, retires: Some(witness), ..nothing() }
}

/// Returns the state of the mesh to restore if routes depend on BGP again: `On`, or `Off` where
/// reflectors were in its place. It is published before the first step, and forgotten once it is
/// restored.
pub(in crate::route_reflector) fn mesh_before(
    set: &RouteReflectorSet,
    bgp: &BgpTopology,
    retires: bool,
) -> Option<String> {
    let known = set.status.as_ref().and_then(|status| status.mesh_before.clone());
    let on = bgp.fabric.mesh();
    let now = if on { Some("On") } else { in_use(bgp).then_some("Off") };
    match set.spec.mesh {
        Mesh::Retire if retires => known.or(now.map(str::to_owned)),
        Mesh::Retire => known.filter(|before| !(on && before == "On")),
        Mesh::Leave | Mesh::Migrate => None,
    }
}

impl Pass<'_> {
    /// Succeeds if nothing depends on the sessions that a step ends, and has not for some time: an
    /// upgrade of Calico changes who programs the routes before every node does so.
    pub(super) fn retires(
        &self,
        witness: &Result<Idle, String>,
        step: &Step,
    ) -> Result<(), GateClosed> {
        let decided = &self.decided;
        if let Some(stale) = &decided.snapshot.stale {
            return Err(GateClosed::Datastore(stale.to_string()));
        }
        witness.as_ref().map_err(|why| GateClosed::Routes(why.clone()))?;
        decided.bgp.known()?;
        let published = decided.set.status.as_ref().is_some_and(|s| s.mesh_before.is_some())
            || matches!(step, Step::LabelClients { .. });
        let since = self.observed.memory.witnessed;
        let long = since.is_some_and(|at| elapsed(at, self.observed.now) >= self.settings.wait);
        if !published || !long {
            let text = "no route has depended on BGP for less than transition.wait";
            return Err(GateClosed::Routes(text.into()));
        }
        self.observed.undisturbed(step)?;
        steps::allowed(decided.snapshot, step)
    }
}
