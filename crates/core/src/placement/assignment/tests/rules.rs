//! Pins, dedicated items, standings, limits, budgets: the effect of each, as tables.
use super::*;

const POLICIES: [Policy; 3] = [Policy::Sticky, Policy::Stateless, Policy::Contiguous];

/// Checks the outcome under every policy.
pub(super) fn check(case: &Case, expected: &str) {
    for policy in POLICIES {
        assert_eq!(case.clone().policy(policy).shown(), expected, "{policy:?}: {case:?}");
    }
}

#[test]
fn pins() {
    // Regardless of the load, from no worker or from another.
    check(&case("a>v b>v c>v@w d", "v w"), "a@v b@v c@v d@w");
    check(&case("a>x b>x@v c>v", "v w"), "a?PinnedWorkerAbsent b?PinnedWorkerAbsent c@v");
    // A worker that leaves keeps what is pinned to it, and gets it.
    check(&case("a>w@w b>w c@w", "v w-"), "a@w b@w c@v");
    // One that takes nothing gets no pinned item either; until it does, such an item stays where it
    // is.
    check(&case("a>w b>w@v c>w@w", "v w="), "a?PinnedWorkerAbsent b@v c@w");
    check(&case("a>w@u b>v@u", "u- v w="), "a@u b@v");
}

#[test]
fn pins_count_for_the_balance() {
    let counts = |case: Case| POLICIES.map(|policy| case.clone().policy(policy).counts());
    // Three are pinned to u; it gets none of the other four, because no worker has more.
    let pinned = case("a>u b>u c>u d e f g", "u v w");
    assert_eq!(counts(pinned.clone()), [[3, 2, 2]; 3]);
    assert_eq!(counts(pinned.max(2)), [[2, 2, 2]; 3]);
    assert_eq!(counts(case("a>u b>u c d", "u v w")), [[2, 1, 1]; 3]);
    assert_eq!(counts(case("a>u b>u c d e", "u v w").max(2))[0].iter().max(), Some(&2));
}

#[test]
fn dedicated_items_are_alone() {
    check(&case("a! b>w c>w", "v w"), "a@v b@w c@w");
    check(&case("a!>v b c", "v w"), "a@v b@w c@w");
    // An ordinary item that is already there moves away; one that is pinned there does not.
    check(&case("a!>v b@v c@w", "v w"), "a@v b@w c@w");
    check(&case("a!>v b>v c@w", "v w"), "a?NoDedicatedWorker b@v c@w");
    // It moves off the worker that leaves, but stays if there is no other.
    check(&case("a!@w", "v w-"), "a@v");
    check(&case("a!@w b>v", "v w-"), "a@w b@v");
    check(&case("a!@w b@w c>v", "v w-"), "a@w b@v c@v");
    check(&case("a!@w b", "v w="), "a@w b@v");
}

#[test]
fn ordinary_items_keep_a_worker() {
    let counted = |case: Case| {
        POLICIES.map(|policy| {
            let outcome = case.clone().policy(policy).outcome();
            let lost = outcome.values().filter(|owner| **owner == Err(Reason::NoDedicatedWorker));
            (lost.count(), outcome["z"].is_ok())
        })
    };
    for (items, workers, lost) in [
        ("a! b! c! z", "u v w", 1),
        ("a! b! c! d! e! z", "u v w", 3),
        ("a! z", "u", 1),
        ("a!@u b!@v z", "u v", 1),
        ("a!>u b!>v z", "u v", 1),
        // The worker of a pinned item takes all others too.
        ("a! b! c! y>u z", "u v w", 1),
    ] {
        assert_eq!(counted(case(items, workers)), [(lost, true); 3], "{items} on {workers}");
    }
    // An item that runs does not wait for a worker that takes nothing, nor does any item for a
    // dedicated one.
    check(&case("a! b@v", "v w="), "a?NoDedicatedWorker b@v");
    check(&case("a!@w b!@v c", "v w="), "a@w b?NoDedicatedWorker c@v");
    // Without such items, no worker is kept free.
    assert_eq!(case("a!@v b!@u", "u v").shown(), "a@v b@u");
    check(&case("a!>v b!>u", "u v"), "a@v b@u");
}

#[test]
fn a_dedicated_item_moves_as_few_as_it_can() {
    // To the empty worker; to the one with the fewest; it stays where it is alone.
    for (items, expected) in [
        ("a! b@u c@u d@v e@v", "w"),
        ("a!@u b@u c@u d@v e@v", "w"),
        ("a! b@u c@u d@v e@w f@w", "v"),
        ("a!@u b@v c@w", "u"),
        ("a!@u b@u c@v d@v e@w f@w", "u"),
    ] {
        assert_eq!(case(items, "u v w").outcome()["a"], Ok(expected.into()), "{items}");
    }
}

