//! The memories of all `TrafficWatch`es, and the metrics read from them at scrape time.
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use super::{
    children::Applied,
    findings::Evaluation,
    judgement::Transition,
    memory::{Memory, NodeMemory},
    settings::Criterion,
};
use crate::api::traffic_watch::{Consecutive, Mode, NodeState};

/// By namespace and name; clones share it.
#[derive(Clone, Default)]
pub struct Decisions(Arc<Mutex<BTreeMap<Key, Entry>>>);

type Key = (String, String);

/// For how long transitions are kept to be looked at.
pub(super) const HISTORY_SECONDS: i64 = 3600;

/// How many transitions are kept of one object at most: a mass flip is told by the states.
const HISTORY: usize = 200;

/// What is remembered of one object.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) memory: Arc<Memory>,
    pub(super) facts: Facts,
    transitions: BTreeMap<(NodeState, Arc<str>), u64>,
    /// The youngest last.
    pub(super) history: VecDeque<Transition>,
    evaluations: BTreeMap<&'static str, u64>,
    evictions: BTreeMap<&'static str, u64>,
}

/// What is known of an object beside its judgement.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) label: String,
    pub(super) mode: Mode,
    pub(super) paused: bool,
    pub(super) interval: Duration,
    pub(super) consecutive: Consecutive,
    /// Replicas of the Deployment: wanted and available.
    pub(super) replicas: Option<(i32, i32)>,
}

/// What one pass decided.
pub struct Decided {
    pub(super) memory: Memory,
    pub(super) facts: Facts,
    pub(super) transitions: Vec<Transition>,
    pub(super) evaluation: Option<Evaluation>,
}

impl Decisions {
    /// What is remembered of one object.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Arc<Memory> {
        let entries = self.entries();
        let entry = entries.get(&(namespace.to_owned(), name.to_owned()));
        entry.map(|entry| Arc::clone(&entry.memory)).unwrap_or_default()
    }

    /// Remembers what one pass decided.
    pub fn put(&self, (namespace, name): (&str, &str), decided: Decided) {
        let mut entries = self.entries();
        let entry = entries.entry((namespace.to_owned(), name.to_owned())).or_default();
        entry.memory = Arc::new(decided.memory);
        entry.facts = decided.facts;
        for transition in decided.transitions {
            let key = (transition.to, Arc::clone(&transition.reason));
            *entry.transitions.entry(key).or_default() += 1;
            entry.remember(transition);
        }
        if let Some(evaluation) = decided.evaluation {
            *entry.evaluations.entry(evaluation.as_str()).or_default() += 1;
        }
    }

    /// Counts one eviction by what became of it; `refused` is when it was, if it was.
    pub fn evicted(
        &self,
        namespace: &str,
        name: &str,
        result: &'static str,
        refused: Option<Timestamp>,
    ) {
        let mut entries = self.entries();
        let entry = entries.entry((namespace.to_owned(), name.to_owned())).or_default();
        *entry.evictions.entry(result).or_default() += 1;
        if refused.is_some() {
            Arc::make_mut(&mut entry.memory).refused = refused;
        }
    }

    /// Remembers what became of the Deployment.
    pub fn applied(&self, namespace: &str, name: &str, applied: Applied) {
        let mut entries = self.entries();
        let entry = entries.entry((namespace.to_owned(), name.to_owned())).or_default();
        Arc::make_mut(&mut entry.memory).applied = Some(applied);
    }

    /// Drops what was decided about one object: its series must not look as if it were judged. What
    /// was counted stays, and that it is there.
    pub(super) fn pause(&self, namespace: &str, name: &str, facts: Facts) {
        let mut entries = self.entries();
        let entry = entries.entry((namespace.to_owned(), name.to_owned())).or_default();
        entry.memory = Arc::default();
        entry.facts = facts;
    }

    /// Drops everything about one object, its series included.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.entries().remove(&(namespace.to_owned(), name.to_owned()));
    }

    pub(super) fn entries(&self) -> MutexGuard<'_, BTreeMap<Key, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn remember(&mut self, transition: Transition) {
        let old = transition.at.saturating_sub(HISTORY_SECONDS);
        while self.history.front().is_some_and(|first| first.at < old)
            || self.history.len() >= HISTORY
        {
            self.history.pop_front();
        }
        self.history.push_back(transition);
    }
}

impl fmt::Debug for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decisions").finish_non_exhaustive()
    }
}

type Result = std::result::Result<(), fmt::Error>;

/// One family in the making.
struct Family<'a>(MetricEncoder<'a>);

