//! Balance and movement if items have different weights.
use super::*;

impl Case {
    fn loads(&self) -> Vec<u64> {
        let mut loads = vec![0; self.workers.len()];
        for (thing, owner) in self.items.iter().zip(self.run().owners) {
            if let Some(worker) = owner {
                loads[worker] += thing.weight;
            }
        }
        loads
    }

    fn sorted_loads(&self) -> Vec<u64> {
        let mut loads = self.loads();
        loads.sort_unstable();
        loads
    }
}

fn varied(items: usize, workers: usize) -> Case {
    let mut case = Case::new(items, workers);
    for (place, thing) in case.items.iter_mut().enumerate() {
        thing.weight = 1 + place as u64 * 7 % 9;
    }
    case
}

#[test]
fn the_heaviest_first_to_the_least_loaded() {
    for (items, workers, expected) in [
        ("a:7 b:5 c:4 d:3 e:1", "v w", &[10, 10][..]),
        ("a:100 b:1 c:1 d:1 e:1", "v w", &[4, 100]),
        ("a:9 b:9 c:1", "u v w", &[1, 9, 9]),
        ("a:5 b:4 c:3 d:2 e:1", "u v w", &[5, 5, 5]),
        ("a:2 b:1", "u v w", &[0, 1, 2]),
        // With pins and limits.
        ("a:9>v b:5 c:4", "v w", &[9, 9]),
        ("a:5>v b:6>v c:2 d:2", "v w", &[4, 11]),
    ] {
        assert_eq!(case(items, workers).sorted_loads(), expected, "{items} on {workers}");
    }
    assert_eq!(case("a:9 b:1 c:1 d:1", "v w").max(2).sorted_loads(), [2, 10]);
}

#[test]
fn nothing_moves_within_the_bound() {
    // They differ by exactly the heaviest.
    let case = case("a:5@v b:4@v c:4@w", "v w");
    assert_eq!(case.shown(), "a@v b@v c@w");
}

#[test]
fn the_move_that_brings_two_closest_together() {
    for (items, expected) in [
        // 12 and 0: six is half.
        ("a:6@v b:5@v c:1@v", "a@w b@v c@v"),
        // 13 and 0: four leaves 9 and 4, seven 6 and 7.
        ("a:7@v b:4@v c:2@v", "a@w b@v c@v"),
        // 16 and 1: by one below.
        ("a:7@v b:6@v c:3@v d:1@w", "a@w b@v c@v d@w"),
        // The pinned one stays.
        ("a:6>v@v b:5@v c:1@v", "a@v b@w c@v"),
    ] {
        assert_eq!(case(items, "v w").shown(), expected, "{items}");
    }
}

/// One worker with many light items and one with a few heavy ones: only an exchange would help, and
/// there is none.
#[test]
fn a_worker_at_its_limit_takes_nothing() {
    let full = case("a:9@v b:9@v c:1@w d:1@w", "v w").max(2);
    assert_eq!(full.shown(), "a@v b@v c@w d@w");
    // It is at its limit after the first item.
    let one = case("a:5@v b:5@v c:5@v d:5@v e:1@w f:1@w g:1@w", "v w").max(4);
    assert_eq!(one.counts(), [3, 4]);
}

#[test]
fn few_move_when_a_worker_comes_or_goes() {
    let mut case = varied(1000, 10);
    case.step();
    let loads = case.sorted_loads();
    assert!(loads[9] - loads[0] <= 1, "{loads:?}");
    let mut more = case.clone();
    more.scale(11);
    // A share is 454, and the heaviest item weighs nine: 51 is the minimum number of moves to come
    // within nine.
    let moves = more.step();
    let loads = more.sorted_loads();
    assert!(loads[10] - loads[0] <= 9, "{loads:?}");
    assert!((50..=52).contains(&moves), "{moves} moves");
    assert_eq!(more.step(), 0);

    // Only its own items move, because the rest is even.
    case.workers[3].1 = Standing::Leaving;
    let had = case.items.iter().filter(|t| t.owner.as_deref() == Some("swarm-worker-3")).count();
    assert_eq!(case.step(), had);
    assert_eq!(case.step(), 0);
}

/// Each of its prefixes improves the balance: with a budget it reaches the same result, no matter
/// how small.
#[test]
fn a_budget_only_delays() {
    let mut case = varied(200, 4);
    case.step();
    case.scale(5);
    let mut fast = case.clone();
    let moves = fast.step();
    case.rules.max_moves = Some(1);
    let spread = |case: &Case| {
        let mut case = case.clone();
        case.rules.balance = false;
        let loads = case.sorted_loads();
        loads[4] - loads[0]
    };
    for _ in 0..moves {
        let before = spread(&case);
        assert_eq!(case.step(), 1);
        assert!(spread(&case) <= before);
    }
    assert_eq!(case.step(), 0);
    assert_eq!(case.outcome(), fast.outcome());
}

/// The most loaded worker gives first.
#[test]
fn a_budget_is_spent_where_it_helps_most() {
    // 60, 44 and 0.
    let mut case = Case::new(21, 3).budget(1);
    for (place, thing) in case.items.iter_mut().enumerate() {
        thing.weight = if place == 20 { 4 } else { 5 };
        thing.owner = Some(if place < 12 { "swarm-worker-0" } else { "swarm-worker-1" }.into());
    }
    let mut givers = Vec::new();
    loop {
        let before = case.clone();
        if case.step() == 0 {
            break;
        }
        let pairs = before.items.iter().zip(&case.items);
        let moved = pairs.filter(|(old, new)| old.owner != new.owner);
        givers.extend(moved.map(|(old, _)| old.owner.clone().unwrap()));
    }
    let givers: Vec<_> = givers.iter().map(|id| id.trim_start_matches("swarm-worker-")).collect();
    assert_eq!(givers, ["0", "0", "0", "0", "1", "0", "1"]);
}

#[test]
fn the_heaviest_weights_there_are() {
    let max = u64::MAX;
    let mut case = case(&format!("a:{max}@v b:{max}@v c:{max}@v d:1@v e:0@v"), "v w");
    case.step();
    let owners: Vec<_> = case.items.iter().map(|thing| thing.owner.clone().unwrap()).collect();
    let heavy = owners[..3].iter().filter(|owner| *owner == "w").count();
    assert!((1..=2).contains(&heavy));
    assert_eq!(case.step(), 0);
}

/// Twelve and zero: five leaves 7 and 5, and so does seven.
#[test]
fn of_two_that_are_equally_good_the_lighter_one_moves() {
    assert_eq!(case("a:7@v b:5@v", "v w").shown(), "a@v b@w");
}

/// It neither raises the difference that is allowed nor ends the balance of the other workers.
#[test]
fn a_heavy_item_that_is_bound_to_its_worker_keeps_no_other_from_moving() {
    let items = "p:100>a@a a1:10@a b1:10@b b2:10@b b3:10@b b4:10@b b5:10@b";
    let case = case(items, "a b c");
    let loads = case.loads();
    assert_eq!(loads, [100, 30, 30], "{}", case.shown());
}
