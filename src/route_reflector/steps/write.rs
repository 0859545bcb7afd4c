//! The writes of a step, which the oracle, the dry run and the API server all use.
use std::{net::Ipv4Addr, sync::Arc};

use super::{Goal, Step, parsed};
use crate::{
    api::{GROUP_LABEL, SLOT_LABEL},
    nodes::Incarnation,
    route_reflector::{
        bgp_model::{Fabric, Node},
        election::PeerSpec,
        topology::BgpTopology,
    },
};

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
                let mark = |slot: &super::Slot| {
                    let id = slot.id.to_string();
                    let own = [(key, Some(value)), (SLOT_LABEL, Some(&*id)), (GROUP_LABEL, None)];
                    let labels = if labeled(&slot.node) { &own[1..] } else { &own[..] };
                    node(&slot.node, labels, Some(Some(slot.cluster_id)))
                };
                slots.iter().map(mark).collect()
            }
            Self::Demote { nodes } => {
                let unmark = |leaver: &super::Leaver| {
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
