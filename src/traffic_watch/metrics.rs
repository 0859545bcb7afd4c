//! The metrics of `TrafficWatch`es, read from their memories at scrape time.
//!
//! A scrape borrows one object at a time and holds no lock while it encodes: a slow reader delays
//! no judgment and keeps no more than one memory alive.
use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    sync::Arc,
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, LabelSetEncoder},
};

use super::{
    memory::{Counters, Entry, MeasureState, Memories, Memory, NodeMemory, Reason},
    reservation::{self, Figures},
    settings::Criterion,
};
use crate::{
    api::traffic_watch::NodeState,
    metrics::{Family, count},
};

/// The most pairs of an object and a node that have series. One that is Fit has one for each measure,
/// another five more, and one that offers bandwidth four more: a page of some 2 MB while most are Fit.
const PAIRS: usize = 10_000;

type Result = std::result::Result<(), fmt::Error>;

/// One object as a scrape sees it.
struct Object {
    memory: Arc<Memory>,
    counters: Arc<Counters>,
    replicas: Option<(i32, i32)>,
    /// None while it is paused, and if something was remembered before the first pass.
    interval: Option<Duration>,
}

impl Object {
    fn of(entry: &Entry) -> Self {
        Self {
            memory: Arc::clone(&entry.memory),
            counters: Arc::clone(&entry.counters),
            replicas: entry.facts.replicas,
            interval: Some(entry.facts.interval).filter(|it| !entry.facts.paused && !it.is_zero()),
        }
    }

    /// Its nodes that have series: those that need attention first, and of the fit ones the first
    /// by name, so that the selection changes with states only.
    fn shown(&self, share: usize) -> impl Iterator<Item = (&str, &NodeMemory)> {
        let nodes = &self.memory.nodes;
        let by_state = NodeState::ALL
            .into_iter()
            .flat_map(move |state| nodes.iter().filter(move |(_, node)| node.state == state));
        by_state.take(share).map(|(name, node)| (&**name, node))
    }

    /// The nodes that are not Fit, which are few, or need attention first.
    fn not_fit(&self, share: usize) -> impl Iterator<Item = (&str, &NodeMemory)> {
        self.shown(share).filter(|(_, node)| node.state != NodeState::Fit)
    }

    /// Reports whether it was judged: before, its figures would be zeros without a measurement.
    fn is_judged(&self) -> bool {
        self.memory.tick.is_some()
    }
}

/// The leader's metrics of each `TrafficWatch`.
#[derive(Debug)]
pub struct Gauges(pub Memories);

