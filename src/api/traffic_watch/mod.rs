//! `TrafficWatch`: which nodes have bandwidth to spare?
use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity, apis::meta::v1::LabelSelector, util::intstr::IntOrString,
};
use kube::{CustomResource, KubeSchema, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::api::Duration;

pub use super::Mode;
use super::{GROUP, Permission, kind};

mod defaults;
mod policy;
mod status;

pub use policy::{
    Consecutive, Criterion, Direction, Eviction, OnUnknown, Placement, TaintEffect, UnknownAction,
};
pub use status::{CriterionStatus, NodeState, NodeStatus, Summary, TrafficWatchStatus};

/// The physical names of network devices: predictable names, `eth0`, InfiniBand.
///
/// An allow list, because a deny list is never finished: every CNI brings names of its own
/// (`cali*`, `lxc*`, `flannel.1`, `eni<hash>`, `azv*`, …), and a byte seen on two of them counts
/// twice. `en[opsx][0-9]` leaves the AWS pod interfaces `eni…` out. Bonds are left out because
/// their members are in. Objects store this text, and the rule below compares with it: what it lacks
/// and what it has too much, `traffic_watch::query::devices` puts right.
pub const DEFAULT_DEVICES: &str = r"(eth|en[opsx]|em|ib)[0-9].*|p[0-9]+p[0-9]+.*";

/// The fields of the built-in measurement have their defaults where it is not used. Defaults are
/// filled in before rules are evaluated, so an explicit default is not told from an absent field.
const BUILT_IN_FIELDS: &str = "((has(self.spec.maxBandwidthPercent) || has(self.spec.maxBandwidth)) \
    && !has(self.spec.query)) || (self.spec.direction == 'Transmit' \
    && self.spec.devices == '(eth|en[opsx]|em|ib)[0-9].*|p[0-9]+p[0-9]+.*' \
    && duration(self.spec.window) == duration('2m') \
    && duration(self.spec.maxSampleAge) == duration('90s') && !has(self.spec.capacity))";

/// What the controller may do beside reading and patching `TrafficWatch` itself.
pub const PERMISSIONS: &[Permission] = &[
    // Labels and taints are written by merge patch; never update, so never a whole Node.
    Permission { group: "", resources: &["nodes"], verbs: &["get", "list", "watch", "patch"] },
    // Server-side apply is a patch; on an object that does not exist yet it is also a create.
    Permission {
        group: "apps",
        resources: &["deployments"],
        verbs: &["get", "list", "watch", "create", "patch"],
    },
    // Only with spec.eviction: the Deployment's pods on nodes that stay unfit.
    Permission { group: "apps", resources: &["replicasets"], verbs: &["list"] },
    Permission { group: "", resources: &["pods"], verbs: &["list"] },
    Permission { group: "", resources: &["pods/eviction"], verbs: &["create"] },
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
    validation = Rule::new("has(self.spec.maxBandwidthPercent) || has(self.spec.maxBandwidth) || (has(self.spec.criteria) && self.spec.criteria.size() > 0)")
        .message("spec: at least one of maxBandwidthPercent, maxBandwidth and criteria is needed: without a threshold no node can be judged"),
    validation = Rule::new("!(has(self.spec.maxBandwidthPercent) && has(self.spec.maxBandwidth))")
        .message("spec.maxBandwidth: excludes spec.maxBandwidthPercent; set one of them"),
    validation = Rule::new("!has(self.spec.query) || has(self.spec.maxBandwidthPercent) || has(self.spec.maxBandwidth)")
        .message("spec.query: needs spec.maxBandwidthPercent (then its values are percent) or spec.maxBandwidth (bits per second); a measure with a threshold of its own belongs into spec.criteria"),
    validation = Rule::new(BUILT_IN_FIELDS)
        .message("spec.direction, devices, window, maxSampleAge, capacity: belong to the built-in measurement, which spec.query replaces and which spec.criteria alone does not use; leave them out"),
    validation = Rule::new("!has(self.spec.eviction) || has(self.spec.deployment)")
        .message("spec.eviction: needs spec.deployment: only its pods are ever evicted"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Fit", type_ = "integer", json_path = ".status.summary.fit"),
    printcolumn(name = "Unfit", type_ = "integer", json_path = ".status.summary.unfit"),
    printcolumn(name = "Unknown", type_ = "integer", json_path = ".status.summary.unknown"),
    printcolumn(name = "Max", type_ = "string", json_path = ".status.max"),
    printcolumn(name = "Label", type_ = "string", json_path = ".status.label", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct TrafficWatchSpec {
    /// A node is unfit while it uses more than this percent of its link capacity. A number as text,
    /// greater than 0 and at most 100: "60", "1.5e-03". At least one of maxBandwidthPercent,
    /// maxBandwidth and criteria is needed; the first two exclude each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$') && double(self) > 0.0 && double(self) <= 100.0").message("maxBandwidthPercent must be a number greater than 0 and at most 100, e.g. \"60\""))]
    pub max_bandwidth_percent: Option<String>,

    /// A node is unfit while it uses more than this many bits per second ("800M", "2.5G"), over all
    /// devices that count. Needs no link speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("type(self) == int ? self > 0 : (isQuantity(self) && quantity(self).isGreaterThan(quantity('0')))").message("maxBandwidth must be a quantity of bits per second greater than 0, e.g. \"800M\""))]
    pub max_bandwidth: Option<Quantity>,

    /// An unfit node becomes fit again at or below this percent of the threshold (not of the
    /// capacity): with maxBandwidthPercent "60" and recoverPercent 90 that is 54 percent. Between the
    /// two a node stays what it is.
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

    /// PromQL in place of the built-in measurement: an instant vector of one element per node, in
    /// percent (with maxBandwidthPercent) or bits per second (with maxBandwidth). How old its samples
    /// are is not known: presence is the evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub query: Option<String>,

    /// Further measures; a node is unfit when any of them says so. Each has its own hysteresis.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub criteria: Vec<Criterion>,

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

    /// How many judged nodes may be marked unfit at once: a number, or a percentage that is rounded
    /// down but leaves room for one. The worst are marked first; who is marked keeps the mark; the
    /// rest are Suppressed and keep the label "false".
    #[serde(default = "defaults::max_unfit")]
    #[schemars(extend("nullable" = false))]
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')").message("maxUnfit must be a number from 0 to 2147483647 or a percentage from 0% to 100%, e.g. \"50%\""))]
    pub max_unfit: IntOrString,

    /// How many judged nodes stay fit whatever they measure: a number, or a percentage that is
    /// rounded up. With 1, a cluster of one node is never marked.
    #[serde(default = "defaults::min_fit")]
    #[schemars(extend("nullable" = false))]
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')").message("minFit must be a number from 0 to 2147483647 or a percentage from 0% to 100%, e.g. 1"))]
    pub min_fit: IntOrString,

    /// What happens to a single node whose evidence stays away.
    #[serde(default)]
    pub on_unknown: OnUnknown,

    /// The name of the Prometheus endpoint in the operator's configuration; never a URL.
    #[serde(default = "defaults::endpoint")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue()").message("prometheus must be the name of an endpoint in the operator's configuration (lower case letters, digits and '-'), e.g. \"default\"; a URL is not accepted"))]
    pub prometheus: String,

    /// Also taints unfit nodes, with the label's key, the value "true" and this effect:
    /// `PreferNoSchedule` or `NoSchedule`. Off if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::optional_word")]
    #[x_kube(validation = Rule::new("self in ['PreferNoSchedule', 'NoSchedule']").message("taint must be PreferNoSchedule or NoSchedule; what makes pods leave a node is spec.eviction"))]
    pub taint: Option<TaintEffect>,

    /// Evicts pods of the Deployment from nodes that stay unfit, through the Eviction API, so that
    /// disruption budgets hold, and only while there is a fit node to go to. Off if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction: Option<Eviction>,

    /// Stops judging and writing; labels and Deployment stay as they are.
    #[serde(default)]
    pub paused: bool,

    /// Enforce writes labels and the Deployment; Observe only computes status, metrics and events.
    #[serde(default)]
    pub mode: Mode,
}

impl TrafficWatch {
    /// The key of the node label: `<label or name>.traffic.example.com/unfit`.
    #[must_use]
    pub fn label_key(&self) -> String {
        let prefix = self.spec.label.clone().unwrap_or_else(|| self.name_any());
        format!("{prefix}.{GROUP}/unfit")
    }
}

/// The key of the label is all that a removal needs to know.
fn spec_for_cleanup(spec: &serde_json::Value) -> serde_json::Value {
    let mut bare = serde_json::json!({"maxBandwidthPercent": "100"});
    if let Some(label) = spec["label"].as_str() {
        bare["label"] = label.into();
    }
    bare
}

kind!(TrafficWatch, TrafficWatchStatus, cleanup spec_for_cleanup);
