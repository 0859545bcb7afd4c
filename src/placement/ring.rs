//! Who probes whom.
//!
//! For each ordered pair of zones there is one circle, on which every member of the two zones has the
//! position of its hash; a zone and itself are such a pair. Each member of the second zone, the
//! *target*, is probed by the `k` members of the first that precede it. Hence:
//!
//! - **Exact in-degree.** Every target has exactly min([`Neighbours::in_zone`], members of its zone − 1)
//!   probers in its own zone, and exactly min([`Neighbours::per_other_zone`], members of that zone) in each
//!   other zone. Nobody probes itself. So no target is forgotten, every path between two zones is
//!   measured, and a median over a target's probers always has the same number of voices.
//! - **Out-degree.** Inside a zone everybody probes exactly as many as probe it. Across zones a
//!   member probes those that lie between it and the `k`-th of its own zone after it: as many as in the
//!   mean, but not exactly. Each pair of zones has a circle of its own (the hash is salted with it),
//!   so that who probes many of one zone does not probe many of every zone.
//! - **Least movement.** When a member comes, each edge that appears begins or ends at it, and each
//!   edge that vanishes is of a target that it now probes, one for one: as little as the exact
//!   in-degree allows. Inside a zone that touches the lists of at most `k` others, each by one
//!   element in and one out. In each other zone at most `k` lists gain the new target and lose
//!   nothing. Of its own zone at most `k` lists for each other zone lose targets to it: those between
//!   two members, so one or a few each. Leaving is the same backwards. (The full mesh, of course,
//!   touches every list by one.)
//!
//! Five hundred members (the second and third line are what was weighed against it):
//!
//! | construction | in-degree | out-degree | lists touched when one leaves |
//! |---|---|---|---|
//! | ring, one zone, `{10, 0}` | 10..10 | 10..10 | 10 |
//! | each picks its 10 best by hash | 2..22 | 10..10 | 10 in the mean, up to 22 |
//! | full mesh | 499..499 | 499..499 | 499 |
//! | ring, three zones, `{8, 2}` | 12..12 | 8..22 | at most 16 |
//!
//! Sorting costs O(n log n) for each zone, all else is proportional to the edges.
use std::collections::BTreeMap;

use super::hash;

/// Somebody who probes and is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Identity: who has the same id is the same member. Positions depend on nothing else.
    pub id: String,
    /// Zone; those without one have `""`, which is a zone like any other.
    pub zone: String,
}

/// How many members of a zone probe each target. `{0, 0}` is the full mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbours {
    /// Of the target's own zone.
    pub in_zone: usize,
    /// Of each other zone.
    pub per_other_zone: usize,
}

impl Neighbours {
    /// Everybody probes everybody.
    pub const FULL_MESH: Self = Self { in_zone: 0, per_other_zone: 0 };
}

/// The edges among one set of members.
///
/// An id that occurs twice is one member, in the smallest of its zones: every occurrence gets
/// its list, and in the lists of others stands one of them, the first of that zone.
pub struct Ring {
    /// The member that each place of the caller's slice is.
    ranks: Vec<usize>,
    /// The members by id: place in the caller's slice, and hash of the id. A member's place here is
    /// its rank; ties of positions go by it.
    members: Vec<(usize, u64)>,
    /// The members of each zone with the hash of its name.
    zones: Vec<(u64, Vec<usize>)>,
    /// The zone of each member.
    zone_of: Vec<usize>,
    neighbours: Neighbours,
}

impl Ring {
    /// The ring of these members, whatever their order.
    #[must_use]
    pub fn new(members: &[Member], neighbours: Neighbours) -> Self {
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by_key(|&place| (&members[place].id, &members[place].zone, place));
        let mut ring = Self {
            ranks: vec![0; members.len()],
            members: Vec::with_capacity(members.len()),
            zones: Vec::new(),
            zone_of: Vec::with_capacity(members.len()),
            neighbours,
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

    /// Whom each probes: for each place of the slice given to [`Ring::new`] the places of its peers, in the
    /// order of their ids.
    #[must_use]
    pub fn peers(&self) -> Vec<Vec<usize>> {
        let mut lists = vec![Vec::new(); self.members.len()];
        for source in 0..self.zones.len() {
            self.edges_from_zone(source, |from, to| lists[from].push(to));
        }
        let lists: Vec<_> = lists.into_iter().map(|list| self.places(list)).collect();
        self.ranks.iter().map(|&rank| lists[rank].clone()).collect()
    }

    /// Whom the member at one place of the slice probes: the same as that list of [`Ring::peers`], without
    /// computing those of other zones. Nobody for a place beyond the slice.
    #[must_use]
    pub fn peers_at(&self, place: usize) -> Vec<usize> {
        let Some(&rank) = self.ranks.get(place) else { return Vec::new() };
        let mut list = Vec::new();
        self.edges_from_zone(self.zone_of[rank], |from, to| {
            if from == rank {
                list.push(to);
            }
        });
        self.places(list)
    }

    /// Ranks are in the order of ids, so that no list depends on the order in which it was made.
    fn places(&self, mut ranks: Vec<usize>) -> Vec<usize> {
        ranks.sort_unstable();
        ranks.into_iter().map(|rank| self.members[rank].0).collect()
    }

    /// Visits every edge whose prober is in a zone, as ranks.
    fn edges_from_zone(&self, source: usize, mut visit: impl FnMut(usize, usize)) {
        let sources = &self.zones[source].1;
        if self.neighbours == Neighbours::FULL_MESH {
            for &from in sources {
                (0..self.members.len()).filter(|&to| to != from).for_each(|to| visit(from, to));
            }
            return;
        }
        for (target, (_, targets)) in self.zones.iter().enumerate() {
            let circle = hash::combine(self.zones[source].0, self.zones[target].0);
            let probers = if source == target {
                self.neighbours.in_zone.min(sources.len() - 1)
            } else {
                self.neighbours.per_other_zone.min(sources.len())
            };
            if probers == 0 {
                continue;
            }
            let sources = self.positions(circle, sources);
            // How many sources precede this target; a source that is the target does not.
            let mut before = 0;
            for target in self.positions(circle, targets) {
                while sources.get(before).is_some_and(|source| *source < target) {
                    before += 1;
                }
                for step in 1..=probers {
                    let index = (before + sources.len() - step) % sources.len();
                    visit(sources[index].1, target.1);
                }
            }
        }
    }

    /// Members along a circle.
    fn positions(&self, circle: u64, ranks: &[usize]) -> Vec<(u64, usize)> {
        let position = |&rank: &usize| (hash::combine(circle, self.members[rank].1), rank);
        let mut positions: Vec<_> = ranks.iter().map(position).collect();
        positions.sort_unstable();
        positions
    }
}

/// Whom one member probes, as places in `members`; nobody if it is not among them.
#[must_use]
pub fn peers_of(members: &[Member], neighbours: Neighbours, who: &str) -> Vec<usize> {
    let place = members.iter().position(|member| member.id == who);
    place.map_or_else(Vec::new, |place| Ring::new(members, neighbours).peers_at(place))
}

#[cfg(test)]
mod tests;
