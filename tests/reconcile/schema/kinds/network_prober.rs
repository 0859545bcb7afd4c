//! `NetworkProber`: its text fields, its rules, and how to keep them.
use serde_json::{Map, Value, json};

use super::{Kind, Rule, drop_nulls, has, nothing, read, within};
use crate::schema::forms::{Dice, Form, free, key, not_duration, operator, zone};

pub static KIND: Kind = Kind {
    name: "NetworkProber",
    forms: FORMS,
    rules: RULES,
    bounds: &[
        ("injection.runAsUser", 1, i32::MAX as i64),
        ("neighbors.inZone", 0, 100),
        ("neighbors.perOtherZone", 0, 100),
        ("neighbours.inZone", 0, 100),
        ("neighbours.perOtherZone", 0, 100),
    ],
    longest_name: Some(160),
    repair,
    read: read::<traffic_operator::api::NetworkProber>,
    plain: || json!({"podSelector": {"matchLabels": {"app": "a"}}}),
    keep: |_| {},
    kept: &["podSelector"],
};

const FORMS: &[Form] = &[
    Form {
        path: "agentImage",
        good: |dice| json!(dice.one(&["registry.example.com/agent:1", "a@sha256:0", "agent"])),
        bad: || json!(["a b", "a\tb", "a\n"]),
        fix: "agentImage must be an image reference without blanks",
    },
    Form {
        path: "delivery",
        good: |dice| json!(dice.one(&["Pull", "ConfigMap"])),
        bad: || json!(["Push", "pull", ""]),
        fix: "delivery must be Pull or ConfigMap",
    },
    Form {
        path: "httpPort",
        good: |dice| dice.one(&[json!(8080), json!("8080"), json!(9090), json!("80"), json!(1)]),
        bad: not_a_port,
        fix: "httpPort must be a port from 1 to 65535",
    },
    Form {
        path: "httpPrometheusPort",
        good: |dice| dice.one(&[json!(2112), json!("2112"), json!("65535"), json!(9100)]),
        bad: not_a_port,
        fix: "httpPrometheusPort must be a port from 1 to 65535",
    },
    free("injection.resources.limits{}", amount),
    free("injection.resources.requests{}", amount),
    Form {
        path: "monitoring.interval",
        good: |dice| json!(dice.one(&["1s", "30s", "10m", "1.5m", "1m30s"])),
        bad: || not_duration("11m", "999ms"),
        fix: "interval must be a duration from 1s to 10m",
    },
    free("monitoring.labels{}", zone),
    free("namespaceSelector.matchLabels{}", zone),
    free("namespaceSelector.matchExpressions[].key", key),
    free("namespaceSelector.matchExpressions[].operator", operator),
    free("namespaceSelector.matchExpressions[].values[]", zone),
    free("podSelector.matchLabels{}", zone),
    free("podSelector.matchExpressions[].key", key),
    free("podSelector.matchExpressions[].operator", operator),
    free("podSelector.matchExpressions[].values[]", zone),
    // Longer than each timeout.
    Form {
        path: "pollingPeriod",
        good: |dice| json!(dice.one(&["10s", "1m", "30.5s", "1h", "2m3s"])),
        bad: || not_duration("61m", "99ms"),
        fix: "pollingPeriod must be a duration from 100ms to 1h",
    },
    Form {
        path: "timeout",
        good: |dice| json!(dice.one(&["1s", "500ms", "1ms", "9.5s"])),
        bad: || not_duration("61m", "999us"),
        fix: "timeout must be a duration from 1ms to 1h",
    },
];

fn amount(dice: &mut Dice) -> Value {
    dice.one(&[json!("64Mi"), json!("100m"), json!(1), json!("1"), json!("0.5")])
}

fn not_a_port() -> Value {
    json!(["http", 0, -1, 65_536, "65536", "08", "-1", "", " 80", "8080/tcp"])
}

const RULES: &[Rule] = &[
    ("metadata.name: at most 160 characters", nothing),
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
