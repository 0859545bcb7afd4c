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

use self::{
    graph::{Absent, Bits, Graph, Roster, Vertex, victims},
    sessions::{Classes, Groups},
};

mod graph;
mod neighbors;
mod paths;
mod selector;
mod sessions;

pub use graph::Missing;
pub use neighbors::{Kind, Neighbors, Protocol};
pub use paths::{Cluster, LIMIT_AT_CLIENT, LIMIT_AT_REFLECTOR, LIMIT_PER_TABLE, Load, Paths};
pub use selector::{Labels, MAX_DEPTH, Selector, SelectorError};
pub use sessions::{Expected, Sessions};

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

impl Local {
    /// Reports whether a node is one of them.
    #[must_use]
    pub fn is(&self, node: &Node) -> bool {
        match self {
            Self::All => true,
            Self::Node(name) => *name == node.name,
            Self::Selected(selector) => selector.matches(&node.labels),
        }
    }
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
        graph::missing(&graph, &self.roster(), rule)
    }

    /// Returns the reflector whose loss costs most, and the routes that are missing then; pairs
    /// with the reflector itself do not count. `None` if no reflector is up.
    #[must_use]
    pub fn worst_without_one(&self, rule: Rule) -> Option<(Arc<str>, Missing)> {
        let graph = self.classes.graph();
        graph::worst(&graph, &self.roster(), rule)
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
    fn roster(&self) -> Roster<'_> {
        self.nodes.iter().zip(&self.classes.of).map(|(node, &class)| (&node.name, class)).collect()
    }
}

/// A fabric before and after one write.
///
/// A session that the write leaves unchanged on both ends continues; any other is reset, and
/// carries nothing for seconds. This computes what the unchanged sessions alone carry.
pub struct Change<'a> {
    /// The nodes of both fabrics, by name.
    roster: Roster<'a>,
    /// Number of nodes of each class that are up both before and after.
    both: Vec<u32>,
    /// The same, without the nodes that the write is about.
    unchanged: Vec<u32>,
    before: Graph,
    after: Graph,
    surviving: Graph,
}

/// A node before and after a write; `None` if it does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Pairing {
    before: Option<usize>,
    after: Option<usize>,
    changed: bool,
    /// True if its address changes: all its sessions are new.
    moved: bool,
}

impl<'a> Change<'a> {
    /// `changed`: the nodes that the write is about, which lose their sessions in any case. A node
    /// that is in only one of the fabrics always counts as changed.
    #[must_use]
    pub fn new(before: &'a Fabric, after: &'a Fabric, changed: &BTreeSet<Arc<str>>) -> Self {
        let mut groups = Groups::default();
        let mut sizes: Vec<u32> = Vec::new();
        let mut roster = Roster::new();
        for (name, mut pairing) in pairings(before, after) {
            pairing.changed = changed.contains(name);
            let class = groups.place(pairing);
            sizes.resize(sizes.len().max(class + 1), 0);
            sizes[class] += 1;
            roster.push((name, class));
        }
        let classes = groups.into_list();
        let here = |fabric: &Fabric, class: Option<usize>, size: u32| match class {
            Some(class) if fabric.classes.list[class].traits.up => size,
            _ => 0,
        };
        let each = || classes.iter().zip(&sizes);
        let was: Vec<u32> = each().map(|(class, &size)| here(before, class.before, size)).collect();
        let is: Vec<u32> = each().map(|(class, &size)| here(after, class.after, size)).collect();
        let both: Vec<u32> = was.iter().zip(&is).map(|(&was, &is)| was.min(is)).collect();
        let unchanged = classes.iter().zip(&both);
        let unchanged =
            unchanged.map(|(class, &size)| if class.changed { 0 } else { size }).collect();
        let graph = |fabric: &Fabric, sizes: &[u32], of: fn(&Pairing) -> Option<usize>| {
            let vertex = |class: usize| vertex(fabric, of(&classes[class]), sizes[class]);
            Graph::new(classes.len(), vertex, |a, b| {
                fabric.classes.session(of(&classes[a])?, of(&classes[b])?).link()
            })
        };
        let surviving = Graph::new(
            classes.len(),
            |class| vertex(after, classes[class].after, both[class]),
            |a, b| {
                let [a, b] = [a, b].map(|class| classes[class]);
                let was = before.classes.session(a.before?, b.before?);
                let is = after.classes.session(a.after?, b.after?);
                is.link().filter(|_| was == is && !a.moved && !b.moved)
            },
        );
        Self {
            before: graph(before, &was, |class| class.before),
            after: graph(after, &is, |class| class.after),
            surviving,
            roster,
            both,
            unchanged,
        }
    }