/// Returns which of the two ids has the smaller hash.
#[test]
fn which_dedicated_item_comes_first() {
    for (a, b) in [("a", "b"), ("b", "a")] {
        for (items, workers, expected) in [
            // The pinned one, the one that is alone already, the one that has a worker.
            ("A!>v B!@v c>u", "u v w", ["v", "w"]),
            ("A!@v B!@u c@u d@u e@u f@w g@w h@w", "u v w", ["v", "u"]),
            ("A!@v B!", "v", ["v", "-"]),
            ("A!@v B!@u c@v", "u- v w", ["v", "u"]),
            ("A! B!@u", "u- v", ["v", "u"]),
            ("A!>u@u B!>u", "u- v", ["u", "-"]),
            ("A!@v B! c@v d@w", "v w", ["v", "-"]),
        ] {
            let case = case(&items.replace('A', a).replace('B', b), workers);
            let outcome = case.outcome();
            let owner = |id| outcome[id].as_deref().unwrap_or("-");
            assert_eq!([owner(a), owner(b)], expected, "{items}");
        }
    }
}

#[test]
fn standings() {
    // A worker that keeps loses nothing and gets nothing, no matter how uneven that is.
    check(&case("a@w b@w c@w d e", "v w="), "a@w b@w c@w d@v e@v");
    check(&case("a>v@w b!@w c@w", "v w="), "a@w b@w c@w");
    // A worker that leaves gives everything away, if there is another one.
    check(&case("a@w b@w c", "v w-"), "a@v b@v c@v");
    // As many move as there is room for; the others stay.
    assert_eq!(case("a@v b@w c@w", "v w-").max(2).counts(), [2, 1]);
}

#[test]
fn nothing_moves_while_nobody_takes_anything() {
    for workers in ["v- w-", "v= w-", "v= w="] {
        let case = case("a@v b>w@v c>x@v d!@w e@w f g! h>v i@x", workers);
        let expected = "a@v b@v c@v d@w e@w f?NoWorker g?NoWorker h?NoWorker i?NoWorker";
        check(&case.clone().max(1), expected);
        check(&case, expected);
    }
    check(&case("a>v b! c@w", ""), "a?NoWorker b?NoWorker c?NoWorker");
    check(&case("", "v w"), "");
    // The only worker that takes anything is dedicated.
    check(&case("a!@v b@w c", "v w="), "a@v b@w c?NoWorker");
}

#[test]
fn limits() {
    for (items, workers, max, reasons) in [
        ("a b c d e", "v w", 2, 1),
        ("a@v b@v c@v d@v", "v w", 2, 0),
        ("a@v b@v c@v d@v", "v", 2, 2),
        ("a>v b>v c>v d", "v w", 2, 1),
        ("a b! c!>v", "v w", 0, 3),
        ("a>v@v b>v@v c@v d@v", "v", 2, 2),
    ] {
        for policy in POLICIES {
            let case = case(items, workers).max(max).policy(policy);
            let reported = case.run();
            assert!(case.counts().iter().all(|count| *count <= max), "{case:?}");
            assert_eq!(reported.unassigned.len(), reasons, "{case:?}");
            assert!(reported.unassigned.iter().all(|(_, reason)| *reason == Reason::NoCapacity));
        }
    }
}

#[test]
fn who_runs_keeps_its_place_when_room_is_scarce() {
    // First the pinned item and those already there, then items without a worker, then items that
    // can stay where they are.
    assert_eq!(case("a@v b@v c d@u", "v u-").max(3).shown(), "a@v b@v c@v d@u");
    assert_eq!(case("a@v b@v c", "v").max(2).shown(), "a@v b@v c?NoCapacity");
    assert_eq!(case("a:9@u b:1", "v u-").max(1).shown(), "a@u b@v");
    check(&case("a@u b@u c d", "v u-").max(2).unbalanced(), "a@u b@u c@v d@v");
    for (items, expected) in [
        ("a>v@v b>v", "a@v b?NoCapacity"),
        ("a>v b>v@v", "a?NoCapacity b@v"),
        ("a>v@v b>v@w", "a@v b?NoCapacity"),
    ] {
        assert_eq!(case(items, "v w").max(1).shown(), expected);
    }
    let one_goes = case("a@v b@v c>v", "v").max(2);
    let outcome = one_goes.outcome();
    assert_eq!(outcome["c"], Ok("v".into()));
    assert_eq!(outcome.values().filter(|owner| owner.is_ok()).count(), 2);
    // Items above the limit of a worker that leaves leave it as well.
    assert_eq!(case("a@v b@u c@u", "v u-").max(1).run().unassigned.len(), 1);
}

#[test]
fn without_balance() {
    check(&case("a@v b@v c@v d@v", "v w").unbalanced(), "a@v b@v c@v d@v");
    check(&case("a@v b@v c@v d e", "v w").unbalanced(), "a@v b@v c@v d@w e@w");
    // Items that may not stay still move.
    check(&case("a@v b@v c@v d@u", "v w u-").unbalanced(), "a@v b@v c@v d@w");
    check(&case("a>w@v b@v c@v", "v w").unbalanced(), "a@w b@v c@v");
    check(&case("a!>v b@v c@v", "v w").unbalanced(), "a@v b@w c@w");
    check(&case("a!@v b!@w c@u", "u v w").unbalanced(), "a@v b@w c@u");
    let heavy = case("a:9@v b:9@v c:1@w d:1", "v w").unbalanced();
    assert_eq!(heavy.shown(), "a@v b@v c@w d@w");
}

/// One item moves either way: the one that may be anywhere.
#[test]
fn a_dedicated_item_stays_beside_one_that_can_leave() {
    assert_eq!(case("a!@u b@u", "u v w").outcome()["a"], Ok("u".into()));
    assert_eq!(case("a!@u b@u", "u v").shown(), "a@u b@v");
}
