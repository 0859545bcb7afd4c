//! The lists of peers, as each agent receives them.
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use axum::body::Bytes;
use serde_json::json;

use super::{
    members::{Member, Members},
    settings::{LARGEST_MESH, Settings},
};
use crate::{
    agent::{
        budget::{self, AGENT_SERIES, TARGET_SERIES},
        pinglist::{Destination, Peer, Pinglist, PinglistSelf},
    },
    api::network_prober::Delivery,
    placement::{
        hash,
        ring::{Bound, Member as Place, Ring, Rotation},
    },
};

#[cfg(test)]
mod tests;

/// The lists of one `NetworkProber`.
///
/// Each member is in the lists of all of its probers: it is written once, and a list is assembled
/// when its agent requests it. So a change costs work and memory for each member, not for each
/// edge.
#[derive(Clone, Debug, Default)]
pub struct Pinglists {
    /// A fingerprint of all lists.
    pub version: String,
    /// About how many series the agents export together.
    pub estimated_series: usize,
    /// True if there are no lists because every member would probe too many.
    pub refused: bool,
    /// Maximum number of peers that an agent probes at a time.
    pub most: usize,
    /// The effect of that bound on the lists.
    pub rotation: Rotation,
    lists: HashMap<String, List>,
    peers: Vec<Fragment>,
    /// The end of the lists with targets.
    targets: Fragment,
}

/// A part of several lists, as written in them: a member, or the targets.
#[derive(Clone, Debug, Default)]
struct Fragment {
    print: u64,
    json: Box<str>,
}

/// One agent's list, in parts.
#[derive(Clone, Debug)]
struct List {
    print: u64,
    /// The list up to its first peer.
    head: Box<str>,
    /// The peers, as indices of fragments.
    peers: Vec<usize>,
    /// True if its agent probes the targets.
    has_targets: bool,
}

/// The end of a list without targets.
const TAIL: &str = "]}";

/// One agent's list.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    list: &'a List,
    peers: &'a [Fragment],
    tail: &'a str,
}

impl Served<'_> {
    /// Its fingerprint.
    #[must_use]
    pub fn print(&self) -> u64 {
        self.list.print
    }

    /// The list as JSON.
    #[must_use]
    pub fn body(&self) -> Bytes {
        let peers = self.list.peers.iter().filter_map(|&place| self.peers.get(place));
        let size: usize = peers.clone().map(|peer| peer.json.len() + 1).sum();
        let mut body = String::with_capacity(self.list.head.len() + size + self.tail.len());
        body.push_str(&self.list.head);
        for (i, peer) in peers.enumerate() {
            body.push_str(if i == 0 { "" } else { "," });
            body.push_str(&peer.json);
        }
        body.push_str(self.tail);
        body.into()
    }
}

/// A fingerprint as written in the header `ETag`.
#[must_use]
pub fn etag(print: u64) -> String {
    format!("\"{print:016x}\"")
}

/// Reads what [`etag`] writes; anything else is no fingerprint of ours.
#[must_use]
pub fn read_etag(text: &str) -> Option<u64> {
    let print = u64::from_str_radix(text.strip_prefix('"')?.strip_suffix('"')?, 16).ok()?;
    (etag(print) == text).then_some(print)
}

