//! Tables of explanations of streams and workers.
use std::sync::Arc;

use serde_json::json;

use super::{explain::State, *};
use crate::{
    swarm::{
        dry_run::{Move, Unplaced},
        handover::{Published, Share},
        inspection::{PageFree, PageRefreshed, PageReleasing, PageWaiting, PageWorker},
    },
    text::{Tone, plain},
};

fn share(streams: &[&str], version: u64) -> Share {
    Share { streams: streams.iter().map(|id| (*id).into()).collect(), version }
}

/// Facts: w-0 has `a`, `b` moves from w-1 to w-0, no worker has `c`, `d` and `e`.
fn facts(strategy: &str) -> Facts {
    let swarm: Swarm = serde_json::from_value(json!({
        "metadata": {"name": "s", "namespace": "n"},
        "spec": {
            "workload": {"name": "w"}, "refresh": {"strategy": strategy},
            "streams": [{"id": "a", "weight": 3, "pin": "w-0"}, {"id": "b"}, {"id": "c"}, {"id": "d"}]
        },
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "Placed", "message": "",
             "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Converged", "status": "False", "reason": "Moving", "message": "on their way",
             "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]}
    }))
    .unwrap();
    let mut published = Published { epoch: 9, ..Published::default() };
    published.shares.insert("w-0".into(), share(&["a"], 7));
    published.shares.insert("w-1".into(), share(&[], 9));
    published.releasing.insert(("b".into(), "w-1".into()), 9);
    let moved = |stream: &str, from: Option<&str>| Move {
        stream: stream.into(),
        from: from.map(str::to_owned),
        to: Some("w-0".into()),
        reason: "moved",
        why: "balance".into(),
    };
    let run = DryRun {
        published: Arc::new(published),
        moves: vec![moved("b", Some("w-1")), moved("c", None)],
        unassigned: vec![Unplaced {
            id: "d".into(),
            reason: "NoCapacity".into(),
            meaning: crate::swarm::inspection::meaning("NoCapacity"),
        }],
        spec: swarm.spec.streams.clone().unwrap(),
        ..DryRun::default()
    };
    let worker = |name: &str, loaded, error: Option<&str>| PageWorker {
        name: name.into(),
        node: Some(format!("node-{name}")),
        ready: true,
        loaded,
        error: error.map(str::to_owned),
        ..PageWorker::default()
    };
    let refreshed = Some(PageRefreshed { result: "refused".into(), seconds: 65.0 });
    let page = Page {
        version: "1.2.3".into(),
        epoch: 9,
        workers: vec![
            worker("w-0", Some(8), None),
            PageWorker { refreshed, ..worker("w-1", None, Some("connection refused")) },
        ],
        releasing: vec![PageReleasing {
            id: "b".into(),
            worker: "w-1".into(),
            epoch: 9,
            seconds: 125.0,
        }],
        free: vec![PageFree { id: "c".into(), seconds: 3.0 }],
        waiting: vec![PageWaiting {
            worker: "w-1".into(),
            streams: 1,
            epoch: 9,
            why: "Silent".into(),
            text: "connection refused".into(),
        }],
        ..Page::default()
    };
    Facts { swarm, run, live: Ok((page, "pod op-1".into())), unread: vec![] }
}

