//! The flags that select series and map them to nodes, shared by every command that reads series.
use clap::Args;

use super::values::label_name;
use crate::prometheus::{EndpointsConfig, Exporters, exporters::NODE_EXPORTER, promql::Matchers};

/// The mapping of series to nodes.
#[derive(Args, Clone, Debug)]
pub struct SeriesArgs {
    /// Labels of the series about links that may contain the node's name, tried in this order
    /// before `instance`; comma-separated.
    #[arg(long = "node-label", env = "TRAFFIC_OPERATOR_NODE_LABEL", value_name = "LABELS")]
    #[arg(
        value_delimiter = ',',
        default_value = "node,nodename,kubernetes_node,k8s_node_name,host_name"
    )]
    #[arg(value_parser = label_name)]
    pub node_labels: Vec<String>,

    /// Label matchers of the node exporter series that the built-in measurement accepts; empty
    /// accepts those of every job.
    #[arg(long, env = "TRAFFIC_OPERATOR_NODE_EXPORTER_SELECTOR", value_name = "MATCHERS")]
    #[arg(default_value = NODE_EXPORTER)]
    pub node_exporter_selector: Matchers,
}

impl SeriesArgs {
    /// The exporters that are accepted, at the endpoints of a process that has some.
    #[must_use]
    pub fn exporters(&self, endpoints: Option<&EndpointsConfig>) -> Exporters {
        Exporters {
            links: endpoints.map(EndpointsConfig::links).unwrap_or_default(),
            node_labels: self.node_labels.clone(),
            node_exporter: self.node_exporter_selector.clone(),
            bird_exporter: Matchers::default(),
        }
    }
}
