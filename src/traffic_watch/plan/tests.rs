//! Judgements in sequence, without a cluster: labels and status are fed back as the API server would.
use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    super::{
        children::Applied,
        judgement::Stray,
        query::Measure,
        reading::{self, NodeReading, Reading},
    },
    *,
};
use crate::{
    api::traffic_watch::{NodeState, NodeStatus, Summary},
    nodes::NodeFacts,
    prometheus::{Class, QueryError},
};

const KEY: &str = "web.traffic.example.com/unfit";

/// What one node's exporter says: percent, or one of the ways to say nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    Percent(f64),
    Nothing,
    NaN,
    Old,
}

/// A cluster as the plan sees it.
struct World {
    watch: TrafficWatch,
    labels: BTreeMap<String, Option<String>>,
    memory: Memory,
    tick: u64,
    second: i64,
}

/// What one judgement did.
#[derive(Debug, PartialEq)]
struct Step {
    writes: Vec<(String, Option<bool>)>,
    states: Vec<NodeState>,
    notices: Vec<&'static str>,
    conditions: Vec<Verdict>,
    deployment: bool,
}

impl World {
    fn new(nodes: &[&str], spec: Value) -> Self {
        let mut spec = spec;
        if spec.get("maxBandwidthPercent").is_none() {
            spec["maxBandwidthPercent"] = "60".into();
        }
        let watch = json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
            "metadata": {"name": "web", "namespace": "ns", "uid": "u", "generation": 1}, "spec": spec
        });
        Self {
            watch: serde_json::from_value(watch).unwrap(),
            labels: nodes.iter().map(|&n| (n.to_owned(), None)).collect(),
            memory: Memory::default(),
            tick: 0,
            second: 1_000_000,
        }
    }

    fn observed(&self, reading: Result<Reading, QueryError>) -> Observed {
        Observed {
            now: Timestamp::from_second(self.second).unwrap(),
            tick: self.tick,
            nodes: self
                .labels
                .iter()
                .map(|(name, label)| NodeFacts {
                    name: name.as_str().into(),
                    label: label.as_deref().map(Into::into),
                    capacity: None,
                })
                .collect(),
            stray: vec![],
            reading: Some(reading.map(Arc::new)),
            memory: Arc::new(self.memory.clone()),
            claim: Claim::Ours,
            deployment: None,
        }
    }

    /// The next tick, with what each node says in the order of their names.
    fn judge(&mut self, says: &[Says]) -> Step {
        self.tick += 1;
        self.second += 10;
        let reading = self.reading(says);
        self.pass(Ok(reading))
    }

    fn fail(&mut self) -> Step {
        self.tick += 1;
        self.second += 10;
        self.pass(Err(QueryError::new(Class::Unreachable, "refused")))
    }

    fn reading(&self, says: &[Says]) -> Reading {
        let mut nodes = BTreeMap::new();
        for (name, says) in self.labels.keys().zip(says) {
            let mut node = NodeReading::default();
            let mut put = |measure, value| node.put(measure, reading::Value::One(value, None));
            match *says {
                Says::Nothing => continue,
                Says::Percent(percent) => put(Measure::TransmitPercent, percent),
                Says::NaN => put(Measure::TransmitPercent, f64::NAN),
                Says::Old => put(Measure::TransmitPercent, 1.0),
            }
            put(Measure::TransmitBytes, 1.0);
            put(Measure::Total, 7.0);
            put(Measure::Age, if *says == Says::Old { 1000.0 } else { 1.0 });
            nodes.insert(name.as_str().into(), node);
        }
        Reading::of(nodes)
    }

    /// One pass, its writes carried out.
    fn pass(&mut self, reading: Result<Reading, QueryError>) -> Step {
        let plan = plan(&self.watch, &self.observed(reading)).unwrap();
        let desired = plan.desired;
        for write in &desired.labels {
            let value = write.value.map(|v| v.to_string());
            self.labels.insert(write.node.to_string(), value);
        }
        let memory = desired.memory.unwrap();
        let states = self.labels.keys().map(|n| memory.nodes.get(n).unwrap().state).collect();
        self.memory = memory;
        if let Some(child) = &desired.deployment {
            let outcome = Outcome::Refused("so that it is not applied again".into());
            self.memory.applied = Some(Applied { hash: child.hash, outcome });
        }
        self.watch.status = Some(plan.status);
        Step {
            writes: desired.labels.iter().map(|w| (w.node.to_string(), w.value)).collect(),
            states,
            notices: plan.notices.iter().map(|n| n.reason).collect(),
            conditions: plan.conditions,
            deployment: desired.deployment.is_some(),
        }
    }

    /// The process dies and another takes over: labels and status are all it knows.
    fn restart(&mut self) {
        self.memory = Memory::default();
    }

    fn label(&self, node: &str) -> Option<&str> {
        self.labels[node].as_deref()
    }

    fn node(&self, node: &str) -> &NodeStatus {
        &self.watch.status.as_ref().unwrap().nodes[node]
    }
}

