//! `explain node`: the reasons for the state of a node.
use std::collections::BTreeMap;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::LabelSelector, jiff::Timestamp};
use kube::ResourceExt;
use serde::Serialize;

use super::cluster::name_of;
use crate::{
    api::{
        TrafficWatch,
        traffic_watch::{Mode, NodeState},
    },
    selector::Selector,
    traffic_watch::overview::{MeasureView, NodeView, Overview, ReservationView, WatchView},
};

mod gather;
mod snapshot;
mod text;
mod watch;
mod watch_text;

pub use gather::{gather, gather_watch};
pub use text::text;
pub use watch::explain_watch;
pub use watch_text::text as watch_text;

/// The facts that an explanation uses.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The node to explain.
    pub node: Node,
    /// All readable `TrafficWatch`es, or the requested one.
    pub watches: Vec<TrafficWatch>,
    /// The names of those that cannot be read, and why.
    pub unreadable: Vec<(String, String)>,
    /// The leader's answer, or the reason why there is none.
    pub live: Result<Overview, String>,
    /// The current time.
    pub now: Timestamp,
}

/// The node as the API server has it.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Name of the Node object.
    pub name: String,
    /// Labels of the Node object.
    pub labels: BTreeMap<String, String>,
    /// Its taints, as `key=value:effect`.
    pub taints: Vec<String>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Name of the explained node.
    pub node: String,
    /// Taints of the node, as text.
    pub taints: Vec<String>,
    /// The source of the values.
    pub source: Source,
    /// The `TrafficWatch`es that judge it.
    pub judged_by: Vec<NodeJudgment>,
    /// Those that do not, and why.
    pub not_judged_by: Vec<Absence>,
}

/// The source of the values.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "from")]
pub enum Source {
    /// The leader itself, just now.
    Leader {
        /// Its name in the Lease.
        identity: String,
        /// Version of the answering replica.
        version: String,
    },
    /// The status of the objects.
    Status {
        /// The reason why the leader was not asked.
        because: String,
    },
}

impl Source {
    /// The replica that answered, by its name and version, or the reason why none did.
    pub(super) fn of(answer: Result<(&String, &String), &String>) -> Self {
        match answer {
            Ok((identity, version)) => {
                Self::Leader { identity: identity.clone(), version: version.clone() }
            }
            Err(because) => Self::Status { because: because.clone() },
        }
    }
}

/// The judgment of the node by one `TrafficWatch`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeJudgment {
    /// `namespace/name`.
    pub watch: String,
    /// State of the node for this `TrafficWatch`.
    pub state: NodeState,
    /// The reason for this state.
    pub reason: Option<String>,
    /// The time at which this began.
    pub since: Option<Timestamp>,
    /// Seconds since then.
    pub seconds: Option<i64>,
    /// The age of the judged sample.
    pub sample_age_seconds: Option<f64>,
    /// The time of the shown values, if they are not current.
    pub taken: Option<Timestamp>,
    /// Each measure.
    pub measures: Vec<Measured>,
    /// The node label.
    pub label: Label,
    /// The breaker.
    pub limit: Limit,
    /// Offer of the node to pods; absent if nothing, or if only the leader knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationView>,
    /// The problems with a judgment: `Paused`, a failed measurement, …
    pub problems: Vec<String>,
}

/// One measure of the node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// The measure and its threshold.
    #[serde(flatten)]
    pub measure: MeasureView,
    /// The last measured value.
    pub value: Option<f64>,
    /// The busiest link.
    pub device: Option<String>,
    /// True if unfit, after hysteresis.
    pub unfit: Option<bool>,
    /// Judgments in a row against that; absent if only the leader knows.
    pub streak: Option<u32>,
    /// Number of judgments that change it.
    pub needed: Option<u32>,
    /// The reason why there is no evidence now.
    pub reason: Option<String>,
}

/// The node label, as it is and as it should be.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Label {
    /// Full key of the label.
    pub key: String,
    /// Its value on the node now.
    pub value: Option<String>,
    /// The value that was decided; none if nothing was.
    pub wanted: Option<String>,
    /// True if the two agree.
    pub agrees: bool,
}

