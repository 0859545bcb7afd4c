//! One node from the inside: what its first process does.

mod files;
mod init;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use init::run;

/// Everything a node's first process needs to know; handed to it as a JSON file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct NodeConfig {
    /// The node's name, which is its host name too.
    pub name: String,
    /// The address of `eth0`.
    pub address: String,
    pub pod_cidr: String,
    /// The network of all pods.
    pub cluster_cidr: String,
    /// The `ClusterIP` of the DNS.
    pub dns: String,
    /// The API server's `address:port`.
    pub api: String,
    /// The directory that becomes the node's `/var` (in `var/`).
    pub dir: PathBuf,
    /// Directory of the logs of its components.
    pub logs: PathBuf,
    pub authority: PathBuf,
    /// The kubelet's certificate.
    pub certificate: PathBuf,
    /// The kubelet's private key.
    pub key: PathBuf,
    pub kubelet_kubeconfig: PathBuf,
    /// kube-proxy's kubeconfig.
    pub proxy_kubeconfig: PathBuf,
    pub cgroup_root: String,
    /// The pod sandbox's image.
    pub sandbox_image: String,
    /// Image archives to import.
    pub images: Vec<PathBuf>,
    /// The programs `containerd`, `ctr`, `kubelet`, `kube-proxy`.
    pub programs: Programs,
}

/// The location of a node's programs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Programs {
    pub containerd: PathBuf,
    pub ctr: PathBuf,
    pub kubelet: PathBuf,
    pub kube_proxy: PathBuf,
}

/// containerd's socket inside the node.
pub(crate) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

impl NodeConfig {
    /// The file that says that all images are imported.
    pub fn imported(&self) -> PathBuf {
        self.dir.join("imported")
    }
}