use NodeState::{Fit, Suppressed, Unfit, Unknown};
use Says::{NaN, Nothing, Old, Percent};

#[test]
fn two_judgements_that_agree_change_the_label_one_does_not() {
    let mut w = World::new(&["a", "b", "c"], json!({}));
    let all = |a| [Percent(a), Percent(1.0), Percent(1.0)];
    assert_eq!(w.judge(&all(1.0)).writes, []);
    assert!(!w.watch.status.as_ref().unwrap().ready);
    // Original 1.2: the first label came with the second pass.
    assert_eq!(w.judge(&all(1.0)).writes.len(), 3);
    assert!(w.watch.status.as_ref().unwrap().ready);
    for (percent, label) in [
        (61.0, "false"),
        (59.0, "false"),
        (61.0, "false"),
        (60.0, "false"), // not above
        (61.0, "false"),
        (60.1, "true"),
        (54.1, "true"), // above 90 % of 60
        (54.0, "true"),
        (54.1, "true"), // the side it is on: the streak begins anew
        (54.0, "true"),
        (1.0, "false"),
    ] {
        w.judge(&all(percent));
        assert_eq!(w.label("a"), Some(label), "at {percent}");
    }
}

#[test]
fn a_flapping_node_keeps_its_label() {
    let mut w = World::new(&["a", "b"], json!({}));
    w.judge(&[Percent(1.0); 2]);
    w.judge(&[Percent(1.0); 2]);
    for i in 0..20 {
        let percent = if i % 2 == 0 { 99.0 } else { 1.0 };
        assert_eq!(w.judge(&[Percent(percent), Percent(1.0)]).writes, []);
    }
}

#[test]
fn passes_of_one_tick_are_one_judgement() {
    let mut w = World::new(&["a", "b"], json!({}));
    w.judge(&[Percent(1.0); 2]);
    w.judge(&[Percent(1.0); 2]);
    w.judge(&[Percent(99.0), Percent(1.0)]);
    let reading = w.reading(&[Percent(99.0), Percent(1.0)]);
    for _ in 0..5 {
        let again = World::reading(&w, &[Percent(99.0), Percent(1.0)]);
        assert_eq!(w.pass(Ok(again)).writes, []);
    }
    w.tick += 1;
    assert_eq!(w.pass(Ok(reading)).writes, [("a".into(), Some(true))]);
}

#[test]
fn missing_evidence_neither_advances_nor_resets_a_streak() {
    for missing in [Nothing, NaN, Old] {
        let mut w = World::new(&["a", "b", "c"], json!({"consecutive": {"unfit": 3, "fit": 2}}));
        let calm = |a| [a, Percent(1.0), Percent(1.0)];
        w.judge(&calm(Percent(1.0)));
        w.judge(&calm(Percent(1.0)));
        w.judge(&calm(Percent(99.0)));
        w.judge(&calm(Percent(99.0)));
        for _ in 0..10 {
            let step = w.judge(&calm(missing));
            assert_eq!((step.writes, step.states[0]), (vec![], Unknown), "{missing:?}");
        }
        w.fail();
        assert_eq!(w.judge(&calm(Percent(99.0))).writes, [("a".into(), Some(true))]);
    }
}

