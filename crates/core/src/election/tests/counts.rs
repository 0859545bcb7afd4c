//! Number of reflectors.
use super::{super::rules::Nodes, *};

fn count(min: usize, max: usize, ratio: &str) -> Count {
    Count { min, max, ratio: ratio.parse().unwrap(), ..rules().count }
}

#[test]
fn the_originals_numbers() {
    let ten = [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (600, 3),
        (601, 4),
        (800, 4),
        (801, 5),
        (1000, 5),
        (1200, 6),
        (1400, 7),
        (1800, 9),
        (1801, 10),
        (5000, 10),
    ];
    for (nodes, expected) in ten {
        assert_eq!(count(3, 10, "0.005").of(nodes), expected, "{nodes} nodes");
    }
    // The table of its proposal.
    for (nodes, expected) in [(200, 3), (1000, 5), (5000, 25)] {
        assert_eq!(count(3, 25, "0.005").of(nodes), expected, "{nodes} nodes");
    }
}

/// 0.05 as a 32-bit number is a little more than 0.05.
#[test]
fn exact_multiples_are_not_one_too_many() {
    for (ratio, per) in [("0.05", 20), ("0.025", 40), ("0.002", 500), ("0.001", 1000), ("0.3", 10)]
    {
        let share = if ratio == "0.3" { 3 } else { 1 };
        for times in 1..=5000 / per {
            let count = count(1, 5000, ratio);
            assert_eq!(count.of(times * per), times * share, "{ratio} of {}", times * per);
            assert_eq!(count.of(times * per + 1), times * share + 1, "{ratio}");
        }
    }
    assert_eq!(count(3, 50, "0.05").of(100), 5);
    assert_eq!(count(3, 50, "0.001").of(5000), 5);
}

#[test]
fn a_fraction_is_rounded_as_the_spec_says() {
    use Rounding::{Ceil, Floor, Round};
    for (nodes, rounding, expected) in [
        (500, Ceil, 3),
        (500, Floor, 2),
        (500, Round, 3),
        (499, Ceil, 3),
        (499, Round, 2),
        (600, Ceil, 3),
        (600, Floor, 3),
        (600, Round, 3),
        (799, Floor, 3),
    ] {
        let count = Count { rounding, ..count(1, 50, "0.005") };
        assert_eq!(count.of(nodes), expected, "{nodes} {rounding:?}");
    }
}

/// The table of the original's proposal, in any order.
#[test]
fn a_table_in_place_of_the_ratio() {
    let count = Count { steps: vec![(1000, 5), (200, 3), (5000, 25)], ..count(2, 20, "1") };
    for (nodes, expected) in
        [(0, 0), (1, 1), (2, 2), (3, 3), (200, 3), (201, 5), (1000, 5), (1001, 20), (9000, 20)]
    {
        assert_eq!(count.of(nodes), expected, "{nodes} nodes");
    }
}

#[test]
fn which_texts_are_ratios() {
    let tiny = "0.000000000000000001";
    for (text, shown) in [
        ("0.005", "0.005"),
        (".5", "0.5"),
        ("1", "1"),
        ("1.", "1"),
        ("1.00", "1"),
        ("0.0500", "0.05"),
        (tiny, tiny),
    ] {
        assert_eq!(text.parse::<Ratio>().unwrap().to_string(), shown, "{text}");
    }
    for text in [
        "",
        ".",
        "0",
        "0.",
        "0.0",
        "-0.1",
        "+0.1",
        "2",
        "1.1",
        "10",
        "01",
        "00.5",
        "0,5",
        "1e-3",
        "0.5.1",
        "abc",
        "0.x",
        "NaN",
        "inf",
        " 0.5",
        "½",
        "0.00000000000000000001",
    ] {
        assert!(text.parse::<Ratio>().is_err(), "{text:?}");
    }
    assert_eq!(tiny.parse::<Ratio>().unwrap().of(usize::MAX, Rounding::Ceil), 19);
}

/// Half of the nodes are not ready: the existing reflectors stay, in both directions.
#[test]
fn nodes_that_are_not_ready_add_none_and_take_none() {
    let nodes = |ready, usable| Nodes { all: 1000, ready, suitable: 1000, usable };
    for (now, ready, usable, expected) in [
        (10, 1000, 1000, 10),
        (10, 500, 500, 10),
        (7, 500, 500, 7),
        (0, 500, 500, 5),
        (12, 500, 500, 10),
        (3, 1000, 4, 4),
        (10, 2, 0, 10),
        (0, 0, 0, 0),
    ] {
        let desired = count(3, 25, "0.01").desired(now, &nodes(ready, usable));
        assert_eq!(desired, expected, "now {now}, {ready} ready, {usable} usable");
    }
    // Nodes that are gone do reduce the number.
    let nodes = Nodes { all: 500, ready: 500, suitable: 500, usable: 500 };
    assert_eq!(count(3, 25, "0.01").desired(10, &nodes), 5);
}
