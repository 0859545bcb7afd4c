//! The current state: nodes, BGPPeers and mesh, as they were read.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use super::{
    bgp_model::{Fabric, Labels, Local, Node, Peer, Remote, Selector},
    datastore::{CalicoPeer, ListenPorts, Routing, Snapshot, Unreadable},
    families::{Addresses, Families},
    gate::GateClosed,
};
use crate::{
    api::{
        BGP_ADDRESS_ANNOTATIONS, BGP_AS_ANNOTATION, CLUSTER_ID_ANNOTATION, GROUP_LABEL, SLOT_LABEL,
    },
    nodes::{Incarnation, Readiness, Speaker, Texts},
};

/// Labels and annotations of a node, ours or those of the earlier operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReflectorLabels {
    /// The value of `nodeLabel`, if it is there.
    pub label: Option<Arc<str>>,
    /// The slot it holds.
    pub slot: Option<u32>,
    /// The group it is a client in.
    pub group: Option<Arc<str>>,
    /// Cluster id of the node; none if it has none.
    pub cluster_id: Option<Ipv4Addr>,
}

impl ReflectorLabels {
    /// Reports whether it reflects routes for us, or did for the operator before us: a client that
    /// looks for reflectors finds it.
    #[must_use]
    pub fn is_reflector(&self) -> bool {
        self.slot.is_some() || self.label.is_some() && self.cluster_id.is_some()
    }
}

/// One node.
#[derive(Clone, Debug)]
pub struct BgpNode {
    /// Distinguishes it from another node with the same name.
    pub incarnation: Incarnation,
    /// The labels and annotations of the node.
    pub labels: ReflectorLabels,
    /// Its zone, if it has one.
    pub zone: Option<Arc<str>>,
    /// The address it speaks BGP with; without one it does not, or is of another AS.
    pub address: Option<IpAddr>,
    /// It is of another AS than the cluster.
    pub other_as: bool,
    /// It speaks every address family that is covered.
    pub complete: bool,
    /// False if Calico has its own Nodes, and none of it that can be read: it can get no labels.
    pub known: bool,
    /// The comparison of Kubernetes' Node with Calico's.
    pub copies: Copies,
}

/// Our labels on Kubernetes' Node and on Calico's, which are one object without etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// They have different labels: a process ended between two writes, or a user changed one.
    pub differ: bool,
    /// Both have the label of reflectors, with one value.
    pub labeled: bool,
    /// At least one has a group.
    pub grouped: bool,
}

/// All objects.
#[derive(Clone, Debug)]
pub struct BgpTopology {
    /// All nodes.
    pub nodes: BTreeMap<Arc<str>, BgpNode>,
    /// All nodes that speak BGP, and their peerings.
    pub fabric: Fabric,
    /// The same of the other address family, where that is covered too.
    second: Option<Fabric>,
    /// The covered address families.
    pub families: Families,
    /// The ports of BIRDs that do not use the default port.
    ports: ListenPorts,
    /// The BGPPeers of this set by name: their two selectors, and the version.
    pub ours: BTreeMap<String, OurPeer>,
    /// Number of BGPPeers of other owners.
    pub foreign: usize,
    /// Names of BGPPeers that are not ours.
    pub taken: BTreeSet<String>,
    /// Objects of other owners that cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// Who programs the routes.
    pub routing: Routing,
}

/// A BGPPeer of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OurPeer {
    /// Selects the nodes that it configures.
    pub node_selector: String,
    /// Selects the peers of these nodes.
    pub peer_selector: String,
    /// The precondition of deleting it.
    pub version: String,
}

/// Reports whether the BGPPeer has no other owner: it has our label, and names this set, none, or
/// one that keeps none: it is gone (`Retain` leaves them), or may not serve the cluster.
fn is_ours(peer: &CalicoPeer, set: &str, sets: &BTreeSet<String>) -> bool {
    peer.ours && peer.set.as_deref().is_none_or(|name| name == set || !sets.contains(name))
}

