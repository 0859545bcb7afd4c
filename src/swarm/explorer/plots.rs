//! Plots without violations.
use super::{
    explore,
    plot::{Hazard, Plot, plot, wish},
};
use crate::api::Mode;

/// The minimum number of states without a fault: a search that reaches nothing finds nothing
/// either.
fn is_sound(plot: &Plot, states: usize) {
    let found = explore(plot);
    assert!(found.violation.is_none(), "{:?}", found.violation);
    assert!(found.states >= states, "{} states", found.states);
}

#[test]
fn scaling_in_every_order() {
    for refresh in ["DeletePod", "HotReload"] {
        is_sound(&Plot { changes: 2, ..plot(refresh) }, 200);
    }
}

#[test]
fn a_crashed_container_that_is_started_again_while_its_pod_is_deleted() {
    is_sound(&Plot { faults: 1, hazards: &[Hazard::Restarts], ..plot("HotReload") }, 1);
    is_sound(
        &Plot { faults: 2, hazards: &[Hazard::Restarts, Hazard::Cuts], ..plot("HotReload") },
        1,
    );
}

#[test]
fn silent_workers_and_a_history_that_is_lost() {
    let hazards = &[Hazard::Edits, Hazard::Losses, Hazard::Reapplied];
    for silent in [0b11, 0b01, 0] {
        // A pod created before the first pass of a new process may have read anything.
        let plot = Plot { silent, may_wait: silent != 0, ..plot("DeletePod") };
        is_sound(&Plot { faults: 1, crashes: 1, hazards, ..plot }, 1);
    }
}

/// Only the user can confirm what they run: their streams wait, and Ready names the workers.
#[test]
fn silent_workers_that_read_their_file_themselves() {
    let hazards = &[Hazard::Edits, Hazard::Losses, Hazard::Reapplied];
    for silent in [0b11, 0b01] {
        let plot = Plot { silent, may_wait: true, ..plot("HotReload") };
        is_sound(&Plot { faults: 1, crashes: 1, hazards, ..plot }, 1);
    }
}

#[test]
fn a_history_that_is_lost_while_a_worker_has_no_scheduled_pod() {
    let hazards = &[Hazard::Edits, Hazard::Losses, Hazard::Reapplied];
    for (pending, absent) in [(0b10, 0), (0, 0b10)] {
        let plot = Plot { pending, absent, ..plot("HotReload") };
        is_sound(&Plot { faults: 1, crashes: 1, hazards, ..plot }, 1);
    }
}

/// Undoing it started a stream where it had been stopped, while the other worker still ran it. The
/// edit itself causes both to run it for a moment after the edit.
#[test]
fn lists_that_someone_exchanges_are_taken_back_in_turn() {
    is_sound(&Plot { faults: 1, hazards: &[Hazard::Swaps], ..plot("HotReload") }, 1);
}

#[test]
fn an_observed_swarm_writes_nothing() {
    let mut plot = plot("HotReload");
    let mut observed = wish(1, &["a", "b"], "HotReload");
    observed.swarm.spec.mode = Mode::Observe;
    plot.wishes.push(observed);
    is_sound(&Plot { changes: 2, ..plot }, 1);
}

#[test]
fn killed_between_any_two_writes() {
    is_sound(&Plot { crashes: 2, changes: 2, ..plot("DeletePod") }, 1);
}

#[test]
fn watches_that_are_late() {
    is_sound(&Plot { crashes: 1, changes: 2, cached: true, ..plot("HotReload") }, 1);
    let hazards = &[Hazard::Deletions, Hazard::Edits, Hazard::Losses];
    is_sound(&Plot { faults: 2, cached: true, hazards, ..plot("DeletePod") }, 1);
}

#[test]
fn another_process_takes_the_lead_and_the_old_one_writes_on() {
    for refresh in ["DeletePod", "HotReload"] {
        is_sound(&Plot { faults: 1, changes: 2, hazards: &[Hazard::Deposed], ..plot(refresh) }, 1);
    }
}

#[test]
fn pods_of_a_deployment_never_come_back() {
    let hazards = &[Hazard::Deletions, Hazard::Cuts];
    is_sound(&Plot { faults: 1, hazards, ..plot("HotReload").deployed() }, 1);
    is_sound(&Plot { crashes: 1, ..plot("HotReload").deployed() }, 1);
    let hazards = &[Hazard::Reapplied, Hazard::Edits];
    let plot = Plot { silent: 0b111, may_wait: true, ..plot("HotReload").deployed() };
    is_sound(&Plot { faults: 1, hazards, ..plot }, 1);
}

#[test]
fn immutable_files() {
    let plot = || plot("DeletePod").with(|swarm| swarm.spec.config_map.immutable = true);
    is_sound(&Plot { changes: 2, crashes: 1, ..plot() }, 1);
    let hazards = &[Hazard::Deletions, Hazard::Cuts, Hazard::Restarts];
    is_sound(&Plot { silent: 0b11, faults: 1, hazards, ..plot() }, 1);
}

#[test]
fn nobody_refreshes_workers() {
    let plot = || plot("None");
    is_sound(&Plot { reloads: true, crashes: 1, ..plot() }, 1);
    let hazards = &[Hazard::Deletions];
    is_sound(&Plot { may_wait: true, faults: 2, hazards, ..plot() }, 1);
}

