//! From what is there to what is to be, by single writes.
//!
//! Nothing is remembered: at each pass the writes that are still missing are listed in the order in
//! which they keep routes, and the first that is *admissible* is taken. A write is admissible if the
//! sessions that exist before and after it, unchanged on both ends, alone carry every route
//! between nodes that it does not change, and if afterwards the loss of one reflector costs no more than
//! it did. So it does not matter where the last process died, nor what others changed meanwhile.
//!
//! Where clients of one reflector would be cut off from those of another on the way (from the mesh to
//! zones, from one topology to another), everybody also peers with the reflectors of one zone, the
//! *bridge* ([`WIDE`]): they alone would be enough, and the others can be changed one by one. It is taken away
//! last. With all reflectors in place of these few, nodes would hold too many paths on the way.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::Ipv4Addr,
    sync::Arc,
};

use super::{
    actual::{Ground, Marks, OurPeer},
    fabric::{Change, Fabric, Labels, Local, Node, Peer, Remote, Rule, Selector},
    planner::{PeerSpec, Slot, wide_peer},
};
use crate::api::{GROUP_LABEL, SLOT_LABEL};

mod admission;

pub use admission::{Refused, sound};

/// The BGPPeer of clients to every reflector: the original's; between topologies, to the bridge.
pub const WIDE: &str = "peer-to-rrs-1";

/// The BGPPeer between reflectors.
pub const BETWEEN: &str = "rrs-to-rrs";

/// Reflectors of a bridge: two may fail.
const BRIDGE: usize = 3;

/// How many nodes that have just joined are given their group at once: each loses its own routes for a
/// moment, and has little to lose.
const JOINING: usize = 10;

/// What is to be.
#[derive(Clone, Debug)]
pub struct Goal {
    /// Key and value of the label of reflectors.
    pub label: (Arc<str>, Arc<str>),
    /// Who reflects.
    pub slots: Vec<Slot>,
    /// The group of each client; `None` where there are no groups.
    pub groups: Option<BTreeMap<Arc<str>, Arc<str>>>,
    /// Our BGPPeers.
    pub peers: Vec<PeerSpec>,
    /// Whether the mesh is to be on, if that is ours to say.
    pub mesh: Option<bool>,
    /// How many nodes of a zone may change at once.
    pub max_per_zone: usize,
}

impl Goal {
    /// The network that is aimed at.
    fn fabric(&self, ground: &Ground) -> Fabric {
        let (key, value) = (&*self.label.0, &*self.label.1);
        let nodes = ground.fabric.nodes().iter().map(|node| {
            if let Some(slot) = self.slots.iter().find(|slot| slot.node == node.name) {
                let labels = marked(&node.labels, key, value, slot.id);
                return Node { labels, cluster_id: Some(slot.cluster_id), ..node.clone() };
            }
            let ours = ground.marks(&node.name).is_some_and(Marks::is_reflector);
            let group = self.groups.as_ref().and_then(|groups| groups.get(&node.name));
            let labels = if ours {
                node.labels.with(&[
                    (key, None),
                    (SLOT_LABEL, None),
                    (GROUP_LABEL, group.map(|g| &**g)),
                ])
            } else if node.labels.get(GROUP_LABEL) == group.map(|group| &**group) {
                return node.clone();
            } else {
                node.labels.with(&[(GROUP_LABEL, group.map(|group| &**group))])
            };
            let cluster_id = node.cluster_id.filter(|_| !ours);
            Node { labels, cluster_id, ..node.clone() }
        });
        let others = ground.fabric.peers().iter();
        let others = others.filter(|peer| !ground.ours.contains_key(&*peer.name)).cloned();
        let peers = others.chain(self.peers.iter().filter_map(parsed));
        let mesh = self.mesh.unwrap_or(ground.fabric.mesh());
        Fabric::new(nodes.collect(), peers.collect(), mesh)
    }
}

