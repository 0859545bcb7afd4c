//! The network: an outer namespace with a bridge, and one namespace with an `eth0` for each node.
//!
//! Nothing is configured in the namespace of the caller. A node's only "pod" is an address on its
//! loopback device.

use std::fs;

use anyhow::{Context, Result};

use crate::cluster::network::{batch, enter, named};

/// All pods.
pub const POOL: &str = "10.91.0.0/16";
/// The outer namespace's address, where Prometheus is.
pub(super) const GATEWAY: &str = "10.90.0.1";
const BRIDGE: &str = "bgp0";
/// A node's address ends in 10 plus its number.
pub(super) const MOST_NODES: u8 = 200;

/// Returns the name of a ground's outer network namespace.
pub(super) fn outer(id: &str) -> String {
    format!("lab-bgp-{id}")
}

/// Returns the name of a node's network namespace.
pub(super) fn namespace(id: &str, number: u8) -> String {
    format!("{}-{number:02}", outer(id))
}

/// Returns a node's address.
pub(super) fn address(number: u8) -> String {
    format!("10.90.0.{}", 10 + u16::from(number))
}

/// Returns the network of a node's pods.
#[must_use]
pub(super) fn pods(number: u8) -> String {
    format!("10.91.{number}.0/24")
}

/// Returns the address of a node's one pod.
pub(super) fn pod(number: u8) -> String {
    format!("10.91.{number}.1")
}

fn hardware(number: u8) -> String {
    format!("02:90:00:00:00:{number:02x}")
}

/// Makes the outer namespace and its bridge.
pub(super) fn create(id: &str) -> Result<()> {
    let outer = outer(id);
    batch(None, &format!("netns add {outer}\n"))?;
    let commands = format!(
        "link set lo up\nlink add {BRIDGE} type bridge mcast_snooping 0 forward_delay 0\n\
         addr add {GATEWAY}/16 dev {BRIDGE}\nlink set {BRIDGE} up\n"
    );
    batch(Some(&outer), &commands)
}

/// Adds nodes to the existing ones.
pub(super) fn add(id: &str, there: &[u8], new: &[u8]) -> Result<()> {
    let line = |text: fn(&str, u8) -> String| -> String {
        new.iter().map(|number| text(id, *number)).collect()
    };
    batch(None, &line(|id, number| format!("netns add {}\n", namespace(id, number))))?;
    let plug = |id: &str, number| {
        let (namespace, hardware) = (namespace(id, number), hardware(number));
        format!(
            "link add v{number} type veth peer name eth0 address {hardware} netns {namespace}\n\
             link set v{number} master {BRIDGE} up\n"
        )
    };
    batch(Some(&outer(id)), &line(plug))?;
    let all: Vec<u8> = there.iter().chain(new).copied().collect();
    for number in new {
        let namespace = namespace(id, *number);
        inside(&namespace, quiet)??;
        batch(Some(&namespace), &node(*number, &all))?;
    }
    for number in there {
        batch(Some(&namespace(id, *number)), &neighbors(*number, new))?;
    }
    Ok(())
}

/// No IPv6, and a packet may come from where the way back does not lead: a probe must not need the
/// way back.
fn quiet() -> Result<()> {
    for (setting, value) in [
        ("ipv6/conf/all/disable_ipv6", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv4/conf/eth0/rp_filter", "0"),
    ] {
        let path = format!("/proc/sys/net/{setting}");
        fs::write(&path, value).with_context(|| format!("writing {path}"))?;
    }
    Ok(())
}

fn node(number: u8, all: &[u8]) -> String {
    let links = format!(
        "link set lo up\naddr add {}/16 dev eth0\nlink set eth0 up\naddr add {}/32 dev lo\n",
        address(number),
        pod(number)
    );
    links + &neighbors(number, all)
}

/// The addresses of others never have to be resolved: the kernel's table of answers is one for all
/// namespaces, and small.
fn neighbors(number: u8, all: &[u8]) -> String {
    let others = all.iter().filter(|other| **other != number);
    let line = |other: &u8| {
        let (address, hardware) = (address(*other), hardware(*other));
        format!("neigh replace {address} lladdr {hardware} dev eth0 nud permanent\n")
    };
    others.map(line).collect()
}

/// Pulls a node's cable, or plugs it in again.
pub(super) fn set_link(id: &str, number: u8, up: bool) -> Result<()> {
    let state = if up { "up" } else { "down" };
    batch(Some(&outer(id)), &format!("link set v{number} {state}\n"))
}

/// Takes the routes away that an ended BIRD has left: Calico lets them stay (`persist`).
pub(super) fn flush(id: &str, number: u8) -> Result<()> {
    batch(Some(&namespace(id, number)), "route flush proto bird\n")
}

/// Removes a node.
pub(super) fn remove(id: &str, number: u8) -> Result<()> {
    batch(None, &format!("netns del {}\n", namespace(id, number)))
}

/// Returns the names of a ground's namespaces.
pub(super) fn existing(id: &str) -> Vec<String> {
    named(&outer(id))
}

/// Deletes a ground's namespaces and everything in them.
pub(super) fn delete(id: &str) -> Result<()> {
    let all = existing(id).into_iter();
    let commands = all.fold(String::new(), |commands, name| commands + "netns del " + &name + "\n");
    batch(None, &commands)
}

/// Does something in a network namespace; sockets that it makes stay there.
pub(super) fn inside<T: Send>(namespace: &str, act: impl FnOnce() -> T + Send) -> Result<T> {
    // Only the thread changes its namespace, and it ends with this.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| enter(namespace).map(|()| act()));
        thread.join().unwrap_or_else(|_| anyhow::bail!("a thread in {namespace} panicked"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_knows_all_others_and_has_one_pod() {
        let commands = node(2, &[0, 2, 17]);
        assert!(commands.contains("addr add 10.90.0.12/16 dev eth0"), "{commands}");
        assert!(commands.contains("addr add 10.91.2.1/32 dev lo"));
        assert!(commands.contains("neigh replace 10.90.0.27 lladdr 02:90:00:00:00:11 dev eth0"));
        assert!(!commands.contains("neigh replace 10.90.0.12"));
        assert_eq!(pods(MOST_NODES - 1), "10.91.199.0/24");
        assert_eq!(address(MOST_NODES - 1), "10.90.0.209");
    }

    #[test]
    fn names_do_not_run_into_those_of_clusters() {
        assert_eq!(namespace("ab", 3), "lab-bgp-ab-03");
        assert!(!outer("ab").starts_with(&crate::cluster::network::outer("ab")));
    }
}
