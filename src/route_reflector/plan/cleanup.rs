//! The way back to the mesh.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Desired, Observed, Reports,
    clock::{elapsed, last_step},
    counting::{discounted, expected, opens, unseen},
    status::figures,
};
use crate::{
    api::{RouteReflectorSet, route_reflector_set::Gate},
    controller::{Error, Notice},
    route_reflector::{
        election,
        gate::GateClosed,
        memory::Figures,
        next::{self, Next},
        settings::Settings,
        steps::{self, Goal, Step},
        topology::BgpTopology,
    },
};

/// Plans the restoration of the mesh.
#[must_use]
pub fn restoration(settings: &Settings, bgp: &BgpTopology) -> Goal {
    let grouped = bgp.nodes.values().any(|actual| actual.labels.group.is_some());
    let reflects = bgp.reflectors().next().is_some();
    // Clients keep their groups until no reflector is left; a former reflector gets none: it has
    // the wide peer.
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

/// The existing peers, and the bridge.
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

/// One pass back to the mesh.
pub struct Restore {
    /// The writes, if there are any.
    pub desired: Option<Desired>,
    /// The result of the pass after these: the restoration is finished, or the reason why not.
    pub end: Result<Vec<Notice>, Error>,
}

/// Decides one pass back to the mesh.
///
/// # Errors
/// [`Error::Invalid`], and [`Error::Pending`] while Calico's objects cannot be written.
pub fn restore(set: &RouteReflectorSet, observed: &Observed) -> Result<Restore, Error> {
    let settings = observed.settings.clone().map_err(Error::Invalid)?;
    let (snapshot, bgp) = match &observed.bgp {
        Ok((snapshot, _)) if snapshot.locked => {
            let text = "Calico is migrating its datastore".to_owned();
            return Err(Error::Pending("DatastoreLocked", text));
        }
        Ok((snapshot, bgp)) => match &snapshot.stale {
            Some(stale) => {
                return Err(Error::Pending("DatastoreUnreachable", stale.to_string()));
            }
            None => (snapshot, bgp),
        },
        // There is nothing to restore.
        Err(calico) if calico.reason == "CalicoNotFound" => {
            return Ok(Restore { desired: None, end: Ok(vec![]) });
        }
        Err(calico) => return Err(Error::Pending(calico.reason, calico.text.clone())),
    };
    let goal = restoration(&settings, bgp);
    let left = steps::pending(bgp, &goal);
    let expected = expected(bgp, &discounted(bgp, &BTreeSet::new()), true);
    let last = last_step(set, &observed.memory, observed.now);
    let idle = snapshot.routing.idle().is_some();
    let gate = |step: &Step| {
        // No route depends on the sessions, which may not even exist.
        if idle {
            return observed.undisturbed(step);
        }
        // A gate that is shut as well keeps its clock.
        opens(&settings, &expected, observed, last)?;
        observed.undisturbed(step)
    };
    let next = next::choose(bgp, &goal, &left, None, gate);
    let mut memory = observed.memory.clone();
    memory.shut_since = match &next {
        // Another object's work ends, and says nothing of the sessions.
        Next::Wait(_, GateClosed::Busy(_)) => None,
        Next::Wait(..) | Next::Refuse(..) => memory.shut_since.or(Some(observed.now)),
        _ => None,
    };
    let leaving = bgp.reflectors().map(|(node, _)| Arc::clone(node)).collect();
    memory.figures = Some(Arc::new(Figures {
        steps_left: left.len(),
        waiting_since: memory.shut_since,
        ..figures(bgp, &leaving, observed.measured.as_ref())
    }));
    let waited = memory.shut_since.map(|since| elapsed(since, observed.now)).unwrap_or_default();
    let reports =
        if settings.gate == Gate::NodeStatus { Reports::Stop } else { Reports::default() };
    let over = |warning, reason, note| Restore {
        desired: Some(Desired { reports: reports.clone(), ..Desired::default() }),
        end: Ok(vec![Notice { warning, reason, note, node: None }]),
    };
    let mut desired = Desired::default();
    let mut needed = vec![];
    let text = match next {
        Next::Done => {
            let note = "the mesh carries every route; removing reflectors and peers".into();
            return Ok(over(false, "MeshRestored", note));
        }
        Next::Take(step) => {
            let text = step.to_string();
            let writes = goal.writes(&step, bgp);
            desired.step = Some((step, writes));
            desired.session = snapshot.session();
            text
        }
        Next::Wait(step, why) => {
            if settings.gate == Gate::NodeStatus {
                needed = unseen(&expected, &memory, last, observed.now);
            }
            format!("{step}: {why}")
        }
        Next::Refuse(step, why) => next::refusal(step.as_ref(), &why),
    };
    if waited > settings.timeout && bgp.fabric.mesh() {
        let note = format!(
            "the mesh is on, but could not be verified, so reflectors and peers stay in place: {text}"
        );
        return Ok(over(true, "ReflectorsLeft", note));
    }
    desired.reports = Reports::next(&mut memory, needed);
    desired.memory = Some(memory);
    Ok(Restore { desired: Some(desired), end: Err(Error::Pending("RestoringMesh", text)) })
}
