//! The decisions so far: the planned place of each unit.
use super::{Reason, Rules, Standing, input::Input};

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
