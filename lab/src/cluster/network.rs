//! The network: an outer namespace with a bridge, and one namespace with an `eth0` for each node.
//!
//! Nothing is configured in the namespace of the caller. Deleting the namespaces deletes everything
//! in them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::addresses::{GATEWAY, node_address, node_name, pod_cidr};
use crate::control_plane::SERVICE_CIDR;
use crate::process::output;

/// Directory in which `ip netns` keeps the names.
const NAMES: &str = "/run/netns";
/// The bridge's name in the outer namespace.
const BRIDGE: &str = "lab0";

/// Returns the name of a cluster's outer network namespace.
pub(crate) fn outer(id: &str) -> String {
    format!("lab-{id}")
}

/// Returns the name of a node's network namespace.
pub(crate) fn node(id: &str, number: usize) -> String {
    format!("lab-{id}-{}", node_name(number))
}

/// Makes the outer namespace, the bridge and the namespaces of all nodes.
pub(super) fn create(id: &str, nodes: usize) -> Result<()> {
    let outer = outer(id);
    ip(&["netns", "add", &outer])?;
    batch(
        Some(&outer),
        &format!(
            "link set lo up\nlink add {BRIDGE} type bridge\naddr add {GATEWAY}/24 dev {BRIDGE}\nlink set {BRIDGE} up\n"
        ),
    )?;
    for number in 1..=nodes {
        let (namespace, name) = (node(id, number), node_name(number));
        ip(&["netns", "add", &namespace])?;
        batch(
            Some(&outer),
            &format!(
                "link add {name} type veth peer name eth0 netns {namespace}\nlink set {name} master {BRIDGE} up\n"
            ),
        )?;
        batch(Some(&namespace), &node_commands(number, nodes))?;
    }
    batch(Some(&outer), &outer_routes(nodes))
}

/// A node's own links and routes: its address, the way out, and the pods of the others.
fn node_commands(number: usize, nodes: usize) -> String {
    let address = node_address(number);
    let own = format!(
        "link set lo up\naddr add {address}/24 dev eth0\nlink set eth0 up\nroute add default via {GATEWAY}\n"
    );
    let others = (1..=nodes).filter(|other| *other != number);
    others.fold(own, |commands, other| commands + &pod_route(other, "eth0"))
}

/// The routes of the outer namespace: pods by their nodes, Services by the first node, whose
/// kube-proxy knows them.
fn outer_routes(nodes: usize) -> String {
    let pods =
        (1..=nodes).fold(String::new(), |commands, number| commands + &pod_route(number, BRIDGE));
    pods + &format!("route add {SERVICE_CIDR} via {} dev {BRIDGE}\n", node_address(1))
}

fn pod_route(number: usize, device: &str) -> String {
    format!("route add {} via {} dev {device}\n", pod_cidr(number), node_address(number))
}

/// Pulls a node's cable, or plugs it in again.
pub(super) fn set_link(id: &str, number: usize, up: bool) -> Result<()> {
    let state = if up { "up" } else { "down" };
    ip(&["-n", &outer(id), "link", "set", &node_name(number), state])
}

/// Returns the names of a cluster's namespaces.
pub(super) fn existing(id: &str) -> Vec<String> {
    named(&outer(id))
}

/// Returns the names of an outer namespace and of those that belong to it, as far as they are
/// there.
pub(crate) fn named(outer: &str) -> Vec<String> {
    let of_node = format!("{outer}-");
    let Ok(entries) = fs::read_dir(NAMES) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name == outer || name.starts_with(&of_node)).collect()
}

/// Deletes a cluster's namespaces and everything in them.
pub(super) fn delete(id: &str) -> Result<()> {
    existing(id).iter().try_for_each(|name| ip(&["netns", "del", name]))
}

/// Opens a network namespace, to be entered by a thread.
pub(crate) fn open(namespace: &str) -> Result<fs::File> {
    let path = Path::new(NAMES).join(namespace);
    fs::File::open(&path)
        .with_context(|| format!("opening the network namespace {}", path.display()))
}

/// Moves the calling thread into a network namespace, for good.
pub(crate) fn enter(namespace: &str) -> Result<()> {
    nix::sched::setns(open(namespace)?, nix::sched::CloneFlags::CLONE_NEWNET)
        .with_context(|| format!("entering the network namespace {namespace}"))
}

/// Does something in a network namespace; sockets that it makes stay there.
pub(crate) fn inside<T: Send>(namespace: &str, act: impl FnOnce() -> T + Send) -> Result<T> {
    // Only the thread changes its namespace, and it ends with this.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| enter(namespace).map(|()| act()));
        thread.join().unwrap_or_else(|_| anyhow::bail!("a thread in {namespace} panicked"))
    })
}

fn ip(arguments: &[&str]) -> Result<()> {
    output("ip", arguments).map(drop)
}

/// Runs several `ip` commands in one process, in a network namespace or where the caller is.
pub(crate) fn batch(namespace: Option<&str>, commands: &str) -> Result<()> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let inside = namespace.map_or_else(Vec::new, |namespace| vec!["-n", namespace]);
    let mut child = Command::new("ip")
        .args(inside)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("running ip: apt-get install iproute2")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(commands.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    anyhow::ensure!(
        output.status.success(),
        "setting up the network namespace {} failed: {}\n{commands}",
        namespace.unwrap_or("itself"),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
