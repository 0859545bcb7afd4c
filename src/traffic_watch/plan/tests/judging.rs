//! Judgments by one measure.
use serde_json::json;

use super::*;

#[test]
fn two_judgments_that_agree_change_the_label_one_does_not() {
    let mut w = World::new(&["a", "b", "c"], json!({}));
    let all = |a| [Percent(a), Percent(1.0), Percent(1.0)];
    // A node that was never judged counts as fit.
    assert_eq!(w.judge(&all(99.0)).writes, [("b".into(), Some(false)), ("c".into(), Some(false))]);
    assert!(!w.watch.status.as_ref().unwrap().ready);
    assert_eq!(w.judge(&all(1.0)).writes, [("a".into(), Some(false))]);
    assert!(w.watch.status.as_ref().unwrap().ready);
    for (percent, label) in [
        (61.0, "false"),
        (59.0, "false"),
        (61.0, "false"),
        (60.0, "false"), // not above
        (61.0, "false"),
        (60.1, "true"),
        (54.1, "true"), // above 90 % of 60
        (54.0, "true"),
        (54.1, "true"), // the side it is on: the streak begins again
        (54.0, "true"),
        (1.0, "false"),
    ] {
        w.judge(&all(percent));
        assert_eq!(w.label("a"), Some(label), "at {percent}");
    }
}

#[test]
fn a_flapping_node_keeps_its_label() {
    let mut w = World::new(&["a", "b"], json!({}));
    w.judge(&[Percent(1.0); 2]);
    w.judge(&[Percent(1.0); 2]);
    for i in 0..20 {
        let percent = if i % 2 == 0 { 99.0 } else { 1.0 };
        assert_eq!(w.judge(&[Percent(percent), Percent(1.0)]).writes, []);
    }
}

#[test]
fn passes_of_one_tick_are_one_judgment() {
    let mut w = World::new(&["a", "b"], json!({}));
    w.judge(&[Percent(1.0); 2]);
    w.judge(&[Percent(1.0); 2]);
    w.judge(&[Percent(99.0), Percent(1.0)]);
    let reading = w.reading(&[Percent(99.0), Percent(1.0)]);
    for _ in 0..5 {
        let again = World::reading(&w, &[Percent(99.0), Percent(1.0)]);
        assert_eq!(w.pass(vec![Ok(again)]).writes, []);
    }
    w.next();
    assert_eq!(w.pass(vec![Ok(reading)]).writes, [("a".into(), Some(true))]);
}

#[test]
fn missing_evidence_neither_advances_nor_resets_a_streak() {
    for missing in [Nothing, NaN, Old] {
        let mut w = World::new(&["a", "b", "c"], json!({"consecutive": {"unfit": 3, "fit": 2}}));
        let calm = |a| [a, Percent(1.0), Percent(1.0)];
        w.judge(&calm(Percent(1.0)));
        w.judge(&calm(Percent(1.0)));
        w.judge(&calm(Percent(99.0)));
        w.judge(&calm(Percent(99.0)));
        for _ in 0..10 {
            let step = w.judge(&calm(missing));
            assert_eq!((step.writes, step.states[0]), (vec![], Unknown), "{missing:?}");
        }
        w.fail();
        assert_eq!(w.judge(&calm(Percent(99.0))).writes, [("a".into(), Some(true))]);
    }
}

#[test]
fn a_node_never_judged_gets_no_label() {
    let mut w = World::new(&["a", "b", "c"], json!({}));
    for _ in 0..5 {
        w.judge(&[Nothing, Percent(1.0), Percent(1.0)]);
    }
    assert_eq!(w.label("a"), None);
    assert_eq!(w.node("a").current_bandwidth_percent, "NaN");
    // Ready counts the nodes with data.
    assert!(w.watch.status.as_ref().unwrap().ready);
}

#[test]
fn the_deployment_is_created_once_judged_and_kept_whatever_comes() {
    let deployment = json!({
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}
    });
    let mut w = World::new(&["a", "b"], json!({"deployment": deployment}));
    assert!(!w.fail().deployment, "no node is judged yet");
    assert!(!w.judge(&[Percent(99.0), Percent(1.0)]).deployment);
    assert!(w.judge(&[Percent(99.0), Percent(1.0)]).deployment);
    let step = w.fail();
    assert!(w.watch.status.as_ref().unwrap().ready, "ready once is ready");
    // A refused write is not retried, and is reported.
    assert!(!step.deployment);
    assert_eq!(
        (step.conditions[0].status, step.conditions[0].reason),
        (Some(false), "InvalidSpec")
    );
    // A new spec is tried again.
    w.watch.spec.placement = Placement::Preferred;
    assert!(w.judge(&[Percent(1.0); 2]).deployment);
}

