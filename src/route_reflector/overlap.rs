//! BGPPeers of other owners for the same pairs of nodes as ours. Pure.
//!
//! Calico configures one of them, which may be another at each end and after each change: so all of
//! them need the same settings. The first of ours take over those of the others; where they differ
//! already, nothing but repair is done.
use std::{collections::BTreeSet, sync::Arc};

use super::{
    bgp_model::{Fabric, Node, Peer, Remote},
    datastore::{CalicoPeer, Session, Snapshot},
    names::few,
    steps::Goal,
    topology::BgpTopology,
};

/// Returns the settings of a new BGPPeer of ours.
///
/// # Errors
/// The BGPPeers of other owners for the same pairs of nodes whose settings differ, and the fields.
pub fn settings(snapshot: &Snapshot, bgp: &BgpTopology, goal: &Goal) -> Result<Session, String> {
    let ours = |peer: &&CalicoPeer| bgp.ours.contains_key(&peer.name);
    let existing: Vec<_> = snapshot.peers.iter().filter(ours).collect();
    let session = snapshot.session();
    let differs = |peer: &CalicoPeer| {
        if existing.is_empty() {
            return peer.session != session;
        }
        existing.iter().any(|ours| ours.session != peer.session)
    };
    // As a rule all have the same, and need no closer look.
    if !snapshot.peers.iter().any(|peer| !ours(&peer) && differs(peer)) {
        return Ok(session);
    }
    let overlapping = overlapping(bgp, goal);
    let others = snapshot.peers.iter().filter(|peer| overlapping.contains(peer.name.as_str()));
    let mut others: Vec<_> = others.filter(|peer| !ours(peer)).collect();
    if existing.is_empty() {
        let Some(first) = others.first() else { return Ok(session) };
        let alike = others.iter().all(|other| other.session == first.session);
        if alike && first.session.is_portable() {
            return Ok(first.session.clone());
        }
    } else {
        others.retain(|peer| differs(peer));
        if others.is_empty() {
            return Ok(session);
        }
    }
    let against = existing.first().map_or(&session, |ours| &ours.session);
    let named = others.iter().map(|other| {
        let fields = other.session.differences(against);
        let fields = if fields.is_empty() { other.session.fields() } else { fields };
        format!("{} (spec.{})", other.name, fields.join(", spec."))
    });
    let named: Vec<_> = named.collect();
    Err(format!(
        "BGPPeers of other owners are for the same pairs of nodes as ours, and have other settings; Calico would \
         use either: {}; make them equal, or delete those of the others",
        few(named.iter())
    ))
}

/// Names the BGPPeers that are for a pair of nodes for which ours are too, once the goal is
/// reached.
fn overlapping(bgp: &BgpTopology, goal: &Goal) -> BTreeSet<Arc<str>> {
    let fabric = goal.fabric(bgp);
    let is_ours = |peer: &&Peer| goal.peers.iter().any(|ours| *ours.name == *peer.name);
    let ours: Vec<_> =
        fabric.peers().iter().filter(is_ours).map(|peer| Ends::new(&fabric, peer)).collect();
    let others = fabric.peers().iter().filter(|peer| !is_ours(peer));
    let overlaps = |peer: &&Peer| {
        let ends = Ends::new(&fabric, peer);
        ours.iter().any(|ours| ends.overlap(ours))
    };
    others.filter(overlaps).map(|peer| Arc::clone(&peer.name)).collect()
}

/// The nodes at both ends of a BGPPeer's sessions, by their index.
struct Ends {
    local: BTreeSet<usize>,
    remote: BTreeSet<usize>,
}

impl Ends {
    fn new(fabric: &Fabric, peer: &Peer) -> Self {
        let nodes = |is: &dyn Fn(&Node) -> bool| {
            let all = fabric.nodes().iter().enumerate();
            all.filter(|(_, node)| is(node)).map(|(index, _)| index).collect()
        };
        Self {
            local: nodes(&|node| peer.local.is(node)),
            remote: nodes(&|node| match &peer.remote {
                Remote::Selected(selector) => selector.matches(&node.labels),
                Remote::Address(address) => node.address == Some(*address),
            }),
        }
    }

    /// Reports whether both are for one pair of nodes, in either direction.
    fn overlap(&self, other: &Self) -> bool {
        let pair =
            |a: &BTreeSet<usize>, b: &BTreeSet<usize>, c: &BTreeSet<usize>, d: &BTreeSet<usize>| {
                let (mut one, mut two) = (a.intersection(b), c.intersection(d).peekable());
                // Two different nodes.
                match (one.next(), two.peek().copied()) {
                    (Some(first), Some(second)) if first != second => true,
                    (Some(_), Some(_)) => one.next().is_some() || two.nth(1).is_some(),
                    _ => false,
                }
            };
        pair(&self.local, &other.local, &self.remote, &other.remote)
            || pair(&self.local, &other.remote, &self.remote, &other.local)
    }
}
