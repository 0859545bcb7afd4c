//! Complete decisions, from the observation to the writes and the report.
use serde_json::{Value, json};

use super::*;
use crate::swarm::{
    acknowledge::Answer,
    file::{self, stored::fingerprint},
    handover::{BELIEVED_EPOCH, LARGEST_EPOCH, Share},
    memory::Report,
    watches::{self, PodFacts, WorkloadFacts},
};

mod coming;
mod unmeasured;
mod waiting;

/// Longer than `spec.refresh.timeout`.
const LONG: Duration = Duration::from_mins(3);

fn swarm(jobs: &[&str], more: &Value) -> Swarm {
    let mut spec = json!({"workload": {"name": "w"}, "jobs": jobs});
    let fields = more.as_object().unwrap().clone();
    spec.as_object_mut().unwrap().extend(fields);
    serde_json::from_value(json!({
        "metadata": {"name": "s", "namespace": "n", "uid": "s"}, "spec": spec,
    }))
    .unwrap()
}

fn pod(worker: usize, node: Option<&str>) -> PodFacts {
    let state = if node.is_some() { json!({"running": {}}) } else { json!({"waiting": {}}) };
    let ready = if node.is_some() { "True" } else { "False" };
    watches::read_pod(json!({
        "metadata": {"name": format!("w-{worker}"), "uid": format!("uid-{worker}")},
        "spec": {
            "nodeName": node, "containers": [{"name": "worker"}],
            "volumes": [{"name": "config", "configMap": {"name": "w-config"}}],
        },
        "status": {
            "phase": if node.is_some() { "Running" } else { "Pending" },
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{"name": "worker", "restartCount": 0, "state": state}],
        },
    }))
}

fn share(streams: &[&str], version: Epoch) -> Share {
    Share { streams: streams.iter().map(|stream| (*stream).into()).collect(), version }
}

/// A file of this version, in which each worker's list has changed last.
fn published(epoch: Epoch, lists: &[&[&str]]) -> Published {
    let lists = lists.iter().enumerate();
    let shares = lists.map(|(w, list)| (format!("w-{w}").into(), share(list, epoch)));
    Published { epoch, shares: shares.collect(), ..Published::default() }
}

fn view(published: &Published, pods: Vec<PodFacts>, replicas: u32) -> WorkloadView {
    let file::Files { config, state } = file::render(published);
    let content = Some(fingerprint(&config, &state));
    let data = [("config.yml".to_owned(), config), (file::STATE_KEY.to_owned(), state)];
    WorkloadView {
        workload: Some(WorkloadFacts {
            name: "w".into(),
            replicas,
            mounts: vec![("config".into(), "w-config".into())],
            ..WorkloadFacts::default()
        }),
        share: Some(MapFacts {
            managed_by: Some("traffic-operator".into()),
            owner: Some("s".into()),
            content,
            data: Arc::new(data.into()),
            ..MapFacts::default()
        }),
        pods,
        ..WorkloadView::default()
    }
}

/// Returns the answers of these pods, by worker.
fn answers(versions: &[(usize, Epoch)]) -> BTreeMap<Arc<str>, Report> {
    let report = |version: Epoch| Report {
        asked: Instant::now(),
        failures: 0,
        failing: None,
        error: None,
        loaded: Some(version),
        answer: Some(Arc::new(Answer { version: Some(version), jobs: None, prepared: None })),
    };
    versions.iter().map(|(w, v)| (format!("uid-{w}").into(), report(*v))).collect()
}

fn decide(swarm: &Swarm, view: WorkloadView, memory: Memory) -> Plan<Desired, SwarmStatus> {
    let observed = Observed {
        now: Instant::now(),
        held: None,
        view: Some(view),
        confirmed: Confirmed::default(),
        memory,
        unfit: BTreeSet::new(),
        measuring: None,
    };
    plan(swarm, &observed).unwrap()
}

fn away(workers: &[usize], ago: Duration) -> BTreeMap<Arc<str>, Instant> {
    let since = Instant::now().checked_sub(ago).unwrap();
    workers.iter().map(|w| (format!("w-{w}").into(), since)).collect()
}

