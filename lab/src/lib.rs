//! The test ground of traffic-operator: real control planes, real nodes, a real Prometheus, without
//! Docker.
//!
//! Three levels, all usable from tests and from the `lab` program:
//!
//! - [`ControlPlane`]: etcd, kube-apiserver, kube-controller-manager and kube-scheduler on
//!   loopback. Starts in seconds, needs no root, many run side by side; tests read its audit log
//!   and break its parts.
//! - [`Cluster`]: the same control plane in a network namespace of its own, with nodes: each a set
//!   of namespaces with a veth link, a containerd, a kubelet and a kube-proxy; on them a Prometheus
//!   run by prometheus-operator under the names of kube-prometheus. Needs root.
//! - [`bgp::Site`]: a control plane and nodes that are nothing but a BIRD in a network namespace,
//!   with real BGP between them. Needs root.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! let plane = lab::ControlPlane::start(lab::ControlPlaneOptions::default()).await?;
//! let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(plane.client()?);
//! assert!(nodes.list(&Default::default()).await?.items.is_empty());
//! let writes = plane.audit()?.into_iter().filter(lab::AuditEvent::is_write).count();
//! # let _ = writes;
//! plane.stop().await
//! # }
//! ```
//!
//! What is where: [`versions`] pins, `tools` finds and builds programs, `process` starts and ends
//! them, `pki` and `credentials` make identities, `control_plane`, `cluster` and `bgp` put the
//! levels together, [`calico`] installs Calico's kinds, [`etcd`] is one as Calico has it, `image`
//! writes OCI archives, `impair` slows links down, `streams` collects the reports of workers,
//! [`dashboard`] reads panels, [`exposition`] metrics, [`fault`] is a proxy that answers wrongly or not at all, [`newcomer`] runs the commands of the documentation,
//! [`history`] is a Prometheus with a made-up history, [`fleet`] one with thousands of nodes.

mod audit;
pub mod bgp;
pub mod calico;
pub mod checks;
pub mod cli;
pub mod cluster;
mod control_plane;
mod credentials;
pub mod dashboard;
pub mod etcd;
pub mod exposition;
pub mod fault;
pub mod fit;
pub mod fleet;
pub mod history;
pub mod images;
mod impair;
mod kubeconfig;
pub mod newcomer;
mod node;
pub mod packages;
mod pki;
pub mod process;
mod relay;
mod sink;
mod skips;
pub mod streams;
pub mod tools;
pub mod versions;
pub mod wait;
pub mod workspace;

pub use audit::{AuditEvent, read as audit_file};
pub use cluster::{Cluster, Impairment, Options as ClusterOptions};
pub use control_plane::{ControlPlane, Options as ControlPlaneOptions, free_port};
pub use credentials::Access;
pub use skips::left_out;

/// Reports progress on standard error: standard output is for results.
pub fn progress(text: &str) {
    eprintln!("lab: {text}");
}
