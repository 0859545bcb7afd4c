//! The slots of each group, in topology Multi: one of its own zone, one of another, the others of
//! further zones while there are any; all slots serve equal numbers of groups, and no group changes
//! unnecessarily.
//!
//! Reflectors drop routes that carry their own cluster id. If a client has only reflectors of one
//! id left after another one failed, the other reflectors of that id do not learn its routes: so
//! its reflectors have as many different ids as possible.
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::Group;
use crate::{election::Slot, placement::hash};

/// The state of the distribution.
struct Deal<'a> {
    groups: &'a [Group],
    slots: &'a [Slot],
    /// Number of slots of each group.
    each: usize,
    /// The slots of each group, as places.
    hands: Vec<BTreeSet<usize>>,
    /// The number of groups that have each slot.
    loads: Vec<usize>,
    /// Groups that already had slots and were changed now. Since one slot comes or goes at a time,
    /// only one slot of a group changes: never all slots of a client at once.
    changed: Vec<bool>,
    fresh: Vec<bool>,
}

/// Deals the slots, starting from what each group has.
pub(super) fn deal(
    groups: &[Group],
    slots: &[Slot],
    each: usize,
    before: &BTreeMap<Arc<str>, BTreeSet<u32>>,
) -> BTreeMap<Arc<str>, BTreeSet<u32>> {
    let mut deal = Deal::new(groups, slots, each.min(slots.len()), before);
    if deal.each > 0 {
        deal.fill(Deal::is_own);
        if deal.each > 1 {
            deal.fill(|deal, group, slot| !deal.is_own(group, slot));
        }
        deal.fill_up();
        deal.spread();
        while deal.level() {}
    }
    let ids = |hand: BTreeSet<usize>| hand.into_iter().map(|slot| slots[slot].id).collect();
    let hands = deal.hands.into_iter().map(ids);
    let mut dealt: BTreeMap<Arc<str>, BTreeSet<u32>> = BTreeMap::new();
    for (group, hand) in groups.iter().zip(hands) {
        // Two zones with too similar names count as one.
        let hand: BTreeSet<u32> = hand;
        dealt.entry(group.name.clone()).or_default().extend(hand);
    }
    dealt.retain(|_, hand| !hand.is_empty());
    dealt
}

impl<'a> Deal<'a> {
    fn new(
        groups: &'a [Group],
        slots: &'a [Slot],
        each: usize,
        before: &BTreeMap<Arc<str>, BTreeSet<u32>>,
    ) -> Self {
        let mut deal = Self {
            groups,
            slots,
            each,
            hands: vec![BTreeSet::new(); groups.len()],
            loads: vec![0; slots.len()],
            changed: vec![false; groups.len()],
            fresh: groups.iter().map(|group| !before.contains_key(&group.name)).collect(),
        };
        for (group, Group { name, .. }) in groups.iter().enumerate() {
            let Some(hand) = before.get(name) else { continue };
            for (place, slot) in slots.iter().enumerate() {
                if hand.contains(&slot.id) {
                    deal.give(group, place);
                }
            }
            deal.changed[group] = deal.hands[group].len() < hand.len();
            // Fewer for each than before.
            while deal.hands[group].len() > each {
                let Some(slot) = deal.spare(group) else { break };
                deal.take(group, slot);
            }
        }
        deal
    }

    fn is_own(&self, group: usize, slot: usize) -> bool {
        self.groups[group].zone == self.slots[slot].zone
    }

    fn give(&mut self, group: usize, slot: usize) {
        if self.hands[group].insert(slot) {
            self.loads[slot] += 1;
        }
    }

    fn take(&mut self, group: usize, slot: usize) {
        if self.hands[group].remove(&slot) {
            self.loads[slot] -= 1;
        }
    }

    /// Reports whether the group has a slot of the same cluster id, other than these two.
    fn has_like(&self, group: usize, slot: usize, but: Option<usize>) -> bool {
        let id = self.slots[slot].cluster_id;
        let mut others = self.hands[group].iter().filter(|&&o| o != slot && Some(o) != but);
        others.any(|&other| self.slots[other].cluster_id == id)
    }

