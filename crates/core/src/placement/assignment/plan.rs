//! The input, every id once and in an order that does not depend on the caller's, and the decisions
//! so far: the planned place of each unit.
use std::collections::BTreeMap;

use super::{Item, Policy, Reason, Rules, Standing, Worker};
use crate::placement::hash;

/// An item; repeated entries are merged.
#[derive(Debug)]
pub(super) struct Unit {
    pub hash: u64,
    pub weight: u64,
    pub pin: Pin,
    pub dedicated: bool,
    /// The host that has it; `None` if that worker is gone.
    pub previous: Option<usize>,
}

/// The worker that an item is pinned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pin {
    Nowhere,
    To(usize),
    Absent,
}

/// A worker; repeated entries are merged.
#[derive(Debug)]
pub(super) struct Host {
    pub hash: u64,
    pub standing: Standing,
}

/// Units and hosts, in the order of the hashes of their ids; under [`Policy::Contiguous`] in the
/// caller's order. Everything else is a function of this input, so that no other policy depends on
/// the caller's order.
pub(super) struct Input {
    pub units: Vec<Unit>,
    pub hosts: Vec<Host>,
    units_by_place: Vec<usize>,
    places_of_hosts: Vec<usize>,
}

impl Input {
    pub fn new(
        items: &[Item],
        workers: &[Worker],
        previous: &[Option<usize>],
        policy: Policy,
    ) -> Self {
        let in_order = policy == Policy::Contiguous;
        let names = Ranks::new(workers.iter().map(|worker| worker.id), in_order);
        let host = |&(_, hash): &(usize, u64)| Host { hash, standing: Standing::Full };
        let mut hosts: Vec<Host> = names.firsts.iter().map(host).collect();
        for (worker, &rank) in workers.iter().zip(&names.by_place) {
            // The most cautious of the given values, which does not depend on their order.
            hosts[rank].standing = hosts[rank].standing.max(worker.standing);
        }
        let by_id: BTreeMap<&str, usize> =
            workers.iter().map(|worker| worker.id).zip(names.by_place.iter().copied()).collect();

        let ids = Ranks::new(items.iter().map(|item| item.id), in_order);
        let unit = |&(_, hash): &(usize, u64)| Unit {
            hash,
            weight: 1,
            pin: Pin::Nowhere,
            dedicated: false,
            previous: None,
        };
        let mut units: Vec<Unit> = ids.firsts.iter().map(unit).collect();
        for (place, (item, &rank)) in items.iter().zip(&ids.by_place).enumerate() {
            let owner = previous.get(place).copied().flatten();
            let owner = owner.and_then(|worker| names.by_place.get(worker).copied());
            units[rank].add(item, &by_id, owner);
        }
        let places_of_hosts = names.firsts.into_iter().map(|(place, _)| place).collect();
        Self { units, hosts, units_by_place: ids.by_place, places_of_hosts }
    }

    /// Returns the suitability of a host for a unit.
    pub fn score(&self, unit: usize, host: usize) -> u64 {
        hash::combine(self.units[unit].hash, self.hosts[host].hash)
    }

    /// Returns the host that has a unit, with its standing.
    pub fn owner(&self, unit: usize) -> Option<(usize, Standing)> {
        self.units[unit].previous.map(|host| (host, self.hosts[host].standing))
    }

    /// Reports whether all units have the same weight. Dedicated ones do not count: they share no
    /// worker.
    pub fn has_equal_weights(&self) -> bool {
        let mut weights = self.units.iter().filter(|unit| !unit.dedicated).map(|unit| unit.weight);
        let first = weights.next();
        weights.all(|weight| Some(weight) == first)
    }

    /// Counts the units of each host.
    pub fn holdings(&self) -> Vec<usize> {
        let mut holdings = vec![0; self.hosts.len()];
        for host in self.units.iter().filter_map(|unit| unit.previous) {
            holdings[host] += 1;
        }
        holdings
    }