/// The breaker: the number of nodes that may be unfit, and the unfit nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// The number of nodes that can take the pods in question; all judged ones if only the leader
    /// knows.
    pub nodes: u32,
    /// The number of them that may be unfit; absent if only the leader knows.
    pub limit: Option<u32>,
    /// The nodes that are marked unfit.
    pub marked: Vec<Peer>,
    /// The nodes above a threshold that are not marked.
    pub waiting: Vec<Peer>,
    /// True if there are more than are listed.
    pub truncated: bool,
}

/// A node that is above a threshold.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Its name.
    pub node: String,
    /// Its value of the first measure.
    pub value: Option<f64>,
}

/// A `TrafficWatch` that does not judge the node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Absence {
    /// `namespace/name`.
    pub watch: String,
    /// The reason why not.
    pub because: String,
}

/// Explains one node.
#[must_use]
pub fn explain(facts: &Facts) -> Explanation {
    let mut judged_by = Vec::new();
    let mut not_judged_by = Vec::new();
    for watch in &facts.watches {
        let name = name_of(watch);
        match verdict(facts, watch) {
            Ok(verdict) => judged_by.push(verdict),
            Err(because) => not_judged_by.push(Absence { watch: name, because }),
        }
    }
    let unreadable = facts.unreadable.iter().map(|(watch, error)| Absence {
        watch: watch.clone(),
        because: format!("its spec cannot be read: {error}"),
    });
    not_judged_by.extend(unreadable);
    // Judgments that need attention come first.
    judged_by.sort_by(|a, b| a.state.cmp(&b.state).then_with(|| a.watch.cmp(&b.watch)));
    Explanation {
        node: facts.node.name.clone(),
        taints: facts.node.taints.clone(),
        source: Source::of(facts.live.as_ref().map(|view| (&view.identity, &view.version))),
        judged_by,
        not_judged_by,
    }
}

fn verdict(facts: &Facts, watch: &TrafficWatch) -> Result<NodeJudgment, String> {
    let live = facts.live.as_ref().ok().and_then(|view| {
        view.watches.iter().find(|w| {
            (Some(&w.namespace), &w.name) == (watch.namespace().as_ref(), &watch.name_any())
        })
    });
    let judged = live.and_then(|w| Some((w, w.nodes.iter().find(|n| n.name == facts.node.name)?)));
    match judged {
        Some((w, node)) => Ok(from_view(facts, watch, w, node)),
        // A status may be older than the node's labels.
        None if !selects(facts, watch) => Err(absence(facts, watch)),
        None => snapshot::verdict(facts, watch).ok_or_else(|| absence(facts, watch)),
    }
}

fn from_view(facts: &Facts, watch: &TrafficWatch, w: &WatchView, node: &NodeView) -> NodeJudgment {
    let measures = w.measures.iter().map(|measure| {
        let value = node.values.iter().find(|value| value.measure == measure.name);
        Measured {
            measure: measure.clone(),
            value: value.and_then(|v| v.value),
            device: value.and_then(|v| v.device.clone()),
            unfit: value.and_then(|v| v.unfit),
            streak: value.map(|v| v.streak),
            needed: value.map(|v| v.needed),
            reason: value.and_then(|v| v.reason.clone()),
        }
    });
    let measures: Vec<_> = measures.collect();
    // Before its first verdict a node has no label.
    let decided = measures.iter().any(|m| m.unfit.is_some());
    let mut limit = snapshot::limit(watch);
    limit.nodes = w.room;
    limit.limit = Some(w.limit);
    // The view may have been requested for this node only; the status lists those that are unfit.
    if w.nodes.len() > 1 {
        limit.truncated = w.nodes_truncated;
        limit.marked = peers(w, NodeState::Unfit);
        limit.waiting = peers(w, NodeState::Suppressed);
    }
    NodeJudgment {
        watch: name_of(watch),
        state: node.state,
        reason: node.reason.clone(),
        since: Some(node.since),
        seconds: Some(elapsed(node.since, facts.now)),
        sample_age_seconds: node.age_seconds,
        taken: None,
        label: label(facts, watch, decided.then_some(node.unfit)),
        limit,
        reservation: node.reservation.clone(),
        problems: snapshot::problems(watch),
        measures,
    }
}

