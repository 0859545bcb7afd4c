//! Details of a judgment that no other test sees: reasons, measures that come and go, marks that
//! are decided and not written.
use serde_json::json;

use super::{
    policies::{LOSS, lossy, measure, with_loss},
    *,
};

/// The time of `onUnknown` counts also when the measures have just changed.
#[test]
fn a_renamed_measure_removes_no_label_before_evidence_has_stayed_away() {
    let unknown = json!({"after": "1m", "action": "RemoveLabel"});
    let mut w = lossy(json!({"onUnknown": unknown}));
    w.watch.spec.criteria = serde_json::from_value(measure("rtt")).unwrap();
    let blind = [Nothing, Percent(1.0), Percent(1.0)];
    for _ in 0..5 {
        assert_eq!(w.judge_all(&[Some(&blind)]).writes, []);
    }
    assert_eq!(w.judge_all(&[Some(&blind)]).writes, [("a".into(), None)]);
}

/// Its label is set, though no measure of the spec has set it.
#[test]
fn a_node_that_only_its_label_marks_is_shown_as_unfit() {
    let mut w = lossy(json!({}));
    w.watch.spec.criteria = serde_json::from_value(measure("rtt")).unwrap();
    // The first judgment by the new measure decides nothing yet.
    let calm = [Percent(1.0); 3];
    assert_eq!(w.judge_all(&[Some(&calm)]).states, [Unfit, Fit, Fit]);
    let blind = [Nothing, Percent(1.0), Percent(1.0)];
    assert_eq!(w.judge_all(&[Some(&blind)]).states[0], Unknown);
}

#[test]
fn the_measure_that_found_a_node_unfit_is_the_reason_why_it_is_unknown() {
    let mut w = with_loss(&["a", "b", "c"]);
    let (calm, lossy) = ([Percent(1.0); 3], [Percent(11.0), Percent(1.0), Percent(1.0)]);
    w.judge_all(&[Some(&calm), Some(&lossy)]);
    w.judge_all(&[Some(&calm), Some(&lossy)]);
    // Both are without evidence about a, each for another reason.
    let blind = [Nothing, Percent(1.0), Percent(1.0)];
    assert_eq!(w.judge_all(&[Some(&blind), None]).states[0], Unknown);
    assert_eq!(w.node("a").reason.as_deref(), Some("MetricsUnavailable"));
}

#[test]
fn a_renamed_measure_begins_without_a_verdict() {
    let mut w = lossy(json!({}));
    w.watch.spec.criteria = serde_json::from_value(measure("rtt")).unwrap();
    // In the band from 9 to 10: unfit for who was unfit by this measure, otherwise fit.
    let band = [Percent(9.5), Percent(1.0), Percent(1.0)];
    w.judge_all(&[Some(&band)]);
    w.judge_all(&[Some(&band)]);
    assert_eq!(w.label("a"), Some("false"));
}

#[test]
fn a_measure_that_is_added_is_judged_from_its_first_answer_on() {
    let mut w = World::new(&["a", "b", "c"], json!({}));
    let (calm, lossy) = ([Percent(1.0); 3], [Percent(11.0), Percent(1.0), Percent(1.0)]);
    w.judge(&calm);
    w.judge(&calm);
    let criteria = json!([{"name": LOSS, "query": "loss", "max": "10"}]);
    w.watch.spec.criteria = serde_json::from_value(criteria).unwrap();
    w.judge_all(&[Some(&calm), Some(&lossy)]);
    w.judge_all(&[Some(&calm), Some(&lossy)]);
    assert_eq!((w.label("a"), w.node("a").reason.as_deref()), (Some("true"), Some(LOSS)));
}

/// The metric of transitions and the page show it.
#[test]
fn a_transition_names_the_measure_where_there_are_several() {
    let (calm, busy) = ([Percent(1.0); 3], [Percent(99.0), Percent(1.0), Percent(1.0)]);
    let reported = |w: &World, seen: &Observed| -> Vec<(String, NodeState, String)> {
        let transitions = plan(&w.watch, seen).unwrap().desired.transitions;
        let reported = |t: &Transition| (t.node.to_string(), t.to, t.reason.to_string());
        transitions.iter().map(reported).collect()
    };
    let mut w = World::new(&["a", "b", "c"], json!({}));
    w.judge(&calm);
    w.judge(&calm);
    w.judge(&busy);
    w.next();
    let seen = w.observed(vec![Ok(w.reading(&busy))]);
    assert_eq!(reported(&w, &seen), [("a".into(), Unfit, "Measured".into())]);
    let mut w = with_loss(&["a", "b", "c"]);
    w.judge_all(&[Some(&calm), Some(&calm)]);
    w.judge_all(&[Some(&calm), Some(&calm)]);
    w.judge_all(&[Some(&calm), Some(&busy)]);
    w.next();
    let seen = w.observed(vec![Ok(w.reading(&calm)), Ok(w.reading(&busy))]);
    assert_eq!(reported(&w, &seen), [("a".into(), Unfit, LOSS.into())]);
}