/// One write, or several of the same kind that are one round.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Group labels of clients. `joining`: their own routes may be interrupted.
    LabelClients {
        /// The nodes and their groups; `None` takes the label away.
        nodes: BTreeMap<Arc<str>, Option<Arc<str>>>,
        /// Whether the nodes have just joined.
        joining: bool,
    },
    /// A BGPPeer of ours. `widens`: it only adds sessions.
    WritePeer {
        /// What is written.
        peer: PeerSpec,
        /// Whether it takes none away.
        widens: bool,
    },
    /// A BGPPeer of ours goes.
    DeletePeer {
        /// Its name.
        name: String,
        /// What deleting it is tied to.
        version: String,
    },
    /// A node gets label, slot and cluster id, in one patch.
    Mark {
        /// What for.
        why: Why,
        /// Slots with their nodes: of one zone.
        slots: Vec<Slot>,
    },
    /// Nodes of one zone lose them, and get a group.
    Demote {
        /// The nodes, their slots and groups.
        nodes: Vec<Leaver>,
    },
    /// Calico's node-to-node mesh.
    Mesh(bool),
}

/// Why a node is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It reflects already; only the slot is written.
    Adopt,
    /// It becomes a reflector.
    Promote,
    /// It gets another cluster id.
    Renumber,
}

/// A node that is to reflect no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaver {
    /// The node.
    pub node: Arc<str>,
    /// The slot it held.
    pub slot: Option<u32>,
    /// The group it is a client in from then on.
    pub group: Option<Arc<str>>,
}

impl Step {
    /// The word of the status.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::LabelClients { .. } => "LabelClients",
            Self::WritePeer { .. } => "WritePeer",
            Self::DeletePeer { .. } => "DeletePeer",
            Self::Mark { why: Why::Adopt, .. } => "Adopt",
            Self::Mark { why: Why::Promote, .. } => "Promote",
            Self::Mark { why: Why::Renumber, .. } => "Renumber",
            Self::Demote { .. } => "Demote",
            Self::Mesh(true) => "MeshOn",
            Self::Mesh(false) => "MeshOff",
        }
    }

    /// The phase that the set is in while it is being done.
    #[must_use]
    pub fn phase(&self) -> &'static str {
        match self {
            Self::LabelClients { .. } => "Labelling",
            Self::WritePeer { widens: true, .. } => "Widening",
            Self::WritePeer { .. } | Self::DeletePeer { .. } => "Narrowing",
            Self::Mark { why: Why::Renumber, .. } => "Renumbering",
            Self::Mark { .. } => "Promoting",
            Self::Demote { .. } => "Demoting",
            Self::Mesh(true) => "RestoringMesh",
            Self::Mesh(false) => "SwitchingMesh",
        }
    }

    /// The nodes whose own routes it interrupts.
    #[must_use]
    pub fn changed(&self) -> BTreeSet<Arc<str>> {
        match self {
            Self::LabelClients { nodes, joining: true } => nodes.keys().cloned().collect(),
            Self::Mark { why: Why::Promote | Why::Renumber, slots } => {
                slots.iter().map(|slot| Arc::clone(&slot.node)).collect()
            }
            Self::Demote { nodes } => nodes.iter().map(|leaver| Arc::clone(&leaver.node)).collect(),
            _ => BTreeSet::new(),
        }
    }

    /// Whether it stands on sessions being established, and not only on there being some.
    #[must_use]
    pub fn needs_gate(&self) -> bool {
        match self {
            Self::LabelClients { joining, .. } => *joining,
            Self::WritePeer { widens, .. } => !widens,
            Self::DeletePeer { .. } | Self::Demote { .. } | Self::Mesh(false) => true,
            Self::Mark { why, .. } => *why != Why::Adopt,
            Self::Mesh(true) => false,
        }
    }

    /// The network after it.
    #[must_use]
    pub fn after(&self, before: &Fabric, key: &str, value: &str) -> Fabric {
        let with_peers =
            |peers: Vec<Peer>| Fabric::new(before.nodes().to_vec(), peers, before.mesh());
        let others = |name: &str| {
            let others = before.peers().iter().filter(|peer| *peer.name != *name);
            others.cloned().collect::<Vec<_>>()
        };
        let with_nodes = |change: &dyn Fn(&Node) -> Option<Node>| {
            let nodes = before.nodes().iter();
            let nodes = nodes.map(|node| change(node).unwrap_or_else(|| node.clone()));
            Fabric::new(nodes.collect(), before.peers().to_vec(), before.mesh())
        };
        match self {
            Self::LabelClients { nodes, .. } => with_nodes(&|node| {
                let group = nodes.get(&node.name)?;
                let labels = node.labels.with(&[(GROUP_LABEL, group.as_deref())]);
                Some(Node { labels, ..node.clone() })
            }),
            Self::WritePeer { peer, .. } => {
                let mut peers = others(&peer.name);
                peers.extend(parsed(peer));
                with_peers(peers)
            }
            Self::DeletePeer { name, .. } => with_peers(others(name)),
            Self::Mark { slots, .. } => with_nodes(&|node| {
                let slot = slots.iter().find(|slot| slot.node == node.name)?;
                let labels = marked(&node.labels, key, value, slot.id);
                Some(Node { labels, cluster_id: Some(slot.cluster_id), ..node.clone() })
            }),
            Self::Demote { nodes } => with_nodes(&|node| {
                let leaver = nodes.iter().find(|leaver| leaver.node == node.name)?;
                let group = leaver.group.as_deref();
                let labels =
                    node.labels.with(&[(key, None), (SLOT_LABEL, None), (GROUP_LABEL, group)]);
                Some(Node { labels, cluster_id: None, ..node.clone() })
            }),
            Self::Mesh(on) => Fabric::new(before.nodes().to_vec(), before.peers().to_vec(), *on),
        }
    }
}

