//! The steps from the current state to the target, by single writes.
//!
//! Nothing is remembered: each pass lists the missing steps, in the order that keeps routes, and
//! takes the first that is *admissible*. A step is admissible if the sessions that exist before and
//! after it, unchanged on both ends, alone carry every route between living nodes that it does not
//! change, and if afterwards the loss of one reflector costs no more than before. BIRD's rule
//! decides (see [`Rule`]). So neither the point at which the last process ended nor changes by
//! others matter.
//!
//! Repair comes first and is never refused or gated: a node that takes the slot of a node that is
//! down takes no route away from any other node ([`Why::Repair`]).
//!
//! A [`Step`] is a decision; its [`Write`]s are the same for the oracle, the dry run and the API
//! server.
//!
//! Where clients of one reflector would be cut off from those of another during a transition (from
//! the mesh to zones, from one topology to another), all nodes also peer with the reflectors of one
//! zone, the *bridge* ([`WIDE`]): these alone would be sufficient, and the others can be changed
//! one by one. The bridge is removed last. With all reflectors in place of these few, nodes would
//! hold too many paths during the transition.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::Ipv4Addr,
    sync::Arc,
};

use super::{
    bgp_model::{Change, Fabric, Labels, Local, Node, Peer, Remote, Rule, Selector},
    election::{PeerSpec, Slot},
    topology::{BgpTopology, ReflectorLabels},
};
use crate::{
    api::{GROUP_LABEL, SLOT_LABEL},
    nodes::Incarnation,
};

mod admission;
mod pending;

pub use admission::{Next, Refused, allowed, choose, refusal, sound};
pub use pending::{pending, way_back};

/// The BGPPeer of clients to every reflector: the original's; between topologies, to the bridge.
pub const WIDE: &str = "peer-to-rrs-1";

/// The BGPPeer between reflectors.
pub const BETWEEN: &str = "rrs-to-rrs";

/// The target.
#[derive(Clone, Debug, Default)]
pub struct Goal {
    /// Key and value of the label of reflectors.
    pub label: (Arc<str>, Arc<str>),
    /// The reflectors.
    pub slots: Vec<Slot>,
    /// The group of each client; `None` where there are no groups.
    pub groups: Option<BTreeMap<Arc<str>, Arc<str>>>,
    /// The slots that no living node holds, with a holder that is down, gone, without the label of
    /// reflectors, or to be it again: a node that takes one repairs.
    pub vacant: BTreeSet<u32>,
    /// Our BGPPeers.
    pub peers: Vec<PeerSpec>,
    /// The desired state of the mesh, if the spec controls it.
    pub mesh: Option<bool>,
    /// The number of nodes of a zone that may change at once.
    pub max_per_zone: usize,
    /// No route depends on BGP, so that no step can lose one: all that is ours goes.
    pub retires: bool,
}

