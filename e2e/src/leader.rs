//! The metrics of the operator's leader.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use lab::cluster::forward;
use lab::cluster::operator::{NAME, NAMESPACE, PAGE};
use lab::exposition;

/// Returns the metrics of the leader: from its loopback, where they need no token.
pub(super) async fn metrics(client: &Client) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let of_ours = ListParams::default().labels(&format!("app.kubernetes.io/name={NAME}"));
    for pod in pods.list(&of_ours).await? {
        let place = (NAMESPACE, &*pod.name_any(), PAGE);
        let Ok(text) = forward::get(client, place, "/metrics").await else { continue };
        if exposition::sum(&text, "traffic_operator_leader") > 0.0 {
            return Ok(text);
        }
    }
    anyhow::bail!("no replica of the operator leads")
}
