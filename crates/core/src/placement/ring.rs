//! The choice of peers to probe.
//!
//! For each ordered pair of zones there is one circle, on which every member of the two zones has
//! the position of its hash; a zone and itself are such a pair. Each member of the second zone, the
//! *target*, is probed by the `k` members of the first that precede it. Hence:
//!
//! - **Exact in-degree.** Every target has exactly min([`Neighbors::in_zone`], members of its zone
//!   − 1) probers in its own zone, and exactly min([`Neighbors::per_other_zone`], members of that
//!   zone) in each other zone. No member probes itself. So no target is forgotten, every path
//!   between two zones is measured, and a median over a target's probers always has the same number
//!   of values.
//! - **Out-degree.** Inside a zone, every member probes exactly as many as probe it. Across zones,
//!   a member probes those between it and the `k`-th member of its own zone after it: the same
//!   number on average, but not exactly. Each pair of zones has its own circle (the hash is salted
//!   with it), so that a member that probes many of one zone does not probe many of every zone.
//! - **Least movement.** When a member joins, each new edge begins or ends at it, and each removed
//!   edge belongs to a target that it now probes, one for one: the minimum that the exact in-degree
//!   allows. Inside a zone, this changes the lists of at most `k` others, each by one element in
//!   and one out. In each other zone, at most `k` lists gain the new target and lose nothing. In
//!   its own zone, at most `k` lists for each other zone lose targets to it: those between two
//!   members, so one or a few each. Leaving is the reverse. (The full mesh, of course, changes
//!   every list by one.)
//!
//! With five hundred members (the second and third lines are the rejected alternatives):
//!
//! | construction | in-degree | out-degree | lists touched when one leaves |
//! |---|---|---|---|
//! | ring, one zone, `{10, 0}` | 10..10 | 10..10 | 10 |
//! | each picks its 10 best by hash | 2..22 | 10..10 | 10 in the mean, up to 22 |
//! | full mesh | 499..499 | 499..499 | 499 |
//! | ring, three zones, `{8, 2}` | 12..12 | 8..22 | at most 16 |
//!
//! Sorting costs O(n log n) for each zone; everything else is proportional to the edges.
//!
//! # The bound
//!
//! An exact in-degree does not bound the out-degree: the only member of a zone probes every target
//! of every other one. Hence [`Ring::bounded`]. As long as no list would be longer than
//! [`Bound::most`], nothing is changed. A list that would be longer is cut, and only that one:
//!
//! - Targets of the own zone come first; a quarter of the list is left to other zones, as far as
//!   there are targets. The other zones share the rest evenly; if there are more zones than places,
//!   the list has one target of each of some zones.
//! - The targets of a cut list take turns, by [`Bound::epoch`]. If `d` targets of a zone share `a`
//!   places, each is probed within fewer than `2 * ceil(d / a)` consecutive epochs;
//!   [`Rotation::epochs`] is the number in which all of them are. One member more or less moves
//!   each window by one target.
//! - The cut depends only on the list itself: computing one list requires no other, and two
//!   replicas that briefly disagree on the epoch disagree on nothing else.
use std::collections::BTreeMap;

use super::hash;

/// A member that probes and is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Identity: members with the same id are one member. Positions depend on nothing else.
    pub id: String,
    /// Zone; members without one have `""`, which is a zone like any other.
    pub zone: String,
}

/// Numbers of members of a zone that probe each target. `{0, 0}` is the full mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbors {
    /// Probers in the target's own zone.
    pub in_zone: usize,
    /// Probers in each other zone.
    pub per_other_zone: usize,
}

impl Neighbors {
    /// Every member probes every other one.
    pub const FULL_MESH: Self = Self { in_zone: 0, per_other_zone: 0 };
}

