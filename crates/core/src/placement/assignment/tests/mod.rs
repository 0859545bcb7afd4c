//! Tests, with one file for each guarantee.
use super::*;

mod budget_rules;
mod budgets;
mod by_count;
mod by_weight;
mod generated;
mod laws;
mod originals;
mod properties;
mod rules;
mod scale;

/// Items, workers, and the current owners: ids are text, so that a test reads as a table.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub items: Vec<Thing>,
    pub workers: Vec<(String, Standing)>,
    pub rules: Rules,
}

#[derive(Clone, Debug)]
pub(super) struct Thing {
    pub id: String,
    pub weight: u64,
    pub pin: Option<String>,
    pub dedicated: bool,
    /// The id of the worker that has it.
    pub owner: Option<String>,
}

/// The outcome by the ids of items.
pub(super) type Outcome = std::collections::BTreeMap<String, Result<String, Reason>>;

impl Thing {
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), weight: 1, pin: None, dedicated: false, owner: None }
    }
}

/// An item as `id[:weight][!][>pin][@owner]`; `!` is dedicated.
fn thing(text: &str) -> Thing {
    let (text, owner) = split(text, '@');
    let (text, pin) = split(text, '>');
    let dedicated = text.ends_with('!');
    let (id, weight) = split(text.trim_end_matches('!'), ':');
    let weight = weight.map_or(1, |weight| weight.parse().unwrap());
    let name = |id: &str| id.to_owned();
    Thing { weight, pin: pin.map(name), dedicated, owner: owner.map(name), ..Thing::new(id) }
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(left, right)| (left, Some(right)))
}

/// Items, and workers as `id`, `id=` (keeps) or `id-` (leaves).
pub(super) fn case(items: &str, workers: &str) -> Case {
    let worker = |text: &str| match text.strip_suffix('=') {
        Some(id) => (id.to_owned(), Standing::Keeps),
        None => match text.strip_suffix('-') {
            Some(id) => (id.to_owned(), Standing::Leaving),
            None => (text.to_owned(), Standing::Full),
        },
    };
    Case {
        items: items.split_whitespace().map(thing).collect(),
        workers: workers.split_whitespace().map(worker).collect(),
        rules: Rules::default(),
    }
}

impl Case {
    pub fn max(mut self, max: usize) -> Self {
        self.rules.max_per_worker = Some(max);
        self
    }

    pub fn budget(mut self, moves: usize) -> Self {
        self.rules.max_moves = Some(moves);
        self
    }

    pub fn unbalanced(mut self) -> Self {
        self.rules.balance = false;
        self
    }

    /// The outcome as `id@owner` or `id?Reason`, in the order of the items.
    pub fn shown(&self) -> String {
        let outcome = self.outcome();
        let show = |thing: &Thing| match &outcome[&thing.id] {
            Ok(owner) => format!("{}@{owner}", thing.id),
            Err(reason) => format!("{}?{reason:?}", thing.id),
        };
        self.items.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    /// Builds a case of items without a worker, and workers that take anything.
    pub fn new(items: usize, workers: usize) -> Self {
        let mut case = Self { items: Vec::new(), workers: Vec::new(), rules: Rules::default() };
        case.add(items);
        case.scale(workers);
        case
    }

    pub fn add(&mut self, items: usize) {
        let known = self.items.len();
        self.items.extend((known..known + items).map(|i| Thing::new(format!("stream-{i}"))));
    }

    pub fn scale(&mut self, workers: usize) {
        self.workers.truncate(workers);
        let known = self.workers.len();
        self.workers
            .extend((known..workers).map(|i| (format!("swarm-worker-{i}"), Standing::Full)));
    }

    pub fn policy(mut self, policy: Policy) -> Self {
        self.rules.policy = policy;
        self
    }

    pub fn run(&self) -> Assignment {
        let items: Vec<_> = self.items.iter().map(Thing::item).collect();
        let workers: Vec<_> =
            self.workers.iter().map(|(id, standing)| Worker { id, standing: *standing }).collect();
        let place = |id: &String| self.workers.iter().position(|(worker, _)| worker == id);
        let previous: Vec<_> =
            self.items.iter().map(|thing| thing.owner.as_ref().and_then(place)).collect();
        let reported = assign(&items, &workers, &previous, &self.rules);
        assert_eq!(reported.owners.len(), items.len());
        // Everything has an owner or a reason, and not both.
        let without: Vec<_> =
            (0..items.len()).filter(|&place| reported.owners[place].is_none()).collect();
        assert_eq!(
            without,
            reported.unassigned.iter().map(|(place, _)| *place).collect::<Vec<_>>()
        );
        assert!(reported.owners.iter().flatten().all(|&worker| worker < workers.len()));
        reported
    }

    pub fn outcome(&self) -> Outcome {
        let reported = self.run();
        let reasons: std::collections::BTreeMap<_, _> = reported.unassigned.into_iter().collect();
        let worker = |index: usize| self.workers[index].0.clone();
        let result =
            |place: usize| reported.owners[place].map(worker).ok_or_else(|| reasons[&place]);
        self.items.iter().enumerate().map(|(i, thing)| (thing.id.clone(), result(i))).collect()
    }

    /// Makes the outcome the previous assignment of the next step, and returns the number of items
    /// that left a worker that is present.
    pub fn step(&mut self) -> usize {
        let reported = self.run();
        let mut moves = 0;
        for (thing, owner) in self.items.iter_mut().zip(reported.owners) {
            let owner = owner.map(|index| &self.workers[index].0);
            let present =
                thing.owner.as_ref().filter(|id| self.workers.iter().any(|w| w.0 == **id));
            moves += usize::from(present.is_some() && present != owner);
            thing.owner = owner.cloned();
        }
        moves
    }

    /// Counts the items of each worker.
    pub fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.workers.len()];
        self.run().owners.into_iter().flatten().for_each(|worker| counts[worker] += 1);
        counts
    }
}

impl Thing {
    fn item(&self) -> Item<'_> {
        Item {
            id: &self.id,
            weight: self.weight,
            pin: self.pin.as_deref(),
            dedicated: self.dedicated,
        }
    }
}
