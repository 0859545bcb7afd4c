//! The assignment of addresses. Every cluster has its own network namespaces, so all may use the
//! same ones.

/// The bridge that connects the nodes, and the control plane behind it.
pub const GATEWAY: &str = "10.77.0.1";
pub const PODS: &str = "10.78.0.0/16";
/// The `ClusterIP` of the cluster's DNS.
pub const DNS: &str = "10.79.0.10";
/// The API server's port on [`GATEWAY`].
pub const API_PORT: u16 = 6443;
/// The port on [`GATEWAY`] of the sink, which discards everything it receives.
pub const SINK_PORT: u16 = 5001;

/// Nodes are numbered from 1; a node's address ends in 10 plus its number, and its pods' in its
/// number.
pub const MOST_NODES: usize = 200;

pub fn node_name(number: usize) -> String {
    format!("node-{number}")
}

/// Returns the number in a node's name, if it is one of the lab's.
pub fn node_number(name: &str) -> Option<usize> {
    let number = name.strip_prefix("node-")?.parse().ok()?;
    (1..=MOST_NODES).contains(&number).then_some(number)
}

/// Returns the address of a node's `eth0`.
pub fn node_address(number: usize) -> String {
    format!("10.77.0.{}", 10 + number)
}

/// Returns the network of a node's pods.
pub fn pod_cidr(number: usize) -> String {
    format!("10.78.{number}.0/24")
}
