//! Flags that select the cluster, and locate the operator in it.
use std::{env, path::PathBuf};

use clap::Args;

use crate::{
    inspect::{cluster::Access, leader::Place},
    manifests,
};

/// The variables by which the operator's Deployments name a pod and its namespace to the processes
/// in it, such as a command that `kubectl exec` starts there.
const POD_NAME: &str = "POD_NAME";
pub(super) const POD_NAMESPACE: &str = "POD_NAMESPACE";

/// The cluster.
#[derive(Args, Clone, Debug)]
pub struct ClusterArgs {
    /// Path of the kubeconfig [default: $KUBECONFIG, ~/.kube/config, or the pod's service account].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current context].
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ClusterArgs {
    pub(super) fn access(&self) -> Access {
        Access { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }
}

/// The location of the operator's Lease.
#[derive(Args, Clone, Debug)]
pub struct LeaseArgs {
    /// Namespace of the operator.
    #[arg(long, env = POD_NAMESPACE, value_name = "NAMESPACE")]
    #[arg(default_value = manifests::NAMESPACE)]
    operator_namespace: String,

    /// Name of the operator's Lease, whose holder is the leading pod.
    #[arg(long, value_name = "NAME", default_value = manifests::NAME)]
    lease_name: String,
}

impl LeaseArgs {
    /// Namespace and name.
    pub(super) fn key(&self) -> (&str, &str) {
        (&self.operator_namespace, &self.lease_name)
    }
}

/// The location of the operator.
#[derive(Args, Clone, Debug)]
pub struct OperatorArgs {
    #[command(flatten)]
    lease: LeaseArgs,

    /// Port of the operator's status page, on the loopback address of its pod.
    #[arg(long, value_name = "PORT", default_value_t = 8082)]
    operator_port: u16,

    /// Address of the leader's status page, for example of a port-forward to it. The command
    /// connects to it directly instead of through the API server.
    #[arg(long, value_name = "URL")]
    operator_url: Option<String>,
}

impl OperatorArgs {
    pub(super) fn place(&self) -> Place {
        let namespace = self.lease.operator_namespace.clone();
        let at_home = env::var(POD_NAMESPACE).is_ok_and(|home| home == namespace);
        Place {
            pod: env::var(POD_NAME).ok().filter(|pod| at_home && !pod.is_empty()),
            namespace,
            lease: self.lease.lease_name.clone(),
            port: self.operator_port,
            url: self.operator_url.clone(),
        }
    }
}