impl BgpTopology {
    /// Puts nodes and Calico's objects together. `label` is the key of `nodeLabel`, `zone` that of
    /// the zone ("" for none), `set` this set's name, `sets` those of the ones that keep theirs.
    #[must_use]
    pub fn new(
        speakers: &[Speaker],
        snapshot: &Snapshot,
        (label, zone): (&str, &str),
        set: &str,
        sets: &BTreeSet<String>,
    ) -> Self {
        let mut bgp = Self {
            nodes: BTreeMap::new(),
            fabric: Fabric::new(vec![], vec![], false),
            second: None,
            families: Families::default(),
            ports: snapshot.listen_ports.clone(),
            ours: BTreeMap::new(),
            foreign: 0,
            taken: BTreeSet::new(),
            unreadable: snapshot.unreadable.clone(),
            routing: snapshot.routing.clone(),
        };
        let addresses: Vec<_> = speakers.iter().map(|one| addresses(one, snapshot)).collect();
        let peers = bgp.sort(snapshot, set, sets, &addresses);
        let mut texts = Asked::new(&peers, label);
        let (mut speaking, mut second) = (Vec::new(), Vec::new());
        let named = speakers.iter().map(|speaker| &speaker.name);
        let families = Families::of(named.zip(addresses.iter().copied()));
        let none = Texts::default();
        for (speaker, addresses) in speakers.iter().zip(addresses) {
            // Calico selects by the labels of its own Nodes, if it has any.
            let of_calico = snapshot.labels.as_ref();
            let labels =
                of_calico.map_or(&speaker.labels, |all| all.get(&speaker.name).unwrap_or(&none));
            let labels = texts.of(labels);
            let known = of_calico.is_none_or(|all| all.contains_key(&speaker.name));
            let differs = |key: &&str| labels.get(key) != of(speaker, key);
            // Calico's decides. One that only Kubernetes' Node has is left from a demotion of which
            // the second write is missing.
            let left = of(speaker, SLOT_LABEL).filter(|_| known);
            let slot = labels.get(SLOT_LABEL).or(left);
            let group = labels.get(GROUP_LABEL);
            // Where Calico has its own Nodes, an annotation is left from another datastore.
            let annotated = || {
                let id = annotation(speaker, CLUSTER_ID_ANNOTATION);
                id.filter(|_| of_calico.is_none())?.parse().ok()
            };
            let cluster_id = snapshot.cluster_ids.get(&speaker.name).copied().or_else(annotated);
            let address = addresses.of(families.first);
            let carried = ReflectorLabels {
                label: labels.get(label).map(Into::into),
                slot: slot.and_then(|slot| slot.parse().ok()),
                // One that Kubernetes' Node lacks is written again to both.
                group: group.filter(|_| !differs(&GROUP_LABEL)).map(Into::into),
                cluster_id,
            };
            let copies = Copies {
                differ: [label, SLOT_LABEL, GROUP_LABEL].iter().any(differs),
                labeled: labels.get(label).is_some() && !differs(&label),
                grouped: group.or(of(speaker, GROUP_LABEL)).is_some(),
            };
            if address.is_some() {
                let up = speaker.readiness == Readiness::Ready;
                let name = Arc::clone(&speaker.name);
                let node = Node { name, address, labels, cluster_id, up };
                if let Some(address) = families.second.and_then(|family| addresses.of(family)) {
                    second.push(Node { address: Some(address), ..node.clone() });
                }
                speaking.push(node);
            }
            let zone = speaker.labels.get(zone).filter(|zone| !zone.is_empty()).cloned();
            let complete = families.are_spoken(addresses);
            let incarnation = speaker.incarnation;
            let other_as = is_of_other_as(speaker, snapshot);
            let labels = carried;
            let node =
                BgpNode { incarnation, labels, zone, address, other_as, complete, known, copies };
            bgp.nodes.insert(Arc::clone(&speaker.name), node);
        }
        if families.second.is_some() {
            bgp.second = Some(Fabric::new(second, peers.clone(), snapshot.mesh));
        }
        bgp.families = families;
        bgp.fabric = Fabric::new(speaking, peers, snapshot.mesh);
        bgp
    }

