//! The assignment of items to workers: each item has exactly one, or a reason why it has none.
//!
//! [`assign`] decides in this order, and a later step never changes an earlier decision:
//!
//! 1. While no worker is [`Standing::Full`], nothing moves; items without owner get none
//!    ([`Reason::NoWorker`]).
//! 2. The items on a worker that [`Standing::Keeps`] stay there, whatever else is requested.
//! 3. A pinned item is on its worker, also on one that is leaving, or nowhere. (While that worker
//!    only keeps its items, the item stays where it is.) An unpinned item never moves to a worker
//!    that is leaving.
//! 4. A dedicated item is alone on a worker, and the ordinary items on that worker leave. It gets
//!    the worker that the fewest items must leave; under policies that ignore the previous
//!    assignment, the one that it suits best. One worker is left to the ordinary items, and no
//!    worker to which one of them is pinned becomes dedicated.
//! 5. All other items are spread evenly over the workers that are full and not dedicated, and no
//!    worker has more than [`Rules::max_per_worker`], pinned items included. If there is not enough
//!    room for all, items on a worker that stays come first, then items without a worker, and last
//!    items on a worker that is leaving: these stay there. (The policies that ignore the previous
//!    assignment give room to the items that fit best.)
//! 6. Of all these moves, only as many as [`Rules::max_moves`] allows are made now; an item that
//!    must wait stays where it is. Rules come first, then workers that are leaving, then balance.
//!
//! **Even** means: of two workers that take ordinary items, of which the first has one that is not
//! pinned and the second has room, the first has at most *one item* more. With [`Policy::Sticky`]
//! and different weights, it is instead heavier by at most *the heaviest item* of those that are
//! neither pinned nor dedicated. So without pins and limits: the counts differ by at most one, or
//! the loads by at most the heaviest item. (A pinned item counts, but cannot be moved: a worker may
//! have more by pins alone. A worker at its limit can get nothing, no matter how light it is; items
//! are never exchanged.)
//!
//! **Movement**, by count and without pins: exactly the minimum number of items for an even
//! assignment move. One item more moves nothing, one item less moves at most one, and a worker more
//! moves only its own share. By weight: one item more moves nothing; otherwise each move is from
//! the most to the least loaded worker, of the item that brings the two closest together; no item
//! moves twice, and the moves end as soon as the bound holds. Applying an outcome again changes
//! nothing. With a budget of moves the outcome, applied repeatedly, reaches the same balance: by
//! count with the same number of moves; stateless and contiguous reach exactly the outcome without
//! a budget.
//!
//! **Order**: ids decide, not places; only [`Policy::Contiguous`] uses the given order. An id that
//! occurs twice is one item, or one worker: all its occurrences have the same owner.
//!
//! How many of 1000 items move (the minimum for a new or leaving worker is 90 and 100 with ten
//! workers, 19 and 20 with fifty):
//!
//! | workers | policy | a worker more | a worker less | an item more | uses the previous owners |
//! |---|---|---|---|---|---|
//! | 10 | sticky | 90 | 100 | 0 | yes |
//! | 10 | stateless | 114 | 120 | 3 | no |
//! | 10 | contiguous | 495 | 504 | 9 | no |
//! | 50 | sticky | 19 | 20 | 0 | yes |
//! | 50 | stateless | 33 | 48 | 3 | no |
//! | 50 | contiguous | 190 | 790 | 49 | no |
//!
//! For `J` items and `W` workers, every pair is evaluated only for items that must be placed (all
//! of them under [`Policy::Stateless`]); all else is sorting. Memory is proportional to `J + W`.
//! `make bench` has the times.
use self::plan::{Input, Seat};

mod budget;
mod plan;
mod policies;
mod reserve;
mod weight;

/// The way in which items find their workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Every worker keeps its items, except those that must move for balance.
    #[default]
    Sticky,
    /// Each item is on the worker that it suits best, as far as an even spread by count allows: a
    /// stable matching by rendezvous scores. It follows from the items and workers alone, not from
    /// the previous state: the same input always gives the same result.
    Stateless,
    /// Blocks of the list in the given order, the first for the first worker, as even by count as
    /// possible: of `N` workers for `L` items, the first `L mod N` have one more.
    Contiguous,
}

