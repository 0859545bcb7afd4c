//! What the controller last saw and decided.
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of one node in the eyes of one `TrafficWatch`.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum NodeState {
    /// Marked unfit.
    Unfit,
    /// Would be unfit, but too many nodes are already; the label stays "false".
    Suppressed,
    /// There is no evidence now; a label that exists stays.
    Unknown,
    /// Fit.
    Fit,
}

impl NodeState {
    /// All states, in the order of the status list: what needs attention first.
    pub const ALL: [Self; 4] = [Self::Unfit, Self::Suppressed, Self::Unknown, Self::Fit];

    /// The word used in status, metrics and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unfit => "Unfit",
            Self::Suppressed => "Suppressed",
            Self::Unknown => "Unknown",
            Self::Fit => "Fit",
        }
    }
}

/// What was last known of one node. The first four fields are the original's.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Percent of link capacity in use, as text in scientific notation ("1.06976e-04"); "NaN" if it
    /// was never measured.
    pub current_bandwidth_percent: String,
    /// Bytes sent since the node's counters began, over the devices that count.
    pub current_transmit_total: i64,
    /// When the values were taken, in Unix seconds; 0 if never.
    pub time: i64,
    /// Whether the node counts as unfit: what its label says (in mode Observe: what it would say).
    pub unfit: bool,
    /// Fit, Unfit, Unknown or Suppressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeState>,
    /// Why it is so, in one word; where spec.criteria are set, the measures that say unfit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The busiest link, when the link speeds are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// When the state was entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// For how many seconds evidence about this node has stayed away while others had it: the clock
    /// of spec.onUnknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(extend("format" = "int32"))]
    pub unknown_seconds: u32,
    /// What each measure says, unless the percentage above is the only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub criteria: Vec<CriterionStatus>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(x: &u32) -> bool {
    *x == 0
}

/// What one measure says of one node.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
pub struct CriterionStatus {
    /// The measure: "bandwidth", or a name in spec.criteria.
    pub name: String,
    /// The value last measured, as text in scientific notation; absent if there never was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What its own hysteresis says; absent until it was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<bool>,
    /// Why there is no evidence now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How many nodes are in which state; always complete.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct Summary {
    /// Nodes that are judged.
    #[schemars(extend("format" = "int32"))]
    pub nodes: u32,
    /// Nodes that are fit.
    #[schemars(extend("format" = "int32"))]
    pub fit: u32,
    /// Nodes marked unfit.
    #[schemars(extend("format" = "int32"))]
    pub unfit: u32,
    /// Nodes without evidence.
    #[schemars(extend("format" = "int32"))]
    pub unknown: u32,
    /// Nodes that would be unfit, had the limit not been reached.
    #[schemars(extend("format" = "int32"))]
    pub suppressed: u32,
}

/// What the controller last saw and decided.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficWatchStatus {
    /// Every judged node with data has been judged once.
    #[serde(default)]
    pub ready: bool,
    /// The nodes by name; at most 100: Unfit, Suppressed, then Unknown, then Fit, each by name.
    #[serde(default)]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub nodes: BTreeMap<String, NodeStatus>,
    /// There are more nodes than are listed; the summary counts them all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nodes_truncated: bool,
    /// How many nodes are in which state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// The thresholds, for a person: "60 %", "800M, loss 0.01".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
    /// The key of the node label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The generation this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Standard conditions: Ready, MetricsAvailable, PlacementLimited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
