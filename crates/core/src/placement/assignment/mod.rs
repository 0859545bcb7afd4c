//! The worker that has which items: each item exactly one, or a reason why it has none.
//!
//! [`assign`] decides in this order, and what was decided is not touched by what comes after:
//!
//! 1. While no worker is [`Standing::Full`], nothing moves; items without owner get none
//!    ([`Reason::NoWorker`]).
//! 2. The items on a worker that [`Standing::Keeps`] stay there, whatever else is requested.
//! 3. A pinned item is on its worker, also on one that is leaving, or nowhere. (While that worker
//!    only keeps what it has, the item stays where it is.) An unpinned item never moves to a worker
//!    that is leaving.
//! 4. A dedicated item is alone on a worker, and the ordinary items on that worker go. It gets the
//!    one from which the fewest have to go; under policies that do not look at what was before, the
//!    one that it suits best. One worker is left to the ordinary items, and no worker to which one
//!    of them is pinned becomes dedicated.
//! 5. All other items are spread evenly over the workers that are full and nobody's own, and no
//!    worker has more than [`Rules::max_per_worker`], pinned items included. If that is not room
//!    for all, those come first that run on a worker that stays, then those that run nowhere, and
//!    last those whose worker is leaving: these stay there. (The policies that do not look at what
//!    was before give room to those that fit best.)
//! 6. Of all this no more is done now than [`Rules::max_moves`] allows; who has to wait stays where
//!    it is. Rules come first, then workers that are leaving, then balance.
//!
//! **Even** means: of two workers that take ordinary items, of which the first has one that is not
//! pinned and the second has room, the first has at most *one item* more. With [`Policy::Sticky`]
//! and weights that differ, it is instead heavier by at most *the heaviest item* of those that are
//! neither pinned nor dedicated. So without pins and limits: the counts differ by at most one, or
//! the loads by at most the heaviest item. (A pinned item counts, but cannot be moved: a worker may
//! have more by pins alone. A worker at its limit can get nothing, however light it is; items are
//! never exchanged.)
//!
//! **Movement**, by count and without pins: exactly as many move as an even assignment needs at the
//! least. One item more moves nothing, one item less at most one, a worker more only its own share.
//! By weight: one item more moves nothing; otherwise each move is from the most to the least
//! loaded, of the item that brings the two closest together, none of them moves twice, and they end
//! as soon as the bound holds. Applying an outcome again changes nothing. With a budget of moves
//! the outcome, applied repeatedly, reaches the same balance: by count with the same number of
//! moves; stateless and contiguous reach exactly the outcome without a budget.
//!
//! **Order**: ids decide, not places; [`Policy::Contiguous`] alone goes by the order given. An id
//! told twice is one item, or one worker: all its occurrences have the same owner.
//!
//! How many of 1000 items move (what a new or leaving worker moves at the least is 90 and 100 with
//! ten, 19 and 20 with fifty):
//!
//! | workers | policy | a worker more | a worker less | an item more | looks at what was before |
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
use self::{input::Input, plan::Seat};

mod budget;
mod contiguous;
mod input;
mod level;
mod plan;
mod reserve;
mod stateless;
mod sticky;
mod weight;

/// By what items find their workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Everybody keeps what it has, except what the balance asks for.
    #[default]
    Sticky,
    /// Each item is where it suits best, as far as an even spread by count allows: a stable
    /// matching by rendezvous scores. It follows from the items and workers alone, not from the
    /// previous state: the same input always gives the same result.
    Stateless,
    /// Blocks of the list in the order given, the first for the first worker, as even by count as
    /// it goes: of `L` items and `N` workers the first `L mod N` workers have one more.
    Contiguous,
}

/// An item that exactly one worker should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Identity. Nothing else of an item is hashed: what an item is called does not change with
    /// what it weighs.
    pub id: &'a str,
    /// The part of a worker that it takes, in any unit, at least 1 (0 counts as 1). Only
    /// [`Policy::Sticky`] goes by it, and only if not all weigh the same.
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
    /// It keeps whatever it has, and gets nothing. A worker that is so for a while changes nothing
    /// for the others.
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
    /// By what.
    pub policy: Policy,
    /// Maximum number of items of a worker.
    pub max_per_worker: Option<usize>,
    /// Maximum number of items that leave workers that are present, whatever the reason; items
    /// whose worker is gone do not count.
    pub max_moves: Option<usize>,
    /// True if items move for balance. If not, only those move that may not stay where they are:
    /// because of pins, dedicated items and limits, and because their worker is leaving.
    pub balance: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { policy: Policy::default(), max_per_worker: None, max_moves: None, balance: true }
    }
}

/// Why nobody has an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No worker takes anything: there is none, or each is leaving, only keeps its items, or is
    /// dedicated.
    NoWorker,
    /// The worker that it is pinned to is not there, or takes nothing now.
    PinnedWorkerAbsent,
    /// No worker is left that it could have for itself; or it has to wait until one is empty.
    NoDedicatedWorker,
    /// Every worker that it may go to has as many items as it may have; or what is in its way is
    /// held back by the budget of moves.
    NoCapacity,
}

crate::named!(Reason { NoWorker, PinnedWorkerAbsent, NoDedicatedWorker, NoCapacity });

/// The result of the distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// For each item its worker, as an index into the workers.
    pub owners: Vec<Option<usize>>,
    /// The items that nobody has, in the order given: exactly those without owner.
    pub unassigned: Vec<(usize, Reason)>,
}

/// Distributes the items among the workers. `previous` has for each item the index of the worker
/// that has it; nobody has it if there is no entry, or no such worker.
///
/// With a budget of moves it may be that everything waits for something else to move (each of three
/// items should take the next one's place, and no worker has room for one more). Then one of them
/// goes to another worker or, if none has room, nowhere for a round.
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
            Policy::Sticky => sticky::seat(&mut plan, rules.balance),
            Policy::Stateless => stateless::seat(&mut plan, rules.balance),
            Policy::Contiguous => contiguous::seat(&mut plan, rules.balance),
        }
        plan.close();
        budget::seats(&plan, rules.max_moves)
    } else {
        frozen(&input)
    };
    told(&input, &seats)
}

/// Nobody takes anything, so nobody gives anything.
fn frozen(input: &Input) -> Vec<Seat> {
    let seat = |host: Option<usize>| host.map_or(Seat::Nowhere(Reason::NoWorker), Seat::At);
    input.units.iter().map(|unit| seat(unit.previous)).collect()
}

/// In the caller's terms.
fn told(input: &Input, seats: &[Seat]) -> Assignment {
    let mut told = Assignment::default();
    for (place, &unit) in input.units_by_place().iter().enumerate() {
        let owner = seats[unit].host().map(|host| input.place(host));
        told.owners.push(owner);
        if let Seat::Nowhere(reason) = seats[unit] {
            told.unassigned.push((place, reason));
        }
    }
    told
}

#[cfg(test)]
mod tests;
