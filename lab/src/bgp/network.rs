//! The network: an outer namespace with a bridge, and one namespace with an `eth0` for each node.
//!
//! Nothing is configured in the namespace of the caller. A node's only "pod" is an address on its
//! loopback device.

use std::fs;

use anyhow::{Context, Result};

use super::family::Family;
pub(super) use crate::cluster::network::inside;
use crate::cluster::network::{batch, named};

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

pub(super) fn pool(family: Family) -> &'static str {
    family.pick("10.91.0.0/16", "fd91::/48")
}

/// Returns a node's address.
pub(super) fn address(family: Family, number: u8) -> String {
    let last = 10 + u16::from(number);
    family.pick(format!("10.90.0.{last}"), format!("fd90::{last:x}"))
}

/// Returns the length of the prefix of the network that all nodes share.
pub(super) fn prefix(family: Family) -> u8 {
    family.pick(16, 64)
}

/// Returns the network of a node's pods.
pub(super) fn pods(family: Family, number: u8) -> String {
    family.pick(format!("10.91.{number}.0/24"), format!("fd91:0:0:{number:x}::/64"))
}

/// Returns the address of a node's one pod.
pub(super) fn pod(family: Family, number: u8) -> String {
    family.pick(format!("10.91.{number}.1"), format!("fd91:0:0:{number:x}::1"))
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

/// Adds nodes that speak some address families to the existing ones.
pub(super) fn add(id: &str, there: &[u8], new: &[u8], families: &[Family]) -> Result<()> {
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
        inside(&namespace, || quiet(families))??;
        batch(Some(&namespace), &node(*number, &all, families))?;
    }
    for number in there {
        let namespace = namespace(id, *number);
        let speaks = inside(&namespace, speaks)??;
        let shared: Vec<Family> =
            families.iter().copied().filter(|family| speaks.contains(family)).collect();
        batch(Some(&namespace), &neighbors(*number, new, &shared))?;
    }
    Ok(())
}

const NO_IPV6: &str = "/proc/sys/net/ipv6/conf/all/disable_ipv6";

/// The families that a node was made with. Prometheus reaches each node by IPv4, whether its BIRD
/// speaks that or not.
fn speaks() -> Result<Vec<Family>> {
    let text = fs::read_to_string(NO_IPV6).with_context(|| format!("reading {NO_IPV6}"))?;
    Ok(if text.trim() == "0" { Family::ALL.to_vec() } else { vec![Family::V4] })
}

/// No IPv6 where nobody speaks it, no addresses that nobody gave; and a packet may come from where
/// the way back does not lead: a probe must not need the way back.
fn quiet(families: &[Family]) -> Result<()> {
    let no_ipv6 = if families.contains(&Family::V6) { "0" } else { "1" };
    for (setting, value) in [
        ("ipv6/conf/all/disable_ipv6", no_ipv6),
        ("ipv6/conf/default/disable_ipv6", no_ipv6),
        ("ipv6/conf/eth0/addr_gen_mode", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv4/conf/eth0/rp_filter", "0"),
    ] {
        let path = format!("/proc/sys/net/{setting}");
        fs::write(&path, value).with_context(|| format!("writing {path}"))?;
    }
    Ok(())
}

fn node(number: u8, all: &[u8], families: &[Family]) -> String {
    let address = |family| {
        // Duplicate address detection would take seconds.
        let unchecked = if family == Family::V6 { " nodad" } else { "" };
        let (address, prefix) = (address(family, number), prefix(family));
        format!("addr add {address}/{prefix} dev eth0{unchecked}\n")
    };
    let pod = |family: &Family| format!("addr add {} dev lo\n", pod(*family, number));
    let links = ["link set lo up\nlink set eth0 up\n".to_owned()].into_iter();
    let links: String =
        links.chain(with_ipv4(families).map(address)).chain(families.iter().map(pod)).collect();
    links + &neighbors(number, all, families)
}

/// Prometheus reaches every node by IPv4.
fn with_ipv4(families: &[Family]) -> impl Iterator<Item = Family> {
    Family::ALL.into_iter().filter(|family| *family == Family::V4 || families.contains(family))
}

/// The addresses of others never have to be resolved: the kernel's table of answers is one for all
/// namespaces, and small.
fn neighbors(number: u8, all: &[u8], families: &[Family]) -> String {
    let others = all.iter().filter(|other| **other != number);
    let line = |other: u8, family| {
        let (address, hardware) = (address(family, other), hardware(other));
        format!("neigh replace {address} lladdr {hardware} dev eth0 nud permanent\n")
    };
    others.flat_map(|other| families.iter().map(|family| line(*other, *family))).collect()
}

/// Pulls a node's cable, or plugs it in again.
pub(super) fn set_link(id: &str, number: u8, up: bool) -> Result<()> {
    let state = if up { "up" } else { "down" };
    batch(Some(&outer(id)), &format!("link set v{number} {state}\n"))
}

/// Gives a node routes to the pods of others that are not BIRD's, which leaves the kernel's own
/// protocol alone. As long as BIRD has the same routes, its own are preferred.
pub(super) fn program(id: &str, number: u8, all: &[u8], families: &[Family]) -> Result<()> {
    let others = all.iter().filter(|other| **other != number);
    let line = |other: u8, family: Family| {
        let (pods, address) = (pods(family, other), address(family, other));
        format!("route replace {pods} via {address} dev eth0 proto kernel metric 2048\n")
    };
    let lines = others.flat_map(|other| families.iter().map(|family| line(*other, *family)));
    batch(Some(&namespace(id, number)), &lines.collect::<String>())
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_knows_all_others_and_has_one_pod() {
        let commands = node(2, &[0, 2, 17], &[Family::V4]);
        assert!(commands.contains("addr add 10.90.0.12/16 dev eth0"), "{commands}");
        assert!(commands.contains("addr add 10.91.2.1 dev lo"));
        assert!(commands.contains("neigh replace 10.90.0.27 lladdr 02:90:00:00:00:11 dev eth0"));
        assert!(!commands.contains("neigh replace 10.90.0.12"));
        assert!(!commands.contains("fd90"), "{commands}");
        assert_eq!(pods(Family::V4, MOST_NODES - 1), "10.91.199.0/24");
        assert_eq!(address(Family::V4, MOST_NODES - 1), "10.90.0.209");
    }

    #[test]
    fn a_node_of_ipv6_alone_can_still_be_scraped() {
        let commands = node(2, &[0, 2], &[Family::V6]);
        assert!(commands.contains("addr add 10.90.0.12/16 dev eth0\n"), "{commands}");
        assert!(commands.contains("addr add fd90::c/64 dev eth0 nodad\n"), "{commands}");
        assert!(commands.contains("neigh replace fd90::a lladdr 02:90:00:00:00:00 dev eth0"));
        assert!(
            commands.contains("addr add fd91:0:0:2::1 dev lo\n") && !commands.contains("10.91")
        );
    }

    #[test]
    fn names_do_not_run_into_those_of_clusters() {
        assert_eq!(namespace("ab", 3), "lab-bgp-ab-03");
        assert!(!outer("ab").starts_with(&crate::cluster::network::outer("ab")));
    }
}
