//! `plan swarm`, `explain stream` and `explain worker` beside a running operator: the
//! assignment printed before `kubectl apply` is the one that the operator then makes.
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{File, Stage, served, streams};
use crate::{
    bench::{Bench, Operator},
    commands::{Outcome, command},
};

/// A user for these commands only, to find their requests.
const PLANNER: (&str, &str) = ("planner", "system:masters");

type Owners = BTreeMap<String, String>;

fn owners(file: &File) -> Owners {
    let owners = file.owners().into_iter();
    owners.map(|(stream, workers)| (stream.to_owned(), workers.join(" and "))).collect()
}

fn manifest(stage: &Stage, name: &str, spec: &Value) -> PathBuf {
    let mut all = json!({"workload": {"name": name}, "refresh": {"port": stage.puppet.port()}});
    for (key, value) in spec.as_object().expect("spec") {
        match value.as_object().filter(|_| key == "refresh") {
            Some(more) => all[key].as_object_mut().expect("object").extend(more.clone()),
            None => all[key] = value.clone(),
        }
    }
    let object = json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "Swarm", "metadata": {"name": name},
        "spec": all,
    });
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.plan.json"));
    std::fs::write(&path, object.to_string()).expect("file");
    path
}

async fn plan(bench: &Bench, file: &Path, more: &[&str]) -> Outcome {
    let args = ["plan", "swarm", "-n", "default", "-f", file.to_str().expect("path")];
    command(bench, PLANNER, &[&args, more].concat()).await
}

/// Plans, and returns the plan as JSON.
async fn planned(stage: &Stage, operator: &Operator, name: &str, spec: &Value) -> Value {
    let file = manifest(stage, name, spec);
    let outcome = plan(&stage.bench, &file, &["-o", "json", "--operator-url", &operator.url]).await;
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.out, outcome.err);
    let mut all: Value = serde_json::from_str(&outcome.out).expect("JSON");
    all[0].take()
}

/// Returns the owners of all streams after all moves.
fn owners_after(before: &Owners, plan: &Value) -> Owners {
    let mut after = before.clone();
    for one in plan["moves"].as_array().expect("moves") {
        let stream = one["stream"].as_str().expect("stream").to_owned();
        match one["to"].as_str() {
            Some(to) => after.insert(stream, to.to_owned()),
            None => after.remove(&stream),
        };
    }
    after
}

fn by_reason(plan: &Value) -> BTreeMap<String, f64> {
    let mut counts = BTreeMap::new();
    for one in plan["moves"].as_array().expect("moves") {
        *counts.entry(one["reason"].as_str().expect("reason").to_owned()).or_default() += 1.0;
    }
    counts.remove("added");
    counts
}

async fn moved(operator: &Operator, name: &str, reason: &str) -> f64 {
    let labels = [format!("name=\"{name}\""), format!("reason=\"{reason}\"")];
    let labels: Vec<_> = labels.iter().map(String::as_str).collect();
    operator.metric("traffic_operator_swarm_moves_total", &labels).await
}

/// Plans, applies, waits until the Swarm is at rest, and compares it with the plan.
async fn assert_plan_comes_true(
    stage: &Stage,
    operator: &Operator,
    (name, workers): (&str, usize),
    before: &Owners,
    (spec, ids): (Value, &[String]),
) -> Owners {
    let plan = planned(stage, operator, name, &spec).await;
    let reasons = by_reason(&plan);
    let mut counted = BTreeMap::new();
    for reason in reasons.keys() {
        counted.insert(reason.clone(), moved(operator, name, reason).await);
    }
    if before.is_empty() {
        stage.swarm(name, spec).await;
    } else {
        let absent =
            |field: &str| if spec.get(field).is_none() { Value::Null } else { spec[field].clone() };
        let mut change = spec.clone();
        for field in ["jobs", "streams"] {
            change[field] = absent(field);
        }
        stage.change(name, change).await;
        // The former state may still be at rest.
        let generation = stage.swarms().get(name).await.expect("Swarm").metadata.generation;
        stage.until(name, &[("/observedGeneration", json!(generation))]).await;
    }
    let file = stage.settled(name, workers, ids).await;
    assert_eq!(owners(&file), owners_after(before, &plan), "{plan:#}");
    for (reason, count) in reasons {
        let now = moved(operator, name, &reason).await - counted[&reason];
        assert!((now - count).abs() < 0.1, "{reason}: {count} planned, {now} made");
    }
    owners(&file)
}

#[test]
fn what_plan_swarm_says_is_what_the_operator_then_does() {
    served(async |stage, operator| {
        let began = Timestamp::now();
        stage.stateful_set("way", 3, json!({})).await;
        // The Swarm does not exist yet.
        let ids = streams(9);
        let spec = json!({"jobs": ids, "refresh": {"strategy": "HotReload"}});
        let none = Owners::new();
        let first =
            assert_plan_comes_true(&stage, &operator, ("way", 3), &none, (spec, &ids)).await;
        assert_eq!(first.len(), 9);
        // One stream is pinned elsewhere, one goes, one comes.
        let from = &first["stream:0"];
        let to = (0..3).map(|n| format!("way-{n}")).find(|worker| worker != from).expect("another");
        let mut list = vec![json!({"id": "stream:0", "pin": to})];
        list.extend((2..10).map(|n| json!({"id": format!("stream:{n}")})));
        let ids: Vec<_> = [0].into_iter().chain(2..10).map(|n| format!("stream:{n}")).collect();
        let spec = json!({"streams": list, "refresh": {"strategy": "HotReload"}});
        let second =
            assert_plan_comes_true(&stage, &operator, ("way", 3), &first, (spec, &ids)).await;
        assert_eq!(second["stream:0"], to);
        // One worker more, and workers that have to be restarted.
        stage.scale("way", 4).await;
        stage.until("way", &[("/summary/workers", json!(4))]).await;
        stage.settled("way", 4, &ids).await;
        let third = owners(&stage.file("way").await.expect("file"));
        let alone = third.iter().find(|(_, worker)| *worker != "way-3").expect("stream").0.clone();
        let list: Vec<_> =
            ids.iter().map(|id| json!({"id": id, "dedicated": *id == alone})).collect();
        let spec = json!({"streams": list, "refresh": {"strategy": "DeletePod"}});
        assert_plan_comes_true(&stage, &operator, ("way", 4), &third, (spec, &ids)).await;
        stage.puppet.assert_no_overlap();
        let asked = stage.bench.requests_since(began).await;
        let mine: Vec<_> = asked.iter().filter(|event| event.user == PLANNER.0).collect();
        assert!(!mine.is_empty() && !mine.iter().any(|event| event.is_write()), "{mine:?}");
    });
}
