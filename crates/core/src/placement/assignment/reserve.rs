//! The rules that precede any balance: workers that keep their items, pins, and dedicated items.
use std::cmp::Reverse;

use super::{
    Input, Policy, Reason, Rules, Standing,
    plan::{Pin, Plan},
};

/// Makes a plan that decides the units without a choice.
pub(super) fn reserve<'m>(input: &'m Input, rules: &Rules) -> Plan<'m> {
    let mut plan = Plan::new(input, rules);
    // True if the previous assignment counts.
    let sticky = rules.policy == Policy::Sticky || !rules.balance;
    for unit in 0..input.units.len() {
        if let Some((host, Standing::Keeps)) = input.owner(unit) {
            plan.seat(unit, host);
        }
    }
    seat_pinned(&mut plan, sticky);
    Dedication::new(&plan, sticky).seat(&mut plan);
    plan
}

/// Returns the host of a pinned unit. While the worker that it is pinned to takes nothing, it stays
/// where it is: otherwise it would not run at all.
fn bound(input: &Input, unit: usize) -> Option<Result<usize, Reason>> {
    let previous = || input.units[unit].previous.ok_or(Reason::PinnedWorkerAbsent);
    match input.units[unit].pin {
        Pin::Nowhere => None,
        Pin::Absent => Some(Err(Reason::PinnedWorkerAbsent)),
        Pin::To(host) if input.hosts[host].standing == Standing::Keeps => Some(previous()),
        Pin::To(host) => Some(Ok(host)),
    }
}

fn seat_pinned(plan: &mut Plan, sticky: bool) {
    let input = plan.input;
    let mut pinned = Vec::new();
    let ordinary: Vec<_> = plan.undecided().filter(|&unit| !input.units[unit].dedicated).collect();
    for unit in ordinary {
        match bound(input, unit) {
            None => {}
            Some(Err(reason)) => plan.refuse(unit, reason),
            Some(Ok(host)) => {
                let stays = sticky && input.units[unit].previous == Some(host);
                pinned.push((Reverse(stays), Reverse(input.score(unit, host)), unit, host));
            }
        }
    }
    pinned.sort_unstable();
    for (_, _, unit, host) in pinned {
        if plan.taken[host] < plan.max {
            plan.seat(unit, host);
        } else {
            plan.refuse(unit, Reason::NoCapacity);
        }
    }
}

/// Gives workers to dedicated units.
struct Dedication {
    sticky: bool,
    /// Number of units of each host.
    holdings: Vec<usize>,
    /// The number of workers that may still become dedicated: one is left for the items that are
    /// not dedicated.
    spare: usize,
}

/// Reports whether units that are not dedicated need a worker that takes them. Units without a host
/// can wait for a worker that only keeps its items: if it is not ready for a while, no dedicated
/// unit is driven out.
fn needs_worker(plan: &Plan) -> bool {
    let input = plan.input;
    let mut waits = vec![false; input.hosts.len()];
    for (host, waits) in input.hosts.iter().zip(&mut waits) {
        *waits = host.standing == Standing::Keeps;
    }
    for unit in input.units.iter().filter(|unit| unit.dedicated) {
        if let Some(host) = unit.previous {
            waits[host] = false;
        }
    }
    let can_wait = waits.contains(&true);
    plan.undecided().any(|unit| {
        let ordinary = !input.units[unit].dedicated;
        let full = input.owner(unit).is_some_and(|(_, standing)| standing == Standing::Full);
        ordinary && (full || !can_wait)
    })
}

impl Dedication {
    fn new(plan: &Plan, sticky: bool) -> Self {
        let input = plan.input;
        let full = |&host: &usize| input.hosts[host].standing == Standing::Full;
        // Of the workers that do not only keep their items, only those with a pinned item have one
        // so far.
        let (shared, free): (Vec<usize>, Vec<usize>) =
            (0..input.hosts.len()).filter(full).partition(|&host| plan.taken[host] > 0);
        let needed = shared.is_empty() && needs_worker(plan);
        let spare = free.len().saturating_sub(usize::from(needed));
        Self { sticky, holdings: input.holdings(), spare }
    }

    fn seat(mut self, plan: &mut Plan) {
        let input = plan.input;
        let mut units: Vec<usize> =
            plan.undecided().filter(|&unit| input.units[unit].dedicated).collect();
        units.sort_by_key(|&unit| {
            Reverse((input.units[unit].pin != Pin::Nowhere, self.claim(input, unit)))
        });
        for unit in units {
            match self.choose(plan, unit) {
                Ok(host) => {
                    plan.seat(unit, host);
                    plan.own[host] = true;
                    if input.hosts[host].standing == Standing::Full {
                        self.spare -= 1;
                    }
                }
                Err(reason) => plan.refuse(unit, reason),
            }
        }
    }

    /// Returns the precedence: as with all others, first units on a worker that stays, then units
    /// without a worker, and last units on a worker that is leaving, because they can also stay.
    /// Before all of these come units that are already alone.
    fn claim(&self, input: &Input, unit: usize) -> u8 {
        match input.owner(unit) {
            _ if !self.sticky => 0,
            None => 1,
            Some((host, Standing::Leaving)) if input.units[unit].pin != Pin::To(host) => 0,
            Some((host, _)) if self.holdings[host] > 1 => 2,
            Some(_) => 3,
        }
    }

    fn choose(&self, plan: &Plan, unit: usize) -> Result<usize, Reason> {
        let input = plan.input;
        let full = |host: usize| input.hosts[host].standing == Standing::Full;
        let free = |&host: &usize| plan.taken[host] == 0 && (!full(host) || self.spare > 0);
        let bound = bound(input, unit).transpose()?;
        if plan.max == 0 {
            return Err(Reason::NoCapacity);
        }
        if bound.is_some() {
            return bound.filter(free).ok_or(Reason::NoDedicatedWorker);
        }
        let cost = |host: usize| self.cost(input, unit, host);
        let free_hosts = (0..input.hosts.len()).filter(|&host| full(host)).filter(free);
        let best = free_hosts.min_by(|&a, &b| {
            let score = || input.score(unit, b).cmp(&input.score(unit, a));
            cost(a).cmp(&cost(b)).then_with(score)
        });
        // It stays where it is, if that worker is leaving and there is no other.
        let stay = || input.units[unit].previous.filter(|&host| !full(host)).filter(free);
        best.or_else(stay).ok_or(Reason::NoDedicatedWorker)
    }

    /// Returns the number of items that move if this unit gets this worker; among equals it stays.
    /// The cheapest choice stays the cheapest while it is carried out, so that a budget of moves
    /// does not change it.
    fn cost(&self, input: &Input, unit: usize, host: usize) -> (usize, bool) {
        if !self.sticky {
            return (0, false);
        }
        let previous = input.units[unit].previous;
        let stays = previous == Some(host);
        let others = self.holdings[host] - usize::from(stays);
        (others + usize::from(!stays && previous.is_some()), !stays)
    }
}
