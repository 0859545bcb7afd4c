//! The redirection of packets out of a node's network namespace and back into it.

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, unshare};

use super::Config;
use crate::process::output;

/// The end of the veth pair that lies in the node.
const THERE: &str = "hold0";
/// The end that lies here.
pub(super) const HERE: &str = "hold1";
/// The routing table with only the route to this process, and the preference of the rules that use
/// it: any number that neither the kernel (0, 32766, 32767) nor kube-proxy uses.
const TABLE: &str = "77";
/// The preference of the rule before those: what stays on the node does not come this way.
const BEFORE: &str = "76";
/// The nftables table of the node that keeps connection tracking away.
const TRACKING: &str = "lab-impair";

/// Moves the calling thread into a new network namespace, which ends with the last thread in it.
pub(super) fn leave() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).context("making a network namespace")
}

/// Connects a node's namespace with this one.
pub(super) fn connect(network: &str) -> Result<()> {
    remove(network)?;
    let here = std::process::id().to_string();
    let inside = |words: &str| {
        let words: Vec<&str> = ["-n", network].into_iter().chain(words.split(' ')).collect();
        output("ip", &words)
    };
    inside(&format!("link add {THERE} type veth peer name {HERE} netns {here}"))?;
    output("ip", &["link", "set", HERE, "up"])?;
    // Without ARP the kernel writes its own address into every frame, and takes frames with it
    // back. Segments come one by one (gso_max_segs): merged ones could not be sent back.
    inside(&format!("link set {THERE} arp off gso_max_segs 1 up"))?;
    inside(&format!("route add default dev {THERE} table {TABLE}"))?;
    // What comes back was seen by connection tracking (and translated, if it was for a Service) on
    // its way here.
    let rules = format!(
        "table ip {TRACKING} {{\nchain back {{\ntype filter hook prerouting priority raw;\n\
         iifname \"{THERE}\" notrack\n}}\n}}\n"
    );
    nft(network, &rules)
}

/// Routes the packets between the node's pods and other nodes through this process.
pub(super) fn divert(config: &Config) -> Result<()> {
    let Config { network, pods, own, .. } = config;
    for (preference, device, from, to, table) in [
        // Pods on one node reach each other by the bridge, but by a Service through the node's
        // routing.
        (BEFORE, "cni0", own, own, "main"),
        (TABLE, "cni0", own, pods, TABLE),
        (TABLE, "eth0", pods, own, TABLE),
    ] {
        let rule = ["rule", "add", "pref", preference, "iif", device, "from", from, "to", to];
        let words: Vec<&str> =
            ["-n", network].into_iter().chain(rule).chain(["lookup", table]).collect();
        output("ip", &words)?;
    }
    Ok(())
}

/// Restores the ordinary route; packets that are held at the moment still arrive.
pub(crate) fn divert_no_more(network: &str) -> Result<()> {
    for preference in [TABLE, BEFORE] {
        let rules = output("ip", &["-n", network, "rule", "show", "pref", preference])?;
        for _ in rules.lines() {
            output("ip", &["-n", network, "rule", "del", "pref", preference])?;
        }
    }
    Ok(())
}

/// Removes everything that [`connect`] and [`divert`] have made, as far as it exists.
pub(crate) fn remove(network: &str) -> Result<()> {
    divert_no_more(network)?;
    let there = || -> Result<bool> {
        let links = output("ip", &["-n", network, "-brief", "link", "show", "type", "veth"])?;
        Ok(links.lines().any(|line| line.starts_with(THERE)))
    };
    // It also goes with the other end's namespace, which may be happening at this moment.
    if there()?
        && let Err(error) = output("ip", &["-n", network, "link", "del", THERE])
        && there()?
    {
        return Err(error);
    }
    if nft_says(network, &["list", "tables", "ip"])?.contains(TRACKING) {
        nft(network, &format!("delete table ip {TRACKING}"))?;
    }
    Ok(())
}

fn nft(network: &str, command: &str) -> Result<()> {
    nft_says(network, &[command]).map(drop)
}

fn nft_says(network: &str, arguments: &[&str]) -> Result<String> {
    let namespace = format!("--net=/run/netns/{network}");
    let mut words = vec![namespace.as_str(), "--", "nft"];
    words.extend(arguments);
    output("nsenter", &words)
}
