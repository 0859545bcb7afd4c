//! The groups of clients: node → group → slots.
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Leave, Previous, Roll, Rules, Slot, peers};
use crate::{election::Topology, placement::hash};

mod even;

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

fn clients<'a>(roll: &Roll<'a>, slots: &[Slot]) -> Vec<&'a super::Member> {
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
        Groups { slots: even::deal(&all, slots, peers, &previous.groups), ..Groups::default() };

    let is_down = |slot: &&Slot| slot.trouble == Some(Leave::NotReady);
    let down: BTreeSet<u32> = slots.iter().filter(is_down).map(|slot| slot.id).collect();
    let lives =
        |group: &&Group| found.slots.get(&group.name).is_some_and(|slots| !slots.is_subset(&down));
    let living = |groups: &[Group]| groups.iter().filter(lives).cloned().collect::<Vec<_>>();
    let all_living = if down.len() < slots.len() { living(&all) } else { all };

    let mut strays = Vec::new();
    let mut members: BTreeMap<Option<&Arc<str>>, Vec<&super::Member>> = BTreeMap::new();
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
fn divide(
    groups: &[Group],
    members: &[&super::Member],
    of_node: &mut BTreeMap<Arc<str>, Arc<str>>,
) {
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