    /// Returns the slot, in place of `from` if set, that the fewest groups have, preferably with a
    /// cluster id that the group lacks; among equals, the group's hash decides.
    fn lightest(
        &self,
        group: usize,
        from: Option<usize>,
        may: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let open = (0..self.slots.len()).filter(|&s| may(s) && !self.hands[group].contains(&s));
        open.min_by_key(|&slot| {
            let key = hash::combine(u64::from(self.slots[slot].id), self.groups[group].hash);
            let like = self.has_like(group, slot, from);
            (like, self.loads[slot], Reverse(key), self.slots[slot].id)
        })
    }

    /// Returns the slot that the group can give away: neither its only one of its own zone nor its
    /// only one of another zone; of the others, the one that most groups have.
    fn spare(&self, group: usize) -> Option<usize> {
        let hand = &self.hands[group];
        let own = hand.iter().filter(|&&slot| self.is_own(group, slot)).count();
        let is_spare = |slot: &&usize| {
            let alike = if self.is_own(group, **slot) { own } else { hand.len() - own };
            alike > 1
        };
        let heaviest = |slot: &&usize| {
            let like = self.has_like(group, **slot, None);
            (like, self.loads[**slot], Reverse(self.slots[**slot].id))
        };
        hand.iter().filter(is_spare).max_by_key(heaviest).copied()
    }

    /// Gives every group a slot of one kind, if it has none.
    fn fill(&mut self, kind: impl Fn(&Self, usize, usize) -> bool) {
        for group in 0..self.groups.len() {
            if self.hands[group].iter().any(|&slot| kind(self, group, slot)) {
                continue;
            }
            let Some(slot) = self.lightest(group, None, |slot| kind(self, group, slot)) else {
                continue;
            };
            if self.hands[group].len() >= self.each {
                let Some(spare) = self.spare(group) else { continue };
                self.take(group, spare);
                self.changed[group] = true;
            }
            self.give(group, slot);
        }
    }

    fn fill_up(&mut self) {
        for _ in 0..self.each {
            for group in 0..self.groups.len() {
                if self.hands[group].len() < self.each
                    && let Some(slot) = self.lightest(group, None, |_| true)
                {
                    self.give(group, slot);
                }
            }
        }
    }

    /// Replaces one of two slots with the same id by one with an id that the group lacks.
    fn spread(&mut self) {
        for group in 0..self.groups.len() {
            while self.fresh[group] || !self.changed[group] {
                let Some(from) = self.spare(group).filter(|&s| self.has_like(group, s, None))
                else {
                    break;
                };
                let new = |slot: usize| !self.has_like(group, slot, None);
                let Some(to) = self.lightest(group, Some(from), new) else { break };
                self.take(group, from);
                self.give(group, to);
                self.changed[group] = true;
            }
        }
    }

    /// Moves one group from a slot to another that at least two fewer groups have. The sum of the
    /// squares shrinks, so this ends.
    fn level(&mut self) -> bool {
        let mut best: Option<(usize, usize, usize, usize)> = None;
        for group in 0..self.groups.len() {
            if self.changed[group] && !self.fresh[group] {
                continue;
            }
            for &from in &self.hands[group] {
                let own = self.is_own(group, from);
                let alike = |slot: &&usize| self.is_own(group, **slot) == own;
                let only = self.hands[group].iter().filter(alike).count() == 1;
                // The only slot of a kind is replaced by another of that kind, and the only slot of
                // an id not by one of an id that the group already has.
                let twice = self.has_like(group, from, None);
                let may = |slot: usize| {
                    (!only || self.is_own(group, slot) == own)
                        && (twice || !self.has_like(group, slot, Some(from)))
                };
                let Some(to) = self.lightest(group, Some(from), may) else { continue };
                let gain = self.loads[from].saturating_sub(self.loads[to]);
                if gain >= 2 && best.is_none_or(|(most, ..)| gain > most) {
                    best = Some((gain, group, from, to));
                }
            }
        }
        let Some((_, group, from, to)) = best else { return false };
        self.take(group, from);
        self.give(group, to);
        self.changed[group] = true;
        true
    }
}
