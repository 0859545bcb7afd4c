//! What holds for whatever there is: items of any kind, workers of any standing, under any rules.
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// More rounds than any of these cases needs, even with a budget of one move.
const ROUNDS: usize = 200;

fn some_worker() -> impl Strategy<Value = String> {
    // The last is never there.
    (0..9_usize).prop_map(|i| format!("w{i}"))
}

fn some_things() -> impl Strategy<Value = Vec<Thing>> {
    let weight = prop_oneof![4 => Just(1), 2 => 1..9_u64, 1 => Just(u64::MAX)];
    let pin = prop::option::weighted(0.15, some_worker());
    let owner = prop::option::weighted(0.8, some_worker());
    let thing = (weight, pin, prop::bool::weighted(0.1), owner);
    let things = prop::collection::btree_map("[a-z]{1,3}", thing, 0..40);
    (things, any::<bool>(), prop::bool::weighted(0.6)).prop_map(|(things, equal, plain)| {
        let thing = |(id, (weight, pin, dedicated, owner))| Thing {
            id,
            weight: if equal { 1 } else { weight },
            pin: if plain { None } else { pin },
            dedicated: !plain && dedicated,
            owner,
        };
        things.into_iter().map(thing).collect()
    })
}

fn some_workers() -> impl Strategy<Value = Vec<(String, Standing)>> {
    let standing = prop_oneof![
        6 => Just(Standing::Full),
        1 => Just(Standing::Keeps),
        1 => Just(Standing::Leaving)
    ];
    prop::collection::btree_map((0..8_usize).prop_map(|i| format!("w{i}")), standing, 0..8)
        .prop_map(|workers| workers.into_iter().collect())
}

pub(super) fn some_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![2 => Just(Policy::Sticky), 1 => Just(Policy::Stateless), 1 => Just(Policy::Contiguous)]
}

fn some_case() -> impl Strategy<Value = Case> {
    let rules =
        (some_policy(), prop::option::weighted(0.3, 0..12_usize), prop::bool::weighted(0.8));
    (some_things(), some_workers(), rules).prop_map(|(items, workers, rules)| Case {
        items,
        workers,
        rules: Rules {
            policy: rules.0,
            max_per_worker: rules.1,
            max_moves: None,
            balance: rules.2,
        },
    })
}

/// With a worker that takes something.
fn some_live_case() -> impl Strategy<Value = Case> {
    some_case().prop_map(|mut case| {
        if case.workers.is_empty() {
            case.workers.push(("w0".into(), Standing::Full));
        }
        case.workers[0].1 = Standing::Full;
        case
    })
}

/// All alike: nothing but the number of items matters.
fn some_plain_case() -> impl Strategy<Value = Case> {
    (some_live_case(), prop::option::weighted(0.3, 1..12_usize)).prop_map(|(mut case, max)| {
        case.rules = Rules { max_per_worker: max, ..Rules::default() };
        for thing in &mut case.items {
            *thing = Thing { owner: thing.owner.take(), ..Thing::new(&thing.id) };
        }
        case
    })
}

impl Case {
    fn standing(&self, worker: &str) -> Option<Standing> {
        self.workers.iter().find(|(id, _)| id == worker).map(|(_, standing)| *standing)
    }

    fn is_frozen(&self) -> bool {
        self.workers.iter().all(|(_, standing)| *standing != Standing::Full)
    }

