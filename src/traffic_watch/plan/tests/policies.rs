//! The policies of a spec: several measures, limits, taint.
use serde_json::json;

use super::*;

pub(super) const LOSS: &str = "loss";

pub(super) fn with_loss(nodes: &[&str]) -> World {
    let criteria = json!([{"name": LOSS, "query": "loss", "max": "10", "recoverPercent": 50}]);
    World::new(nodes, json!({"maxBandwidthPercent": "60", "criteria": criteria}))
}

pub(super) fn measure(name: &str) -> Value {
    json!([{"name": name, "query": "x", "max": "10"}])
}

/// Three nodes, of which `a` is marked for its loss.
pub(super) fn lossy(mut spec: Value) -> World {
    spec["criteria"] = measure(LOSS);
    let mut w = World::new(&["a", "b", "c"], spec);
    let says = [Percent(11.0), Percent(1.0), Percent(1.0)];
    w.judge_all(&[Some(&says)]);
    w.judge_all(&[Some(&says)]);
    assert_eq!(w.label("a"), Some("true"));
    w
}

#[test]
fn any_measure_says_unfit_and_all_say_fit() {
    let mut w = with_loss(&["a", "b", "c"]);
    let calm = [Percent(1.0); 3];
    let lossy = [Percent(11.0), Percent(1.0), Percent(1.0)];
    let half = [Percent(6.0), Percent(1.0), Percent(1.0)];
    w.judge_all(&[Some(&calm), Some(&calm)]);
    w.judge_all(&[Some(&calm), Some(&calm)]);
    assert_eq!(w.label("a"), Some("false"));
    w.judge_all(&[Some(&calm), Some(&lossy)]);
    let step = w.judge_all(&[Some(&calm), Some(&lossy)]);
    assert_eq!((step.states[0], step.notices), (Unfit, vec!["NodeUnfit"]));
    assert_eq!(w.node("a").reason.as_deref(), Some(LOSS));
    let reported: Vec<_> =
        w.node("a").criteria.iter().map(|c| (c.name.as_str(), c.unfit)).collect();
    assert_eq!(reported, [("bandwidth", Some(false)), (LOSS, Some(true))]);
    // Its own hysteresis: fit again at or below half of ten.
    for _ in 0..5 {
        w.judge_all(&[Some(&calm), Some(&half)]);
    }
    assert_eq!(w.label("a"), Some("true"));
    // The other measure is now unfit too; both must recover.
    let busy = [Percent(99.0), Percent(1.0), Percent(1.0)];
    w.judge_all(&[Some(&busy), Some(&half)]);
    w.judge_all(&[Some(&busy), Some(&half)]);
    assert_eq!(w.node("a").reason.as_deref(), Some("bandwidth,loss"));
    for _ in 0..3 {
        w.judge_all(&[Some(&busy), Some(&calm)]);
    }
    assert_eq!((w.label("a"), w.node("a").reason.as_deref()), (Some("true"), Some("bandwidth")));
    w.judge_all(&[Some(&calm), Some(&calm)]);
    w.judge_all(&[Some(&calm), Some(&calm)]);
    assert_eq!(w.label("a"), Some("false"));
}

#[test]
fn a_node_is_about_to_recover_when_all_measures_that_judge_it_unfit_are_low() {
    for (loss, marked) in [(1.0, false), (20.0, true)] {
        let mut w = with_loss(&["a", "b"]);
        let (busy, lossy) = ([99.0, 98.0].map(Percent), [30.0, 20.0].map(Percent));
        w.judge_all(&[Some(&busy), Some(&lossy)]);
        let step = w.judge_all(&[Some(&busy), Some(&lossy)]);
        assert_eq!(step.states, [Unfit, Suppressed]);
        w.judge_all(&[Some(&[1.0, 98.0].map(Percent)), Some(&[1.0, 20.0].map(Percent))]);
        // The place of `a` becomes free, and `b` is judged unfit by both measures still.
        let step = w.judge_all(&[Some(&[Percent(1.0); 2]), Some(&[1.0, loss].map(Percent))]);
        assert_eq!(step.states, [Fit, if marked { Unfit } else { Suppressed }], "{loss}");
        assert_eq!(w.label("b"), Some(if marked { "true" } else { "false" }), "{loss}");
    }
}

