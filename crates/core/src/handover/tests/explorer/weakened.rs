//! Every rule is necessary: without it, the search finds a violation.
use super::{
    worlds::{
        CACHED, DELETE, From, HOT, IMMUTABLE, LOST, SET_BACK, TWICE, TWO, explore, lost, set_back,
        twice,
    },
    *,
};
use crate::handover::{Epoch, Name, Pod, Published, Rules, Step, Target, Worker, step};
use std::collections::BTreeMap;

type Workers = BTreeMap<Name, Worker>;

/// Checks that the search finds this violation.
fn goes_wrong(how: &str, plot: Plot, rules: Rules, from: From, step: StepFunction) {
    let plot = Plot { unbooked: true, only_i8: how != "I9", ..plot };
    let violation = explore(plot, rules, from, step).violation;
    let violation = violation.expect("nothing was found");
    assert!(violation.what.starts_with(how), "{violation:?}");
}

/// Returns the workers with a change that is applied before the step.
fn with_workers(workers: &Workers, change: impl Fn(&mut Worker)) -> Workers {
    let mut workers = workers.clone();
    workers.values_mut().for_each(change);
    workers
}

/// The same with their pods.
fn with_pods(workers: &Workers, change: impl Fn(&mut Pod)) -> Workers {
    with_workers(workers, |worker| worker.pod.iter_mut().for_each(&change))
}

#[test]
fn a_pod_that_is_not_ready_may_run_on() {
    let plot = Plot { faults: 1, ..TWO };
    goes_wrong("I8", plot, DELETE, From::Settled, |file, to, workers, highest, rules| {
        let workers = with_pods(workers, |pod| pod.stopped |= !pod.ready);
        step(file, to, &workers, highest, rules)
    });
}

#[test]
fn a_pod_that_is_being_deleted_may_run_on() {
    goes_wrong("I8", TWO, DELETE, From::Settled, |file, to, workers, highest, rules| {
        let workers = with_pods(workers, |pod| pod.stopped |= pod.terminating);
        step(file, to, &workers, highest, rules)
    });
}

#[test]
fn a_pod_that_has_reported_nothing_may_run_anything() {
    let plot = Plot { crashes: 1, ..TWO };
    goes_wrong("I8", plot, DELETE, From::Settled, |file, to, workers, highest, rules| {
        let workers = with_pods(workers, |pod| pod.stopped |= pod.loaded.is_none());
        step(file, to, &workers, highest, rules)
    });
}

#[test]
fn an_acknowledgement_of_the_file_before_is_none() {
    goes_wrong("I8", TWO, DELETE, From::Settled, |file, to, workers, highest, rules| {
        let next = |loaded: Epoch| (loaded + 1).min(file.epoch);
        let workers = with_pods(workers, |pod| pod.loaded = pod.loaded.map(next));
        step(file, to, &workers, highest, rules)
    });
}

/// A stream that returns at once must not be freed later by the acknowledgement of its first
/// revocation.
#[test]
fn a_revocation_has_an_epoch_of_its_own() {
    let plot = Plot { changes: 2, wishes: &[(2, "01"), (2, "10")], ..TWO };
    goes_wrong("I8", plot, HOT, From::Settled, |file, to, workers, highest, rules| {
        let mut step = step(file, to, workers, highest, rules);
        if let Some(next) = &mut step.publish {
            // A second revocation uses the epoch of the file that gave it back.
            let given_back = |at: &(Name, Name)| file.shares.contains_key(&at.1);
            let again = next.releasing.iter_mut().filter(|(at, _)| given_back(at));
            again.for_each(|(_, since)| *since = (*since).min(file.epoch));
        }
        step
    });
}

#[test]
fn what_is_revoked_is_not_granted_in_the_same_file() {
    goes_wrong("I8", TWO, DELETE, From::Settled, |file, to, workers, highest, rules| {
        step(file, to, workers, highest, &Rules { exclusive: false, ..*rules })
    });
}

#[test]
fn what_is_releasing_is_not_forgotten() {
    goes_wrong("I8", TWO, DELETE, From::Settled, |file, to, workers, highest, rules| {
        let mut step = step(file, to, workers, highest, rules);
        step.publish.iter_mut().for_each(|next| next.releasing.clear());
        step
    });
}

