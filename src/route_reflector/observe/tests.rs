//! Reads from an API server that refuses some of them.
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::runtime::reflector;
use serde_json::json;

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