    /// The worker that an item has now, if it is present.
    fn owner<'a>(&self, thing: &'a Thing) -> Option<(&'a str, Standing)> {
        let owner = thing.owner.as_deref()?;
        Some((owner, self.standing(owner)?))
    }

    /// The items of each worker after a step.
    pub(super) fn shares(&self, outcome: &Outcome) -> BTreeMap<&str, Vec<&Thing>> {
        let mut shares: BTreeMap<&str, Vec<&Thing>> =
            self.workers.iter().map(|(id, _)| (id.as_str(), Vec::new())).collect();
        for thing in &self.items {
            if let Ok(owner) = &outcome[&thing.id] {
                shares.get_mut(owner.as_str()).unwrap().push(thing);
            }
        }
        shares
    }

    /// The items that leave a worker that is present.
    fn moves(&self, outcome: &Outcome) -> Vec<&Thing> {
        let moves = |thing: &&Thing| {
            self.owner(thing).is_some_and(|(owner, _)| {
                outcome[&thing.id].as_ref().map_or(true, |new| new != owner)
            })
        };
        self.items.iter().filter(moves).collect()
    }

    /// Whether a unit is held to one worker: by its pin, or because that worker takes nothing now.
    fn is_bound(thing: &Thing) -> bool {
        thing.pin.is_some() || thing.dedicated
    }

    /// The workers for items that are neither pinned nor dedicated.
    fn open<'a>(&'a self, shares: &BTreeMap<&'a str, Vec<&Thing>>) -> Vec<&'a str> {
        let open = |id: &&str| {
            self.standing(id) == Some(Standing::Full)
                && !shares[id].iter().any(|thing| thing.dedicated)
        };
        shares.keys().copied().filter(open).collect()
    }

    fn max(&self) -> usize {
        self.rules.max_per_worker.unwrap_or(usize::MAX)
    }
}

/// What holds whatever the budget.
fn check_always(case: &Case, outcome: &Outcome) -> Result<(), TestCaseError> {
    for thing in &case.items {
        let new = &outcome[&thing.id];
        let owner = case.owner(thing);
        if let Some((owner, Standing::Keeps)) = owner {
            prop_assert_eq!(new.as_deref(), Ok(owner), "{:?} left who keeps", thing);
        }
        let Ok(new) = new else { continue };
        if owner.is_some_and(|(owner, _)| owner == new) {
            continue;
        }
        // It comes to a worker that may take it.
        let standing = case.standing(new).unwrap();
        prop_assert_ne!(standing, Standing::Keeps);
        let pinned_here = thing.pin.as_ref() == Some(new);
        prop_assert!(standing == Standing::Full || pinned_here, "{:?} to {}", thing, new);
        prop_assert!(thing.pin.is_none() || pinned_here, "{:?} to {}", thing, new);
    }
    for (worker, share) in case.shares(outcome) {
        let come = |thing: &&&Thing| thing.owner.as_deref() != Some(worker);
        let newcomers = share.iter().filter(come).count();
        if newcomers > 0 {
            prop_assert!(share.len() <= case.max(), "{} above the limit", worker);
            let dedicated = share.iter().filter(|thing| thing.dedicated).count();
            prop_assert!(dedicated == 0 || share.len() == 1, "{} is shared: {:?}", worker, share);
        }
    }
    Ok(())
}

/// What holds in addition once nothing is held back.
fn check_at_rest(case: &Case, outcome: &Outcome) -> Result<(), TestCaseError> {
    check_always(case, outcome)?;
    let shares = case.shares(outcome);
    for (&worker, share) in &shares {
        if case.standing(worker) == Some(Standing::Keeps) {
            continue;
        }
        prop_assert!(share.len() <= case.max(), "{} above the limit", worker);
        let dedicated = share.iter().filter(|thing| thing.dedicated).count();
        prop_assert!(dedicated == 0 || share.len() == 1, "{} is shared: {:?}", worker, share);
        for thing in share {
            let waits = thing.pin.as_ref().is_some_and(|pin| {
                case.standing(pin) == Some(Standing::Keeps)
                    && thing.owner.as_deref() == Some(worker)
            });
            let honoured = thing.pin.as_deref().is_none_or(|pin| pin == worker);
            prop_assert!(honoured || waits, "{:?} on {}", thing, worker);
        }
    }
    let open = case.open(&shares);
    let full = case.workers.iter().filter(|(_, standing)| *standing == Standing::Full).count();
    for thing in &case.items {
        let Err(reason) = &outcome[&thing.id] else { continue };
        let pin = thing.pin.as_deref();
        let pinned = pin.and_then(|pin| case.standing(pin));
        let has_room = |worker: &str| shares[worker].len() < case.max();
        let expected = match reason {
            Reason::NoWorker => pin.is_none() && !thing.dedicated && open.is_empty(),
            Reason::PinnedWorkerAbsent => {
                pin.is_some() && pinned.is_none_or(|standing| standing == Standing::Keeps)
            }
            Reason::NoCapacity => match pin {
                Some(pin) => pinned.is_some() && !has_room(pin),
                None => !open.is_empty() && !open.iter().any(|worker| has_room(worker)),
            },
            // All others are somebody's own, or somebody is pinned to them, or the last one is for the others.
            Reason::NoDedicatedWorker => {
                let shared = |worker: &&str| shares[worker].iter().any(|t| t.pin.is_some());
                let ordinary = case.items.iter().any(|t| !t.dedicated && t.pin.is_none());
                let free = open.iter().filter(|worker| !shared(worker)).count();
                let left = usize::from(ordinary && free == open.len());
                thing.dedicated && (pin.is_some() || free <= left || full == 0)
            }
        };
        prop_assert!(expected, "{:?}: {:?} of {:?}", thing, reason, shares);
    }
    Ok(())
}

