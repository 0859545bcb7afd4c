//! The breaker, table by table.
use proptest::prelude::*;

use super::*;

const DEFAULT: Limits = Limits { max_unfit: Share::Percent(50), min_fit: Share::Nodes(1) };

fn limits(max_unfit: Share, min_fit: Share) -> Limits {
    Limits { max_unfit, min_fit }
}

fn candidate(name: &str, marked: Option<bool>, severity: f64) -> Candidate<'_> {
    Candidate {
        name,
        judged: Some(true),
        marked,
        severity: Some(severity),
        recovering: false,
        takes_pods: true,
        blind: false,
        open: true,
        counted: marked == Some(true),
        stuck: false,
    }
}

fn calm(name: &str) -> Candidate<'_> {
    Candidate { judged: Some(false), severity: None, ..candidate(name, None, 0.0) }
}

fn blind(name: &str, marked: bool) -> Candidate<'_> {
    Candidate { blind: true, severity: None, ..candidate(name, Some(marked), 0.0) }
}

fn away(node: Candidate<'_>) -> Candidate<'_> {
    Candidate { takes_pods: false, open: false, ..node }
}

/// The names of the nodes that are marked.
fn marked<'a>(nodes: &[Candidate<'a>], limits: &Limits) -> Vec<&'a str> {
    let marks = mark(nodes, limits, Headroom::UNLIMITED).marks;
    let marked = nodes.iter().zip(marks).filter(|(_, mark)| *mark == Some(true));
    marked.map(|(node, _)| node.name).collect()
}

fn how_many(limits: Limits, nodes: usize) -> usize {
    let names: Vec<_> = (0..nodes).map(|i| format!("n{i}")).collect();
    let nodes: Vec<_> = names.iter().map(|name| candidate(name, None, 2.0)).collect();
    let result = mark(&nodes, &limits, Headroom::UNLIMITED);
    let count = result.marks.iter().filter(|mark| **mark == Some(true)).count();
    assert_eq!(result.limit.min(nodes.len()), count);
    count
}

/// Its verdict is an old one, and a mark would go after the next judgments.
#[test]
fn a_node_that_is_about_to_recover_gets_no_new_mark_and_keeps_the_one_it_has() {
    let recovers = |marked| Candidate { recovering: true, ..candidate("a", marked, 0.8) };
    let others = [candidate("b", Some(false), 0.7), calm("c"), calm("d")];
    let with = |first| [&[first][..], &others].concat();
    let one = limits(Share::Nodes(1), Share::Nodes(1));
    assert_eq!(marked(&with(recovers(Some(false))), &one), ["b"]);
    assert_eq!(marked(&with(recovers(None)), &one), ["b"]);
    assert_eq!(marked(&with(recovers(Some(true))), &one), ["a"]);
}

/// Otherwise more nodes have the label than may, for as long as the write fails.
#[test]
fn a_label_that_could_not_be_removed_takes_a_place() {
    let released = Candidate { stuck: true, ..calm("a") };
    let nodes = [released, candidate("b", Some(false), 2.0), calm("c")];
    assert!(marked(&nodes, &DEFAULT).is_empty());
    let nodes = [calm("a"), nodes[1], nodes[2]];
    assert_eq!(marked(&nodes, &DEFAULT), ["b"]);
    // The floor counts them as well.
    let floor = limits(Share::Percent(100), Share::Nodes(2));
    assert!(marked(&[released, nodes[1], nodes[2]], &floor).is_empty());
}

#[test]
fn half_of_the_nodes_at_most_and_one_stays() {
    for (nodes, expected) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (5000, 2500)] {
        assert_eq!(how_many(DEFAULT, nodes), expected, "{nodes} nodes");
    }
}

