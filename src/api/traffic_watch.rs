//! `TrafficWatch`: which nodes have bandwidth to spare?
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, LabelSelector, Time},
};
use kube::{Api, Client, CustomResource, KubeSchema, ResourceExt, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GROUP, Kind, Permission};

/// The physical names of network devices: predictable names, `eth0`, InfiniBand.
///
/// An allow list, because a deny list is never finished: every CNI brings names of its own
/// (`cali*`, `lxc*`, `flannel.1`, `eni<hash>`, `azv*`, …), and a byte seen on two of them counts
/// twice. `en[opsx][0-9]` leaves the AWS pod interfaces `eni…` out. Bonds are left out because
/// their members are in.
pub const DEFAULT_DEVICES: &str = r"(eth|en[opsx]|em|ib)[0-9].*|p[0-9]+p[0-9]+.*";

/// What the controller may do beside reading and patching `TrafficWatch` itself.
pub const PERMISSIONS: &[Permission] = &[
    // Labels are written by merge patch; never update, so never a whole Node.
    Permission { group: "", resources: &["nodes"], verbs: &["get", "list", "watch", "patch"] },
    // Server-side apply is a patch; on an object that does not exist yet it is also a create.
    Permission {
        group: "apps",
        resources: &["deployments"],
        verbs: &["get", "list", "watch", "create", "patch"],
    },
];

/// Judges nodes by the load of their network links, measured in Prometheus: marks each node fit or
/// unfit by a label, and keeps one Deployment on the fit ones.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, PartialEq, Serialize)]
#[kube(
    group = "traffic.example.com",
    version = "v1alpha1",
    kind = "TrafficWatch",
    namespaced,
    status = "TrafficWatchStatus",
    shortname = "tw",
    category = "traffic",
    derive = "PartialEq",
    doc = "Judges nodes by the load of their network links, measured in Prometheus: marks each node fit or unfit by a label, and keeps one Deployment on the fit ones.",
    validation = Rule::new("has(self.spec.label) || self.metadata.name.size() <= 233")
        .message("metadata.name: too long for a node label key (at most 233 characters): set spec.label to a shorter one"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Fit", type_ = "integer", json_path = ".status.summary.fit"),
    printcolumn(name = "Unfit", type_ = "integer", json_path = ".status.summary.unfit"),
    printcolumn(name = "Unknown", type_ = "integer", json_path = ".status.summary.unknown"),
    printcolumn(name = "Max", type_ = "string", json_path = ".spec.maxBandwidthPercent"),
    printcolumn(name = "Label", type_ = "string", json_path = ".status.label", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct TrafficWatchSpec {
    /// A node is unfit while it uses more than this percent of its link capacity. A number as text,
    /// greater than 0 and at most 100: "60", "1.5e-03".
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$') && double(self) > 0.0 && double(self) <= 100.0").message("maxBandwidthPercent must be a number greater than 0 and at most 100, e.g. \"60\""))]
    pub max_bandwidth_percent: String,

    /// An unfit node becomes fit again at or below this percent of the threshold (not of the
    /// capacity): with maxBandwidthPercent "60" and recoverPercent 90 that is 54 percent.
    #[serde(default = "defaults::recover_percent")]
    #[schemars(range(min = 1, max = 100), extend("format" = "int32"))]
    pub recover_percent: u32,

    /// Which direction counts. Busiest takes the larger of the two; they are never added, because
    /// a full-duplex link carries its speed both ways at once.
    #[serde(default)]
    pub direction: Direction,

    /// Prefix of the node label `<label>.traffic.example.com/unfit`; metadata.name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 233))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()").message("label must be a DNS subdomain (lower case letters, digits, '-' and '.', e.g. \"team-a\") of at most 233 characters, because it starts the node label key <label>.traffic.example.com/unfit"))]
    pub label: Option<String>,

    /// A Deployment to keep on fit nodes (an apps/v1 DeploymentSpec). It gets the name of this
    /// object, is created once every node with data was judged, and is kept after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::deployment")]
    pub deployment: Option<serde_json::Value>,

    /// How strongly the Deployment avoids unfit nodes: Required never starts a pod on one,
    /// Preferred does so when there is no other room.
    #[serde(default)]
    pub placement: Placement,

    /// The nodes to judge; all Linux nodes if absent. A node that leaves the selection loses the
    /// label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,

    /// RE2 regular expression of the network devices that count, matched against the whole name.
    #[serde(default = "defaults::devices")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("''.matches(self) in [true, false]").message("devices must be a regular expression in RE2 syntax (as in Prometheus), e.g. \"eth[0-9]+|bond0\""))]
    pub devices: String,

    /// Link capacity of every judged node in bits per second ("10G"), for machines that do not know
    /// their link speed. Else the node annotation traffic.example.com/capacity, else the link speed
    /// of each device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("type(self) == int ? self > 0 : (isQuantity(self) && quantity(self).isGreaterThan(quantity('0')))").message("capacity must be a quantity of bits per second greater than 0, e.g. \"10G\""))]
    pub capacity: Option<Quantity>,

    /// How often the nodes are judged; at least 1s.
    #[serde(default = "defaults::interval")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')").message("interval must be a duration from 1s to 24h, e.g. \"10s\""))]
    pub interval: Duration,

    /// Over how long the rate is taken: at least four scrape intervals of the node exporter.
    #[serde(default = "defaults::window")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('2s') && duration(self) <= duration('24h')").message("window must be a duration from 2s to 24h and at least four scrape intervals, e.g. \"2m\""))]
    pub window: Duration,

    /// How many judgements in a row must agree before the label changes.
    #[serde(default)]
    pub consecutive: Consecutive,

    /// A sample older than this is no evidence.
    #[serde(default = "defaults::max_sample_age")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')").message("maxSampleAge must be a duration from 1s to 24h, e.g. \"90s\""))]
    pub max_sample_age: Duration,

    /// Stops judging and writing; labels and Deployment stay as they are.
    #[serde(default)]
    pub paused: bool,

    /// Enforce writes labels and the Deployment; Observe only computes status, metrics and events.
    #[serde(default)]
    pub mode: Mode,
}

/// Which direction of a link counts.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum Direction {
    /// Bytes the node sends.
    #[default]
    Transmit,
    /// Bytes the node receives.
    Receive,
    /// The larger of the two.
    Busiest,
}

/// How strongly the Deployment avoids unfit nodes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Placement {
    /// Required node affinity: a pod is never started on an unfit node.
    #[default]
    Required,
    /// Preferred node affinity of weight 100.
    Preferred,
}

