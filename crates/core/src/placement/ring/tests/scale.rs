//! Fifty thousand agents: every list stays as long as among five thousand, and one agent that
//! leaves changes as few. Sizes and not times.
use super::*;

const NEIGHBORS: Neighbors = Neighbors { in_zone: 4, per_other_zone: 2 };
const ZONES: usize = 3;

const PROBERS: usize = NEIGHBORS.in_zone + (ZONES - 1) * NEIGHBORS.per_other_zone;

/// The longest list that the bound allows.
const MOST: usize = 64;

/// Returns the length of the longest list, and the number of lists that change when one leaves.
fn sizes(agents: usize) -> (usize, usize) {
    let mut all = members(agents, ZONES);
    let ring = |all: &[Member]| Ring::new(all, NEIGHBORS).bounded(Bound { most: MOST, epoch: 7 });
    let (before, rotation) = ring(&all).rotation();
    let pairs: usize = before.iter().map(Vec::len).sum();
    assert_eq!(pairs, PROBERS * agents, "pairs grow as the number of agents");
    assert_eq!(rotation.epochs, 1, "no list reaches the bound");
    // One that is asked alone gets the list that it has among all.
    assert_eq!(ring(&all).peers_at(agents / 2), before[agents / 2]);

    all.pop();
    let after = ring(&all).peers();
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    (rotation.wanted, changed)
}

#[test]
fn fifty_thousand_agents_have_lists_as_long_as_five_thousand() {
    let [small, large] = [5_000, 50_000].map(sizes);
    println!("longest list, and lists that change with one agent: {small:?} and {large:?}");
    // Lists are random around the mean: the longest grows as a logarithm.
    assert!(large.0 <= small.0 + PROBERS, "{small:?} and {large:?}");
    // Those who probed it, and for each of its targets one who now does.
    let most = PROBERS + small.0.max(large.0);
    assert!(small.1 <= most && large.1 <= most, "{small:?} and {large:?}, at most {most}");
}
