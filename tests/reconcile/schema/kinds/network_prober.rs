//! `NetworkProber`: its rules, and how to keep them.
use serde_json::{Map, Value, json};

use super::{Kind, Rule, drop_nulls, has, read, within};
use crate::schema::forms::Dice;

pub static KIND: Kind = Kind {
    name: "NetworkProber",
    rules: RULES,
    longest_name: Some(160),
    repair,
    read: read::<traffic_operator::api::NetworkProber>,
    plain: || json!({"podSelector": {"matchLabels": {"app": "a"}}}),
    keep: |_| {},
    kept: &["podSelector"],
};

const RULES: &[Rule] = &[
    ("spec.podSelector: an empty selector selects every pod", || {
        // A merge empties a map by its keys.
        let none = json!({"app": null, "kubernetes.io/os": null, "größe/ß": null, "zone": null});
        let empty = [Value::Null, none].map(|labels| {
            let selector = json!({"matchLabels": labels, "matchExpressions": null});
            json!({"selectAll": null, "mode": null, "podSelector": selector})
        });
        json!(empty)
    }),
    (
        "spec.selectAll: cannot be combined with a selector",
        || json!([{"mode": null, "selectAll": true, "podSelector": {"matchLabels": {"app": "a"}}}]),
    ),
    (
        "spec.podSelector: in mode DaemonSet the agents' pods get these labels, so it needs matchLabels alone",
        || {
            let expressions = json!([{"key": "app", "operator": "Exists"}]);
            json!([{"mode": "DaemonSet", "podSelector": {"matchExpressions": expressions}}])
        },
    ),
    (
        "spec.namespaceSelector: the DaemonSet of mode DaemonSet runs in the namespace of this object",
        || json!([{"mode": "DaemonSet", "namespaceSelector": {}}]),
    ),
    ("spec.httpPrometheusPort: must differ from spec.httpPort", || {
        json!([
            {"httpPort": "8081", "httpPrometheusPort": 8081},
            {"httpPort": "22112", "httpPrometheusPort": null},
        ])
    }),
    (
        "spec.timeout: must not be longer than spec.pollingPeriod",
        || json!([{"pollingPeriod": "1s", "timeout": "1.001s"}]),
    ),
    ("exactly one of dns, service, url and apiServer is needed", || {
        let both = json!({"name": "a", "dns": "a", "url": "http://a/"});
        json!([{"targets": [{"name": "a"}]}, {"targets": [both]}])
    }),
    ("apiServer must be true", || json!([{"targets": [{"name": "a", "apiServer": false}]}])),
];

fn repair(spec: &mut Map<String, Value>, dice: &mut Dice) {
    drop_nulls(spec);
    if has(spec, "neighbors") && has(spec, "neighbours") {
        spec.remove(dice.one(&["neighbors", "neighbours"]));
    }
    for target in spec.get_mut("targets").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(target) = target.as_object_mut() else { continue };
        drop_nulls(target);
        let mut kinds = ["dns", "service", "url", "apiServer"].map(str::to_owned).to_vec();
        kinds.retain(|kind| target.contains_key(kind));
        let kept = if kinds.is_empty() { "apiServer".to_owned() } else { dice.one(&kinds) };
        target.retain(|field, _| field == "name" || *field == kept);
        if kept == "apiServer" {
            target.insert(kept, json!(true));
        }
    }
    if spec.get("mode").is_some_and(|mode| mode == "DaemonSet") {
        spec.remove("selectAll");
        spec.remove("namespaceSelector");
        spec.insert("podSelector".into(), json!({"matchLabels": {"app": "a"}}));
        return;
    }
    if spec.get("selectAll").is_some_and(|all| all == true) {
        spec.insert("podSelector".into(), json!({}));
        return;
    }
    let Some(selector) = within(spec, "podSelector") else { return };
    let is_empty = |value: &Value| {
        value.as_object().is_none_or(Map::is_empty) && value.as_array().is_none_or(Vec::is_empty)
    };
    if selector.values().all(is_empty) {
        selector.insert("matchLabels".into(), json!({"app": "a"}));
    }
}