/// A failing trigger must not block the others (KEDA #6887).
#[test]
fn a_measure_that_fails_holds_its_own_verdict_and_no_other() {
    let mut w = with_loss(&["a", "b", "c"]);
    let calm = [Percent(1.0); 3];
    w.judge_all(&[Some(&calm), Some(&calm)]);
    w.judge_all(&[Some(&calm), Some(&calm)]);
    let busy = [Percent(99.0), Percent(1.0), Percent(1.0)];
    w.judge_all(&[Some(&busy), None]);
    let step = w.judge_all(&[Some(&busy), None]);
    assert_eq!(step.states, [Unfit, Unknown, Unknown]);
    assert_eq!(w.label("a"), Some("true"));
    let metrics = &step.conditions[1];
    assert_eq!((metrics.status, metrics.reason), (Some(false), "PrometheusUnreachable"));
    assert!(metrics.message.contains("loss: refused"), "{}", metrics.message);
    // The result of the unfit measure is kept while it fails.
    w.judge_all(&[None, Some(&calm)]);
    assert_eq!((w.label("a"), w.node("a").state), (Some("true"), Some(Unknown)));
}

/// Found by the property of the same limit: the mark stayed for ever, beside the limit.
#[test]
fn a_mark_ends_with_the_measure_that_set_it_though_another_never_had_evidence() {
    let mut w = with_loss(&["a", "b", "c"]);
    let (lossy, calm) = ([Percent(11.0), Percent(1.0), Percent(1.0)], [Percent(1.0); 3]);
    w.judge_all(&[None, Some(&lossy)]);
    w.judge_all(&[None, Some(&lossy)]);
    assert_eq!((w.label("a"), w.label("b")), (Some("true"), None));
    w.judge_all(&[None, Some(&calm)]);
    w.judge_all(&[None, Some(&calm)]);
    assert_eq!((w.label("a"), w.label("b")), (Some("false"), None));
}

#[test]
fn a_restart_knows_which_measure_said_unfit() {
    let mut w = with_loss(&["a", "b", "c"]);
    let calm = [Percent(1.0); 3];
    // In loss' band from 5 to 10: unfit with memory.
    let band = [Percent(7.0), Percent(1.0), Percent(1.0)];
    let lossy = [Percent(11.0), Percent(1.0), Percent(1.0)];
    w.judge_all(&[Some(&calm), Some(&lossy)]);
    w.judge_all(&[Some(&calm), Some(&lossy)]);
    w.restart();
    for _ in 0..5 {
        w.judge_all(&[Some(&calm), Some(&band)]);
    }
    assert_eq!((w.label("a"), w.node("a").reason.as_deref()), (Some("true"), Some(LOSS)));
    // If the status has no record, the label stays until every measure has found the node fit.
    let status = w.watch.status.as_mut().unwrap();
    status.nodes.clear();
    w.restart();
    w.judge_all(&[Some(&calm), Some(&calm)]);
    assert_eq!(w.label("a"), Some("true"));
    w.judge_all(&[Some(&calm), Some(&calm)]);
    assert_eq!(w.label("a"), Some("false"));
}