#[test]
fn a_node_never_judged_gets_no_label() {
    let mut w = World::new(&["a", "b", "c"], json!({}));
    for _ in 0..5 {
        w.judge(&[Nothing, Percent(1.0), Percent(1.0)]);
    }
    assert_eq!(w.label("a"), None);
    assert_eq!(w.node("a").current_bandwidth_percent, "NaN");
    // Ready counts the nodes with data.
    assert!(w.watch.status.as_ref().unwrap().ready);
}

#[test]
fn the_deployment_is_created_once_judged_and_kept_whatever_comes() {
    let deployment = json!({
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}
    });
    let mut w = World::new(&["a", "b"], json!({"deployment": deployment}));
    assert!(!w.fail().deployment, "nothing is known yet");
    assert!(!w.judge(&[Percent(1.0); 2]).deployment);
    assert!(w.judge(&[Percent(1.0); 2]).deployment);
    let step = w.fail();
    assert!(w.watch.status.as_ref().unwrap().ready, "ready once is ready");
    // What was refused is not tried again, and said.
    assert!(!step.deployment);
    assert_eq!(
        (step.conditions[0].status, step.conditions[0].reason),
        (Some(false), "InvalidSpec")
    );
    // Another spec is another try.
    w.watch.spec.label = Some("other".into());
    assert!(w.judge(&[Percent(1.0); 2]).deployment);
}

#[test]
fn a_failed_request_holds_everything_and_says_so_once() {
    let mut w = World::new(&["a", "b"], json!({}));
    w.judge(&[Percent(99.0), Percent(1.0)]);
    w.judge(&[Percent(99.0), Percent(1.0)]);
    assert_eq!(w.label("a"), Some("true"));
    let first = w.fail();
    assert_eq!((first.writes, first.states), (vec![], vec![Unknown, Unknown]));
    assert_eq!(first.conditions[1].reason, "PrometheusUnreachable");
    assert_eq!(first.conditions[1].status, Some(false));
    assert!(first.notices.contains(&"MetricsUnavailable"));
    assert!(w.node("a").unfit && !w.node("b").unfit, "unfit follows the label");
    assert_eq!(w.node("a").current_bandwidth_percent, "9.9e+01", "the last value stays");
    let step = w.judge(&[Percent(99.0), Percent(1.0)]);
    assert_eq!((step.writes, step.states), (vec![], vec![Unfit, Fit]));
}

#[test]
fn fewer_than_half_with_data_is_no_data() {
    let mut w = World::new(&["a", "b", "c", "d", "e"], json!({}));
    let says = |n| (0..5).map(|i| if i < n { Percent(99.0) } else { Nothing }).collect::<Vec<_>>();
    for n in [0, 1, 2] {
        let step = w.judge(&says(n));
        assert_eq!(step.states, [Unknown; 5]);
        let reason = if n == 0 { "NoSamples" } else { "LowCoverage" };
        assert_eq!(step.conditions[1].reason, reason);
    }
    assert_eq!(w.judge(&says(3)).conditions[1].reason, "Available");
}

#[test]
fn a_suppressed_node_is_marked_when_a_place_is_free() {
    let mut w = World::new(&["a", "b"], json!({}));
    w.judge(&[Percent(99.0), Percent(98.0)]);
    let step = w.judge(&[Percent(99.0), Percent(98.0)]);
    assert_eq!(step.states, [Unfit, Suppressed]);
    assert_eq!((w.label("a"), w.label("b")), (Some("true"), Some("false")));
    assert_eq!(step.conditions[2].reason, "LimitReached");
    // Worse than the one that is marked: who is marked stays so.
    assert_eq!(w.judge(&[Percent(70.0), Percent(99.0)]).writes, []);
    w.judge(&[Percent(1.0), Percent(98.0)]);
    let step = w.judge(&[Percent(1.0), Percent(98.0)]);
    assert_eq!(step.states, [Fit, Unfit]);
    assert_eq!((w.label("a"), w.label("b")), (Some("false"), Some("true")));
}

