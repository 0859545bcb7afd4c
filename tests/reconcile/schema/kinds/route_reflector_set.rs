//! `RouteReflectorSet`: its text fields, its rules, and how to keep them.
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Kind, Rule, drop_nulls, read, within};
use crate::schema::forms::{Dice, Form, duration, key, not_duration, query, zone};

pub static KIND: Kind = Kind {
    name: "RouteReflectorSet",
    forms: FORMS,
    rules: RULES,
    repair,
    read: read::<traffic_operator::api::RouteReflectorSet>,
    plain: || json!({"transition": {"gate": "Wait"}}),
    keep: |_| {},
    kept: &[],
};

const FORMS: &[Form] = &[
    Form {
        path: "candidates.demoteAfter",
        good: |dice| duration(dice, 0),
        bad: || not_duration("169h", "-1s"),
    },
    Form {
        path: "candidates.replaceAfter",
        good: |dice| duration(dice, 0),
        bad: || not_duration("169h", "-1s"),
    },
    Form {
        path: "candidates.fitnessRef.name",
        good: |dice| json!(dice.one(&["web", "a.b"])),
        bad: || json!(["Upper", "a_b", "-a", "a/b"]),
    },
    Form {
        path: "candidates.fitnessRef.namespace",
        good: |dice| json!(dice.one(&["default", "team-a"])),
        bad: || json!(["Upper", "a.b", "-a", "a/b"]),
    },
    Form { path: "candidates.forbidden.matchLabels{}", good: zone, bad: none },
    Form { path: "candidates.forbidden.matchExpressions[].key", good: key, bad: none },
    Form { path: "candidates.forbidden.matchExpressions[].operator", good: operator, bad: none },
    Form { path: "candidates.forbidden.matchExpressions[].values[]", good: zone, bad: none },
    Form { path: "candidates.nodeSelector.matchLabels{}", good: zone, bad: none },
    Form { path: "candidates.nodeSelector.matchExpressions[].key", good: key, bad: none },
    Form { path: "candidates.nodeSelector.matchExpressions[].operator", good: operator, bad: none },
    Form { path: "candidates.nodeSelector.matchExpressions[].values[]", good: zone, bad: none },
    Form { path: "candidates.preferred.matchLabels{}", good: zone, bad: none },
    Form { path: "candidates.preferred.matchExpressions[].key", good: key, bad: none },
    Form { path: "candidates.preferred.matchExpressions[].operator", good: operator, bad: none },
    Form { path: "candidates.preferred.matchExpressions[].values[]", good: zone, bad: none },
    Form {
        path: "candidates.tolerations[].effect",
        good: |dice| json!(dice.one(&["", "NoSchedule", "NoExecute"])),
        bad: none,
    },
    Form { path: "candidates.tolerations[].key", good: zone, bad: none },
    Form {
        path: "candidates.tolerations[].operator",
        good: |dice| json!(dice.one(&["Exists", "Equal"])),
        bad: none,
    },
    Form { path: "candidates.tolerations[].value", good: zone, bad: none },
    Form {
        path: "clusterID.pool",
        good: |dice| json!(dice.one(&["224.0.0.0/16", "10.0.0.0/24", "1.2.3.4", "224.0.0.0/8"])),
        bad: || json!(["224.0.0.256", "fd00::/64", "224.0.0.0/33", "no address"]),
    },
    Form {
        path: "count.ratio",
        good: |dice| json!(dice.one(&["0.005", ".01", "1", "0.5", "1.0"])),
        bad: || json!(["0", "0.000", "2", "-0.1", "1.1", "a few", "5e-3"]),
    },
    // Nothing listens there.
    Form {
        path: "datastore.etcd.endpoints[]",
        good: |dice| json!(dice.one(&["http://127.0.0.1:1", "https://127.0.0.1:1"])),
        bad: none,
    },
    Form {
        path: "nodeLabel",
        good: |dice| json!(dice.one(&["calico-route-reflector", "rr=", "a.b/c=d", "rr"])),
        bad: || json!(["a b", "rr=a b", "a/b/c", "=x"]),
    },
    Form {
        path: "transition.prometheus",
        good: |dice| json!(dice.one(&["default", "no-such-endpoint"])),
        bad: || json!(["http://prometheus:9090", "Default", "a_b", "a.b", "-a"]),
    },
    Form { path: "transition.query", good: query, bad: none },
    Form { path: "transition.timeout", good: minutes, bad: || not_duration("25h", "59s") },
    Form { path: "transition.wait", good: minutes, bad: || not_duration("25h", "59s") },
    Form {
        path: "zoneLabel",
        good: |dice| json!(dice.one(&["topology.kubernetes.io/zone", "zone"])),
        bad: || json!(["a/b/c", "a b", "-"]),
    },
];