impl Pinglists {
    /// The list of a pod, by UID.
    #[must_use]
    pub fn of(&self, uid: &str) -> Option<Served<'_>> {
        self.lists.get(uid).map(|list| {
            let tail = if list.has_targets { &*self.targets.json } else { TAIL };
            Served { list, peers: &self.peers, tail }
        })
    }

    /// Returns the number of lists.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Reports whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Returns the lists of all agents: those of members from the ring; the list of a pod that does
    /// not take part is empty. No lists for a refused full mesh, because they are too large. `now`
    /// is the time since the Unix epoch: where a list has a bound, its peers take turns.
    #[must_use]
    pub fn of_members(settings: &Settings, members: &Members, now: Duration) -> Self {
        let series = Series::of(settings, &members.members);
        let all = 0..members.members.len();
        let most = series.most_peers(settings);
        let mut lists = Self {
            refused: settings.is_full_mesh() && members.members.len() > LARGEST_MESH,
            most,
            peers: members.members.iter().map(|member| fragment(settings, member)).collect(),
            targets: tail(&settings.targets),
            ..Self::default()
        };
        let probing = Probing::of(settings, members);
        // Sums, not orders: the whole must not depend on how pods are iterated.
        let mut whole = lists.peers.iter().fold(0_u64, |sum, peer| sum.wrapping_add(peer.print));
        // Foreign agents that read the original's file probe all pods.
        let everybody = settings.delivery == Delivery::ConfigMap && settings.image.is_some();
        if everybody || lists.refused {
            lists.estimated_series +=
                all.map(|place| series.of_everybody_but(place)).sum::<usize>();
        }
        if !lists.refused {
            let bound = budget::bound(most, settings.period, now);
            let (targets, rotation) = targets(settings, &members.members, bound);
            if !everybody {
                lists.rotation = rotation;
            }
            for (member, targets) in members.members.iter().zip(targets) {
                if !everybody {
                    lists.estimated_series += series.of_these(&targets);
                }
                whole = whole.wrapping_add(lists.add(settings, member, targets, &probing));
            }
        }
        for guest in members.guests.values() {
            lists.estimated_series += AGENT_SERIES;
            whole = whole.wrapping_add(lists.add(settings, guest, vec![], &probing));
        }
        lists.version = format!("{whole:016x}");
        lists
    }

    /// Returns the number of peers in the longest list.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.lists.values().map(|list| list.peers.len()).max().unwrap_or_default()
    }

    fn add(
        &mut self,
        settings: &Settings,
        member: &Member,
        peers: Vec<usize>,
        probing: &Probing<'_>,
    ) -> u64 {
        let empty = json(&Pinglist {
            prober: settings.key(),
            own: own(member),
            period: settings.period,
            timeout: settings.timeout,
            probes: settings.probes.clone(),
            original_metrics: settings.original_metrics,
            peers: vec![],
            targets: vec![],
        });
        // The peers are the last field but the targets: each test that reads a list holds the type to that.
        let head = empty.strip_suffix(TAIL).unwrap_or(&empty);
        let has_targets = probing.has(member);
        if has_targets {
            self.estimated_series += settings.targets.len() * TARGET_SERIES;
        }
        let prints = peers.iter().filter_map(|&place| Some(self.peers.get(place)?.print));
        let prints = prints.chain(has_targets.then_some(self.targets.print));
        let print = prints.fold(hash::of(head), hash::combine);
        let list = List { print, head: head.into(), peers, has_targets };
        self.lists.insert(member.uid.clone(), list);
        print
    }
}

/// The members whose agents probe the targets.
struct Probing<'a> {
    only_in: Option<&'a str>,
    /// The greatest hash of their UIDs; `None` without targets.
    most: Option<u64>,
}

impl<'a> Probing<'a> {
    fn of(settings: &'a Settings, members: &Members) -> Self {
        let mut probing = Self { only_in: settings.targets_in.as_deref(), most: None };
        if !settings.targets.is_empty() {
            let all = members.members.iter().filter(|member| probing.may(member));
            probing.most = Some(budget::target_agents(all.map(|member| &*member.uid)));
        }
        probing
    }

    fn may(&self, member: &Member) -> bool {
        self.only_in.is_none_or(|namespace| namespace == member.namespace)
    }

    fn has(&self, member: &Member) -> bool {
        self.may(member) && self.most.is_some_and(|most| hash::of(&member.uid) <= most)
    }
}

/// Returns the end of a list with targets.
fn tail(targets: &[Destination]) -> Fragment {
    let json = format!("],\"targets\":{}}}", json(&targets));
    Fragment { print: hash::of(&json), json: json.into() }
}

/// Serializes our types as JSON: their maps only have text keys, so this cannot fail.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns the peers of each member, as indices.
fn targets(settings: &Settings, members: &[Member], bound: Bound) -> (Vec<Vec<usize>>, Rotation) {
    let places: Vec<_> =
        members.iter().map(|m| Place { id: m.id(), zone: m.zone.clone() }).collect();
    Ring::new(&places, settings.neighbors).bounded(bound).rotation()
}

