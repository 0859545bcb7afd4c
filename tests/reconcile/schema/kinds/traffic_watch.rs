//! `TrafficWatch`: its rules, and how to keep them.
use serde_json::{Map, Value, json};

use super::{Kind, Rule, has, read};
use crate::{
    schema::forms::{Dice, FORMS},
    traffic_watch::judging::deployment,
};

pub static KIND: Kind = Kind {
    name: "TrafficWatch",
    forms: FORMS,
    rules: RULES,
    repair,
    read: read::<traffic_operator::api::TrafficWatch>,
    plain: || json!({"maxBandwidthPercent": "60"}),
    keep: |_| {},
    kept: &[],
};

/// The rules that connect fields, each by the beginning of its message, and a way to break it in a
/// good spec; the first is about the name and not about the spec.
const RULES: &[Rule] = &[
    ("metadata.name: too long", None),
    ("spec: at least one of maxBandwidthPercent", Some(without_measures)),
    (
        "spec.maxBandwidth: cannot be set together",
        Some(|spec| {
            spec.insert("maxBandwidth".into(), json!("1G"));
            spec.insert("maxBandwidthPercent".into(), json!("60"));
        }),
    ),
    (
        "spec.query: needs",
        Some(|spec| {
            without_measures(spec);
            spec.insert("query".into(), json!("x"));
            spec.insert("criteria".into(), json!([{"name": "loss", "query": "x", "max": 1}]));
        }),
    ),
    (
        "spec.direction, devices, window, maxSampleAge, capacity: belong",
        Some(|spec| {
            spec.remove("maxBandwidth");
            spec.insert("maxBandwidthPercent".into(), json!("60"));
            spec.insert("query".into(), json!("x"));
            spec.insert("window".into(), json!("3m"));
        }),
    ),
    (
        "spec.eviction: needs",
        Some(|spec| {
            spec.remove("deployment");
            spec.insert("eviction".into(), json!({}));
        }),
    ),
    (
        "spec.reservation: needs",
        Some(|spec| {
            without_measures(spec);
            spec.insert("criteria".into(), json!([{"name": "loss", "query": "x", "max": 1}]));
            spec.insert("reservation".into(), json!({"resource": "traffic.example.com/mbps"}));
        }),
    ),
];

fn without_measures(spec: &mut Map<String, Value>) {
    spec.retain(|name, _| {
        let name = name.as_str();
        !BUILT_IN.contains(&name) && !MEASURES.contains(&name)
    });
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