#[test]
fn ceiling_and_floor_hold_together() {
    use Share::{Nodes, Percent};
    for (max_unfit, min_fit, nodes, expected) in [
        // A single node is never marked, unless the author allows that none stays.
        (Percent(50), Nodes(0), 1, 1),
        (Percent(100), Nodes(1), 1, 0),
        (Percent(100), Nodes(0), 7, 7),
        (Percent(34), Nodes(1), 3, 1),
        (Percent(1), Nodes(1), 3, 1),
        (Percent(0), Nodes(0), 3, 0),
        (Nodes(2), Nodes(1), 10, 2),
        (Nodes(9), Nodes(3), 10, 7),
        (Percent(100), Percent(34), 3, 1),
        (Nodes(5), Nodes(20), 10, 0),
    ] {
        let limits = limits(max_unfit, min_fit);
        assert_eq!(how_many(limits, nodes), expected, "{limits:?} of {nodes}");
    }
}

#[test]
fn the_worst_are_marked_first_and_a_marked_node_stays_so() {
    let nodes = [
        candidate("a", None, 70.0),
        candidate("b", None, 90.0),
        candidate("c", Some(true), 65.0),
        calm("d"),
    ];
    assert_eq!(marked(&nodes, &DEFAULT), ["b", "c"]);
    // Ties go by name.
    let nodes = [candidate("b", None, 70.0), candidate("a", None, 70.0)];
    assert_eq!(marked(&nodes, &DEFAULT), ["a"]);
}

#[test]
fn a_node_without_evidence_is_not_marked() {
    let never = Candidate { judged: None, marked: None, ..blind("c", false) };
    let nodes = [blind("a", false), candidate("b", Some(false), 61.0), never];
    let marks = mark(&nodes, &DEFAULT, Headroom::UNLIMITED).marks;
    assert_eq!(marks, [Some(false), Some(true), None]);
}

/// Three control planes that are calm and closed, three workers that are busy.
#[test]
fn nodes_that_can_take_no_pod_are_no_room() {
    let nodes = [
        away(calm("cp1")),
        away(calm("cp2")),
        away(calm("cp3")),
        candidate("w1", None, 1.3),
        candidate("w2", None, 1.4),
        candidate("w3", None, 1.2),
    ];
    assert_eq!(marked(&nodes, &DEFAULT), ["w2"]);
    let result = mark(&nodes, &DEFAULT, Headroom::UNLIMITED);
    assert_eq!((result.limit, result.room), (1, 3));
}

#[test]
fn a_node_that_can_take_no_pod_is_marked_within_the_share_of_all() {
    let nodes = [away(candidate("cp", None, 9.0)), candidate("w1", None, 2.0), calm("w2")];
    assert_eq!(marked(&nodes, &DEFAULT), ["cp", "w1"]);
    // When none is Ready, still at most half of them is marked.
    let nodes = ["a", "b", "c", "d"].map(|name| away(candidate(name, None, 2.0)));
    assert_eq!(marked(&nodes, &DEFAULT), ["a", "b"]);
}

#[test]
fn the_least_severe_marks_go_while_the_floor_is_violated() {
    // The only fit node was deleted, or is cordoned now.
    assert!(marked(&[candidate("a", Some(true), 9.0)], &DEFAULT).is_empty());
    let nodes = [
        candidate("a", Some(true), 3.0),
        candidate("b", Some(true), 2.0),
        candidate("c", Some(true), 4.0),
        away(calm("d")),
    ];
    assert_eq!(marked(&nodes, &DEFAULT), ["a", "c"]);
    assert_eq!(marked(&nodes, &limits(DEFAULT.max_unfit, Share::Nodes(2))), ["c"]);
    assert!(marked(&nodes, &limits(DEFAULT.max_unfit, Share::Percent(100))).is_empty());
    // A mark without evidence is removed last.
    let nodes = [blind("a", true), candidate("b", Some(true), 9.0)];
    assert_eq!(marked(&nodes, &DEFAULT), ["a"]);
    assert!(marked(&[blind("a", true)], &DEFAULT).is_empty());
}