/// The edges among one set of members.
///
/// An id that occurs twice is one member, in the smallest of its zones: every occurrence gets its
/// list, and the lists of others contain one of them, the first of that zone.
pub struct Ring {
    /// The member that each place of the caller's slice is.
    ranks: Vec<usize>,
    /// The members by id: place in the caller's slice, and hash of the id. A member's place here is
    /// its rank, which breaks ties of positions.
    members: Vec<(usize, u64)>,
    /// The members of each zone with the hash of its name.
    zones: Vec<(u64, Vec<usize>)>,
    /// The zone of each member.
    zone_of: Vec<usize>,
    neighbors: Neighbors,
    bound: Bound,
}

impl Ring {
    /// Builds the ring of these members, which does not depend on their order.
    #[must_use]
    pub fn new(members: &[Member], neighbors: Neighbors) -> Self {
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by_key(|&place| (&members[place].id, &members[place].zone, place));
        let mut ring = Self {
            ranks: vec![0; members.len()],
            members: Vec::with_capacity(members.len()),
            zones: Vec::new(),
            zone_of: Vec::with_capacity(members.len()),
            neighbors,
            bound: Bound::NONE,
        };
        let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
        for place in order {
            let Member { id, zone } = &members[place];
            let known = ring.members.last().is_some_and(|&(last, _)| members[last].id == *id);
            if !known {
                let next = zones.len();
                let index = *zones.entry(zone).or_insert(next);
                if index == next {
                    ring.zones.push((hash::of(zone), Vec::new()));
                }
                ring.zones[index].1.push(ring.members.len());
                ring.zone_of.push(index);
                ring.members.push((place, hash::of(id)));
            }
            ring.ranks[place] = ring.members.len() - 1;
        }
        ring
    }

    /// Returns the same ring with bounded lists.
    #[must_use]
    pub fn bounded(self, bound: Bound) -> Self {
        Self { bound, ..self }
    }

    /// Returns the peers of each member: for each index of the slice given to [`Ring::new`], the
    /// indices of its peers, in the order of their ids.
    #[must_use]
    pub fn peers(&self) -> Vec<Vec<usize>> {
        self.rotation().0
    }

    /// Returns the same, with the effect of the bound.
    #[must_use]
    pub fn rotation(&self) -> (Vec<Vec<usize>>, Rotation) {
        let mut rotation = Rotation { epochs: 1, ..Rotation::default() };
        let mut lists = vec![Vec::new(); self.members.len()];
        for zone in 0..self.zones.len() {
            self.turns_of_zone(zone, None, |from, turn| {
                rotation.note(&turn);
                lists[from] = self.places(turn.peers);
            });
        }
        (self.ranks.iter().map(|&rank| lists[rank].clone()).collect(), rotation)
    }

    /// Returns the peers of the member at one index of the slice: the same list as in
    /// [`Ring::peers`], without computing those of other zones. Empty for a place beyond the slice.
    #[must_use]
    pub fn peers_at(&self, place: usize) -> Vec<usize> {
        let Some(&rank) = self.ranks.get(place) else { return Vec::new() };
        let mut list = Vec::new();
        self.turns_of_zone(self.zone_of[rank], Some(rank), |_, turn| list = turn.peers);
        self.places(list)
    }

    /// Converts ranks to places. Ranks are in the order of ids, so that no list depends on the
    /// order in which it was built.
    fn places(&self, mut ranks: Vec<usize>) -> Vec<usize> {
        ranks.sort_unstable();
        ranks.into_iter().map(|rank| self.members[rank].0).collect()
    }

    /// Visits the list of each member of a zone, or of one of them. Only one zone's lists are in
    /// memory before they are cut.
    fn turns_of_zone(&self, zone: usize, only: Option<usize>, mut visit: impl FnMut(usize, Turn)) {
        let sources = &self.zones[zone].1;
        let wanted = |from: usize| only.is_none_or(|only| only == from);
        if self.neighbors == Neighbors::FULL_MESH {
            for &from in sources.iter().filter(|&&from| wanted(from)) {
                let others = self.zones.iter().enumerate().flat_map(|(zone, (_, members))| {
                    members.iter().filter(|&&to| to != from).map(move |&to| (zone, to))
                });
                visit(from, self.turn(from, &others.collect::<Vec<_>>()));
            }
            return;
        }
        let mut lists = vec![Vec::new(); sources.len()];
        self.edges_from_zone(zone, |source, target, to| {
            if wanted(sources[source]) {
                lists[source].push((target, to));
            }
        });
        for (source, list) in lists.into_iter().enumerate() {
            if wanted(sources[source]) {
                visit(sources[source], self.turn(sources[source], &list));
            }
        }
    }

