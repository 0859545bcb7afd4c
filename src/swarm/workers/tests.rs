use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::{api::Swarm, swarm::acknowledge::Answer, swarm::memory::Report};

mod pinned;

fn settings(kind: &str, immutable: bool) -> Settings {
    let swarm: Swarm = serde_json::from_value(json!({
        "metadata": {"name": "s", "namespace": "n"},
        "spec": {
            "workload": {"kind": kind, "name": "w"}, "jobs": ["a"],
            "configMap": {"immutable": immutable}
        }
    }))
    .unwrap();
    Settings::of(&swarm, None).unwrap()
}

fn workload(start: u32, replicas: u32) -> WorkloadFacts {
    WorkloadFacts { name: "w".into(), start, replicas, ..WorkloadFacts::default() }
}

fn pod(name: &str, owner: (&str, &str)) -> PodFacts {
    PodFacts {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        controller: Some((owner.0.into(), owner.1.into())),
        node: Some("node-1".into()),
        ready: true,
        started: true,
        ..PodFacts::default()
    }
}

fn own(name: &str) -> PodFacts {
    pod(name, ("StatefulSet", "w"))
}

fn find(
    settings: &Settings,
    workload: WorkloadFacts,
    pods: Vec<PodFacts>,
    unfit: &[&str],
) -> Workers {
    let view = WorkloadView { workload: Some(workload), pods, ..WorkloadView::default() };
    let unfit = unfit.iter().map(|node| (*node).to_owned()).collect();
    let (memory, confirmed, named) = (Memory::default(), Confirmed::default(), BTreeSet::new());
    let known =
        Known { now: Instant::now(), memory: &memory, confirmed: &confirmed, named: &named };
    Workers::of(settings, &view, "w-config", &unfit, &known)
}

fn names(workers: &Workers) -> Vec<(&str, bool, Standing, bool)> {
    let each = workers.all.iter();
    each.map(|w| (&*w.name, w.handover.wanted, w.standing, w.handover.pod.is_some())).collect()
}

/// Bug 9 of the original: names came from a label that others may have too.
#[test]
fn workers_are_those_of_this_stateful_set() {
    let foreign = pod("other-0", ("StatefulSet", "other"));
    let pods = vec![own("w-4"), own("w-5"), own("w-10"), foreign];
    let workers = find(&settings("StatefulSet", false), workload(4, 3), pods, &[]);
    assert_eq!(
        names(&workers),
        [
            ("w-4", true, Standing::Full, true),
            ("w-5", true, Standing::Full, true),
            ("w-6", true, Standing::Full, false),
            // Scaled away, and still there.
            ("w-10", false, Standing::Keeps, true),
        ]
    );
}

/// A worker that is not ready keeps its name and its streams.
#[test]
fn readiness_moves_nothing_between_the_workers_of_a_stateful_set() {
    let away = PodFacts { ready: false, ..own("w-0") };
    let workers = find(&settings("StatefulSet", false), workload(0, 1), vec![away], &[]);
    assert_eq!(names(&workers), [("w-0", true, Standing::Full, true)]);
}

#[test]
fn a_pod_without_a_node_has_read_nothing() {
    let pending = PodFacts { node: None, ready: false, ..own("w-0") };
    let workers = find(&settings("StatefulSet", false), workload(0, 1), vec![pending.clone()], &[]);
    assert_eq!(names(&workers), [("w-0", true, Standing::Full, false)]);
    // But it must read the immutable file that it names.
    let mounting = PodFacts { mounts: vec!["w-config-6".into()], ..pending };
    let workers = find(&settings("StatefulSet", true), workload(0, 1), vec![mounting], &[]);
    assert_eq!(workers.all[0].handover.pod.as_ref().unwrap().loaded, Some(6));
}

#[test]
fn streams_leave_workers_on_unfit_nodes() {
    let elsewhere = PodFacts { node: Some("node-2".into()), ..own("w-1") };
    let pods = vec![own("w-0"), elsewhere];
    let workers = find(&settings("StatefulSet", false), workload(0, 2), pods, &["node-1"]);
    assert_eq!(workers.all[0].standing, Standing::Leaving);
    assert_eq!(workers.all[1].standing, Standing::Full);
}

