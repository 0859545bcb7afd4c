//! An operator whose webhook the API server calls, and the other objects that a `NetworkProber`
//! needs.
use std::{net::SocketAddr, path::Path};

use anyhow::Context;
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration,
    core::v1::{Pod, ServiceAccount},
};
use kube::{Api, Client, api::PostParams};
use lab::{ControlPlane, exposition};
use serde_json::{Value, json};
use traffic_operator::api::NetworkProber;

use crate::ground::{Operator, free_address, wait};

/// The object that the operator writes its webhooks into, as installed.
const WEBHOOKS: &str = include_str!("../../deploy/base/webhook.yaml");

pub const NAMESPACE: &str = "default";

/// The name of the `NetworkProber`.
pub const NAME: &str = "mesh";

/// A running operator.
pub struct Serving {
    /// Its process.
    pub operator: Operator,
    /// The address of its pages.
    pub admin: String,
    /// The address that agents use.
    pub pinglists: SocketAddr,
}

impl Serving {
    /// Starts it and waits until it is ready. The webhook's address is the one of an earlier
    /// operator.
    pub async fn start(
        (binary, plane): (&Path, &ControlPlane),
        lease: &str,
        webhook: SocketAddr,
    ) -> anyhow::Result<Self> {
        let (admin, pinglists) = (free_address()?.to_string(), free_address()?);
        let (webhook, lists) = (webhook.to_string(), pinglists.to_string());
        let url = format!("https://{webhook}");
        let mut args = vec!["--admin-address", &admin, "--webhook-address", &webhook];
        args.extend(["--webhook-url", &url, "--pinglist-address", &lists]);
        args.extend(["--agent-image", "registry.example.com/agent:1"]);
        // No query goes to Prometheus here.
        args.extend(["--prometheus-url", "http://127.0.0.1:9"]);
        let operator = Operator::start(binary, plane.kubeconfig(), lease, &args)?;
        let serving = Self { operator, admin, pinglists };
        wait("the operator to be ready", async || serving.page("/readyz").await.ok()).await?;
        Ok(serving)
    }

    async fn page(&self, path: &str) -> anyhow::Result<String> {
        let http = reqwest::Client::builder().tls_certs_only([]).build()?;
        let answer = http.get(format!("http://{}{path}", self.admin)).send().await?;
        Ok(answer.error_for_status()?.text().await?)
    }

    /// Returns the sum of the series of a metric.
    pub async fn metric(&self, name: &str) -> anyhow::Result<f64> {
        Ok(exposition::sum(&self.page("/metrics").await?, name))
    }
}

/// Creates the `NetworkProber` and the objects that pods need, and waits until pods get agents.
pub async fn install(client: &Client) -> anyhow::Result<()> {
    let post = PostParams::default();
    // No controller manager creates one here.
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}}))?;
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE);
    accounts.create(&post, &account).await?;
    let webhooks = Api::<MutatingWebhookConfiguration>::all(client.clone());
    webhooks.create(&post, &serde_yaml::from_str(WEBHOOKS)?).await?;
    let probers = Api::<NetworkProber>::namespaced(client.clone(), NAMESPACE);
    let prober = json!({
        "apiVersion": "probes.bigmikes.io/v1alpha1", "kind": "NetworkProber",
        "metadata": {"name": NAME}, "spec": {"podSelector": {"matchLabels": {"app": "app"}}},
    });
    probers.create(&post, &serde_json::from_value(prober)?).await?;
    wait("pods to get agents", async || {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let pod = serde_json::from_value(pod("asked", None)).ok()?;
        let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
        has_agent(&pods.create(&dry, &pod).await.ok()?).then_some(())
    })
    .await
    .context("the webhook is not called")
}

pub fn pod(name: &str, node: Option<&str>) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "app"}},
        "spec": {"nodeName": node, "containers": [{"name": "app", "image": "app"}]},
    })
}

pub fn has_agent(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let native = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
    native.chain(spec.into_iter().flat_map(|s| &s.containers)).any(|c| c.name == "net-prober")
}
