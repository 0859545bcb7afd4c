//! Generated specs, served: each becomes Ready or reports why not, and one object goes through all
//! of them.
use futures::future::join_all;
use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use proptest::{prelude::Strategy, strategy::Just};
use serde_json::{Map, Value, json};

use super::{
    forms::{Dice, QUERIES},
    schema,
    walks::{Walk, named, seed, steps},
};
use crate::{
    admission::object,
    bench::{Bench, Operator, eventually_or, run},
    lifecycle::only_keys,
    prometheus::Sample,
};

/// Number of specs to serve of each kind: invalid, paused, without a node, and others; each a part
/// of [`STEPS`].
const SHARES: [u64; 4] = [4, 3, 5, 13];

/// Number of specs that are served, and through which one object goes.
const STEPS: u64 = 25;

/// Longer than elsewhere: these tests load the machine, which may have other work.
const LEASE: &str = "15s";

/// The name of the neighbor that must never be affected.
const BESIDE: &str = "beside";

/// The content that the condition Ready may have for a spec.
#[derive(Debug, PartialEq)]
enum Expected {
    /// Refused by the operator alone: the path that the message begins with.
    Invalid(&'static str),
    Paused,
    NoNodes,
    Served,
}

impl Expected {
    fn of(spec: &Value, nodes: &[Node]) -> Self {
        let selector = &spec["nodeSelector"];
        let expressions = selector["matchExpressions"].as_array().cloned().unwrap_or_default();
        // Of the generated texts, only those of ASCII can be keys and values of labels.
        let is_label = |text: &Value| text.as_str().is_some_and(str::is_ascii);
        let is_good = |e: &Value| {
            let values = e["values"].as_array().map(Vec::as_slice).unwrap_or_default();
            let fits = match e["operator"].as_str() {
                Some("In" | "NotIn") => !values.is_empty(),
                Some("Exists" | "DoesNotExist") => values.is_empty(),
                _ => false,
            };
            fits && is_label(&e["key"]) && values.iter().all(is_label)
        };
        let labels = selector["matchLabels"].as_object().cloned().unwrap_or_default();
        let are_labels = labels.iter().all(|(key, value)| key.is_ascii() && is_label(value));
        let is_selected = |node: &&Node| {
            let label = |key: &Value| node.labels().get(key.as_str().unwrap_or_default());
            let pairs = selector["matchLabels"].as_object().cloned().unwrap_or_default();
            let pairs = pairs.into_iter().all(|(k, v)| label(&json!(k)).is_some_and(|l| *l == v));
            pairs
                && expressions.iter().all(|e| {
                    let label = label(&e["key"]);
                    let values = e["values"].as_array().cloned().unwrap_or_default();
                    let listed = label.is_some_and(|label| values.iter().any(|v| v == label));
                    match e["operator"].as_str() {
                        Some("In") => listed,
                        Some("NotIn") => !listed,
                        Some("Exists") => label.is_some(),
                        _ => label.is_none(),
                    }
                })
        };
        if !are_labels {
            Self::Invalid("spec.nodeSelector.matchLabels: ")
        } else if !expressions.iter().all(is_good) {
            Self::Invalid("spec.nodeSelector.matchExpressions[")
        } else if spec["prometheus"].as_str().is_some_and(|name| name != "default") {
            Self::Invalid("spec.prometheus: no endpoint")
        } else if spec["paused"] == true {
            Self::Paused
        } else if !nodes.iter().any(|node| is_selected(&node)) {
            Self::NoNodes
        } else {
            Self::Served
        }
    }