fn replica(name: &str, hash: &str, second: i64) -> PodFacts {
    PodFacts {
        created: Some(Timestamp::from_second(second).unwrap()),
        template: Some(hash.into()),
        ..pod(name, ("ReplicaSet", &format!("w-{hash}")))
    }
}

#[test]
fn a_surge_pod_gets_nothing_before_it_is_ready_and_the_old_keep_what_they_have() {
    let settings = settings("Deployment", false);
    let (old, new) = (replica("w-a-1", "a", 1), replica("w-b-1", "b", 2));
    let fresh = PodFacts { ready: false, ..new.clone() };
    let workers = find(&settings, workload(0, 1), vec![old.clone(), fresh], &[]);
    assert!(workers.rolling);
    assert_eq!(
        names(&workers),
        [("w-a-1", true, Standing::Keeps, true), ("w-b-1", true, Standing::Keeps, true)]
    );
    let ending = PodFacts { terminating: true, ..old };
    let workers = find(&settings, workload(0, 1), vec![ending, new.clone()], &[]);
    assert!(!workers.rolling);
    assert_eq!(
        names(&workers),
        [("w-b-1", true, Standing::Full, true), ("w-a-1", false, Standing::Keeps, true)]
    );
    // Another Deployment with the same beginning of its name.
    let alike = pod("w-x-c-1", ("ReplicaSet", "w-x-c"));
    assert_eq!(find(&settings, workload(0, 1), vec![new, alike], &[]).all.len(), 1);
}

#[test]
fn what_a_pod_reports_is_its_own_and_not_its_predecessors() {
    let answer = |version| Answer { version: Some(version), jobs: None, prepared: None };
    let report = |version| Report {
        asked: std::time::Instant::now(),
        failures: 0,
        failing: None,
        error: None,
        loaded: Some(version),
        answer: Some(Arc::new(answer(version))),
    };
    let mut memory = Memory::default();
    memory.reports.insert("the one before".into(), report(9));
    memory.born.insert("uid-w-0".into(), 8);
    let view = WorkloadView {
        workload: Some(workload(0, 1)),
        pods: vec![own("w-0")],
        ..WorkloadView::default()
    };
    let read = |memory: &Memory| {
        let (none, confirmed, named) = (BTreeSet::new(), Confirmed::default(), BTreeSet::new());
        let known = Known { now: Instant::now(), memory, confirmed: &confirmed, named: &named };
        let workers = Workers::of(&settings("StatefulSet", false), &view, "m", &none, &known);
        workers.all[0].handover.pod.clone().unwrap()
    };
    assert_eq!((read(&memory).loaded, read(&memory).born), (None, Some(8)));
    memory.reports.insert("uid-w-0".into(), report(10));
    assert_eq!(read(&memory).loaded, Some(10));
}

/// A kubelet may give a new pod an older file: a worker that can report what it has read must do
/// so.
#[test]
fn the_next_pod_of_a_worker_lets_go_in_silence_only_if_the_worker_never_answers() {
    let pod = PodFacts { ip: Some([10, 0, 0, 1].into()), ..own("w-0") };
    let view =
        WorkloadView { workload: Some(workload(0, 1)), pods: vec![pod], ..WorkloadView::default() };
    let read = |memory: &Memory| {
        let (none, confirmed, named) = (BTreeSet::new(), Confirmed::default(), BTreeSet::new());
        let known = Known { now: Instant::now(), memory, confirmed: &confirmed, named: &named };
        let workers = Workers::of(&settings("StatefulSet", false), &view, "m", &none, &known);
        workers.all[0].handover.clone()
    };
    let heir = |memory: &Memory| read(memory).pod.unwrap().heir;
    let mut memory = Memory { heirs: [("uid-w-0".into(), 5)].into(), ..Memory::default() };
    assert_eq!(heir(&memory), None, "it has not been queried yet");
    let report = |failures| Report {
        asked: Instant::now(),
        failures,
        failing: None,
        error: Some("refused".into()),
        loaded: None,
        answer: None,
    };
    memory.reports.insert("uid-w-0".into(), report(2));
    assert_eq!(heir(&memory), None);
    memory.reports.insert("uid-w-0".into(), report(3));
    assert_eq!(heir(&memory), Some(5));
    // The pod before it answered.
    let mut before = read(&memory);
    before.pod.as_mut().unwrap().loaded = Some(4);
    memory.evictions.learn(&[("w-0".into(), before)].into(), 5);
    assert_eq!(heir(&memory), None);
}