    /// Returns the routes that arrived before and are lost while the write takes effect, between
    /// nodes that it is not about.
    #[must_use]
    pub fn lost(&self, rule: Rule) -> Missing {
        let before = Absent::new(&self.before, &self.before.size, rule);
        let during = Absent::new(&self.surviving, &self.surviving.size, rule);
        during.without(&before).named(&self.unchanged, &self.roster, None)
    }

    /// Returns the reflector whose loss costs the most additional routes compared to before, and
    /// these routes; `None` if no single loss costs more.
    #[must_use]
    pub fn fragile(&self, rule: Rule) -> Option<(Arc<str>, Missing)> {
        let mut worst: Option<(&Arc<str>, Missing)> = None;
        for (victim, after) in victims(&self.after, &self.roster, &self.after.size) {
            let class = self.roster.binary_search_by(|(name, _)| (*name).cmp(victim)).ok()?;
            let class = self.roster[class].1;
            let without_one = |sizes: &[u32]| {
                let mut sizes = sizes.to_vec();
                sizes[class] = sizes[class].saturating_sub(1);
                sizes
            };
            let then = Absent::new(&self.after, &after, rule);
            if then.0.iter().all(Bits::is_empty) {
                continue;
            }
            let now = Absent::new(&self.before, &without_one(&self.before.size), rule);
            let cost =
                then.without(&now).named(&without_one(&self.both), &self.roster, Some(victim));
            if cost.pairs > worst.as_ref().map_or(0, |(_, worst)| worst.pairs) {
                worst = Some((victim, cost));
            }
        }
        worst.map(|(victim, cost)| (victim.clone(), cost))
    }
}

fn vertex(fabric: &Fabric, class: Option<usize>, size: u32) -> Vertex {
    let nobody = Vertex { size: 0, reflector: false, cluster_id: None };
    class.map_or(nobody, |class| Vertex { size, ..fabric.classes.vertex(class) })
}

/// The nodes of both fabrics, by name.
fn pairings<'a>(
    before: &'a Fabric,
    after: &'a Fabric,
) -> impl Iterator<Item = (&'a Arc<str>, Pairing)> {
    let [mut was, mut is] = [before, after].map(|fabric| {
        fabric.nodes.iter().zip(&fabric.classes.of).map(|(node, &class)| (node, class)).peekable()
    });
    std::iter::from_fn(move || {
        let (first, second) = (was.peek().copied(), is.peek().copied());
        let name = match (first, second) {
            (None, None) => return None,
            (Some((node, _)), None) | (None, Some((node, _))) => &node.name,
            (Some((a, _)), Some((b, _))) => (&a.name).min(&b.name),
        };
        let first = was.next_if(|(node, _)| node.name == *name);
        let second = is.next_if(|(node, _)| node.name == *name);
        let address = |of: Option<(&Node, usize)>| of.map(|(node, _)| node.address);
        let pairing = Pairing {
            before: first.map(|(_, class)| class),
            after: second.map(|(_, class)| class),
            changed: false,
            moved: address(first) != address(second),
        };
        Some((name, pairing))
    })
}

#[cfg(test)]
mod tests;
