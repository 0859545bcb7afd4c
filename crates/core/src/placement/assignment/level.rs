//! The even spread of units over workers.
use super::plan::Plan;

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
pub(super) fn rooms<K: Ord>(
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
