//! Flags about Prometheus, for the commands that ask it.
use std::time::Duration;

use clap::Args;

use super::values::{duration, label_name};
use crate::{
    metrics::Metrics,
    prometheus::{Client, Config},
};

/// Which Prometheus, and how its series name nodes.
#[derive(Args, Clone, Debug)]
pub struct PrometheusArgs {
    /// Base URL of Prometheus (or of anything with its HTTP API).
    #[arg(long, env = "TRAFFIC_OPERATOR_PROMETHEUS_URL", value_name = "URL")]
    #[arg(default_value = "http://prometheus-k8s.monitoring.svc:9090")]
    prometheus_url: String,

    /// The longest that one request to Prometheus may take.
    #[arg(long, env = "TRAFFIC_OPERATOR_PROMETHEUS_TIMEOUT", value_name = "DURATION")]
    #[arg(default_value = "10s", value_parser = duration)]
    prometheus_timeout: Duration,

    /// Labels of the node exporter's series that may name the node, tried in this order before
    /// `instance`; comma-separated.
    #[arg(long = "node-label", env = "TRAFFIC_OPERATOR_NODE_LABEL", value_name = "LABELS")]
    #[arg(value_delimiter = ',', default_value = "node,nodename,kubernetes_node")]
    #[arg(value_parser = label_name)]
    pub(super) node_labels: Vec<String>,
}

impl PrometheusArgs {
    /// The endpoints by name.
    pub(super) fn endpoints(&self, metrics: &Metrics) -> anyhow::Result<Vec<(String, Client)>> {
        let config = Config { url: self.prometheus_url.clone(), timeout: self.prometheus_timeout };
        Ok(vec![("default".into(), Client::new(&config, metrics.clone())?)])
    }
}
