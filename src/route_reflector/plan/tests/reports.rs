//! Calico's own reports, which cost nodes processor time.
use super::*;
use crate::api::route_reflector_set::DeletionPolicy;

#[test]
fn a_new_process_ends_the_reports_that_the_last_one_left() {
    let (set, stage) = converged(&json!({"transition": {"gate": "NodeStatus"}}));
    let reports = |set: &RouteReflectorSet, began| {
        let mut seen = observed(set, &stage);
        seen.memory.began = Some(began);
        plan(set, &seen).unwrap().desired.reports
    };
    assert_eq!(reports(&set, now()), Reports::Stop);
    assert_eq!(reports(&set, ago(1)), Reports::Keep);
    let mut other = set.clone();
    other.spec.mode = Mode::Observe;
    assert_eq!(reports(&other, now()), Reports::Keep);
    // Where there can be none.
    let (other, _) = converged(&json!({}));
    assert_eq!(reports(&other, now()), Reports::Keep);
}

#[test]
fn a_restored_mesh_ends_all_reports() {
    for (gate, ends) in [("NodeStatus", Reports::Stop), ("Wait", Reports::Keep)] {
        let mut set = set(&json!({"transition": {"gate": gate}}));
        set.spec.deletion_policy = DeletionPolicy::RestoreMesh;
        let desired = restore(&set, &observed(&set, &mesh())).unwrap().desired.unwrap();
        assert_eq!(desired.reports, ends, "{gate}");
    }
}

/// They cost nodes processor time, and the memory no longer names those that could not be deleted.
#[test]
fn reports_that_could_not_be_changed_are_changed_again() {
    let (mut set, mut stage) = converged(&json!({"transition": {"gate": "NodeStatus"}}));
    let reports = |set: &RouteReflectorSet, stage: &Stage, unsettled| {
        let mut seen = observed(set, stage);
        (seen.memory.began, seen.memory.unsettled) = (Some(ago(60)), unsettled);
        plan(set, &seen).unwrap().desired.reports
    };
    assert_eq!(reports(&set, &stage, false), Reports::Keep);
    assert_eq!(reports(&set, &stage, true), Reports::Stop);
    // They are Calico's objects.
    stage.snapshot.stale = Some(Stale { since: None, why: "503".into() });
    assert_eq!(reports(&set, &stage, true), Reports::Keep);
    stage.snapshot.stale = None;
    set.spec.paused = true;
    assert_eq!(reports(&set, &stage, true), Reports::Stop);
}
