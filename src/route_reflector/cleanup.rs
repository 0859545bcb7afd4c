//! Goes back to the mesh, step by step, when a set is deleted.
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{Others, RouteReflectorReconciler, conflict, observe::observe, plan};
use crate::{
    api::{
        Mode, RouteReflectorSet,
        route_reflector_set::{DeletionPolicy, Gate},
    },
    clock,
    controller::{Error, Notice},
};

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
    let plan::Restore { desired, end } = plan::restore(set, &observed)?;
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
    if set.spec.transition.gate != Gate::NodeStatus || conflict::held(set, others).is_some() {
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
