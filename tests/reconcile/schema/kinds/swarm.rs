//! `Swarm`: its rules, and how to keep them.
use serde_json::{Map, Value, json};

use super::{Kind, Rule, drop_nulls, has, read, within};
use crate::{network_prober::with, schema::forms::Dice};

pub static KIND: Kind = Kind {
    name: "Swarm",
    rules: RULES,
    longest_name: None,
    repair,
    read: read::<traffic_operator::api::Swarm>,
    plain: || {
        let map = json!({"name": "walker-config"});
        json!({"workload": {"name": "w"}, "jobs": ["a", "b"], "configMap": map})
    },
    keep: |spec| {
        let map = spec.entry("configMap").or_insert_with(|| json!({}));
        map["name"] = json!("walker-config");
        if let Some(map) = map.as_object_mut() {
            map.remove("files");
            map.remove("key");
        }
    },
    // The name and the key of the file would change.
    kept: &["configMap"],
};

/// A patch that leaves one source of streams: this stream.
fn only(stream: &Value, more: &Value) -> Value {
    with(json!({"jobs": null, "streamsFrom": null, "streams": [stream]}), more)
}

const RULES: &[Rule] = &[
    ("spec: exactly one of jobs, streams and streamsFrom is needed", || {
        let from = json!({"configMapKeyRef": {"name": "m"}});
        json!([
            {"jobs": null, "streams": null, "streamsFrom": null},
            {"jobs": ["a"], "streams": [{"id": "a"}], "streamsFrom": null},
            {"jobs": ["a"], "streams": null, "streamsFrom": from},
        ])
    }),
    (
        "spec.refresh.strategy: DeletePod needs a StatefulSet",
        || json!([{"workload": {"kind": "Deployment"}, "refresh": {"strategy": "DeletePod"}}]),
    ),
    ("spec.streams: pin needs a StatefulSet", || {
        json!([only(
            &json!({"id": "a", "pin": "w-0"}),
            &json!({"workload": {"kind": "Deployment"}})
        )])
    }),
    ("spec.configMap.immutable: needs a StatefulSet and refresh.strategy DeletePod", || {
        json!([
            {"workload": {"kind": "Deployment"}, "configMap": {"immutable": true}},
            {"refresh": {"strategy": "HotReload"}, "configMap": {"immutable": true}},
        ])
    }),
    (
        "spec.configMap.files: must be 1 with immutable",
        || json!([{"configMap": {"immutable": true, "files": 2}}]),
    ),
    (
        "spec.policy: Stateless and Contiguous balance by number; weight and weights need Sticky",
        || {
            json!([
                only(&json!({"id": "a", "weight": 2}), &json!({"policy": "Stateless"})),
                {"policy": "Contiguous", "weights": {"query": "x"}},
            ])
        },
    ),
    (
        "spec.policy: Contiguous places by the order of the list; pin and dedicated need Sticky or Stateless",
        || {
            let policy = json!({"policy": "Contiguous"});
            json!([
                only(&json!({"id": "a", "pin": "w-0"}), &policy),
                only(&json!({"id": "a", "dedicated": true}), &policy),
            ])
        },
    ),
    (
        "spec.autoscale.min: must not be greater than spec.autoscale.max",
        || json!([{"autoscale": {"maxWeightPerWorker": 1, "min": 3, "max": 2}}]),
    ),
];

const SOURCES: [&str; 3] = ["jobs", "streams", "streamsFrom"];

fn repair(spec: &mut Map<String, Value>, dice: &mut Dice) {
    drop_nulls(spec);
    let there: Vec<_> = SOURCES.into_iter().filter(|source| has(spec, source)).collect();
    if there.is_empty() {
        spec.insert("jobs".into(), json!(["a", "b"]));
    } else {
        let kept = dice.one(&there);
        spec.retain(|name, _| name == kept || !SOURCES.contains(&name.as_str()));
    }
    let workload = spec.get("workload").and_then(|workload| workload.get("kind"));
    let deployment = workload.is_some_and(|kind| kind == "Deployment");
    let policy = spec.get("policy").and_then(Value::as_str).unwrap_or("Sticky").to_owned();
    let mut deletes = !deployment;
    if let Some(refresh) = within(spec, "refresh") {
        drop_nulls(refresh);
        if deployment && refresh.get("strategy").is_some_and(|strategy| strategy == "DeletePod") {
            refresh.insert("strategy".into(), json!("HotReload"));
        }
        deletes &= refresh.get("strategy").is_none_or(|strategy| strategy == "DeletePod");
    }
    if let Some(map) = within(spec, "configMap")
        && map.get("immutable").is_some_and(|immutable| immutable == true)
    {
        map.remove("files");
        if !deletes {
            map.remove("immutable");
        }
    }
    if policy != "Sticky" {
        spec.remove("weights");
    }
    for stream in spec.get_mut("streams").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(stream) = stream.as_object_mut() else { continue };
        drop_nulls(stream);
        if policy != "Sticky" {
            stream.remove("weight");
        }
        if policy == "Contiguous" {
            stream.remove("dedicated");
        }
        if policy == "Contiguous" || deployment {
            stream.remove("pin");
        }
    }
    if let Some(autoscale) = within(spec, "autoscale") {
        let max = autoscale.get("max").and_then(Value::as_i64).unwrap_or(1);
        if autoscale.get("min").and_then(Value::as_i64).unwrap_or(1) > max {
            autoscale.insert("min".into(), json!(max));
        }
    }
}