/// A node that can take no ordinary pod counts among all nodes.
#[test]
fn a_decided_mark_of_a_closed_node_is_given_up_when_none_is_left_among_all() {
    let mut w = World::new(&["a", "b", "c", "d"], json!({}));
    w.away.insert("a".into());
    let busy = [Percent(99.0), Percent(1.0), Percent(1.0), Percent(1.0)];
    w.judge(&busy);
    assert_eq!(w.judge(&busy).states, [Unfit, Fit, Fit, Fit]);
    // Its write came too late: others took the last place.
    w.labels.insert("a".into(), Some("false".into()));
    w.headroom = Headroom { open: 9, all: 0, ..Headroom::UNLIMITED };
    assert_eq!(w.judge(&busy).states, [Suppressed, Fit, Fit, Fit]);
    assert_eq!(w.node("a").reason.as_deref(), Some("OperatorLimitReached"));
    // And the other way round.
    w.headroom = Headroom { open: 0, all: 9, ..Headroom::UNLIMITED };
    assert_eq!(w.judge(&busy).states, [Unfit, Fit, Fit, Fit]);
}

#[test]
fn a_decided_mark_that_is_not_written_keeps_its_place_beside_a_worse_node() {
    let (one, both) = ([Percent(70.0), Percent(1.0)], [Percent(70.0), Percent(99.0)]);
    // Observe writes none, and uses nothing of the operator's ceiling.
    let mut w = World::new(&["a", "b"], json!({"mode": "Observe"}));
    w.headroom = Headroom { open: 0, all: 0, ..Headroom::UNLIMITED };
    w.judge(&one);
    assert_eq!(w.judge(&one).states, [Unfit, Fit]);
    w.judge(&both);
    assert_eq!(w.judge(&both).states, [Unfit, Suppressed]);
    // Enforce, while the write fails.
    let mut w = World::new(&["a", "b"], json!({}));
    w.judge(&one);
    assert_eq!(w.judge(&one).states, [Unfit, Fit]);
    for _ in 0..2 {
        w.labels.insert("a".into(), Some("false".into()));
        w.judge(&both);
    }
    assert_eq!((w.node("a").state, w.node("b").state), (Some(Unfit), Some(Suppressed)));
}

#[test]
fn a_mark_whose_removal_failed_takes_its_place_until_the_label_is_gone() {
    let mut w = World::new(&["a", "b"], json!({}));
    let both = [Percent(99.0), Percent(98.0)];
    w.judge(&both);
    assert_eq!(w.judge(&both).states, [Unfit, Suppressed]);
    let recovered = [Percent(1.0), Percent(98.0)];
    w.judge(&recovered);
    let why = Error::Pending("Timeout", "patch node: no answer".into()).verdict();
    let now = Timestamp::from_second(w.second).unwrap();
    Arc::make_mut(&mut w.memory.failed).take(&"a".into(), Some(why), now);
    let step = w.judge(&recovered);
    assert_eq!(step.states, [Fit, Suppressed], "a still has the label");
    assert_eq!(step.writes, [("a".into(), Some(false))]);
    assert_eq!(w.judge(&recovered).states, [Fit, Unfit]);
}

/// Found by the simulation (seed 7793): the mark that was to take its place was written by the next
/// pass, above the limit.
#[test]
fn a_mark_whose_removal_failed_keeps_its_place_from_the_mark_that_was_decided_for_it() {
    let mut w = World::new(&["a", "b"], json!({}));
    for says in [[99.0, 98.0], [99.0, 98.0], [1.0, 98.0]] {
        w.judge(&says.map(Percent));
    }
    let recovered = [Percent(1.0), Percent(98.0)];
    assert_eq!(w.judge(&recovered).writes, [("a".into(), Some(false)), ("b".into(), Some(true))]);
    w.labels.insert("a".into(), Some("true".into()));
    w.labels.insert("b".into(), Some("false".into()));
    let why = Error::Pending("Timeout", "patch node: no answer".into()).verdict();
    let later = Timestamp::from_second(w.second + 5).unwrap();
    Arc::make_mut(&mut w.memory.failed).take(&"a".into(), Some(why), later);
    let step = w.judge(&recovered);
    assert_eq!((step.states.as_slice(), step.writes), ([Fit, Suppressed].as_slice(), vec![]));
    w.judge(&recovered);
    assert_eq!(w.label("a"), Some("false"));
    assert_eq!(w.judge(&recovered).states, [Fit, Unfit]);
}

