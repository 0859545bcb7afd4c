//! Flags about the cluster, and where in it the operator is.
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::{
    inspect::{cluster::Access, leader::Place},
    manifests,
};

/// Which cluster.
#[derive(Args, Clone, Debug)]
pub struct ClusterArgs {
    /// The kubeconfig [default: $KUBECONFIG, ~/.kube/config, or the pod's service account].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ClusterArgs {
    pub(super) fn access(&self) -> Access {
        Access { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }
}

/// Where the operator is.
#[derive(Args, Clone, Debug)]
pub struct OperatorArgs {
    /// The operator's namespace.
    #[arg(long, value_name = "NAMESPACE", default_value = manifests::NAMESPACE)]
    operator_namespace: String,

    /// Name of its Lease, whose holder is the pod that leads.
    #[arg(long, value_name = "NAME", default_value = manifests::NAME)]
    lease_name: String,

    /// Port of its status page, on the loopback of its pod.
    #[arg(long, value_name = "PORT", default_value_t = 8082)]
    operator_port: u16,

    /// Address of the leader's status page, for example of a port-forward to it: asked directly and
    /// not through the API server.
    #[arg(long, value_name = "URL")]
    operator_url: Option<String>,
}

impl OperatorArgs {
    pub(super) fn place(&self) -> Place {
        Place {
            namespace: self.operator_namespace.clone(),
            lease: self.lease_name.clone(),
            port: self.operator_port,
            url: self.operator_url.clone(),
        }
    }
}

/// How an answer is written, where it is prose.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TextOrJson {
    /// For a person.
    Text,
    /// For a program.
    Json,
}

/// How an answer is written, where it is a table.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TableOrJson {
    /// For a person.
    Table,
    /// For a program.
    Json,
}
