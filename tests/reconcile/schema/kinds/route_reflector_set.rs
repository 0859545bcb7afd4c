//! `RouteReflectorSet`: its text fields, its rules, and how to keep them.
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Kind, Rule, drop_nulls, nothing, read, within};
use crate::schema::forms::{Dice, Form, duration, free, key, not_duration, operator, query, zone};

pub static KIND: Kind = Kind {
    name: "RouteReflectorSet",
    forms: FORMS,
    rules: RULES,
    bounds: &[
        ("count.max", 1, 50),
        ("count.min", 1, 50),
        ("count.steps[].count", 1, 50),
        ("count.steps[].nodes", 1, 100_000),
        ("peersPerClient", 2, 10),
        ("transition.maxPerZone", 1, 25),
    ],
    longest_name: Some(63),
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
        bad: || not_duration("169h", "-1ns"),
        fix: "candidates.demoteAfter must be a duration of at most 168h",
    },
    Form {
        path: "candidates.replaceAfter",
        good: |dice| duration(dice, 0),
        bad: || not_duration("169h", "-1ns"),
        fix: "candidates.replaceAfter must be a duration of at most 168h",
    },
    Form {
        path: "candidates.fitnessRef.name",
        good: |dice| json!(dice.one(&["web", "a.b"])),
        bad: || json!(["Upper", "a_b", "-a", "a/b"]),
        fix: "fitnessRef.name must be the name of a TrafficWatch",
    },
    Form {
        path: "candidates.fitnessRef.namespace",
        good: |dice| json!(dice.one(&["default", "team-a"])),
        bad: || json!(["Upper", "a.b", "-a", "a/b"]),
        fix: "fitnessRef.namespace must be the name of a namespace",
    },
    free("candidates.forbidden.matchLabels{}", zone),
    free("candidates.forbidden.matchExpressions[].key", key),
    free("candidates.forbidden.matchExpressions[].operator", operator),
    free("candidates.forbidden.matchExpressions[].values[]", zone),
    free("candidates.nodeSelector.matchLabels{}", zone),
    free("candidates.nodeSelector.matchExpressions[].key", key),
    free("candidates.nodeSelector.matchExpressions[].operator", operator),
    free("candidates.nodeSelector.matchExpressions[].values[]", zone),
    free("candidates.preferred.matchLabels{}", zone),
    free("candidates.preferred.matchExpressions[].key", key),
    free("candidates.preferred.matchExpressions[].operator", operator),
    free("candidates.preferred.matchExpressions[].values[]", zone),
    free("candidates.tolerations[].effect", |dice| {
        json!(dice.one(&["", "NoSchedule", "NoExecute"]))
    }),
    free("candidates.tolerations[].key", zone),
    free("candidates.tolerations[].operator", |dice| json!(dice.one(&["Exists", "Equal"]))),
    free("candidates.tolerations[].value", zone),
    Form {
        path: "clusterID.pool",
        good: |dice| json!(dice.one(&["224.0.0.0/16", "10.0.0.0/24", "1.2.3.4", "224.0.0.0/8"])),
        bad: || json!(["224.0.0.256", "fd00::/64", "224.0.0.0/33", "no address"]),
        fix: "clusterID.pool must be an IPv4 range or address",
    },
    Form {
        path: "count.ratio",
        good: |dice| json!(dice.one(&["0.005", ".01", "1", "0.5", "1.0"])),
        bad: || json!(["0", "0.000", "2", "-0.1", "1.1", "a few", "5e-3"]),
        fix: "count.ratio must be a decimal above 0 and at most 1",
    },
    // Nothing listens there.
    free("datastore.etcd.endpoints[]", |dice| {
        json!(dice.one(&["http://127.0.0.1:1", "https://127.0.0.1:1"]))
    }),
    Form {
        path: "nodeLabel",
        good: |dice| json!(dice.one(&["calico-route-reflector", "rr=", "a.b/c=d", "rr"])),
        bad: || json!(["a b", "rr=a b", "a/b/c", "=x"]),
        fix: "nodeLabel must be a label key, or key=value",
    },
    Form {
        path: "transition.prometheus",
        good: |dice| json!(dice.one(&["default", "no-such-endpoint"])),
        bad: || json!(["http://prometheus:9090", "Default", "a_b", "a.b", "-a"]),
        fix: "must be the name of an endpoint of the operator's configuration (a DNS label), not a URL",
    },
    free("transition.query", query),
    Form {
        path: "transition.timeout",
        good: minutes,
        bad: || not_duration("25h", "59s"),
        fix: "transition.timeout must be a duration from 60s to 24h",
    },
    Form {
        path: "transition.wait",
        good: minutes,
        bad: || not_duration("25h", "59s"),
        fix: "transition.wait must be a duration from 60s to 24h",
    },
    Form {
        path: "zoneLabel",
        good: |dice| json!(dice.one(&["topology.kubernetes.io/zone", "zone"])),
        bad: || json!(["a/b/c", "a b", "-"]),
        fix: "zoneLabel must be a label key",
    },
];

fn minutes(dice: &mut Dice) -> Value {
    json!(dice.one(&["60s", "5m", "1h2m3s", "24h", "90.5s"]))
}

const RULES: &[Rule] = &[
    ("metadata.name: at most 63 characters", nothing),
    (
        "spec.peersPerClient: applies only to topology Multi",
        || json!([{"topology": "Simple", "peersPerClient": 5}, {"topology": null, "peersPerClient": 2}]),
    ),
    (
        "spec.zoneLabel: required for topology Zonal",
        || json!([{"topology": "Zonal", "zoneLabel": ""}]),
    ),
    (
        "spec.zoneLabel: required for count.scope PerZone",
        || json!([{"count": {"scope": "PerZone"}, "zoneLabel": ""}]),
    ),
    (
        "spec.clusterID.per: with topology Zonal and one id for all, reflectors drop the routes of other zones; use Zone",
        || json!([{"topology": "Zonal", "clusterID": {"per": "Set"}}]),
    ),
    ("spec.transition.gate: CalicoNodeStatus does not exist with datastore etcd", || {
        let datastore = json!({"type": "etcd", "etcd": etcd("http://127.0.0.1:1")});
        json!([{"datastore": datastore, "transition": {"gate": "NodeStatus"}}])
    }),
    ("count.min: must not be greater than count.max", || json!([{"count": {"min": 4, "max": 3}}])),
    (
        "count.steps: each number of nodes may appear only once",
        || json!([{"count": {"steps": [{"nodes": 9, "count": 1}, {"nodes": 9, "count": 2}]}}]),
    ),
    ("datastore.etcd: required with type etcd, and allowed only then", || {
        json!([
            {"datastore": {"type": "etcd", "etcd": null}},
            {"datastore": {"type": "Kubernetes", "etcd": etcd("http://127.0.0.1:1")}},
        ])
    }),
    (
        "datastore.etcd.endpoints must be URLs",
        || json!([{"datastore": {"type": "etcd", "etcd": etcd("127.0.0.1:2379")}}]),
    ),
    (
        "transition.query: applies only to gate Prometheus",
        || json!([{"transition": {"gate": "Wait", "query": "x"}}]),
    ),
];

fn etcd(endpoint: &str) -> Value {
    json!({"endpoints": [endpoint], "secretRef": null})
}

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
