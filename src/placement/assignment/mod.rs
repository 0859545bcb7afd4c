//! Which worker has which items.
use self::{market::Market, plan::Seat};

mod budget;
mod contiguous;
mod level;
mod market;
mod plan;
mod reserve;
mod stateless;
mod sticky;
mod weight;

/// By what the items are distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Everybody keeps what it has, except what the balance asks for.
    #[default]
    Sticky,
    /// A function of the items and workers alone, not of what was before.
    Stateless,
    /// Blocks of the list in the order given, the first for the first worker.
    Contiguous,
}

/// Something that exactly one worker is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Identity. Nothing else of an item is hashed: what an item is called does not change with what it weighs.
    pub id: &'a str,
    /// How much of a worker it takes, in any unit, at least 1 (0 is taken for 1).
    pub weight: u64,
    /// The only worker that may have it.
    pub pin: Option<&'a str>,
    /// Whether it is to be alone on its worker.
    pub dedicated: bool,
}

/// What a worker may get and lose. The later ones win if a worker is told twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It gives and takes.
    #[default]
    Full,
    /// It keeps whatever it has, and gets nothing.
    Keeps,
    /// It gives everything away once somebody can take it, and gets only what is pinned to it.
    Leaving,
}

/// Who can have items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker<'a> {
    /// Identity, and all that is hashed.
    pub id: &'a str,
    /// What it may get and lose.
    pub standing: Standing,
}

/// How to distribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// By what.
    pub policy: Policy,
    /// How many items a worker has at most.
    pub max_per_worker: Option<usize>,
    /// How many items leave a worker that is present at most, whatever the reason.
    pub max_moves: Option<usize>,
    /// Whether items move for balance. If not, only those move that may not stay where they are.
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
    /// No worker takes anything.
    NoWorker,
    /// The worker that it is pinned to is not there, or takes nothing.
    PinnedWorkerAbsent,
    /// No worker is left that it could have for itself.
    NoDedicatedWorker,
    /// Every worker that it may go to has as many items as it may have.
    NoCapacity,
}

impl Reason {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoWorker => "NoWorker",
            Self::PinnedWorkerAbsent => "PinnedWorkerAbsent",
            Self::NoDedicatedWorker => "NoDedicatedWorker",
            Self::NoCapacity => "NoCapacity",
        }
    }
}

/// Who has what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// For each item its worker, as an index into the workers.
    pub owners: Vec<Option<usize>>,
    /// The items that nobody has, in the order given: exactly those without owner.
    pub unassigned: Vec<(usize, Reason)>,
}

/// Distributes the items among the workers.
#[must_use]
pub fn assign(
    items: &[Item],
    workers: &[Worker],
    previous: &[Option<usize>],
    rules: &Rules,
) -> Assignment {
    let market = Market::new(items, workers, previous, rules.policy);
    let seats = if market.hosts.iter().any(|host| host.standing == Standing::Full) {
        let mut plan = reserve::reserve(&market, rules);
        match rules.policy {
            Policy::Sticky => sticky::seat(&mut plan, rules.balance),
            Policy::Stateless => stateless::seat(&mut plan, rules.balance),
            Policy::Contiguous => contiguous::seat(&mut plan, rules.balance),
        }
        plan.close();
        budget::seats(&plan, rules.max_moves)
    } else {
        frozen(&market)
    };
    told(&market, &seats)
}

/// Nobody takes anything, so nobody gives anything.
fn frozen(market: &Market) -> Vec<Seat> {
    let seat = |host: Option<usize>| host.map_or(Seat::Nowhere(Reason::NoWorker), Seat::At);
    market.units.iter().map(|unit| seat(unit.previous)).collect()
}

/// In the caller's terms.
fn told(market: &Market, seats: &[Seat]) -> Assignment {
    let mut told = Assignment::default();
    for (place, &unit) in market.units_by_place().iter().enumerate() {
        let owner = seats[unit].host().map(|host| market.place(host));
        told.owners.push(owner);
        if let Seat::Nowhere(reason) = seats[unit] {
            told.unassigned.push((place, reason));
        }
    }
    told
}

#[cfg(test)]
mod tests;
