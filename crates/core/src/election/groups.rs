//! The groups of clients: node → group → slots.
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Leave, Member, Previous, Roll, Rules, Slot, Topology, peers};
use crate::placement::hash;

/// Topology Multi divides each zone into this many groups: twelve can be divided evenly among 2, 3,
/// 4 and 6 reflectors, and are few enough that every node's confd can evaluate all `BGPPeer`s.
pub const GROUPS_PER_ZONE: usize = 12;

/// The longest part of a zone's name that is kept beside its hash: with the hash and a number it is
/// still a valid label.
const KEPT: usize = 40;

/// The members and the slots of each group.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub of_node: BTreeMap<Arc<str>, Arc<str>>,
    pub slots: BTreeMap<Arc<str>, BTreeSet<u32>>,
    /// Zones with clients of another zone's reflectors.
    pub guests: BTreeSet<Arc<str>>,
}

/// Returns the group of a zone: the zone's name, if that can be the end of an object's name and is
/// not used by the peer of all clients; otherwise a similar name.
#[must_use]
pub fn name(zone: Option<&str>) -> Arc<str> {
    let zone = zone.unwrap_or_default();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let as_is = !zone.is_empty()
        && zone.len() <= KEPT + 9
        && zone.chars().all(plain)
        && !zone.starts_with('-')
        && !zone.ends_with('-')
        && zone != peers::WIDE;
    if as_is {
        return zone.into();
    }
    let lower = zone.chars().map(|c| c.to_ascii_lowercase());
    let kept: String = lower.map(|c| if plain(c) { c } else { '-' }).take(KEPT).collect();
    let kept = kept.trim_matches('-');
    let kept = if kept.is_empty() { "zone" } else { kept };
    format!("{kept}-{:08x}", hash::of(zone) >> 32).into()
}

pub(super) fn form(
    rules: &Rules,
    topology: Topology,
    guests: &[Arc<str>],
    roll: &Roll,
    slots: &[Slot],
    previous: &Previous,
) -> Groups {
    match topology {
        Topology::Zonal => zonal(guests, roll, slots),
        Topology::Multi => multi(rules.peers_per_client, roll, slots, previous),
        Topology::Simple | Topology::Auto => Groups::default(),
    }
}

fn clients<'a>(roll: &Roll<'a>, slots: &[Slot]) -> Vec<&'a Member> {
    let reflectors: BTreeSet<_> = slots.iter().map(|slot| &slot.node).collect();
    roll.members.iter().copied().filter(|member| !reflectors.contains(&member.name)).collect()
}

/// Makes a group for each zone. Nodes of guests, of no zone, and of a zone with all reflectors down
/// stay in their group if it has a living reflector, otherwise they go to the first one that has.
fn zonal(guests: &[Arc<str>], roll: &Roll, slots: &[Slot]) -> Groups {
    let mut groups = Groups { guests: guests.iter().cloned().collect(), ..Groups::default() };
    let mut living = BTreeSet::new();
    for slot in slots {
        let group = name(slot.zone.as_deref());
        if slot.trouble != Some(Leave::NotReady) {
            living.insert(group.clone());
        }
        groups.slots.entry(group).or_default().insert(slot.id);
    }
    if living.is_empty() {
        living = groups.slots.keys().cloned().collect();
    }
    let Some(first) = living.first() else { return groups };
    let own = |zone: &Arc<str>| Some(name(Some(zone))).filter(|_| !guests.contains(zone));
    let of_zones: BTreeMap<_, _> =
        roll.zones().into_keys().flatten().map(|zone| (zone, own(zone))).collect();
    for member in clients(roll, slots) {
        let of_zone = member.zone().and_then(|zone| of_zones.get(zone)?.as_ref());
        let mut choices = of_zone.into_iter().chain(&member.group);
        let group = choices.find(|group| living.contains(*group)).unwrap_or(first);
        if of_zone.is_some_and(|own| own != group) {
            groups.guests.extend(member.zone().cloned());
        }
        groups.of_node.insert(member.name.clone(), group.clone());
    }
    groups
}

