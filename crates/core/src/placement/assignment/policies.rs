//! The policies: each seats the units that no rule has seated.
use std::{cmp::Reverse, collections::BinaryHeap};

use super::{Input, plan::Plan, weight};

pub(super) fn sticky(plan: &mut Plan, balance: bool) {
    let open = plan.open_hosts();
    let (mut held, others) = plan.split();
    let by_count = plan.input.has_equal_weights();
    let limits = if balance && by_count {
        // The workers with the most items get the places above the level: taking from them would
        // cost one more move.
        let newcomers = others.len() + held.iter().map(Vec::len).sum::<usize>();
        let input = plan.input;
        rooms(plan, &open, newcomers, |host| {
            (Reverse(plan.taken[host] + held[host].len()), input.hosts[host].hash)
        })
    } else {
        plan.limits()
    };
    let mut queue = plan.keep(&mut held, |host| limits[host]);
    queue.extend(others);
    queue.truncate(plan.room());
    if by_count {
        place(plan, &open, &queue);
    } else {
        weight::place(plan, &open, queue);
        if balance {
            weight::repair(plan, &open, held);
        }
    }
}

/// Places each unit on the worker that it suits best, among those that should have more.
fn place(plan: &mut Plan, open: &[usize], queue: &[usize]) {
    let input = plan.input;
    let mut rooms = rooms(plan, open, queue.len(), |host| input.hosts[host].hash);
    let mut open: Vec<usize> = open.iter().copied().filter(|&host| rooms[host] > 0).collect();
    for &unit in queue {
        let best = (0..open.len()).max_by_key(|&index| input.score(unit, open[index]));
        let Some(index) = best else { return };
        let host = open[index];
        plan.seat(unit, host);
        rooms[host] -= 1;
        if rooms[host] == 0 {
            open.swap_remove(index);
        }
    }
}

/// Matches the best pair of all, then the best of the rest, and so on: the only matching in which
/// no item and worker suit each other better than their partners. Pairs are not listed: an item
/// waits for its best worker, and searches again only when that one is full.
pub(super) fn stateless(plan: &mut Plan, balance: bool) {
    let newcomers = plan.newcomers(balance);
    let mut rooms = Rooms::new(plan, newcomers.len());
    let input = plan.input;
    let offer = |rooms: &Rooms, unit: usize| {
        rooms.best(input, unit).map(|(score, host)| (score, Reverse(unit), host))
    };
    let mut offers: BinaryHeap<_> =
        newcomers.into_iter().filter_map(|unit| offer(&rooms, unit)).collect();
    while let Some((_, Reverse(unit), host)) = offers.pop() {
        if rooms.take(host) {
            plan.seat(unit, host);
        } else if let Some(offer) = offer(&rooms, unit) {
            offers.push(offer);
        }
    }
}

struct Rooms {
    /// The hosts that can still take a unit.
    open: Vec<usize>,
    /// By host: the number of units that it takes up to the level, and true if one more.
    left: Vec<(usize, bool)>,
    /// The number of hosts that may still get one more.
    extras: usize,
}

impl Rooms {
    fn new(plan: &Plan, newcomers: usize) -> Self {
        let open = plan.open_hosts();
        let taken: Vec<usize> = open.iter().map(|&host| plan.taken[host]).collect();
        let level = Level::new(&taken, taken.iter().sum::<usize>() + newcomers, plan.max);
        let mut left = vec![(0, false); plan.taken.len()];
        for &host in &open {
            let taken = plan.taken[host];
            left[host] = (level.room(taken), level.may_exceed(taken));
        }
        let mut this = Self { open, left, extras: level.extras };
        this.shut();
        this
    }

    fn has_room(&self, host: usize) -> bool {
        let (room, may_exceed) = self.left[host];
        room > 0 || (may_exceed && self.extras > 0)
    }

    fn shut(&mut self) {
        let open = std::mem::take(&mut self.open);
        self.open = open.into_iter().filter(|&host| self.has_room(host)).collect();
    }

    fn best(&self, input: &Input, unit: usize) -> Option<(u64, usize)> {
        self.open.iter().map(|&host| (input.score(unit, host), host)).max()
    }

    fn take(&mut self, host: usize) -> bool {
        if !self.has_room(host) {
            return false;
        }
        let (room, may_exceed) = &mut self.left[host];
        if *room > 0 {
            *room -= 1;
        } else {
            *may_exceed = false;
            self.extras -= 1;
        }
        // The last extra unit closes all hosts that are at the level.
        if !self.has_room(host) {
            self.shut();
        }
        true
    }
}

/// Of `N` workers for `L` items, the first `L mod N` get one more than the others.
pub(super) fn contiguous(plan: &mut Plan, balance: bool) {
    let open = plan.open_hosts();
    let newcomers = plan.newcomers(balance);
    let rooms = rooms(plan, &open, newcomers.len(), |host| host);
    let hosts = open.into_iter().flat_map(|host| std::iter::repeat_n(host, rooms[host]));
    for (unit, host) in newcomers.into_iter().zip(hosts) {
        plan.seat(unit, host);
    }
}

/// An even spread: every host is filled to the level, and this many of the remaining ones get one
/// more. A host that already has more (because of pins) gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub level: usize,
    pub extras: usize,
}

impl Level {
    /// Computes the level for hosts that already have these numbers, with a total and a maximum for
    /// each.
    pub fn new(taken: &[usize], total: usize, max: usize) -> Self {
        let sum = |level: usize| taken.iter().map(|&taken| taken.max(level)).sum::<usize>();
        // The highest level that the total can fill: `fits` can be filled, above `limit` none can.
        let (mut fits, mut limit) = (0, total.min(max));
        while fits < limit {
            let middle = limit - (limit - fits) / 2;
            if !taken.is_empty() && sum(middle) <= total {
                fits = middle;
            } else {
                limit = middle - 1;
            }
        }
        let extras = if fits == max || taken.is_empty() { 0 } else { total - sum(fits) };
        Self { level: fits, extras }
    }

    /// Returns the number of units that a host gets up to the level.
    pub fn room(self, taken: usize) -> usize {
        self.level.saturating_sub(taken)
    }

    /// Reports whether a host may get one unit above the level.
    pub fn may_exceed(self, taken: usize) -> bool {
        taken <= self.level
    }
}

/// Returns each host's share of the newcomers, by host. Of those that may have one more, the first
/// by rank get it.
fn rooms<K: Ord>(
    plan: &Plan,
    open: &[usize],
    newcomers: usize,
    rank: impl Fn(usize) -> K,
) -> Vec<usize> {
    let taken: Vec<usize> = open.iter().map(|&host| plan.taken[host]).collect();
    let total = taken.iter().sum::<usize>() + newcomers;
    let level = Level::new(&taken, total, plan.max);
    let mut rooms = vec![0; plan.taken.len()];
    for &host in open {
        rooms[host] = level.room(plan.taken[host]);
    }
    let mut eager: Vec<usize> =
        open.iter().copied().filter(|&host| level.may_exceed(plan.taken[host])).collect();
    eager.sort_by_cached_key(|&host| rank(host));
    for &host in eager.iter().take(level.extras) {
        rooms[host] += 1;
    }
    rooms
}
