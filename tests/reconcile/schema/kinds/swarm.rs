//! `Swarm`: its text fields, its rules, and how to keep them.
use serde_json::{Map, Value, json};

use super::{Kind, Rule, drop_nulls, has, nothing, read, within};
use crate::{
    network_prober::with,
    schema::forms::{Dice, ENDPOINT, Form, duration, free, not_duration, query},
};

pub static KIND: Kind = Kind {
    name: "Swarm",
    forms: FORMS,
    rules: RULES,
    bounds: &[
        ("autoscale.max", 1, 10_000),
        ("autoscale.min", 0, 10_000),
        ("configMap.files", 1, 32),
        ("jobs", 1, 30_000),
        ("maxMoves", 1, 30_000),
        ("maxStreamsPerWorker", 1, 30_000),
        ("refresh.maxUnavailable", 1, 1000),
        ("refresh.port", 1, 65_535),
        ("streams", 1, 30_000),
        ("streams[].weight", 1, 1_000_000),
    ],
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

const FORMS: &[Form] = &[
    Form {
        path: "autoscale.cooldown",
        good: |dice| duration(dice, 0),
        bad: || not_duration("169h", "-1ns"),
        fix: "autoscale.cooldown must be a duration of at most 168h",
    },
    Form {
        path: "autoscale.maxWeightPerWorker",
        good: |dice| dice.one(&[json!(1), json!("50M"), json!(100), json!("1.5"), json!("2k")]),
        bad: || json!(["fast", "0", "-1", 0, -5, ""]),
        fix: "autoscale.maxWeightPerWorker must be a quantity greater than 0",
    },
    Form {
        path: "configMap.key",
        good: |dice| json!(dice.one(&["config.yml", "a_b.C-1"])),
        bad: || json!(["handover.yml", "acknowledge.key", "a/b", "a b", "ä"]),
        fix: "configMap.key must be a key of a ConfigMap",
    },
    Form {
        path: "configMap.name",
        good: name,
        bad: not_a_name,
        fix: "configMap.name must be the name of a ConfigMap",
    },
    free("jobs[]", stream),
    Form {
        path: "refresh.path",
        good: |dice| json!(dice.one(&["/internal/version", "/v?x=1", "/"])),
        bad: || json!(["v", "/a b", "http://a/"]),
        fix: "refresh.path must be a path that begins with /",
    },
    Form {
        path: "refresh.strategy",
        good: |dice| json!(dice.one(&["DeletePod", "HotReload", "None"])),
        bad: || json!(["Recreate", "deletepod", ""]),
        fix: "refresh.strategy must be DeletePod, HotReload or None",
    },
    Form {
        path: "refresh.timeout",
        good: |dice| duration(dice, 1),
        bad: || not_duration("25h", "999ms"),
        fix: "refresh.timeout must be a duration from 1s to 24h",
    },
    free("streams[].id", stream),
    free("streams[].pin", |dice| json!(dice.one(&["w-0", "w-1"]))),
    Form {
        path: "streamsFrom.configMapKeyRef.name",
        good: name,
        bad: not_a_name,
        fix: "name must be the name of a ConfigMap",
    },
    Form {
        path: "streamsFrom.configMapKeyRef.key",
        good: |dice| json!(dice.one(&["config.yml", "list"])),
        bad: || json!(["a/b", "a b", "ä"]),
        fix: "key must be a key of a ConfigMap",
    },
    free("weights.query", query),
    Form {
        path: "weights.for",
        good: |dice| duration(dice, 0),
        bad: || not_duration("169h", "-1ns"),
        fix: "weights.for must be a duration of at most 168h",
    },
    Form {
        path: "weights.interval",
        good: |dice| duration(dice, 1),
        bad: || not_duration("25h", "999ms"),
        fix: "weights.interval must be a duration from 1s to 24h",
    },
    Form {
        path: "weights.prometheus",
        good: |dice| json!(dice.one(&["default", "no-such-endpoint"])),
        bad: || json!(["http://prometheus:9090", "Default", "a_b", "a.b", "-a"]),
        fix: ENDPOINT,
    },
    Form {
        path: "weights.rebalanceAbove",
        good: |dice| dice.one(&[json!("1.3"), json!(2), json!("1"), json!("1500m")]),
        bad: || json!(["0.9", 0, "much", "", "-2"]),
        fix: "weights.rebalanceAbove must be a number of at least 1",
    },
    Form {
        path: "workload.name",
        good: name,
        bad: not_a_name,
        fix: "workload.name must be the name of a StatefulSet or Deployment",
    },
];

fn name(dice: &mut Dice) -> Value {
    json!(dice.one(&["w", "web", "a.b", "web-1"]))
}

fn not_a_name() -> Value {
    json!(["Upper", "a_b", "-a", "a/b", "a b"])
}

fn stream(dice: &mut Dice) -> Value {
    json!(dice.draw("[a-z]{1,4}:[0-9]{1,6}"))
}

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
    ("spec.configMap.name: cannot change", nothing),
    ("spec.configMap.key: cannot change", nothing),
    ("configMap.files cannot change", nothing),
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
