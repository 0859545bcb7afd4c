//! A pod of a `NetworkProber` with the identity of its agent: the token of its own pod.
use anyhow::Context;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::{
    ground::wait,
    serving::{NAME, NAMESPACE},
};

/// A pod with the token of its agent.
#[derive(Clone)]
pub struct Member {
    /// The pod's name.
    pub name: String,
    pub token: String,
}

impl Member {
    /// Creates a token for the pod, as the kubelet projects it.
    pub async fn of(client: &Client, pod: &Pod) -> anyhow::Result<Self> {
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": ["traffic-operator"], "expirationSeconds": 3600, "boundObjectRef": {
                "apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.uid()}},
        });
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token");
        let http = http::Request::post(path).header("Content-Type", "application/json");
        let answer: Value = client.request(http.body(serde_json::to_vec(&request)?)?).await?;
        let token = answer["status"]["token"].as_str().context("no token")?;
        Ok(Self { name: pod.name_any(), token: token.to_owned() })
    }
}

/// Returns the authority that agents trust, as PEM.
pub async fn authority(client: &Client) -> anyhow::Result<String> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    wait("ca.crt", async || maps.get_opt(NAME).await.ok()??.data?.remove("ca.crt")).await
}