    /// Separates our BGPPeers from others; returns those that create sessions between nodes.
    fn sort(
        &mut self,
        snapshot: &Snapshot,
        set: &str,
        sets: &BTreeSet<String>,
        addresses: &[Addresses],
    ) -> Vec<Peer> {
        let is_node = |address: &str| {
            let address = host(address);
            addresses.iter().any(|a| address.is_some() && (a.v4 == address || a.v6 == address))
        };
        let mut peers = Vec::new();
        for peer in &snapshot.peers {
            if is_ours(peer, set, sets) {
                let ours = OurPeer {
                    node_selector: peer.node_selector.clone().unwrap_or_default(),
                    peer_selector: peer.peer_selector.clone().unwrap_or_default(),
                    version: peer.version.clone(),
                };
                self.ours.insert(peer.name.clone(), ours);
            } else {
                self.foreign += 1;
                self.taken.insert(peer.name.clone());
            }
            match understood(peer) {
                Some(Ok(peer)) => peers.push(peer),
                // It creates no session between nodes.
                None => {}
                // It is written again.
                Some(Err(_)) if self.ours.contains_key(&peer.name) => {}
                Some(Err(_)) if peer.peer_ip.as_ref().is_some_and(|ip| !is_node(ip)) => {}
                Some(Err(unreadable)) => self.unreadable.push(unreadable),
            }
        }
        peers
    }

    /// Returns the peerings in each covered address family.
    pub fn families(&self) -> impl Iterator<Item = &Fabric> {
        [&self.fabric].into_iter().chain(&self.second)
    }

    /// Succeeds if no object of another owner is unknown that Calico may apply.
    ///
    /// # Errors
    /// The first one.
    pub fn known(&self) -> Result<(), GateClosed> {
        let unknown = self.unreadable.iter().find(|object| !object.ignored);
        unknown.map_or(Ok(()), |object| Err(GateClosed::Unreadable(object.clone())))
    }

    /// Returns the BGPPeers to the outside that only some nodes have, and the nodes whose routes
    /// reach these, or theirs the nodes, by way of another node. Nodes that are divided among such
    /// peers, as racks are among their routers, depend on no other.
    #[must_use]
    pub fn by_way_of_others(&self) -> (Vec<&str>, Vec<&str>) {
        let is_node = |address: &IpAddr| {
            self.families()
                .any(|fabric| fabric.nodes().iter().any(|node| node.address == Some(*address)))
        };
        let nodes = self.fabric.nodes();
        let outside = self.fabric.peers().iter().filter_map(|peer| {
            let to = matches!(&peer.remote, Remote::Address(address) if !is_node(address));
            let of = nodes.iter().filter(|node| peer.local.is(node)).map(|node| &*node.name);
            let of: BTreeSet<&str> = of.collect();
            (to && !of.is_empty() && of.len() < nodes.len()).then_some((&*peer.name, of))
        });
        let outside: Vec<_> = outside.collect();
        let parts: BTreeSet<&BTreeSet<&str>> = outside.iter().map(|(_, of)| of).collect();
        let depends = |node: &&str| parts.iter().filter(|part| part.contains(node)).count() != 1;
        let names = nodes.iter().map(|node| &*node.name);
        let nodes = names.filter(|node| !parts.is_empty() && depends(node)).collect();
        (outside.iter().map(|(peer, _)| *peer).collect(), nodes)
    }

    /// Returns the port of a node's BIRD, if its configuration sets one.
    #[must_use]
    pub fn port(&self, node: &str) -> Option<u16> {
        self.ports.nodes.get(node).copied().or(self.ports.all)
    }

    /// The zone of a node, if it has one.
    #[must_use]
    pub fn zone(&self, node: &str) -> Option<&Arc<str>> {
        self.nodes.get(node)?.zone.as_ref()
    }

    /// Returns the labels and annotations of a node.
    #[must_use]
    pub fn labels(&self, node: &str) -> Option<&ReflectorLabels> {
        self.nodes.get(node).map(|node| &node.labels)
    }

    /// Nodes of which Kubernetes and Calico have different labels of ours, by name.
    pub fn differing(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.iter().filter(|(_, node)| node.copies.differ).map(|(name, _)| name)
    }

    /// The nodes that reflect routes, by name.
    pub fn reflectors(&self) -> impl Iterator<Item = (&Arc<str>, &ReflectorLabels)> {
        let all = self.nodes.iter().map(|(name, node)| (name, &node.labels));
        all.filter(|(_, labels)| labels.is_reflector())
    }
}

