//! The state that the controller last observed and decided.
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ReservationStatus;

/// The state of a node as judged by one `TrafficWatch`.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum NodeState {
    /// The node is marked unfit.
    Unfit,
    /// The node exceeds the threshold, but maxUnfit or minFit does not allow another mark. The
    /// label stays "false".
    Suppressed,
    /// There is currently no evidence. An existing label stays.
    Unknown,
    /// The node is fit.
    Fit,
}

// In the order of the status list: those that need attention come first.
traffic_operator_core::named!(NodeState { Unfit, Suppressed, Unknown, Fit });

/// The last known state of a node. The first four fields are those of the original.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Percentage of link capacity in use, as text in scientific notation ("1.06976e-04"). "NaN" if
    /// it was never measured.
    pub current_bandwidth_percent: String,
    /// Bytes sent since the node's counters started, summed over the selected devices; read once a
    /// minute.
    pub current_transmit_total: i64,
    /// Time of the measurement, in Unix seconds. 0 if the node was never measured.
    pub time: i64,
    /// True if the node counts as unfit, as its label says. In mode Observe, as its label would
    /// say.
    pub unfit: bool,
    /// State of the node: Fit, Unfit, Unknown or Suppressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeState>,
    /// Reason for the state, in one word. With spec.criteria, the measures that exceed their
    /// thresholds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The busiest link, if the link speeds are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Time at which the node entered the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Seconds for which this node has had no evidence while other nodes had it. This is the clock
    /// of spec.onUnknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(extend("format" = "int32"))]
    pub unknown_seconds: u32,
    /// Result of each measure. Empty if maxBandwidthPercent is the only measure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub criteria: Vec<CriterionStatus>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(x: &u32) -> bool {
    *x == 0
}

/// The result of one measure for one node.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
pub struct CriterionStatus {
    /// Name of the measure: "bandwidth", or a name in spec.criteria.
    pub name: String,
    /// Last measured value, as text in scientific notation. Absent if there was never a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// True if this measure exceeds its threshold, hysteresis included. Absent until it was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<bool>,
    /// Reason why there is currently no evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Number of nodes in each state. It always counts all nodes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct Summary {
    /// Number of nodes that are judged.
    #[schemars(extend("format" = "int32"))]
    pub nodes: u32,
    /// Number of nodes that are fit.
    #[schemars(extend("format" = "int32"))]
    pub fit: u32,
    /// Number of nodes that are marked unfit.
    #[schemars(extend("format" = "int32"))]
    pub unfit: u32,
    /// Number of nodes without evidence.
    #[schemars(extend("format" = "int32"))]
    pub unknown: u32,
    /// Number of nodes that exceed the threshold but are not marked, because maxUnfit or minFit
    /// does not allow it.
    #[schemars(extend("format" = "int32"))]
    pub suppressed: u32,
    /// Number of nodes that are marked unfit, with or without evidence now. In mode Observe, of
    /// those that would be.
    #[schemars(extend("format" = "int32"))]
    #[serde(default)]
    pub marked: u32,
}

/// The state that the controller last observed and decided.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficWatchStatus {
    /// True once every judged node with data has been judged once.
    #[serde(default)]
    pub ready: bool,
    /// Nodes by name, at most 100: Unfit first, then Suppressed, Unknown and Fit, each sorted by
    /// name.
    #[serde(default)]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub nodes: BTreeMap<String, NodeStatus>,
    /// True if there are more nodes than are listed. The summary counts them all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nodes_truncated: bool,
    /// Number of nodes in each state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// The thresholds in readable form, for example "60 %" or "800M, loss 0.01".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
    /// Key of the node label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The extended resource of spec.reservation. Absent if nodes offer none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationStatus>,
    /// Time of the last evaluation with evidence, at most a minute old while there is any. Absent
    /// until there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_evaluation_time: Option<Time>,
    /// Generation of the spec that this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Standard conditions: Ready, MetricsAvailable and PlacementLimited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(schema_with = "crate::api::schema::conditions")]
    pub conditions: Vec<Condition>,
}
