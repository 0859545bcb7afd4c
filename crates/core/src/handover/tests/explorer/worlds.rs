//! The small worlds in which nothing goes wrong.
use super::*;
use crate::handover::{Rules, Strategy};

pub(super) const DELETE: Rules = Rules {
    exclusive: true,
    strategy: Strategy::DeletePod,
    max_unavailable: 1,
    gather: false,
    await_targets: false,
};
pub(super) const HOT: Rules = Rules { strategy: Strategy::HotReload, ..DELETE };

const NOTHING: Plot = Plot {
    workers: 0,
    streams: 0,
    wishes: &[],
    changes: 0,
    faults: 0,
    crashes: 0,
    deployment: false,
    immutable: false,
    stale_births: false,
    cached: false,
    careful: false,
    absolute: false,
    remembered: 0,
    immediate: false,
    unbooked: false,
    only_i8: false,
};

/// Two workers, and two streams that are exchanged or move to one worker.
pub(super) const TWO: Plot = Plot {
    workers: 2,
    streams: 2,
    wishes: &[(2, "01"), (2, "10"), (1, "00")],
    changes: 1,
    ..NOTHING
};

/// One stream that moves among three workers.
pub(super) const WANDERER: Plot =
    Plot { workers: 3, streams: 1, wishes: &[(3, "0"), (3, "1"), (3, "2")], changes: 2, ..NOTHING };

/// Pods that mount one epoch of an immutable `ConfigMap` each.
pub(super) const IMMUTABLE: Plot =
    Plot { immutable: true, stale_births: true, streams: 1, wishes: &[(2, "0"), (2, "1")], ..TWO };

/// The operator knows the pods from a cache.
pub(super) const CACHED: Plot =
    Plot { cached: true, streams: 1, wishes: &[(2, "0"), (2, "1")], faults: 1, ..TWO };

/// It is unknown what the pods run: the file is new, and under a barrier.
pub(super) const LOST: Plot =
    Plot { wishes: &[(2, "10"), (2, "01")], faults: 1, unbooked: true, ..TWO };

pub(super) fn lost() -> State {
    let mut state = State::default();
    state.file = File { epoch: 2, entries: 3, versions: [2, 2, 0], barrier: 2, ..state.file };
    state.history[1] = [0b01, 0b10, 0];
    let pod = |run| Some(Pod { read: 1, applied: 1, run, ..Pod::default() });
    state.pods = [pod(0b01), pod(0b10), None];
    with_budget(state, LOST)
}

/// An old file was restored: the pods run the lists of file 3, and the newest is file 1.
pub(super) const SET_BACK: Plot = Plot { absolute: true, ..LOST };

/// Sets the epoch that the first pod has reported so far, and that of the status.
pub(super) fn set_back(reported: Option<u8>, highest: u8) -> State {
    let mut state = lost();
    state.file = File { epoch: 1, entries: 3, ..File::default() };
    (state.history, state.highest) = (Default::default(), highest);
    state.history[3] = [0b01, 0b10, 0];
    for pod in state.pods.iter_mut().flatten() {
        (pod.read, pod.applied) = (3, 3);
    }
    state.pods[0].as_mut().unwrap().reported = reported;
    state
}

/// A handover was immediate and is exclusive now: two workers are releasing one stream; the first
/// has released it but has not reported this.
pub(super) const TWICE: Plot =
    Plot { workers: 3, streams: 1, wishes: &[(3, "2"), (3, "0"), (3, "1")], changes: 1, ..NOTHING };

pub(super) fn twice() -> State {
    let mut state = State::default();
    state.file = File { epoch: 3, entries: 7, versions: [2, 3, 1], ..state.file };
    (state.file.releasing[0][0], state.file.releasing[1][0]) = (2, 3);
    state.history[1] = [1, 0, 0];
    state.history[2] = [0, 1, 0];
    let pod = |read, run| Some(Pod { read, applied: read, run, ..Pod::default() });
    state.pods = [pod(3, 0), pod(2, 1), pod(3, 0)];
    with_budget(state, TWICE)
}

fn with_budget(state: State, Plot { changes, faults, crashes, .. }: Plot) -> State {
    State { changes, faults, crashes, ..state }
}

/// The initial state of a world.
#[derive(Clone, Copy)]
pub(super) enum From {
    /// With an empty file and no pod.
    Nothing,
    /// With its first wish fulfilled.
    Settled,
    This(State),
}

pub(super) fn explore(plot: Plot, rules: Rules, from: From, step: StepFunction) -> Found {
    let world = World::new(plot, Operator::new(&step, rules));
    let beginning = match from {
        From::Nothing => world.beginning(),
        From::Settled => world.settled(),
        From::This(state) => state,
    };
    let start = std::time::Instant::now();
    let found = search(&world, beginning);
    let Found { states, moves, done, .. } = &found;
    eprintln!("{states} states, {moves} moves, {:?}: {done:?}", start.elapsed());
    found
}

/// Checks that the operator takes all of these actions in at least this many states: a search that
/// reaches nothing finds nothing either.
fn nothing_goes_wrong(plot: Plot, rules: Rules, from: From, at_least: usize, shows: &[&str]) {
    let found = explore(plot, rules, from, operator::STEP);
    assert!(found.violation.is_none(), "{:?}", found.violation);
    assert!(found.states >= at_least, "only {} states", found.states);
    for what in shows {
        assert!(found.done.contains(what), "never {what}: {:?}", found.done);
    }
}