impl Gauges {
    /// Every object in turn; one that appears or vanishes meanwhile is in some families only.
    fn each(&self, mut visit: impl FnMut([Label<'_>; 2], &Object) -> Result) -> Result {
        let mut objects = self.0.each(|_, entry| Some(Object::of(entry)));
        objects.try_for_each(|((namespace, name), object)| {
            visit([("namespace", &namespace), ("name", &name)], &object)
        })
    }

    fn encode_pairs(&self, encoder: &mut DescriptorEncoder<'_>, most: usize) -> Result {
        let sizes = self.0.each(|_, entry| Some(entry.memory.nodes.iter().count()));
        let mut sizes: Vec<_> = sizes.map(|(_, size)| size).collect();
        // An empty family would give every follower a help text without series.
        if sizes.is_empty() {
            return Ok(());
        }
        let share = share(&mut sizes, most);
        self.thresholds(encoder)?;
        self.node_values(encoder, share)?;
        self.node_states(encoder, share)?;
        self.node_infos(encoder, share)?;
        self.reservations(encoder, share)?;
        self.gauges(encoder, share)?;
        self.intervals(encoder)?;
        self.unknown(encoder)?;
        self.replicas(encoder)?;
        self.counters(encoder)
    }
}

/// Returns the largest share of `most` that all can have: objects with fewer leave the rest to the
/// others, so that one object's thousands of nodes do not hide the others'.
fn share(sizes: &mut [usize], most: usize) -> usize {
    sizes.sort_unstable();
    let (mut left, mut objects) = (most, sizes.len());
    for size in sizes {
        let each = left / objects;
        if *size > each {
            return each;
        }
        left -= *size;
        objects -= 1;
    }
    usize::MAX
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result {
        self.encode_pairs(&mut encoder, PAIRS)
    }
}

/// One figure of an object, given the share of nodes that have series.
type Figure = fn(&Object, usize) -> Option<f64>;

/// Counts of an object by result.
type Counts = fn(&Counters) -> &BTreeMap<&'static str, u64>;

/// The labels of each measure: the text before the last value, and that value.
fn measures(object: &Object) -> Vec<(String, &'static str)> {
    let labels = |criterion: &Criterion| {
        let unit = criterion.rules.unit.as_str();
        (joined(&[("criterion", &criterion.name)], "unit"), unit)
    };
    object.memory.criteria.iter().map(labels).collect()
}

impl Gauges {
    /// The thresholds of each object: those of a node are those of its object.
    fn thresholds(&self, encoder: &mut DescriptorEncoder<'_>) -> Result {
        let help = "The threshold above which a node is unfit, in the unit of the label";
        let family = "traffic_operator_trafficwatch_threshold";
        let mut thresholds = Family::gauges(encoder, family, help)?;
        self.each(|[namespace, name], object| {
            for criterion in object.memory.criteria.iter().filter(|_| object.is_judged()) {
                let unit = criterion.rules.unit.as_str();
                let labels = [namespace, name, ("criterion", &criterion.name), ("unit", unit)];
                thresholds.gauge(&labels, criterion.max)?;
            }
            Ok(())
        })
    }

    fn node_values(&self, encoder: &mut DescriptorEncoder<'_>, share: usize) -> Result {
        let help = "What was measured, in the unit of the label; absent without evidence";
        let mut values = Family::gauges(encoder, "traffic_operator_trafficwatch_node_value", help)?;
        self.each(|own, object| {
            let (before, measures) = (joined(&own, "node"), measures(object));
            for (node, state) in object.shown(share) {
                for (side, (criterion, unit)) in state.sides().zip(&measures) {
                    // A value without current evidence must not be exported.
                    if let (Some(sample), None) = (&side.last, side.missing) {
                        let labels =
                            NodeLabels { before: &before, node, last: (criterion.as_str(), *unit) };
                        values.gauge(&labels, sample.value)?;
                    }
                }
            }
            Ok(())
        })?;
        let help = "The threshold of a node that is not Fit, in the unit of the label";
        let mut thresholds =
            Family::gauges(encoder, "traffic_operator_trafficwatch_node_threshold", help)?;
        self.each(|own, object| {
            let (before, measures) = (joined(&own, "node"), measures(object));
            for (node, _) in object.not_fit(share) {
                for (criterion, (label, unit)) in object.memory.criteria.iter().zip(&measures) {
                    let labels =
                        NodeLabels { before: &before, node, last: (label.as_str(), *unit) };
                    thresholds.gauge(&labels, criterion.max)?;
                }
            }
            Ok(())
        })?;
        let help =
            "Age of the sample of a node that is not Fit, in seconds; absent without evidence";
        let family = "traffic_operator_trafficwatch_node_sample_age_seconds";
        let mut ages = Family::gauges(encoder, family, help)?;
        self.each(|own, object| {
            let before = joined(&own, "node");
            for (node, state) in object.not_fit(share) {
                if let Some(age) = state.age() {
                    ages.gauge(&[(before.as_str(), node)], age)?;
                }
            }
            Ok(())
        })
    }

    fn node_states(&self, encoder: &mut DescriptorEncoder<'_>, share: usize) -> Result {
        let help = "1 for the state of a node that is not Fit; the other states have no series";
        let mut states = Family::gauges(encoder, "traffic_operator_trafficwatch_node_state", help)?;
        self.each(|own, object| {
            let before = joined(&own, "node");
            for (node, state) in object.not_fit(share) {
                let last = ("state", state.state.as_str());
                states.gauge(&NodeLabels { before: &before, node, last }, 1.0)?;
            }
            Ok(())
        })
    }

    fn node_infos(&self, encoder: &mut DescriptorEncoder<'_>, share: usize) -> Result {
        let help = "Why a node is not Fit: 1, with the measure, the reason and the link";
        let mut infos = Family::gauges(encoder, "traffic_operator_trafficwatch_node_info", help)?;
        self.each(|own, object| {
            let before = joined(&own, "node");
            for (node, state) in object.not_fit(share) {
                let (label, device) = info_labels(state, &object.memory.criteria);
                let last = (label.as_str(), device);
                infos.gauge(&NodeLabels { before: &before, node, last }, 1.0)?;
            }
            Ok(())
        })?;
        let help = "Time since which a node that is not Fit is in its state, in Unix seconds";
        let family = "traffic_operator_trafficwatch_node_state_since_timestamp_seconds";
        let mut times = Family::gauges(encoder, family, help)?;
        self.each(|own, object| {
            let before = joined(&own, "node");
            for (node, state) in object.not_fit(share) {
                let since = state.since.as_duration().as_secs_f64();
                times.gauge(&[(before.as_str(), node)], since)?;
            }
            Ok(())
        })
    }

    fn gauges(&self, encoder: &mut DescriptorEncoder<'_>, share: usize) -> Result {
        let help = "Nodes by state";
        let mut nodes = Family::gauges(encoder, "traffic_operator_trafficwatch_nodes", help)?;
        self.each(|[namespace, name], object| {
            let summary = object.memory.summary;
            for state in NodeState::ALL.into_iter().filter(|_| object.is_judged()) {
                let count = match state {
                    NodeState::Unfit => summary.unfit,
                    NodeState::Suppressed => summary.suppressed,
                    NodeState::Unknown => summary.unknown,
                    NodeState::Fit => summary.fit,
                };
                let labels = [namespace, name, ("state", state.as_str())];
                nodes.gauge(&labels, f64::from(count))?;
            }
            Ok(())
        })?;
        let figures: [(&'static str, &str, Figure); 5] = [
            (
                "traffic_operator_trafficwatch_suppressed",
                "Nodes above the threshold that are not marked because of the limit",
                |object, _| Some(f64::from(object.memory.summary.suppressed)),
            ),
            (
                "traffic_operator_trafficwatch_limit",
                "Maximum number of nodes that may be marked unfit",
                |object, _| Some(count(object.memory.limit)),
            ),
            (
                "traffic_operator_trafficwatch_marked",
                "Nodes that are marked unfit, with or without evidence now",
                |object, _| Some(object.memory.summary.marked.into()),
            ),
            (
                "traffic_operator_trafficwatch_nodes_not_exported",
                "Nodes without separate series, because the number of series is limited",
                |object, share| Some(count(object.memory.nodes.iter().skip(share).count())),
            ),
            (
                "traffic_operator_trafficwatch_last_success_timestamp_seconds",
                "Time of the last judgment, in Unix seconds",
                |object, _| Some(object.memory.last_success?.as_duration().as_secs_f64()),
            ),
        ];
        for (name, help, figure) in figures {
            let mut family = Family::gauges(encoder, name, help)?;
            self.each(|labels, object| match figure(object, share) {
                Some(value) if object.is_judged() => family.gauge(&labels, value),
                _ => Ok(()),
            })?;
        }
        Ok(())
    }

    /// From the spec: known before the first judgment. An object that is paused is not judged: its
    /// requests that failed before the pause would raise alerts for an hour, because no judgment
    /// succeeds for several of its intervals.
    fn intervals(&self, encoder: &mut DescriptorEncoder<'_>) -> Result {
        let help = "Time between two judgments (spec.interval)";
        let family = "traffic_operator_trafficwatch_interval_seconds";
        let mut intervals = Family::gauges(encoder, family, help)?;
        self.each(|labels, object| match object.interval {
            Some(interval) => intervals.gauge(&labels, interval.as_secs_f64()),
            None => Ok(()),
        })
    }

    fn unknown(&self, encoder: &mut DescriptorEncoder<'_>) -> Result {
        let help = "Nodes without evidence now, by reason";
        let mut unknown = Family::gauges(encoder, "traffic_operator_trafficwatch_unknown", help)?;
        self.each(|[namespace, name], object| {
            let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
            let states = object.memory.nodes.iter().filter(|(_, n)| n.state == NodeState::Unknown);
            for reason in states.filter_map(|(_, node)| node.reason) {
                *reasons.entry(reason.as_str()).or_default() += 1;
            }
            for (reason, count) in reasons {
                unknown.gauge(&[namespace, name, ("reason", reason)], f64::from(count))?;
            }
            Ok(())
        })
    }

    fn replicas(&self, encoder: &mut DescriptorEncoder<'_>) -> Result {
        let help = "Replicas of the managed Deployment";
        let family = "traffic_operator_trafficwatch_deployment_replicas";
        let mut replicas = Family::gauges(encoder, family, help)?;
        self.each(|[namespace, name], object| {
            let Some((wanted, available)) = object.replicas else { return Ok(()) };
            for (state, count) in [("wanted", wanted), ("available", available)] {
                replicas.gauge(&[namespace, name, ("state", state)], f64::from(count))?;
            }
            Ok(())
        })
    }

    fn counters(&self, encoder: &mut DescriptorEncoder<'_>) -> Result {
        let help = "Nodes that entered a state, by reason";
        let name = "traffic_operator_trafficwatch_transitions";
        let mut transitions = Family::counters(encoder, name, help)?;
        self.each(|[namespace, name], object| {
            for ((to, reason), count) in &object.counters.transitions {
                let labels = [namespace, name, ("to", to.as_str()), ("reason", reason)];
                transitions.counter(&labels, *count)?;
            }
            Ok(())
        })?;
        let by_result: [(&'static str, &str, Counts); 3] = [
            (
                "traffic_operator_trafficwatch_evaluations",
                "Judgments by result of the measurement",
                |counters| &counters.evaluations,
            ),
            (
                "traffic_operator_trafficwatch_evictions",
                "Pods evicted from nodes that stayed unfit; refused by a PodDisruptionBudget",
                |counters| &counters.evictions,
            ),
            (
                "traffic_operator_trafficwatch_reservation_writes",
                "Changes of what nodes offer to pods; failed if the API server refused them",
                |counters| &counters.offers,
            ),
        ];
        for (name, help, counts) in by_result {
            let mut family = Family::counters(encoder, name, help)?;
            self.each(|[namespace, name], object| {
                for (result, count) in counts(&object.counters) {
                    family.counter(&[namespace, name, ("result", *result)], *count)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// The reason of a node in the state of a measurement, as in
/// `traffic_operator_trafficwatch_transitions_total`.
const MEASURED: &str = "Measured";

/// Explains a node that is not Fit by the labels after the node's: the text before the last value, and
/// that value.
fn info_labels<'a>(node: &'a NodeMemory, criteria: &'a [Criterion]) -> (String, &'a str) {
    let decisive = decisive(node, criteria);
    let criterion = decisive.map_or("", |(criterion, _)| &*criterion.name);
    let sample = decisive.and_then(|(_, side)| side.last.as_ref());
    let device = sample.and_then(|sample| sample.device.as_deref()).unwrap_or_default();
    let measured = if decisive.is_some() { MEASURED } else { "" };
    let reason = node.reason.map_or(measured, Reason::as_str);
    let labels = [("state", node.state.as_str()), ("criterion", criterion), ("reason", reason)];
    (joined(&labels, "device"), device)
}

/// Returns the measure that explains the state: of an Unknown node one without evidence, which the
/// reason is about, and of the others the one that exceeds its threshold most. There is none if a
/// label is kept that no measure set.
fn decisive<'a>(
    node: &'a NodeMemory,
    criteria: &'a [Criterion],
) -> Option<(&'a Criterion, &'a MeasureState)> {
    let sides = || criteria.iter().zip(node.sides());
    if node.state == NodeState::Unknown {
        let mut held = sides().filter(|(_, side)| side.judged == Some(true));
        let held = held.find(|(_, side)| side.missing.is_some());
        return held.or_else(|| sides().find(|(_, side)| side.missing.is_some()));
    }
    let unfit = sides().filter(|(_, side)| side.judged == Some(true) && side.missing.is_none());
    unfit.max_by(|a, b| times(a.0, a.1).total_cmp(&times(b.0, b.1)))
}

/// The factor by which a measure exceeds its threshold.
fn times(criterion: &Criterion, side: &MeasureState) -> f64 {
    let times = side.last.as_ref().map_or(0.0, |sample| sample.value / criterion.max);
    // Nothing above a threshold of zero is no worse than being at one.
    if times.is_nan() { 1.0 } else { times }
}

/// One figure of a node, in bits per second.
type Bits = fn(&reservation::Memory, &Figures) -> Option<f64>;

/// The figures by the label `of`: all in one unit, so that they compare in one graph.
const FIGURES: [(&str, Bits); 4] = [
    ("limit", |_, figures| figures.limit),
    ("measured", |_, figures| figures.measured),
    ("requested", |memory, figures| Some(memory.bits(figures.requested))),
    ("offered", |memory, figures| Some(memory.bits(figures.amount?))),
];

impl Gauges {
    fn reservations(&self, encoder: &mut DescriptorEncoder<'_>, share: usize) -> Result {
        let help = "What pods and everything else may use on a node (limit) and use (measured), \
                    what pods request and what the node offers; the first two only with evidence";
        let family = "traffic_operator_trafficwatch_node_reservation_bits_per_second";
        let mut family = Family::gauges(encoder, family, help)?;
        self.each(|own, object| {
            let Some(memory) = &object.memory.reservation else { return Ok(()) };
            let before = joined(&own, "node");
            let label = joined(&[("resource", &memory.resource)], "of");
            for (node, figures) in
                object.shown(share).filter_map(|(node, _)| Some((node, memory.get(node)?)))
            {
                for (of, bits) in FIGURES {
                    if let Some(bits) = bits(memory, figures) {
                        let last = (label.as_str(), of);
                        family.gauge(&NodeLabels { before: &before, node, last }, bits)?;
                    }
                }
            }
            Ok(())
        })?;
        let help = "Pods without a node that request more of the resource than any node has free";
        let family = "traffic_operator_trafficwatch_reservation_waiting_pods";
        let mut family = Family::gauges(encoder, family, help)?;
        self.each(|[namespace, name], object| {
            let Some(memory) = &object.memory.reservation else { return Ok(()) };
            let labels = [namespace, name, ("resource", &*memory.resource)];
            #[expect(clippy::cast_precision_loss, reason = "pods are fewer than 2^52")]
            family.gauge(&labels, memory.waiting as f64)
        })
    }
}

/// A label, by its name and its value.
type Label<'a> = (&'static str, &'a str);

/// The labels of one series about a node, of which a page has tens of thousands. All series of an
/// object share one text: the encoder of the text format writes names of labels as they are, so that a
/// name may be several labels and a name.
struct NodeLabels<'a> {
    /// The labels of the object, and the name of the label of the node: [`joined`].
    before: &'a str,
    /// The node.
    node: &'a str,
    /// The text before the last value, likewise, and that value.
    last: (&'a str, &'a str),
}

impl EncodeLabelSet for NodeLabels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        for (name, value) in [(self.before, self.node), self.last] {
            let mut label = encoder.encode_label();
            let mut text = label.encode_label_key()?;
            text.write_str(name)?;
            let mut text = text.encode_label_value()?;
            text.write_str(value)?;
            text.finish()?;
        }
        Ok(())
    }
}

/// Some labels, and the name of one that follows them.
fn joined(labels: &[Label<'_>], name: &str) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        text.push_str(name);
        text.push_str("=\"");
        for char in value.chars() {
            match char {
                '\n' => text.push_str("\\n"),
                '"' | '\\' => text.extend(['\\', char]),
                char => text.push(char),
            }
        }
        text.push_str("\",");
    }
    text.push_str(name);
    text
}

#[cfg(test)]
mod tests;