/// The labels that are used: with all labels of a cloud provider, 5,000 nodes would be megabytes.
/// Equal ones are kept once.
struct Asked<'a> {
    keys: BTreeSet<&'a str>,
    known: HashMap<Vec<(&'a str, &'a str)>, Labels>,
}

impl<'a> Asked<'a> {
    fn new(peers: &'a [Peer], label: &'a str) -> Self {
        let ours = [label, SLOT_LABEL, GROUP_LABEL];
        let keys = peers.iter().flat_map(Peer::keys).chain(ours).collect();
        Self { keys, known: HashMap::new() }
    }

    fn of(&mut self, labels: &'a Texts) -> Labels {
        let labels = labels.iter().map(|(key, value)| (&**key, &**value));
        let asked: Vec<_> = labels.filter(|(key, _)| self.keys.contains(key)).collect();
        let new = |asked: &Vec<(&str, &str)>| asked.iter().copied().collect();
        self.known.entry(asked).or_insert_with_key(new).clone()
    }
}

/// A label of Kubernetes' Node.
fn of<'a>(speaker: &'a Speaker, key: &str) -> Option<&'a str> {
    speaker.labels.get(key).map(|value| &**value)
}

/// Reports whether a node is of another AS than the cluster, or of one that cannot be read.
fn is_of_other_as(speaker: &Speaker, snapshot: &Snapshot) -> bool {
    let as_number = snapshot.as_number;
    match &snapshot.speakers {
        Some(all) => {
            all.get(&speaker.name).is_some_and(|(_, own)| own.is_some_and(|own| own != as_number))
        }
        None => {
            annotation(speaker, BGP_AS_ANNOTATION).is_some_and(|own| own.parse() != Ok(as_number))
        }
    }
}

/// The addresses that a node speaks BGP with, if it is of the cluster's AS.
fn addresses(speaker: &Speaker, snapshot: &Snapshot) -> Addresses {
    if is_of_other_as(speaker, snapshot) {
        return Addresses::default();
    }
    if let Some(speakers) = &snapshot.speakers {
        return speakers.get(&speaker.name).map(|(addresses, _)| *addresses).unwrap_or_default();
    }
    let [v4, v6] = BGP_ADDRESS_ANNOTATIONS.map(|key| annotation(speaker, key));
    Addresses::parse(v4, v6)
}

fn annotation<'a>(speaker: &'a Speaker, key: &str) -> Option<&'a str> {
    speaker.calico.get(key).map(|value| &**value).filter(|value| !value.is_empty())
}

/// Returns the peerings of a BGPPeer; `None` if it makes no session between nodes.
///
/// # Errors
/// A selector that cannot be read.
fn understood(peer: &CalicoPeer) -> Option<Result<Peer, Unreadable>> {
    let read = |field: &str, text: &str| {
        Selector::parse(text).map_err(|error| Unreadable {
            object: format!("BGPPeer {}", peer.name),
            why: format!("spec.{field} {error}"),
            ignored: !error.is_depth(),
        })
    };
    let remote = match (&peer.peer_selector, &peer.peer_ip) {
        (Some(text), _) => match read("peerSelector", text) {
            Ok(selector) => Remote::Selected(selector),
            Err(error) => return Some(Err(error)),
        },
        (None, Some(address)) => Remote::Address(host(address)?),
        (None, None) => return None,
    };
    let local = match (&peer.node, &peer.node_selector) {
        (Some(node), _) => Local::Node(node.as_str().into()),
        (None, Some(text)) => match read("nodeSelector", text) {
            Ok(selector) => Local::Selected(selector),
            Err(error) => return Some(Err(error)),
        },
        (None, None) => Local::All,
    };
    Some(Ok(Peer { name: peer.name.as_str().into(), local, remote, reverse: peer.reverse }))
}

/// `10.0.0.1`, `10.0.0.1:179`, `fd00::1`, `[fd00::1]:179`.
fn host(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    text.parse::<std::net::SocketAddr>().ok().map(|address| address.ip())
}

#[cfg(test)]
mod tests;