    /// Returns the unit at each place of the caller's slice of items.
    pub fn units_by_place(&self) -> &[usize] {
        &self.units_by_place
    }

    /// Returns the place of a host in the caller's slice of workers.
    pub fn place(&self, host: usize) -> usize {
        self.places_of_hosts[host]
    }
}

impl Unit {
    /// Merges repeated entries of an item in a way that does not depend on their order.
    fn add(&mut self, item: &Item, workers: &BTreeMap<&str, usize>, owner: Option<usize>) {
        self.weight = self.weight.max(item.weight);
        self.dedicated |= item.dedicated;
        let pin = item.pin.map(|id| workers.get(id).map_or(Pin::Absent, |&host| Pin::To(host)));
        self.pin = match (self.pin, pin) {
            (known, None) => known,
            (Pin::To(known), Some(Pin::To(host))) => Pin::To(known.min(host)),
            (Pin::To(known), Some(_)) => Pin::To(known),
            (_, Some(pin)) => pin,
        };
        self.previous = match (self.previous, owner) {
            (Some(known), Some(host)) => Some(known.min(host)),
            (known, owner) => known.or(owner),
        };
    }
}

/// Ids without repetition.
struct Ranks {
    /// The first position of each id, and its hash.
    firsts: Vec<(usize, u64)>,
    /// For each place of the caller's slice, the rank of its id in `firsts`.
    by_place: Vec<usize>,
}

impl Ranks {
    fn new<'a>(ids: impl Iterator<Item = &'a str>, in_order: bool) -> Self {
        let mut sorted: Vec<_> =
            ids.enumerate().map(|(place, id)| (hash::of(id), id, place)).collect();
        sorted.sort_unstable();
        let mut firsts: Vec<(usize, u64)> = Vec::with_capacity(sorted.len());
        let mut by_place = vec![0; sorted.len()];
        let mut last = None;
        for (hash, id, place) in sorted {
            if last != Some(id) {
                firsts.push((place, hash));
                last = Some(id);
            }
            by_place[place] = firsts.len() - 1;
        }
        if in_order {
            let mut order: Vec<usize> = (0..firsts.len()).collect();
            order.sort_unstable_by_key(|&rank| firsts[rank]);
            let mut ranks = vec![0; firsts.len()];
            for (rank, &former) in order.iter().enumerate() {
                ranks[former] = rank;
            }
            for rank in &mut by_place {
                *rank = ranks[*rank];
            }
            firsts.sort_unstable();
        }
        Self { firsts, by_place }
    }
}

/// The planned place of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    Undecided,
    At(usize),
    Nowhere(Reason),
}

impl Seat {
    pub fn host(self) -> Option<usize> {
        match self {
            Self::At(host) => Some(host),
            Self::Undecided | Self::Nowhere(_) => None,
        }
    }
}

pub(super) struct Plan<'m> {
    pub input: &'m Input,
    /// The seat of each unit.
    pub seats: Vec<Seat>,
    /// The planned number of units at each host.
    pub taken: Vec<usize>,
    /// The hosts reserved for one dedicated unit.
    pub own: Vec<bool>,
    /// Maximum number of units of a host.
    pub max: usize,
    /// Units that move for balance by weight, in the order of their moves: each prefix of these
    /// moves improves the balance.
    pub repairs: Vec<usize>,
}

impl<'m> Plan<'m> {
    pub fn new(input: &'m Input, rules: &Rules) -> Self {
        Self {
            input,
            seats: vec![Seat::Undecided; input.units.len()],
            taken: vec![0; input.hosts.len()],
            own: vec![false; input.hosts.len()],
            max: rules.max_per_worker.unwrap_or(usize::MAX),
            repairs: Vec::new(),
        }
    }

    pub fn seat(&mut self, unit: usize, host: usize) {
        self.seats[unit] = Seat::At(host);
        self.taken[host] += 1;
    }

