//! The peerings according to Calico's confd, and the routes that arrive at each node.
//!
//! Pure: nodes, BGPPeers and the mesh in; sessions, missing routes and numbers of paths out. It
//! models one autonomous system and one address family; BGPPeers to another AS, and those of
//! workloads, are left out by the caller or count as outside.
//!
//! # Sessions (confd)
//!
//! - The mesh is between nodes without a cluster id, on both ends at once.
//! - A BGPPeer without node and nodeSelector is global: every node peers with each address it
//!   selects, and that address gets no entry that is specific to a node.
//! - Then the others add entries to the nodes that they select, and finally every BGPPeer (except
//!   with `reversePeering: Manual`) adds the entries of the opposite direction. Existing entries
//!   stay.
//! - A reflector is a node with a cluster id. A peer without a cluster id, or with another one, is
//!   its client; a peer with the same one is a plain peer. For a peer named by address the cluster
//!   id is ignored: it is a client.
//! - A session needs an entry on both ends.
//!
//! # Routes
//!
//! A reflector passes a route on if the peer that sent it, or the one that receives it, is its
//! client, and adds its cluster id to the route's list. See [`Rule`] for the routes that it drops.
//! Everything is computed on classes of nodes that the rules cannot tell apart: thousands of nodes
//! are a few dozen classes. That is exact, since a route never passes two members of a class on its
//! way (the second would find its own cluster id in the list), and the members that are its origin,
//! its end and on the way are counted separately.
//!
//! - [`Selector`], [`Labels`]: the nodes that a BGPPeer selects.
//! - [`Fabric`]: nodes, BGPPeers and mesh, as they are or as they would be.
//! - [`Sessions`], [`Neighbors`]: the number of sessions that each node should have, and their
//!   ends.
//! - [`Missing`], [`Paths`]: the routes that do not arrive, and how many times the others do.
//! - [`Change`]: the cost of one write.
use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

mod bits;
mod change;
mod classes;
mod graph;
mod labels;
mod missing;
mod neighbors;
mod paths;
mod selector;
mod sessions;
mod tokens;

pub use change::Change;
pub use labels::Labels;
pub use missing::Missing;
pub use neighbors::{Kind, Neighbors, Protocol};
pub use paths::{Cluster, LIMIT_AT_CLIENT, LIMIT_AT_REFLECTOR, LIMIT_PER_TABLE, Load, Paths};
pub use selector::{MAX_DEPTH, Selector, SelectorError};
pub use sessions::{Expected, Sessions};

use classes::Classes;

/// A node as BGP sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the node.
    pub name: Arc<str>,
    /// Its BGP address; without one it has no sessions. Of two nodes with one address, the first by
    /// name has it.
    pub address: Option<IpAddr>,
    /// Labels of the node.
    pub labels: Labels,
    /// Its cluster id: it is a reflector.
    pub cluster_id: Option<Ipv4Addr>,
    /// True if it may carry routes, and needs routes. Sessions to a node that is down are still
    /// configured.
    pub up: bool,
}

/// The nodes that a BGPPeer configures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// All nodes: it has neither node nor nodeSelector.
    All,
    /// The node of this name.
    Node(Arc<str>),
    /// Those that nodeSelector selects.
    Selected(Selector),
}

/// The peers of these nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// The nodes that peerSelector selects.
    Selected(Selector),
    /// peerIP: the node with this address, or a peer outside.
    Address(IpAddr),
}

/// A BGPPeer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name of the BGPPeer.
    pub name: Arc<str>,
    /// The nodes that it configures.
    pub local: Local,
    /// The peers of these nodes.
    pub remote: Remote,
    /// The other ends get their entries by themselves: reversePeering is not Manual.
    pub reverse: bool,
}

impl Peer {
    /// Returns the label keys in its selectors.
    #[must_use]
    pub fn keys(&self) -> BTreeSet<&str> {
        let mut keys = BTreeSet::new();
        if let Local::Selected(selector) = &self.local {
            selector.keys(&mut keys);
        }
        if let Remote::Selected(selector) = &self.remote {
            selector.keys(&mut keys);
        }
        keys
    }
}

/// The treatment, by a reflector, of a route whose list of cluster ids contains its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Drops it, from any peer: RFC 4456 to the letter. Never reports fewer missing routes than
    /// BIRD has, so it decides.
    Rfc,
    /// Drops it if it is from its own client, and does not pass it to a client, as BIRD 1.6 and 2.0
    /// do. This rule predicts what is measured.
    Bird,
}

/// Nodes, BGPPeers and the mesh: as they are, or as they would be.
#[derive(Clone, Debug)]
pub struct Fabric {
    nodes: Vec<Node>,
    peers: Vec<Peer>,
    mesh: bool,
    classes: Classes,
}

impl Fabric {
    /// Builds a fabric from nodes in any order; if a name occurs twice, the first counts.
    #[must_use]
    pub fn new(mut nodes: Vec<Node>, mut peers: Vec<Peer>, mesh: bool) -> Self {
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes.dedup_by(|later, first| later.name == first.name);
        peers.sort_by(|a, b| a.name.cmp(&b.name));
        peers.dedup_by(|later, first| later.name == first.name);
        let classes = Classes::new(&nodes, &peers, mesh);
        Self { nodes, peers, mesh, classes }
    }

    /// By name.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// By name.
    #[must_use]
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Reports whether the node-to-node mesh is on.
    #[must_use]
    pub fn mesh(&self) -> bool {
        self.mesh
    }

    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        let place = self.nodes.binary_search_by(|node| (*node.name).cmp(name)).ok()?;
        Some(&self.nodes[place])
    }

    /// Returns the number of sessions that each node should have.
    #[must_use]
    pub fn sessions(&self) -> Sessions {
        Sessions::new(&self.nodes, &self.classes)
    }

    /// Returns the routes between running nodes that do not arrive.
    #[must_use]
    pub fn missing(&self, rule: Rule) -> Missing {
        let graph = self.classes.graph();
        missing::missing(&graph, &self.roster(), rule)
    }

    /// Returns the reflector whose loss costs most, and the routes that are missing then; pairs
    /// with the reflector itself do not count. `None` if no reflector is up.
    #[must_use]
    pub fn worst_without_one(&self, rule: Rule) -> Option<(Arc<str>, Missing)> {
        let graph = self.classes.graph();
        missing::worst(&graph, &self.roster(), rule)
    }

    /// Returns the number of paths in the tables with `add paths on`, as in Calico's template:
    /// those of nodes that are up.
    #[must_use]
    pub fn paths(&self, rule: Rule) -> Paths {
        Paths::new(&self.classes.graph(), rule)
    }

    /// Returns the same including the nodes that are down, which may still speak BGP: the maximum
    /// that can be measured.
    #[must_use]
    pub fn most_paths(&self, rule: Rule) -> Paths {
        Paths::new(&self.classes.whole(), rule)
    }

    /// Every node with its class, by name.
    fn roster(&self) -> missing::Roster<'_> {
        self.nodes.iter().zip(&self.classes.of).map(|(node, &class)| (&node.name, class)).collect()
    }
}

#[cfg(test)]
mod tests;
