//! Both sides of every rule, and what holds for any numbers.
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Units of 1 Mbit/s, in steps of 5 %.
fn terms() -> Terms {
    Terms {
        resource: "example.com/mbps".into(),
        unit: 1e6,
        reserve: 0.1,
        step: 0.05,
        settle: Duration::from_secs(210),
    }
}

/// Loads in Mbit/s, of a node with a limit of 1 Gbit/s: a step is 50.
fn measured(measured: u32) -> Load {
    Load::Measured { limit: 1e9, measured: f64::from(measured) * 1e6 }
}

fn node(load: Load, requested: u64, offered: Option<u64>) -> Standing {
    Standing { load, requested, offer: offered.map(Offer::of), settled: true }
}

fn amount(load: Load, requested: u64, offered: Option<u64>) -> Option<u64> {
    terms().amount(&node(load, requested, offered))
}

#[test]
fn a_node_offers_its_limit_without_the_load_that_nobody_declared() {
    for (load, requested, expected) in [
        (0, 0, 1000),
        (300, 0, 700),
        // The pods use what they requested, or less.
        (200, 200, 1000),
        (50, 200, 1000),
        // They use it, and something else uses 300.
        (500, 200, 700),
        // More than everything is used: what is requested stays.
        (1500, 200, 200),
        (1500, 0, 0),
        (0, 1200, 1200),
    ] {
        assert_eq!(amount(measured(load), requested, None), Some(expected), "{load} {requested}");
    }
}

#[test]
fn numbers_that_are_not_exact_lose_no_unit() {
    // 0.6 * 0.9 of 1 Gbit/s is 539.9999999999999 Mbit/s.
    let load = Load::Measured { limit: 1e9 * 0.6 * 0.9, measured: 0.0 };
    assert_eq!(amount(load, 0, None), Some(540));
}

#[test]
fn a_change_below_a_step_is_none_and_a_step_is_one() {
    // Offered are 700; a step is 50.
    for (load, expected) in [(300, 700), (251, 700), (250, 750), (349, 700), (350, 650)] {
        assert_eq!(amount(measured(load), 0, Some(700)), Some(expected), "{load}");
    }
}

#[test]
fn no_load_swings_around_a_border() {
    // 49 above, 49 below, for ever: what was offered first stays.
    let mut offered = None;
    let mut writes = 0;
    for turn in 0..100 {
        let load = if turn % 2 == 0 { 300 } else { 349 };
        let next = amount(measured(load), 0, offered);
        writes += usize::from(next != offered);
        offered = next;
    }
    assert_eq!((offered, writes), (Some(700), 1));
}

#[test]
fn without_evidence_the_last_amount_stands() {
    assert_eq!(amount(Load::Unknown, 0, Some(700)), Some(700));
    assert_eq!(amount(Load::Unknown, 200, Some(700)), Some(700));
    assert_eq!(amount(Load::Unknown, 0, Some(0)), Some(0));
    assert_eq!(amount(Load::Unknown, 0, None), None, "it offered nothing");
    // Not even then less than what is requested.
    assert_eq!(amount(Load::Unknown, 200, None), Some(200));
    assert_eq!(amount(Load::Unknown, 200, Some(0)), Some(200), "zeroed by a new kubelet");
}

#[test]
fn an_unfit_node_offers_what_is_requested_and_no_more() {
    for offered in [None, Some(0), Some(210), Some(700)] {
        assert_eq!(amount(Load::Unfit, 200, offered), Some(200));
        assert_eq!(amount(Load::Unfit, 0, offered), Some(0));
    }
}

#[test]
fn what_is_requested_is_offered_whatever_the_step() {
    // 20 units are less than a step.
    assert_eq!(amount(measured(990), 120, Some(100)), Some(130));
    assert_eq!(amount(measured(1500), 120, Some(100)), Some(120));
}