fn peers(w: &WatchView, state: NodeState) -> Vec<Peer> {
    let nodes = w.nodes.iter().filter(|node| node.state == state);
    nodes
        .map(|node| Peer {
            node: node.name.clone(),
            value: node.values.first().and_then(|value| value.value),
        })
        .collect()
}

fn elapsed(since: Timestamp, now: Timestamp) -> i64 {
    now.as_second().saturating_sub(since.as_second()).max(0)
}

fn label(facts: &Facts, watch: &TrafficWatch, decided: Option<bool>) -> Label {
    let key = watch.label_key();
    let value = facts.node.labels.get(&key).cloned();
    let wanted = decided
        .filter(|_| watch.spec.mode == Mode::Enforce)
        .map(|unfit| if unfit { "true" } else { "false" }.to_owned());
    // No decision, but a label: an earlier decision, which stays. No label and no `unfit` due: some
    // measure has not judged the node yet, or the label was removed because there is no evidence.
    let none_due = value.is_none() && decided == Some(false);
    let agrees = wanted.is_none() || wanted == value || none_due;
    Label { key, value, wanted, agrees }
}

fn selects(facts: &Facts, watch: &TrafficWatch) -> bool {
    mismatches(watch.spec.node_selector.as_ref(), &facts.node.labels).is_empty()
}

/// Returns the reason why a `TrafficWatch` has no judgment of the node.
fn absence(facts: &Facts, watch: &TrafficWatch) -> String {
    let missing = mismatches(watch.spec.node_selector.as_ref(), &facts.node.labels);
    if !missing.is_empty() {
        return missing.join("; ");
    }
    if let Some(problem) = snapshot::problems(watch).into_iter().next() {
        return format!("it is selected, but: {problem}");
    }
    match &watch.status {
        None => "it is selected, but the operator has not looked at this TrafficWatch yet: is it running?".into(),
        Some(status) if status.nodes_truncated => {
            "it is selected, but the status lists only some of the nodes, not this one: only \
             the leader knows"
                .into()
        }
        Some(_) => "it is selected, but not judged yet".into(),
    }
}

/// Returns the parts of a selector that the labels do not match.
fn mismatches(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> Vec<String> {
    let matches = |selector: &Selector| selector.matches(|key| labels.get(key).map(String::as_str));
    let has = |key: &str| labels.get(key).map_or("no such label".into(), |v| format!("{v:?}"));
    let Some(selector) = selector else {
        let key = "kubernetes.io/os";
        return if matches(&Selector::linux()) {
            vec![]
        } else {
            vec![format!(
                "only Linux nodes are judged unless spec.nodeSelector says otherwise; {key} is {}",
                has(key)
            )]
        };
    };
    let labels_of = selector.match_labels.iter().flatten().map(|(key, value)| {
        let one = LabelSelector {
            match_labels: Some([(key.clone(), value.clone())].into()),
            match_expressions: None,
        };
        (one, format!("spec.nodeSelector wants {key}={value}; the node has {}", has(key)))
    });
    let expressions = selector.match_expressions.iter().flatten().map(|e| {
        let values = e.values.as_deref().unwrap_or_default().join(", ");
        let wanted = format!("{} {} {values}", e.key, e.operator);
        let text =
            format!("spec.nodeSelector wants {}; the node has {}", wanted.trim_end(), has(&e.key));
        (LabelSelector { match_labels: None, match_expressions: Some(vec![e.clone()]) }, text)
    });
    labels_of
        .chain(expressions)
        .filter_map(|(one, text)| match Selector::new(&one) {
            Ok(one) => (!matches(&one)).then_some(text),
            Err(invalid) => Some(format!("spec.nodeSelector.{invalid}")),
        })
        .collect()
}

#[cfg(test)]
mod tests;
