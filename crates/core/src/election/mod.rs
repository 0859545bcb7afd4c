//! The target: the nodes that reflect, their slots and cluster ids, and the peerings.
//!
//! [`target`] is a function of the nodes, the rules and the recorded status. No Kubernetes type, no
//! clock, no randomness; the order of the nodes does not matter. It decides the target and not the
//! steps towards it. Property tests check each of its guarantees:
//!
//! - **As few changes as possible.** A reflector stays one unless there is a better reason than a
//!   higher score, and leaves only if another takes its place. Nodes that come and go change
//!   nothing for others.
//! - **Nothing is decided by absence.** Nodes that are not ready never make the set smaller, and
//!   without a single node that could be a reflector everything stays as it is.
//! - **Numbers that stay.** A slot keeps its number when another node takes it, and its cluster id;
//!   the number of `BGPPeer`s depends on the zones, never on the nodes.
//!
//! In the order in which it decides: `rules` (how many), `candidates` (the standing of each node),
//! `layout` (which topology, how many in each zone), `choice` (which nodes, slots and cluster ids),
//! `groups` (the reflectors of each client) and `peers`.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use self::{candidates::Roll, choice::Fitted};

mod candidates;
mod choice;
mod groups;
mod layout;
mod peers;
mod rules;

pub use groups::{GROUPS_PER_ZONE, name as group_name};
pub use peers::{
    BRIDGE, GROUP_LABEL, PeerSpec, SLOT_LABEL, reflectors as reflector_peer, slot_selector,
    wide as wide_peer,
};
pub use rules::{
    Count, IdScope, Ids, InvalidRatio, MOST_IDS, Pool, Ratio, Refusal, Rounding, Rules, Scope,
    Topology,
};

/// A node, as far as it matters here.
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Name of the node.
    pub name: Arc<str>,
    /// Its zone; none if it has no such label.
    pub zone: Option<Arc<str>>,
    /// The time at which it was created, in seconds.
    pub created: i64,
    /// Its BGP address: no cluster id may equal it.
    pub address: Option<IpAddr>,
    /// The condition Ready.
    pub ready: bool,
    /// The time for which it has not been ready; none if it is ready, or if the time is unknown.
    pub not_ready_for: Option<Duration>,
    /// Cordoned, or tainted without being tolerated.
    pub closed: bool,
    /// True if `candidates` selects the node and does not forbid it.
    pub suitable: bool,
    /// True if `candidates` prefers the node.
    pub preferred: bool,
    /// True if the `TrafficWatch` currently marks it unfit.
    pub unfit: bool,
    /// The time for which it has been unfit; none while that is not measured.
    pub unfit_for: Option<Duration>,
    /// Number of workloads that a short loss of the node's routes would affect.
    pub workloads: u32,
    /// The slot on its label.
    pub slot: Option<u32>,
    /// The group on its label.
    pub group: Option<Arc<str>>,
    /// The cluster id it has in Calico.
    pub cluster_id: Option<Ipv4Addr>,
    /// True if it has the label of reflectors.
    pub labeled: bool,
}

/// The slots that the status remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Previous {
    /// The topology in use.
    pub topology: Option<Topology>,
    /// The slots. If empty, the set is served for the first time, and existing reflectors of other
    /// origin are adopted.
    pub slots: Vec<PreviousSlot>,
    /// The slots of each group, so that clients keep theirs; topology Multi only.
    pub groups: BTreeMap<Arc<str>, BTreeSet<u32>>,
}

/// A slot as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousSlot {
    /// Its number.
    pub id: u32,
    /// The node that held it. Without any label, for example after they were removed by hand, this
    /// node is the first choice for its slot.
    pub node: Arc<str>,
    /// Zone of the slot.
    pub zone: Option<Arc<str>>,
    /// Cluster id of the slot's reflector.
    pub cluster_id: Option<Ipv4Addr>,
}

/// The target of the election.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The topology in use; never Auto.
    pub topology: Topology,
    /// Desired number of reflectors.
    pub desired: usize,
    /// Number of reflectors in each zone; "" for those without one.
    pub by_zone: BTreeMap<Arc<str>, usize>,
    /// The reflectors by number.
    pub slots: Vec<Slot>,
    /// The group of every other node (Zonal and Multi).
    pub groups: BTreeMap<Arc<str>, Arc<str>>,
    /// The slots of each group (Zonal and Multi).
    pub group_slots: BTreeMap<Arc<str>, BTreeSet<u32>>,
    /// All `BGPPeer`s; the one between reflectors first.
    pub peers: Vec<PeerSpec>,
    /// Reflectors that should not be reflectors, by name.
    pub leaving: Vec<Leaving>,
    /// Zones whose clients use another zone's reflectors: too small for their own, or all are down.
    pub guests: Vec<Arc<str>>,
    /// The differences from the spec, in sentences.
    pub notes: Vec<String>,
    /// The reason why topology Multi is not possible, if it is not.
    pub crowded: Option<String>,
    /// Set if nothing may be written; then everything above is the current state.
    pub freeze: Option<Freeze>,
}