    /// Visits every edge with a prober in a zone: the prober's place in that zone, the target's
    /// zone and rank; zone by zone, along the circle.
    fn edges_from_zone(&self, source: usize, mut visit: impl FnMut(usize, usize, usize)) {
        let sources = &self.zones[source].1;
        for (zone, (_, targets)) in self.zones.iter().enumerate() {
            let circle = hash::combine(self.zones[source].0, self.zones[zone].0);
            let probers = if source == zone {
                self.neighbors.in_zone.min(sources.len() - 1)
            } else {
                self.neighbors.per_other_zone.min(sources.len())
            };
            if probers == 0 {
                continue;
            }
            let sources = self.positions(circle, sources);
            // The number of sources that precede this target; a source that is the target does not
            // count.
            let mut before = 0;
            for (position, to) in self.positions(circle, targets) {
                let to = targets[to];
                let precedes = |&(at, place): &(u64, usize)| {
                    (at, self.zones[source].1[place]) < (position, to)
                };
                while sources.get(before).is_some_and(precedes) {
                    before += 1;
                }
                for step in 1..=probers {
                    let index = (before + sources.len() - step) % sources.len();
                    visit(sources[index].1, zone, to);
                }
            }
        }
    }

    /// Returns the members of a zone along a circle, as places in that zone, which are in the order
    /// of ranks, so that ties are broken by rank.
    fn positions(&self, circle: u64, ranks: &[usize]) -> Vec<(u64, usize)> {
        let position =
            |(place, &rank): (usize, &usize)| (hash::combine(circle, self.members[rank].1), place);
        let mut positions: Vec<_> = ranks.iter().enumerate().map(position).collect();
        positions.sort_unstable();
        positions
    }
}

/// Returns the peers of one member, as indices in `members`; none if it is not among them.
#[must_use]
pub fn peers_of(members: &[Member], neighbors: Neighbors, bound: Bound, who: &str) -> Vec<usize> {
    let place = members.iter().position(|member| member.id == who);
    let ring = |place| Ring::new(members, neighbors).bounded(bound).peers_at(place);
    place.map_or_else(Vec::new, ring)
}

/// The bound of one member's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Maximum number of peers in a list.
    pub most: usize,
    /// Number of the turn: the caller computes it from the time, so that nothing here needs a
    /// clock.
    pub epoch: u64,
}

impl Bound {
    /// No bound: every list is complete.
    pub const NONE: Self = Self { most: usize::MAX, epoch: 0 };
}

/// The part of a list that is kept for other zones while there are targets: a quarter. Without it,
/// a zone with enough members to fill the list would never measure a path to another zone.
const FOR_OTHER_ZONES: usize = 4;

/// One member's list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Turn {
    /// The peers of this epoch, as ranks.
    pub peers: Vec<usize>,
    /// Number of peers without a bound.
    pub wanted: usize,
    /// The number of consecutive epochs in which it probes all of them.
    pub epochs: u64,
}

/// The effect of the bound on a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The number of members that have more targets than they may probe at a time.
    pub members: usize,
    /// Largest number of targets of one member.
    pub wanted: usize,
    /// The number of consecutive epochs in which each member probes all of its targets: 1 if
    /// nothing rotates.
    pub epochs: u64,
}

impl Rotation {
    fn note(&mut self, turn: &Turn) {
        self.members += usize::from(turn.peers.len() < turn.wanted);
        self.wanted = self.wanted.max(turn.wanted);
        self.epochs = self.epochs.max(turn.epochs);
    }
}

