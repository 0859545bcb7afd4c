//! Balance and movement if all items have the same weight.
use super::*;
use crate::placement::hash;

const POLICIES: [Policy; 3] = [Policy::Sticky, Policy::Stateless, Policy::Contiguous];

/// The original fails 3,096 of these 3,800.
#[test]
fn every_number_of_items_and_workers_is_complete_disjoint_and_even() {
    for policy in POLICIES {
        for workers in 2..=20 {
            for items in 1..=200 {
                let counts = Case::new(items, workers).policy(policy).counts();
                assert_eq!(counts.iter().sum::<usize>(), items, "{policy:?} {items}/{workers}");
                let expected = items / workers..=items.div_ceil(workers);
                assert!(
                    counts.iter().all(|count| expected.contains(count)),
                    "{policy:?} {items}/{workers}: {counts:?}"
                );
            }
        }
    }
}

#[test]
fn a_worker_more_or_less_moves_exactly_its_share() {
    for (items, workers, up, down) in [(1000, 10, 90, 100), (1000, 50, 19, 20), (27, 2, 9, 13)] {
        let mut case = Case::new(items, workers);
        case.step();
        let mut more = case.clone();
        more.scale(workers + 1);
        assert_eq!(more.step(), up);
        assert_eq!(more.step(), 0);

        // The last worker leaves, or is gone already.
        case.workers[workers - 1].1 = Standing::Leaving;
        let mut gone = case.clone();
        assert_eq!(case.step(), down);
        gone.scale(workers - 1);
        assert_eq!(gone.step(), 0);
        assert_eq!(gone.outcome(), case.outcome());
    }
}

/// The table in the documentation of this module.
#[test]
fn moves_are_as_documented() {
    let documented = [
        (10, Policy::Sticky, [90, 100, 0]),
        (10, Policy::Stateless, [114, 120, 3]),
        (10, Policy::Contiguous, [495, 504, 9]),
        (50, Policy::Sticky, [19, 20, 0]),
        (50, Policy::Stateless, [33, 48, 3]),
        (50, Policy::Contiguous, [190, 790, 49]),
    ];
    let measured = documented.map(|(workers, policy, _)| {
        let mut case = Case::new(1000, workers).policy(policy);
        case.step();
        let [mut up, mut down, mut more] = [0; 3].map(|_| case.clone());
        up.scale(workers + 1);
        down.workers[workers - 1].1 = Standing::Leaving;
        more.add(1);
        (workers, policy, [up.step(), down.step(), more.step()])
    });
    assert_eq!(measured, documented);
}

/// The same items leave when the worker comes back, and any other that arrives suits it as well.
#[test]
fn those_leave_that_suit_their_worker_least() {
    let mut case = Case::new(12, 1);
    case.step();
    case.scale(2);
    let score = |item: &str, worker: &str| hash::combine(hash::of(item), hash::of(worker));
    let mut ids: Vec<_> = case.items.iter().map(|thing| thing.id.clone()).collect();
    ids.sort_by_key(|id| score(id, "swarm-worker-0"));
    let outcome = case.outcome();
    let owners: Vec<_> = ids.iter().map(|id| outcome[id].as_deref().unwrap()).collect();
    assert_eq!(owners, [["swarm-worker-1"; 6], ["swarm-worker-0"; 6]].concat());
}

/// The reference of the stateless matching: all pairs, the best first.
fn greedy(case: &Case) -> Outcome {
    let score = |(item, worker): (&str, &str)| hash::combine(hash::of(item), hash::of(worker));
    let items = case.items.iter().map(|thing| thing.id.as_str());
    let workers: Vec<_> = case.workers.iter().map(|(id, _)| id.as_str()).collect();
    let mut pairs: Vec<_> =
        items.flat_map(|item| workers.iter().map(move |&worker| (item, worker))).collect();
    pairs.sort_by_key(|&pair| std::cmp::Reverse(score(pair)));
    let max = case.rules.max_per_worker.unwrap_or(usize::MAX);
    let floor = max.min(case.items.len() / workers.len());
    let mut extras = if floor == max { 0 } else { case.items.len() % workers.len() };
    let lost = |thing: &Thing| (thing.id.clone(), Err(Reason::NoCapacity));
    let mut outcome: Outcome = case.items.iter().map(lost).collect();
    for (item, worker) in pairs {
        let has = outcome.values().filter(|owner| owner.as_deref() == Ok(worker)).count();
        if outcome[item].is_err() && (has < floor || (has == floor && extras > 0)) {
            extras -= usize::from(has == floor);
            outcome.insert(item.into(), Ok(worker.into()));
        }
    }
    outcome
}

#[test]
fn stateless_takes_the_best_pairs_first() {
    for (items, workers, max) in [(1, 3, 9), (7, 3, 9), (30, 7, 9), (100, 9, 99), (30, 7, 3)] {
        let case = Case::new(items, workers).policy(Policy::Stateless).max(max);
        assert_eq!(case.outcome(), greedy(&case), "{items} over {workers}");
    }
}

/// Streams that move here move in every cluster at the next upgrade of the operator.
#[test]
fn the_assignment_never_changes() {
    let shares = |policy: Policy| {
        let owners = Case::new(18, 4).policy(policy).run().owners;
        owners.into_iter().map(Option::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(shares(Policy::Sticky), [3, 0, 0, 2, 2, 3, 1, 2, 2, 1, 2, 1, 1, 3, 0, 0, 3, 0]);
    assert_eq!(shares(Policy::Stateless), [3, 0, 0, 2, 2, 3, 1, 3, 2, 1, 2, 1, 1, 3, 0, 0, 3, 0]);
    assert_eq!(shares(Policy::Contiguous), [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
}
