//! The metrics of the operator's replica that leads.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::exposition;
use crate::cluster::operator::{NAME, NAMESPACE};

/// Returns the metrics of the replica that leads, through the API server.
pub(super) async fn metrics(client: &Client) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let of_ours = ListParams::default().labels(&format!("app.kubernetes.io/name={NAME}"));
    for pod in pods.list(&of_ours).await? {
        let path =
            format!("/api/v1/namespaces/{NAMESPACE}/pods/{}:8080/proxy/metrics", pod.name_any());
        let request = http::Request::get(path).body(Vec::new()).context("building a request")?;
        let Ok(text) = client.request_text(request).await else { continue };
        if exposition::sum(&text, "traffic_operator_leader") > 0.0 {
            return Ok(text);
        }
    }
    anyhow::bail!("no replica of the operator leads")
}
