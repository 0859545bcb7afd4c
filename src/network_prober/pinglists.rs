//! Who probes whom, as each agent is told.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use axum::body::Bytes;
use serde_json::json;

use super::{
    members::{Member, Members},
    settings::{LARGEST_MESH, Settings},
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

/// The lists of one `NetworkProber`: who is in them, shared; the text of one is made when it is asked for.
#[derive(Clone, Debug, Default)]
pub struct Pinglists {
    /// A fingerprint of all lists.
    pub version: String,
    /// About how many series the agents export together.
    pub estimated_series: usize,
    /// What all lists have in common.
    frame: Option<Arc<Pinglist>>,
    peers: Arc<[Peer]>,
    lists: HashMap<String, List>,
}

/// One agent's list: itself, and its peers as places in [`Pinglists::peers`].
#[derive(Clone, Debug)]
struct List {
    own: PinglistSelf,
    targets: Box<[u32]>,
    print: u64,
}

/// One agent's list, to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The list as JSON.
    pub body: Bytes,
    /// Its fingerprint, quoted, as in the header `ETag`.
    pub etag: String,
}

impl Pinglists {
    /// The fingerprint of a pod's list, by UID, as in the header `ETag`.
    #[must_use]
    pub fn etag(&self, uid: &str) -> Option<String> {
        Some(etag(self.lists.get(uid)?.print))
    }

    /// The list of a pod, by UID.
    #[must_use]
    pub fn of(&self, uid: &str) -> Option<Served> {
        let (list, frame) = (self.lists.get(uid)?, self.frame.as_ref()?);
        let peers = list.targets.iter().filter_map(|&place| self.peers.get(place as usize));
        let whole = Pinglist {
            own: list.own.clone(),
            peers: peers.cloned().collect(),
            ..Pinglist::clone(frame)
        };
        // The types have no map with other keys than text: it cannot fail.
        let body = serde_json::to_vec(&whole).unwrap_or_default();
        Some(Served { body: body.into(), etag: etag(list.print) })
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

    /// How many probe whom, all lists together.
    #[must_use]
    pub fn edges(&self) -> usize {
        self.lists.values().map(|list| list.targets.len()).sum()
    }

    /// The lists of all agents: the members' from the ring; a pod that does not take part probes
    /// nobody.
    #[must_use]
    pub fn of_members(settings: &Settings, members: &Members) -> Self {
        let frame = Pinglist {
            prober: settings.key(),
            own: PinglistSelf::default(),
            period: settings.period,
            timeout: settings.timeout,
            probes: settings.probes.clone(),
            original_metrics: settings.original_metrics,
            peers: vec![],
        };
        let common = hash::of(&format!("{frame:?}"));
        let peers: Arc<[Peer]> = members.members.iter().map(|m| peer(settings, m)).collect();
        let prints: Vec<_> = peers.iter().map(|peer| hash::of(&format!("{peer:?}"))).collect();
        let everybody = settings.delivery == Delivery::ConfigMap && settings.image.is_some();
        let (mut whole, mut series) = (0_u64, 0);
        let mut lists = HashMap::with_capacity(peers.len() + members.guests.len());
        let targets = targets(settings, &members.members);
        let taking_part = members.members.iter().zip(targets);
        let guests = members.guests.values().map(|guest| (guest, vec![]));
        for (member, targets) in taking_part.chain(guests) {
            let own = own(member);
            let start = hash::combine(common, hash::of(&format!("{own:?}")));
            let print = targets.iter().fold(start, |print, &i| hash::combine(print, prints[i]));
            series += if everybody {
                // An agent that is not ours and reads the original's file probes everybody.
                ORIGINAL_SERIES * members.members.len().saturating_sub(1)
            } else {
                series_of(settings, &peers, &targets)
            };
            // Sum, not order: the whole must not depend on how pods are iterated.
            whole = whole.wrapping_add(print);
            let targets = targets.into_iter().filter_map(|i| u32::try_from(i).ok()).collect();
            lists.insert(member.uid.clone(), List { own, targets, print });
        }
        let version = format!("{whole:016x}");
        Self { version, estimated_series: series, frame: Some(Arc::new(frame)), peers, lists }
    }
}

fn etag(print: u64) -> String {
    format!("\"{print:016x}\"")
}

/// Whom each member probes, as indices; nobody where a full mesh is refused.
fn targets(settings: &Settings, members: &[Member]) -> Vec<Vec<usize>> {
    if settings.is_full_mesh() && members.len() > LARGEST_MESH {
        return vec![vec![]; members.len()];
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
fn series_of(settings: &Settings, peers: &[Peer], targets: &[usize]) -> usize {
    let peers = || targets.iter().map(|&place| &peers[place]);
    let nodes = peers().map(|peer| (&peer.node, &peer.zone)).collect::<BTreeSet<_>>().len();
    let addresses: usize = peers().map(|peer| peer.ips.len().min(2)).sum();
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
