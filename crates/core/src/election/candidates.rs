//! The existing nodes, and the standing of each in the set.
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Leave, Member, Previous, Rules, rules::Nodes};

/// The nodes by name.
pub(super) struct Roll<'a> {
    pub members: Vec<&'a Member>,
    /// The standing of each node, in the same order.
    pub standing: Vec<Standing>,
    /// The reason why each should not be a reflector in any topology, if there is one.
    troubles: Vec<Option<Leave>>,
    /// Slots that more than one node holds: one replaces the other.
    doubled: BTreeSet<u32>,
}

/// The standing of a node in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// A reflector; without a slot if it was adopted this moment.
    Holder(Option<u32>),
    /// According to the status it has this slot, but its labels were removed by hand.
    Returning(u32),
    /// A client.
    Other,
}

/// The rank of a node as a reflector: lower is better.
pub(super) type Rank<'a> = (bool, bool, bool, bool, u32, i64, &'a str);

impl Member {
    /// Reports whether it could be a reflector now.
    pub(super) fn is_usable(&self) -> bool {
        self.suitable && self.ready && !self.closed
    }

    pub(super) fn zone(&self) -> Option<&Arc<str>> {
        self.zone.as_ref().filter(|zone| !zone.is_empty())
    }

    fn trouble(&self, rules: &Rules) -> Option<Leave> {
        // First, because a node that is down serves no clients, whatever its other problems are.
        if !self.ready && self.not_ready_for.is_some_and(|time| time >= rules.replace_after) {
            Some(Leave::NotReady)
        } else if !self.suitable {
            Some(Leave::NotSuitable)
        } else if self.closed {
            Some(Leave::Cordoned)
        } else if self.unfit && self.unfit_for.is_some_and(|time| time >= rules.demote_after) {
            Some(Leave::Unfit)
        } else {
            None
        }
    }
}

impl<'a> Roll<'a> {
    pub fn new(rules: &Rules, members: &'a [Member], previous: &Previous) -> Self {
        let mut members: Vec<&Member> = members.iter().collect();
        members.sort_by_key(|member| &member.name);
        let first = previous.slots.is_empty();
        let before: BTreeMap<&str, u32> =
            previous.slots.iter().map(|slot| (&*slot.node, slot.id)).collect();
        let troubles: Vec<_> = members.iter().map(|member| member.trouble(rules)).collect();
        let mut standing: Vec<_> = members
            .iter()
            .map(|member| {
                let before = before.get(&*member.name).copied();
                let reflects = member.labeled && member.cluster_id.is_some();
                if member.slot.is_some() {
                    Standing::Holder(member.slot)
                } else if reflects && (first || before.is_some()) {
                    Standing::Holder(before)
                } else {
                    Standing::Other
                }
            })
            .collect();
        let (mut held, mut doubled) = (BTreeSet::new(), BTreeSet::new());
        for standing in &standing {
            if let Standing::Holder(Some(slot)) = standing
                && !held.insert(*slot)
            {
                doubled.insert(*slot);
            }
        }
        for (index, member) in members.iter().enumerate() {
            let vacant = before.get(&*member.name).filter(|slot| !held.contains(*slot));
            if let Some(slot) = vacant
                && standing[index] == Standing::Other
                && member.is_usable()
                && troubles[index].is_none()
            {
                standing[index] = Standing::Returning(*slot);
                held.insert(*slot);
            }
        }
        Self { members, standing, troubles, doubled }
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_holder(&self, index: usize) -> bool {
        matches!(self.standing[index], Standing::Holder(_))
    }

    pub fn trouble(&self, index: usize) -> Option<Leave> {
        self.troubles[index]
    }

    /// Returns the slot that it has, or had.
    pub fn slot(&self, index: usize) -> Option<u32> {
        match self.standing[index] {
            Standing::Holder(slot) => slot,
            Standing::Returning(slot) => Some(slot),
            Standing::Other => None,
        }
    }

    /// Returns the rank: Ready > its slot is its own > fit > preferred > fewest workloads > older >
    /// name.
    pub fn rank(&self, index: usize) -> Rank<'a> {
        let member = self.members[index];
        let doubled = self.is_holder(index)
            && self.slot(index).is_some_and(|slot| self.doubled.contains(&slot));
        (
            !member.ready,
            doubled,
            member.unfit,
            !member.preferred,
            member.workloads,
            member.created,
            &member.name,
        )
    }

    /// Counts the slots that these hold.
    pub fn held(&self, indices: impl Iterator<Item = usize>) -> usize {
        let (mut slots, mut adopted) = (BTreeSet::new(), 0);
        for index in indices {
            match (self.standing[index], self.slot(index)) {
                (Standing::Other, _) => {}
                (_, Some(slot)) => _ = slots.insert(slot),
                (_, None) => adopted += 1,
            }
        }
        slots.len() + adopted
    }

    /// Counts them by state.
    pub fn count(&self, indices: impl Iterator<Item = usize>) -> Nodes {
        let mut nodes = Nodes::default();
        for member in indices.map(|index| self.members[index]) {
            nodes.all += 1;
            nodes.ready += usize::from(member.ready);
            nodes.suitable += usize::from(member.suitable);
            nodes.usable += usize::from(member.is_usable());
        }
        nodes
    }

    /// Returns the nodes of each zone; the key is `None` for nodes without a zone.
    pub fn zones(&self) -> BTreeMap<Option<&'a Arc<str>>, Vec<usize>> {
        let mut zones: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (index, member) in self.members.iter().enumerate() {
            zones.entry(member.zone()).or_default().push(index);
        }
        zones
    }

    /// Sorts the nodes from worst to best.
    pub fn worst_first(&self, indices: &mut [usize]) {
        indices.sort_by_key(|&index| Reverse((self.troubles[index].is_some(), self.rank(index))));
    }
}