/// One line for people.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LabelClients { nodes, .. } => {
                write!(f, "giving {} nodes their group", nodes.len())
            }
            Self::WritePeer { peer, .. } => write!(f, "writing BGPPeer {}", peer.name),
            Self::DeletePeer { name, .. } => write!(f, "deleting BGPPeer {name}"),
            Self::Mark { why, slots } => {
                let word = match why {
                    Why::Adopt => "adopting",
                    Why::Promote => "promoting",
                    Why::Renumber => "giving another cluster id to",
                };
                write!(f, "{word} {}", names(slots.iter().map(|slot| &*slot.node)))
            }
            Self::Demote { nodes } => {
                write!(f, "demoting {}", names(nodes.iter().map(|leaver| &*leaver.node)))
            }
            Self::Mesh(true) => f.write_str("switching the mesh on"),
            Self::Mesh(false) => f.write_str("switching the mesh off"),
        }
    }
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// The labels of a reflector: one that has `key` already keeps its value.
fn marked(labels: &Labels, key: &str, value: &str, slot: u32) -> Labels {
    let value = labels.get(key).unwrap_or(value);
    labels.with(&[(key, Some(value)), (SLOT_LABEL, Some(&slot.to_string())), (GROUP_LABEL, None)])
}

/// One of our BGPPeers as who peers with whom. Ours can be read.
fn parsed(peer: &PeerSpec) -> Option<Peer> {
    Some(Peer {
        name: peer.name.as_str().into(),
        local: Local::Selected(Selector::parse(&peer.node_selector).ok()?),
        remote: Remote::Selected(Selector::parse(&peer.peer_selector).ok()?),
        reverse: true,
    })
}

/// The writes that are still missing, in the order in which they are tried.
#[must_use]
pub fn pending(ground: &Ground, goal: &Goal) -> Vec<Step> {
    let mut steps = vec![];
    if goal.mesh == Some(true) && !ground.fabric.mesh() {
        steps.push(Step::Mesh(true));
    }
    steps.extend(adoptions(ground, goal));
    steps.extend(wider_peers(ground, goal));
    steps.extend(labels(ground, goal));
    steps.extend(narrower_bridge(ground, goal));
    steps.extend(marks(ground, goal, Why::Renumber));
    steps.extend(marks(ground, goal, Why::Promote));
    steps.extend(demotions(ground, goal));
    if steps.is_empty() {
        steps.extend(narrower_peers(ground, goal));
    } else {
        // The last resort: until these are right the others may have nothing to stand on.
        steps.extend(strange_peers(ground, goal));
    }
    if steps.is_empty() {
        steps.extend(unlabelled(ground, goal));
    }
    if steps.is_empty() && goal.mesh == Some(false) && ground.fabric.mesh() {
        steps.push(Step::Mesh(false));
    }
    steps
}