/// Returns the number of streams of each worker in the next file.
fn counts(plan: &Plan<Desired, SwarmStatus>) -> Vec<usize> {
    let next = plan.desired.publish.as_ref().expect("a file");
    next.published.shares.values().map(|share| share.streams.len()).collect()
}

fn ready(plan: &Plan<Desired, SwarmStatus>) -> (Option<bool>, &'static str, String) {
    let ready = plan.conditions.iter().find(|c| c.type_ == "Ready").unwrap();
    (ready.status, ready.reason, ready.message.clone())
}

/// w-0 runs; w-1 has had no pod on a node for this long; c and d are new.
fn with_one_away(ago: Duration, more: &Value) -> Plan<Desired, SwarmStatus> {
    let file = published(5, &[&["a"], &["b"]]);
    let memory = Memory { away: away(&[1], ago), reports: answers(&[(0, 5)]), ..Memory::default() };
    let pods = vec![pod(0, Some("n")), pod(1, None)];
    decide(&swarm(&["a", "b", "c", "d"], more), view(&file, pods, 2), memory)
}

#[test]
fn new_streams_go_to_workers_that_run_and_the_others_are_complained_of() {
    let plan = with_one_away(LONG, &json!({}));
    assert_eq!(counts(&plan), [3, 1], "w-1 keeps its streams");
    let (status, reason, message) = ready(&plan);
    assert_eq!((status, reason), (Some(false), "WorkerAbsent"));
    assert!(message.starts_with("no worker runs 1 streams: they are in the list of"), "{message}");
    assert!(message.contains("its pod has no node"), "{message}");
    let snapshot = &plan.desired.memory.as_ref().unwrap().snapshot;
    assert_eq!((snapshot.counts.owned, snapshot.stranded), (4, 1));
}

/// A scale-up or a restart: it is about to come.
#[test]
fn a_worker_that_is_away_for_a_minute_gets_its_part_and_nobody_complains() {
    let plan = with_one_away(Duration::from_mins(1), &json!({}));
    assert_eq!(counts(&plan), [2, 2]);
    assert_eq!(ready(&plan).0, Some(true));
    assert_eq!(plan.desired.memory.as_ref().unwrap().snapshot.stranded, 0);
}

#[test]
fn where_nobody_else_has_room_streams_are_owned_all_the_same() {
    let plan = with_one_away(LONG, &json!({"maxStreamsPerWorker": 2}));
    assert_eq!(counts(&plan), [2, 2]);
    assert_eq!(ready(&plan).1, "WorkerAbsent");
    let pinned = json!({
        "jobs": null, "streams": [{"id": "a"}, {"id": "b"}, {"id": "c", "pin": "w-1"}],
    });
    assert_eq!(counts(&with_one_away(LONG, &pinned)), [1, 2]);
    // There is no other worker.
    let memory = Memory { away: away(&[0, 1], LONG), ..Memory::default() };
    let pods = vec![pod(0, None)];
    let away = view(&published(5, &[&["a"], &["b"]]), pods, 2);
    let plan = decide(&swarm(&["a", "b", "c", "d"], &json!({})), away, memory);
    assert_eq!(counts(&plan), [2, 2]);
    assert_eq!(plan.status.summary.unassigned, 0);
    let message = ready(&plan).2;
    assert!(
        message.contains("4 streams: they are in the list of worker w-0 (and 1 more)"),
        "{message}"
    );
}

/// One without streams is harmless.
#[test]
fn an_absent_worker_with_an_empty_list_is_no_complaint() {
    let file = published(5, &[&["a", "b"], &[]]);
    let memory =
        Memory { away: away(&[1], LONG), reports: answers(&[(0, 5)]), ..Memory::default() };
    let plan =
        decide(&swarm(&["a", "b"], &json!({})), view(&file, vec![pod(0, Some("n"))], 2), memory);
    assert!(plan.desired.publish.is_none(), "nothing moves to it");
    assert_eq!(ready(&plan).0, Some(true));
}

