//! Reads from an API server that refuses some of them, and what is believed of the others.
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::runtime::reflector;
use serde_json::{Value, json};

use super::*;
use crate::route_reflector::testing::{reconciler, refusal};

/// Nobody needs them to see that a reflector is dead, or that the mesh is off.
#[tokio::test]
async fn fitness_and_reports_that_cannot_be_read_stop_no_pass() {
    let watches = Arc::new(AtomicUsize::new(0));
    let read = Arc::clone(&watches);
    let reconciler = reconciler(move |_, path| {
        let group = "crd.projectcalico.org/v1";
        let resource =
            |name: &str| json!({"name": name, "namespaced": false, "kind": "", "verbs": []});
        let kinds = ["bgppeers", "bgpconfigurations"];
        match path.trim_start_matches("/apis").trim_start_matches('/') {
            "" => {
                let versions = json!([{"groupVersion": group, "version": "v1"}]);
                let calico = json!({"name": "crd.projectcalico.org", "versions": versions});
                (200, json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [calico]}))
            }
            "crd.projectcalico.org/v1" => {
                let resources = kinds.map(resource);
                let kind = "APIResourceList";
                (200, json!({"kind": kind, "groupVersion": group, "resources": resources}))
            }
            path if kinds.iter().any(|kind| path == format!("{group}/{kind}")) => {
                (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}))
            }
            path if path.ends_with("/caliconodestatuses") => refusal(403, "Forbidden"),
            path if path.ends_with("/trafficwatches/w") => {
                read.fetch_add(1, Ordering::SeqCst);
                refusal(500, "InternalError")
            }
            _ => refusal(404, "NotFound"),
        }
    });
    let set: RouteReflectorSet = serde_json::from_value(json!({
        "metadata": {"name": "main"},
        "spec": {
            "candidates": {"fitnessRef": {"namespace": "n", "name": "w"}},
            "transition": {"gate": "NodeStatus"},
        },
    }))
    .unwrap();
    let memory = Memory { asked: vec!["n0".into()], ..Memory::default() };
    reconciler.memories.put(key(&set), memory);
    let (others, _writer): (Others, _) = reflector::store();

    let seen = observe(&reconciler, &set, &others, false).await.unwrap();
    assert!(seen.bgp.is_ok());
    let frozen = seen.fitness.and_then(|fitness| fitness.frozen);
    assert_eq!(frozen.as_deref(), Some("TrafficWatch n/w cannot be read (ApiError)"));
    assert_eq!(seen.memory.statuses, Measured::default());
    assert_eq!(watches.load(Ordering::SeqCst), 1);

    // On the way back to the mesh it is not even asked for.
    let seen = observe(&reconciler, &set, &others, true).await.unwrap();
    assert!(seen.bgp.is_ok() && seen.fitness.is_none());
    assert_eq!(watches.load(Ordering::SeqCst), 1);
}

fn set(name: &str, second: u8, mode: &str) -> RouteReflectorSet {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")
        },
        "spec": {"mode": mode}
    }))
    .unwrap()
}

#[test]
fn the_older_set_holds_the_cluster() {
    let (old, young) = (set("old", 1, "Enforce"), set("young", 2, "Enforce"));
    let both = [old.clone(), young.clone()];
    assert_eq!(held(&old, &both), None);
    assert!(held(&young, &both).unwrap().contains("older RouteReflectorSet old"));
    // Ties by name.
    let (a, b) = (set("a", 1, "Enforce"), set("b", 1, "Enforce"));
    assert!(held(&b, [&a, &b]).is_some() && held(&a, [&a, &b]).is_none());
    // A set that only observes neither claims nor is blocked.
    let observer = set("observer", 0, "Observe");
    assert_eq!(held(&observer, [&old, &observer]), None);
    assert_eq!(held(&old, [&old, &observer]), None);
}

/// Its finalizer goes when it has been cleaned up; someone else's may keep it.
#[test]
fn a_set_holds_the_cluster_until_it_is_cleaned_up() {
    let (mut old, young) = (set("old", 1, "Enforce"), set("young", 2, "Enforce"));
    old.metadata.deletion_timestamp = old.metadata.creation_timestamp.clone();
    old.metadata.finalizers = Some(vec![RouteReflectorReconciler::FINALIZER.into()]);
    assert!(held(&young, [&old, &young]).is_some());
    old.metadata.finalizers = Some(vec!["example.com/other".into()]);
    assert_eq!(held(&young, [&old, &young]), None);
}

