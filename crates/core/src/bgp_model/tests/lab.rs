//! The fabrics of the measurements: 18 nodes in three zones, the first of each zone reflectors.
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use super::super::{Fabric, Labels, Local, Node, Peer, Remote, Selector};

pub const ZONES: [&str; 3] = ["a", "b", "c"];

/// The cluster ids of the slots of a zone.
#[derive(Clone, Copy, Debug)]
pub enum Ids {
    One,
    PerZone,
    Unique,
}

/// The reflectors with which each node peers.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Every node with every reflector.
    Simple,
    /// With those of its own zone.
    Zonal,
    /// With this many, own zone first.
    Grouped(usize),
}

/// A description of a fabric, to be modified freely.
#[derive(Clone, Debug)]
pub struct Lab {
    pub nodes: Vec<Node>,
    pub peers: Vec<Peer>,
    pub mesh: bool,
}

impl Ids {
    pub fn of(self, slot: usize, zone: &str) -> Ipv4Addr {
        let zone = ZONES.iter().position(|&known| known == zone).unwrap();
        let [slot, zone] = [slot, zone].map(|place| u8::try_from(place + 1).unwrap());
        match self {
            Self::One => Ipv4Addr::new(224, 0, 0, 1),
            Self::PerZone => Ipv4Addr::new(224, 0, 1, zone),
            Self::Unique => Ipv4Addr::new(224, 0, 2, slot),
        }
    }
}

pub fn name(place: usize) -> String {
    format!("bgp-{place:02}")
}

pub fn node(place: usize, labels: &[(&str, &str)]) -> Node {
    let [.., high, low] = (place + 10).to_be_bytes();
    Node {
        name: name(place).into(),
        address: Some(IpAddr::from([10, 90, high, low])),
        labels: labels.iter().copied().collect(),
        cluster_id: None,
        up: true,
    }
}

pub fn selector(text: &str) -> Selector {
    Selector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub fn peer(name: &str, local: &str, remote: &str) -> Peer {
    Peer {
        name: name.into(),
        local: Local::Selected(selector(local)),
        remote: Remote::Selected(selector(remote)),
        reverse: true,
    }
}

/// As the original operator's two: every client with every reflector.
pub fn simple() -> Vec<Peer> {
    vec![peer("rrs-to-rrs", "has(rr)", "has(rr)"), peer("peer-to-rrs", "!has(rr)", "has(rr)")]
}

impl Lab {
    /// No reflectors, no BGPPeers.
    pub fn bare(nodes: usize, mesh: bool) -> Self {
        let zone = |place: usize| ZONES[place / nodes.div_ceil(ZONES.len())];
        let nodes = (0..nodes).map(|place| node(place, &[("zone", zone(place))])).collect();
        Self { nodes, peers: Vec::new(), mesh }
    }

    pub fn build(kind: Kind, ids: Ids, per_zone: usize) -> Self {
        Self::sized(18, kind, ids, per_zone)
    }

    pub fn sized(nodes: usize, kind: Kind, ids: Ids, per_zone: usize) -> Self {
        let mut lab = Self::bare(nodes, false);
        let mut slot = 0;
        for zone in ZONES {
            for place in lab.of_zone(zone).into_iter().take(per_zone) {
                lab.promote(place, slot, ids.of(slot, zone));
                slot += 1;
            }
        }
        lab.peers = match kind {
            Kind::Simple => simple(),
            Kind::Zonal => {
                let zonal = |zone: &str| {
                    let of = format!("zone == '{zone}'");
                    let [local, remote] = ["!has(rr)", "has(rr)"].map(|is| format!("{is} && {of}"));
                    peer(&format!("zone-{zone}"), &local, &remote)
                };
                simple().into_iter().take(1).chain(ZONES.map(zonal)).collect()
            }
            Kind::Grouped(k) => lab.group(k),
        };
        lab
    }

    /// Labels clients with groups; each group has `k` reflectors, own zone first.
    fn group(&mut self, k: usize) -> Vec<Peer> {
        let slots: BTreeMap<&str, Vec<String>> = ZONES
            .map(|zone| {
                let labels = self.of_zone(zone);
                let slot = |place: usize| self.nodes[place].labels.get("rr-slot").map(Into::into);
                (zone, labels.into_iter().filter_map(slot).collect())
            })
            .into();
        let mut groups: BTreeMap<Vec<String>, String> = BTreeMap::new();
        for (zone_place, zone) in ZONES.iter().enumerate() {
            let clients = self.of_zone(zone).into_iter();
            let clients: Vec<usize> =
                clients.filter(|&place| self.nodes[place].labels.get("rr").is_none()).collect();
            for (i, client) in clients.into_iter().enumerate() {
                let chosen = |d: usize| {
                    let of = &slots[ZONES[(zone_place + d) % ZONES.len()]];
                    of[(i + d / 2) % of.len()].clone()
                };
                let mut mine: Vec<String> = (0..k).map(chosen).collect();
                mine.sort();
                let next = format!("g{}", groups.len());
                let group = groups.entry(mine).or_insert(next).clone();
                self.label(client, &[("rr-group", Some(&group))]);
            }
        }
        let of_group = |(slots, group): (&Vec<String>, &String)| {
            let slots: Vec<String> = slots.iter().map(|slot| format!("'{slot}'")).collect();
            let local = format!("!has(rr) && rr-group == '{group}'");
            peer(&format!("group-{group}"), &local, &format!("rr-slot in {{{}}}", slots.join(", ")))
        };
        simple().into_iter().take(1).chain(groups.iter().map(of_group)).collect()
    }

    pub fn of_zone(&self, zone: &str) -> Vec<usize> {
        let nodes = self.nodes.iter().enumerate();
        let here = nodes.filter(|(_, node)| node.labels.get("zone") == Some(zone));
        here.map(|(place, _)| place).collect()
    }

    pub fn label(&mut self, place: usize, changes: &[(&str, Option<&str>)]) {
        let labels: Labels = self.nodes[place].labels.with(changes);
        self.nodes[place].labels = labels;
    }

    pub fn promote(&mut self, place: usize, slot: usize, id: Ipv4Addr) {
        self.label(place, &[("rr", Some("")), ("rr-slot", Some(&slot.to_string()))]);
        self.nodes[place].cluster_id = Some(id);
    }

    pub fn demote(&mut self, place: usize) {
        self.label(place, &[("rr", None), ("rr-slot", None)]);
        self.nodes[place].cluster_id = None;
    }

    pub fn fabric(&self) -> Fabric {
        Fabric::new(self.nodes.clone(), self.peers.clone(), self.mesh)
    }
}
