//! The writes that are still missing.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
};

use super::{BETWEEN, Goal, Leaver, Step, WIDE, Why};
use crate::{
    api::SLOT_LABEL,
    route_reflector::{
        election::{BRIDGE, PeerSpec, Slot, slot_selector, wide_peer},
        topology::{BgpTopology, OurPeer},
    },
};

/// Number of new nodes that get their group at once: each loses its own routes for a moment, and
/// has little to lose.
pub(super) const JOINING: usize = 10;

/// The writes that are still missing, in the order in which they are tried.
#[must_use]
pub fn pending(bgp: &BgpTopology, goal: &Goal) -> Vec<Step> {
    let mut steps = vec![];
    if goal.mesh == Some(true) && !bgp.fabric.mesh() {
        steps.push(Step::Mesh(true));
    }
    if goal.retires && !bgp.fabric.mesh() {
        // The one step that ends sessions comes before those that would make it hard to undo.
        steps.extend(narrower_peers(bgp, goal));
    }
    steps.extend(adoptions(bgp, goal));
    // Before everything that serves the living: nodes that join would keep a cut-off zone waiting.
    steps.extend(promotions(bgp, goal, Why::Repair));
    steps.extend(wider_peers(bgp, goal));
    steps.extend(labels(bgp, goal));
    steps.extend(narrower_bridge(bgp, goal));
    steps.extend(promotions(bgp, goal, Why::Renumber));
    // A replaced reflector is demoted before the next promotion: there is never more than one
    // surplus reflector.
    steps.extend(demotions(bgp, goal, false));
    steps.extend(promotions(bgp, goal, Why::Promote));
    // One in a slot that nobody takes goes first only where tables have no room for one more.
    steps.extend(demotions(bgp, goal, true));
    if steps.is_empty() {
        steps.extend(narrower_peers(bgp, goal));
    } else {
        // The last resort: until these are right, the others may have nothing to build on.
        steps.extend(strange_peers(bgp, goal));
    }
    if steps.is_empty() {
        steps.extend(unlabeled(bgp, goal));
    }
    if steps.is_empty() && goal.mesh == Some(false) && bgp.fabric.mesh() {
        steps.push(Step::Mesh(false));
    }
    steps
}

/// Returns the remaining steps for a slot's node, if there are any.
fn needs(bgp: &BgpTopology, goal: &Goal, slot: &Slot) -> Option<Why> {
    let labels = bgp.labels(&slot.node)?;
    if !labels.is_reflector() || labels.label.is_none() {
        let repairs = goal.vacant.contains(&slot.id);
        return Some(if repairs { Why::Repair } else { Why::Promote });
    }
    if labels.cluster_id != Some(slot.cluster_id) {
        return Some(Why::Renumber);
    }
    let unlike = labels.slot != Some(slot.id) || labels.group.is_some();
    let half_written = bgp.nodes.get(&slot.node).is_some_and(|node| node.copies.differ);
    (unlike || half_written).then_some(Why::Adopt)
}

/// Reports whether the slot's node reflects already.
fn serves(bgp: &BgpTopology, slot: &Slot) -> bool {
    let labels = bgp.labels(&slot.node);
    labels.is_some_and(|labels| labels.is_reflector() && labels.label.is_some())
}

fn adoptions(bgp: &BgpTopology, goal: &Goal) -> Option<Step> {
    let adopts = |slot: &&Slot| needs(bgp, goal, slot) == Some(Why::Adopt);
    let slots: Vec<_> = goal.slots.iter().filter(adopts).cloned().collect();
    (!slots.is_empty()).then_some(Step::Promote { why: Why::Adopt, slots })
}

/// Rounds of nodes of one zone each.
fn promotions(bgp: &BgpTopology, goal: &Goal, why: Why) -> Vec<Step> {
    let mut by_zone: BTreeMap<Option<&Arc<str>>, Vec<Slot>> = BTreeMap::new();
    for slot in &goal.slots {
        if needs(bgp, goal, slot) == Some(why) {
            by_zone.entry(slot.zone.as_ref()).or_default().push(slot.clone());
        }
    }
    let rounds = by_zone.into_values().flat_map(|slots| {
        let rounds: Vec<_> = slots.chunks(goal.max_per_zone.max(1)).map(<[_]>::to_vec).collect();
        rounds
    });
    rounds.map(|slots| Step::Promote { why, slots }).collect()
}