#[test]
fn a_measure_that_is_added_or_removed_leaves_the_others_what_they_said() {
    let mut w = World::new(&["a", "b", "c"], json!({}));
    let busy = [Percent(99.0), Percent(1.0), Percent(1.0)];
    let calm = [Percent(1.0); 3];
    w.judge(&busy);
    w.judge(&busy);
    let criteria = json!([{"name": LOSS, "query": "loss", "max": "10"}]);
    w.watch.spec.criteria = serde_json::from_value(criteria).unwrap();
    assert_eq!(w.judge_all(&[Some(&busy), Some(&calm)]).writes, []);
    assert_eq!(w.judge_all(&[Some(&busy), Some(&calm)]).writes, []);
    w.judge_all(&[Some(&busy), Some(&busy)]);
    w.judge_all(&[Some(&busy), Some(&busy)]);
    w.watch.spec.criteria.clear();
    assert_eq!(w.judge(&busy).writes, []);
    w.judge(&calm);
    assert_eq!(w.judge(&calm).writes, [("a".into(), Some(false))]);
}

/// The author renames the only measure: its label still stands, so it still counts.
#[test]
fn a_mark_outlives_the_measure_that_set_it_until_another_has_judged() {
    let mut w = lossy(json!({}));
    w.watch.spec.criteria = serde_json::from_value(measure("rtt")).unwrap();
    // The new measure has no evidence about a, so that it holds its mark and does not count towards
    // the limit.
    let blind = [Nothing, Percent(99.0), Percent(1.0)];
    for _ in 0..4 {
        w.judge_all(&[Some(&blind)]);
    }
    assert_eq!((w.label("a"), w.label("b")), (Some("true"), Some("true")));
    assert!(w.node("a").unfit, "the status agrees with the label");
    let calm = [Percent(1.0), Percent(99.0), Percent(1.0)];
    w.judge_all(&[Some(&calm)]);
    let step = w.judge_all(&[Some(&calm)]);
    assert_eq!((w.label("a"), step.states[1]), (Some("false"), Unfit));
}

/// A measure that never had evidence holds no mark, even after a loss of memory.
#[test]
fn a_new_measure_is_not_blamed_for_an_old_mark() {
    let mut w = World::new(&["a", "b", "c"], json!({}));
    let (busy, calm) = ([Percent(99.0), Percent(1.0), Percent(1.0)], [Percent(1.0); 3]);
    w.judge(&busy);
    w.judge(&busy);
    let criteria = json!([{"name": LOSS, "query": "loss", "max": "10"}]);
    w.watch.spec.criteria = serde_json::from_value(criteria).unwrap();
    w.restart();
    let silent = [Nothing, Percent(1.0), Percent(1.0)];
    for _ in 0..3 {
        w.judge_all(&[Some(&calm), Some(&silent)]);
    }
    assert_eq!(w.label("a"), Some("false"));
}

#[test]
fn an_absolute_threshold_judges_bits_per_second() {
    let mut w = World::new(&["a", "b"], json!({"maxBandwidth": "800"}));
    // 101 bytes per second are 808 bits.
    let busy = [Percent(101.0), Percent(1.0)];
    w.judge(&busy);
    w.judge(&busy);
    assert_eq!((w.label("a"), w.label("b")), (Some("true"), Some("false")));
    assert_eq!(w.node("a").criteria[0].value.as_deref(), Some("8.08e+02"));
    assert_eq!(w.watch.status.as_ref().unwrap().max.as_deref(), Some("800"));
    // 90 bytes are the threshold of recovery.
    w.judge(&[Percent(90.1), Percent(1.0)]);
    w.judge(&[Percent(90.1), Percent(1.0)]);
    assert_eq!(w.label("a"), Some("true"));
    w.judge(&[Percent(90.0), Percent(1.0)]);
    w.judge(&[Percent(90.0), Percent(1.0)]);
    assert_eq!(w.label("a"), Some("false"));
}

