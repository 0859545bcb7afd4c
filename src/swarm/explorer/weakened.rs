//! Wrong rules: the search finds their faults. Some are former ones.
use super::{
    explore,
    plot::{Hazard, Old, Plot, plot},
};
use crate::api::{Swarm, swarm::Handover};

fn goes_wrong(plot: &Plot, how: &str) {
    let violation = explore(plot).violation.expect("nothing was found");
    println!("{violation:?}");
    assert!(violation.what.starts_with(how), "{violation:?}");
}

#[test]
fn a_crashed_container_of_a_pod_that_is_being_deleted_has_not_stopped() {
    let plot = Plot { faults: 1, hazards: &[Hazard::Restarts], ..plot("HotReload") };
    goes_wrong(&Plot { old: Some(Old::Stopped), ..plot }, "one owner");
}

#[test]
fn a_barrier_waits_for_no_worker_without_a_pod() {
    let plot =
        Plot { faults: 1, hazards: &[Hazard::Reapplied], pending: 0b10, ..plot("HotReload") };
    goes_wrong(&Plot { old: Some(Old::Confirmed), ..plot }, "owned");
}

#[test]
fn a_barrier_does_not_wait_for_silent_workers_for_ever() {
    let plot = Plot { faults: 1, hazards: &[Hazard::Reapplied], silent: 0b11, ..plot("DeletePod") };
    goes_wrong(&Plot { old: Some(Old::Heirs), ..plot }, "owned");
}

#[test]
fn a_pod_that_is_not_ready_may_run_on() {
    let plot = Plot { faults: 1, hazards: &[Hazard::Cuts], ..plot("HotReload") };
    goes_wrong(&Plot { old: Some(Old::Unready), ..plot }, "one owner");
}

#[test]
fn a_pod_that_is_being_deleted_may_run_on() {
    goes_wrong(&Plot { old: Some(Old::Deleted), ..plot("DeletePod") }, "one owner");
}

#[test]
fn what_is_releasing_is_not_forgotten() {
    goes_wrong(&Plot { old: Some(Old::Forgotten), ..plot("HotReload") }, "one owner");
}

#[test]
fn what_is_revoked_is_not_granted_in_the_same_file() {
    let at_once = |swarm: &mut Swarm| swarm.spec.handover = Handover::Immediate;
    goes_wrong(&plot("HotReload").with(at_once), "one owner");
}

#[test]
fn pods_that_are_not_refreshed_keep_what_they_have() {
    goes_wrong(&Plot { old: Some(Old::Unrefreshed), ..plot("DeletePod") }, "owned");
}

#[test]
fn a_worker_that_runs_what_will_come_runs_it_too_early() {
    let plot = Plot { prepares: 0b11, ..plot("HotReload") };
    goes_wrong(&Plot { old: Some(Old::Eager), ..plot }, "one owner");
}

#[test]
fn what_has_come_is_not_said_to_come() {
    let plot = Plot { prepares: 0b11, ..plot("HotReload") };
    goes_wrong(&Plot { old: Some(Old::Announced), ..plot }, "next");
}

/// A part that was decided and hangs arrives after another operator has assigned the stream to
/// another worker: the head comes first, and a part that is older than it is not trusted.
#[test]
fn a_part_that_arrives_late_gives_no_stream_twice() {
    for old in [Old::HeadLast, Old::NoFence] {
        // Nothing is said of what will come, which would change the same parts.
        let plot = Plot { faults: 1, changes: 2, reloads: true, ..plot("None") };
        let plot = Plot { hazards: &[Hazard::Deposed], ..plot.divided() };
        goes_wrong(&Plot { old: Some(old), ..plot }, "one owner");
    }
}