#[test]
fn the_template_says_what_successors_read_once_its_controller_has_seen_it() {
    let settings = settings("StatefulSet", true);
    let template = |seen| WorkloadFacts {
        generation: 5,
        observed_generation: seen,
        mounts: vec![("config".into(), "w-config-12".into())],
        ..workload(0, 1)
    };
    let successor = |facts| find(&settings, facts, vec![], &[]).all[0].handover.successor;
    assert_eq!(successor(template(5)), Some(12));
    assert_eq!(successor(template(4)), Some(0));
    assert_eq!(successor(workload(0, 1)), Some(0), "it names the map that changes in place");
    assert_eq!(epoch_of("w-config", "w-config-12"), Some(12));
    assert_eq!(epoch_of("w-config", "w-config-12-x"), None);
    assert_eq!(immutable_name("w-config", 12), "w-config-12");
}

#[test]
fn a_worker_that_the_file_names_is_looked_at_also_without_a_pod() {
    let view = WorkloadView { workload: Some(workload(0, 1)), ..WorkloadView::default() };
    let (memory, gone) = (Memory::default(), Arc::<str>::from("w-3"));
    let each = [(Arc::clone(&gone), 9)].into();
    let confirmed = Confirmed { each, all: 0 };
    let named = [&gone].into();
    let known =
        Known { now: Instant::now(), memory: &memory, confirmed: &confirmed, named: &named };
    let none = BTreeSet::new();
    let workers = Workers::of(&settings("StatefulSet", false), &view, "m", &none, &known);
    assert_eq!(names(&workers)[1], ("w-3", false, Standing::Keeps, false));
    assert_eq!(workers.all[1].handover.confirmed, 9);
}

/// Workers that were there before their first immutable file, and report nothing, were waited for
/// for ever.
#[test]
fn a_pod_that_mounts_no_immutable_file_is_not_taken_for_one_that_read_it() {
    let old = PodFacts { mounts: vec!["w-config".into()], ..own("w-0") };
    let uid = Arc::clone(&old.uid);
    let memory = Memory { born: [(uid, 7)].into(), ..Memory::default() };
    let (confirmed, named) = (Confirmed::default(), BTreeSet::new());
    let known =
        Known { now: Instant::now(), memory: &memory, confirmed: &confirmed, named: &named };
    let born = |immutable| {
        let view = WorkloadView {
            workload: Some(workload(0, 1)),
            pods: vec![old.clone()],
            ..WorkloadView::default()
        };
        let settings = settings("StatefulSet", immutable);
        let workers = Workers::of(&settings, &view, "w-config", &BTreeSet::new(), &known);
        workers.all[0].handover.pod.as_ref().unwrap().born
    };
    assert_eq!(born(true), None);
    assert_eq!(born(false), Some(7));
}

/// A kubelet that has no room rejects a pod that never ran: phase Failed, and not a word of
/// containers.
#[test]
fn a_rejected_pod_is_neither_a_worker_nor_a_rollout() {
    let settings = settings("Deployment", false);
    let good = || vec![replica("w-a-1", "a", 1), replica("w-a-2", "a", 2)];
    let rejected =
        PodFacts { ready: false, started: false, ended: true, ..replica("w-a-3", "a", 3) };
    let pods = [good(), vec![rejected.clone()]].concat();
    let workers = find(&settings, workload(0, 2), pods, &[]);
    assert!(!workers.rolling, "balancing continues");
    assert_eq!(
        names(&workers),
        [
            ("w-a-1", true, Standing::Full, true),
            ("w-a-2", true, Standing::Full, true),
            ("w-a-3", false, Standing::Keeps, true),
        ]
    );
    // Until it is replaced, the Deployment differs from the wanted state.
    let pods = vec![replica("w-a-1", "a", 1), rejected];
    assert!(find(&settings, workload(0, 2), pods, &[]).rolling);
    assert!(!find(&settings, workload(0, 2), good(), &[]).rolling);
}