impl Goal {
    /// The network that is aimed at.
    pub(super) fn fabric(&self, bgp: &BgpTopology) -> Fabric {
        let (key, value) = (&*self.label.0, &*self.label.1);
        let nodes = bgp.fabric.nodes().iter().map(|node| {
            if let Some(slot) = self.slots.iter().find(|slot| slot.node == node.name) {
                let labels = marked(&node.labels, key, value, slot.id);
                return Node { labels, cluster_id: Some(slot.cluster_id), ..node.clone() };
            }
            let ours = bgp.labels(&node.name).is_some_and(ReflectorLabels::is_reflector);
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
        let others = bgp.fabric.peers().iter();
        let others = others.filter(|peer| !bgp.ours.contains_key(&*peer.name)).cloned();
        let peers = others.chain(self.peers.iter().filter_map(parsed));
        let mesh = self.mesh.unwrap_or(bgp.fabric.mesh());
        Fabric::new(nodes.collect(), peers.collect(), mesh)
    }
}

/// One write, or several of the same kind that are one round.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Group labels of clients. `joining`: their own routes may be interrupted.
    LabelClients {
        /// The nodes and their groups; `None` removes the label.
        nodes: BTreeMap<Arc<str>, Option<Arc<str>>>,
        /// True if the nodes have just joined.
        joining: bool,
    },
    /// BGPPeers of ours are written and deleted. `widens`: sessions are only added.
    Peers {
        /// The BGPPeers to write.
        write: Vec<PeerSpec>,
        /// Names of those that go, with the version that the decision rests on.
        delete: Vec<(String, String)>,
        /// True if it removes no session.
        widens: bool,
    },
    /// A node gets label, slot and cluster id, in one patch.
    Promote {
        /// The reason.
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

/// The word of a step and the objects that it changes: two equal ones do the same again.
pub type Deed = (&'static str, Vec<Arc<str>>);

/// Why a node is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It reflects already; only the slot is written.
    Adopt,
    /// It becomes a reflector in a slot with a holder that is down or gone.
    Repair,
    /// It becomes a reflector.
    Promote,
    /// It gets another cluster id.
    Renumber,
}

/// A node that should no longer reflect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaver {
    /// Name of the node.
    pub node: Arc<str>,
    /// The slot it held.
    pub slot: Option<u32>,
    /// The group it is a client in from then on.
    pub group: Option<Arc<str>>,
}

impl Step {
    /// Reports whether its only writes to Calico's data are on Kubernetes Nodes.
    #[must_use]
    pub fn writes_nodes(&self) -> bool {
        match self {
            Self::Promote { .. } | Self::Demote { .. } | Self::LabelClients { .. } => true,
            Self::Peers { .. } | Self::Mesh(_) => false,
        }
    }

    /// The name in the status.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::LabelClients { .. } => "LabelClients",
            Self::Peers { write, .. } if write.is_empty() => "DeletePeer",
            Self::Peers { .. } => "WritePeer",
            Self::Promote { why: Why::Adopt, .. } => "Adopt",
            Self::Promote { why: Why::Repair | Why::Promote, .. } => "Promote",
            Self::Promote { why: Why::Renumber, .. } => "Renumber",
            Self::Demote { .. } => "Demote",
            Self::Mesh(true) => "MeshOn",
            Self::Mesh(false) => "MeshOff",
        }
    }

