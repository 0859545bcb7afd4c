//! Tables of what is reported where no node was judged.
use super::*;
use crate::controller::verdict;

fn evaluation(metrics: (&'static str, &str), value: Option<f64>) -> Evaluation {
    let node = serde_json::from_value(serde_json::json!({
        "name": "node-1", "state": "Fit", "reason": null, "since": "2026-01-01T00:00:00Z",
        "unfit": false, "ageSeconds": null, "values": [{"measure": "bandwidth", "value": value,
            "device": null, "unfit": null, "streak": 0, "needed": 2, "reason": null}]
    }));
    Evaluation {
        watch: "default/web".into(),
        measures: vec![],
        consecutive: Consecutive::default(),
        limit: 0,
        room: 1,
        nodes: vec![node.unwrap()],
        conditions: vec![Condition {
            type_: "MetricsAvailable".into(),
            status: metrics.0,
            reason: metrics.1.into(),
            message: "why".into(),
        }],
        warnings: vec![],
        offers: None,
    }
}

#[test]
fn a_judgment_of_no_node_is_a_failure_with_its_reason() {
    let low = ("False", "LowCoverage");
    for (metrics, value, expected) in [
        (("True", "Available"), Some(1.0), None),
        // One measure of two has evidence.
        (low, Some(1.0), None),
        (low, None, Some("LowCoverage: why")),
        (("Unknown", "NoNodes"), None, Some("NoNodes: why")),
        // For example, no link has a speed.
        (("True", "Available"), None, Some("no node has evidence")),
    ] {
        let failure = evaluation(metrics, value).failure();
        assert_eq!(failure.as_deref(), expected, "{metrics:?} {value:?}");
    }
    let none = Evaluation { nodes: vec![], ..evaluation(low, Some(1.0)) };
    assert_eq!(none.failure().as_deref(), Some("LowCoverage: why"));
}

#[test]
fn series_that_name_no_node_are_not_blamed_on_the_selector() {
    let of = |failed: Option<&QueryError>| {
        let mut conditions = vec![
            verdict("Ready", Some(false), "NoNodes", "no node matches"),
            verdict("MetricsAvailable", None, "NoNodes", "there is no node to query"),
            verdict("PlacementLimited", Some(false), "WithinLimits", ""),
        ];
        blame_series(&mut conditions, failed);
        conditions
    };
    let limited = verdict("PlacementLimited", Some(false), "WithinLimits", "");
    let error = QueryError::new(Class::Timeout, "no answer");
    for (failed, reason, message) in [
        (None, "NoSamples", "no series names a node"),
        (Some(&error), "PrometheusTimeout", "no answer"),
    ] {
        let ready = verdict("Ready", Some(false), reason, message);
        let metrics = verdict("MetricsAvailable", Some(false), reason, message);
        assert_eq!(of(failed), [ready, metrics, limited.clone()]);
    }
}

#[test]
fn an_older_object_with_the_label_and_one_above_the_limit_are_named() {
    let now = "2026-06-01T00:00:00Z".parse().unwrap();
    let watch = |name: &str, created: Option<&str>, label: Option<&str>| -> TrafficWatch {
        let metadata = serde_json::json!({
            "namespace": "shop", "name": name, "creationTimestamp": created
        });
        let spec = serde_json::json!({"maxBandwidthPercent": "60", "label": label});
        serde_json::from_value(serde_json::json!({"metadata": metadata, "spec": spec})).unwrap()
    };
    let created = Some("2026-01-01T00:00:00Z");
    let all: Vec<_> =
        (0..Quota::PER_NAMESPACE).map(|i| watch(&format!("web-{i}"), created, None)).collect();
    let said = |watch: &TrafficWatch, all: &[TrafficWatch]| in_excess(watch, all, now);
    let new = said(&watch("new", None, None), &all).unwrap();
    assert!(new.starts_with("TooMany: 16 older TrafficWatches of this namespace"), "{new}");
    assert_eq!(said(&watch("new", None, None), &all[1..]), None);
    // The cluster has it already, and it is as old as the others.
    assert_eq!(said(&watch("web-3", None, None), &all), None);
    let taken = said(&watch("new", None, Some("web-0")), &all[..1]);
    let key = all[0].label_key();
    let expected = format!("Conflict: {key} belongs to the older shop/web-0; set spec.label");
    assert_eq!(taken, Some(expected));
}