/// What a slot's node still needs, if anything.
fn needs(slot: &Slot, marks: &Marks) -> Option<Why> {
    if !marks.is_reflector() || marks.label.is_none() {
        return Some(Why::Promote);
    }
    if marks.cluster_id != Some(slot.cluster_id) {
        return Some(Why::Renumber);
    }
    (marks.slot != Some(slot.id) || marks.group.is_some()).then_some(Why::Adopt)
}

fn adoptions(ground: &Ground, goal: &Goal) -> Option<Step> {
    let adopts = |slot: &&Slot| {
        ground.marks(&slot.node).is_some_and(|marks| needs(slot, marks) == Some(Why::Adopt))
    };
    let slots: Vec<_> = goal.slots.iter().filter(adopts).cloned().collect();
    (!slots.is_empty()).then_some(Step::Mark { why: Why::Adopt, slots })
}

/// Rounds of nodes of one zone each.
fn marks(ground: &Ground, goal: &Goal, why: Why) -> Vec<Step> {
    let mut by_zone: BTreeMap<Option<&Arc<str>>, Vec<Slot>> = BTreeMap::new();
    for slot in &goal.slots {
        if ground.marks(&slot.node).is_some_and(|marks| needs(slot, marks) == Some(why)) {
            by_zone.entry(slot.zone.as_ref()).or_default().push(slot.clone());
        }
    }
    let rounds = by_zone.into_values().flat_map(|slots| {
        let rounds: Vec<_> = slots.chunks(goal.max_per_zone.max(1)).map(<[_]>::to_vec).collect();
        rounds
    });
    rounds.map(|slots| Step::Mark { why, slots }).collect()
}

/// Nobody is demoted whose place is not taken yet.
fn demotions(ground: &Ground, goal: &Goal) -> Vec<Step> {
    let holder = |slot: u32| goal.slots.iter().find(|goal| goal.id == slot);
    let mut by_zone: BTreeMap<Option<Arc<str>>, Vec<Leaver>> = BTreeMap::new();
    for (node, marks) in ground.reflectors() {
        if goal.slots.iter().any(|slot| slot.node == *node) {
            continue;
        }
        let taken = marks.slot.and_then(holder).is_none_or(|slot| {
            ground.marks(&slot.node).is_some_and(|marks| needs(slot, marks).is_none())
        });
        if taken {
            let group = goal.groups.as_ref().and_then(|groups| groups.get(node).cloned());
            let leaver = Leaver { node: Arc::clone(node), slot: marks.slot, group };
            by_zone.entry(leaver.group.clone()).or_default().push(leaver);
        }
    }
    let rounds = by_zone.into_values().flat_map(|leavers| {
        let rounds: Vec<_> = leavers.chunks(goal.max_per_zone.max(1)).map(<[_]>::to_vec).collect();
        rounds
    });
    rounds.map(|nodes| Step::Demote { nodes }).collect()
}

/// BGPPeers that are missing or can be widened.
fn wider_peers(ground: &Ground, goal: &Goal) -> Vec<Step> {
    let mut wanted = goal.peers.clone();
    let planned = wanted.iter().position(|peer| peer.name == WIDE);
    match planned {
        // While reflectors are of several ids, not everybody can have all of them.
        Some(place) if !marks(ground, goal, Why::Renumber).is_empty() => {
            wanted[place] = growing_bridge(ground, goal);
        }
        None if needs_bridge(ground, goal) => wanted.push(bridge(ground, goal)),
        _ => {}
    }
    // Those that everybody's sessions come from are there before those of a group.
    wanted.sort_by_key(|peer| (peer.name != BETWEEN, peer.name != WIDE));
    let steps = wanted.into_iter().filter_map(|peer| {
        let Some(there) = ground.ours.get(&peer.name) else {
            return Some(Step::WritePeer { peer, widens: true });
        };
        if peer.name == WIDE && planned.is_none() {
            return None;
        }
        let both = union(there, &peer)?;
        (both != as_spec(&peer.name, there)).then_some(Step::WritePeer { peer: both, widens: true })
    });
    steps.collect()
}