/// An item that exactly one worker should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Identity. Nothing else of an item is hashed: its hash does not change with its weight.
    pub id: &'a str,
    /// The part of a worker that it takes, in any unit, at least 1 (0 counts as 1). Only
    /// [`Policy::Sticky`] uses it, and only if not all weights are equal.
    pub weight: u64,
    /// The only worker that may have it.
    pub pin: Option<&'a str>,
    /// True if it must be alone on its worker.
    pub dedicated: bool,
}

/// The limits on a worker's gains and losses. If a worker is given twice, the later entry wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It gives and takes.
    #[default]
    Full,
    /// It keeps whatever it has, and gets nothing. A worker in this standing for a while changes
    /// nothing for the others.
    Keeps,
    /// It gives everything away once another worker can take it, and gets only pinned items.
    Leaving,
}

/// A worker that can have items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker<'a> {
    /// Identity, and all that is hashed.
    pub id: &'a str,
    /// The limits on its gains and losses.
    pub standing: Standing,
}

/// The rules of the distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The way in which items find their workers.
    pub policy: Policy,
    /// Maximum number of items of a worker.
    pub max_per_worker: Option<usize>,
    /// Maximum number of items that leave workers that are present, whatever the reason; items
    /// whose worker is gone do not count.
    pub max_moves: Option<usize>,
    /// True if items move for balance. If not, only those move that may not stay where they are:
    /// because of pins, dedicated items or limits, or because their worker is leaving.
    pub balance: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { policy: Policy::default(), max_per_worker: None, max_moves: None, balance: true }
    }
}

/// The reason why an item has no worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No worker takes anything: there is none, or each is leaving, only keeps its items, or is
    /// dedicated.
    NoWorker,
    /// The worker that it is pinned to does not exist, or takes nothing now.
    PinnedWorkerAbsent,
    /// No worker is left for it alone; or it has to wait until one is empty.
    NoDedicatedWorker,
    /// Every worker that it may go to is at its limit; or the budget of moves holds back the items
    /// that block it.
    NoCapacity,
}

crate::named!(Reason { NoWorker, PinnedWorkerAbsent, NoDedicatedWorker, NoCapacity });

/// The result of the distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// For each item its worker, as an index into the workers.
    pub owners: Vec<Option<usize>>,
    /// The items without an owner, in the given order.
    pub unassigned: Vec<(usize, Reason)>,
}

/// Distributes the items among the workers. `previous` has for each item the index of its current
/// worker; an item without an entry, or with an index of no worker, has none.
///
/// With a budget of moves, all items may wait for each other (each of three items should take the
/// next one's place, and no worker has room for one more). Then one of them goes to another worker
/// or, if none has room, is without a worker for a round.
#[must_use]
pub fn assign(
    items: &[Item],
    workers: &[Worker],
    previous: &[Option<usize>],
    rules: &Rules,
) -> Assignment {
    let input = Input::new(items, workers, previous, rules.policy);
    let seats = if input.hosts.iter().any(|host| host.standing == Standing::Full) {
        let mut plan = reserve::reserve(&input, rules);
        match rules.policy {
            Policy::Sticky => policies::sticky(&mut plan, rules.balance),
            Policy::Stateless => policies::stateless(&mut plan, rules.balance),
            Policy::Contiguous => policies::contiguous(&mut plan, rules.balance),
        }
        plan.close();
        budget::seats(&plan, rules.max_moves)
    } else {
        frozen(&input)
    };
    by_place(&input, &seats)
}

/// Returns the seats if no worker takes anything, so that none gives anything.
fn frozen(input: &Input) -> Vec<Seat> {
    let seat = |host: Option<usize>| host.map_or(Seat::Nowhere(Reason::NoWorker), Seat::At);
    input.units.iter().map(|unit| seat(unit.previous)).collect()
}

/// Returns the assignment in the caller's terms.
fn by_place(input: &Input, seats: &[Seat]) -> Assignment {
    let mut assignment = Assignment::default();
    for (place, &unit) in input.units_by_place().iter().enumerate() {
        let owner = seats[unit].host().map(|host| input.place(host));
        assignment.owners.push(owner);
        if let Seat::Nowhere(reason) = seats[unit] {
            assignment.unassigned.push((place, reason));
        }
    }
    assignment
}

#[cfg(test)]
mod tests;