/// A wanted reflector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its number, which stays when another node takes it.
    pub id: u32,
    /// The node that should hold it.
    pub node: Arc<str>,
    /// The node's zone.
    pub zone: Option<Arc<str>>,
    /// The cluster id that it should have.
    pub cluster_id: Ipv4Addr,
    /// The reason why another node should take it, once there is one.
    pub trouble: Option<Leave>,
}

/// A reflector that should not be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Name of the node.
    pub node: Arc<str>,
    /// Its slot. A node that is adopted and leaves at once first gets this number, which marks it
    /// as ours.
    pub slot: u32,
    /// The reason.
    pub reason: Leave,
}

/// The reason why a node should no longer be a reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leave {
    /// It has not been ready for `replaceAfter`.
    NotReady,
    /// It has been unfit for `demoteAfter`.
    Unfit,
    /// It is cordoned, or has a taint that is not tolerated.
    Cordoned,
    /// `candidates` does not select it, or forbids it; in topology Zonal it has no zone that
    /// counts.
    NotSuitable,
    /// There are enough others.
    Surplus,
}

crate::named!(Leave { NotReady, Unfit, Cordoned, NotSuitable, Surplus });

/// The reason why nothing may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// No node can be a reflector now, or none for which the topology has a place.
    NoCandidates,
}

crate::named!(Freeze { NoCandidates });

/// Computes the target.
///
/// # Errors
/// When the rules or the nodes do not allow it, with the path of the field that can change this.
pub fn target(rules: &Rules, members: &[Member], previous: &Previous) -> Result<Target, Refusal> {
    rules.check()?;
    let roll = Roll::new(rules, members, previous);
    if !roll.members.iter().any(|member| member.is_usable()) {
        return frozen(rules, &roll, previous);
    }
    let mut layout = layout::choose(rules, &roll, previous)?;
    let chosen = choice::choose(rules, &roll, &layout, previous);
    // The topology may have no place for the nodes that could be reflectors.
    if chosen.holders.iter().all(|holder| holder.trouble == Some(Leave::NotReady)) {
        return frozen(rules, &roll, previous);
    }
    if let Some(Fitted { wanted, ids }) = chosen.fitted {
        let (topology, most) = (layout.topology, chosen.desired);
        // A new choice is requested explicitly; a running one is kept and repaired.
        if previous.topology != Some(topology) && ids > MOST_IDS {
            let scope = rules.id_scope(topology);
            return Err(Refusal::ManyIds { scope, needed: ids });
        }
        if previous.topology != Some(topology) {
            return Err(Refusal::ManyReflectors { topology, most, wanted });
        }
        layout.notes.push(format!(
            "{most} reflectors in place of the {wanted} that count gives: with more in topology {} there is \
             no room to replace one; for more use topology Simple with clusterID.per Set",
            topology.as_str()
        ));
    }
    let ids = choice::assign_ids(rules, layout.topology, &roll, &chosen, previous)?;
    let slots: Vec<_> =
        chosen.holders.iter().zip(ids).map(|(holder, id)| holder.slot(&roll, id)).collect();
    let groups = groups::form(rules, layout.topology, &layout.guests, &roll, &slots, previous);
    let multi = layout.topology == Topology::Multi;
    let crowded = if multi { layout::crowded(rules, &slots) } else { None };
    let mut by_zone: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for slot in &slots {
        *by_zone.entry(slot.zone.clone().unwrap_or_default()).or_default() += 1;
    }
    Ok(Target {
        topology: layout.topology,
        desired: chosen.desired,
        by_zone,
        peers: peers::all(layout.topology, &rules.key, &groups.slots),
        slots,
        groups: groups.of_node,
        group_slots: groups.slots,
        leaving: chosen.leaving(&roll),
        guests: groups.guests.into_iter().collect(),
        notes: layout.notes,
        crowded,
        freeze: None,
    })
}

/// Returns the current state as the target.
fn frozen(rules: &Rules, roll: &Roll, previous: &Previous) -> Result<Target, Refusal> {
    let topology = match (rules.topology, previous.topology) {
        (Topology::Auto, Some(before)) if before != Topology::Auto => before,
        (Topology::Auto, _) => Topology::Simple,
        (explicit, _) => explicit,
    };
    let chosen = choice::keep(roll);
    let ids = choice::assign_ids(rules, topology, roll, &chosen, previous)?;
    let slots: Vec<_> = chosen
        .holders
        .iter()
        .zip(ids)
        .map(|(holder, id)| holder.slot(roll, roll.members[holder.member].cluster_id.unwrap_or(id)))
        .collect();
    let mut by_zone: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for slot in &slots {
        *by_zone.entry(slot.zone.clone().unwrap_or_default()).or_default() += 1;
    }
    let group = |member: &&Member| Some((member.name.clone(), member.group.clone()?));
    Ok(Target {
        topology,
        desired: chosen.desired,
        by_zone,
        slots,
        groups: roll.members.iter().copied().filter_map(|member| group(&member)).collect(),
        group_slots: previous.groups.clone(),
        peers: peers::all(topology, &rules.key, &previous.groups),
        leaving: Vec::new(),
        guests: Vec::new(),
        notes: Vec::new(),
        crowded: None,
        freeze: Some(Freeze::NoCandidates),
    })
}

#[cfg(test)]
mod tests;