#[test]
fn the_files_lists_are_edited() {
    for refresh in ["DeletePod", "HotReload"] {
        for hazards in [&[Hazard::Gifts], &[Hazard::Swaps]] {
            is_sound(&Plot { faults: 1, crashes: 1, hazards, ..plot(refresh) }, 1);
        }
        // Not also with a kill between the file and the status: then it is unknown that the file is
        // an old one, and a version number is used a second time.
        is_sound(&Plot { faults: 1, hazards: &[Hazard::Backups], ..plot(refresh) }, 1);
    }
}

#[test]
fn streams_come_and_go_and_return() {
    for refresh in ["DeletePod", "HotReload"] {
        let wishes = vec![
            wish(2, &["a", "b"], refresh),
            wish(2, &["b", "c"], refresh),
            wish(2, &["a"], refresh),
        ];
        is_sound(&Plot { changes: 2, crashes: 1, wishes, ..plot(refresh) }, 1);
    }
}

#[test]
fn three_workers() {
    for refresh in ["DeletePod", "HotReload"] {
        let wishes = [3, 2].map(|replicas| wish(replicas, &["a", "b", "c"], refresh)).into();
        let hazards = &[Hazard::Deletions];
        is_sound(&Plot { faults: 1, workers: 3, wishes, hazards, ..plot(refresh) }, 1);
    }
}

#[test]
fn nodes_that_stay_cut_off() {
    for refresh in ["DeletePod", "HotReload"] {
        let plot = Plot { lasting: true, may_wait: true, ..plot(refresh) };
        is_sound(&Plot { faults: 1, hazards: &[Hazard::Cuts], ..plot }, 1);
    }
}

#[test]
fn passes_that_follow_each_other_at_once() {
    for refresh in ["DeletePod", "HotReload"] {
        let hazards = &[Hazard::Deletions, Hazard::Restarts];
        let plot = Plot { hurried: true, changes: 2, ..plot(refresh) };
        is_sound(&Plot { faults: 1, crashes: 1, hazards, ..plot }, 1);
    }
}

/// A kubelet mounts the file, and starts the pod after the next one is written.
#[test]
fn silent_workers_that_are_scaled_twice() {
    for silent in [0b11, 0b10] {
        let plot = Plot { silent, changes: 2, faults: 1, ..plot("DeletePod") };
        is_sound(&Plot { hazards: &[Hazard::Deletions], ..plot }, 1);
    }
}

#[test]
fn silent_workers_and_people() {
    let hazards = &[Hazard::Reapplied, Hazard::Edits, Hazard::Deletions];
    for (first, crashes) in [(2, 1), (1, 0), (1, 1)] {
        let mut plot = Plot { silent: 0b11, crashes, ..plot("DeletePod") };
        plot.wishes.sort_by_key(|wish| wish.replicas != first);
        // A pod created while the operator was down may have read anything.
        plot.may_wait = (first, crashes) == (1, 1);
        is_sound(&Plot { faults: 2, hazards, ..plot }, 1);
    }
}

/// Where workers prepare what will come, and also where one never succeeds, or knows nothing of it.
#[test]
fn streams_that_are_prepared() {
    let plot = || Plot { prepares: 0b11, changes: 2, ..plot("HotReload") };
    is_sound(&plot(), 500);
    is_sound(&Plot { in_vain: true, ..plot() }, 200);
    is_sound(&Plot { prepares: 0b10, hurried: true, ..plot() }, 500);
    let hazards = &[Hazard::Restarts, Hazard::Cuts, Hazard::Deletions];
    is_sound(&Plot { faults: 2, crashes: 1, hazards, ..plot() }, 500);
    let hazards = &[Hazard::Deposed];
    is_sound(&Plot { faults: 1, hazards, hurried: true, ..plot() }, 500);
    is_sound(&Plot { faults: 1, hazards, ..plot().divided() }, 500);
    let hazards = &[Hazard::Edits, Hazard::Losses, Hazard::Reapplied, Hazard::Swaps];
    is_sound(&Plot { faults: 1, hazards, ..plot() }, 500);
    is_sound(&Plot { crashes: 1, prepares: 0b111, ..plot().deployed() }, 500);
    let wishes = [3, 2].map(|replicas| wish(replicas, &["a", "b", "c"], "HotReload")).into();
    is_sound(&Plot { workers: 3, prepares: 0b111, wishes, hurried: true, ..plot() }, 500);
}

/// Parts that hang still arrive, in any state of a file of later versions.
#[test]
fn a_divided_file_and_an_operator_that_is_killed_or_hangs_between_any_two_writes() {
    let hazards = &[Hazard::Deposed];
    let plot = || Plot { changes: 2, hazards, ..plot("HotReload").divided() };
    is_sound(&Plot { faults: 2, ..plot() }, 500);
    is_sound(&Plot { faults: 1, crashes: 1, ..plot() }, 500);
}

#[test]
fn a_divided_file_of_which_people_edit_or_delete_any_part() {
    let hazards = &[Hazard::Edits, Hazard::Losses];
    let plot = || Plot { hazards, ..plot("HotReload").divided() };
    is_sound(&Plot { faults: 2, ..plot() }, 500);
    is_sound(&Plot { faults: 1, crashes: 1, ..plot() }, 500);
}