fn own(member: &Member) -> PinglistSelf {
    PinglistSelf {
        namespace: member.namespace.clone(),
        name: member.name.clone(),
        uid: member.uid.clone(),
        node: member.node.clone(),
        zone: member.zone.clone(),
    }
}

fn fragment(settings: &Settings, member: &Member) -> Fragment {
    let peer = json(&Peer {
        key: member.key(&settings.namespace),
        namespace: member.namespace.clone(),
        name: member.name.clone(),
        uid: member.uid.clone(),
        ips: member.ips.clone(),
        port: member.port,
        node: member.node.clone(),
        zone: member.zone.clone(),
    });
    Fragment { print: hash::of(&peer), json: peer.into() }
}

/// Number of series that an agent exports: for each protocol and peer's node, a histogram and the
/// counters of success and of each kind of failure; for each peer's address, the original's
/// histogram.
struct Series {
    /// The node of each member, as a number.
    nodes: Vec<usize>,
    /// Number of members on each node.
    on_node: Vec<usize>,
    /// Number of probed addresses of each member.
    addresses: Vec<usize>,
    all_addresses: usize,
    per_node: usize,
    per_address: usize,
}

impl Series {
    fn of(settings: &Settings, members: &[Member]) -> Self {
        let mut numbers = HashMap::new();
        let mut on_node = Vec::new();
        let nodes = members.iter().map(|member| {
            let next = numbers.len();
            let number = *numbers.entry((&member.node, &member.zone)).or_insert(next);
            if number == on_node.len() {
                on_node.push(0);
            }
            on_node[number] += 1;
            number
        });
        let nodes = nodes.collect();
        // One of each family.
        let addresses: Vec<_> = members.iter().map(|member| member.ips.len().min(2)).collect();
        Self {
            nodes,
            on_node,
            all_addresses: addresses.iter().sum(),
            addresses,
            per_node: budget::per_node(settings.probes.len()),
            per_address: budget::per_address(settings.original_metrics),
        }
    }

    /// Returns the number of any peers that fit into a scrape.
    fn most_peers(&self, settings: &Settings) -> usize {
        let addresses = self.addresses.iter().max().copied().unwrap_or(1);
        let (protocols, targets) = (settings.probes.len(), settings.targets.len());
        budget::most_peers(protocols, addresses, settings.original_metrics, targets)
    }

    fn count(&self, nodes: usize, addresses: usize) -> usize {
        AGENT_SERIES + nodes * self.per_node + addresses * self.per_address
    }

    fn of_these(&self, peers: &[usize]) -> usize {
        let mut nodes: Vec<_> = peers.iter().map(|&peer| self.nodes[peer]).collect();
        nodes.sort_unstable();
        nodes.dedup();
        self.count(nodes.len(), peers.iter().map(|&peer| self.addresses[peer]).sum())
    }

    fn of_everybody_but(&self, own: usize) -> usize {
        let alone = usize::from(self.on_node[self.nodes[own]] == 1);
        self.count(self.on_node.len() - alone, self.all_addresses - self.addresses[own])
    }
}

/// The original's `config.json`: pods with address and port (as text), the period in nanoseconds;
/// and beside it what our own agent needs to probe no more than its share.
#[must_use]
pub fn config_json(settings: &Settings, members: &[Member]) -> Vec<u8> {
    let endpoints: BTreeMap<_, _> = members
        .iter()
        .map(|member| {
            let endpoint = json!({
                "ip": member.ips.first().map(ToString::to_string),
                "ips": member.ips,
                "port": member.port.to_string(),
                "namespace": member.namespace,
                "name": member.name,
                "uid": member.uid,
                "node": member.node,
                "zone": member.zone,
            });
            (member.key(&settings.namespace), endpoint)
        })
        .collect();
    let mut document = json!({
        "endpointsMap": endpoints,
        "pollingPeriod": nanoseconds(settings.period),
        "timeout": nanoseconds(settings.timeout),
        "probes": settings.probes,
        "neighbours": {
            "inZone": settings.neighbors.in_zone,
            "perOtherZone": settings.neighbors.per_other_zone,
        },
        "originalMetrics": settings.original_metrics,
    });
    if !settings.targets.is_empty() {
        document["targets"] = json!(settings.targets);
        document["targetsIn"] = json!(settings.targets_in);
    }
    document.to_string().into_bytes()
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
