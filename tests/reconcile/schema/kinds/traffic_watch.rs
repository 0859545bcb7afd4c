//! `TrafficWatch`: its rules, and how to keep them.
use serde_json::{Map, Value, json};

use super::{Kind, Rule, has, read, within};
use crate::{network_prober::with, schema::forms::Dice, traffic_watch::judging::deployment};

pub static KIND: Kind = Kind {
    name: "TrafficWatch",
    rules: RULES,
    longest_name: Some(233),
    repair,
    read: read::<traffic_operator::api::TrafficWatch>,
    plain: || json!({"maxBandwidthPercent": "60"}),
    keep: |spec| {
        spec.remove("label");
        if let Some(reservation) = within(spec, "reservation") {
            reservation.insert("resource".into(), json!("traffic.example.com/mbps"));
        }
    },
    kept: &[],
};

const RULES: &[Rule] = &[
    ("spec: at least one of maxBandwidthPercent, maxBandwidth and criteria is needed", || {
        json!([only(&json!({})), only(&json!({"criteria": []})), only(&json!({"query": "x"}))])
    }),
    (
        "spec.maxBandwidth: cannot be set together with spec.maxBandwidthPercent; set one of them",
        || json!([{"maxBandwidth": "1G", "maxBandwidthPercent": "60"}]),
    ),
    (
        "spec.query: needs spec.maxBandwidthPercent (then its values are percent) or spec.maxBandwidth (bits per second)",
        || json!([only(&json!({"query": "x", "criteria": loss()}))]),
    ),
    (
        "spec.direction, devices, window, maxSampleAge, capacity: belong to the built-in measurement, which spec.query replaces and which spec.criteria alone does not use; leave them out",
        || {
            let own = json!({"maxBandwidth": "1G", "query": "x"});
            let fields = [
                json!({"capacity": "1G"}),
                json!({"devices": "eth0"}),
                json!({"direction": "Busiest"}),
                json!({"maxSampleAge": "1m"}),
                json!({"window": "3m"}),
            ];
            let both = fields.iter().flat_map(|field| {
                [only(&with(own.clone(), field)), only(&with(json!({"criteria": loss()}), field))]
            });
            both.collect()
        },
    ),
    ("spec.eviction: needs spec.deployment", || json!([{"deployment": null, "eviction": {}}])),
    ("spec.reservation: needs spec.maxBandwidthPercent or spec.maxBandwidth", || {
        let reservation = json!({"resource": "traffic.example.com/mbps"});
        json!([only(&json!({"criteria": loss(), "reservation": reservation}))])
    }),
];

fn loss() -> Value {
    json!([{"name": "loss", "query": "x", "max": 1}])
}

/// A patch that leaves no other measure than these.
fn only(more: &Value) -> Value {
    let names = BUILT_IN.iter().chain(&MEASURES).map(|name| ((*name).to_owned(), Value::Null));
    with(names.collect(), more)
}

const BUILT_IN: [&str; 5] = ["capacity", "devices", "direction", "maxSampleAge", "window"];
const MEASURES: [&str; 4] = ["maxBandwidthPercent", "maxBandwidth", "query", "criteria"];

/// Makes the fields of a spec consistent, as the rules of the object demand.
fn repair(spec: &mut Map<String, Value>, dice: &mut Dice) {
    if has(spec, "maxBandwidth") && has(spec, "maxBandwidthPercent") {
        spec.remove(dice.one(&["maxBandwidth", "maxBandwidthPercent"]));
    }
    let criteria = spec.get("criteria").and_then(Value::as_array).is_some_and(|c| !c.is_empty());
    let bandwidth = has(spec, "maxBandwidth") || has(spec, "maxBandwidthPercent");
    if !bandwidth && !criteria {
        spec.insert("maxBandwidthPercent".into(), json!("60"));
    }
    let bandwidth = bandwidth || !criteria;
    if has(spec, "query") && (!bandwidth || dice.percent(50)) {
        spec.remove("query");
    }
    if !bandwidth || has(spec, "query") {
        spec.retain(|name, _| !BUILT_IN.contains(&name.as_str()));
    }
    if !bandwidth {
        spec.remove("reservation");
    }
    if has(spec, "eviction") {
        spec.insert("deployment".into(), deployment());
    }
}
