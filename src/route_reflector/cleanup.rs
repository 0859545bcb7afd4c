//! Goes back to the mesh, step by step, when a set is deleted: the decision (pure), and one pass.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use super::{
    Others, RouteReflectorReconciler, election,
    gate::GateClosed,
    memory::{Figures, elapsed, last_step},
    observe::{held, observe},
    plan::{Desired, Observed, Reports, discounted, expected, figures, opens, unseen},
    settings::Settings,
    steps::{self, Goal, Next, Step},
    topology::BgpTopology,
};
use crate::{
    api::{
        Mode, RouteReflectorSet,
        route_reflector_set::{DeletionPolicy, Gate},
    },
    clock,
    controller::{Error, Notice},
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
        retires: false,
    }
}

/// The existing peers, and the bridge.
pub(super) fn kept(settings: &Settings, bgp: &BgpTopology) -> Vec<election::PeerSpec> {
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
    let next = steps::choose(bgp, &goal, &left, None, gate);
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
        Next::Refuse(step, why) => steps::refusal(step.as_ref(), &why),
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

/// One step back to the mesh; `Ok` when nothing is left to do.
pub(super) async fn cleanup(
    reconciler: &RouteReflectorReconciler,
    set: &RouteReflectorSet,
    others: &Others,
) -> Result<Vec<Notice>, Error> {
    if set.spec.mode == Mode::Observe {
        return Ok(vec![]);
    }
    if set.spec.deletion_policy == DeletionPolicy::Retain {
        return match stop_reports(reconciler, set, others).await {
            // Nothing that fails keeps the object for ever.
            Err(error) if is_overdue(set, clock::timestamp()) => Ok(vec![reports_left(&error)]),
            stopped => stopped.map(|()| vec![]),
        };
    }
    let observed = observe(reconciler, set, others, true).await?;
    if observed.held.is_some() {
        // It never wrote anything.
        return Ok(vec![]);
    }
    let Restore { desired, end } = restore(set, &observed)?;
    if let Some(desired) = desired {
        reconciler.write(set, &reconciler.datastore(set)?, desired).await?;
    }
    end
}

/// Ends Calico's reports, which would cost nodes processor time for ever.
async fn stop_reports(
    reconciler: &RouteReflectorReconciler,
    set: &RouteReflectorSet,
    others: &Others,
) -> Result<(), Error> {
    let all = others.state();
    let others = all.iter().filter_map(|other| other.0.as_ref().ok());
    // Those of an older set are not its own.
    if set.spec.transition.gate != Gate::NodeStatus || held(set, others).is_some() {
        return Ok(());
    }
    if let Some(reports) = reconciler.datastore(set)?.node_status() {
        reports.stop_reports().await?;
    }
    Ok(())
}

/// Reports whether a set has been waiting for its deletion for longer than `transition.timeout`.
fn is_overdue(set: &RouteReflectorSet, now: Timestamp) -> bool {
    let Some(since) = &set.metadata.deletion_timestamp else { return false };
    let waited = now.duration_since(since.0).unsigned_abs();
    now > since.0 && waited > Duration::from(set.spec.transition.timeout)
}

fn reports_left(error: &Error) -> Notice {
    Notice {
        warning: true,
        reason: "ReportsLeft",
        note: format!(
            "CalicoNodeStatus objects could not be deleted, delete them by hand: {error}"
        ),
        node: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_waits_for_the_end_of_reports_no_longer_than_the_timeout() {
        let set = |deleted: Option<&str>| -> RouteReflectorSet {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "main", "deletionTimestamp": deleted},
                "spec": {"transition": {"timeout": "60s"}},
            }))
            .unwrap()
        };
        let is_overdue = |deleted, now: &str| is_overdue(&set(deleted), now.parse().unwrap());
        let deleted = Some("2026-01-01T00:00:00Z");
        assert!(!is_overdue(deleted, "2026-01-01T00:01:00Z"));
        assert!(is_overdue(deleted, "2026-01-01T00:01:01Z"));
        assert!(!is_overdue(deleted, "2025-12-31T00:00:00Z"), "its clock is behind");
        assert!(!is_overdue(None, "2026-01-02T00:00:00Z"));
    }
}
