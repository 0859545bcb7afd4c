//! The peerings by the rules of Calico's confd. No IO.
//!
//! Read in `confd/pkg/backends/calico` of Calico master of 2026-08: `client.go` (`updatePeersV1`)
//! for the passes and `bgp_processor.go` for mesh, passive sides and clients of reflectors.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::world::{Local, Node, Peer, Remote, World};

/// One end of a session, as written in a node's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The node at the other end.
    pub peer: String,
    /// Address of this end.
    pub address: Ipv4Addr,
    /// It waits for the other end to connect.
    pub passive: bool,
    /// The cluster id, if the other end is a client of this one.
    pub reflects: Option<Ipv4Addr>,
    /// The time for which routes of the other end are kept while its BIRD starts again.
    pub restart: Option<Duration>,
}

/// The ends at every node, by the name of their protocol: `Mesh_10_90_0_11`.
pub type Sessions = BTreeMap<String, BTreeMap<String, Session>>;

/// The name of the protocol towards an address.
#[must_use]
pub fn protocol(kind: &str, address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("{kind}_{a}_{b}_{c}_{d}")
}

/// Returns all ends of all sessions.
#[must_use]
pub fn sessions(world: &World) -> Sessions {
    let mut all: Sessions =
        world.nodes.keys().map(|name| (name.clone(), BTreeMap::new())).collect();
    if world.mesh {
        mesh(world, &mut all);
    }
    // Global ones first; the first that names a neighbor wins.
    for global in [true, false] {
        for peer in world.peers.values().filter(|peer| (peer.local == Local::All) == global) {
            forward(world, peer, &mut all);
        }
    }
    for peer in world.peers.values().filter(|peer| peer.reverse) {
        reverse(world, peer, &mut all);
    }
    all
}

/// The mesh is between nodes that are no reflectors. The end that has the lower address, as text,
/// connects.
fn mesh(world: &World, all: &mut Sessions) {
    let plain = || world.nodes.iter().filter(|(_, node)| node.cluster_id.is_none());
    for (name, node) in plain() {
        for (other, peer) in plain().filter(|(other, _)| *other != name) {
            let session = Session {
                peer: other.clone(),
                address: peer.address,
                passive: peer.address.to_string() > node.address.to_string(),
                reflects: None,
                restart: None,
            };
            put(all, name, protocol("Mesh", peer.address), session);
        }
    }
}

fn forward(world: &World, peer: &Peer, all: &mut Sessions) {
    for local in world.nodes.iter().filter(|(name, node)| peer.local.takes(name, node)) {
        for remote in world.nodes.iter().filter(|(_, node)| peer.remote.takes(node)) {
            let kind = if peer.local == Local::All { "Global" } else { "Node" };
            // Confd does not look up whose address it is.
            let known = !matches!(peer.remote, Remote::Address(_));
            emit(all, kind, local, (remote, known), peer);
        }
    }
}

/// The other side peers back, always as a peer of its own node.
fn reverse(world: &World, peer: &Peer, all: &mut Sessions) {
    for local in world.nodes.iter().filter(|(_, node)| peer.remote.takes(node)) {
        for remote in world.nodes.iter().filter(|(name, node)| peer.local.takes(name, node)) {
            emit(all, "Node", local, (remote, true), peer);
        }
    }
}

type Named<'a> = (&'a String, &'a Node);

/// `known`: confd knows the cluster id of the other node.
fn emit(
    all: &mut Sessions,
    kind: &str,
    (name, local): Named<'_>,
    ((other, remote), known): (Named<'_>, bool),
    peer: &Peer,
) {
    let there = |kind| {
        let protocol = protocol(kind, remote.address);
        all.get(name).is_some_and(|sessions| sessions.contains_key(&protocol))
    };
    if name == other || there(kind) || there("Global") {
        return;
    }
    let session = Session {
        peer: other.clone(),
        address: remote.address,
        // Peers by selector connect from both ends, and collide.
        passive: kind == "Global"
            && !known
            && remote.address.to_string() > local.address.to_string(),
        // On a reflector, who has no id or another one is a client.
        reflects: local.cluster_id.filter(|own| !known || remote.cluster_id != Some(*own)),
        restart: peer.restart,
    };
    put(all, name, protocol(kind, remote.address), session);
}

fn put(all: &mut Sessions, name: &str, protocol: String, session: Session) {
    if let Some(sessions) = all.get_mut(name) {
        sessions.insert(protocol, session);
    }
}

/// Returns the ends that have another one: both of the mesh, or both by peers. Two nodes with both
/// have two sessions.
#[must_use]
pub fn two_ended(all: &Sessions) -> Sessions {
    let is_mesh = |protocol: &str| protocol.starts_with("Mesh_");
    let answered = |name: &str, protocol: &str, end: &Session| {
        let mut theirs = all.get(&end.peer).into_iter().flatten();
        theirs.any(|(other, back)| back.peer == name && is_mesh(other) == is_mesh(protocol))
    };
    let mut whole = all.clone();
    for (name, ends) in &mut whole {
        ends.retain(|protocol, end| answered(name, protocol, end));
    }
    whole
}

/// Returns how many sessions have two ends.
#[must_use]
pub fn count(all: &Sessions) -> usize {
    two_ended(all).values().map(BTreeMap::len).sum::<usize>() / 2
}
