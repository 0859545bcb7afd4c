//! Limits a plan to this round's move budget.
use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

use super::{
    Input, Reason, Seat, Standing,
    plan::{Pin, Plan, Unit},
};

/// The seats after this round, for each unit.
pub(super) fn seats(plan: &Plan, budget: Option<usize>) -> Vec<Seat> {
    let input = plan.input;
    let moves: Vec<usize> = (0..plan.seats.len())
        .filter(|&unit| {
            let previous = input.units[unit].previous;
            previous.is_some() && previous != plan.seats[unit].host()
        })
        .collect();
    match budget {
        Some(budget) if budget < moves.len() => {
            let mut queue: Vec<usize> = Vec::new();
            queue.extend((0..plan.seats.len()).filter(|&unit| {
                input.units[unit].previous.is_none() && plan.seats[unit].host().is_some()
            }));
            queue.extend(in_order(plan, moves));
            Round::new(plan, queue, budget).run()
        }
        _ => plan.seats.clone(),
    }
}

/// The reason why a unit moves; the first reasons take precedence. (Moves for balance must not
/// change the worker of a dedicated unit while that worker is being emptied.)
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    Rule,
    Drain,
    Balance,
}

/// Moves in the order of their execution.
fn in_order(plan: &Plan, mut moves: Vec<usize>) -> Vec<usize> {
    let input = plan.input;
    let holdings = input.holdings();
    let mut ranks = vec![None; plan.seats.len()];
    for (rank, &unit) in plan.repairs.iter().enumerate() {
        ranks[unit] = Some(rank);
    }
    moves.sort_by_cached_key(|&unit| {
        let (host, standing) = input.owner(unit).unwrap_or((0, Standing::Full));
        let rule = input.units[unit].pin != Pin::Nowhere
            || input.units[unit].dedicated
            || plan.seats[unit].host().is_none()
            || plan.own[host]
            || holdings[host] > plan.max;
        let why = match standing {
            _ if rule => Why::Rule,
            Standing::Leaving => Why::Drain,
            Standing::Full | Standing::Keeps => Why::Balance,
        };
        (why, ranks[unit])
    });
    moves
}

/// Executes moves one by one, each only if its target worker can take the unit at that moment.
struct Round<'p> {
    plan: &'p Plan<'p>,
    input: &'p Input,
    /// The units that move to a worker or leave one; first those without a worker.
    queue: Vec<usize>,
    budget: usize,
    /// The hosts that take ordinary units.
    open: Vec<usize>,
    seats: Vec<Seat>,
    /// The current number of units of each host, and the number of dedicated ones among them.
    present: Vec<(usize, usize)>,
    /// The places in the queue of the units that may try now.
    ready: BTreeSet<usize>,
    /// The units that could not be taken yet, by target host, as places in the queue.
    parked: Vec<BinaryHeap<Reverse<usize>>>,
}

impl<'p> Round<'p> {
    fn new(plan: &'p Plan<'p>, queue: Vec<usize>, budget: usize) -> Self {
        let input = plan.input;
        let mut present = vec![(0, 0); input.hosts.len()];
        let mut seats = plan.seats.clone();
        for (seat, unit) in seats.iter_mut().zip(&input.units) {
            if let Some(host) = unit.previous {
                *seat = Seat::At(host);
                present[host].0 += 1;
                present[host].1 += usize::from(unit.dedicated);
            } else if seat.host().is_some() {
                // The initial state, until its turn. The obstacle may still be held back.
                *seat = refused(unit);
            }
        }
        let parked = vec![BinaryHeap::new(); input.hosts.len()];
        let (open, ready) = (plan.open_hosts(), BTreeSet::new());
        Self { plan, input, queue, budget, open, seats, present, ready, parked }
    }

    fn run(mut self) -> Vec<Seat> {
        let budget = self.budget;
        self.ready = (0..self.queue.len()).collect();
        self.take_turns();
        if self.budget == budget && self.open_circle() {
            // The follower finds the free place: no other unit is put there.
            self.take_turns();
        } else {
            self.place_those_that_run_nowhere();
        }
        self.seats
    }

    fn take_turns(&mut self) {
        while let Some(turn) = self.ready.pop_first() {
            let unit = self.queue[turn];
            let from = self.seats[unit].host();
            if from.is_some() && self.budget == 0 {
                // It does not wait for another unit either.
                continue;
            }
            match self.plan.seats[unit].host() {
                Some(host) if !self.can_take(host, unit) => {
                    self.parked[host].push(Reverse(turn));
                    continue;
                }
                Some(host) => self.enter(host, unit),
                None => self.seats[unit] = self.plan.seats[unit],
            }
            if let Some(host) = from {
                self.leave(host, unit);
            }
        }
    }

    /// A dedicated unit moves only to an empty worker, and no unit moves to one that has such a
    /// unit.
    fn can_take(&self, host: usize, unit: usize) -> bool {
        let (present, dedicated) = self.present[host];
        if self.input.units[unit].dedicated {
            present == 0
        } else {
            dedicated == 0 && present < self.plan.max
        }
    }

    fn enter(&mut self, host: usize, unit: usize) {
        self.seats[unit] = Seat::At(host);
        self.present[host].0 += 1;
        self.present[host].1 += usize::from(self.input.units[unit].dedicated);
    }

    fn leave(&mut self, host: usize, unit: usize) {
        let dedicated = self.input.units[unit].dedicated;
        self.budget -= 1;
        self.present[host].0 -= 1;
        self.present[host].1 -= usize::from(dedicated);
        // One place is free; but a dedicated unit blocked all others.
        let many = if dedicated { usize::MAX } else { 1 };
        for _ in 0..many {
            let Some(Reverse(turn)) = self.parked[host].pop() else { return };
            self.ready.insert(turn);
        }
    }

    /// If every unit waits for another one, moves one to a temporary worker, or to none: now or in
    /// the next rounds the others can follow, and so can this one.
    fn open_circle(&mut self) -> bool {
        let turns = self.parked.iter().flatten().map(|Reverse(turn)| *turn);
        let places = turns.filter_map(|turn| Some((turn, self.seats[self.queue[turn]].host()?)));
        let Some((turn, from)) = places.min() else { return false };
        let unit = self.queue[turn];
        match self.elsewhere(unit) {
            Some(host) => self.enter(host, unit),
            None => self.seats[unit] = refused(&self.input.units[unit]),
        }
        self.leave(from, unit);
        true
    }

    /// Places units without a worker: none waits for one worker while another has room.
    fn place_those_that_run_nowhere(&mut self) {
        for turn in 0..self.queue.len() {
            let unit = self.queue[turn];
            let waits =
                self.input.units[unit].previous.is_none() && self.seats[unit].host().is_none();
            if let Some(host) = waits.then(|| self.elsewhere(unit)).flatten() {
                self.enter(host, unit);
            }
        }
    }

    /// Returns the best worker that can take a unit without restrictions.
    fn elsewhere(&self, unit: usize) -> Option<usize> {
        let Unit { pin, dedicated, .. } = self.input.units[unit];
        if pin != Pin::Nowhere || dedicated {
            return None;
        }
        let able = self.open.iter().copied().filter(|&host| self.can_take(host, unit));
        able.max_by_key(|&host| self.input.score(unit, host))
    }
}

fn refused(unit: &Unit) -> Seat {
    let dedicated = unit.dedicated;
    Seat::Nowhere(if dedicated { Reason::NoDedicatedWorker } else { Reason::NoCapacity })
}
