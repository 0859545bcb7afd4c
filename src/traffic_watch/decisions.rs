//! The memories of all `TrafficWatch`es, and the metrics read from them at scrape time.
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use super::{
    children::Applied,
    judgement::{Evaluation, Transition},
    memory::{Memory, NodeMemory},
};
use crate::api::traffic_watch::NodeState;

/// By namespace and name; clones share it.
#[derive(Clone, Default)]
pub struct Decisions(Arc<Mutex<BTreeMap<Key, Entry>>>);

type Key = (String, String);

#[derive(Default)]
struct Entry {
    memory: Arc<Memory>,
    transitions: BTreeMap<Transition, u64>,
    evaluations: BTreeMap<&'static str, u64>,
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
    pub fn put(
        &self,
        (namespace, name): (&str, &str),
        memory: Memory,
        transitions: Vec<Transition>,
        evaluation: Option<Evaluation>,
    ) {
        let mut entries = self.entries();
        let entry = entries.entry((namespace.to_owned(), name.to_owned())).or_default();
        entry.memory = Arc::new(memory);
        for transition in transitions {
            *entry.transitions.entry(transition).or_default() += 1;
        }
        if let Some(evaluation) = evaluation {
            *entry.evaluations.entry(evaluation.as_str()).or_default() += 1;
        }
    }

    /// Remembers what became of the Deployment.
    pub fn applied(&self, namespace: &str, name: &str, applied: Applied) {
        let mut entries = self.entries();
        let entry = entries.entry((namespace.to_owned(), name.to_owned())).or_default();
        Arc::make_mut(&mut entry.memory).applied = Some(applied);
    }

    /// Drops everything about one object, its series included.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.entries().remove(&(namespace.to_owned(), name.to_owned()));
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Key, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    let help = "Percent of link capacity in use; absent without evidence";
    let mut values =
        family(encoder, "traffic_operator_trafficwatch_node_value", help, MetricType::Gauge)?;
    for (labels, _, node) in each_node(entries) {
        // A value that is no evidence now must not look like one.
        if let (Some(sample), Some(_)) = (&node.last, node.age) {
            values.gauge(&labels, sample.percent)?;
        }
    }
    let help = "Percent of link capacity above which the node is unfit";
    let mut thresholds =
        family(encoder, "traffic_operator_trafficwatch_node_threshold", help, MetricType::Gauge)?;
    for (labels, memory, _) in each_node(entries) {
        thresholds.gauge(&labels, memory.threshold)?;
    }
    let help = "Age of the sample that was judged, in seconds; absent without evidence";
    let mut ages = family(
        encoder,
        "traffic_operator_trafficwatch_node_sample_age_seconds",
        help,
        MetricType::Gauge,
    )?;
    for (labels, _, node) in each_node(entries) {
        if let Some(age) = node.age {
            ages.gauge(&labels, age)?;
        }
    }
    Ok(())
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
    let mut nodes = family(
        encoder,
        "traffic_operator_trafficwatch_nodes",
        "Nodes by state",
        MetricType::Gauge,
    )?;
    for ((namespace, name), entry) in entries {
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
    for ((namespace, name), entry) in entries {
        let labels = [("namespace", namespace.as_str()), ("name", name.as_str())];
        suppressed.gauge(&labels, f64::from(entry.memory.summary.suppressed))?;
    }
    let help = "When nodes were last judged, in Unix seconds";
    let mut success = family(
        encoder,
        "traffic_operator_trafficwatch_last_success_timestamp_seconds",
        help,
        MetricType::Gauge,
    )?;
    for ((namespace, name), entry) in entries {
        if let Some(at) = entry.memory.last_success {
            let labels = [("namespace", namespace.as_str()), ("name", name.as_str())];
            success.gauge(&labels, at.as_duration().as_secs_f64())?;
        }
    }
    Ok(())
}

fn counters(encoder: &mut DescriptorEncoder<'_>, entries: &BTreeMap<Key, Entry>) -> Result {
    let help = "Nodes that entered a state, by reason";
    let mut transitions =
        family(encoder, "traffic_operator_trafficwatch_transitions", help, MetricType::Counter)?;
    for ((namespace, name), entry) in entries {
        for (transition, count) in &entry.transitions {
            let labels = [
                ("namespace", namespace.as_str()),
                ("name", name.as_str()),
                ("to", transition.to.as_str()),
                ("reason", transition.reason),
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
    Ok(())
}
