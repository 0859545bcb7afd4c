//! Permitted moves under a limited budget.
use proptest::prelude::*;

use super::{generated::*, laws::*, *};

/// More rounds than any of these cases needs, even with a budget of one move.
const ROUNDS: usize = 200;

proptest! {
    #[test]
    fn a_budget_is_never_exceeded_and_no_step_breaks_a_rule(case in some_case(), budget in 0..8_usize) {
        let mut case = case;
        case.rules.max_moves = Some(budget);
        let outcome = case.outcome();
        prop_assert!(case.moves(&outcome).len() <= budget);
        if case.is_frozen() {
            return Ok(());
        }
        check_always(&case, &outcome)?;
        // No item is without a worker for a while if a worker has room. (But room may be reserved
        // for dedicated items, and for those that follow an item that lost its worker because all
        // blocked one another.)
        let in_the_end = Case { rules: Rules { max_moves: None, ..case.rules }, ..case.clone() }.outcome();
        let waits = |thing: &&Thing| outcome[&thing.id].is_err() && in_the_end[&thing.id].is_ok();
        let waiting: Vec<_> = case.items.iter().filter(waits).collect();
        let kept = case.items.iter().any(|thing| thing.dedicated)
            || waiting.iter().any(|thing| case.owner(thing).is_some());
        if waiting.iter().any(|thing| thing.pin.is_none()) && !kept {
            let shares = case.shares(&outcome);
            let full = case.workers.iter().filter(|worker| worker.1 == Standing::Full);
            let room = full.filter(|(id, _)| shares[id.as_str()].len() < case.limit()).count();
            prop_assert_eq!(room, 0, "{:?} wait", waiting);
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
        if slow.rules.policy != Policy::Sticky && slow.rules.balance {
            let only_full = slow.workers.iter().all(|worker| worker.1 == Standing::Full);
            prop_assert!(!only_full || outcome == fast.outcome());
        }
        // Which item waits for a worker that only keeps its items depends on the order in which
        // they ran.
        let waits = slow.workers.iter().any(|worker| worker.1 == Standing::Keeps)
            && slow.items.iter().any(|thing| thing.dedicated);
        let everywhere = |case: &Case| case.items.iter().filter(|thing| thing.owner.is_some()).count();
        prop_assert!(waits || everywhere(&slow) == everywhere(&fast));
    }

    #[test]
    fn a_budget_delays_moves_and_adds_none(mut case in some_plain_case(), budget in 1..8_usize) {
        case.rules.max_per_worker = None;
        let (mut slow, mut fast) = (case.clone(), case);
        slow.rules.max_moves = Some(budget);
        let moves = fast.step();
        for round in 0..moves.div_ceil(budget) {
            prop_assert_eq!(slow.step(), budget.min(moves - round * budget));
        }
        prop_assert_eq!(slow.step(), 0);
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
                    || held > case.limit()
                    // An item that is pinned to it was added.
                    || shares[owner].len() == case.limit(),
                "{:?} left {}", thing, owner
            );
        }
    }
}
