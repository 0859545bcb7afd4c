//! The peerings by the rules of Calico's confd. No IO.
//!
//! Read in `confd/pkg/backends/calico` of Calico master of 2026-08: `client.go` (`updatePeersV1`)
//! for the passes and `bgp_processor.go` for mesh, passive sides and clients of reflectors.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::family::Family;
use super::world::{Local, Node, Peer, Remote, World};

/// One end of a session, as written in a node's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The node at the other end.
    pub peer: String,
    /// Address of the other end.
    pub address: IpAddr,
    /// It waits for the other end to connect.
    pub passive: bool,
    /// The cluster id, if the other end is a client of this one.
    pub reflects: Option<Ipv4Addr>,
    /// The time for which routes of the other end are kept while its BIRD starts again.
    pub restart: Option<Duration>,
}

impl Session {
    /// Returns the address family whose routes it carries.
    pub fn family(&self) -> Family {
        Family::of(self.address)
    }
}

/// The ends at every node, by the name of their protocol: `Mesh_10_90_0_11`, `Node_fd90__b`.
pub type Sessions = BTreeMap<String, BTreeMap<String, Session>>;

/// The name of the protocol towards an address.
pub fn protocol(kind: &str, address: IpAddr) -> String {
    format!("{kind}_{}", address.to_string().replace(['.', ':'], "_"))
}

/// A node, and its address in the family that is looked at.
#[derive(Clone, Copy)]
struct Member<'a> {
    name: &'a String,
    node: &'a Node,
    address: IpAddr,
}

impl Member<'_> {
    /// Reports whether the other end connects: the one with the lower address, as text, does not
    /// wait.
    fn waits_for(&self, other: &Self) -> bool {
        other.address.to_string() > self.address.to_string()
    }
}

/// Returns all ends of all sessions. `BGPPeers` select nodes: the sessions are the same in each
/// address family that both nodes speak.
pub fn sessions(world: &World) -> Sessions {
    let mut all: Sessions =
        world.nodes.keys().map(|name| (name.clone(), BTreeMap::new())).collect();
    for family in Family::ALL {
        let members: Vec<Member<'_>> = world
            .nodes
            .iter()
            .filter_map(|(name, node)| {
                Some(Member { name, node, address: node.speakers.get(&family)?.address })
            })
            .collect();
        of_family(world, &members, &mut all);
    }
    all
}

fn of_family(world: &World, members: &[Member<'_>], all: &mut Sessions) {
    if world.mesh {
        mesh(members, all);
    }
    // Global ones first; the first that names a neighbor wins.
    for global in [true, false] {
        for peer in world.peers.values().filter(|peer| (peer.local == Local::All) == global) {
            forward(members, peer, all);
        }
    }
    for peer in world.peers.values().filter(|peer| peer.reverse) {
        reverse(members, peer, all);
    }
}

/// The mesh is between nodes that are no reflectors. The end that has the lower address, as text,
/// connects.
fn mesh(members: &[Member<'_>], all: &mut Sessions) {
    let plain = || members.iter().filter(|member| member.node.cluster_id.is_none());
    for local in plain() {
        for remote in plain().filter(|remote| remote.name != local.name) {
            let session = Session {
                peer: remote.name.clone(),
                address: remote.address,
                passive: local.waits_for(remote),
                reflects: None,
                restart: None,
            };
            put(all, local.name, protocol("Mesh", remote.address), session);
        }
    }
}

/// The members on the two sides of a peer.
fn sides<'m, 'n>(
    members: &'m [Member<'n>],
    peer: &Peer,
) -> (Vec<&'m Member<'n>>, Vec<&'m Member<'n>>) {
    let local = members.iter().filter(|member| peer.local.takes(member.name, member.node));
    let remote = members.iter().filter(|member| peer.remote.takes(member.node, member.address));
    (local.collect(), remote.collect())
}

fn forward(members: &[Member<'_>], peer: &Peer, all: &mut Sessions) {
    let kind = if peer.local == Local::All { "Global" } else { "Node" };
    // Confd does not look up whose address it is.
    let known = !matches!(peer.remote, Remote::Address(_));
    let (locals, remotes) = sides(members, peer);
    for local in locals {
        for remote in &remotes {
            emit(all, kind, local, (remote, known), peer);
        }
    }
}

/// The other side peers back, always as a peer of its own node.
fn reverse(members: &[Member<'_>], peer: &Peer, all: &mut Sessions) {
    let (remotes, locals) = sides(members, peer);
    for local in locals {
        for remote in &remotes {
            emit(all, "Node", local, (remote, true), peer);
        }
    }
}

/// `known`: confd knows the cluster id of the other node.
fn emit(
    all: &mut Sessions,
    kind: &str,
    local: &Member<'_>,
    (remote, known): (&Member<'_>, bool),
    peer: &Peer,
) {
    let there = |kind| {
        let protocol = protocol(kind, remote.address);
        all.get(local.name).is_some_and(|sessions| sessions.contains_key(&protocol))
    };
    if local.name == remote.name || there(kind) || there("Global") {
        return;
    }
    let session = Session {
        peer: remote.name.clone(),
        address: remote.address,
        // Peers by selector connect from both ends, and collide.
        passive: kind == "Global" && !known && local.waits_for(remote),
        // On a reflector, who has no id or another one is a client.
        reflects: local
            .node
            .cluster_id
            .filter(|own| !known || remote.node.cluster_id != Some(*own)),
        restart: peer.restart,
    };
    put(all, local.name, protocol(kind, remote.address), session);
}

fn put(all: &mut Sessions, name: &str, protocol: String, session: Session) {
    if let Some(sessions) = all.get_mut(name) {
        sessions.insert(protocol, session);
    }
}

/// Returns the ends that have another one: both of the mesh, or both by peers. Two nodes with both
/// have two sessions in each address family.
pub fn two_ended(all: &Sessions) -> Sessions {
    let is_mesh = |protocol: &str| protocol.starts_with("Mesh_");
    let answered = |name: &str, protocol: &str, end: &Session| {
        let mut theirs = all.get(&end.peer).into_iter().flatten();
        theirs.any(|(other, back)| {
            let same = is_mesh(other) == is_mesh(protocol) && back.family() == end.family();
            same && back.peer == name
        })
    };
    let mut whole = all.clone();
    for (name, ends) in &mut whole {
        ends.retain(|protocol, end| answered(name, protocol, end));
    }
    whole
}