/// As even as pins, limits and dedicated items allow.
fn check_even(case: &Case, outcome: &Outcome) -> Result<(), TestCaseError> {
    let shares = case.shares(outcome);
    let open = case.open(&shares);
    let equal =
        case.items.iter().filter(|t| !t.dedicated).map(|t| t.weight).collect::<BTreeSet<_>>();
    let by_weight = case.rules.policy == Policy::Sticky && equal.len() > 1;
    let load = |worker: &str| -> u128 {
        let weight = |t: &&Thing| if by_weight { u128::from(t.weight) } else { 1 };
        shares[worker].iter().map(weight).sum()
    };
    let movable = |worker: &&str| shares[worker].iter().any(|thing| !Case::is_bound(thing));
    let bound = case.items.iter().filter(|t| !Case::is_bound(t)).map(|t| t.weight).max();
    let bound = if by_weight { u128::from(bound.unwrap_or(0)) } else { 1 };
    for from in open.iter().filter(|worker| movable(worker)) {
        for to in open.iter().filter(|worker| shares[*worker].len() < case.max()) {
            let (from, to) = (load(from), load(to));
            prop_assert!(from <= to.saturating_add(bound), "{} and {}: {:?}", from, to, shares);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn i1_i6_each_has_an_owner_that_it_may_have_or_a_reason(case in some_case()) {
        let outcome = case.outcome();
        if case.is_frozen() {
            for thing in &case.items {
                let owner = case.owner(thing).map(|(owner, _)| owner).ok_or(Reason::NoWorker);
                prop_assert_eq!(outcome[&thing.id].as_deref().map_err(|reason| *reason), owner);
            }
        } else {
            check_at_rest(&case, &outcome)?;
        }
    }

    #[test]
    fn i2_an_item_told_twice_has_one_owner(
        mut case in some_case(),
        again in prop::collection::vec((any::<prop::sample::Index>(), some_things()), 1..4),
        worker in any::<prop::sample::Index>(),
    ) {
        case.items.push(Thing::new("0"));
        // The same id, and everything else different.
        for (index, other) in again {
            let id = case.items[index.index(case.items.len())].id.clone();
            case.items.extend(other.into_iter().take(1).map(|thing| Thing { id: id.clone(), ..thing }));
        }
        if !case.workers.is_empty() {
            case.workers.push(case.workers[worker.index(case.workers.len())].clone());
        }
        let told = case.run();
        let mut owners = BTreeMap::new();
        for (thing, owner) in case.items.iter().zip(told.owners) {
            prop_assert_eq!(*owners.entry(&thing.id).or_insert(owner), owner);
        }
    }

    #[test]
    fn i3_as_even_as_pins_and_limits_allow(mut case in some_live_case()) {
        case.rules.balance = true;
        check_even(&case, &case.outcome())?;
    }

    #[test]
    fn i4_again_changes_nothing(mut case in some_case()) {
        case.step();
        let outcome = case.outcome();
        prop_assert_eq!(case.step(), 0);
        prop_assert_eq!(case.outcome(), outcome);
    }

    #[test]
    fn i4_the_order_of_items_and_workers_does_not_matter(
        (case, items, workers) in some_case().prop_flat_map(|case| {
            let (items, workers) = (case.items.clone(), case.workers.clone());
            (Just(case), Just(items).prop_shuffle(), Just(workers).prop_shuffle())
        }),
        budget in prop::option::of(0..8_usize), sticky: bool,
    ) {
        let mut case = case;
        case.rules.policy = if sticky { Policy::Sticky } else { Policy::Stateless };
        case.rules.max_moves = budget;
        let shuffled = Case { items, workers, rules: case.rules };
        prop_assert_eq!(case.outcome(), shuffled.outcome());
    }

    #[test]
    fn i5_no_assignment_that_is_even_moves_less(case in some_plain_case()) {
        let held = |standing: Standing| -> Vec<usize> {
            let has = |id: &str| case.items.iter().filter(|t| t.owner.as_deref() == Some(id)).count();
            let workers = case.workers.iter().filter(|worker| worker.1 == standing);
            let mut held: Vec<_> = workers.map(|(id, _)| has(id)).collect();
            held.sort_unstable();
            held.reverse();
            held
        };
        let kept: usize = held(Standing::Keeps).iter().sum();
        let full = held(Standing::Full);
        let max = case.max();
        let total = (case.items.len() - kept).min(max.saturating_mul(full.len()));
        // The fullest may have one more than the others.
        let cap = |rank: usize| total / full.len() + usize::from(rank < total % full.len());
        let excess = |(rank, held): (usize, &usize)| held.saturating_sub(cap(rank));
        let least: usize = full.iter().enumerate().map(excess).sum();
        // Who is with a worker that leaves goes as soon as there is room, after those that run nowhere.
        let moves = case.moves(&case.outcome()).len();
        let leaving: usize = held(Standing::Leaving).iter().sum();
        if total == case.items.len() - kept {
            prop_assert_eq!(moves, least + leaving);
        } else {
            prop_assert!((least..=least + leaving).contains(&moves));
        }
    }

    #[test]
    fn i7_one_item_more_moves_nothing_and_touches_one_worker(mut case in some_live_case(), weight in 1..9_u64) {
        case.rules.policy = Policy::Sticky;
        case.rules.max_per_worker = None;
        for thing in &mut case.items {
            thing.dedicated = false;
        }
        case.step();
        let before = case.outcome();
        // An id that no other has.
        case.items.push(Thing { weight, ..Thing::new("0") });
        prop_assert_eq!(case.step(), 0);
        let mut after = case.outcome();
        prop_assert!(after.remove("0").unwrap().is_ok());
        prop_assert_eq!(after, before);
    }

    #[test]
    fn i7_one_item_less_moves_at_most_one(
        mut case in some_plain_case(), pick in any::<prop::sample::Index>(),
    ) {
        case.rules.max_per_worker = None;
        case.items.push(Thing::new("0"));
        case.step();
        case.items.remove(pick.index(case.items.len()));
        prop_assert!(case.step() <= 1);
    }

    #[test]
    fn a_budget_is_never_exceeded_and_no_step_breaks_a_rule(case in some_case(), budget in 0..8_usize) {
        let mut case = case;
        case.rules.max_moves = Some(budget);
        let outcome = case.outcome();
        prop_assert!(case.moves(&outcome).len() <= budget);
        if !case.is_frozen() {
            check_always(&case, &outcome)?;
        }
    }

    #[test]
    fn with_a_budget_it_comes_to_the_same_balance(case in some_live_case(), budget in 1..8_usize) {
        let (mut slow, mut fast) = (case.clone(), case);
        slow.rules.max_moves = Some(budget);
        let mut rounds = 0;
        loop {
            let before = slow.outcome();
            let moves = slow.step();
            if moves == 0 && slow.outcome() == before {
                break;
            }
            rounds += 1;
            prop_assert!(rounds < ROUNDS, "no end: {:?}", slow);
        }
        // Without a budget nothing is left to do.
        slow.rules.max_moves = None;
        let outcome = slow.outcome();
        prop_assert_eq!(slow.moves(&outcome).len(), 0);
        check_at_rest(&slow, &outcome)?;
        if slow.rules.balance {
            check_even(&slow, &outcome)?;
        }
        fast.step();
        let everywhere = |case: &Case| case.items.iter().filter(|thing| thing.owner.is_some()).count();
        prop_assert_eq!(everywhere(&slow), everywhere(&fast));
    }

    #[test]
    fn without_balance_nothing_moves_that_may_stay(case in some_case()) {
        let mut case = case;
        case.rules.balance = false;
        let outcome = case.outcome();
        let shares = case.shares(&outcome);
        for thing in case.moves(&outcome) {
            let (owner, standing) = case.owner(thing).unwrap();
            let held = case.items.iter().filter(|t| t.owner.as_deref() == Some(owner)).count();
            let reserved = shares[owner].iter().any(|t| t.dedicated);
            prop_assert!(
                standing == Standing::Leaving
                    || Case::is_bound(thing)
                    || reserved
                    || held > case.max()
                    // Somebody came who is pinned to it.
                    || shares[owner].len() == case.max(),
                "{:?} left {}", thing, owner
            );
        }
    }

    #[test]
    fn i15_nothing_but_ids_is_hashed(case in some_case(), factor in 2..5_u64) {
        // What an item weighs decides about balance; it does not when all weigh the same.
        let mut heavier = case.clone();
        for thing in &mut heavier.items {
            thing.weight = factor;
        }
        let mut lighter = case;
        for thing in &mut lighter.items {
            thing.weight = 1;
        }
        prop_assert_eq!(heavier.outcome(), lighter.outcome());
    }

    #[test]
    fn stateless_and_contiguous_do_not_look_at_what_was_before(
        mut case in some_live_case(), other in some_things(), contiguous: bool,
    ) {
        case.rules.policy = if contiguous { Policy::Contiguous } else { Policy::Stateless };
        case.rules.balance = true;
        // Those that keep or leave are the exception: what they have depends on what they had.
        case.workers.retain(|worker| worker.1 == Standing::Full);
        let mut otherwise = case.clone();
        for (thing, other) in otherwise.items.iter_mut().zip(other) {
            thing.owner = other.owner;
        }
        prop_assert_eq!(case.outcome(), otherwise.outcome());
    }

    #[test]
    fn i16_a_worker_that_is_unready_for_a_while_loses_nothing_and_moves_nothing(
        mut case in some_case(), flaps in prop::collection::vec(any::<bool>(), 8),
    ) {
        case.workers.iter_mut().for_each(|worker| worker.1 = Standing::Full);
        case.step();
        let before = case.outcome();
        for (worker, flaps) in case.workers.iter_mut().zip(flaps) {
            if flaps {
                worker.1 = Standing::Keeps;
            }
        }
        prop_assert_eq!(case.step(), 0);
        case.workers.iter_mut().for_each(|worker| worker.1 = Standing::Full);
        prop_assert_eq!(case.step(), 0);
        prop_assert_eq!(case.outcome(), before);
    }
}

#[test]
fn owners_that_are_told_wrongly_are_nobody() {
    let items = ["a", "b", "c"].map(|id| Item { id, weight: 0, pin: None, dedicated: false });
    let workers = [Worker { id: "w", standing: Standing::Full }];
    for previous in [&[][..], &[Some(0)], &[Some(7), None, Some(1), Some(0), Some(99)]] {
        let told = assign(&items, &workers, previous, &Rules::default());
        assert_eq!(told.owners, [Some(0); 3]);
    }
}