fn expect(text: &str, all: &[&str]) {
    for expected in all {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
fn every_state_of_a_stream_is_said_with_what_it_waits_for() {
    let facts = facts("HotReload");
    let cases: [(&str, State, &[&str]); 5] = [
        (
            "a",
            State::Owned,
            &[
                "stream \"a\" of n/s is with w-0\n",
                "version 9; its worker's list last changed at version 7",
                "w-0 has acknowledged version 8: it runs this list",
                "weight 3, pinned to w-0",
                "Converged=False Moving: on their way",
                "From the operator, pod op-1 (version 1.2.3)",
            ],
        ),
        (
            "b",
            State::Releasing,
            &[
                "stream \"b\" of n/s is taken from w-1\n",
                "version 9; removed from its list at version 9; for 2m 5s",
                "w-1 must still stop it: its pod has acknowledged no version",
                "from w-1 to w-0: moved (balance)",
                "w-1 was refused 1m 5s ago",
                "w-1 has not acknowledged version 9: connection refused",
                "kubectl -n n delete pod w-1",
            ],
        ),
        (
            "c",
            State::Free,
            &[
                "has no worker yet, and is moving to one\n",
                "for 3s",
                "it goes to w-0 with the next file",
            ],
        ),
        (
            "d",
            State::Unassigned,
            &[
                "no worker can take it\n",
                "NoCapacity: every worker that may have it has maxStreamsPerWorker streams",
                "raise spec.maxStreamsPerWorker",
            ],
        ),
        ("e", State::Removed, &["it is in no list, and not in the spec", "it is not listed"]),
    ];
    for (id, state, expected) in cases {
        let made = explain_stream(&facts, id);
        assert_eq!(made.state, state, "{made:?}");
        expect(&plain(&stream_text(&made)), expected);
    }
}

#[test]
fn what_a_worker_prepares_is_said_of_it_and_of_its_streams() {
    let mut facts = facts("HotReload");
    let (page, _) = facts.live.as_mut().unwrap();
    page.workers[1].next = vec!["a".into(), "x".into()];
    let text = |facts: &Facts| plain(&stream_text(&explain_stream(facts, "a")));
    assert!(!text(&facts).contains("prepared"), "it has prepared them, or prepares none");
    facts.live.as_mut().unwrap().0.workers[1].preparing = 1;
    expect(&text(&facts), &["it stays there until w-1 has prepared what will come to it (1 left)"]);
    let worker = explain_worker(&facts, "w-1").unwrap();
    expect(&worker.because, &["it prepares 1 of 2 streams that will come to it"]);
}

#[test]
fn swarms_that_could_not_be_read_are_named_below_the_answer() {
    let unread: Vec<_> = (0..12).map(|i| format!("b/t-{i}: you may not")).collect();
    let facts = Facts { unread, ..facts("HotReload") };
    let text = plain(&stream_text(&explain_stream(&facts, "a")));
    let line = "  unread       it may be in another Swarm too: b/t-9: you may not\n";
    expect(&text, &["is with w-0\n", line, "  unread       2 more Swarms: -o json lists them\n"]);
    assert!(!text.contains("b/t-10"), "{text}");
}

#[test]
fn states_of_streams_and_workers_have_colors() {
    let facts = facts("HotReload");
    for (id, tone, word) in [
        ("a", Tone::Good, "is with w-0"),
        ("a", Tone::Notable, "Converged=False Moving"),
        ("b", Tone::Notable, "is taken from w-1"),
        ("c", Tone::Notable, "has no worker yet, and is moving to one"),
        ("d", Tone::Bad, "cannot be assigned: no worker can take it"),
        ("e", Tone::Notable, "has no worker"),
    ] {
        expect(&stream_text(&explain_stream(&facts, id)), &[&tone.paint(word)]);
    }
    let worker = worker_text(&explain_worker(&facts, "w-0").unwrap());
    expect(&worker, &[&Tone::Good.paint("ready")]);
}

#[test]
fn a_worker_is_explained_with_its_list_and_what_it_has_still_to_stop() {
    let facts = facts("DeletePod");
    let text = |name: &str| plain(&worker_text(&explain_worker(&facts, name).unwrap()));
    expect(
        &text("w-0"),
        &[
            "worker w-0 of n/s on node-w-0: ready, 1 streams\n",
            "version 9; its list last changed at version 7",
            "w-0 has acknowledged version 8: it runs this list",
            "streams      a\n",
            "pinned       a\n",
            "\"b\": from w-1 to w-0: moved (balance)",
        ],
    );
    expect(
        &text("w-1"),
        &[
            "it is not known whether w-1 runs this list: connection refused",
            "the operator waits for version 9: its pod has acknowledged no version",
            "stops        b\n",
            "the operator evicts its pod; if it stays: kubectl -n n get events,pdb",
        ],
    );
    assert_eq!(explain_worker(&facts, "w-9"), None);
    let said = no_such_worker(&facts, "w-9");
    assert_eq!(said, "Swarm n/s has no worker \"w-9\"; it has w-0, w-1");
}

#[test]
fn a_swarm_is_explained_with_its_workers_its_moves_and_what_to_do() {
    let mut facts = facts("HotReload");
    let mut status = facts.swarm.status.clone().unwrap();
    status.conditions[1].reason = "DuplicateOwner".into();
    facts.swarm.status = Some(status);
    facts.run.workload = "StatefulSet w".into();
    facts.run.streams = 4;
    let made = explain_swarm(&facts);
    assert_eq!(made.conditions, ["Converged=False DuplicateOwner: on their way"]);
    expect(
        &crate::text::plain(&swarm_text(&made)),
        &[
            "n/s (StatefulSet w): 4 streams: 0 owned, 0 releasing, 0 free, 0 unassigned\n",
            "  file         version 9\n",
            "WORKER  NODE      READY  STREAMS  WEIGHT  WANTED  LOADED\n",
            "w-0     node-w-0  True   0        0       0       8\n",
            "w-1     node-w-1  True   0        0       0       -\n",
            "b       w-1   w-0  moved   balance\n",
            "  w-1 has not acknowledged version 9: connection refused\n",
            "  stream \"d\": NoCapacity: every worker that may have it",
            "    try: docs/runbooks/SwarmDuplicateOwner.md\n",
            "From the operator, pod op-1 (version 1.2.3)",
        ],
    );
}

#[test]
fn without_an_operator_the_file_and_the_status_tell() {
    let mut facts = facts("HotReload");
    let page = facts.live.clone().unwrap().0;
    facts.live = Err("nobody leads".into());
    // The page of a dry run, based on the status.
    facts.run.page = Some(page);
    let made = explain_stream(&facts, "b");
    assert_eq!(made.state, State::Releasing);
    let source = "From what the API server has; the operator was not asked: nobody leads";
    expect(&plain(&stream_text(&made)), &["is taken from w-1", source]);
    // If not even that is possible, the file has the owners.
    facts.run.page = None;
    expect(&plain(&stream_text(&explain_stream(&facts, "a"))), &["is with w-0", "version 7"]);
    expect(&plain(&worker_text(&explain_worker(&facts, "w-1").unwrap())), &["stops        b\n"]);
}

/// Each rule of the protocol has a sentence, and advice if a person can help.
#[test]
fn every_reason_to_wait_has_a_sentence() {
    let swarm = facts("HotReload").swarm;
    let advice = |why: &str| {
        let waiting =
            PageWaiting { worker: "w-1".into(), why: why.into(), ..PageWaiting::default() };
        reasons::advice(&swarm, &waiting).map(|advice| advice.next)
    };
    for (why, sentence, next) in [
        ("Behind", "an older version", Some("without subPath")),
        ("Silent", "no version", Some("GET :9090/internal/version")),
        ("Terminating", "being deleted", Some("docs/reference/swarm.md#unreachable-nodes")),
        ("Ahead", "never published", Some("delete pod w-1")),
        ("Unconfirmed", "from the API server itself", None),
        ("Template", "an older file", None),
        ("Unpublished", "not written yet", None),
        ("Unseen", "not looked at it yet", None),
    ] {
        assert!(reasons::sentence(why).contains(sentence), "{why}");
        let said = advice(why);
        assert_eq!(said.is_some(), next.is_some(), "{why}: {said:?}");
        assert!(said.unwrap_or_default().contains(next.unwrap_or_default()), "{why}");
    }
}