    pub fn shift(&mut self, unit: usize, from: usize, to: usize) {
        self.taken[from] -= 1;
        self.seat(unit, to);
    }

    pub fn refuse(&mut self, unit: usize, reason: Reason) {
        self.seats[unit] = Seat::Nowhere(reason);
    }

    pub fn undecided(&self) -> impl Iterator<Item = usize> {
        (0..self.seats.len()).filter(|&unit| self.seats[unit] == Seat::Undecided)
    }

    /// Returns the hosts that take ordinary units.
    pub fn open_hosts(&self) -> Vec<usize> {
        (0..self.taken.len()).filter(|&host| self.is_open(host)).collect()
    }

    fn is_open(&self, host: usize) -> bool {
        self.input.hosts[host].standing == Standing::Full && !self.own[host]
    }

    /// Returns the undecided units: those on each open host, and all others in the order in which
    /// they get the available room. First come units that run and must leave, then units without a
    /// host, and last units on a host that is leaving, because they can also stay.
    pub fn split(&self) -> (Vec<Vec<usize>>, Vec<usize>) {
        let mut held = vec![Vec::new(); self.taken.len()];
        let (mut driven_out, mut unplaced, mut leaving) = (Vec::new(), Vec::new(), Vec::new());
        for unit in self.undecided() {
            match self.input.owner(unit) {
                None => unplaced.push(unit),
                Some((host, _)) if self.own[host] => driven_out.push(unit),
                Some((host, Standing::Full)) => held[host].push(unit),
                Some(_) => leaving.push(unit),
            }
        }
        driven_out.append(&mut unplaced);
        driven_out.append(&mut leaving);
        (held, driven_out)
    }

    /// Leaves each host the units that suit it best, up to its limit, and takes the others from it.
    pub fn keep(&mut self, held: &mut [Vec<usize>], limit: impl Fn(usize) -> usize) -> Vec<usize> {
        let mut spilled = Vec::new();
        for (host, units) in held.iter_mut().enumerate() {
            let limit = limit(host);
            if units.len() > limit {
                units.sort_by_cached_key(|&unit| !self.input.score(unit, host));
                spilled.extend(units.drain(limit..));
            }
            for &unit in &*units {
                self.seat(unit, host);
            }
        }
        spilled
    }

    /// Returns the undecided units under a policy that ignores the previous assignment. Without
    /// balance, a unit that may stay where it is does not move, under such a policy either.
    pub fn newcomers(&mut self, balance: bool) -> Vec<usize> {
        if balance {
            return self.undecided().collect();
        }
        let (mut held, mut others) = self.split();
        let limits = self.limits();
        let mut newcomers = self.keep(&mut held, |host| limits[host]);
        newcomers.append(&mut others);
        newcomers.truncate(self.room());
        newcomers.sort_unstable();
        newcomers
    }

    /// Returns the number of units that all open hosts together may still get.
    pub fn room(&self) -> usize {
        let limits = self.limits();
        self.open_hosts().into_iter().fold(0, |sum, host| limits[host].saturating_add(sum))
    }

    /// Returns the number of units that each host may still get.
    pub fn limits(&self) -> Vec<usize> {
        self.taken.iter().map(|&taken| self.max.saturating_sub(taken)).collect()
    }

    /// Finishes the plan: a unit without a host stays with a worker that is leaving, or has none.
    pub fn close(&mut self) {
        let reason =
            if self.open_hosts().is_empty() { Reason::NoWorker } else { Reason::NoCapacity };
        let undecided: Vec<usize> = self.undecided().collect();
        for unit in undecided {
            match self.input.owner(unit) {
                Some((host, Standing::Leaving))
                    if !self.own[host] && self.taken[host] < self.max =>
                {
                    self.seat(unit, host);
                }
                _ => self.refuse(unit, reason),
            }
        }
    }
}
