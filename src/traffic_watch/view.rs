//! What is decided right now, as it is shown: the JSON of the admin server.
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::traffic_watch::{Mode, NodeState, Summary};

/// One replica's view.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Whether this replica leads: only then it has watches.
    pub leader: bool,
    /// Who this replica is in the Lease.
    pub identity: String,
    /// Its version.
    pub version: String,
    /// When this was answered.
    pub now: Timestamp,
    /// When the process started.
    pub started: Timestamp,
    /// The `TrafficWatch`es, by namespace and name.
    pub watches: Vec<WatchView>,
}

/// One `TrafficWatch`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The key of the node label.
    pub label: String,
    /// What may be written.
    pub mode: Mode,
    /// The period of judgement.
    pub interval_seconds: f64,
    /// How many nodes are in which state.
    pub summary: Summary,
    /// How many nodes may be unfit at once.
    pub limit: u32,
    /// When nodes were last judged.
    pub last_success: Option<Timestamp>,
    /// What is measured.
    pub measures: Vec<MeasureView>,
    /// The nodes: Unfit, Suppressed, Unknown, Fit; each by name.
    pub nodes: Vec<NodeView>,
    /// There are more nodes than are listed.
    pub nodes_truncated: bool,
    /// What changed in the last hour, newest first.
    pub transitions: Vec<TransitionView>,
}

/// One measure.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MeasureView {
    /// `bandwidth`, or the criterion's name.
    pub name: String,
    /// `percent`, `bits_per_second`, or empty: the author's own.
    pub unit: String,
    /// The value above which a node is unfit.
    pub max: f64,
    /// The value at or below which it is fit again.
    pub recover: f64,
    /// The name of the Prometheus endpoint.
    pub endpoint: String,
    /// The PromQL that is asked.
    pub query: String,
    /// Why there is no answer now.
    pub problem: Option<String>,
}

/// One node.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: NodeState,
    /// Why it is in that state.
    pub reason: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// Whether it is marked unfit: the value of the label.
    pub unfit: bool,
    /// How old the judged sample was, in seconds; none without evidence.
    pub age_seconds: Option<f64>,
    /// One per measure, in their order.
    pub values: Vec<ValueView>,
}

/// One measure of one node.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ValueView {
    /// The measure's name.
    pub measure: String,
    /// What was last measured.
    pub value: Option<f64>,
    /// The busiest link.
    pub device: Option<String>,
    /// What hysteresis says: unfit or not.
    pub unfit: Option<bool>,
    /// Judgements in a row against that.
    pub streak: u32,
    /// How many of them change it.
    pub needed: u32,
    /// Why there is no evidence now.
    pub reason: Option<String>,
}

/// A node entered a state.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TransitionView {
    /// When.
    pub at: Timestamp,
    /// The node.
    pub node: String,
    /// The state before.
    pub from: NodeState,
    /// The state after.
    pub to: NodeState,
    /// Why.
    pub reason: String,
}
