//! Workloads that are too large for one operator.
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::{served, streams};
use crate::bench::eventually;

/// An author chooses every field of a StatefulSet, and a million replicas cost the author nothing.
#[test]
fn a_million_replicas_are_refused_and_cost_nothing() {
    served(async |stage, operator| {
        // Kubernetes' own controller creates an object for each replica before it creates the first
        // pod.
        let plane = stage.bench.plane();
        plane.kill("kube-controller-manager").unwrap();
        stage.stateful_set("many", 1_000_000, json!({})).await;
        stage.swarm("many", json!({"jobs": streams(4)})).await;
        let seen = async || {
            let status = stage.status("many").await;
            let ready = status["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")?;
            let reported = ready["reason"] == "InvalidSpec";
            reported.then(|| ready["message"].as_str().unwrap_or_default().to_owned())
        };
        let patience = std::time::Duration::from_secs(90);
        let reported = tokio::time::timeout(patience, async {
            loop {
                if let Some(text) = seen().await {
                    break text;
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        });
        let reported = reported.await;
        let memory = operator.metric("process_resident_memory_bytes", &[]).await;
        let file = stage.file("many").await;
        // Whatever the result: the controllers must not see it.
        let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
        stage.sets().patch("many", &PatchParams::default(), &none).await.unwrap();
        stage.sets().delete("many", &DeleteParams::background()).await.unwrap();
        let gone = async || stage.sets().get_opt("many").await.ok()?.is_none().then_some(());
        eventually("the StatefulSet to be gone", gone).await;
        plane.restart("kube-controller-manager").await.unwrap();
        let expected = "spec.workload.name: StatefulSet many has 1000000 replicas, and a Swarm has at most 10000 \
                        workers: scale it down, or divide the streams among several Swarms; workers keep what they \
                        have";
        assert_eq!(reported.expect("a condition"), expected);
        assert_eq!(file, None);
        assert!(memory < 200e6, "{memory} bytes");
        // Other Swarms are served.
        stage.stateful_set("few", 2, json!({})).await;
        stage.swarm("few", json!({"jobs": streams(4)})).await;
        stage.settled("few", 2, &streams(4)).await;
    });
}