/// What the controller may write.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Mode {
    /// Labels, Deployment, status, metrics and events.
    #[default]
    Enforce,
    /// Status, metrics and events only.
    Observe,
}

/// How many judgements in a row must agree.
#[derive(Clone, Copy, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct Consecutive {
    /// Judgements above the threshold before a fit node is marked unfit.
    #[serde(default = "defaults::consecutive")]
    #[schemars(range(min = 1, max = 1000), extend("format" = "int32"))]
    pub unfit: u32,
    /// Judgements at or below the recovery threshold before an unfit node is marked fit.
    #[serde(default = "defaults::consecutive")]
    #[schemars(range(min = 1, max = 1000), extend("format" = "int32"))]
    pub fit: u32,
}

impl Default for Consecutive {
    fn default() -> Self {
        Self { unfit: defaults::consecutive(), fit: defaults::consecutive() }
    }
}

mod defaults {
    use std::time::Duration as Std;

    use super::Duration;

    /// Two replicas of one Prometheus differ by a few percent; ten keep their disagreement from
    /// flipping a node.
    pub(super) fn recover_percent() -> u32 {
        90
    }
    pub(super) fn devices() -> String {
        super::DEFAULT_DEVICES.into()
    }
    /// The original's period.
    pub(super) fn interval() -> Duration {
        Std::from_secs(10).into()
    }
    /// Four scrapes of the Helm chart (30 s), eight of kube-prometheus (15 s).
    pub(super) fn window() -> Duration {
        Std::from_mins(2).into()
    }
    /// Three missed scrapes of 30 s.
    pub(super) fn max_sample_age() -> Duration {
        Std::from_secs(90).into()
    }
    /// The original's hysteresis.
    pub(super) fn consecutive() -> u32 {
        2
    }
}

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
    /// Why the state is Unknown or Suppressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The busiest link, when the link speeds are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// When the state was entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
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

impl TrafficWatch {
    /// The key of the node label: `<label or name>.traffic.example.com/unfit`.
    #[must_use]
    pub fn label_key(&self) -> String {
        let prefix = self.spec.label.clone().unwrap_or_else(|| self.name_any());
        format!("{prefix}.{GROUP}/unfit")
    }
}

impl Kind for TrafficWatch {
    type Status = TrafficWatchStatus;

    fn api(client: Client, namespace: Option<&str>) -> Api<Self> {
        namespace.map_or_else(
            || Api::all(client.clone()),
            |namespace| Api::namespaced(client.clone(), namespace),
        )
    }

    fn status(&self) -> Option<&Self::Status> {
        self.status.as_ref()
    }

    fn conditions_mut(status: &mut Self::Status) -> &mut Vec<Condition> {
        &mut status.conditions
    }

    fn observed_generation_mut(status: &mut Self::Status) -> &mut Option<i64> {
        &mut status.observed_generation
    }
}
