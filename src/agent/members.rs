//! `config.json`: the members of a prober, from which each agent works out its own peers.
//!
//! The shape is the original's; what the operator adds, the original ignores. A file without the
//! additions (of the original's operator) means the full mesh, as it did there.
use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use anyhow::{Context, bail};
use serde::Deserialize;

use super::pinglist::{Peer, Pinglist, PinglistSelf, Protocol};
use crate::placement::ring::{self, Member};

/// What an agent knows of itself without any list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Namespace of the pod; "" if unknown.
    pub namespace: String,
    /// Name of the pod; "" if unknown.
    pub name: String,
    /// Name of the node; "" if unknown.
    pub node: String,
    /// The addresses of the pod.
    pub ips: Vec<IpAddr>,
    /// Where this agent answers pings.
    pub port: u16,
}

impl Identity {
    /// Whether something at this address is this agent. A pod's address belongs to one agent,
    /// whatever the port: a list may name the next port before the pod is restarted. On loopback
    /// several agents may live side by side, and the port tells them apart.
    #[must_use]
    pub fn is_at(&self, ip: IpAddr, port: u16) -> bool {
        if ip.is_loopback() {
            return port == self.port && (self.ips.is_empty() || self.ips.contains(&ip));
        }
        self.ips.contains(&ip)
    }

    /// Whether this agent has a way to addresses of that family at all. Probing IPv6 from a pod
    /// without IPv6 would report a loss that says nothing about the peer.
    #[must_use]
    pub fn reaches(&self, ip: IpAddr) -> bool {
        let routable = |own: &IpAddr| match own {
            IpAddr::V4(own) => !own.is_loopback() && !own.is_link_local(),
            IpAddr::V6(own) => !own.is_loopback() && !own.is_unicast_link_local(),
        };
        let same = |own: &&IpAddr| own.is_ipv4() == ip.is_ipv4();
        ip.is_loopback() || self.ips.is_empty() || self.ips.iter().filter(same).any(routable)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    /// The original's Go writes `null` for an empty map.
    #[serde(default)]
    endpoints_map: Option<BTreeMap<String, Endpoint>>,
    /// Nanoseconds, as Go writes a duration.
    #[serde(default)]
    polling_period: i64,
    #[serde(default)]
    timeout: i64,
    #[serde(default)]
    probes: Vec<Protocol>,
    neighbours: Option<Neighbours>,
    #[serde(default = "yes")]
    original_metrics: bool,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    /// One address, as in the original.
    ip: String,
    /// All addresses of a dual-stack pod.
    #[serde(default)]
    ips: Vec<IpAddr>,
    /// Text, as in the original.
    port: String,
    namespace: Option<String>,
    name: Option<String>,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    node: String,
    #[serde(default)]
    zone: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Neighbours {
    in_zone: usize,
    per_other_zone: usize,
}

const fn yes() -> bool {
    true
}

/// The list that this agent has by a file.
///
/// # Errors
/// When the file is not JSON of the right shape, or an entry has no usable address or port.
pub fn pinglist(text: &[u8], who: &Identity, prober: &str) -> anyhow::Result<Pinglist> {
    let file: File = serde_json::from_slice(text).context("not the JSON of a config.json")?;
    let mut peers = Vec::new();
    for (key, endpoint) in file.endpoints_map.unwrap_or_default() {
        peers.push(peer(&key, endpoint).with_context(|| format!("endpointsMap[{key:?}]"))?);
    }
    let own = peers.iter().position(|peer| is_me(peer, who));
    let own_zone = own.map(|place| peers[place].zone.clone()).unwrap_or_default();
    let own_uid = own.map(|place| peers[place].uid.clone()).unwrap_or_default();
    let peers = match (file.neighbours, own) {
        (None, _) => peers.into_iter().filter(|peer| !is_me(peer, who)).collect(),
        (Some(neighbours), Some(own)) => by_ring(&peers, neighbours, own),
        // Not (or no longer) a member: nobody counts on our probes.
        (Some(_), None) => Vec::new(),
    };
    let list = Pinglist {
        prober: prober.to_owned(),
        own: PinglistSelf {
            namespace: who.namespace.clone(),
            name: who.name.clone(),
            uid: own_uid,
            node: who.node.clone(),
            zone: own_zone,
        },
        period: nanoseconds("pollingPeriod", file.polling_period)?,
        timeout: nanoseconds("timeout", file.timeout)?,
        probes: file.probes,
        original_metrics: file.original_metrics,
        peers,
    };
    Ok(list.sane())
}

fn nanoseconds(field: &str, value: i64) -> anyhow::Result<Duration> {
    match u64::try_from(value) {
        Ok(value) => Ok(Duration::from_nanos(value)),
        Err(_) => bail!("{field}: {value} is less than zero"),
    }
}

fn peer(key: &str, endpoint: Endpoint) -> anyhow::Result<Peer> {
    let mut ips = endpoint.ips;
    if ips.is_empty() {
        let ip = endpoint.ip.trim();
        ips.push(ip.parse().with_context(|| format!("ip: {ip:?}"))?);
    }
    let port = endpoint.port.parse::<u16>().ok().filter(|port| *port > 0);
    let port = port.with_context(|| format!("port: {:?}", endpoint.port))?;
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    Ok(Peer {
        key: key.to_owned(),
        namespace: endpoint.namespace.unwrap_or_else(|| namespace.to_owned()),
        name: endpoint.name.unwrap_or_else(|| name.to_owned()),
        uid: endpoint.uid,
        ips,
        port,
        node: endpoint.node,
        zone: endpoint.zone,
    })
}

/// By name where both have one, else by address.
fn is_me(peer: &Peer, who: &Identity) -> bool {
    if who.name.is_empty() || peer.namespace.is_empty() {
        return peer.ips.iter().any(|ip| who.is_at(*ip, peer.port));
    }
    peer.namespace == who.namespace && peer.name == who.name
}

fn by_ring(peers: &[Peer], neighbours: Neighbours, own: usize) -> Vec<Peer> {
    let id = |peer: &Peer| format!("{}/{}/{}", peer.namespace, peer.name, peer.uid);
    let member = |peer: &Peer| Member { id: id(peer), zone: peer.zone.clone() };
    let members: Vec<_> = peers.iter().map(member).collect();
    let neighbours =
        ring::Neighbours { in_zone: neighbours.in_zone, per_other_zone: neighbours.per_other_zone };
    let places = ring::peers_of(&members, neighbours, &members[own].id);
    places.into_iter().filter_map(|place| peers.get(place)).cloned().collect()
}

#[cfg(test)]
mod tests;
