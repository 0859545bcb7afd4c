//! Kubelets that are older than the API server.
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::{agent, selector};
use crate::bench::{Bench, eventually, run};

impl Bench {
    async fn kubelet(&self, node: &str, version: &str) {
        let patch = Patch::Merge(json!({"status": {"nodeInfo": {"kubeletVersion": version}}}));
        let params = PatchParams::default();
        self.nodes().patch_status(node, &params, &patch).await.expect("status of a node");
    }

    /// Waits until new pods have the agent as a native sidecar, or as an ordinary container.
    async fn until_native(&self, native: bool) {
        let asked = async || {
            let pod = self.try_pod("n09-kubelets", "asked", &json!({}), true).await.ok()?;
            let policy = agent(&pod)?.restart_policy.as_deref() == Some("Always");
            (policy == native).then_some(())
        };
        eventually(&format!("agents that are native sidecars: {native}"), asked).await;
    }
}

/// Such a kubelet would wait for the agent to end before it starts the application.
#[test]
fn a_kubelet_before_native_sidecars_gets_an_ordinary_container() {
    run(async |bench| {
        bench.namespace("n09-kubelets", json!({})).await;
        for (node, version) in [("node-1", "v1.34.1"), ("node-2", "v1.28.15-gke.2000")] {
            bench.node(node).await;
            bench.kubelet(node, version).await;
        }
        let _operator = bench.ready_operator().await;
        bench.try_prober("n09-kubelets", "np", selector()).await.expect("NetworkProber");
        bench.until_native(false).await;
        // The last one is upgraded; then an old one appears, and is deleted.
        bench.kubelet("node-2", "v1.29.0").await;
        bench.until_native(true).await;
        bench.kubelet("node-1", "v1.27.3").await;
        bench.until_native(false).await;
        bench.nodes().delete("node-1", &DeleteParams::default()).await.expect("delete");
        bench.until_native(true).await;
    });
}