/// A pod that comes back with the older revision reads the former file, in which its streams still
/// stand.
#[test]
fn while_template_and_pods_mount_different_files_no_successor_is_trusted() {
    let mounting = |map: &str| PodFacts { mounts: vec![map.into()], ..own("w-0") };
    let template =
        |map: &str| WorkloadFacts { mounts: vec![("config".into(), map.into())], ..workload(0, 1) };
    let stateful = settings("StatefulSet", false);
    for (map, pods, successor) in [
        ("w-config", vec![mounting("w-config")], None),
        // The name was changed, and the template with it: the rollout has not reached this pod.
        ("w-config", vec![mounting("former")], Some(0)),
        ("w-config", vec![mounting("w-config"), mounting("former")], Some(0)),
        // The template was changed back.
        ("former", vec![mounting("w-config")], Some(0)),
        // The pods get the file in another way.
        ("other", vec![mounting("other")], None),
        ("w-config", vec![], None),
    ] {
        let workers = find(&stateful, template(map), pods.clone(), &[]);
        assert_eq!(workers.all[0].handover.successor, successor, "{map}: {pods:?}");
    }
    // The pods of a Deployment never come back under their names.
    let old = PodFacts { mounts: vec!["former".into()], ..replica("w-a-1", "a", 1) };
    let workers = find(&settings("Deployment", false), template("w-config"), vec![old], &[]);
    assert_eq!(workers.all[0].handover.successor, None);
}

/// The watch brings the deletion some milliseconds after the eviction: enough for a second one.
#[test]
fn a_pod_that_was_just_evicted_is_terminating() {
    let mut memory = Memory::default();
    memory.evictions.evicted(&"w-0".into(), &"uid-w-0".into(), 7, Instant::now());
    let pods = vec![own("w-0"), own("w-1")];
    let view = WorkloadView { workload: Some(workload(0, 2)), pods, ..WorkloadView::default() };
    let (none, confirmed, named) = (BTreeSet::new(), Confirmed::default(), BTreeSet::new());
    let known =
        Known { now: Instant::now(), memory: &memory, confirmed: &confirmed, named: &named };
    let workers = Workers::of(&settings("StatefulSet", false), &view, "m", &none, &known);
    let terminating: Vec<_> =
        workers.all.iter().map(|w| w.handover.pod.as_ref().unwrap().terminating).collect();
    assert_eq!(terminating, [true, false]);
}

#[test]
fn a_worker_that_has_been_without_a_pod_on_a_node_for_too_long_gets_nothing_more() {
    let pending = PodFacts { node: None, ready: false, started: false, ..own("w-1") };
    let rejected = PodFacts { ended: true, ready: false, started: false, ..own("w-1") };
    let unready = PodFacts { ready: false, ..own("w-1") };
    let long = std::time::Duration::from_mins(3);
    let soon = std::time::Duration::from_mins(1);
    for (second, ago, standing, lost) in [
        (Some(own("w-1")), long, Standing::Full, false),
        (Some(unready.clone()), soon, Standing::Full, false),
        (Some(unready), long, Standing::Keeps, true),
        (Some(pending.clone()), soon, Standing::Full, false),
        (None, soon, Standing::Full, false),
        (Some(pending), long, Standing::Keeps, true),
        (Some(rejected), long, Standing::Keeps, true),
        (None, long, Standing::Keeps, true),
    ] {
        let described = format!("{second:?}, {ago:?}");
        let now = Instant::now();
        let away = [("w-1".into(), now.checked_sub(ago).unwrap())].into();
        let memory = Memory { away, ..Memory::default() };
        let pods = [own("w-0")].into_iter().chain(second).collect();
        let view = WorkloadView { workload: Some(workload(0, 2)), pods, ..WorkloadView::default() };
        let (none, confirmed, named) = (BTreeSet::new(), Confirmed::default(), BTreeSet::new());
        let known = Known { now, memory: &memory, confirmed: &confirmed, named: &named };
        let workers = Workers::of(&settings("StatefulSet", false), &view, "m", &none, &known);
        assert_eq!(workers.all[0].standing, Standing::Full);
        assert_eq!(
            (workers.all[1].standing, workers.all[1].is_lost),
            (standing, lost),
            "{described}"
        );
    }
}

