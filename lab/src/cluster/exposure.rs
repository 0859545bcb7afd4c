//! Access to the cluster from the caller's network namespace, and queries to its Prometheus.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use serde::Deserialize;

use super::addresses::GATEWAY;
use super::{Cluster, network};
use crate::control_plane::free_port;
use crate::process::{CommandLine, Process};
use crate::streams::Sink;
use crate::wait::listening;

/// One element of an instant vector: its labels (with `__name__`) and its value.
pub type Sample = (BTreeMap<String, String>, f64);

impl Cluster {
    /// Makes a Service reachable on loopback and returns its URL (`http://127.0.0.1:…`). A repeated
    /// call returns the same URL.
    pub async fn expose(&self, namespace: &str, service: &str, port: u16) -> Result<String> {
        let key = format!("{namespace}/{service}:{port}");
        if let Some(url) = self.state().exposed.get(&key) {
            return Ok(url.clone());
        }
        let services: Api<Service> = Api::namespaced(self.client()?, namespace);
        let found = services
            .get(service)
            .await
            .with_context(|| format!("looking for the Service {namespace}/{service}"))?;
        let address = found.spec.and_then(|spec| spec.cluster_ip).unwrap_or_default();
        ensure!(
            !address.is_empty() && address != "None",
            "the Service {namespace}/{service} has no address of its own"
        );
        let listen = format!("127.0.0.1:{}", free_port()?);
        self.relay(
            &format!("relay-{namespace}-{service}-{port}"),
            &listen,
            &format!("{address}:{port}"),
        )
        .await?;
        let url = format!("http://{listen}");
        let mut state = self.state();
        state.exposed.insert(key, url.clone());
        state.save()?;
        Ok(url)
    }

    /// Makes a port of the network between the nodes reachable on loopback and returns its URL.
    pub async fn expose_beside(&self, port: u16) -> Result<String> {
        let listen = format!("127.0.0.1:{}", free_port()?);
        self.relay(&format!("relay-{port}"), &listen, &format!("{GATEWAY}:{port}")).await?;
        Ok(format!("http://{listen}"))
    }

    /// Starts a relay from an address on loopback to one inside, and waits until it listens.
    pub(super) async fn relay(&self, name: &str, listen: &str, target: &str) -> Result<()> {
        let network = network::outer(&self.id());
        let arguments = ["relay", "--listen", listen, "--network", &network, "--target", target];
        self.run(name, CommandLine::new(self.dir.join("lab"), arguments))?;
        let runs = || self.processes().get(name).map_or(Ok(()), Process::check);
        listening(name, Duration::from_secs(10), listen, runs).await
    }

    /// Listens for workers' reports inside the cluster, behind the bridge that connects the nodes.
    /// Pods reach it over the links of their nodes, and not when those are cut.
    #[allow(clippy::unused_async, reason = "callers await it")]
    pub async fn stream_sink(&self) -> Result<Sink> {
        let network = network::outer(&self.id());
        let listener = network::inside(&network, || TcpListener::bind((GATEWAY, 0)))?;
        Sink::serve(listener.with_context(|| format!("listening on {GATEWAY}"))?)
    }

    /// Returns the URL of the cluster's Prometheus from outside the cluster.
    pub async fn prometheus_url(&self) -> Result<String> {
        self.expose("monitoring", "prometheus-k8s", 9090).await
    }

    /// Evaluates a PromQL expression now and returns the vector's elements.
    pub async fn query(&self, expression: &str) -> Result<Vec<Sample>> {
        query(&self.prometheus_url().await?, expression).await
    }
}

/// Evaluates a PromQL expression now, at a Prometheus, and returns the vector's elements.
pub(crate) async fn query(prometheus: &str, expression: &str) -> Result<Vec<Sample>> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        error: String,
        data: Option<Data>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Data {
        result_type: String,
        result: serde_json::Value,
    }
    #[derive(Deserialize)]
    struct Element {
        metric: BTreeMap<String, String>,
        value: (f64, String),
    }
    crate::credentials::install_crypto();
    let url = format!("{prometheus}/api/v1/query");
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?;
    let answer: Answer =
        client.post(url).form(&[("query", expression)]).send().await?.json().await?;
    let Some(data) = answer.data else {
        bail!("Prometheus refuses {expression:?}: {}", answer.error)
    };
    ensure!(
        data.result_type == "vector",
        "{expression:?} gives a {}, not a vector",
        data.result_type
    );
    let elements: Vec<Element> = serde_json::from_value(data.result)?;
    elements.into_iter().map(|element| Ok((element.metric, element.value.1.parse()?))).collect()
}