impl Family<'_> {
    fn gauge(&mut self, labels: &impl EncodeLabelSet, value: f64) -> Result {
        ConstGauge::new(value).encode(self.0.encode_family(labels)?)
    }

    fn counter(&mut self, labels: &impl EncodeLabelSet, value: u64) -> Result {
        ConstCounter::new(value).encode(self.0.encode_family(labels)?)
    }
}

fn family<'s>(
    encoder: &'s mut DescriptorEncoder<'_>,
    name: &'static str,
    help: &str,
    kind: MetricType,
) -> std::result::Result<Family<'s>, fmt::Error> {
    Ok(Family(encoder.encode_descriptor(name, help, None, kind)?))
}

impl Collector for Decisions {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result {
        let entries = self.entries();
        // An empty family would be a help text without series on every follower.
        if entries.is_empty() {
            return Ok(());
        }
        let encoder = &mut encoder;
        node_values(encoder, &entries)?;
        node_states(encoder, &entries)?;
        counts(encoder, &entries)?;
        counters(encoder, &entries)
    }
}

fn each_node(
    entries: &BTreeMap<Key, Entry>,
) -> impl Iterator<Item = ([(&'static str, &str); 3], &Memory, &NodeMemory)> {
    entries.iter().flat_map(|((namespace, name), entry)| {
        let memory = &*entry.memory;
        memory.nodes.iter().map(move |(node, state)| {
            let labels =
                [("namespace", namespace.as_str()), ("name", name.as_str()), ("node", node)];
            (labels, memory, state)
        })
    })
}

fn node_values(encoder: &mut DescriptorEncoder<'_>, entries: &BTreeMap<Key, Entry>) -> Result {
    let help = "What was measured, in the unit of the label; absent without evidence";
    let mut values =
        family(encoder, "traffic_operator_trafficwatch_node_value", help, MetricType::Gauge)?;
    for ([namespace, name, node], memory, state) in each_node(entries) {
        for (side, criterion) in state.sides().zip(&*memory.criteria) {
            // A value that is no evidence now must not look like one.
            if let (Some(sample), None) = (&side.last, side.missing) {
                let [criterion, unit] = labels_of(criterion);
                values.gauge(&[namespace, name, node, criterion, unit], sample.value)?;
            }
        }
    }
    let help = "The threshold above which the node is unfit, in the unit of the label";
    let mut thresholds =
        family(encoder, "traffic_operator_trafficwatch_node_threshold", help, MetricType::Gauge)?;
    for ([namespace, name, node], memory, _) in each_node(entries) {
        for criterion in &*memory.criteria {
            let [label, unit] = labels_of(criterion);
            thresholds.gauge(&[namespace, name, node, label, unit], criterion.max)?;
        }
    }
    let help = "Age of the sample that was judged, in seconds; absent without evidence";
    let mut ages = family(
        encoder,
        "traffic_operator_trafficwatch_node_sample_age_seconds",
        help,
        MetricType::Gauge,
    )?;
    for (labels, _, node) in each_node(entries) {
        if let Some(age) = node.age() {
            ages.gauge(&labels, age)?;
        }
    }
    Ok(())
}

fn labels_of(criterion: &Criterion) -> [(&'static str, &str); 2] {
    [("criterion", &*criterion.name), ("unit", criterion.rules.unit.as_str())]
}

fn node_states(encoder: &mut DescriptorEncoder<'_>, entries: &BTreeMap<Key, Entry>) -> Result {
    let help = "1 for the state the node is in, 0 for the others";
    let mut states =
        family(encoder, "traffic_operator_trafficwatch_node_state", help, MetricType::Gauge)?;
    for ([namespace, name, node], _, memory) in each_node(entries) {
        for state in NodeState::ALL {
            let labels = [namespace, name, node, ("state", state.as_str())];
            states.gauge(&labels, f64::from(u8::from(memory.state == state)))?;
        }
    }
    Ok(())
}

fn counts(encoder: &mut DescriptorEncoder<'_>, entries: &BTreeMap<Key, Entry>) -> Result {
    let judged = || entries.iter().filter(|(_, entry)| entry.memory.tick.is_some());
    let mut nodes = family(
        encoder,
        "traffic_operator_trafficwatch_nodes",
        "Nodes by state",
        MetricType::Gauge,
    )?;
    for ((namespace, name), entry) in judged() {
        let summary = entry.memory.summary;
        for state in NodeState::ALL {
            let count = match state {
                NodeState::Unfit => summary.unfit,
                NodeState::Suppressed => summary.suppressed,
                NodeState::Unknown => summary.unknown,
                NodeState::Fit => summary.fit,
            };
            let labels = [
                ("namespace", namespace.as_str()),
                ("name", name.as_str()),
                ("state", state.as_str()),
            ];
            nodes.gauge(&labels, f64::from(count))?;
        }
    }
    let help = "Nodes above the threshold that are not marked because of the limit";
    let mut suppressed =
        family(encoder, "traffic_operator_trafficwatch_suppressed", help, MetricType::Gauge)?;
    for ((namespace, name), entry) in judged() {
        let labels = [("namespace", namespace.as_str()), ("name", name.as_str())];
        suppressed.gauge(&labels, f64::from(entry.memory.summary.suppressed))?;
    }
    let help = "Nodes that may be marked unfit at once";
    let mut limits =
        family(encoder, "traffic_operator_trafficwatch_limit", help, MetricType::Gauge)?;
    for ((namespace, name), entry) in judged() {
        let labels = [("namespace", namespace.as_str()), ("name", name.as_str())];
        limits.gauge(&labels, f64::from(u32::try_from(entry.memory.limit).unwrap_or(u32::MAX)))?;
    }
    unknown(encoder, entries)?;
    replicas(encoder, entries)?;
    let help = "When nodes were last judged, in Unix seconds";
    let mut success = family(
        encoder,
        "traffic_operator_trafficwatch_last_success_timestamp_seconds",
        help,
        MetricType::Gauge,
    )?;
    for ((namespace, name), entry) in judged() {
        if let Some(at) = entry.memory.last_success {
            let labels = [("namespace", namespace.as_str()), ("name", name.as_str())];
            success.gauge(&labels, at.as_duration().as_secs_f64())?;
        }
    }
    Ok(())
}

fn unknown(encoder: &mut DescriptorEncoder<'_>, entries: &BTreeMap<Key, Entry>) -> Result {
    let help = "Nodes without evidence now, by reason";
    let mut unknown =
        family(encoder, "traffic_operator_trafficwatch_unknown", help, MetricType::Gauge)?;
    for ((namespace, name), entry) in entries {
        let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
        let states = entry.memory.nodes.iter().filter(|(_, n)| n.state == NodeState::Unknown);
        for reason in states.filter_map(|(_, node)| node.reason) {
            *reasons.entry(reason).or_default() += 1;
        }
        for (reason, count) in reasons {
            let labels =
                [("namespace", namespace.as_str()), ("name", name.as_str()), ("reason", reason)];
            unknown.gauge(&labels, f64::from(count))?;
        }
    }
    Ok(())
}

fn replicas(encoder: &mut DescriptorEncoder<'_>, entries: &BTreeMap<Key, Entry>) -> Result {
    let help = "Replicas of the managed Deployment";
    let mut replicas = family(
        encoder,
        "traffic_operator_trafficwatch_deployment_replicas",
        help,
        MetricType::Gauge,
    )?;
    for ((namespace, name), entry) in entries {
        let Some((wanted, available)) = entry.facts.replicas else { continue };
        for (state, count) in [("wanted", wanted), ("available", available)] {
            let labels =
                [("namespace", namespace.as_str()), ("name", name.as_str()), ("state", state)];
            replicas.gauge(&labels, f64::from(count))?;
        }
    }
    Ok(())
}

fn counters(encoder: &mut DescriptorEncoder<'_>, entries: &BTreeMap<Key, Entry>) -> Result {
    let help = "Nodes that entered a state, by reason";
    let mut transitions =
        family(encoder, "traffic_operator_trafficwatch_transitions", help, MetricType::Counter)?;
    for ((namespace, name), entry) in entries {
        for ((to, reason), count) in &entry.transitions {
            let labels = [
                ("namespace", namespace.as_str()),
                ("name", name.as_str()),
                ("to", to.as_str()),
                ("reason", &**reason),
            ];
            transitions.counter(&labels, *count)?;
        }
    }
    let help = "Judgements by what became of the measurement";
    let mut evaluations =
        family(encoder, "traffic_operator_trafficwatch_evaluations", help, MetricType::Counter)?;
    for ((namespace, name), entry) in entries {
        for (result, count) in &entry.evaluations {
            let labels =
                [("namespace", namespace.as_str()), ("name", name.as_str()), ("result", *result)];
            evaluations.counter(&labels, *count)?;
        }
    }
    let help = "Pods evicted from nodes that stayed unfit; refused by a PodDisruptionBudget";
    let mut evictions =
        family(encoder, "traffic_operator_trafficwatch_evictions", help, MetricType::Counter)?;
    for ((namespace, name), entry) in entries {
        for (result, count) in &entry.evictions {
            let labels =
                [("namespace", namespace.as_str()), ("name", name.as_str()), ("result", *result)];
            evictions.counter(&labels, *count)?;
        }
    }
    Ok(())
}