impl Ring {
    /// Selects the list of a member from all its targets: pairs of zone and rank, zone by zone.
    fn turn(&self, rank: usize, wanted: &[(usize, usize)]) -> Turn {
        let Bound { most, epoch } = self.bound;
        let ranks = |group: &[(usize, usize)]| group.iter().map(|&(_, to)| to).collect::<Vec<_>>();
        if wanted.len() <= most {
            return Turn { peers: ranks(wanted), wanted: wanted.len(), epochs: 1 };
        }
        let seed = self.members[rank].1;
        let phase = |zone: usize| hash::combine(seed, self.zones[zone].0);
        let groups = wanted.chunk_by(|one, other| one.0 == other.0);
        let (own, mut others): (Vec<_>, Vec<_>) =
            groups.partition(|group| group[0].0 == self.zone_of[rank]);
        let own = own.first().copied().unwrap_or_default();
        // Each member has its own order of zones: other members probe what this one cannot probe
        // now.
        others.sort_by_key(|group| (phase(group[0].0), group[0].0));
        let outside: usize = others.iter().map(|group| group.len()).sum();
        let inside = own.len().min(most - outside.min(most / FOR_OTHER_ZONES));
        let left = most - inside;

        let mut turn = Turn { peers: Vec::with_capacity(most), wanted: wanted.len(), epochs: 1 };
        let mut take = |group: &[(usize, usize)], room: usize, epoch: u64| {
            let start = phase(group.first().map_or(0, |&(zone, _)| zone));
            turn.peers.extend(window(group.len(), room, start, epoch).map(|i| group[i].1));
            turn.epochs = turn.epochs.max(epochs(group.len(), room));
        };
        if inside > 0 {
            take(own, inside, epoch);
        }
        if others.len() <= left {
            let sizes: Vec<_> = others.iter().map(|group| group.len()).collect();
            for (group, room) in others.iter().zip(shares(&sizes, left)) {
                take(group, room, epoch);
            }
        } else if left > 0 {
            // One target of each zone in turn; at the next turn of the zone, another one.
            let rounds = epochs(others.len(), left);
            for place in window(others.len(), left, seed, epoch) {
                take(others[place], 1, epoch / rounds);
            }
            let largest = others.iter().map(|group| group.len()).max().unwrap_or_default();
            // A round of zones may have begun before the first of these epochs.
            turn.epochs = turn.epochs.max((epochs(largest, 1) + 1).saturating_mul(rounds));
        }
        turn
    }
}

/// Returns the number of consecutive epochs in which each of `len` elements has its turn, with
/// `room` at a time: less than twice as many as a plain rotation needs. A power of two, so that the
/// number and the current turn stay the same while elements come and go.
fn epochs(len: usize, room: usize) -> u64 {
    if room >= len {
        return 1;
    }
    let turns = len.div_ceil(room.max(1)).next_power_of_two();
    u64::try_from(turns).unwrap_or(u64::MAX)
}

/// Selects the current turn: `room` of `len` elements in a cyclic order.
///
/// The windows begin at the points of van der Corput's sequence (the bits of the epoch, backwards,
/// are a fraction of the circle): any 2^n consecutive epochs are 2^n evenly spaced points. So each
/// element has its turn, and one more or less moves each window by at most one element; twice as
/// many, by half a window.
fn window(len: usize, room: usize, phase: u64, epoch: u64) -> impl Iterator<Item = usize> {
    let kept = u64::MAX.checked_shr(epochs(len, room).trailing_zeros()).unwrap_or(0);
    let point = phase.wrapping_add(epoch.reverse_bits() & !kept);
    let start = (u128::from(point) * len as u128) >> u64::BITS;
    let start = usize::try_from(start).unwrap_or_default();
    (0..room.min(len)).map(move |i| (start + i) % len)
}

/// Returns the share of each group, if `room` is divided among them: equal shares, and the part
/// that small groups do not need goes to the others.
fn shares(sizes: &[usize], room: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..sizes.len()).collect();
    order.sort_by_key(|&group| sizes[group]);
    let mut left = room;
    let mut shares = vec![0; sizes.len()];
    for (before, group) in order.into_iter().enumerate() {
        shares[group] = sizes[group].min(left / (sizes.len() - before));
        left -= shares[group];
    }
    shares
}

#[cfg(test)]
mod tests;
