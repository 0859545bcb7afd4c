//! Properties that hold for any input; most are named for the invariants of exclusive streams.
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{generated::*, laws::*, *};

proptest! {
    #[test]
    fn each_has_an_owner_that_it_may_have_or_a_reason(case in some_case()) {
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
    fn an_item_listed_twice_has_one_owner(case in some_repetitive_case()) {
        let reported = case.run();
        let mut owners = BTreeMap::new();
        for (thing, owner) in case.items.iter().zip(reported.owners) {
            prop_assert_eq!(*owners.entry(&thing.id).or_insert(owner), owner);
        }
    }

    #[test]
    fn as_even_as_pins_and_limits_allow(mut case in some_live_case()) {
        case.rules.balance = true;
        check_even(&case, &case.outcome())?;
    }

    #[test]
    fn again_changes_nothing(mut case in some_case()) {
        case.step();
        let outcome = case.outcome();
        prop_assert_eq!(case.step(), 0);
        prop_assert_eq!(case.outcome(), outcome);
    }

    #[test]
    fn the_order_of_items_and_workers_does_not_matter(
        (mut case, items, workers) in some_repetitive_case().prop_flat_map(|case| {
            let (items, workers) = (case.items.clone(), case.workers.clone());
            (Just(case), Just(items).prop_shuffle(), Just(workers).prop_shuffle())
        }),
        budget in prop::option::of(0..8_usize), sticky: bool,
    ) {
        case.rules.policy = if sticky { Policy::Sticky } else { Policy::Stateless };
        case.rules.max_moves = budget;
        let shuffled = Case { items, workers, rules: case.rules };
        prop_assert_eq!(case.outcome(), shuffled.outcome());
    }

    #[test]
    fn no_assignment_that_is_even_moves_less(case in some_plain_case()) {
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
        let max = case.limit();
        let total = (case.items.len() - kept).min(max.saturating_mul(full.len()));
        // The fullest may have one more than the others.
        let cap = |rank: usize| total / full.len() + usize::from(rank < total % full.len());
        let excess = |(rank, held): (usize, &usize)| held.saturating_sub(cap(rank));
        let least: usize = full.iter().enumerate().map(excess).sum();
        // Items on a worker that leaves move as soon as there is room, after those without a
        // worker.
        let moves = case.moves(&case.outcome()).len();
        let leaving: usize = held(Standing::Leaving).iter().sum();
        if total == case.items.len() - kept {
            prop_assert_eq!(moves, least + leaving);
        } else {
            prop_assert!((least..=least + leaving).contains(&moves));
        }
    }

    #[test]
    fn one_item_more_moves_nothing_and_touches_one_worker(mut case in some_live_case(), weight in 1..9_u64) {
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
    fn one_item_less_moves_at_most_one(
        mut case in some_plain_case(), pick in any::<prop::sample::Index>(),
    ) {
        case.rules.max_per_worker = None;
        case.items.push(Thing::new("0"));
        case.step();
        case.items.remove(pick.index(case.items.len()));
        prop_assert!(case.step() <= 1);
    }

    #[test]
    fn nothing_but_ids_is_hashed(case in some_case(), factor in 2..5_u64) {
        // The weight of an item affects the balance, but not if all weights are equal. The weight
        // of a dedicated item never does.
        let mut heavier = case.clone();
        for thing in heavier.items.iter_mut().filter(|thing| !thing.dedicated) {
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
        // Workers that keep or leave are the exception: their items depend on the previous
        // assignment.
        case.workers.retain(|worker| worker.1 == Standing::Full);
        let mut otherwise = case.clone();
        for (thing, other) in otherwise.items.iter_mut().zip(other) {
            thing.owner = other.owner;
        }
        prop_assert_eq!(case.outcome(), otherwise.outcome());
    }

    #[test]
    fn a_worker_that_is_unready_for_a_while_loses_nothing_and_moves_nothing(
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
fn owners_that_do_not_exist_are_nobody() {
    let items = ["a", "b", "c"].map(|id| Item { id, weight: 0, pin: None, dedicated: false });
    let workers = [Worker { id: "w", standing: Standing::Full }];
    for previous in [&[][..], &[Some(0)], &[Some(7), None, Some(1), Some(0), Some(99)]] {
        let reported = assign(&items, &workers, previous, &Rules::default());
        assert_eq!(reported.owners, [Some(0); 3]);
    }
}