/// Makes a fixed number of groups for each zone, each with its own slots. Where all reflectors of a
/// group are down, its nodes join groups that have a living one: of their zone, or else of any.
fn multi(peers: usize, roll: &Roll, slots: &[Slot], previous: &Previous) -> Groups {
    let mut zones: BTreeSet<Option<&Arc<str>>> = roll.zones().into_keys().collect();
    if zones.len() > 1 {
        // Nodes without a zone are spread over the groups of all.
        zones.remove(&None);
    }
    let of_zone = |zone: Option<&Arc<str>>| -> Vec<Group> {
        let base = name(zone.map(|zone| &**zone));
        let group = |number| -> Arc<str> { format!("{base}-{number}").into() };
        (0..GROUPS_PER_ZONE).map(|number| Group::new(group(number), zone.cloned())).collect()
    };
    let by_zone: BTreeMap<_, _> = zones.into_iter().map(|zone| (zone, of_zone(zone))).collect();
    let all: Vec<Group> = by_zone.values().flatten().cloned().collect();
    let mut found =
        Groups { slots: deal(&all, slots, peers, &previous.groups), ..Groups::default() };

    let is_down = |slot: &&Slot| slot.trouble == Some(Leave::NotReady);
    let down: BTreeSet<u32> = slots.iter().filter(is_down).map(|slot| slot.id).collect();
    let lives =
        |group: &&Group| found.slots.get(&group.name).is_some_and(|slots| !slots.is_subset(&down));
    let living = |groups: &[Group]| groups.iter().filter(lives).cloned().collect::<Vec<_>>();
    let all_living = if down.len() < slots.len() { living(&all) } else { all };

    let mut strays = Vec::new();
    let mut members: BTreeMap<Option<&Arc<str>>, Vec<&Member>> = BTreeMap::new();
    for member in clients(roll, slots) {
        if by_zone.contains_key(&member.zone()) {
            members.entry(member.zone()).or_default().push(member);
        } else {
            strays.push(member);
        }
    }
    for (zone, members) in members {
        let Some(own) = by_zone.get(&zone) else { continue };
        let own_living = if down.len() < slots.len() { living(own) } else { own.clone() };
        if own_living.is_empty() {
            found.guests.extend(zone.cloned());
            divide(&all_living, &members, &mut found.of_node);
        } else {
            divide(&own_living, &members, &mut found.of_node);
        }
    }
    divide(&all_living, &strays, &mut found.of_node);
    found
}

/// A group of topology Multi.
#[derive(Clone, Debug)]
struct Group {
    name: Arc<str>,
    zone: Option<Arc<str>>,
    hash: u64,
}

impl Group {
    fn new(name: Arc<str>, zone: Option<Arc<str>>) -> Self {
        let hash = hash::of(&name);
        Self { name, zone, hash }
    }
}

/// Every node keeps its group; a node without one joins one of the smallest groups, chosen by its
/// hash. No node moves because another one came or went.
fn divide(groups: &[Group], members: &[&Member], of_node: &mut BTreeMap<Arc<str>, Arc<str>>) {
    if groups.is_empty() {
        return;
    }
    let mut sizes = vec![0; groups.len()];
    let mut homeless = Vec::new();
    for member in members {
        let own = |group: &Group| Some(&group.name) == member.group.as_ref();
        if let Some(place) = groups.iter().position(own) {
            sizes[place] += 1;
            of_node.insert(member.name.clone(), groups[place].name.clone());
        } else {
            homeless.push(*member);
        }
    }
    for member in homeless {
        let key = hash::of(&member.name);
        let score = |place: usize| Reverse(hash::combine(groups[place].hash, key));
        let best = (0..groups.len()).min_by_key(|&place| (sizes[place], score(place)));
        if let Some(place) = best {
            sizes[place] += 1;
            of_node.insert(member.name.clone(), groups[place].name.clone());
        }
    }
}

/// The distribution of slots in topology Multi. Each group has one of its own zone, one of another,
/// the others of further zones while there are any; all slots serve equal numbers of groups, and no
/// group changes unnecessarily.
///
/// Reflectors drop routes that carry their own cluster id. If a client has only reflectors of one
/// id left after another one failed, the other reflectors of that id do not learn its routes: so
/// its reflectors have as many different ids as possible.
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
fn deal(
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
