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
    sync::Arc,
};

use super::{
    actual::{Ground, Marks},
    fabric::{Change, Fabric, Labels, Local, Node, Peer, Remote, Rule, Selector},
    planner::{PeerSpec, Slot},
};
use crate::api::{GROUP_LABEL, SLOT_LABEL};

mod admission;
mod pending;

pub use admission::{Refused, sound};
pub use pending::{pending, slot_selector, way_back};

/// The BGPPeer of clients to every reflector: the original's; between topologies, to the bridge.
pub const WIDE: &str = "peer-to-rrs-1";

/// The BGPPeer between reflectors.
pub const BETWEEN: &str = "rrs-to-rrs";

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

#[cfg(test)]
mod tests;