fn none() -> Value {
    json!([])
}

fn operator(dice: &mut Dice) -> Value {
    json!(dice.one(&["In", "NotIn", "Exists", "DoesNotExist", "Near"]))
}

fn minutes(dice: &mut Dice) -> Value {
    json!(dice.one(&["60s", "5m", "1h2m3s", "24h", "90.5s"]))
}

const RULES: &[Rule] = &[
    ("metadata.name: at most 63", None),
    (
        "spec.peersPerClient: applies only",
        Some(|spec| {
            spec.insert("topology".into(), json!("Simple"));
            spec.insert("peersPerClient".into(), json!(5));
        }),
    ),
    (
        "spec.zoneLabel: required for topology Zonal",
        Some(|spec| {
            spec.insert("topology".into(), json!("Zonal"));
            spec.insert("zoneLabel".into(), json!(""));
        }),
    ),
    (
        "spec.zoneLabel: required for count.scope",
        Some(|spec| {
            spec.insert("count".into(), json!({"scope": "PerZone"}));
            spec.insert("zoneLabel".into(), json!(""));
        }),
    ),
    (
        "spec.clusterID.per: with topology Zonal",
        Some(|spec| {
            spec.insert("topology".into(), json!("Zonal"));
            spec.insert("clusterID".into(), json!({"per": "Set"}));
        }),
    ),
    (
        "spec.transition.gate: CalicoNodeStatus",
        Some(|spec| {
            let etcd = json!({"endpoints": ["http://127.0.0.1:1"]});
            spec.insert("datastore".into(), json!({"type": "etcd", "etcd": etcd}));
            spec.insert("transition".into(), json!({"gate": "NodeStatus"}));
        }),
    ),
    (
        "count.min: must not be greater",
        Some(|spec| drop(spec.insert("count".into(), json!({"min": 4, "max": 3})))),
    ),
    (
        "count.steps: each number",
        Some(|spec| {
            let steps = json!([{"nodes": 9, "count": 1}, {"nodes": 9, "count": 2}]);
            spec.insert("count".into(), json!({"steps": steps}));
        }),
    ),
    (
        "datastore.etcd: required",
        Some(|spec| drop(spec.insert("datastore".into(), json!({"type": "etcd"})))),
    ),
    (
        "datastore.etcd.endpoints must be URLs",
        Some(|spec| {
            let etcd = json!({"endpoints": ["127.0.0.1:2379"]});
            spec.insert("datastore".into(), json!({"type": "etcd", "etcd": etcd}));
        }),
    ),
    (
        "transition.query: applies only",
        Some(|spec| {
            spec.insert("transition".into(), json!({"gate": "Wait", "query": "x"}));
        }),
    ),
];

fn repair(spec: &mut Map<String, Value>, dice: &mut Dice) {
    drop_nulls(spec);
    let text = |spec: &Map<String, Value>, name: &str| {
        spec.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let topology = text(spec, "topology");
    if topology != "Multi" {
        spec.remove("peersPerClient");
    }
    if let Some(count) = within(spec, "count") {
        let number =
            |name: &str, default| count.get(name).and_then(Value::as_i64).unwrap_or(default);
        let (min, max) = (number("min", 3), number("max", 25));
        if min > max {
            count.insert("min".into(), json!(max));
        }
        let mut seen = BTreeSet::new();
        if let Some(steps) = count.get_mut("steps").and_then(Value::as_array_mut) {
            steps.retain(|step| seen.insert(step["nodes"].as_i64()));
        }
    }
    if let Some(id) = within(spec, "clusterID") {
        drop_nulls(id);
        if topology == "Zonal" && id.get("per").is_some_and(|per| per == "Set") {
            id.remove("per");
        }
    }
    let mut etcd = false;
    if let Some(datastore) = within(spec, "datastore") {
        drop_nulls(datastore);
        etcd = datastore.contains_key("etcd");
        let kind = if etcd { "etcd" } else { "Kubernetes" };
        datastore.insert("type".into(), json!(kind));
        if let Some(etcd) = within(datastore, "etcd") {
            drop_nulls(etcd);
            // Endpoints are stored with the credentials, or there are none.
            if etcd.contains_key("secretRef") && etcd.contains_key("endpoints") {
                etcd.remove(dice.one(&["secretRef", "endpoints"]));
            }
            if etcd.is_empty() {
                etcd.insert("endpoints".into(), json!(["http://127.0.0.1:1"]));
            }
        }
    }
    if let Some(transition) = within(spec, "transition") {
        drop_nulls(transition);
        if etcd && text(transition, "gate") == "NodeStatus" {
            transition.insert("gate".into(), json!("Wait"));
        }
        if !["", "Prometheus"].contains(&text(transition, "gate").as_str()) {
            transition.remove("query");
        }
    }
}