#[test]
fn the_limits_of_the_spec_hold() {
    let all = [Percent(99.0), Percent(98.0), Percent(97.0), Percent(96.0)];
    for (spec, marked) in [
        (json!({"maxUnfit": "25%"}), 1),
        (json!({"maxUnfit": 3}), 3),
        (json!({"maxUnfit": "100%"}), 3),
        (json!({"maxUnfit": "100%", "minFit": 0}), 4),
        (json!({"maxUnfit": "100%", "minFit": "50%"}), 2),
        (json!({"maxUnfit": 0}), 0),
    ] {
        let mut w = World::new(&["a", "b", "c", "d"], spec.clone());
        w.judge(&all);
        let step = w.judge(&all);
        let unfit = step.states.iter().filter(|state| **state == Unfit).count();
        assert_eq!(unfit, marked, "{spec}");
        let limited = &step.conditions[2];
        assert_eq!(limited.status, Some(marked < 4), "{spec}");
        assert!(marked == 4 || limited.message.contains(&format!("at most {marked} of 4")));
    }
}

#[test]
fn a_single_node_is_marked_only_if_none_has_to_stay() {
    for (spec, label) in [(json!({}), "false"), (json!({"minFit": 0}), "true")] {
        let mut w = World::new(&["a"], spec);
        w.judge(&[Percent(99.0)]);
        w.judge(&[Percent(99.0)]);
        assert_eq!(w.label("a"), Some(label));
    }
}

/// The worst is chosen across measures, by the excess over each threshold.
#[test]
fn the_worst_is_who_is_furthest_above_its_threshold() {
    let mut w = with_loss(&["a", "b"]);
    let (bandwidth, loss) = ([Percent(90.0), Percent(1.0)], [Percent(1.0), Percent(40.0)]);
    w.judge_all(&[Some(&bandwidth), Some(&loss)]);
    let step = w.judge_all(&[Some(&bandwidth), Some(&loss)]);
    assert_eq!(step.states, [Suppressed, Unfit]);
}

#[test]
fn a_taint_follows_the_label() {
    let mut w = World::new(&["a", "b", "c"], json!({"taint": "PreferNoSchedule"}));
    let busy = [Percent(99.0), Percent(1.0), Percent(1.0)];
    w.judge(&busy);
    w.judge(&busy);
    assert_eq!(w.taints, [("a".to_owned(), "PreferNoSchedule".to_owned())].into());
    w.watch.spec.taint = Some(TaintEffect::NoSchedule);
    w.judge(&busy);
    assert_eq!(w.taints["a"], "NoSchedule");
    w.fail();
    assert_eq!(w.taints["a"], "NoSchedule", "no evidence changes nothing");
    w.watch.spec.taint = None;
    w.judge(&busy);
    assert!(w.taints.is_empty());
    w.watch.spec.taint = Some(TaintEffect::NoSchedule);
    w.judge(&busy);
    // Removed by a user: it is ours, so it comes back.
    w.taints.clear();
    w.judge(&busy);
    assert_eq!(w.taints.len(), 1);
    w.judge(&[Percent(1.0); 3]);
    w.judge(&[Percent(1.0); 3]);
    assert!(w.taints.is_empty());
}

#[test]
fn a_window_of_too_few_scrapes_is_reported_once_it_has_lasted() {
    let mut w = World::new(&["a", "b"], json!({"window": "20s"}));
    let mut reported = 0;
    for _ in 0..20 {
        w.next();
        let mut reading = w.reading(&[Percent(1.0); 2]);
        reading.scrapes = Some(2.0);
        let step = w.pass(vec![Ok(reading)]);
        reported += step.notices.iter().filter(|n| **n == "WindowTooShort").count();
        assert!(step.conditions[1].message.contains("fewer than four scrapes"));
    }
    assert_eq!(reported, 1);
    // A Prometheus that has just started has few scrapes as well, but not for long.
    let mut w = World::new(&["a", "b"], json!({"window": "2m"}));
    for scrapes in 1..30 {
        w.next();
        let mut reading = w.reading(&[Percent(1.0); 2]);
        reading.scrapes = Some(f64::from(scrapes.min(8)));
        assert!(w.pass(vec![Ok(reading)]).notices.is_empty());
    }
}