/// On the way to one id for all: the reflectors that have it, and the next that is to get it. Reflectors of one
/// id must have the same clients, so each has all of them before it gets the id.
fn growing_bridge(ground: &Ground, goal: &Goal) -> PeerSpec {
    let ids: BTreeSet<_> = goal.slots.iter().map(|slot| slot.cluster_id).collect();
    let right = ground
        .reflectors()
        .filter(|(_, marks)| marks.cluster_id.is_some_and(|id| ids.contains(&id)));
    let mut slots: BTreeSet<u32> = right.filter_map(|(_, marks)| marks.slot).collect();
    let next = marks(ground, goal, Why::Renumber).into_iter().find_map(|step| match step {
        Step::Mark { slots, .. } => slots.first().map(|slot| slot.id),
        _ => None,
    });
    slots.extend(next);
    PeerSpec { peer_selector: slot_selector(&slots), ..wide_peer(&goal.label.0) }
}

/// The peer of all clients with all reflectors becomes the bridge before reflectors get ids of their zones.
fn narrower_bridge(ground: &Ground, goal: &Goal) -> Option<Step> {
    let there = ground.ours.get(WIDE)?;
    let is_planned = goal.peers.iter().any(|peer| peer.name == WIDE);
    let all = wide_peer(&goal.label.0);
    let renumbers = !marks(ground, goal, Why::Renumber).is_empty();
    (!is_planned && renumbers && there.peer_selector == all.peer_selector)
        .then(|| Step::WritePeer { peer: bridge(ground, goal), widens: false })
}

/// All clients with the reflectors of one zone: of one whose reflectors have their ids already, if there is
/// one, else of the first.
fn bridge(ground: &Ground, goal: &Goal) -> PeerSpec {
    let mut by_id: BTreeMap<Ipv4Addr, (Vec<u32>, usize)> = BTreeMap::new();
    for slot in &goal.slots {
        let id = ground.marks(&slot.node).and_then(|marks| marks.cluster_id);
        let (slots, right) = by_id.entry(id.unwrap_or(slot.cluster_id)).or_default();
        slots.push(slot.id);
        *right += usize::from(id == Some(slot.cluster_id));
    }
    let best = by_id.into_values().rev().max_by_key(|(slots, right)| (*right, slots.len() > 1));
    let slots = best.map(|(slots, _)| slots).unwrap_or_default();
    let slots: BTreeSet<u32> = slots.into_iter().take(BRIDGE).collect();
    PeerSpec { peer_selector: slot_selector(&slots), ..wide_peer(&goal.label.0) }
}

/// The bridge on the way back to the mesh: all clients with reflectors of one id.
#[must_use]
pub fn way_back(ground: &Ground, key: &str) -> PeerSpec {
    let mut by_id: BTreeMap<Ipv4Addr, BTreeSet<u32>> = BTreeMap::new();
    for (_, marks) in ground.reflectors() {
        if let (Some(id), Some(slot)) = (marks.cluster_id, marks.slot) {
            by_id.entry(id).or_default().insert(slot);
        }
    }
    let most = by_id.into_values().max_by_key(BTreeSet::len).unwrap_or_default();
    let slots = most.into_iter().take(BRIDGE).collect();
    PeerSpec { peer_selector: slot_selector(&slots), ..wide_peer(key) }
}

fn as_spec(name: &str, peer: &OurPeer) -> PeerSpec {
    PeerSpec {
        name: name.into(),
        node_selector: peer.node_selector.clone(),
        peer_selector: peer.peer_selector.clone(),
    }
}

/// The same clients with the reflectors of both; `None` if that cannot be said by one peer.
fn union(there: &OurPeer, wanted: &PeerSpec) -> Option<PeerSpec> {
    if there.peer_selector == wanted.peer_selector && there.node_selector == wanted.node_selector {
        return None;
    }
    let mut slots = slots(&there.peer_selector)?;
    slots.extend(self::slots(&wanted.peer_selector)?);
    (there.node_selector == wanted.node_selector)
        .then(|| PeerSpec { peer_selector: slot_selector(&slots), ..wanted.clone() })
}

/// The selector of the nodes that hold one of these slots.
#[must_use]
pub fn slot_selector(slots: &BTreeSet<u32>) -> String {
    let slots: Vec<_> = slots.iter().map(|slot| format!("'{slot}'")).collect();
    format!("{SLOT_LABEL} in {{{}}}", slots.join(", "))
}