#[test]
fn workers_come_up_while_the_spec_changes() {
    let plot = Plot { crashes: 1, ..TWO };
    nothing_goes_wrong(plot, DELETE, From::Nothing, 25_000, &["freed: no pod", "unwanted"]);
}

#[test]
fn streams_that_change_places_and_back() {
    let plot = Plot { wishes: &[(2, "01"), (2, "10")], changes: 2, ..TWO };
    let shows = ["moved", "given back", "freed: acknowledged", "freed: stopped", "refreshed"];
    nothing_goes_wrong(plot, DELETE, From::Settled, 15_000, &shows);
    let rules = Rules { gather: true, await_targets: true, ..DELETE };
    nothing_goes_wrong(plot, rules, From::Settled, 6_000, &shows);
}

#[test]
fn pods_die_and_nodes_are_cut_off() {
    let plot = Plot { faults: 1, crashes: 1, wishes: &[(2, "01"), (1, "00"), (2, "11")], ..TWO };
    let shows = ["freed: acknowledged, terminating", "freed: no pod", "freed: stopped"];
    nothing_goes_wrong(plot, DELETE, From::Settled, 8_000, &shows);
    let plot = Plot { faults: 2, streams: 1, wishes: &[(2, "0"), (2, "1")], ..TWO };
    nothing_goes_wrong(plot, DELETE, From::Settled, 3_000, &[]);
}

#[test]
fn workers_that_read_the_file_themselves() {
    let wishes: &[Wish] = &[(2, "01"), (2, "10"), (1, "00"), (2, "-x")];
    let plot = Plot { faults: 1, wishes, ..TWO };
    nothing_goes_wrong(plot, HOT, From::Settled, 4_000, &["removed", "unassigned", "unwanted"]);
    let plot = Plot { changes: 2, ..plot };
    nothing_goes_wrong(Plot { faults: 0, ..plot }, HOT, From::Settled, 11_000, &["given back"]);
}

#[test]
fn a_stream_that_wanders_among_three_workers() {
    nothing_goes_wrong(WANDERER, DELETE, From::Settled, 45_000, &["given back"]);
}

#[test]
fn three_workers_of_which_two_restart_at_a_time() {
    let wishes: &[Wish] = &[(3, "01"), (3, "12")];
    let plot = Plot { workers: 3, streams: 2, wishes, changes: 1, ..NOTHING };
    let rules = Rules { max_unavailable: 2, ..DELETE };
    nothing_goes_wrong(plot, rules, From::Settled, 20_000, &["two refreshed"]);
}

#[test]
fn a_deployments_pods_never_come_back() {
    let wishes: &[Wish] = &[(2, "0"), (3, "2")];
    let plot = Plot { workers: 3, streams: 1, deployment: true, faults: 1, wishes, ..TWO };
    nothing_goes_wrong(plot, HOT, From::Settled, 17_000, &["unwanted", "freed: no pod"]);
}

#[test]
fn immutable_files_and_kubelets_that_are_late() {
    let plot = Plot { changes: 2, crashes: 1, faults: 1, ..IMMUTABLE };
    nothing_goes_wrong(plot, DELETE, From::Settled, 16_000, &["given back", "freed: no pod"]);
    let plot = Plot { faults: 1, streams: 2, wishes: TWO.wishes, ..IMMUTABLE };
    nothing_goes_wrong(plot, DELETE, From::Settled, 8_000, &["unwanted"]);
}

#[test]
fn an_operator_that_sees_pods_through_a_cache() {
    nothing_goes_wrong(CACHED, HOT, From::Settled, 7_000, &["freed: no pod", "freed: stopped"]);
}

#[test]
fn workers_that_start_and_stop_one_stream_after_the_other() {
    let plot = Plot { careful: true, wishes: &[(2, "00"), (2, "11")], faults: 1, ..TWO };
    nothing_goes_wrong(plot, DELETE, From::Settled, 6_000, &["freed: acknowledged"]);
}

#[test]
fn an_immediate_handover_is_in_the_books() {
    let rules = Rules { exclusive: false, ..DELETE };
    let plot = Plot { immediate: true, faults: 1, ..TWO };
    nothing_goes_wrong(plot, rules, From::Settled, 7_000, &["freed: acknowledged"]);
}

#[test]
fn a_file_that_was_lost() {
    nothing_goes_wrong(LOST, HOT, From::This(lost()), 4_000, &["barrier cleared"]);
    let fewer = State { faults: 0, ..lost() };
    nothing_goes_wrong(LOST, DELETE, From::This(fewer), 7_000, &["barrier cleared"]);
}

#[test]
fn a_file_that_was_set_back() {
    let shows = ["barrier set", "barrier cleared"];
    // Either the status or a pod has the old epoch.
    let remembers = Plot { remembered: 3, ..SET_BACK };
    nothing_goes_wrong(remembers, HOT, From::This(set_back(None, 3)), 10_000, &shows);
    // The report of a pod that is gone is not remembered.
    let tells = Plot { faults: 0, ..SET_BACK };
    let mut reported = set_back(Some(3), 0);
    reported.faults = 0;
    nothing_goes_wrong(tells, HOT, From::This(reported), 250, &shows);
}

#[test]
fn a_stream_that_two_workers_are_releasing() {
    nothing_goes_wrong(TWICE, HOT, From::This(twice()), 8_000, &["given back"]);
}
