//! Writes to an API server that refuses some of them.
use std::{net::Ipv4Addr, sync::Mutex};

use http::Method;

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