/// Nothing of the new version starts: streams that have no worker go to the pods that run.
#[test]
fn ready_pods_of_the_old_template_take_streams_while_a_rollout_is_stuck() {
    let settings = settings("Deployment", false);
    let fresh = || PodFacts { ready: false, ..replica("w-b-1", "b", 3) };
    let pods = || vec![replica("w-a-1", "a", 1), replica("w-a-2", "a", 2), fresh()];
    let now = Instant::now();
    let find = |pods: Vec<PodFacts>, unfit: &[&str], stalled: Option<(&str, u64)>| {
        let since = |seconds| now.checked_sub(std::time::Duration::from_secs(seconds)).unwrap();
        let stalled = stalled.map(|(hash, ago)| (Some(hash.into()), since(ago)));
        let memory = Memory { stalled, ..Memory::default() };
        let view = WorkloadView { workload: Some(workload(0, 2)), pods, ..WorkloadView::default() };
        let unfit = unfit.iter().map(|node| (*node).to_owned()).collect();
        let (confirmed, named) = (Confirmed::default(), BTreeSet::new());
        let known = Known { now, memory: &memory, confirmed: &confirmed, named: &named };
        let workers = Workers::of(&settings, &view, "m", &unfit, &known);
        let standings: Vec<_> = workers.all.iter().map(|worker| worker.standing).collect();
        assert!(workers.rolling, "nothing moves for balance");
        (standings, workers.stalled)
    };
    let (keeps, full) = (Standing::Keeps, Standing::Full);
    let (standings, stalled) = find(pods(), &[], None);
    assert_eq!((standings, stalled), (vec![keeps; 3], Some((Some("b".into()), now))));
    assert_eq!(find(pods(), &[], Some(("b", 119))).0, [keeps, keeps, keeps]);
    assert_eq!(find(pods(), &[], Some(("b", 120))).0, [full, full, keeps]);
    // The time counts for one template.
    assert_eq!(find(pods(), &[], Some(("c", 120))).0, [keeps, keeps, keeps]);
    // No pod is emptied, and one on an unfit node gets nothing.
    assert_eq!(find(pods(), &["node-1"], Some(("b", 120))).0, [keeps, keeps, keeps]);
    let away = PodFacts { ready: false, ..replica("w-a-2", "a", 2) };
    let one = vec![replica("w-a-1", "a", 1), away, fresh()];
    assert_eq!(find(one, &[], Some(("b", 120))).0, [full, keeps, keeps]);
    // It goes on.
    let on = vec![replica("w-a-1", "a", 1), fresh(), replica("w-b-2", "b", 4)];
    assert_eq!(find(on, &[], Some(("b", 120))), (vec![keeps, keeps, full], None));
}

/// A quota refuses the third pod for ever: the others are balanced all the same.
#[test]
fn balancing_waits_for_missing_pods_of_a_deployment_for_a_while() {
    let rolling = |ago: Option<u64>| {
        let now = Instant::now();
        let since = |seconds| now.checked_sub(std::time::Duration::from_secs(seconds)).unwrap();
        let memory = Memory { incomplete: ago.map(since), ..Memory::default() };
        let pods = vec![replica("w-a-1", "a", 1), replica("w-a-2", "a", 2)];
        let view = WorkloadView { workload: Some(workload(0, 3)), pods, ..WorkloadView::default() };
        let (none, confirmed, named) = (BTreeSet::new(), Confirmed::default(), BTreeSet::new());
        let known = Known { now, memory: &memory, confirmed: &confirmed, named: &named };
        Workers::of(&settings("Deployment", false), &view, "m", &none, &known).rolling
    };
    assert_eq!([None, Some(119), Some(120)].map(rolling), [true, true, false]);
}