#[test]
fn a_ceiling_that_shrinks_releases_nothing_but_one_of_zero_everything() {
    let nodes = [
        candidate("a", Some(true), 3.0),
        candidate("b", Some(true), 2.0),
        blind("c", true),
        away(candidate("d", Some(true), 2.0)),
        calm("e"),
    ];
    let one = limits(Share::Nodes(1), Share::Nodes(1));
    assert_eq!(marked(&nodes, &one), ["a", "b", "c", "d"]);
    for zero in [Share::Nodes(0), Share::Percent(0)] {
        assert!(marked(&nodes, &limits(zero, Share::Nodes(1))).is_empty());
    }
}

#[test]
fn marks_of_unknown_and_not_ready_nodes_take_no_place() {
    let live = candidate("live", Some(false), 1.5);
    for held in [blind("held", true), away(candidate("held", Some(true), 2.0))] {
        let nodes = [held, live, calm("x")];
        assert_eq!(marked(&nodes, &DEFAULT), ["held", "live"], "{held:?}");
        // But the floor counts nodes that really are unmarked.
        assert_eq!(marked(&[held, live], &DEFAULT), ["held"], "{held:?}");
    }
}

#[test]
fn the_operators_ceiling_holds_over_all_objects() {
    let nodes = [
        candidate("a", None, 4.0),
        candidate("b", None, 3.0),
        // Another object marks it already: one more mark closes no further node.
        Candidate { counted: true, ..candidate("c", None, 2.0) },
        calm("d"),
    ];
    let wide = limits(Share::Percent(100), Share::Nodes(0));
    let headroom = |open| Headroom { open, all: 0, none: false, owed: None };
    let result = mark(&nodes, &wide, headroom(1));
    assert_eq!(result.marks, [Some(true), Some(false), Some(true), Some(false)]);
    assert_eq!(result.above_ceiling, [1]);
    assert_eq!(mark(&nodes, &wide, headroom(2)).above_ceiling, [0; 0]);
    // Existing marks survive it, unless it is zero.
    let there = [candidate("a", Some(true), 4.0), calm("b")];
    assert_eq!(mark(&there, &wide, headroom(0)).marks[0], Some(true));
    let none = Headroom { none: true, ..headroom(0) };
    let result = mark(&there, &wide, none);
    assert_eq!((result.marks[0], &*result.above_ceiling), (Some(false), &[0][..]));
}

#[test]
fn marks_that_others_wait_for_are_given_back_the_least_severe_first() {
    let nodes = [
        candidate("a", Some(true), 4.0),
        candidate("b", Some(true), 2.0),
        Candidate { blind: true, severity: None, ..candidate("c", Some(true), 0.0) },
        away(candidate("d", Some(true), 1.5)),
        // Another object marks it.
        Candidate { counted: true, ..candidate("e", None, 9.0) },
        candidate("f", None, 3.0),
    ];
    let wide = limits(Share::Percent(100), Share::Nodes(0));
    let owing = |take, open, all| {
        let owed = Some(Owed { open, all });
        let result = mark(&nodes, &wide, Headroom { open: take, all: take, none: false, owed });
        let marked = result.marks.iter().zip(&nodes).filter(|(mark, _)| **mark == Some(true));
        marked.map(|(_, node)| node.name).collect::<String>()
    };
    assert_eq!(owing(0, 0, 0), "abcd", "it takes none");
    assert_eq!(owing(1, 0, 0), "abcde", "and pays for each");
    assert_eq!(owing(0, 1, 1), "acd");
    assert_eq!(owing(0, 0, 1), "abc", "a closed node takes a place of all");
    assert_eq!(owing(0, 2, 3), "c");
    assert_eq!(owing(0, 9, 9), "");
}

