//! The flag that says how series name nodes: one of every command that reads them.
use clap::Args;

use super::values::label_name;

/// How series name nodes.
#[derive(Args, Clone, Debug)]
pub struct SeriesArgs {
    /// Labels of the node exporter's series that may name the node, tried in this order before
    /// `instance`; comma-separated.
    #[arg(long = "node-label", env = "TRAFFIC_OPERATOR_NODE_LABEL", value_name = "LABELS")]
    #[arg(value_delimiter = ',', default_value = "node,nodename,kubernetes_node")]
    #[arg(value_parser = label_name)]
    pub node_labels: Vec<String>,
}