/// Both are behind. The budget of one is for a worker that may be evicted now.
#[test]
fn a_worker_that_rests_or_whose_eviction_is_refused_keeps_nobody_waiting() {
    let file = published(5, &[&["a"], &["b"]]);
    let evicted = |change: &dyn Fn(&mut Memory)| {
        let mut memory = Memory { reports: answers(&[(0, 3), (1, 3)]), ..Memory::default() };
        change(&mut memory);
        let pods = vec![pod(0, Some("n")), pod(1, Some("n"))];
        let plan = decide(&swarm(&["a", "b"], &json!({})), view(&file, pods, 2), memory);
        let each = plan.desired.refresh.iter().map(|refresh| match refresh {
            Refresh::Evict { worker, .. } => worker.to_string(),
            Refresh::Nudge { .. } => panic!("{refresh:?}"),
        });
        each.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(evicted(&|_| {}), "w-0");
    let refused = |memory: &mut Memory| {
        memory.refused.insert("w-0".into(), Instant::now());
    };
    assert_eq!(evicted(&refused), "w-1");
    // Evicted a moment ago, it is back with the version it had.
    let without_progress = |memory: &mut Memory| {
        let before = handover::Pod {
            uid: "before".into(),
            ready: true,
            terminating: false,
            stopped: false,
            loaded: Some(3),
            heir: None,
            born: None,
            prepared: None,
        };
        let worker = handover::Worker { pod: Some(before), ..handover::Worker::default() };
        memory.evictions.learn(&[("w-0".into(), worker)].into(), 5);
        memory.evictions.evicted(&"w-0".into(), &"before".into(), 5, Instant::now());
    };
    assert_eq!(evicted(&without_progress), "w-1");
    assert_eq!(
        evicted(&|memory| {
            without_progress(memory);
            memory.refused.insert("w-1".into(), Instant::now());
        }),
        ""
    );
}

/// The file would have gone to the last version there is, and then have been written without end.
#[test]
fn a_version_that_nobody_can_have_read_costs_no_version_and_no_write() {
    for absurd in [LARGEST_EPOCH - 1, LARGEST_EPOCH, BELIEVED_EPOCH + 1, Epoch::MAX] {
        let file = published(5, &[&["a"], &["b"]]);
        let memory = || Memory { reports: answers(&[(0, absurd), (1, 5)]), ..Memory::default() };
        let pods = || vec![pod(0, Some("n")), pod(1, Some("n"))];
        let still = swarm(&["a", "b"], &json!({"refresh": {"strategy": "HotReload"}}));
        let plan = decide(&still, view(&file, pods(), 2), memory());
        assert!(plan.desired.publish.is_none(), "{absurd}");
        assert_eq!(plan.status.epoch, 5, "{absurd}");
        // Nor does it stop the others: a new stream is given.
        let more = swarm(&["a", "b", "c"], &json!({"refresh": {"strategy": "HotReload"}}));
        let plan = decide(&more, view(&file, pods(), 2), memory());
        let next = plan.desired.publish.expect("a file").published;
        assert_eq!((next.epoch, next.barrier), (6, None), "{absurd}");
        // The same in the status, which any user with write access may edit.
        let mut edited = still.clone();
        edited.status = Some(SwarmStatus {
            epoch: i64::try_from(absurd).unwrap_or(i64::MAX),
            ..SwarmStatus::default()
        });
        let good = Memory { reports: answers(&[(0, 5), (1, 5)]), ..Memory::default() };
        let plan = decide(&edited, view(&file, pods(), 2), good);
        assert!(plan.desired.publish.is_none(), "{absurd}");
    }
    // A credible version is accepted: files are missing.
    let file = published(5, &[&["a"], &["b"]]);
    let memory = Memory { reports: answers(&[(0, 9), (1, 5)]), ..Memory::default() };
    let lost = view(&file, vec![pod(0, Some("n")), pod(1, Some("n"))], 2);
    let plan = decide(&swarm(&["a", "b"], &json!({})), lost, memory);
    assert_eq!(plan.desired.publish.expect("a file").published.epoch, 10);
}

const EIGHT: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const FIVE: [&str; 5] = ["i", "j", "k", "l", "m"];

/// The heaviest worker has 1.23 times the mean: nothing moves before rebalanceAbove.
fn spread(first: &[&str], more: &Value, memory: Memory) -> Plan<Desired, SwarmStatus> {
    let all: Vec<_> = EIGHT.into_iter().chain(FIVE).collect();
    let weight = |stream: &&str| ((*stream).into(), 1.0);
    let heavy = first.iter().map(|stream| ((*stream).into(), 100.0));
    let weights = Arc::new(all.iter().map(weight).chain(heavy).collect());
    let pods = (0..3).filter(|w| !memory.away.contains_key(&*format!("w-{w}")));
    let pods = pods.map(|w| pod(w, Some("n"))).collect();
    let memory = Memory { weights, reports: answers(&[(0, 5), (1, 5), (2, 5)]), ..memory };
    let file = published(5, &[first, &EIGHT, &FIVE]);
    decide(&swarm(&all, more), view(&file, pods, 3), memory)
}

/// It would be idle for ever, and each pass would move streams between the others.
#[test]
fn an_emptied_worker_moves_nobody_elses_streams() {
    let weights = json!({"weights": {"query": "x"}});
    let memory = Memory { away: away(&[0], LONG), ..Memory::default() };
    let plan = spread(&[], &weights, memory);
    assert!(plan.desired.publish.is_none());
    let memory = plan.desired.memory.unwrap();
    assert_eq!(memory.heavy, None);
    assert!((memory.snapshot.ratio - 8.0 / 6.5).abs() < 1e-9, "{}", memory.snapshot.ratio);
    // One that takes streams is put to use.
    assert!(spread(&[], &weights, Memory::default()).desired.publish.is_some());
    // A dedicated stream is heavy by itself, and no move changes that.
    let ordinary = EIGHT.into_iter().chain(FIVE).map(|id| json!({"id": id}));
    let dedicated = json!({"id": "x", "dedicated": true});
    let streams: Vec<_> = ordinary.chain([dedicated]).collect();
    let more = json!({"jobs": null, "streams": streams, "weights": {"query": "x"}});
    let heavy = Instant::now().checked_sub(Duration::from_mins(11));
    let plan = spread(&["x"], &more, Memory { heavy, ..Memory::default() });
    assert!(plan.desired.publish.is_none());
    assert_eq!(plan.desired.memory.unwrap().heavy, None);
}

/// A pod of the newest template that has no node may never run.
#[test]
fn while_a_rollout_is_stuck_new_streams_go_to_pods_that_run() {
    let of = |hash: &str, pod: PodFacts, second: i64| PodFacts {
        controller: Some(("ReplicaSet".into(), format!("w-{hash}").into())),
        template: Some(hash.into()),
        created: Some(k8s_openapi::jiff::Timestamp::from_second(second).unwrap()),
        ..pod
    };
    let deployment = json!({"workload": {"kind": "Deployment", "name": "w"}});
    let stuck = |ago: Duration| {
        let old = |w| of("a", pod(w, Some("n")), 1);
        let pods = vec![old(0), old(1), of("b", pod(2, None), 2)];
        let since = Instant::now().checked_sub(ago).unwrap();
        let memory = Memory {
            away: away(&[2], LONG),
            reports: answers(&[(0, 5), (1, 5)]),
            stalled: Some((Some("b".into()), since)),
            ..Memory::default()
        };
        let file = published(5, &[&["a"], &["b"]]);
        decide(&swarm(&["a", "b", "c"], &deployment), view(&file, pods, 2), memory)
    };
    let plan = stuck(LONG);
    assert_eq!(plan.status.summary.unassigned, 0);
    let next = plan.desired.publish.expect("a file").published;
    let lists = |w: &str| next.shares.get(w).map_or(0, |share| share.streams.len());
    assert_eq!((lists("w-0") + lists("w-1"), lists("w-2")), (3, 0));
    let plan = stuck(Duration::from_secs(10));
    assert_eq!(plan.status.summary.unassigned, 1, "it may go on");
}

#[test]
fn autoscale_leaves_dedicated_and_pinned_streams_their_workers() {
    let wanted = |from: u32, streams: Value, most: Value| {
        let autoscale = json!({"maxWeightPerWorker": 10, "max": 9});
        let more = json!({
            "jobs": null, "streams": streams, "autoscale": autoscale, "maxStreamsPerWorker": most,
        });
        let since = Instant::now().checked_sub(Duration::from_mins(6)).unwrap();
        let memory = Memory { replicas: Some((from, since)), ..Memory::default() };
        let plan = decide(&swarm(&[], &more), view(&published(5, &[]), vec![], from), memory);
        plan.desired.scale.map_or(from, |scale| scale.to)
    };
    let none = || json!(null);
    let alone = json!([{"id": "a"}, {"id": "x", "dedicated": true, "weight": 99}]);
    assert_eq!(wanted(2, alone.clone(), none()), 2);
    assert_eq!(wanted(5, alone, none()), 2, "one for x, whatever its weight, and one for a");
    let pinned = json!([{"id": "a"}, {"id": "b", "pin": "w-3"}]);
    assert_eq!(wanted(4, pinned.clone(), none()), 4);
    assert_eq!(wanted(1, pinned, none()), 4);
    let five: Vec<_> = (0..5).map(|i| json!({"id": format!("{i}")})).collect();
    assert_eq!(wanted(4, json!(five), json!(2)), 3);
    assert_eq!(wanted(4, json!(five), none()), 1);
    let far = json!([{"id": "a", "pin": "w-4294967295"}]);
    assert_eq!(wanted(2, far, none()), 9, "not above max");
}

#[test]
fn ready_counts_only_streams_that_nobody_runs() {
    let since = Instant::now().checked_sub(LONG).unwrap();
    let decided = |jobs: &[&str], lists: &[&[&str]], released: &str, handover: &str| {
        let key: (Arc<str>, Arc<str>) = (released.into(), "w-0".into());
        let releasing = [(key.clone(), 5)].into();
        let file = Published { releasing, ..published(5, lists) };
        let memory = Memory {
            releasing: [(key, since)].into(),
            reports: answers(&[(0, 4), (1, 5)]),
            ..Memory::default()
        };
        let pods = vec![pod(0, Some("n")), pod(1, Some("n"))];
        let more = json!({"handover": handover, "refresh": {"strategy": "HotReload"}});
        let plan = decide(&swarm(jobs, &more), view(&file, pods, 2), memory);
        let counts = plan.desired.memory.as_ref().unwrap().snapshot.counts;
        let converged = plan.conditions.iter().find(|c| c.type_ == "Converged").unwrap();
        assert_eq!(converged.status, Some(false), "w-0 has not stopped {released}");
        (ready(&plan).0, counts.owned, counts.releasing)
    };
    let both: [&[&str]; 2] = [&["b"], &["a"]];
    assert_eq!(decided(&["a", "b"], &both, "a", "Immediate"), (Some(true), 2, 0));
    assert_eq!(decided(&["a", "b"], &both, "x", "Exclusive"), (Some(true), 2, 1));
    let one: [&[&str]; 2] = [&["b"], &[]];
    assert_eq!(decided(&["a", "b"], &one, "a", "Exclusive"), (Some(false), 1, 1));
}

/// A tool that puts its own content there, each time at once: every restored file is a version that
/// workers are refreshed for.
#[test]
fn a_file_that_another_client_changes_again_and_again_is_restored_ever_less_often() {
    let file = published(5, &[&["a"], &["b"]]);
    let swarm = swarm(&["a", "b"], &json!({}));
    let began = Instant::now();
    let mut memory =
        Memory { reports: answers(&[(0, 5), (1, 5)]), published: None, ..Memory::default() };
    let mut restored = Vec::new();
    for second in 0..300 {
        let mut foreign = view(&file, vec![pod(0, Some("n")), pod(1, Some("n"))], 2);
        if second > 0 {
            foreign.share.as_mut().unwrap().content = Some("of another client".into());
        }
        let observed = Observed {
            now: began + Duration::from_secs(second),
            held: None,
            view: Some(foreign),
            confirmed: Confirmed::default(),
            memory,
            unfit: BTreeSet::new(),
            measuring: None,
        };
        let plan = plan(&swarm, &observed).unwrap();
        if plan.desired.publish.is_some() {
            restored.push(second);
        } else if second > 0 {
            let (status, reason, message) = ready(&plan);
            assert_eq!((status, reason), (None, "Contested"), "{message}");
        }
        memory = plan.desired.memory.unwrap();
    }
    assert_eq!(restored, [1, 2, 3, 13, 33, 73, 153]);
}