#[test]
fn a_share_is_a_number_or_a_percentage() {
    for (text, share) in
        [("0", Share::Nodes(0)), ("7", Share::Nodes(7)), ("50%", Share::Percent(50))]
    {
        assert_eq!(text.parse(), Ok(share));
        assert_eq!(share.to_string(), text);
    }
    for text in ["", "%", "-1", "101%", "1.5", "50 %", "99999999999"] {
        assert!(text.parse::<Share>().is_err(), "{text:?}");
    }
}

fn any_candidate() -> impl Strategy<Value = Candidate<'static>> {
    let flag = any::<bool>;
    let option = || proptest::option::of(any::<bool>());
    (option(), option(), proptest::option::of(0.0..200.0f64), flag(), flag()).prop_map(
        |(judged, marked, severity, takes_pods, blind)| Candidate {
            recovering: severity.is_some_and(|severity| severity < 1.0),
            judged,
            marked,
            severity: severity.filter(|_| !blind),
            takes_pods,
            blind,
            open: takes_pods,
            ..candidate("n", marked, 0.0)
        },
    )
}

fn any_share() -> impl Strategy<Value = Share> {
    prop_oneof![(0..20usize).prop_map(Share::Nodes), (0..101usize).prop_map(Share::Percent)]
}

proptest! {
    #[test]
    fn never_above_the_ceiling_by_a_new_mark_and_never_below_the_floor(
        nodes in proptest::collection::vec(any_candidate(), 0..40),
        max_unfit in any_share(), min_fit in any_share(),
    ) {
        let limits = limits(max_unfit, min_fit);
        let result = mark(&nodes, &limits, Headroom::UNLIMITED);
        let all = || nodes.iter().zip(&result.marks);
        let room = || all().filter(|(n, _)| n.takes_pods);
        let unmarked = room().filter(|(_, m)| **m != Some(true)).count();
        // The floor holds, unless there are fewer nodes than that.
        prop_assert!(unmarked >= min_fit.at_least(room().count()).min(room().count()));
        let new = |(n, m): &(&Candidate<'_>, &Option<bool>)| {
            **m == Some(true) && n.marked != Some(true)
        };
        if room().any(|pair| new(&pair)) {
            let live = room().filter(|(n, m)| !n.blind || **m != Some(true)).count();
            let marked = room().filter(|(n, m)| !n.blind && **m == Some(true)).count();
            prop_assert!(marked <= max_unfit.at_most(live));
        }
        for (n, m) in all() {
            match n.judged {
                None => prop_assert_eq!(*m, None),
                Some(false) => prop_assert_eq!(*m, Some(false)),
                Some(true) => prop_assert!(m.is_some()),
            }
            // A new mark needs evidence.
            prop_assert!(!new(&(n, m)) || n.severity.is_some());
        }
    }

    /// The second pass over the same facts changes nothing.
    #[test]
    fn limits_settle_at_once(
        nodes in proptest::collection::vec(any_candidate(), 0..40),
        max_unfit in any_share(), min_fit in any_share(),
    ) {
        let limits = limits(max_unfit, min_fit);
        let first = mark(&nodes, &limits, Headroom::UNLIMITED).marks;
        let again: Vec<_> = nodes.iter().zip(&first)
            .map(|(n, m)| Candidate { marked: *m, ..*n }).collect();
        prop_assert_eq!(mark(&again, &limits, Headroom::UNLIMITED).marks, first);
    }
}

/// `explain` tells it without judging.
#[test]
fn the_most_that_may_be_marked_follows_from_both_limits() {
    use Share::{Nodes, Percent};
    for (max_unfit, min_fit, nodes, most) in [
        (Percent(50), Nodes(1), 10, 5),
        (Percent(50), Nodes(8), 10, 2),
        (Nodes(3), Percent(50), 10, 3),
        (Nodes(3), Nodes(10), 10, 0),
        (Percent(50), Nodes(1), 0, 0),
    ] {
        assert_eq!(limits(max_unfit, min_fit).of(nodes), most, "{max_unfit:?} {min_fit:?} {nodes}");
    }
}