#[test]
fn a_failed_request_holds_everything_and_reports_it_once() {
    let mut w = World::new(&["a", "b"], json!({}));
    w.judge(&[Percent(99.0), Percent(1.0)]);
    w.judge(&[Percent(99.0), Percent(1.0)]);
    assert_eq!(w.label("a"), Some("true"));
    let first = w.fail();
    assert_eq!((first.writes, first.states), (vec![], vec![Unknown, Unknown]));
    assert_eq!(first.conditions[1].reason, "PrometheusUnreachable");
    assert_eq!(first.conditions[1].status, Some(false));
    assert!(first.notices.contains(&"MetricsUnavailable"));
    assert!(w.node("a").unfit && !w.node("b").unfit, "unfit follows the label");
    assert_eq!(w.node("a").current_bandwidth_percent, "9.9e+01", "the last value stays");
    let step = w.judge(&[Percent(99.0), Percent(1.0)]);
    assert_eq!((step.writes, step.states), (vec![], vec![Unfit, Fit]));
}

#[test]
fn fewer_than_half_with_data_is_no_data() {
    let mut w = World::new(&["a", "b", "c", "d", "e"], json!({}));
    let says = |n| (0..5).map(|i| if i < n { Percent(99.0) } else { Nothing }).collect::<Vec<_>>();
    for n in [0, 1, 2] {
        let step = w.judge(&says(n));
        assert_eq!(step.states, [Unknown; 5]);
        let reason = if n == 0 { "NoSamples" } else { "LowCoverage" };
        assert_eq!(step.conditions[1].reason, reason);
    }
    assert_eq!(w.judge(&says(3)).conditions[1].reason, "Available");
}

#[test]
fn a_suppressed_node_is_marked_when_a_place_is_free() {
    let mut w = World::new(&["a", "b"], json!({}));
    w.judge(&[Percent(99.0), Percent(98.0)]);
    let step = w.judge(&[Percent(99.0), Percent(98.0)]);
    assert_eq!(step.states, [Unfit, Suppressed]);
    assert_eq!((w.label("a"), w.label("b")), (Some("true"), Some("false")));
    assert_eq!(step.conditions[2].reason, "LimitReached");
    // Worse than the marked one: the mark stays.
    assert_eq!(w.judge(&[Percent(70.0), Percent(99.0)]).writes, []);
    w.judge(&[Percent(1.0), Percent(98.0)]);
    let step = w.judge(&[Percent(1.0), Percent(98.0)]);
    assert_eq!(step.states, [Fit, Unfit]);
    assert_eq!((w.label("a"), w.label("b")), (Some("false"), Some("true")));
}

#[test]
fn values_alone_are_written_every_ten_minutes() {
    let mut w = World::new(&["a", "b"], json!({}));
    w.judge(&[Percent(1.0); 2]);
    w.judge(&[Percent(1.0); 2]);
    let mut writes = 0;
    for i in 0..600 {
        let before = w.watch.status.clone();
        w.judge(&[Percent(2.0 + f64::from(i) / 100.0), Percent(1.0)]);
        writes += u32::from(before != w.watch.status);
    }
    // 6,000 s at one judgment per 10 s.
    assert!((9..=11).contains(&writes), "{writes}");
}

/// For how long evidence has stayed away changes at every judgment; where nothing has any, the
/// clock stands, and there is nothing to refresh.
#[test]
fn a_status_without_evidence_is_refreshed_every_ten_minutes_too() {
    for says in [Old, NoSpeed] {
        for (all, expected) in [([says, Percent(1.0)], 9..=11), ([says; 2], 1..=1)] {
            let mut w = World::new(&["a", "b"], json!({}));
            let mut writes = 0;
            for _ in 0..600 {
                let before = w.watch.status.clone();
                w.judge(&all);
                writes += u32::from(before != w.watch.status);
            }
            assert!(expected.contains(&writes), "{all:?}: {writes}");
        }
    }
}