    fn allows(&self, ready: &Value) -> bool {
        let message = ready["message"].as_str().unwrap_or_default();
        match (self, ready["status"].as_str(), ready["reason"].as_str()) {
            (Self::Invalid(path), Some("False"), Some("InvalidSpec")) => message.starts_with(path),
            (Self::Paused, Some("False"), Some("Paused"))
            | (Self::NoNodes, Some("False"), Some("NoNodes"))
            // Long intervals and directions without data are waited for.
            | (Self::Served, Some("True"), Some("Judged"))
            | (Self::Served, Some("False"), Some("Judging" | "CapacityUnknown" | "NoEvidence" | "NoSamples" | "LowCoverage")) => !message.is_empty(),
            _ => false,
        }
    }
}

/// A spec, by the number that its dice were thrown with.
struct Case {
    number: u64,
    spec: Value,
    expected: Expected,
}

/// The first specs of the generator, with a maximum for each kind.
fn cases(nodes: &[Node]) -> Vec<Case> {
    let schema = schema();
    let steps = steps(STEPS);
    let mut left = SHARES.map(|share| (share * steps).div_ceil(STEPS));
    let mut cases = vec![];
    for number in 0..80 * steps.max(STEPS) {
        let spec = schema.spec(&mut Dice::new(seed(), number));
        let expected = Expected::of(&spec, nodes);
        let kind = match expected {
            Expected::Invalid(_) => 0,
            Expected::Paused => 1,
            Expected::NoNodes => 2,
            Expected::Served => 3,
        };
        if left[kind] > 0 {
            left[kind] -= 1;
            cases.push(Case { number, spec, expected });
        }
    }
    assert_eq!(left, [0; 4], "too few specs of a kind");
    // Shuffled, because the rare kinds came last.
    let order = (0..cases.len()).collect::<Vec<_>>();
    let order = Dice::new(seed(), 0).draw(Just(order).prop_shuffle());
    let mut cases: Vec<_> = order.into_iter().zip(cases).collect();
    cases.sort_by_key(|(place, _)| *place);
    cases.into_iter().map(|(_, case)| case).collect()
}

/// Four nodes, the last of them in another zone; node-2 is busy by every measure.
async fn nodes(bench: &Bench) -> Vec<Node> {
    for node in ["node-1", "node-2", "node-3", "node-4"] {
        bench.node(node).await;
        let (percent, own) = if node == "node-2" { ("99", "1000000") } else { ("1", "0") };
        let bytes = Some("100000");
        bench.prometheus.set(node, Sample { percent: Some(percent), bytes, age: Some("1") });
        for query in QUERIES {
            bench.prometheus.own(query, node, own);
        }
        let zone = if node == "node-4" { "b" } else { "a" };
        let patch = Patch::Merge(json!({"metadata": {"labels": {"zone": zone}}}));
        bench.nodes().patch(node, &PatchParams::default(), &patch).await.expect("zone");
    }
    bench.nodes().list(&ListParams::default()).await.expect("nodes").items
}

/// Waits until the operator has seen the present spec and the condition Ready has the expected
/// content.
async fn settled(bench: &Bench, name: &str, case: &Case) {
    let what = format!("{}: {name} to be {:?}", named(case.number), case.expected);
    let holds = async || {
        let watch = bench.watches("default").get(name).await.expect("TrafficWatch");
        let status = serde_json::to_value(&watch.status).expect("status");
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
        let seen = status["observedGeneration"].as_i64() == watch.metadata.generation;
        (seen && ready.is_some_and(|ready| case.expected.allows(ready))).then_some(())
    };
    eventually_or(&what, holds, async || bench.status(name).await.to_string()).await;
}

/// Asserts that the operator is alive and keeps judging the neighbor.
async fn is_well(operator: &mut Operator, what: &str) {
    let ended = operator.child.try_wait().expect("wait");
    assert!(ended.is_none(), "{what}: the operator ended: {ended:?}");
    let beside = format!("name=\"{BESIDE}\"");
    let name = "traffic_operator_trafficwatch_last_success_timestamp_seconds";
    let last = operator.metric(name, &[&beside]).await;
    #[expect(clippy::cast_precision_loss, reason = "a time of day")]
    let age = Timestamp::now().as_millisecond() as f64 / 1000.0 - last;
    // Its interval is one second; the machine may have other work.
    assert!(age < 8.0, "{what}: {BESIDE} was last judged {age} s ago");
}

#[test]
fn each_good_spec_becomes_ready_or_says_why_not() {
    run(async |bench| {
        let cases = cases(&nodes(&bench).await);
        bench.watch(BESIDE, json!({})).await;
        for Case { number, spec, .. } in &cases {
            let (name, mut spec) = (format!("case-{number}"), spec.clone());
            // Two with the same label would conflict, which other tests cover.
            spec["label"] = name.as_str().into();
            if spec["reservation"].is_object() {
                spec["reservation"]["resource"] = format!("traffic.example.com/{name}").into();
            }
            bench.create(object(&name, &spec)).await.expect("accepted");
        }
        let mut operator = bench.operator_with("operator-1", LEASE);
        operator.ready().await;
        let name = |case: &Case| format!("case-{}", case.number);
        let all = cases.iter().map(async |case| settled(&bench, &name(case), case).await);
        join_all(all).await;
        is_well(&mut operator, "all").await;
        assert!(!operator.log().contains("panicked"), "{}", operator.log());
        assert_eq!(operator.terminate().await, Some(0));
    });
}

#[test]
fn one_object_walks_from_each_spec_to_the_next_and_back() {
    run(async |bench| {
        let cases = cases(&nodes(&bench).await);
        bench.watch(BESIDE, json!({})).await;
        let mut operator = bench.operator_with("operator-1", LEASE);
        bench.condition(BESIDE, "Ready", "True", "Judged").await;
        bench
            .create(object("walker", &json!({"maxBandwidthPercent": "60"})))
            .await
            .expect("accepted");
        let mut walk = Walk::of("TrafficWatch");
        for case in cases.iter().chain(cases.iter().rev().skip(1)) {
            let refused = replace(&bench, case).await;
            let stays = refused.is_some();
            walk.went(refused);
            if stays {
                continue;
            }
            settled(&bench, "walker", case).await;
            let what = named(case.number);
            if case.expected == Expected::Served && case.spec["mode"] != "Observe" {
                let prefix = case.spec["label"].as_str().unwrap_or("walker");
                only_keys(&bench, &[prefix, BESIDE], &what).await;
            }
            is_well(&mut operator, &what).await;
        }
        bench.watches("default").delete("walker", &DeleteParams::default()).await.expect("delete");
        only_keys(&bench, &[BESIDE], "deleted").await;
        walk.end();
        let failed = ["name=\"beside\"", "result=\"failed\""];
        let failed =
            operator.metric("traffic_operator_trafficwatch_evaluations_total", &failed).await;
        assert!(failed < 0.5, "{BESIDE}: {failed} failed evaluations");
        assert!(!operator.log().contains("panicked"), "{}", operator.log());
        assert_eq!(operator.terminate().await, Some(0));
    });
}

/// Replaces the whole spec, like a user who edits it; returns the refusal, if there is one.
async fn replace(bench: &Bench, Case { number, spec, .. }: &Case) -> Option<String> {
    let api = bench.watches("default");
    let old = api.get("walker").await.expect("walker");
    let old = serde_json::to_value(&old.spec).expect("spec");
    let patch = Patch::Merge(json!({"spec": difference(&old, spec)}));
    let refused = api.patch("walker", &PatchParams::default(), &patch).await.err();
    refused.map(|error| format!("{}: {spec}\n  is refused: {error}", named(*number)))
}

/// Returns the merge patch that turns `old` into `new`.
pub fn difference(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let nothing = Value::Null;
    let there = new
        .iter()
        .map(|(key, value)| (key.clone(), difference(old.get(key).unwrap_or(&nothing), value)));
    gone.chain(there).collect::<Map<_, _>>().into()
}
