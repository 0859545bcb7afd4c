//! Balance and movement where all items weigh the same.
use super::*;

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