/// The number of those with evidence is what counts, at any size.
#[test]
fn the_clock_runs_for_three_silent_nodes_of_ten() {
    let spec = json!({"onUnknown": {"after": "1m", "action": "Unfit"}});
    let mut w = World::new(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"], spec);
    let mut says = [Percent(1.0); 10];
    w.judge(&says);
    w.judge(&says);
    says[..3].fill(Nothing);
    for _ in 0..6 {
        w.judge(&says);
    }
    assert_eq!(
        ["a", "b", "c", "d"].map(|node| w.label(node) == Some("true")),
        [true, true, true, false]
    );
}

#[test]
fn observe_remembers_who_was_suppressed_and_who_was_never_judged() {
    let mut w = World::new(&["a", "b", "c"], json!({"mode": "Observe", "maxUnfit": 1}));
    let says = [Percent(99.0), Percent(98.0), Nothing];
    w.judge(&says);
    assert_eq!(w.judge(&says).states, [Unfit, Suppressed, Unknown]);
    w.restart();
    assert_eq!(w.judge(&says).states, [Unfit, Suppressed, Unknown]);
}

/// Found by the simulation (seed 1795635747): marks that Observe only supposed were written above a
/// limit that was lowered meanwhile.
#[test]
fn marks_that_observe_supposed_need_a_place_like_new_ones() {
    let mut w = World::new(&["a", "b", "c", "d"], json!({"mode": "Observe", "maxUnfit": 3}));
    let says = [Percent(99.0), Percent(98.0), Percent(97.0), Percent(1.0)];
    w.judge(&says);
    assert_eq!(w.judge(&says).states, [Unfit, Unfit, Unfit, Fit]);
    w.watch.spec.max_unfit = serde_json::from_value(json!(1)).unwrap();
    assert_eq!(w.judge(&says).states, [Unfit, Unfit, Unfit, Fit], "a lower limit removes none");
    let observed = w.memory.clone();
    w.watch.spec.mode = Mode::Enforce;
    let step = w.judge(&says);
    assert_eq!(step.states, [Unfit, Suppressed, Suppressed, Fit]);
    let written = [("a", true), ("b", false), ("c", false), ("d", false)];
    assert_eq!(step.writes, written.map(|(node, unfit)| (node.to_owned(), Some(unfit))));
    // Nor do they exceed the ceiling over all objects.
    w.labels.values_mut().for_each(|label| *label = None);
    w.memory = observed;
    w.watch.spec.max_unfit = serde_json::from_value(json!("50%")).unwrap();
    w.headroom = Headroom { open: 0, ..Headroom::UNLIMITED };
    assert!(w.judge(&says).writes.iter().all(|(_, unfit)| *unfit == Some(false)));
    // What is written already stays.
    w.headroom = Headroom::UNLIMITED;
    w.judge(&says);
    assert_eq!(w.label("a"), Some("true"));
    w.watch.spec.mode = Mode::Observe;
    w.judge(&says);
    w.watch.spec.mode = Mode::Enforce;
    w.watch.spec.max_unfit = serde_json::from_value(json!(1)).unwrap();
    assert_eq!(w.judge(&says).writes, vec![]);
}

#[test]
fn a_node_that_finds_no_place_below_the_limit_of_its_object_names_that_limit() {
    let mut w = World::new(&["a", "b"], json!({}));
    let both = [Percent(99.0), Percent(98.0)];
    w.judge(&both);
    assert_eq!(w.judge(&both).states, [Unfit, Suppressed]);
    assert_eq!(w.node("b").reason.as_deref(), Some("LimitReached"));
}

#[test]
fn a_node_that_is_fit_again_is_an_event() {
    let mut w = World::new(&["a", "b"], json!({}));
    let (busy, idle) = ([Percent(99.0), Percent(1.0)], [Percent(1.0), Percent(1.0)]);
    w.judge(&busy);
    assert_eq!(w.judge(&busy).notices, ["NodeUnfit"]);
    w.judge(&idle);
    let step = w.judge(&idle);
    assert_eq!((step.states, step.notices), (vec![Fit, Fit], vec!["NodeFit"]));
}

#[test]
fn f6_a_ratio_that_is_read_as_a_percentage_is_doubted() {
    for (query, values, doubted) in [
        (Some("load"), [Percent(0.96), Percent(0.1)], true),
        (Some("load"), [Percent(96.0), Percent(0.1)], false),
        (Some("load"), [Percent(0.0), Percent(0.0)], false),
        (None, [Percent(0.96), Percent(0.1)], false),
    ] {
        let mut w = World::new(&["a", "b"], json!({"maxBandwidthPercent": "80", "query": query}));
        let step = w.judge(&values);
        let message = &step.conditions[1].message;
        assert_eq!(message.contains("ratio"), doubted, "{values:?}: {message}");
    }
}
