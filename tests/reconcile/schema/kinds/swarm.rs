//! `Swarm`: its text fields, its rules, and how to keep them.
use serde_json::{Map, Value, json};

use super::{Kind, Rule, drop_nulls, has, read, within};
use crate::schema::forms::{Dice, Form, duration, not_duration, query};

pub static KIND: Kind = Kind {
    name: "Swarm",
    forms: FORMS,
    rules: RULES,
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
        bad: || not_duration("169h", "-1s"),
    },
    Form {
        path: "autoscale.maxWeightPerWorker",
        good: |dice| dice.one(&[json!(1), json!("50M"), json!(100), json!("1.5"), json!("2k")]),
        bad: || json!(["fast", "0", "-1", 0, -5, ""]),
    },
    Form {
        path: "configMap.key",
        good: |dice| json!(dice.one(&["config.yml", "a_b.C-1"])),
        bad: || json!(["handover.yml", "acknowledge.key", "a/b", "a b", "ä"]),
    },
    Form { path: "configMap.name", good: name, bad: not_a_name },
    Form { path: "jobs[]", good: stream, bad: || json!([]) },
    Form {
        path: "refresh.path",
        good: |dice| json!(dice.one(&["/internal/version", "/v?x=1", "/"])),
        bad: || json!(["v", "/a b", "http://a/"]),
    },
    Form {
        path: "refresh.strategy",
        good: |dice| json!(dice.one(&["DeletePod", "HotReload", "None"])),
        bad: || json!(["Recreate", "deletepod", ""]),
    },
    Form {
        path: "refresh.timeout",
        good: |dice| duration(dice, 1),
        bad: || not_duration("25h", "999ms"),
    },
    Form { path: "streams[].id", good: stream, bad: || json!([]) },
    Form {
        path: "streams[].pin",
        good: |dice| json!(dice.one(&["w-0", "w-1"])),
        bad: || json!([]),
    },
    Form { path: "streamsFrom.configMapKeyRef.name", good: name, bad: not_a_name },
    Form {
        path: "streamsFrom.configMapKeyRef.key",
        good: |dice| json!(dice.one(&["config.yml", "list"])),
        bad: || json!(["a/b", "a b", "ä"]),
    },
    Form { path: "weights.query", good: query, bad: || json!([]) },
    Form {
        path: "weights.for",
        good: |dice| duration(dice, 0),
        bad: || not_duration("169h", "-1s"),
    },
    Form {
        path: "weights.interval",
        good: |dice| duration(dice, 1),
        bad: || not_duration("25h", "999ms"),
    },
    Form {
        path: "weights.prometheus",
        good: |dice| json!(dice.one(&["default", "no-such-endpoint"])),
        bad: || json!(["http://prometheus:9090", "Default", "a_b", "a.b", "-a"]),
    },
    Form {
        path: "weights.rebalanceAbove",
        good: |dice| dice.one(&[json!("1.3"), json!(2), json!("1"), json!("1500m")]),
        bad: || json!(["0.9", 0, "much", "", "-2"]),
    },
    Form { path: "workload.name", good: name, bad: not_a_name },
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

/// Leaves one source of streams: these.
fn only_streams(spec: &mut Map<String, Value>, streams: Value) {
    spec.remove("jobs");
    spec.remove("streamsFrom");
    spec.insert("streams".into(), streams);
}

/// A workload of a kind, with the defaults of everything that depends on it.
fn workload(spec: &mut Map<String, Value>, kind: &str) {
    for name in ["refresh", "configMap", "policy", "weights"] {
        spec.remove(name);
    }
    spec.insert("workload".into(), json!({"name": "w", "kind": kind}));
}

const RULES: &[Rule] = &[
    (
        "spec: exactly one of jobs",
        Some(|spec| {
            for source in SOURCES {
                spec.remove(source);
            }
        }),
    ),
    (
        "spec.refresh.strategy: DeletePod needs",
        Some(|spec| {
            workload(spec, "Deployment");
            spec.insert("refresh".into(), json!({"strategy": "DeletePod"}));
        }),
    ),
    (
        "spec.streams: pin needs",
        Some(|spec| {
            workload(spec, "Deployment");
            only_streams(spec, json!([{"id": "a", "pin": "w-0"}]));
        }),
    ),
    (
        "spec.configMap.immutable: needs",
        Some(|spec| {
            workload(spec, "Deployment");
            spec.insert("configMap".into(), json!({"immutable": true}));
        }),
    ),
    (
        "spec.configMap.files: must be 1",
        Some(|spec| {
            workload(spec, "StatefulSet");
            spec.insert("configMap".into(), json!({"immutable": true, "files": 2}));
        }),
    ),
    (
        "spec.policy: Stateless and Contiguous balance",
        Some(|spec| {
            workload(spec, "StatefulSet");
            spec.insert("policy".into(), json!("Stateless"));
            spec.insert("weights".into(), json!({"query": "x"}));
        }),
    ),
    (
        "spec.policy: Contiguous places",
        Some(|spec| {
            workload(spec, "StatefulSet");
            spec.insert("policy".into(), json!("Contiguous"));
            only_streams(spec, json!([{"id": "a", "pin": "w-0"}]));
        }),
    ),
    (
        "spec.autoscale.min: must not be greater",
        Some(|spec| {
            let autoscale = json!({"maxWeightPerWorker": 1, "min": 3, "max": 2});
            spec.insert("autoscale".into(), autoscale);
        }),
    ),
    ("spec.configMap.name: cannot change", None),
    ("spec.configMap.key: cannot change", None),
    ("configMap.files cannot change", None),
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
