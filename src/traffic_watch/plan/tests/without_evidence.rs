//! Nodes without evidence, and the action that the spec names for them.
use super::*;

fn unknown(action: &str) -> World {
    let spec = json!({"onUnknown": {"after": "1m", "action": action}});
    let mut w = World::new(&["a", "b", "c"], spec);
    w.judge(&[Percent(99.0), Percent(1.0), Percent(1.0)]);
    w.judge(&[Percent(99.0), Percent(1.0), Percent(1.0)]);
    w
}

#[test]
fn evidence_that_stays_away_leads_to_the_action_and_not_before() {
    for (action, label) in [
        ("Hold", Some("true")),
        ("Fit", Some("false")),
        ("Unfit", Some("true")),
        ("RemoveLabel", None),
    ] {
        let mut w = unknown(action);
        let gone = [Nothing, Percent(1.0), Percent(1.0)];
        for i in 1..6 {
            assert_eq!(w.judge(&gone).writes, [], "{action} after {i}0 s");
            assert_eq!(w.label("a"), Some("true"));
        }
        let step = w.judge(&gone);
        assert_eq!((w.label("a"), step.states[0]), (label, Unknown), "{action}");
        assert_eq!(w.node("a").unfit, label == Some("true"), "unfit follows the label");
        let reported = step.notices.contains(&"NodeUnknownExpired");
        assert_eq!(reported, action != "Hold", "{action}: {:?}", step.notices);
        assert_eq!(w.judge(&gone).notices, <[&str; 0]>::default(), "{action}: reported once");
        // Evidence that comes back is judged as always.
        w.judge(&[Percent(1.0); 3]);
        w.judge(&[Percent(1.0); 3]);
        assert_eq!(w.label("a"), Some("false"), "{action}");
    }
}

/// Alerts about marks count them: as Unknown, a node keeps pods away as before.
#[test]
fn a_marked_node_without_evidence_is_still_counted_as_marked() {
    let mut w = unknown("Hold");
    assert_eq!((w.memory.summary.marked, w.memory.summary.unfit), (1, 1));
    assert_eq!(w.fail().states, [Unknown; 3]);
    assert_eq!((w.memory.summary.marked, w.memory.summary.unfit), (1, 0));
    assert_eq!(w.label("a"), Some("true"));
}

/// Ready is a claim about now: it outlives a request that fails, and no longer silence.
#[test]
fn no_condition_stays_true_while_nothing_is_measured() {
    let mut w = unknown("Hold");
    let conditions = |step: &Step| -> Vec<_> {
        step.conditions.iter().map(|c| (c.type_, c.status, c.reason)).collect()
    };
    let blip = w.fail();
    assert!(conditions(&blip).contains(&("Ready", Some(true), "Judged")), "{blip:?}");
    for _ in 1..9 {
        w.fail();
    }
    let silence = w.fail();
    let expected = [
        ("Ready", None, "PrometheusUnreachable"),
        ("MetricsAvailable", Some(false), "PrometheusUnreachable"),
        ("PlacementLimited", None, "PrometheusUnreachable"),
    ];
    assert_eq!(conditions(&silence), expected);
    let ready = &silence.conditions[0].message;
    assert!(
        ready.starts_with("no evidence for more than 90 s; marks stay as they are: "),
        "{ready}"
    );
    let back = w.judge(&[Percent(1.0); 3]);
    assert!(conditions(&back).iter().all(|(_, status, _)| status.is_some()), "{back:?}");
    assert!(conditions(&back).contains(&("Ready", Some(true), "Judged")), "{back:?}");
    // The server answers, and proves nothing about any node.
    for _ in 0..9 {
        w.judge(&[NoSpeed, NoSpeed, NoSpeed]);
    }
    let useless = w.judge(&[NoSpeed, NoSpeed, NoSpeed]);
    let expected = [
        ("Ready", None, "NoEvidence"),
        ("MetricsAvailable", Some(true), "Available"),
        ("PlacementLimited", None, "NoEvidence"),
    ];
    assert_eq!(conditions(&useless), expected);
    let ready = &useless.conditions[0].message;
    assert!(ready.ends_with("no node has evidence (3 SpeedUnknown)"), "{ready}");
    let mut new = World::new(&["a", "b", "c"], json!({}));
    let first = new.judge(&[NoSpeed, NoSpeed, NoSpeed]);
    assert_eq!(conditions(&first)[0], ("Ready", Some(false), "NoEvidence"));
}

