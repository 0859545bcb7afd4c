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
];

fn repair(spec: &mut Map<String, Value>, dice: &mut Dice) {
    drop_nulls(spec);
    if has(spec, "neighbors") && has(spec, "neighbours") {
        spec.remove(dice.one(&["neighbors", "neighbours"]));
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
