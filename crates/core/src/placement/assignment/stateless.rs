//! Stable matching by score: the result depends on the items and workers, not on the previous
//! assignment.
use std::{cmp::Reverse, collections::BinaryHeap};

use super::{input::Input, level::Level, plan::Plan};

/// Matches the best pair of all, then the best of the rest, and so on: the only matching in which
/// no item and worker suit each other better than their partners. Pairs are not listed: an item
/// waits for its best worker, and searches again only when that one is full.
pub(super) fn seat(plan: &mut Plan, balance: bool) {
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