/// A node that has just come has no exporter yet.
#[test]
fn one_judgment_is_no_time_without_evidence() {
    let spec = json!({"interval": "15m", "onUnknown": {"after": "10m", "action": "Unfit"}});
    let mut w = World::new(&["a", "b", "c"], spec);
    let gone = [Nothing, Percent(1.0), Percent(1.0)];
    w.judge(&gone);
    assert_eq!(w.label("a"), None);
    w.judge(&gone);
    assert_eq!(w.label("a"), Some("true"));
    // Unless no time was asked for.
    let spec = json!({"interval": "15m", "onUnknown": {"after": "0s", "action": "Unfit"}});
    let mut w = World::new(&["a", "b", "c"], spec);
    w.judge(&gone);
    assert_eq!(w.label("a"), Some("true"));
}

#[test]
fn unknown_treated_as_unfit_respects_the_limit_and_comes_last() {
    let mut w = unknown("Unfit");
    // a is unfit by measurement and holds the one place there is.
    let gone = [Percent(99.0), Nothing, Percent(1.0)];
    for _ in 0..7 {
        w.judge(&gone);
    }
    assert_eq!((w.label("a"), w.label("b")), (Some("true"), Some("false")));
    for _ in 0..2 {
        w.judge(&[Percent(1.0), Nothing, Percent(1.0)]);
    }
    assert_eq!((w.label("a"), w.label("b")), (Some("false"), Some("true")));
}

/// Design 4.1: the clock stands still while the request fails or coverage is low.
#[test]
fn the_clock_of_unknown_stands_still_while_the_measurement_is_in_trouble() {
    let mut w = unknown("Fit");
    let gone = [Nothing, Percent(1.0), Percent(1.0)];
    for _ in 0..5 {
        w.judge(&gone);
    }
    for _ in 0..50 {
        w.fail();
        w.judge(&[Nothing, Nothing, Percent(1.0)]);
    }
    assert_eq!(w.label("a"), Some("true"));
    assert_eq!(w.node("a").unknown_seconds, 50);
    // A restart does not set it back.
    w.restart();
    w.judge(&gone);
    assert_eq!(w.label("a"), Some("false"));
}

/// An answer is shared for an interval. A node that takes the name of another in that time is not
/// the one that was measured.
#[test]
fn absence_is_never_a_verdict_nor_is_the_traffic_of_a_predecessor() {
    let mut w = World::new(&["a", "b"], json!({"consecutive": {"unfit": 1, "fit": 1}}));
    let mut judge = |since, revision| {
        w.next();
        let mut reading = w.reading(&[Percent(99.0), Percent(1.0)]);
        reading.revision = revision;
        let mut observed = w.observed(vec![Ok(reading)]);
        Arc::get_mut(&mut observed.nodes).unwrap()[0].since = since;
        w.carry_out(&observed).states
    };
    assert_eq!(judge(8, Some(7)), [Unknown, Fit]);
    assert_eq!(judge(8, Some(8)), [Unfit, Fit]);
    // A history from elsewhere knows no revisions.
    assert_eq!(judge(9, None), [Unfit, Fit]);
}

/// A verdict of a status is as old as the last pass: minutes, if another object had the key.
#[test]
fn a_node_that_is_low_again_gets_no_mark_by_an_old_verdict() {
    let spec = json!({"consecutive": {"unfit": 1, "fit": 3}, "maxUnfit": 1});
    let mut w = World::new(&["a", "b", "c"], spec);
    let step = w.judge(&[Percent(99.0), Percent(98.0), Percent(1.0)]);
    assert_eq!(step.states, [Unfit, Suppressed, Fit]);
    w.watch.spec.max_unfit = serde_json::from_value(json!("100%")).unwrap();
    w.restart();
    // It recovers at 54.
    assert_eq!(w.judge(&[Percent(99.0), Percent(54.0), Percent(1.0)]).writes, []);
    let step = w.judge(&[Percent(99.0), Percent(55.0), Percent(1.0)]);
    assert_eq!(step.writes, [("b".into(), Some(true))]);
}