/// A pod that has just come sends nothing yet: its request hides 400 Mbit/s of foreign load.
#[test]
fn requests_that_rose_do_not_free_what_others_use() {
    let offered = amount(measured(600), 0, None);
    assert_eq!(offered, Some(400));
    let placed = Standing { settled: false, ..node(measured(600), 400, offered) };
    assert_eq!(terms().amount(&placed), Some(400), "no room for another pod");
    // It sends now.
    let sends = Standing { load: measured(1000), ..placed };
    assert_eq!(terms().amount(&sends), Some(400));
    // Meanwhile the amount may shrink, and follows the requests.
    let busier = Standing { load: measured(1300), requested: 300, ..placed };
    assert_eq!(terms().amount(&busier), Some(300));
    let more = Standing { requested: 450, ..placed };
    assert_eq!(terms().amount(&more), Some(450));
    // The foreign load has ended, and the measurement shows it.
    let settled = Standing { load: measured(400), settled: true, ..placed };
    assert_eq!(terms().amount(&settled), Some(1000));
    // A node that offers nothing yet offers no more than what is requested.
    assert_eq!(terms().amount(&Standing { offer: None, ..placed }), Some(400));
}

#[test]
fn a_node_is_over_until_a_step_is_free_again() {
    let is_over = |load: u32, requested, already| {
        terms().is_over(1e9, f64::from(load) * 1e6, requested, already)
    };
    assert!(!is_over(1000, 200, false) && is_over(1001, 200, false));
    assert!(is_over(951, 200, true) && !is_over(950, 200, true));
    assert!(is_over(0, 1001, false), "requested before the limit shrank");
    assert!(!is_over(2000, 0, false), "nothing is promised");
}

fn load() -> impl Strategy<Value = Load> {
    prop_oneof![
        1 => Just(Load::Unfit),
        1 => Just(Load::Unknown),
        6 => (0.0..1e11_f64, 0.0..2e11_f64)
            .prop_map(|(limit, measured)| Load::Measured { limit, measured }),
    ]
}

fn standing() -> impl Strategy<Value = Standing> {
    let offer =
        prop::option::of((prop::option::of(0..200_000_u64), prop::option::of(0..200_000_u64)));
    (load(), 0..200_000_u64, offer, any::<bool>()).prop_map(|(load, requested, offer, settled)| {
        let offer = offer.map(|(capacity, allocatable)| Offer { capacity, allocatable });
        Standing { load, requested, offer, settled }
    })
}

proptest! {
    #[test]
    fn never_less_than_requested_and_never_without_evidence(node in standing()) {
        let amount = terms().amount(&node);
        prop_assert!(amount.unwrap_or_default() >= node.requested, "{amount:?}");
        let offered = node.offer.map(Offer::amount);
        match node.load {
            Load::Unknown if offered.unwrap_or_default() >= node.requested => {
                prop_assert_eq!(amount, offered.or(amount.filter(|amount| *amount > 0)));
            }
            Load::Unknown | Load::Unfit => prop_assert_eq!(amount, Some(node.requested)),
            Load::Measured { limit, .. } => {
                let amount = amount.unwrap();
                let most = whole(limit / 1e6 + ROUNDING).max(node.requested);
                prop_assert!(amount <= most.max(offered.unwrap_or_default()), "{amount}");
            }
        }
    }

    /// Nothing is written twice: the next pass wants what is written.
    #[test]
    fn the_same_facts_write_once(node in standing()) {
        let first = terms().amount(&node);
        let again = Standing { offer: first.map(Offer::of), ..node };
        prop_assert_eq!(terms().amount(&again), first);
    }

    /// A load within a band narrower than a step, in any order, writes at most once.
    #[test]
    fn a_wobble_writes_at_most_once(
        base in 0..900_u32, wobble in prop::collection::vec(0..50_u32, 1..50),
    ) {
        let (mut offered, mut writes) = (amount(measured(base), 0, None), 0);
        for more in wobble {
            let next = amount(measured(base + more), 0, offered);
            writes += usize::from(next != offered);
            offered = next;
        }
        prop_assert_eq!(writes, 0);
    }

    /// More foreign load never makes a node offer more.
    #[test]
    fn foreign_load_only_shrinks(node in standing(), more in 0.0..1e11_f64) {
        let Load::Measured { limit, measured } = node.load else { return Ok(()) };
        let busier = Standing { load: Load::Measured { limit, measured: measured + more }, ..node };
        prop_assert!(terms().amount(&busier) <= terms().amount(&node));
    }
}
