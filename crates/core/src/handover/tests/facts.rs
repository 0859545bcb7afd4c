//! Facts about a file and the reports of its workers, which decisions are made from.
use super::*;

/// Beyond the middle, a report could use up the numbers that are left for files.
#[test]
fn a_report_beyond_the_middle_of_all_epochs_is_none() {
    let middle = 1 << 52;
    assert_eq!(believed(middle), middle);
    assert_eq!([middle + 1, LARGEST_EPOCH, Epoch::MAX].map(believed), [0; 3]);
}

#[test]
fn a_file_names_the_owner_of_each_stream_and_everyone_who_has_or_releases_one() {
    let published = file(5, &["w-0@5: a b", "w-1@5:"], &["c<w-2@5"]);
    let owners: Vec<_> =
        published.owners().map(|(stream, owner)| format!("{stream}>{owner}")).collect();
    assert_eq!(owners, ["a>w-0", "b>w-0"]);
    let workers: Vec<_> = published.workers().into_iter().map(|worker| &**worker).collect();
    assert_eq!(workers, ["w-0", "w-1", "w-2"]);
}

/// Otherwise it would believe that a pod may still load the file that it has lost.
#[test]
fn an_unknown_file_that_no_live_pod_has_begins_another_barrier() {
    let published = Published { barrier: Some(9), ..file(9, &["w-0@9: a"], &[]) };
    let at = workers([("w-0", pod(9))]);
    let step = step(&published, &target("a>w-0"), &at, 20, &RULES);
    let next = step.publish.unwrap();
    assert_eq!((next.epoch, next.barrier), (21, Some(21)));
}

/// It releases nothing, so that only the barrier waits for it.
#[test]
fn the_reason_why_a_barrier_waits_is_that_of_the_barrier() {
    let published = Published { barrier: Some(5), ..file(9, &["w-0@4: a"], &[]) };
    let at = workers([("w-0", pod(0).silent().successor(3))]);
    let waiting = decide::waiting(&published, &at);
    let reported: Vec<_> = waiting.iter().map(|w| (w.streams, w.epoch, w.why)).collect();
    assert_eq!(reported, [(0, 5, Why::Template)]);
}

/// A worker that is not ready gains nothing from the stream it already has.
#[test]
fn the_balance_does_not_wait_for_a_worker_that_keeps_its_stream() {
    let rules = Rules { await_targets: true, ..RULES };
    let published = file(5, &["w-0@5: a b", "w-1@0:", "w-2@5: c"], &[]);
    let at = workers([("w-0", pod(5)), ("w-1", pod(5)), ("w-2", pod(5).unready())]);
    let step = step(&published, &target("a>w-0 b>w-1 c>w-2"), &at, 0, &rules);
    let revoked: Vec<_> = step.revoked.iter().map(|(stream, ..)| &**stream).collect();
    assert_eq!(revoked, ["b"]);
}