/// A server's error message may differ every time (VictoriaMetrics#1914).
#[test]
fn a_text_that_changes_every_time_is_written_once_a_minute() {
    let mut w = World::new(&["a", "b"], json!({}));
    let (mut texts, mut last) = (0, String::new());
    for i in 0..60 {
        w.next();
        let error = QueryError::new(Class::QueryFailed, format!("at {i}"));
        let step = w.pass(vec![Err(error)]);
        texts += u32::from(step.conditions[1].message != last);
        last.clone_from(&step.conditions[1].message);
    }
    assert!((9..=12).contains(&texts), "{texts}");
}

#[test]
fn the_time_of_the_last_evaluation_stands_while_there_is_no_evidence_and_no_node() {
    let mut w = World::new(&["a", "b"], json!({}));
    let time = |w: &World| w.watch.status.as_ref().unwrap().last_evaluation_time.clone();
    for _ in 0..60 {
        w.judge(&[Old; 2]);
    }
    assert_eq!(time(&w), None);
    w.judge(&[Percent(1.0); 2]);
    let first = time(&w);
    assert!(first.is_some());
    for _ in 0..61 {
        w.judge(&[Percent(1.0); 2]);
    }
    let last = time(&w);
    assert!(last > first, "{last:?}");
    for _ in 0..60 {
        w.judge(&[Old; 2]);
        w.judge(&[]);
    }
    assert_eq!(time(&w), last);
}

#[test]
fn a_restart_remembers_who_was_suppressed() {
    let mut w = World::new(&["a", "b"], json!({}));
    w.judge(&[Percent(99.0), Percent(98.0)]);
    w.judge(&[Percent(99.0), Percent(98.0)]);
    w.restart();
    let step = w.judge(&[Percent(99.0), Percent(98.0)]);
    assert_eq!((step.states, step.writes), (vec![Unfit, Suppressed], vec![]));
    assert_eq!(step.conditions[2].reason, "LimitReached");
}

