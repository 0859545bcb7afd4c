//! Items of any kind, workers of any standing, any rules.
use proptest::prelude::*;

use super::*;

fn some_worker() -> impl Strategy<Value = String> {
    // The last one never exists.
    (0..9_usize).prop_map(|i| format!("w{i}"))
}

pub(super) fn some_things() -> impl Strategy<Value = Vec<Thing>> {
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

fn some_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![2 => Just(Policy::Sticky), 1 => Just(Policy::Stateless), 1 => Just(Policy::Contiguous)]
}

pub(super) fn some_case() -> impl Strategy<Value = Case> {
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

/// Cases with a worker that takes items.
pub(super) fn some_live_case() -> impl Strategy<Value = Case> {
    some_case().prop_map(|mut case| {
        if case.workers.is_empty() {
            case.workers.push(("w0".into(), Standing::Full));
        }
        case.workers[0].1 = Standing::Full;
        case
    })
}

/// Cases in which all items are alike: only their number matters.
pub(super) fn some_plain_case() -> impl Strategy<Value = Case> {
    (some_live_case(), prop::option::weighted(0.3, 1..12_usize)).prop_map(|(mut case, max)| {
        case.rules = Rules { max_per_worker: max, ..Rules::default() };
        for thing in &mut case.items {
            *thing = Thing { owner: thing.owner.take(), ..Thing::new(&thing.id) };
        }
        case
    })
}

/// Cases, half of them with repeated items and workers that have other values the second time.
pub(super) fn some_repetitive_case() -> impl Strategy<Value = Case> {
    let again = prop::collection::vec((any::<prop::sample::Index>(), some_things()), 1..4);
    (some_case(), prop::option::of((again, some_workers()))).prop_map(|(mut case, again)| {
        let Some((again, workers)) = again else { return case };
        case.items.push(Thing::new("0"));
        for (index, others) in again {
            let id = case.items[index.index(case.items.len())].id.clone();
            case.items
                .extend(others.into_iter().take(1).map(|other| Thing { id: id.clone(), ..other }));
        }
        case.workers.extend(workers);
        case
    })
}
