//! Writes to an API server that refuses some of them.
use std::{net::Ipv4Addr, sync::Mutex};

use http::Method;
use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::route_reflector::{
    election::Slot,
    testing::{reconciler, refusal},
};

/// A permission that is missing, or a webhook that fails, must not cost routes.
#[tokio::test]
async fn reports_that_cannot_be_deleted_stop_no_repair_and_are_deleted_later() {
    let patched = Arc::new(Mutex::new(vec![]));
    let seen = Arc::clone(&patched);
    let reconciler = reconciler(move |method, path| {
        if *method != Method::PATCH {
            return refusal(403, "Forbidden");
        }
        seen.lock().unwrap().push(path.to_owned());
        let metadata = json!({"name": "n0", "resourceVersion": "7"});
        (200, json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}))
    });
    let set: RouteReflectorSet =
        serde_json::from_value(json!({"metadata": {"name": "main"}, "spec": {}})).unwrap();
    let slot = Slot {
        id: 0,
        node: "n0".into(),
        zone: None,
        cluster_id: Ipv4Addr::new(224, 0, 0, 0),
        trouble: None,
    };
    let write = NodeWrite { node: "n0".into(), decided: None, labels: vec![], cluster_id: None };
    let repair = Step::Promote { why: Why::Repair, slots: vec![slot] };
    let step = Some((repair, vec![Write::Node(write)]));
    let stop = Desired { reports: Reports::Stop, ..Desired::default() };
    let datastore = reconciler.kubernetes.clone();

    let desired = Desired { step, ..stop.clone() };
    let error = reconciler.write(&set, &datastore, desired).await.unwrap_err();
    assert_eq!(*patched.lock().unwrap(), ["/api/v1/nodes/n0"]);
    assert_eq!(error.reason(), "Forbidden");
    // The status and the events report the step.
    assert!(
        matches!(&error, Error::Stages { notices, .. } if notices[0].reason == "Promoted"),
        "{error}"
    );
    let memory = reconciler.memories.get(&key(&set));
    assert!(memory.unsettled && memory.last_step.is_some());

    let error = reconciler.write(&set, &datastore, stop).await.unwrap_err();
    assert!(matches!(error, Error::Kube { .. }), "{error}");
    assert!(reconciler.memories.get(&key(&set)).last_step.is_some(), "nothing is forgotten");
}

/// Otherwise the report of the refusal would hide behind the gate, which waits for new samples.
#[tokio::test]
async fn a_refused_write_is_remembered_and_is_no_step() {
    let reconciler = reconciler(|method, _| match *method {
        Method::PATCH => refusal(422, "Invalid"),
        _ => refusal(404, "NotFound"),
    });
    let set: RouteReflectorSet =
        serde_json::from_value(json!({"metadata": {"name": "main"}, "spec": {}})).unwrap();
    let step = Step::Demote { nodes: vec![] };
    let write = NodeWrite { node: "n0".into(), decided: None, labels: vec![], cluster_id: None };
    let before = Timestamp::from_second(7).ok();
    let desired = |writes: Vec<Write>| Desired {
        step: Some((step.clone(), writes)),
        memory: Some(Memory { last_step: before, ..Memory::default() }),
        ..Desired::default()
    };
    let datastore = reconciler.kubernetes.clone();
    let one = desired(vec![Write::Node(write.clone())]);
    reconciler.write(&set, &datastore, one).await.unwrap_err();
    let memory = reconciler.memories.get(&key(&set));
    assert_eq!(memory.last_step, before);
    assert!(memory.blocked.is_some_and(|blocked| blocked.step == step && blocked.at.is_some()));
    // Another one of the round may have been made.
    let two = desired(vec![Write::Node(write.clone()), Write::Node(write)]);
    reconciler.write(&set, &datastore, two).await.unwrap_err();
    let memory = reconciler.memories.get(&key(&set));
    assert!(memory.last_step > before && memory.blocked.is_some());
    reconciler.write(&set, &datastore, desired(vec![])).await.unwrap();
    assert_eq!(reconciler.memories.get(&key(&set)).blocked, None);
}