#[test]
fn a_stream_has_as_many_releases_as_workers_that_hold_it() {
    goes_wrong("I8", TWICE, HOT, From::This(twice()), |file, to, workers, highest, rules| {
        let mut file = file.clone();
        let mut known = Vec::new();
        file.releasing.retain(|(stream, _), _| {
            let first = !known.contains(stream);
            known.push(stream.clone());
            first
        });
        step(&file, to, workers, highest, rules)
    });
}

#[test]
fn nothing_is_given_back_while_another_holds_it() {
    goes_wrong("I8", TWICE, HOT, From::This(twice()), |file, to, workers, highest, rules| {
        let mut file = file.clone();
        let returns = |at: &(Name, Name)| to.contains(&(at.0.clone(), Some(at.1.clone())));
        if let Some((stream, _)) = file.releasing.keys().find(|at| returns(at)).cloned() {
            file.releasing.retain(|at, _| at.0 != stream || returns(at));
        }
        step(&file, to, workers, highest, rules)
    });
}

#[test]
fn a_template_that_is_not_observed_brings_old_pods() {
    let plot = Plot { faults: 1, ..IMMUTABLE };
    goes_wrong("I8", plot, DELETE, From::Settled, |file, to, workers, highest, rules| {
        let workers = with_workers(workers, |worker| worker.successor = None);
        step(file, to, &workers, highest, rules)
    });
}

/// The reason for `configMap.immutable`: a kubelet with a late cache gives a new pod the previous
/// file, and the operator cannot detect that. Its counterpart is
/// `immutable_files_and_kubelets_that_are_late`.
#[test]
fn a_mutable_file_and_a_kubelet_that_is_late() {
    let plot = Plot { immutable: false, absolute: true, ..IMMUTABLE };
    goes_wrong("I8", plot, DELETE, From::Settled, operator::STEP);
}

#[test]
fn a_cache_does_not_know_that_there_is_no_pod() {
    goes_wrong("I8", CACHED, DELETE, From::Settled, |file, to, workers, highest, rules| {
        let workers = with_workers(workers, |worker| worker.confirmed = file.epoch);
        step(file, to, &workers, highest, rules)
    });
}

#[test]
fn a_lost_file_needs_a_barrier() {
    goes_wrong("I8", LOST, HOT, From::This(lost()), |file, to, workers, highest, rules| {
        step(&Published { barrier: None, ..file.clone() }, to, workers, highest, rules)
    });
}

#[test]
fn an_epoch_that_was_never_published_is_no_acknowledgement() {
    let from = From::This(set_back(Some(3), 3));
    goes_wrong("I8", SET_BACK, HOT, from, |file, to, workers, _, rules| {
        let known = |loaded: Epoch| loaded.min(file.epoch);
        let workers = with_pods(workers, |pod| pod.loaded = pod.loaded.map(known));
        step(file, to, &workers, 0, rules)
    });
}

#[test]
fn pods_that_are_not_refreshed_keep_what_they_have() {
    goes_wrong("I9", IMMUTABLE, DELETE, From::Settled, |file, to, workers, highest, rules| {
        let step = step(file, to, workers, highest, rules);
        Step { refresh: Vec::new(), ..step }
    });
}

#[test]
fn a_worker_without_a_pod_lets_go() {
    goes_wrong("I9", TWO, DELETE, From::Settled, |file, to, workers, highest, rules| {
        let workers = with_workers(workers, |worker| worker.confirmed = 0);
        step(file, to, &workers, highest, rules)
    });
}

#[test]
fn one_stream_in_two_lists_is_found() {
    goes_wrong("I2", TWO, DELETE, From::Nothing, |file, to, workers, highest, rules| {
        let mut step = step(file, to, workers, highest, rules);
        for (stream, worker) in &step.granted {
            let next = step.publish.as_mut().into_iter().flat_map(|next| &mut next.shares);
            let others = next.filter(|(name, _)| *name != worker);
            others.for_each(|(_, share)| share.streams.push(stream.clone()));
        }
        step
    });
}

#[test]
#[should_panic(expected = "I10")]
fn an_epoch_that_does_not_rise_is_found() {
    let weakened: StepFunction = |file, to: &Target, workers: &Workers, highest, rules| {
        let mut step = step(file, to, workers, highest, rules);
        step.publish.iter_mut().for_each(|next| next.epoch = file.epoch);
        step
    };
    explore(TWO, DELETE, From::Nothing, weakened);
}