#[test]
fn above_a_hundred_nodes_what_needs_attention_is_listed() {
    let names: Vec<_> = (0..150).map(|i| format!("n{i:03}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut w = World::new(&names, json!({}));
    let says: Vec<_> = (0..150)
        .map(|i| match i {
            140..145 => Percent(99.0),
            145.. => Nothing,
            _ => Percent(1.0),
        })
        .collect();
    w.judge(&says);
    w.judge(&says);
    let status = w.watch.status.as_ref().unwrap();
    assert_eq!(status.nodes.len(), 100);
    assert!(status.nodes_truncated);
    let summary = Summary { nodes: 150, fit: 140, unfit: 5, unknown: 5, suppressed: 0, marked: 5 };
    assert_eq!(status.summary, Some(summary));
    for i in 140..150 {
        assert!(status.nodes.contains_key(&format!("n{i}")));
    }
}

/// An object may have 1.5 MiB, the author's Deployment among them.
#[test]
fn the_status_of_ten_thousand_nodes_with_the_longest_names_stays_small() {
    let names: Vec<_> = (0..10_000).map(|i| format!("n{i:0>252}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let criterion = |i| json!({"name": format!("c{i:0>62}"), "query": "x", "max": 10});
    let criteria: Vec<_> = (0..10).map(criterion).collect();
    let at_once = json!({"fit": 1, "unfit": 1});
    let spec = json!({"maxBandwidthPercent": "60", "criteria": criteria, "consecutive": at_once});
    let mut w = World::new(&names, spec);
    let says: Vec<_> =
        (0..10_000).map(|i| if i % 10 < 6 { Percent(99.0) } else { Percent(1.0) }).collect();
    let all = vec![Some(says.as_slice()); 11];
    let step = w.judge_all(&all);
    let status = w.watch.status.as_ref().unwrap();
    let summary = Summary {
        nodes: 10_000,
        fit: 4000,
        unfit: 5000,
        unknown: 0,
        suppressed: 1000,
        marked: 5000,
    };
    assert_eq!((status.summary, status.nodes.len()), (Some(summary), 100));
    assert!(status.nodes_truncated && status.nodes.values().all(|node| node.unfit));
    let size = serde_json::to_string(status).unwrap().len();
    assert!(size < 300 << 10, "{size} bytes");
    let messages: usize = step.conditions.iter().map(|c| c.message.len()).sum();
    assert!(messages < 4096, "{messages} bytes");
    let limited = step.conditions.iter().find(|c| c.type_ == "PlacementLimited").unwrap();
    assert!(limited.message.contains("at most 5000 of 10000"), "{}", limited.message);
    assert!(step.notices.len() < 50, "{} events", step.notices.len());
}

#[test]
fn a_node_that_loses_its_evidence_is_reported_once_and_by_name() {
    let mut w = World::new(&["a", "b", "c"], json!({}));
    let all = |a| [a, Percent(1.0), Percent(1.0)];
    assert_eq!(w.judge(&all(Percent(1.0))).notices, <[&str; 0]>::default());
    assert_eq!(w.judge(&all(Nothing)).notices, ["NodeUnknown"]);
    assert_eq!(w.judge(&all(Nothing)).notices, <[&str; 0]>::default());
    // If everything is unknown, one event reports the measurement instead of each node.
    assert_eq!(w.fail().notices, ["MetricsUnavailable"]);
}

#[test]
fn a_mass_flip_is_reported_in_a_few_events() {
    let names: Vec<_> = (0..100).map(|i| format!("n{i:03}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut w = World::new(&names, json!({}));
    let says: Vec<_> = (0..100).map(|i| Percent(if i < 40 { 99.0 } else { 1.0 })).collect();
    w.judge(&says);
    let step = w.judge(&says);
    assert_eq!(step.writes.len(), 40);
    assert_eq!(step.notices, ["NodeUnfit"; 11]);
}

#[test]
fn observe_remembers_in_its_status() {
    let mut w = World::new(&["a", "b"], json!({"mode": "Observe"}));
    w.judge(&[Percent(99.0), Percent(1.0)]);
    let step = w.judge(&[Percent(99.0), Percent(1.0)]);
    assert_eq!((step.writes, step.states), (vec![], vec![Unfit, Fit]));
    assert!(step.notices.contains(&"NodeUnfit"));
    w.restart();
    // In the band: fit without memory, unfit with memory.
    assert_eq!(w.judge(&[Percent(57.0), Percent(1.0)]).states, [Unfit, Fit]);
}

#[test]
fn paused_decides_nothing() {
    let mut w = World::new(&["a", "b"], json!({"paused": true}));
    let says = [Percent(99.0), Percent(1.0)];
    let plan = plan(&w.watch, &w.observed(vec![Ok(w.reading(&says))])).unwrap();
    assert_eq!((plan.desired.nodes, plan.desired.memory), (vec![], None));
    assert_eq!(plan.conditions[0].reason, "Paused");
    w.watch.spec.paused = false;
    w.judge(&says);
}

fn carrier(node: &str, key: &str) -> Carrier {
    let incarnation = Incarnation::default();
    Carrier { node: node.into(), key: key.into(), label: true, taint: true, incarnation }
}

#[test]
fn a_node_taken_from_the_selection_loses_its_label() {
    let w = World::new(&["a", "b"], json!({}));
    let mut observed = w.observed(vec![Ok(w.reading(&[Percent(99.0); 2]))]);
    observed.strays = vec![carrier("gone", KEY)];
    let plan = plan(&w.watch, &observed).unwrap();
    assert_eq!(plan.desired.nodes, [NodeWrite::removal(carrier("gone", KEY))]);
}

/// Of an object whose label changed while that was allowed.
#[test]
fn a_former_key_is_removed_and_published_until_no_node_has_it() {
    let mut w = World::new(&["a", "b"], json!({}));
    let former = "former.traffic.example.com/unfit";
    w.watch.status = Some(TrafficWatchStatus { label: Some(former.into()), ..Default::default() });
    let mut pass = |nodes: bool, strays: Vec<Carrier>| {
        let mut observed = w.observed(vec![Ok(w.reading(&[Percent(99.0); 2]))]);
        observed.strays = strays;
        if !nodes {
            observed.nodes = Arc::default();
        }
        let plan = plan(&w.watch, &observed).unwrap();
        w.watch.status = Some(plan.status.clone());
        (plan.desired.nodes, plan.status.label.unwrap())
    };
    assert_eq!(pass(false, vec![]).1, former, "an empty selection freezes");
    // The removal fails, and fails again.
    for _ in 0..2 {
        let (writes, published) = pass(true, vec![carrier("a", former)]);
        assert_eq!((writes, &*published), (vec![NodeWrite::removal(carrier("a", former))], former));
    }
    assert_eq!(pass(true, vec![carrier("gone", KEY)]).1, KEY);
}
