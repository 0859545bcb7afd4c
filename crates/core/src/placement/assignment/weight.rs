//! Balance by weight.
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
};

use super::{
    Input,
    plan::{Pin, Plan, Unit},
};

/// Places the heaviest unit first, each on the least loaded worker that has room; of equally loaded
/// ones, on the one that it suits best.
pub(super) fn place(plan: &mut Plan, open: &[usize], mut queue: Vec<usize>) {
    let input = plan.input;
    let loads = loads(plan);
    let mut by_load: BTreeMap<u128, Vec<usize>> = BTreeMap::new();
    for &host in open.iter().filter(|&&host| plan.taken[host] < plan.max) {
        by_load.entry(loads[host]).or_default().push(host);
    }
    queue.sort_by_key(|&unit| Reverse(input.units[unit].weight));
    for unit in queue {
        let Some(mut least) = by_load.first_entry() else { return };
        let (load, hosts) = (*least.key(), least.get_mut());
        let best = (0..hosts.len()).max_by_key(|&index| input.score(unit, hosts[index]));
        let host = hosts.swap_remove(best.unwrap_or(0));
        if hosts.is_empty() {
            least.remove();
        }
        plan.seat(unit, host);
        if plan.taken[host] < plan.max {
            let load = load + u128::from(input.units[unit].weight);
            by_load.entry(load).or_default().push(host);
        }
    }
}

/// Moves units from the most loaded worker that can give any to the least loaded one that has room,
/// until the two differ by no more than the heaviest unit that may move at all.
///
/// It ends, with at most one move of each unit: a host that has received is above the least loaded
/// by at most the heaviest unit, and this stays true, because the least load never decreases. So a
/// host that has received gives nothing, and a unit that was just placed does not move either.
pub(super) fn repair(plan: &mut Plan, open: &[usize], held: Vec<Vec<usize>>) {
    let input = plan.input;
    let Some(heaviest) = heaviest(input) else { return };
    let mut scales = Scales::new(plan, open, held);
    while let Some((from, to, gap)) = scales.widest() {
        if gap <= u128::from(heaviest) {
            return;
        }
        let Some(unit) = scales.choose(input, from, gap) else { return };
        scales.shift(plan, unit, from, to);
    }
}

/// Returns the heaviest weight of the units that may move, including those that stay because their
/// worker only keeps its items: otherwise a worker that is not ready for a while would move other
/// units.
fn heaviest(input: &Input) -> Option<u64> {
    let movable = |unit: &&Unit| unit.pin == Pin::Nowhere && !unit.dedicated;
    input.units.iter().filter(movable).map(|unit| unit.weight).max()
}

/// Returns the weight on each host. A sum of this many weights may not fit into 64 bits.
fn loads(plan: &Plan) -> Vec<u128> {
    let mut loads = vec![0; plan.taken.len()];
    for (unit, seat) in plan.seats.iter().enumerate() {
        if let Some(host) = seat.host() {
            loads[host] += u128::from(plan.input.units[unit].weight);
        }
    }
    loads
}

/// Units of one host by weight; among equal ones, last those that suit it least.
type ByWeight = BTreeSet<(u64, u64, usize)>;

struct Scales {
    loads: Vec<u128>,
    /// The units that each host can give: a list until it gives for the first time.
    held: Vec<Vec<usize>>,
    by_weight: Vec<ByWeight>,
    /// Hosts by load: those that can give a unit, and those that have room.
    givers: BTreeSet<(u128, usize)>,
    takers: BTreeSet<(u128, usize)>,
}

impl Scales {
    fn new(plan: &Plan, open: &[usize], held: Vec<Vec<usize>>) -> Self {
        let loads = loads(plan);
        let by_load = |host: &usize| (loads[*host], *host);
        let givers = open.iter().filter(|&&host| !held[host].is_empty()).map(by_load).collect();
        let takers =
            open.iter().filter(|&&host| plan.taken[host] < plan.max).map(by_load).collect();
        let by_weight = vec![ByWeight::new(); held.len()];
        Self { loads, held, by_weight, givers, takers }
    }

    /// Returns the host to move from, the host to move to, and the difference of their loads.
    fn widest(&self) -> Option<(usize, usize, u128)> {
        let (&(most, from), &(least, to)) = (self.givers.last()?, self.takers.first()?);
        Some((from, to, most.checked_sub(least)?))
    }

    /// Chooses the unit to move: the one that brings the two closest together, which needs the
    /// fewest moves.
    fn choose(&mut self, input: &Input, from: usize, gap: u128) -> Option<usize> {
        let units = &mut self.by_weight[from];
        let key = |unit: usize| (input.units[unit].weight, !input.score(unit, from), unit);
        units.extend(self.held[from].drain(..).map(key));
        let half = u64::try_from(gap / 2).unwrap_or(u64::MAX);
        let last = |weight: u64| units.range(..=(weight, u64::MAX, usize::MAX)).next_back();
        let below = last(half);
        let above = units
            .range((Excluded((half, u64::MAX, usize::MAX)), Unbounded))
            .next()
            .filter(|above| {
                let left = gap.saturating_sub(u128::from(above.0));
                below.is_none_or(|below| left > u128::from(below.0))
            })
            .and_then(|above| last(above.0));
        above.or(below).map(|&(_, _, unit)| unit)
    }

    fn shift(&mut self, plan: &mut Plan, unit: usize, from: usize, to: usize) {
        let weight = plan.input.units[unit].weight;
        self.by_weight[from].remove(&(weight, !plan.input.score(unit, from), unit));
        plan.shift(unit, from, to);
        plan.repairs.push(unit);
        for host in [from, to] {
            self.givers.remove(&(self.loads[host], host));
            self.takers.remove(&(self.loads[host], host));
        }
        self.loads[from] -= u128::from(weight);
        self.loads[to] += u128::from(weight);
        for host in [from, to] {
            if !self.held[host].is_empty() || !self.by_weight[host].is_empty() {
                self.givers.insert((self.loads[host], host));
            }
            if plan.taken[host] < plan.max {
                self.takers.insert((self.loads[host], host));
            }
        }
    }
}
