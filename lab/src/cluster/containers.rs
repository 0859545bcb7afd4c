//! Single containers, killed from inside their node.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::Api;

use super::Cluster;
use crate::node::CONTAINERD_SOCKET;

impl Cluster {
    /// Kills the first process of a pod's first container with SIGKILL, without a chance to clean
    /// up. The kubelet starts the container again, in the same pod.
    pub async fn kill_container(&self, namespace: &str, pod: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client()?, namespace);
        let found = pods.get(pod).await.with_context(|| format!("reading the pod {pod}"))?;
        let node = found.spec.and_then(|spec| spec.node_name);
        let node = node.with_context(|| format!("{pod} is on no node"))?;
        let status = found.status.unwrap_or_default();
        let first = status.container_statuses.iter().flatten().next();
        let id = first
            .and_then(running_id)
            .with_context(|| format!("no container of {pod} runs: {first:?}"))?;
        let address = ["--address", CONTAINERD_SOCKET, "--namespace", "k8s.io"];
        let arguments = [&address[..], &["tasks", "kill", "--signal", "SIGKILL", id]].concat();
        self.in_node(&node, "ctr", &arguments).map(drop)
    }
}

/// Returns a container's id in containerd, if it runs.
fn running_id(status: &ContainerStatus) -> Option<&str> {
    status.state.as_ref()?.running.as_ref()?;
    status.container_id.as_deref()?.strip_prefix("containerd://")
}