/// The cluster is handed from one set to another by their modes.
#[test]
fn a_set_that_may_not_serve_the_cluster_keeps_no_bgp_peers() {
    let (old, young) = (set("old", 1, "Enforce"), set("young", 2, "Enforce"));
    assert!(precedes(Some(&old), &young));
    assert!(!precedes(Some(&young), &old));
    assert!(!precedes(Some(&young), &young));
    assert!(!precedes(Some(&set("observer", 1, "Observe")), &young));
    assert!(precedes(None, &old), "it cannot be read");
}

fn watch(spec: &Value, conditions: &[[&str; 4]]) -> TrafficWatch {
    let mut all = json!({"maxBandwidthPercent": "60"});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let conditions: Vec<_> = conditions
        .iter()
        .map(|[type_, status, reason, message]| {
            json!({
                "type": type_, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        })
        .collect();
    serde_json::from_value(json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {"namespace": "n", "name": "w"}, "spec": all,
        "status": {"conditions": conditions},
    }))
    .unwrap()
}

/// The marks of the last judgment, and the condition about its measurements, stay for ever.
#[test]
fn marks_count_only_while_nodes_are_judged() {
    let available = ["MetricsAvailable", "True", "Available", ""];
    let ready = ["Ready", "True", "Judged", ""];
    let judging = ["Ready", "False", "Judging", ""];
    let invalid = ["Ready", "False", "InvalidSpec", "spec.prometheus: no endpoint"];
    let selector = ["Ready", "False", "InvalidSpec", "spec.deployment.selector: is empty"];
    let refused = ["Ready", "False", "InvalidSpec", "spec.deployment: quota"];
    let unavailable = ["MetricsAvailable", "False", "PrometheusTimeout", ""];
    let unknown = ["MetricsAvailable", "Unknown", "NoNodes", ""];
    let observes = Some("is in mode Observe, and marks no node");
    let no_measurement = Some("has no measurement");
    for (spec, conditions, expected) in [
        (json!({}), vec![ready, available], None),
        (json!({}), vec![judging, available], None),
        (json!({"paused": true}), vec![ready, available], Some("is paused")),
        (json!({"mode": "Observe"}), vec![ready, available], observes),
        (json!({}), vec![invalid, available], Some("has an invalid spec")),
        (json!({}), vec![selector, available], Some("has an invalid spec")),
        (json!({}), vec![refused, available], None),
        (json!({}), vec![ready, unavailable], no_measurement),
        (json!({}), vec![ready, unknown], no_measurement),
        (json!({}), vec![ready], no_measurement),
        (json!({}), vec![], no_measurement),
    ] {
        let found = frozen(&watch(&spec, &conditions));
        assert_eq!(found, expected, "{spec} {conditions:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_count_that_fails_or_hangs_leaves_the_known_one() {
    let fails = || async { Err(Error::Invalid("429".into())) };
    let known = Some((clock::instant(), Arc::new(BTreeMap::from([("n".into(), 2)]))));
    assert_eq!(counted(fails(), None).await, None);
    assert_eq!(counted(fails(), known.clone()).await, known);
    assert_eq!(counted(std::future::pending(), known.clone()).await, known);
    let counts = async { Ok(BTreeMap::from([("n".into(), 3)])) };
    assert_eq!(counted(counts, known).await.unwrap().1["n"], 3);
}

#[test]
fn only_workloads_that_would_notice_count() {
    for (pod, counts) in [
        (r#"{"metadata":{},"spec":{"nodeName":"n"},"status":{"phase":"Running"}}"#, true),
        (r#"{"metadata":{},"spec":{"nodeName":"n"},"status":{"phase":"Succeeded"}}"#, false),
        (
            r#"{"metadata":{},"spec":{"nodeName":"n","hostNetwork":true},"status":{"phase":"Running"}}"#,
            false,
        ),
        (
            r#"{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"d","uid":"u"}]},"spec":{},"status":{"phase":"Running"}}"#,
            false,
        ),
    ] {
        assert_eq!(serde_json::from_str::<Workload>(pod).unwrap().counts(), counts, "{pod}");
    }
}
