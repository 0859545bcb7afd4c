//! Budgets of moves: which moves come first, and which wait, as tables.
use super::{rules::check, *};

#[test]
fn no_move_at_all() {
    let held = case("a@v b@v c@v d>w@v e>x@v f", "v w u-").budget(0);
    assert_eq!(held.shown(), "a@v b@v c@v d@v e@v f@w");
    check(&case("a@u b@u", "v w u-").budget(0), "a@u b@u");
    check(&case("a>v@u b>w@v c>u@w", "u v w").max(1).budget(0), "a@u b@v c@w");
    assert_eq!(case("a!@v b@v c", "v w").budget(0).shown(), "a@v b@v c@w");
    // They block each other.
    check(&case("a!>v b@v", "v w").budget(0), "a?NoDedicatedWorker b@v");
    check(&case("a>v b@v c", "v w").budget(0).max(1), "a?NoCapacity b@v c?NoCapacity");
    // A place reserved for one item is not given to another, but no item waits if there is more
    // room.
    check(&case("a>v b@v c", "v w").budget(0).max(2), "a@v b@v c@w");
    check(&case("a>w@v b@v c>v d", "v w").budget(0).max(2), "a@v b@v c?NoCapacity d@w");
}

/// Counts the units of each of these workers after each step, until nothing moves.
fn counts(mut case: Case, workers: [&str; 3]) -> Vec<[usize; 3]> {
    let mut shares = Vec::new();
    while case.step() > 0 {
        let on = |id: &str| case.items.iter().filter(|t| t.owner.as_deref() == Some(id)).count();
        shares.push(workers.map(on));
    }
    shares
}

/// Returns the same with other ids: the order of hashes, which decides among equals, must not
/// affect the test.
fn renamed(case: &Case) -> impl Iterator<Item = Case> {
    (0..8).map(|variant| {
        let mut case = case.clone();
        for thing in &mut case.items {
            thing.id = format!("{}{variant}", thing.id);
        }
        case
    })
}

#[test]
fn a_budget_is_spent_on_rules_then_on_leaving_workers_then_on_balance() {
    for (case, expected) in [
        // A pin.
        (
            case("a@v b@v c@v d@v e@v f@v g>w@v h@u i@u", "v w u-"),
            vec![[6, 1, 2], [6, 2, 1], [6, 3, 0], [5, 4, 0]],
        ),
        // A limit.
        (case("a@v b@v c@v d@v e@u f@u", "v w u-").max(3), vec![[3, 1, 2], [3, 2, 1], [3, 3, 0]]),
    ] {
        for case in renamed(&case) {
            assert_eq!(counts(case.budget(1), ["v", "w", "u"]), expected);
        }
    }
}

/// The worker is emptied for it first, even if balance would require other moves.
#[test]
fn a_dedicated_item_waits_no_longer_than_it_must() {
    let items = "a! b@u c@u d@w e@w f@w g@v h@v i@v j@v k@v l@v m@v n@v o@v p@v";
    for mut case in renamed(&case(items, "u v w").budget(1)) {
        assert_eq!((case.step(), case.items[0].owner.as_deref()), (1, None));
        assert_eq!((case.step(), case.items[0].owner.as_deref()), (1, Some("u")));
    }
    // It moves itself, because that is one move and not two.
    let items = "a!@w b@w c@w d@v e@v f@v g@v h@v i@v j@v";
    for mut case in renamed(&case(items, "u v w x").budget(1)) {
        assert_eq!(case.step(), 1);
        assert_ne!(case.items[0].owner.as_deref(), Some("w"));
    }
}

/// No item moves to the worker of a dedicated item, and all items that wait for this worker move
/// once it is gone.
#[test]
fn when_a_dedicated_item_goes_all_can_come() {
    let items = "a!>w@u b>u c>u d>u e@v f@v g@v h@v i@v j@v";
    let outcome = case(items, "u v w").budget(1).outcome();
    for (id, worker) in [("a", "w"), ("b", "u"), ("c", "u"), ("d", "u")] {
        assert_eq!(outcome[id].as_deref(), Ok(worker));
    }
}

/// A dedicated item gets the same worker until that is empty, and no other item moves there in the
/// meantime.
#[test]
fn a_worker_is_emptied_for_a_dedicated_item_within_the_budget() {
    let mut case = case("a! b@u c@u d@u e@v f@v g@v h@w i@w j@w", "u v w").budget(1);
    for left in [2, 1] {
        assert_eq!(case.step(), 1);
        let on = |id: &str| case.items.iter().filter(|t| t.owner.as_deref() == Some(id)).count();
        assert_eq!(["u", "v", "w"].map(on).into_iter().min(), Some(left));
        assert_eq!(case.items[0].owner, None);
    }
    assert_eq!(case.step(), 1);
    assert_eq!(case.step(), 0);
    let own = case.items[0].owner.clone().unwrap();
    assert_eq!(case.items.iter().filter(|thing| thing.owner.as_ref() == Some(&own)).count(), 1);
}

/// Each item takes the place of the next, and no worker has room: the first to move would be one
/// too many.
#[test]
fn a_circle_is_opened_by_one_that_waits_for_a_round() {
    let circle = "a>v@u b>w@v c>u@w";
    assert_eq!(case(circle, "u v w").max(1).shown(), "a@v b@w c@u");
    for (case, expected) in [
        (case(circle, "u v w").max(1).budget(1), "a@v b@w c@u"),
        (case("a!>v@u b!>u@v", "u v").budget(1), "a@v b@u"),
    ] {
        let mut case = case;
        let mut waited = 0;
        for _ in 0..4 {
            assert!(case.step() <= 1);
            waited += case.items.iter().filter(|thing| thing.owner.is_none()).count();
        }
        assert_eq!(case.shown(), expected);
        assert_eq!(waited, case.items.len() - 1, "rounds in which an item runs nowhere");
    }
}

#[test]
fn a_circle_that_fits_into_the_budget_goes_round_at_once() {
    let mut two = case("a!>v@u b!>u@v c!>x@w d!>w@x", "u v w x").budget(2);
    assert_eq!(two.step(), 2);
    assert!(two.items.iter().all(|thing| thing.owner.is_some()));
    assert_eq!((two.step(), two.step()), (2, 0));
    assert_eq!(two.shown(), "a@v b@u c@x d@w");
}

#[test]
fn who_opens_a_circle_goes_where_there_is_room() {
    let mut case = case("a@w b@v", "v w x").policy(Policy::Contiguous).max(1).budget(1);
    for expected in [1, 1, 1, 0] {
        assert_eq!(case.step(), expected);
        assert!(case.items.iter().all(|thing| thing.owner.is_some()));
    }
    assert_eq!(case.shown(), "a@v b@w");
}

#[test]
fn circles_that_need_exactly_the_budget_go_round_at_once() {
    let mut two = case("a!>v@u b!>u@v c!>x@w d!>w@x", "u v w x").budget(4);
    assert_eq!((two.step(), two.step()), (4, 0));
    assert_eq!(two.shown(), "a@v b@u c@x d@w");
}

/// It is at its limit, and not above it.
#[test]
fn a_worker_that_leaves_is_emptied_before_a_full_one_is_relieved() {
    for case in renamed(&case("a@v b@v c@v d@v e@u f@u", "v w u-").max(4)) {
        let expected = [[4, 1, 1], [4, 2, 0], [3, 3, 0]];
        assert_eq!(counts(case.budget(1), ["v", "w", "u"]), expected);
    }
}