#[test]
fn values_alone_are_written_once_a_minute() {
    let mut w = World::new(&["a", "b"], json!({}));
    w.judge(&[Percent(1.0); 2]);
    w.judge(&[Percent(1.0); 2]);
    let mut writes = 0;
    for i in 0..60 {
        let before = w.watch.status.clone();
        w.judge(&[Percent(2.0 + f64::from(i) / 10.0), Percent(1.0)]);
        writes += u32::from(before != w.watch.status);
    }
    // 600 s at one judgement per 10 s.
    assert!((9..=11).contains(&writes), "{writes}");
}

#[test]
fn above_a_hundred_nodes_what_needs_attention_is_listed() {
    let names: Vec<_> = (0..150).map(|i| format!("n{i:03}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut w = World::new(&names, json!({}));
    let says: Vec<_> = (0..150)
        .map(|i| match i {
            140..145 => Percent(99.0),
            145.. => Nothing,
            _ => Percent(1.0),
        })
        .collect();
    w.judge(&says);
    w.judge(&says);
    let status = w.watch.status.as_ref().unwrap();
    assert_eq!(status.nodes.len(), 100);
    assert!(status.nodes_truncated);
    let summary = Summary { nodes: 150, fit: 140, unfit: 5, unknown: 5, suppressed: 0 };
    assert_eq!(status.summary, Some(summary));
    for i in 140..150 {
        assert!(status.nodes.contains_key(&format!("n{i}")));
    }
}

#[test]
fn a_node_that_loses_its_evidence_is_told_once_and_by_name() {
    let mut w = World::new(&["a", "b", "c"], json!({}));
    let all = |a| [a, Percent(1.0), Percent(1.0)];
    assert_eq!(w.judge(&all(Percent(1.0))).notices, <[&str; 0]>::default());
    assert_eq!(w.judge(&all(Nothing)).notices, ["NodeUnknown"]);
    assert_eq!(w.judge(&all(Nothing)).notices, <[&str; 0]>::default());
    // When everything is unknown, the measurement is the news and not each node.
    assert_eq!(w.fail().notices, ["MetricsUnavailable"]);
}

#[test]
fn a_mass_flip_is_told_in_a_few_events() {
    let names: Vec<_> = (0..100).map(|i| format!("n{i:03}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut w = World::new(&names, json!({}));
    let says: Vec<_> = (0..100).map(|i| Percent(if i < 40 { 99.0 } else { 1.0 })).collect();
    w.judge(&says);
    let step = w.judge(&says);
    assert_eq!(step.writes.len(), 100);
    assert_eq!(step.notices, ["NodeUnfit"; 11]);
}

#[test]
fn observe_remembers_in_its_status() {
    let mut w = World::new(&["a", "b"], json!({"mode": "Observe"}));
    w.judge(&[Percent(99.0), Percent(1.0)]);
    let step = w.judge(&[Percent(99.0), Percent(1.0)]);
    assert_eq!((step.writes, step.states), (vec![], vec![Unfit, Fit]));
    assert!(step.notices.contains(&"NodeUnfit"));
    w.restart();
    // In the band: fit to one who forgot, unfit to one who remembers.
    assert_eq!(w.judge(&[Percent(57.0), Percent(1.0)]).states, [Unfit, Fit]);
}

#[test]
fn paused_decides_nothing() {
    let mut w = World::new(&["a", "b"], json!({"paused": true}));
    let says = [Percent(99.0), Percent(1.0)];
    let plan = plan(&w.watch, &w.observed(Ok(w.reading(&says)))).unwrap();
    assert_eq!((plan.desired.labels, plan.desired.memory), (vec![], None));
    assert_eq!(plan.conditions[0].reason, "Paused");
    w.watch.spec.paused = false;
    w.judge(&says);
}

#[test]
fn a_node_taken_from_the_selection_loses_its_label() {
    let w = World::new(&["a", "b"], json!({}));
    let mut observed = w.observed(Ok(w.reading(&[Percent(1.0); 2])));
    observed.stray = vec![Stray { node: "gone".into(), key: KEY.into() }];
    let plan = plan(&w.watch, &observed).unwrap();
    let expected = LabelWrite { node: "gone".into(), key: KEY.into(), value: None };
    assert_eq!(plan.desired.labels, [expected]);
}

#[test]
fn the_first_error_of_a_spec_is_told_by_its_path() {
    for (spec, path) in [
        (json!({"maxBandwidthPercent": "abc"}), "spec.maxBandwidthPercent"),
        (json!({"maxBandwidthPercent": "NaN"}), "spec.maxBandwidthPercent"),
        (json!({"maxBandwidthPercent": "-1"}), "spec.maxBandwidthPercent"),
        (json!({"capacity": "fast"}), "spec.capacity"),
        (json!({"capacity": "-1G"}), "spec.capacity"),
        (json!({"interval": "0s"}), "spec.interval"),
        (json!({"window": "1s"}), "spec.window"),
        (json!({"maxSampleAge": "-5s"}), "spec.maxSampleAge"),
    ] {
        let w = World::new(&["a"], spec.clone());
        let error = plan(&w.watch, &w.observed(Ok(Reading::default()))).unwrap_err();
        assert!(error.to_string().starts_with(path), "{spec}: {error}");
        assert_eq!(error.reason(), "InvalidSpec");
    }
}

fn says() -> impl Strategy<Value = Says> {
    prop_oneof![
        3 => (0.0..120.0f64).prop_map(Percent),
        1 => Just(Nothing),
        1 => Just(NaN),
        1 => Just(Old),
    ]
}

proptest! {
    /// Design rule 1: no write is explained by missing evidence.
    #[test]
    fn only_a_node_with_evidence_is_written(
        steps in proptest::collection::vec(proptest::collection::vec(says(), 4), 1..40),
    ) {
        let mut w = World::new(&["a", "b", "c", "d"], json!({}));
        for says in steps {
            let names: Vec<_> = w.labels.keys().cloned().collect();
            for (node, _) in w.judge(&says).writes {
                let i = names.iter().position(|n| *n == node).unwrap();
                prop_assert!(matches!(says[i], Percent(_)), "{node} was written on {:?}", says[i]);
            }
        }
    }

    /// Design rule 5: a restart changes no label by itself.
    #[test]
    fn a_restart_writes_nothing_that_the_same_evidence_did_not_ask_for(
        before in proptest::collection::vec(proptest::collection::vec(says(), 4), 2..20),
        says in proptest::collection::vec(says(), 4),
    ) {
        let mut w = World::new(&["a", "b", "c", "d"], json!({}));
        for step in &before {
            w.judge(step);
        }
        // Let it settle on the evidence, then restart on the same.
        for _ in 0..6 {
            w.judge(&says);
        }
        let settled = w.labels.clone();
        w.restart();
        for _ in 0..6 {
            w.judge(&says);
            prop_assert_eq!(&w.labels, &settled);
        }
    }

    /// Design rule 4: what is so is not written again.
    #[test]
    fn the_same_pass_again_writes_nothing(
        steps in proptest::collection::vec(proptest::collection::vec(says(), 4), 1..20),
    ) {
        let mut w = World::new(&["a", "b", "c", "d"], json!({}));
        for says in steps {
            w.judge(&says);
            let status = w.watch.status.clone();
            let reading = w.reading(&says);
            let again = w.pass(Ok(reading));
            prop_assert_eq!(again.writes, vec![]);
            prop_assert_eq!(&w.watch.status, &status);
        }
    }

    #[test]
    fn at_most_half_is_marked_whatever_happens(
        steps in proptest::collection::vec(proptest::collection::vec(says(), 5), 1..40),
    ) {
        let mut w = World::new(&["a", "b", "c", "d", "e"], json!({}));
        for says in steps {
            w.judge(&says);
            let marked = w.labels.values().filter(|l| l.as_deref() == Some("true")).count();
            prop_assert!(marked <= 2);
        }
    }
}
