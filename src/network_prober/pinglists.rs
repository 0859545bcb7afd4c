//! Who probes whom, as each agent is told.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use axum::body::Bytes;
use serde_json::json;

use super::{
    members::{Member, Members},
    settings::Settings,
};
use crate::{
    agent::pinglist::{Peer, Pinglist, PinglistSelf},
    api::network_prober::Delivery,
    placement::{
        hash,
        ring::{Member as Place, Ring},
    },
};

/// Buckets of `netprober_rtt_seconds` with +Inf, sum and count.
const RTT_SERIES: usize = 20;

/// Beside it, for each protocol: the counters by result and reason (HTTP seven, TCP six, UDP five), the
/// kernel's figure (TCP), duplicates and reordering (UDP): seven each.
const OTHER_SERIES: usize = 7;

/// Buckets of the original's histogram with +Inf, sum and count.
const ORIGINAL_SERIES: usize = 28;

/// What an agent exports whomever it probes: its own process, schedule and list.
const AGENT_SERIES: usize = 40;

/// The lists of one `NetworkProber`.
#[derive(Clone, Debug, Default)]
pub struct Pinglists {
    /// A fingerprint of all lists.
    pub version: String,
    /// About how many series the agents export together.
    pub estimated_series: usize,
    lists: HashMap<String, Arc<Served>>,
}

/// One agent's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its fingerprint, quoted, as in the header `ETag`.
    pub etag: String,
    /// The list as JSON.
    pub body: Bytes,
}

impl Pinglists {
    /// The list of a pod, by UID.
    #[must_use]
    pub fn of(&self, uid: &str) -> Option<&Arc<Served>> {
        self.lists.get(uid)
    }

    /// How many bytes all lists have.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lists.values().map(|served| served.body.len()).sum()
    }

    /// How many lists there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The lists of all agents: the members' from the ring; a pod that does not take part probes
    /// nobody.
    #[must_use]
    pub fn of_members(settings: &Settings, members: &Members) -> Self {
        let targets = targets(settings, &members.members);
        let peers: Vec<_> = members.members.iter().map(|m| Arc::new(peer(settings, m))).collect();
        let mut lists = HashMap::with_capacity(peers.len() + members.guests.len());
        let mut whole = 0;
        let mut series = 0;
        let nobody: &[usize] = &[];
        let all = members.members.iter().zip(targets.iter().map(Vec::as_slice));
        let guests = members.guests.values().map(|guest| (guest, nobody));
        for (member, targets) in all.chain(guests) {
            let list = Pinglist {
                prober: settings.key(),
                own: own(member),
                period: settings.period,
                timeout: settings.timeout,
                probes: settings.probes.clone(),
                original_metrics: settings.original_metrics,
                peers: targets.iter().map(|&i| (*peers[i]).clone()).collect(),
            };
            series += series_of(settings, &list.peers);
            // The types have no map with other keys than text: it cannot fail.
            let body = serde_json::to_string(&list).unwrap_or_default();
            let print = hash::of(&body);
            // Sum, not order: the whole must not depend on how pods are iterated.
            whole = print.wrapping_add(whole);
            let served = Served { etag: format!("\"{print:016x}\""), body: body.into() };
            lists.insert(member.uid.clone(), Arc::new(served));
        }
        Self { version: format!("{whole:016x}"), estimated_series: series, lists }
    }
}

/// Whom each member probes, as indices. An agent that is not ours and reads the original's file probes
/// everybody.
fn targets(settings: &Settings, members: &[Member]) -> Vec<Vec<usize>> {
    if settings.delivery == Delivery::ConfigMap && settings.image.is_some() {
        let all = 0..members.len();
        return all.clone().map(|i| all.clone().filter(|j| *j != i).collect()).collect();
    }
    let places: Vec<_> =
        members.iter().map(|m| Place { id: m.id(), zone: m.zone.clone() }).collect();
    Ring::new(&places, settings.neighbours).peers()
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

fn peer(settings: &Settings, member: &Member) -> Peer {
    Peer {
        key: member.key(&settings.namespace),
        namespace: member.namespace.clone(),
        name: member.name.clone(),
        uid: member.uid.clone(),
        ips: member.ips.clone(),
        port: member.port,
        node: member.node.clone(),
        zone: member.zone.clone(),
    }
}

/// For each protocol and peer's node a histogram and the counters of success and of each way to fail,
/// for each peer's address the original's histogram.
fn series_of(settings: &Settings, peers: &[Peer]) -> usize {
    let nodes = peers.iter().map(|peer| (&peer.node, &peer.zone)).collect::<BTreeSet<_>>().len();
    let addresses: usize = peers.iter().map(|peer| peer.ips.len().min(2)).sum();
    let per_node = settings.probes.len() * (RTT_SERIES + OTHER_SERIES);
    let original = if settings.original_metrics { addresses * ORIGINAL_SERIES } else { 0 };
    AGENT_SERIES + nodes * per_node + original
}

/// The original's `config.json`: pods with address and port (as text), the period in nanoseconds; and
/// beside it what our own agent needs to probe no more than its share.
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
    let document = json!({
        "endpointsMap": endpoints,
        "pollingPeriod": nanoseconds(settings.period),
        "timeout": nanoseconds(settings.timeout),
        "probes": settings.probes,
        "neighbours": {
            "inZone": settings.neighbours.in_zone,
            "perOtherZone": settings.neighbours.per_other_zone,
        },
        "originalMetrics": settings.original_metrics,
    });
    document.to_string().into_bytes()
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