    /// The objects that it writes.
    #[must_use]
    pub fn resource(&self) -> &'static str {
        match self {
            Self::Peers { .. } => "BGPPeer",
            Self::Mesh(_) => "BGPConfiguration",
            Self::LabelClients { .. } | Self::Promote { .. } | Self::Demote { .. } => "Node",
        }
    }

    /// Returns what it does to which objects.
    #[must_use]
    pub fn deed(&self) -> Deed {
        let objects = match self {
            Self::LabelClients { nodes, .. } => nodes.keys().cloned().collect(),
            Self::Peers { write, delete, .. } => {
                let written = write.iter().map(|peer| &*peer.name);
                written.chain(delete.iter().map(|(name, _)| &**name)).map(Arc::from).collect()
            }
            Self::Promote { slots, .. } => {
                slots.iter().map(|slot| Arc::clone(&slot.node)).collect()
            }
            Self::Demote { nodes } => nodes.iter().map(|leaver| Arc::clone(&leaver.node)).collect(),
            Self::Mesh(_) => vec![],
        };
        (self.word(), objects)
    }

    /// The activity of a set while it takes the step, which is the reason of the condition
    /// Converged.
    #[must_use]
    pub fn activity(&self) -> &'static str {
        match self {
            Self::LabelClients { .. } => "Labeling",
            Self::Peers { widens: true, .. } => "Widening",
            Self::Peers { .. } => "Narrowing",
            Self::Promote { why: Why::Renumber, .. } => "Renumbering",
            Self::Promote { .. } => "Promoting",
            Self::Demote { .. } => "Demoting",
            Self::Mesh(true) => "RestoringMesh",
            Self::Mesh(false) => "SwitchingMesh",
        }
    }

    /// Returns the nodes that lose their own routes for a moment.
    #[must_use]
    pub fn changed(&self) -> BTreeSet<Arc<str>> {
        match self {
            Self::LabelClients { nodes, joining: true } => nodes.keys().cloned().collect(),
            Self::Promote { why, slots } if *why != Why::Adopt => {
                slots.iter().map(|slot| Arc::clone(&slot.node)).collect()
            }
            Self::Demote { nodes } => nodes.iter().map(|leaver| Arc::clone(&leaver.node)).collect(),
            _ => BTreeSet::new(),
        }
    }

    /// Reports whether it depends on established sessions, and not only on configured ones.
    #[must_use]
    pub fn needs_gate(&self) -> bool {
        match self {
            Self::LabelClients { joining, .. } => *joining,
            Self::Peers { widens, .. } => !widens,
            Self::Demote { .. } | Self::Mesh(false) => true,
            Self::Promote { why, .. } => matches!(why, Why::Promote | Why::Renumber),
            Self::Mesh(true) => false,
        }
    }

    /// Reports whether it puts a node into the slot of a dead one.
    #[must_use]
    pub fn repairs(&self) -> bool {
        matches!(self, Self::Promote { why: Why::Repair, .. })
    }

    /// The step, and then each of its parts: a round that is refused as a whole may be done one by
    /// one.
    pub fn tries(&self) -> impl Iterator<Item = Self> {
        let parts: Vec<Self> = match self {
            Self::Promote { why, slots } if slots.len() > 1 => {
                let part = |slot: &Slot| Self::Promote { why: *why, slots: vec![slot.clone()] };
                slots.iter().map(part).collect()
            }
            Self::Demote { nodes } if nodes.len() > 1 => {
                nodes.iter().map(|leaver| Self::Demote { nodes: vec![leaver.clone()] }).collect()
            }
            Self::Peers { write, delete, widens } if write.len() + delete.len() > 1 => {
                let part = |write, delete| Self::Peers { write, delete, widens: *widens };
                let writes = write.iter().map(|peer| part(vec![peer.clone()], vec![]));
                let deletes = delete.iter().map(|peer| part(vec![], vec![peer.clone()]));
                writes.chain(deletes).collect()
            }
            _ => vec![],
        };
        std::iter::once(self.clone()).chain(parts)
    }

    /// The network after it.
    #[must_use]
    pub fn after(&self, before: &Fabric, key: &str, value: &str) -> Fabric {
        let labeled =
            |node: &str| before.node(node).is_some_and(|node| node.labels.get(key).is_some());
        after(before, &self.writes((key, value), labeled))
    }
}