/// The slots of a selector as [`slot_selector`] writes it.
fn slots(selector: &str) -> Option<BTreeSet<u32>> {
    let list = selector.strip_prefix(SLOT_LABEL)?.strip_prefix(" in {")?.strip_suffix('}')?;
    list.split(", ").map(|slot| slot.trim_matches('\'').parse().ok()).collect()
}

/// Whether somebody would be cut off on the way if clients only had the reflectors of their group.
fn needs_bridge(ground: &Ground, goal: &Goal) -> bool {
    let reflects = |slot: &u32| {
        let holder = goal.slots.iter().find(|goal| goal.id == *slot);
        holder.is_some_and(|slot| {
            ground.marks(&slot.node).is_some_and(|marks| needs(slot, marks) != Some(Why::Promote))
        }) || ground.reflectors().any(|(_, marks)| marks.slot == Some(*slot))
    };
    let of_groups = goal.peers.iter().filter(|peer| peer.name != BETWEEN && peer.name != WIDE);
    of_groups.into_iter().any(|peer| {
        !ground.ours.contains_key(&peer.name)
            || slots(&peer.peer_selector).is_some_and(|slots| !slots.iter().any(reflects))
    })
}

/// BGPPeers that are more than they are to be.
fn narrower_peers(ground: &Ground, goal: &Goal) -> Vec<Step> {
    let mut steps = vec![];
    for (name, there) in &ground.ours {
        match goal.peers.iter().find(|peer| peer.name == *name) {
            None => {
                steps.push(Step::DeletePeer { name: name.clone(), version: there.version.clone() });
            }
            Some(peer) if *peer != as_spec(name, there) => {
                steps.push(Step::WritePeer { peer: peer.clone(), widens: false });
            }
            Some(_) => {}
        }
    }
    steps
}

/// BGPPeers that are ours and say what we would never have written: handed over by somebody, or changed.
fn strange_peers(ground: &Ground, goal: &Goal) -> Vec<Step> {
    let steps = narrower_peers(ground, goal).into_iter();
    let strange = |name: &str| {
        ground.ours.get(name).is_some_and(|there| slots(&there.peer_selector).is_none())
    };
    steps
        .filter(|step| matches!(step, Step::WritePeer { peer, .. } if strange(&peer.name)))
        .collect()
}

/// Clients whose group is another: all at once if that is possible, else those that have joined by tens,
/// and others one by one.
fn labels(ground: &Ground, goal: &Goal) -> Vec<Step> {
    let Some(groups) = &goal.groups else { return vec![] };
    let (mut joined, mut moved) = (BTreeMap::new(), BTreeMap::new());
    for (node, actual) in &ground.nodes {
        let group = groups.get(node);
        if actual.marks.is_reflector() || actual.marks.group.as_ref() == group {
            continue;
        }
        let Some(group) = group else { continue };
        let to = if actual.marks.group.is_none() { &mut joined } else { &mut moved };
        to.insert(Arc::clone(node), Some(Arc::clone(group)));
    }
    if joined.is_empty() && moved.is_empty() {
        return vec![];
    }
    let mut steps = vec![];
    let all = joined.clone().into_iter().chain(moved.clone()).collect();
    steps.push(Step::LabelClients { nodes: all, joining: false });
    let some = |nodes: BTreeMap<_, _>, most| Step::LabelClients {
        nodes: nodes.into_iter().take(most).collect(),
        joining: true,
    };
    if !joined.is_empty() {
        steps.push(some(joined, JOINING));
    }
    if !moved.is_empty() {
        steps.push(some(moved, 1));
    }
    steps
}

/// Group labels where there are no groups (any more).
fn unlabelled(ground: &Ground, goal: &Goal) -> Option<Step> {
    if goal.groups.is_some() {
        return None;
    }
    let labelled = ground.nodes.iter().filter(|(_, actual)| actual.marks.group.is_some());
    let nodes: BTreeMap<_, _> = labelled.map(|(node, _)| (Arc::clone(node), None)).collect();
    (!nodes.is_empty()).then_some(Step::LabelClients { nodes, joining: false })
}

#[cfg(test)]
mod tests;
