//! `config.json`: the members of a prober, from which each agent computes its own peers.
//!
//! The format is the original's, whose agents ignore the fields that this operator adds. A file
//! without these fields, written by the original's operator, means the full mesh, as it does there.
use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use anyhow::{Context, bail};
use serde::Deserialize;

use super::{
    budget,
    pinglist::{Destination, Peer, Pinglist, PinglistSelf, Protocol},
};
use traffic_operator_core::placement::{
    hash,
    ring::{self, Bound, Member},
};

/// The facts that an agent knows about itself without any list.
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
    /// The port on which this agent answers pings.
    pub port: u16,
}

impl Identity {
    /// Reports whether this address is this agent's. A pod's address belongs to one agent, whatever
    /// the port: a list may name the next port before the pod is restarted. On loopback, several
    /// agents may run side by side, and the port distinguishes them.
    #[must_use]
    pub fn is_at(&self, ip: IpAddr, port: u16) -> bool {
        if ip.is_loopback() {
            return port == self.port && (self.ips.is_empty() || self.ips.contains(&ip));
        }
        self.ips.contains(&ip)
    }

    /// Reports whether this agent can reach addresses of that family at all. Probing IPv6 from a
    /// pod without IPv6 would report a loss that has nothing to do with the peer.
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
    /// The key has kept its spelling: operators and agents of other versions write and read it.
    #[serde(rename = "neighbours")]
    neighbors: Option<Neighbors>,
    #[serde(default = "yes")]
    original_metrics: bool,
    #[serde(default)]
    targets: Vec<Destination>,
    /// The namespace whose pods alone probe the targets.
    targets_in: Option<String>,
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
struct Neighbors {
    in_zone: usize,
    per_other_zone: usize,
}

const fn yes() -> bool {
    true
}

/// The contents of a file.
#[derive(Clone, Debug)]
pub struct Members {
    /// The list, without its peers.
    list: Pinglist,
    peers: Vec<Peer>,
    choice: PeerChoice,
}

/// The peers that this agent probes according to the file, before the bound on their number.
#[derive(Clone, Copy, Debug)]
enum PeerChoice {
    /// All others, as with the original.
    Everybody,
    /// The neighbors of the peer with this index on the ring.
    Ring(ring::Neighbors, usize),
    /// None: it is not (or no longer) a member, and no one counts on its probes.
    Nobody,
}

impl Members {
    /// Reads a file.
    ///
    /// # Errors
    /// When it is not JSON of the expected format, or an entry has no usable address or port.
    pub fn read(text: &[u8], who: &Identity, prober: &str) -> anyhow::Result<Self> {
        let file: File = serde_json::from_slice(text).context("not the JSON of a config.json")?;
        let mut peers = Vec::new();
        for (key, endpoint) in file.endpoints_map.unwrap_or_default() {
            peers.push(peer(&key, endpoint).with_context(|| format!("endpointsMap[{key:?}]"))?);
        }
        let own = peers.iter().position(|peer| is_me(peer, who));
        let me = own.map(|place| peers[place].clone()).unwrap_or_default();
        let probes =
            |peer: &&Peer| file.targets_in.as_ref().is_none_or(|only| *only == peer.namespace);
        let uids = peers.iter().filter(probes).map(|peer| peer.uid.as_str());
        let most = budget::target_agents(uids);
        let probing = own.is_some() && probes(&&me) && hash::of(&me.uid) <= most;
        let choice = match (file.neighbors, own) {
            (None, _) => {
                peers.retain(|peer| !is_me(peer, who));
                PeerChoice::Everybody
            }
            (Some(neighbors), Some(own)) => {
                let Neighbors { in_zone, per_other_zone } = neighbors;
                PeerChoice::Ring(ring::Neighbors { in_zone, per_other_zone }, own)
            }
            (Some(_), None) => PeerChoice::Nobody,
        };
        let list = Pinglist {
            prober: prober.to_owned(),
            own: PinglistSelf {
                namespace: who.namespace.clone(),
                name: who.name.clone(),
                uid: me.uid,
                node: who.node.clone(),
                zone: me.zone,
            },
            period: nanoseconds("pollingPeriod", file.polling_period)?,
            timeout: nanoseconds("timeout", file.timeout)?,
            probes: file.probes,
            original_metrics: file.original_metrics,
            peers: Vec::new(),
            targets: if probing { file.targets } else { vec![] },
        };
        Ok(Self { list: list.sane(), peers, choice })
    }

    /// Returns this agent's list at a time since the Unix epoch, and whether the list differs at
    /// other times.
    #[must_use]
    pub fn pinglist(&self, now: Duration) -> (Pinglist, bool) {
        let most = self.list.most_peers(&self.peers);
        let bound = budget::bound(most, self.list.period, now);
        let peers = self.places(bound);
        let rotates = peers.len() == most && self.places(Bound::NONE).len() > most;
        let peers = peers.into_iter().filter_map(|place| self.peers.get(place)).cloned().collect();
        (Pinglist { peers, ..self.list.clone() }.sane(), rotates)
    }

    /// Returns the number of the turn at a time.
    #[must_use]
    pub fn turn(&self, now: Duration) -> u64 {
        budget::bound(0, self.list.period, now).epoch
    }

    fn places(&self, bound: Bound) -> Vec<usize> {
        let id = |peer: &Peer| format!("{}/{}/{}", peer.namespace, peer.name, peer.uid);
        let member = |peer: &Peer| Member { id: id(peer), zone: peer.zone.clone() };
        match self.choice {
            PeerChoice::Everybody if self.peers.len() <= bound.most => {
                (0..self.peers.len()).collect()
            }
            PeerChoice::Everybody => {
                // No peer has this id.
                let me = Member { id: String::new(), zone: self.list.own.zone.clone() };
                let members: Vec<_> = self.peers.iter().map(member).chain([me]).collect();
                ring::peers_of(&members, ring::Neighbors::FULL_MESH, bound, "")
            }
            PeerChoice::Ring(neighbors, own) => {
                let members: Vec<_> = self.peers.iter().map(member).collect();
                ring::peers_of(&members, neighbors, bound, &members[own].id)
            }
            PeerChoice::Nobody => Vec::new(),
        }
    }
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

/// Compares the names if both have one, else the addresses.
fn is_me(peer: &Peer, who: &Identity) -> bool {
    if who.name.is_empty() || peer.namespace.is_empty() {
        return peer.ips.iter().any(|ip| who.is_at(*ip, peer.port));
    }
    peer.namespace == who.namespace && peer.name == who.name
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
