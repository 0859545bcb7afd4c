//! Confd's rules: the entries of a node, and the resulting number of sessions.
use std::{collections::BTreeMap, net::Ipv4Addr, sync::Arc};

use super::{
    Node,
    classes::{Class, Classes},
    graph::{Link, Vertex},
};

/// Number of sessions that each node should have, between nodes and to the outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions(BTreeMap<Arc<str>, Expected>);

/// Number of sessions that one node should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// With nodes that are up.
    pub up: u32,
    /// With all nodes.
    pub all: u32,
    /// With peers outside. A count of Established sessions includes these too.
    pub outside: u32,
}

impl Sessions {
    pub(super) fn new(nodes: &[Node], classes: &Classes) -> Self {
        let of_class: Vec<Expected> =
            (0..classes.list.len()).map(|class| classes.expected(class)).collect();
        let of_node = |(place, node): (usize, &Node)| {
            let inside = of_class[classes.of[place]];
            (node.name.clone(), Expected { outside: classes.outside[place], ..inside })
        };
        Self(nodes.iter().enumerate().map(of_node).collect())
    }

    /// Returns the numbers of one node; `None` if it does not exist.
    #[must_use]
    pub fn of(&self, node: &str) -> Option<Expected> {
        self.0.get(node).copied()
    }

    /// Iterates over all nodes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, Expected)> {
        self.0.iter().map(|(name, &expected)| (name, expected))
    }

    /// Returns the number of sessions between nodes, each counted once.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().map(|expected| u64::from(expected.all)).sum::<u64>() / 2
    }
}

/// The connection between two nodes. If it is equal before and after a write, none of its sessions
/// is reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Session {
    /// A session of the mesh.
    pub mesh: bool,
    /// A session by BGPPeers: this end and the other.
    pub chosen: Option<(End, End)>,
}

/// One end of a session, as it is written into BIRD's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The protocol's name begins with `Global_` and not with `Node_`.
    pub global: bool,
    /// `rr client`, with this `rr cluster id`.
    pub client: Option<Ipv4Addr>,
}

impl Session {
    /// Counts the sessions between the two: with the mesh and a BGPPeer, there are two.
    fn count(self) -> u32 {
        u32::from(self.mesh) + u32::from(self.chosen.is_some())
    }

    pub fn link(self) -> Option<Link> {
        let client = |end: End| end.client.is_some();
        let plain = Link { clients: (false, false) };
        let chosen = self.chosen.map(|(a, b)| Link { clients: (client(a), client(b)) });
        chosen.or(self.mesh.then_some(plain))
    }
}

impl Classes {
    /// Returns the connection between a node of one class and another node of the other.
    pub fn session(&self, a: usize, b: usize) -> Session {
        let [of_a, of_b] = [a, b].map(|class| &self.list[class].traits);
        if !(of_a.connected && of_b.connected) {
            return Session::default();
        }
        let plain = of_a.cluster_id.is_none() && of_b.cluster_id.is_none();
        let chosen = self.end(a, b).and_then(|end| Some((end, self.end(b, a)?)));
        Session { mesh: self.mesh && plain, chosen }
    }

    /// Returns the entry of a node for a peer. Within a pass, confd processes the BGPPeers in the
    /// undefined order of a Go map: here an entry by address wins, which can only turn peers into
    /// clients.
    fn end(&self, node: usize, peer: usize) -> Option<End> {
        let [of_node, of_peer] = [node, peer].map(|class| &self.list[class].traits);
        let (local, remote) = (&of_node.local, &of_peer.remote);
        let known = |known| {
            let peers = of_peer.cluster_id.filter(|_| known);
            of_node.cluster_id.filter(|&own| peers != Some(own))
        };
        // A global BGPPeer configures every node, even one in no selector's kind.
        if remote.meets(&self.global, &self.global) {
            let client = known(!remote.meets(&self.global, &self.by_address));
            return Some(End { global: true, client });
        }
        if local.meets(remote, &self.specific) {
            let client = known(!local.meets(remote, &self.by_address));
            return Some(End { global: false, client });
        }
        let reverse = of_node.remote.meets(&of_peer.local, &self.reverse);
        reverse.then(|| End { global: false, client: known(true) })
    }

    fn expected(&self, class: usize) -> Expected {
        let mut expected = Expected::default();
        for (other, of) in self.list.iter().enumerate() {
            let others = of.size - u32::from(other == class);
            let sessions = self.session(class, other).count() * others;
            expected.all += sessions;
            expected.up += if of.traits.up { sessions } else { 0 };
        }
        expected
    }

    /// Returns the vertex of all nodes of a class, with the cluster id in their BIRD configuration:
    /// confd does not write the id of a node without any client.
    pub fn vertex(&self, class: usize) -> Vertex {
        let Class { size, traits } = &self.list[class];
        let client = |other: usize| {
            let others = self.list[other].size - u32::from(other == class);
            others > 0 && self.end(class, other).is_some_and(|end| end.client.is_some())
        };
        let connected = |other: &usize| self.list[*other].traits.connected;
        let knows = traits.connected
            && traits.cluster_id.is_some()
            && (0..self.list.len()).filter(connected).any(client);
        let reflector = traits.cluster_id.is_some();
        Vertex { size: *size, reflector, cluster_id: traits.cluster_id.filter(|_| knows) }
    }
}
