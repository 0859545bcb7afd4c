use serde_json::{Value, json};

use super::{
    facts::{GIVEN, MapFacts, PodFacts, WorkloadFacts},
    objects::{MapObject, WorkerPod, WorkloadObject},
    *,
};
use crate::infra::watch::Reduced;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::runtime::watcher::Event;

fn pod(change: &[(&str, Value)]) -> PodFacts {
    let mut pod = json!({
        "metadata": {"name": "w-0", "uid": "u"},
        "spec": {"nodeName": "n", "containers": [{"name": "a"}, {"name": "b"}]},
        "status": {"phase": "Running"}
    });
    for (pointer, value) in change {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    PodFacts::from(&serde_json::from_value::<WorkerPod>(pod).unwrap())
}

const DELETED: (&str, &str) = ("/metadata/deletionTimestamp", "2026-01-01T00:00:00Z");

#[expect(clippy::needless_pass_by_value, reason = "written where it is called")]
fn states(a: Value, b: Value) -> Value {
    json!([{"name": "a", "state": a}, {"name": "b", "state": b}])
}

/// The events that free a stream, row by row.
#[test]
fn only_a_pod_that_can_never_run_anything_again_is_stopped() {
    let deleted = || (DELETED.0, json!(DELETED.1));
    let ended = || json!({"terminated": {"exitCode": 0}});
    let running = || json!({"running": {}});
    let statuses = |a, b| ("/status/containerStatuses", states(a, b));
    let phase = |phase: &str| ("/status/phase", json!(phase));
    assert!(!pod(&[]).stopped, "running");
    assert!(!pod(&[statuses(ended(), ended())]).stopped, "containers may be started again");
    assert!(!pod(&[deleted()]).stopped, "no kubelet reports its containers");
    assert!(!pod(&[deleted(), statuses(ended(), running())]).stopped, "one still runs");
    assert!(!pod(&[deleted(), statuses(ended(), json!({"waiting": {}}))]).stopped);
    assert!(pod(&[phase("Failed"), statuses(ended(), ended())]).stopped);
    assert!(pod(&[deleted(), phase("Failed"), statuses(ended(), ended())]).stopped);
    assert!(pod(&[phase("Succeeded"), statuses(ended(), ended())]).stopped);
    assert!(!pod(&[phase("Failed")]).stopped, "evicted, but its containers may still run");
    assert!(!pod(&[phase("Unknown"), statuses(ended(), ended())]).stopped);
    let sidecar =
        ("/status/initContainerStatuses", json!([{"name": "s", "state": {"running": {}}}]));
    let failed = phase("Failed");
    assert!(!pod(&[failed, statuses(ended(), ended()), sidecar]).stopped, "a sidecar still runs");
    assert!(pod(&[deleted(), ("/spec/nodeName", Value::Null)]).stopped, "it never had a node");
    assert!(!pod(&[("/spec/nodeName", Value::Null)]).stopped, "it may get one");
}

/// A crashed container was taken for stopped as its pod was deleted, and its kubelet started it
/// again.
#[test]
fn a_crashed_container_of_a_pod_that_is_being_deleted_may_be_started_again() {
    let deleted = (DELETED.0, json!(DELETED.1));
    let ended = || json!({"terminated": {"exitCode": 137}});
    let statuses = ("/status/containerStatuses", states(ended(), ended()));
    assert!(!pod(&[deleted, statuses]).stopped);
}

#[test]
fn a_pod_is_read_as_far_as_it_is_needed() {
    let facts = pod(&[
        (
            "/metadata/ownerReferences",
            json!([
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w", "uid": "s", "controller": true}
            ]),
        ),
        ("/metadata/annotations", json!({NUDGE: "12", "x": "y"})),
        ("/status/podIP", json!("10.0.0.9")),
        ("/status/conditions", json!([{"type": "Ready", "status": "True"}])),
        (
            "/spec/volumes",
            json!([
                {"name": "c", "configMap": {"name": "w-config"}}, {"name": "e", "emptyDir": {}},
                {"name": "p", "projected": {"sources": [{"configMap": {"name": "q"}}, {"secret": {}}]}}
            ]),
        ),
    ]);
    assert_eq!(facts.controller, Some(("StatefulSet".into(), "w".into())));
    assert_eq!(facts.nudged, Some(12));
    assert_eq!(facts.ip, Some("10.0.0.9".parse().unwrap()));
    assert!(facts.ready && !facts.terminating);
    assert_eq!(facts.mounts, ["w-config".into(), "q".into()]);
}

/// The API server determines which pods must sign: an answer could claim anything.
#[test]
fn workers_of_ours_that_know_their_uid_sign() {
    let uid =
        || json!([{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]);
    let one = |command: Value, args: Value, env: Value| {
        json!([
            {"name": "other"}, {"name": "c", "command": command, "args": args, "env": env}
        ])
    };
    let container = |command, args, env| {
        let containers = one(command, args, env);
        pod(&[("/spec/containers", containers)]).signs
    };
    for (command, args) in [
        (json!([]), json!(["agent", "worker"])),
        (json!(null), json!(["agent", "reload", "--url", "http://localhost/"])),
        (json!(["/traffic-operator"]), json!(["agent", "worker", "--", "run", "{}"])),
        (json!(["/traffic-operator", "agent"]), json!(["worker"])),
        (json!(["/traffic-operator", "agent", "worker"]), json!(null)),
        (json!(["/traffic-operator-agent"]), json!(["worker"])),
        (json!(["traffic-operator-agent", "reload"]), json!(["--url", "http://localhost/"])),
    ] {
        let command = || if command.is_null() { json!([]) } else { command.clone() };
        let args = || if args.is_null() { json!([]) } else { args.clone() };
        assert!(container(command(), args(), uid()), "{} {}", command(), args());
        // A worker that does not know its UID cannot sign.
        assert!(!container(command(), args(), json!([])));
        assert!(!container(command(), args(), json!([{"name": "POD_UID", "value": "u"}])));
    }
    let name =
        json!([{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    assert!(!container(json!([]), json!(["agent", "worker"]), name));
    for args in
        [json!([]), json!(["worker"]), json!(["agent", "probe"]), json!(["agent", "x", "worker"])]
    {
        assert!(!container(json!([]), args, uid()));
    }
    // A sidecar that is an init container, and what people say.
    let ours = one(json!([]), json!(["agent", "reload"]), uid());
    assert!(pod(&[("/spec/initContainers", ours.clone())]).signs);
    let annotated = |said: &str, containers: &Value| {
        let said = json!({ACKNOWLEDGEMENTS: said});
        pod(&[("/metadata/annotations", said), ("/spec/containers", containers.clone())]).signs
    };
    let theirs = json!([{"name": "c"}]);
    assert!(annotated("signed", &theirs) && !annotated("plain", &ours));
    assert!(annotated("yes", &ours) && !annotated("yes", &theirs));
}

/// Bug 12 of the original: `spec.replicas` may be absent.
#[test]
fn a_workload_without_replicas_has_one() {
    let read = |spec: Value| {
        let object = json!({"metadata": {"name": "w", "generation": 3}, "spec": spec});
        WorkloadFacts::from(&serde_json::from_value::<WorkloadObject<StatefulSet>>(object).unwrap())
    };
    let facts = read(json!({"selector": {"matchLabels": {"app": "w"}}}));
    assert_eq!((facts.replicas, facts.start, facts.generation), (1, 0, 3));
    assert_eq!(query(&facts).as_deref(), Some("app in (w)"));
    let facts = read(json!({
        "replicas": 4, "ordinals": {"start": 5}, "updateStrategy": {"type": "OnDelete"},
        "template": {"spec": {"containers": [], "volumes": [{"name": "c", "configMap": {"name": "m"}}]}}
    }));
    assert_eq!((facts.replicas, facts.start, facts.on_delete), (4, 5, true));
    assert_eq!(facts.mounts, [("c".into(), "m".into())]);
}

#[test]
fn a_map_says_whose_it_is() {
    let read = |metadata: Value| {
        let object = json!({"metadata": metadata, "data": {"config.yml": "x"}});
        MapFacts::from(&serde_json::from_value::<MapObject>(object).unwrap())
    };
    let owner = |api: &str| json!([{"apiVersion": api, "kind": "Swarm", "name": "s", "uid": "u"}]);
    let ours = read(json!({"name": "m", "ownerReferences": owner("traffic.example.com/v1alpha1")}));
    assert_eq!(ours.owner.as_deref(), Some("s"));
    let other = read(json!({"name": "m", "ownerReferences": owner("k8slab.info/v1alpha1")}));
    assert_eq!(other.owner, None);
    let given = read(json!({"name": "m", "annotations": {GIVEN: "s"}}));
    assert_eq!(given.given.as_deref(), Some("s"));
}

fn object<V>(name: &str, version: u64, facts: V) -> Reduced<String, V> {
    Reduced { key: name.into(), version, facts: Some(facts) }
}

/// Bug 13 of the original: the watch missed the deletion of an object.
#[test]
fn what_a_new_list_does_not_hold_is_gone() {
    let mut seen = Seen::<u8>::default();
    for event in [Event::Init, Event::InitApply(object("a", 1, 1)), Event::InitDone] {
        seen.apply(event);
    }
    seen.apply(Event::Apply(object("b", 2, 2)));
    let names = |seen: &Seen<u8>| seen.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&seen), ["a", "b"]);
    for event in [Event::Init, Event::InitApply(object("b", 2, 2)), Event::InitDone] {
        seen.apply(event);
    }
    assert_eq!(names(&seen), ["b"]);
}

/// A complete list, and these objects by writes of ours at version 110.
fn synced<V>(objects: Vec<(&str, V)>) -> Seen<V> {
    let mut seen = Seen::default();
    seen.apply(Event::InitDone);
    for (name, facts) in objects {
        seen.wrote(name.to_owned(), 110, facts);
    }
    seen
}

/// Pods that are not listed yet looked as if there were none: what they were to stop was given
/// away.
#[test]
fn a_workload_whose_pods_were_not_listed_is_not_seen_as_one_without_pods() {
    let swarm: Swarm = serde_json::from_value(json!({
        "metadata": {"name": "s", "namespace": "n"},
        "spec": {"workload": {"name": "w"}, "jobs": ["a"]}
    }))
    .unwrap();
    let selector =
        |app: &str| serde_json::from_value(json!({"matchLabels": {"app": app}})).unwrap();
    let cache = WorkloadCache::default();
    let names = Names::of(&swarm);
    let facts = WorkloadFacts { name: "w".into(), selector: selector("w"), ..Default::default() };
    cache.state().maps.insert(names.share.clone(), synced(vec![]));
    cache.state().workloads.insert(names.workload.clone(), synced(vec![("w", facts.clone())]));
    // Another Swarm of the same workload has it listed, or its selector was not evaluated yet.
    assert_eq!(cache.view(&swarm), None);
    let pods = Watched::Pods("n".into(), query(&facts).unwrap());
    cache.state().selectors.insert(swarm.key(), query(&facts).unwrap());
    assert_eq!(cache.view(&swarm), None);
    cache.state().pods.insert(pods, synced(vec![("w-0", pod(&[]))]));
    assert_eq!(cache.view(&swarm).unwrap().pods.len(), 1);
    // Recreated with another selector.
    let other = WorkloadFacts { selector: selector("v"), ..facts };
    cache.state().workloads.insert(names.workload, synced(vec![("w", other)]));
    assert_eq!(cache.view(&swarm), None);
}

/// After two writes of ours the watch brought the first, and the version in the status went back.
#[test]
fn what_the_watch_brings_of_the_time_before_our_last_write_is_old_news() {
    let map = |version: &str| MapFacts { resource_version: version.into(), ..MapFacts::default() };
    let event = |version: &str| object("m", version.parse().unwrap(), map(version));
    let mut seen = synced(vec![("m", map("110"))]);
    let known = |seen: &Seen<MapFacts>| seen.get("m").map(|m| m.resource_version.clone());
    seen.apply(Event::Apply(event("99")));
    assert_eq!(known(&seen).as_deref(), Some("110"), "versions are numbers");
    seen.apply(Event::Delete(event("105")));
    assert_eq!(known(&seen).as_deref(), Some("110"), "it was created again after that");
    for event in [Event::Init, Event::InitApply(event("105")), Event::InitDone] {
        seen.apply(event);
    }
    assert_eq!(known(&seen).as_deref(), Some("110"));
    seen.apply(Event::Apply(event("111")));
    assert_eq!(known(&seen).as_deref(), Some("111"));
    seen.apply(Event::Delete(event("112")));
    assert_eq!(known(&seen), None);
}
