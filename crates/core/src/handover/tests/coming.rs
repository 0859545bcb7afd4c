//! Streams that will come to a worker.
use super::*;

const HOT: Rules = Rules { strategy: Strategy::HotReload, announce: true, ..RULES };

fn coming(file: &Published) -> String {
    let each = file.next.iter().map(|(worker, streams)| format!("{worker}:{}", streams.join("")));
    each.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_stream_leaves_once_its_next_worker_has_prepared_it() {
    let to = "a>w-1 b>w-0 c>w-1";
    let start = file(1, &["w-0@1: a b c", "w-1@0:"], &[]);
    let at = |w0, w1: Worker| workers([("w-0", pod(w0)), ("w-1", w1)]);
    let said = next(&start, to, &at(1, pod(1).prepared("")), &HOT);
    assert_eq!((coming(&said), said.epoch, &said.shares), ("w-1:ac".into(), 2, &start.shares));
    // All of them have to be prepared, so that they move together.
    for prepared in ["", "a"] {
        assert_eq!(next(&said, to, &at(1, pod(2).prepared(prepared)), &HOT), said);
    }
    let revoked = next(&said, to, &at(1, pod(2).prepared("a c")), &HOT);
    assert_eq!(revoked.shares, shares(&["w-0@3: b", "w-1@0:"]));
    assert_eq!((coming(&revoked), revoked.releasing.len()), ("w-1:ac".into(), 2));
    let granted = next(&revoked, to, &at(3, pod(2).prepared("a c")), &HOT);
    assert_eq!(granted.shares, shares(&["w-0@3: b", "w-1@4: a c"]));
    assert_eq!(coming(&granted), "");
}

#[test]
fn a_worker_that_prepares_nothing_is_not_waited_for_nor_refreshed_for_what_will_come() {
    let start = file(1, &["w-0@1: a", "w-1@0:"], &[]);
    let at = workers([("w-0", pod(1)), ("w-1", pod(1))]);
    let revoked = next(&start, "a>w-1", &at, &HOT);
    assert_eq!((revoked.releasing.len(), coming(&revoked)), (1, "w-1:a".into()));
    let refreshed = |at: &BTreeMap<Name, Worker>, rules: &Rules| {
        let refreshed = step(&revoked, &target("a>w-1"), at, 0, rules).refresh.into_iter();
        let name = |refresh| match refresh {
            Refresh::Evict { worker, .. } | Refresh::Nudge { worker, .. } => worker,
        };
        refreshed.map(name).collect::<Vec<_>>()
    };
    assert_eq!(refreshed(&at, &HOT), [n("w-0")]);
    let prepares = workers([("w-0", pod(1)), ("w-1", pod(1).prepared(""))]);
    assert_eq!(refreshed(&prepares, &HOT), [n("w-0"), n("w-1")]);
    let restarts = Rules { strategy: Strategy::DeletePod, announce: false, ..HOT };
    assert_eq!(refreshed(&prepares, &restarts), [n("w-0")]);
}

#[test]
fn what_must_go_waits_for_no_preparation() {
    let start = file(1, &["w-0@1: a", "w-1@1: b", "w-2@0:"], &[]);
    let at = workers([("w-0", pod(1).unwanted()), ("w-1", pod(1)), ("w-2", pod(1).prepared(""))]);
    let revoked = next(&start, "a>w-2 b>w-2", &at, &HOT);
    assert_eq!(revoked.releasing.keys().map(|(stream, _)| &**stream).collect::<Vec<_>>(), ["a"]);
    assert_eq!(coming(&revoked), "w-2:ab");
    // The user has chosen that it may run twice.
    let immediate = Rules { exclusive: false, ..HOT };
    assert_eq!(coming(&next(&start, "a>w-2 b>w-2", &at, &immediate)), "");
}

#[test]
fn another_order_of_what_will_come_is_no_change() {
    let start = file(1, &["w-0@1: a b", "w-1@0:"], &[]);
    let at = workers([("w-0", pod(1)), ("w-1", pod(1).unready())]);
    let said = next(&start, "a>w-1 b>w-1", &at, &HOT);
    assert_eq!(coming(&said), "w-1:ab");
    assert_eq!(next(&said, "b>w-1 a>w-1", &at, &HOT), said);
    assert_eq!(coming(&next(&said, "a>w-0 b>w-1", &at, &HOT)), "w-1:b");
    assert_eq!(coming(&next(&said, "a>w-1 b>w-1", &at, &RULES)), "", "it was switched off");
}

#[test]
fn a_file_of_unknown_history_says_nothing_of_what_will_come() {
    let mut start = file(5, &["w-0@1: a", "w-1@1: b"], &[]);
    start.next.insert(n("w-1"), vec![n("a"), n("b")]);
    assert_eq!(start.distrusted(0).next, BTreeMap::new());
}