/// No reflector is demoted before its place is taken. `waiting`: those whose place another slot
/// takes.
fn demotions(bgp: &BgpTopology, goal: &Goal, waiting: bool) -> Vec<Step> {
    let lacks = |slot: &Slot| needs(bgp, goal, slot) == Some(Why::Promote);
    let short = bgp.reflectors().count() <= goal.slots.len() && goal.slots.iter().any(lacks);
    let up = |node: &str| bgp.fabric.node(node).is_some_and(|node| node.up);
    let holder = |slot: u32| goal.slots.iter().find(|goal| goal.id == slot);
    let mut by_zone: BTreeMap<Option<Arc<str>>, Vec<Leaver>> = BTreeMap::new();
    for (node, labels) in bgp.reflectors() {
        // One made by hand stays with its owner.
        let foreign = goal.retires && labels.slot.is_none();
        if foreign || goal.slots.iter().any(|slot| slot.node == *node) {
            continue;
        }
        let goes = match labels.slot.and_then(holder) {
            Some(slot) => {
                !waiting && bgp.labels(&slot.node).is_some() && needs(bgp, goal, slot).is_none()
            }
            None => waiting == (short && up(node)),
        };
        if goes {
            let group = goal.groups.as_ref().and_then(|groups| groups.get(node).cloned());
            let leaver = Leaver { node: Arc::clone(node), slot: labels.slot, group };
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
fn wider_peers(bgp: &BgpTopology, goal: &Goal) -> Option<Step> {
    let mut wanted = goal.peers.clone();
    let planned = wanted.iter().position(|peer| peer.name == WIDE);
    match planned {
        // While reflectors have several ids, not every client can have all of them.
        Some(place) if !promotions(bgp, goal, Why::Renumber).is_empty() => {
            wanted[place] = growing_bridge(bgp, goal);
        }
        None if needs_bridge(bgp, goal) => wanted.push(bridge(bgp, goal)),
        _ => {}
    }
    // Peers for the sessions of all clients come before those of a group.
    wanted.sort_by_key(|peer| (peer.name != BETWEEN, peer.name != WIDE));
    let wider = wanted.into_iter().filter_map(|peer| {
        let Some(there) = bgp.ours.get(&peer.name) else { return Some(peer) };
        if peer.name == WIDE && planned.is_none() {
            return None;
        }
        union(there, &peer).filter(|both| *both != as_spec(&peer.name, there))
    });
    let write: Vec<_> = wider.collect();
    (!write.is_empty()).then_some(Step::Peers { write, delete: vec![], widens: true })
}

/// During a change to one id for all: the reflectors that have it, and the next to get it.
/// Reflectors of one id must have the same clients, so each has all of them before it gets the id.
fn growing_bridge(bgp: &BgpTopology, goal: &Goal) -> PeerSpec {
    let ids: BTreeSet<_> = goal.slots.iter().map(|slot| slot.cluster_id).collect();
    let right = bgp
        .reflectors()
        .filter(|(_, labels)| labels.cluster_id.is_some_and(|id| ids.contains(&id)));
    let mut slots: BTreeSet<u32> = right.filter_map(|(_, labels)| labels.slot).collect();
    let next = promotions(bgp, goal, Why::Renumber).into_iter().find_map(|step| match step {
        Step::Promote { slots, .. } => slots.first().map(|slot| slot.id),
        _ => None,
    });
    slots.extend(next);
    PeerSpec { peer_selector: slot_selector(&slots), ..wide_peer(&goal.label.0) }
}

/// The peer of all clients with all reflectors becomes the bridge before reflectors get ids of
/// their zones.
fn narrower_bridge(bgp: &BgpTopology, goal: &Goal) -> Option<Step> {
    let there = bgp.ours.get(WIDE)?;
    let is_planned = goal.peers.iter().any(|peer| peer.name == WIDE);
    let all = wide_peer(&goal.label.0);
    let renumbers = !promotions(bgp, goal, Why::Renumber).is_empty();
    (!is_planned && renumbers && there.peer_selector == all.peer_selector).then(|| Step::Peers {
        write: vec![bridge(bgp, goal)],
        delete: vec![],
        widens: false,
    })
}

/// All clients with the reflectors of one zone: of one whose reflectors have their ids already, if
/// there is one, else of the first.
fn bridge(bgp: &BgpTopology, goal: &Goal) -> PeerSpec {
    let mut by_id: BTreeMap<Ipv4Addr, (Vec<u32>, usize)> = BTreeMap::new();
    for slot in &goal.slots {
        let id = bgp.labels(&slot.node).and_then(|labels| labels.cluster_id);
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
pub fn way_back(bgp: &BgpTopology, key: &str) -> PeerSpec {
    let mut by_id: BTreeMap<Ipv4Addr, BTreeSet<u32>> = BTreeMap::new();
    for (_, labels) in bgp.reflectors() {
        if let (Some(id), Some(slot)) = (labels.cluster_id, labels.slot) {
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

/// Returns a peer of the same clients with the reflectors of both; `None` if one peer cannot
/// express that.
fn union(there: &OurPeer, wanted: &PeerSpec) -> Option<PeerSpec> {
    if there.peer_selector == wanted.peer_selector && there.node_selector == wanted.node_selector {
        return None;
    }
    let mut slots = slots(&there.peer_selector)?;
    slots.extend(self::slots(&wanted.peer_selector)?);
    (there.node_selector == wanted.node_selector)
        .then(|| PeerSpec { peer_selector: slot_selector(&slots), ..wanted.clone() })
}

/// The slots of a selector as [`slot_selector`] writes it.
fn slots(selector: &str) -> Option<BTreeSet<u32>> {
    let list = selector.strip_prefix(SLOT_LABEL)?.strip_prefix(" in {")?.strip_suffix('}')?;
    list.split(", ").map(|slot| slot.trim_matches('\'').parse().ok()).collect()
}

/// Reports whether a node would be cut off on the way if clients only had the reflectors of their
/// group.
fn needs_bridge(bgp: &BgpTopology, goal: &Goal) -> bool {
    let reflects = |slot: &u32| {
        let holder = goal.slots.iter().find(|goal| goal.id == *slot);
        holder.is_some_and(|slot| serves(bgp, slot))
            || bgp.reflectors().any(|(_, labels)| labels.slot == Some(*slot))
    };
    let of_groups = goal.peers.iter().filter(|peer| peer.name != BETWEEN && peer.name != WIDE);
    of_groups.into_iter().any(|peer| {
        !bgp.ours.contains_key(&peer.name)
            || slots(&peer.peer_selector).is_some_and(|slots| !slots.iter().any(reflects))
    })
}

/// BGPPeers that are more than the goal has: all at once, since what remains is what carries.
fn narrower_peers(bgp: &BgpTopology, goal: &Goal) -> Option<Step> {
    let (mut write, mut delete) = (vec![], vec![]);
    for (name, there) in &bgp.ours {
        match goal.peers.iter().find(|peer| peer.name == *name) {
            None => delete.push((name.clone(), there.version.clone())),
            Some(peer) if *peer != as_spec(name, there) => write.push(peer.clone()),
            Some(_) => {}
        }
    }
    let some = !write.is_empty() || !delete.is_empty();
    some.then_some(Step::Peers { write, delete, widens: false })
}

/// Our BGPPeers with contents that we would never have written: handed over, or changed.
fn strange_peers(bgp: &BgpTopology, goal: &Goal) -> Option<Step> {
    let Some(Step::Peers { mut write, .. }) = narrower_peers(bgp, goal) else { return None };
    write.retain(|peer| {
        bgp.ours.get(&peer.name).is_some_and(|there| slots(&there.peer_selector).is_none())
    });
    (!write.is_empty()).then_some(Step::Peers { write, delete: vec![], widens: false })
}

/// Moves clients with a different group: all at once if that is possible, else those that have
/// joined by tens, and others one by one.
fn labels(bgp: &BgpTopology, goal: &Goal) -> Vec<Step> {
    let Some(groups) = &goal.groups else { return vec![] };
    let (mut joined, mut moved) = (BTreeMap::new(), BTreeMap::new());
    for (node, actual) in &bgp.nodes {
        let group = groups.get(node);
        // A node that Calico does not know yet would never show the label, and gets it later.
        let settled = !actual.known || actual.labels.group.as_ref() == group;
        if settled || actual.labels.is_reflector() {
            continue;
        }
        let Some(group) = group else { continue };
        let to = if actual.labels.group.is_none() { &mut joined } else { &mut moved };
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
fn unlabeled(bgp: &BgpTopology, goal: &Goal) -> Option<Step> {
    if goal.groups.is_some() {
        return None;
    }
    let labeled = bgp.nodes.iter().filter(|(_, actual)| actual.copies.grouped);
    let nodes: BTreeMap<_, _> = labeled.map(|(node, _)| (Arc::clone(node), None)).collect();
    (!nodes.is_empty()).then_some(Step::LabelClients { nodes, joining: false })
}
