//! DNS and the monitoring stack: what a cluster with kube-prometheus has, as far as the product
//! meets it.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;

use super::addresses::{DNS, node_name};
use super::{Cluster, Monitoring, definitions};
use crate::control_plane;
use crate::images;
use crate::process::{self, CommandLine};
use crate::wait::samples;
use crate::{tools, versions};

/// From the start of the operator to a Prometheus that answers takes 15 to 25 s on two cores.
const PROMETHEUS_LIMIT: Duration = Duration::from_mins(5);

/// A busy machine misses scrapes: one of each exporter is enough.
const UP: &str = r#"max_over_time(up{job="node-exporter"}[1m]) == 1"#;

const DNS_MANIFEST: &str = include_str!("../../manifests/coredns.yaml");
const MONITORING_MANIFESTS: [&str; 3] = [
    include_str!("../../manifests/prometheus.yaml"),
    include_str!("../../manifests/prometheus-access.yaml"),
    include_str!("../../manifests/node-exporter.yaml"),
];
const PLAIN_MANIFEST: &str = include_str!("../../manifests/prometheus-plain.yaml");
const OPERATED_MANIFEST: &str = include_str!("../../manifests/prometheus-operated.yaml");

/// Puts the pinned images and the lab's addresses into a manifest.
fn fill(manifest: &str) -> String {
    let values = [
        ("{{coredns}}", images::coredns_reference()),
        ("{{dns}}", DNS.to_owned()),
        ("{{node-exporter}}", images::node_exporter_reference()),
        ("{{prometheus}}", images::prometheus_reference()),
        ("{{prometheus-version}}", versions::PROMETHEUS.to_owned()),
        // The node that has the images of the cluster's own services.
        ("{{services-node}}", node_name(1)),
    ];
    values.iter().fold(manifest.to_owned(), |text, (name, value)| text.replace(name, value))
}

impl Cluster {
    /// Waits for the API server.
    pub(super) async fn api_ready(&self, client: &Client) -> Result<()> {
        let (names, processes): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *self.processes()).into_iter().unzip();
        let result = control_plane::ready(client, &processes).await;
        self.processes().extend(names.into_iter().zip(processes));
        result
    }

    pub(super) async fn install_dns(&self) -> Result<()> {
        self.apply(&fill(DNS_MANIFEST)).await.context("installing CoreDNS")
    }

    /// Installs Prometheus and, if it is to configure it, prometheus-operator (as a process beside
    /// the control plane).
    pub(super) async fn install_monitoring(&self, monitoring: Monitoring) -> Result<()> {
        let mut manifests = MONITORING_MANIFESTS.to_vec();
        if monitoring == Monitoring::Operator {
            definitions::install(&self.client()?).await?;
            self.start_prometheus_operator()?;
            manifests.push(OPERATED_MANIFEST);
        } else {
            manifests.push(PLAIN_MANIFEST);
        }
        let all: Vec<String> = manifests.into_iter().map(fill).collect();
        self.apply(&all.join("\n---\n")).await.context("installing Prometheus and node-exporter")
    }

    fn start_prometheus_operator(&self) -> Result<()> {
        let kubeconfig = self.kubeconfig_inside("prometheus-operator")?;
        let arguments = [
            "--web.listen-address=127.0.0.1:8080".to_owned(),
            format!("--prometheus-config-reloader={}", images::config_reloader_reference()),
            // "0" = none: the machine is small and shared.
            "--config-reloader-cpu-request=0".to_owned(),
            "--config-reloader-cpu-limit=0".to_owned(),
            "--config-reloader-memory-request=0".to_owned(),
            "--config-reloader-memory-limit=0".to_owned(),
        ];
        let command = CommandLine::new(tools::ensure("prometheus-operator")?, arguments)
            .env("KUBECONFIG", &kubeconfig);
        self.start_beside("prometheus-operator", None, command)
    }

    /// Waits until Prometheus answers and has scraped every node.
    pub(super) async fn monitoring_ready(&self) -> Result<()> {
        let nodes = self.node_names().len();
        // Relays to a Service can be made before anything is behind it.
        self.prometheus_url().await?;
        let up = async || self.query(UP).await;
        let seen = samples("samples of all nodes", PROMETHEUS_LIMIT, nodes, up).await;
        seen.map_err(|error| {
            let pods = self
                .kubectl(&["get", "pods", "--all-namespaces", "-o", "wide"])
                .unwrap_or_default();
            let events = self.kubectl(&["get", "events", "-n", "monitoring"]).unwrap_or_default();
            let log = process::tail(&self.dir.join("log/prometheus-operator.log"));
            anyhow::anyhow!("{error:#}\n{pods}\n{events}{log}")
        })
    }
}
