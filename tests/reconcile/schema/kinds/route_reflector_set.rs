//! `RouteReflectorSet`: its rules, and how to keep them.
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Kind, Rule, drop_nulls, read, within};
use crate::schema::forms::Dice;

pub static KIND: Kind = Kind {
    name: "RouteReflectorSet",
    rules: RULES,
    longest_name: Some(63),
    repair,
    read: read::<traffic_operator::api::RouteReflectorSet>,
    plain: || json!({"transition": {"gate": "Wait"}}),
    keep: |_| {},
    kept: &[],
};

const RULES: &[Rule] = &[
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
    (
        "spec.mesh: Retire switches the mesh off, and deletionPolicy RestoreMesh",
        || json!([{"mesh": "Retire", "deletionPolicy": "RestoreMesh"}]),
    ),
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
    if text(spec, "mesh") == "Retire" && text(spec, "deletionPolicy") == "RestoreMesh" {
        spec.remove("deletionPolicy");
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
