//! `NetworkProber`: its text fields, its rules, and how to keep them.
use serde_json::{Map, Value, json};

use super::{Kind, Rule, drop_nulls, has, read, within};
use crate::schema::forms::{Dice, Form, key, not_duration, zone};

pub static KIND: Kind = Kind {
    name: "NetworkProber",
    forms: FORMS,
    rules: RULES,
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
    },
    Form {
        path: "delivery",
        good: |dice| json!(dice.one(&["Pull", "ConfigMap"])),
        bad: || json!(["Push", "pull", ""]),
    },
    Form {
        path: "httpPort",
        good: |dice| dice.one(&[json!(8080), json!("8080"), json!(9090), json!("80"), json!(1)]),
        bad: not_a_port,
    },
    Form {
        path: "httpPrometheusPort",
        good: |dice| dice.one(&[json!(2112), json!("2112"), json!("65535"), json!(9100)]),
        bad: not_a_port,
    },
    Form { path: "injection.resources.limits{}", good: amount, bad: || json!([]) },
    Form { path: "injection.resources.requests{}", good: amount, bad: || json!([]) },
    Form {
        path: "monitoring.interval",
        good: |dice| json!(dice.one(&["1s", "30s", "10m", "1.5m", "1m30s"])),
        bad: || not_duration("11m", "999ms"),
    },
    Form { path: "monitoring.labels{}", good: zone, bad: || json!([]) },
    Form { path: "namespaceSelector.matchLabels{}", good: zone, bad: || json!([]) },
    Form { path: "namespaceSelector.matchExpressions[].key", good: key, bad: || json!([]) },
    Form {
        path: "namespaceSelector.matchExpressions[].operator",
        good: operator,
        bad: || json!([]),
    },
    Form { path: "namespaceSelector.matchExpressions[].values[]", good: zone, bad: || json!([]) },
    Form { path: "podSelector.matchLabels{}", good: zone, bad: || json!([]) },
    Form { path: "podSelector.matchExpressions[].key", good: key, bad: || json!([]) },
    Form { path: "podSelector.matchExpressions[].operator", good: operator, bad: || json!([]) },
    Form { path: "podSelector.matchExpressions[].values[]", good: zone, bad: || json!([]) },
    // Longer than each timeout.
    Form {
        path: "pollingPeriod",
        good: |dice| json!(dice.one(&["10s", "1m", "30.5s", "1h", "2m3s"])),
        bad: || not_duration("61m", "99ms"),
    },
    Form {
        path: "timeout",
        good: |dice| json!(dice.one(&["1s", "500ms", "1ms", "9.5s"])),
        bad: || not_duration("61m", "999us"),
    },
];

fn operator(dice: &mut Dice) -> Value {
    json!(dice.one(&["In", "NotIn", "Exists", "DoesNotExist", "Near"]))
}

fn amount(dice: &mut Dice) -> Value {
    dice.one(&[json!("64Mi"), json!("100m"), json!(1), json!("1"), json!("0.5")])
}

fn not_a_port() -> Value {
    json!(["http", 0, -1, 65_536, "65536", "08", "-1", "", " 80", "8080/tcp"])
}

fn daemon_set(spec: &mut Map<String, Value>) {
    spec.remove("selectAll");
    spec.remove("namespaceSelector");
    spec.insert("mode".into(), json!("DaemonSet"));
    spec.insert("podSelector".into(), json!({"matchLabels": {"app": "a"}}));
}

const RULES: &[Rule] = &[
    ("metadata.name: at most", None),
    (
        "spec.podSelector: an empty selector",
        Some(|spec| {
            spec.remove("selectAll");
            spec.remove("mode");
            spec.insert("podSelector".into(), json!({}));
        }),
    ),
    (
        "spec.selectAll: cannot be combined",
        Some(|spec| {
            spec.remove("mode");
            spec.insert("selectAll".into(), json!(true));
            spec.insert("podSelector".into(), json!({"matchLabels": {"app": "a"}}));
        }),
    ),
    (
        "spec.podSelector: in mode DaemonSet",
        Some(|spec| {
            daemon_set(spec);
            let expressions = json!([{"key": "app", "operator": "Exists"}]);
            spec.insert("podSelector".into(), json!({"matchExpressions": expressions}));
        }),
    ),
    (
        "spec.namespaceSelector: the DaemonSet",
        Some(|spec| {
            daemon_set(spec);
            spec.insert("namespaceSelector".into(), json!({}));
        }),
    ),
    (
        "spec.httpPrometheusPort: must differ",
        Some(|spec| {
            spec.insert("httpPort".into(), json!("8081"));
            spec.insert("httpPrometheusPort".into(), json!(8081));
        }),
    ),
    (
        "spec.timeout: must not be longer",
        Some(|spec| {
            spec.insert("pollingPeriod".into(), json!("1s"));
            spec.insert("timeout".into(), json!("1.001s"));
        }),
    ),
];

fn repair(spec: &mut Map<String, Value>, dice: &mut Dice) {
    drop_nulls(spec);
    if has(spec, "neighbors") && has(spec, "neighbours") {
        spec.remove(dice.one(&["neighbors", "neighbours"]));
    }
    if spec.get("mode").is_some_and(|mode| mode == "DaemonSet") {
        daemon_set(spec);
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