/// One line for people.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LabelClients { nodes, .. } => {
                write!(f, "assigning {} nodes to their group", nodes.len())
            }
            Self::Peers { write, delete, .. } => {
                let list = |f: &mut fmt::Formatter<'_>, verb: &str, all: Vec<&str>| match &*all {
                    [one] => write!(f, "{verb} BGPPeer {one}"),
                    _ => write!(f, "{verb} {} BGPPeers", all.len()),
                };
                if !write.is_empty() {
                    list(f, "writing", write.iter().map(|peer| &*peer.name).collect())?;
                }
                if !write.is_empty() && !delete.is_empty() {
                    f.write_str(" and ")?;
                }
                if !delete.is_empty() {
                    list(f, "deleting", delete.iter().map(|(name, _)| &**name).collect())?;
                }
                Ok(())
            }
            Self::Promote { why, slots } => {
                let word = match why {
                    Why::Adopt => "adopting",
                    Why::Repair | Why::Promote => "promoting",
                    Why::Renumber => "changing the cluster id of",
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

/// Returns the peerings of one of our BGPPeers, which can always be read.
fn parsed(peer: &PeerSpec) -> Option<Peer> {
    Some(Peer {
        name: peer.name.as_str().into(),
        local: Local::Selected(Selector::parse(&peer.node_selector).ok()?),
        remote: Remote::Selected(Selector::parse(&peer.peer_selector).ok()?),
        reverse: true,
    })
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// To a node: one patch where the cluster id is an annotation.
    Node(NodeWrite),
    /// A BGPPeer of ours as it becomes.
    Peer(PeerSpec),
    /// Delete a BGPPeer of ours, if it still has this version.
    DeletePeer {
        /// Name of the object to delete.
        name: String,
        /// Version of the object that was read, as a precondition.
        version: String,
    },
    /// Calico's node-to-node mesh.
    Mesh(bool),
}

/// The changes of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeWrite {
    /// Its name.
    pub node: Arc<str>,
    /// The node that the step is about: its successor of the same name gets nothing. `None` if it
    /// is about any.
    pub decided: Option<Incarnation>,
    /// Labels that get a value, or go. Others stay.
    pub labels: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// The cluster id that it gets, or loses.
    pub cluster_id: Option<Option<Ipv4Addr>>,
}

impl Step {
    /// Returns its writes, in order. `labeled` reports whether a node has the label of reflectors,
    /// whose value is then kept.
    pub fn writes(&self, (key, value): (&str, &str), labeled: impl Fn(&str) -> bool) -> Vec<Write> {
        let node = |node: &Arc<str>, labels: &[(&str, Option<&str>)], cluster_id| {
            let label =
                |(key, value): &(&str, Option<&str>)| ((*key).into(), value.map(Into::into));
            let labels = labels.iter().map(label).collect();
            Write::Node(NodeWrite { node: Arc::clone(node), decided: None, labels, cluster_id })
        };
        match self {
            Self::LabelClients { nodes, .. } => {
                let group = |(name, group): (&Arc<str>, &Option<Arc<str>>)| {
                    node(name, &[(GROUP_LABEL, group.as_deref())], None)
                };
                nodes.iter().map(group).collect()
            }
            Self::Peers { write, delete, .. } => {
                let writes = write.iter().cloned().map(Write::Peer);
                let deletes = delete.iter().cloned();
                let deletes = deletes.map(|(name, version)| Write::DeletePeer { name, version });
                writes.chain(deletes).collect()
            }
            Self::Promote { slots, .. } => {
                let mark = |slot: &Slot| {
                    let id = slot.id.to_string();
                    let own = [(key, Some(value)), (SLOT_LABEL, Some(&*id)), (GROUP_LABEL, None)];
                    let labels = if labeled(&slot.node) { &own[1..] } else { &own[..] };
                    node(&slot.node, labels, Some(Some(slot.cluster_id)))
                };
                slots.iter().map(mark).collect()
            }
            Self::Demote { nodes } => {
                let unmark = |leaver: &Leaver| {
                    let group = leaver.group.as_deref();
                    let labels = [(key, None), (SLOT_LABEL, None), (GROUP_LABEL, group)];
                    node(&leaver.node, &labels, Some(None))
                };
                nodes.iter().map(unmark).collect()
            }
            Self::Mesh(on) => vec![Write::Mesh(*on)],
        }
    }
}

impl Goal {
    /// The writes of a step on the way there.
    #[must_use]
    pub fn writes(&self, step: &Step, bgp: &BgpTopology) -> Vec<Write> {
        let labeled = |node: &str| bgp.nodes.get(node).is_some_and(|node| node.copies.labeled);
        let mut writes = step.writes((&self.label.0, &self.label.1), labeled);
        for write in &mut writes {
            if let Write::Node(write) = write {
                write.decided = bgp.nodes.get(&write.node).map(|node| node.incarnation);
            }
        }
        writes
    }
}

/// The network after these writes.
#[must_use]
pub fn after(before: &Fabric, writes: &[Write]) -> Fabric {
    let mut nodes = before.nodes().to_vec();
    let mut peers = before.peers().to_vec();
    let mut mesh = before.mesh();
    for write in writes {
        match write {
            Write::Node(write) => {
                let place = nodes.binary_search_by(|node: &Node| node.name.cmp(&write.node));
                let Some(node) = place.ok().map(|place| &mut nodes[place]) else { continue };
                let labels = write.labels.iter().map(|(key, value)| (&**key, value.as_deref()));
                node.labels = node.labels.with(&labels.collect::<Vec<_>>());
                node.cluster_id = write.cluster_id.unwrap_or(node.cluster_id);
            }
            Write::Peer(peer) => {
                peers.retain(|there| *there.name != *peer.name);
                peers.extend(parsed(peer));
            }
            Write::DeletePeer { name, .. } => peers.retain(|there| *there.name != **name),
            Write::Mesh(on) => mesh = *on,
        }
    }
    Fabric::new(nodes, peers, mesh)
}

#[cfg(test)]
mod tests;