#[test]
fn the_first_error_of_a_spec_is_reported_with_its_path() {
    for (spec, path) in [
        (json!({"maxBandwidthPercent": "abc"}), "spec.maxBandwidthPercent"),
        (json!({"maxBandwidthPercent": "NaN"}), "spec.maxBandwidthPercent"),
        (json!({"maxBandwidthPercent": "-1"}), "spec.maxBandwidthPercent"),
        (json!({"maxBandwidth": "0"}), "spec.maxBandwidth:"),
        (json!({"maxBandwidth": "fast"}), "spec.maxBandwidth:"),
        (json!({"maxBandwidth": "1G", "maxBandwidthPercent": "60"}), "spec.maxBandwidth:"),
        (json!({"criteria": []}), "spec: one of"),
        (json!({"criteria": [], "query": "up"}), "spec.query:"),
        (json!({"criteria": [{"name": "a", "query": "up", "max": "-1"}]}), "spec.criteria[0].max"),
        (
            json!({"criteria": [{"name": "bandwidth", "query": "up", "max": 1}]}),
            "spec.criteria[0].name",
        ),
        (
            json!({"criteria": [
                {"name": "a", "query": "up", "max": 1}, {"name": "a", "query": "up", "max": 1}
            ]}),
            "spec.criteria[0].name",
        ),
        (json!({"maxUnfit": "101%"}), "spec.maxUnfit"),
        (json!({"minFit": -1}), "spec.minFit"),
        (json!({"onUnknown": {"after": "-1s"}}), "spec.onUnknown.after"),
        (json!({"eviction": {"after": "-1s"}}), "spec.eviction.after"),
        (json!({"capacity": "fast"}), "spec.capacity"),
        (json!({"capacity": "-1G"}), "spec.capacity"),
        (json!({"interval": "0s"}), "spec.interval"),
        (json!({"window": "1s"}), "spec.window"),
        (json!({"maxSampleAge": "-5s"}), "spec.maxSampleAge"),
    ] {
        let w = World::new(&["a"], spec.clone());
        let error = plan(&w.watch, &w.observed(vec![Ok(Measurement::default())])).unwrap_err();
        assert!(error.to_string().starts_with(path), "{spec}: {error}");
        assert_eq!(error.reason(), "InvalidSpec");
    }
}

/// The server judges PromQL: what it refuses is an error of the spec, and what it does not is none.
#[test]
fn a_query_that_the_server_refuses_is_reported_with_its_path() {
    let own = json!({"query": "up{"});
    let further = json!({"maxBandwidthPercent": "60", "criteria": [
        {"name": "a", "query": "up", "max": 1}, {"name": "b", "query": "up{", "max": 1}
    ]});
    let refused = || Err(QueryError::new(Class::QueryInvalid, "Prometheus says: 1:4: parse error"));
    let answer = || Ok(Measurement::default());
    for (spec, readings, path) in [
        (own.clone(), vec![refused()], Some("spec.query")),
        (further.clone(), vec![answer(), answer(), refused()], Some("spec.criteria[1].query")),
        // The built-in query is not the author's.
        (further, vec![refused(), answer(), answer()], None),
        (own, vec![Err(QueryError::new(Class::QueryFailed, "too many samples"))], None),
    ] {
        let w = World::new(&["a"], spec);
        let plan = plan(&w.watch, &w.observed(readings)).unwrap();
        let ready = plan.conditions.iter().find(|one| one.type_ == "Ready").unwrap();
        let expected = path.map(|path| format!("{path}: Prometheus says: 1:4: parse error"));
        assert_eq!(ready.reason == "InvalidSpec", expected.is_some(), "{ready:?}");
        assert!(expected.is_none_or(|text| ready.message == text), "{ready:?}");
        assert_eq!(ready.status, Some(false));
    }
}
