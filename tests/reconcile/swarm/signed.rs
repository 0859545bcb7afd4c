//! Acknowledgements: their signatures, and the treatment of forged ones.
use k8s_openapi::jiff::Timestamp;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use traffic_operator::acknowledgement::KEY_FILE;

use super::{Stage, fake_kubelet::Delivery, served, streams};
use crate::bench::eventually;

/// Returns the fields that identify our worker: its program, and its UID in the environment, as the
/// API server stores them.
pub fn ours() -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{
        "name": "worker", "image": "worker", "args": ["agent", "worker"],
        "env": [{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
        "volumeMounts": [{"name": "config", "mountPath": "/app/config"}],
    }]}}}})
}

fn hot(jobs: &[String]) -> Value {
    json!({"jobs": jobs, "refresh": {"strategy": "HotReload", "timeout": "2s"}})
}

impl Stage {
    async fn key(&self, name: &str) -> (String, Option<String>) {
        let map = self.maps().get(&format!("{name}-config")).await.expect("ConfigMap");
        let key = map.data.as_ref().expect("data")[KEY_FILE].clone();
        (key, map.resource_version())
    }
}

/// A neighbor takes the address of a worker, and reports that no stream runs there any more.
#[test]
fn an_acknowledgement_that_a_neighbor_forges_frees_no_stream() {
    served(async |stage, operator| {
        stage.puppet.control(|c| c.delivery = Delivery::Eager);
        stage.stateful_set("sign", 2, ours()).await;
        stage.swarm("sign", hot(&streams(6))).await;
        stage.settled("sign", 2, &streams(6)).await;
        stage.until("sign", &[("/summary/unsigned", json!(0))]).await;
        stage.puppet.control(|c| {
            c.held.insert("sign-0".into());
            c.forged.insert("sign-0".into());
        });
        stage.scale("sign", 3).await;
        let text = stage.condition("sign", "Converged", "False", "RefreshTimeout").await;
        assert!(text.contains("sign-0") && text.contains("the answer is not signed"), "{text}");
        stage.puppet.assert_no_overlap();
        assert_eq!(stage.puppet.streams("sign-0").len(), 3);
        // The real worker acknowledges, and everything continues.
        stage.puppet.control(|c| {
            c.held.clear();
            c.forged.clear();
        });
        stage.settled("sign", 3, &streams(6)).await;
        // The key outlives the operator, and is not written again.
        let key = stage.key("sign").await;
        assert_eq!(key.0.len(), 64);
        assert_eq!(operator.terminate().await, Some(0));
        let since = Timestamp::now();
        let operator = stage.ready_operator().await;
        operator.passes("swarm", 3).await;
        assert_eq!(stage.key("sign").await, key);
        let writes = stage.bench.writes_since(since).await;
        let writes: Vec<_> = writes.iter().filter(|w| w.resource == "configmaps").collect();
        assert!(writes.is_empty(), "{writes:?}");
    });
}

#[test]
fn workers_of_others_acknowledge_as_ever_and_are_counted() {
    served(async |stage, _operator| {
        stage.puppet.control(|c| c.delivery = Delivery::Eager);
        stage.stateful_set("plain", 2, json!({})).await;
        stage.swarm("plain", hot(&streams(4))).await;
        stage.settled("plain", 2, &streams(4)).await;
        stage.until("plain", &[("/summary/unsigned", json!(2))]).await;
        // A key that another client removes is restored, and no list changes because of it.
        let before = (stage.key("plain").await.0, stage.file("plain").await);
        let patch = Patch::Merge(json!({"data": {KEY_FILE: null}}));
        stage.maps().patch("plain-config", &PatchParams::default(), &patch).await.unwrap();
        let back = async || {
            let map = stage.maps().get("plain-config").await.ok()?;
            map.data?.get(KEY_FILE).cloned()
        };
        assert_eq!(eventually("the key", back).await, before.0);
        assert_eq!(stage.file("plain").await, before.1);
        stage.puppet.assert_no_overlap();
    });
}
