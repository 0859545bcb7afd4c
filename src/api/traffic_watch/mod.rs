//! `TrafficWatch`: judges nodes by the load of their network links.
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
mod reservation;
mod status;

pub use policy::{
    Consecutive, Criterion, Direction, Eviction, OnUnknown, Placement, TaintEffect, UnknownAction,
};
pub use reservation::{Reservation, ReservationStatus};
pub use status::{CriterionStatus, NodeState, NodeStatus, Summary, TrafficWatchStatus};

/// The physical names of network devices: predictable names, `eth0`, InfiniBand.
///
/// This is an allow list, because a deny list is never complete: every CNI plugin brings its own
/// names (`cali*`, `lxc*`, `flannel.1`, `eni<hash>`, `azv*`, …), and a byte seen on two devices
/// counts twice. `en[opsx][0-9]` excludes the AWS pod interfaces `eni…`. Bonds are excluded because
/// their members are included. Objects store this text, and the rule below compares with it, so it
/// cannot change; `traffic_watch::query::devices` corrects its gaps.
pub const DEFAULT_DEVICES: &str = r"(eth|en[opsx]|em|ib)[0-9].*|p[0-9]+p[0-9]+.*";

/// Requires the fields of the built-in measurement to have their defaults where it is not used. The
/// API server fills in defaults before it evaluates rules, so an explicit default looks the same as
/// an absent field.
const BUILT_IN_FIELDS: &str = "((has(self.spec.maxBandwidthPercent) || has(self.spec.maxBandwidth)) \
    && !has(self.spec.query)) || (self.spec.direction == 'Transmit' \
    && self.spec.devices == '(eth|en[opsx]|em|ib)[0-9].*|p[0-9]+p[0-9]+.*' \
    && duration(self.spec.window) == duration('2m') \
    && duration(self.spec.maxSampleAge) == duration('90s') && !has(self.spec.capacity))";

/// Permissions of the controller, in addition to reading and patching `TrafficWatch` itself.
pub const PERMISSIONS: &[Permission] = &[
    // Labels and taints are written by merge patch; never update, so never a whole Node.
    Permission { group: "", resources: &["nodes"], verbs: &["get", "list", "watch", "patch"] },
    // Server-side apply is a patch; on an object that does not exist yet it is also a create.
    Permission {
        group: "apps",
        resources: &["deployments"],
        verbs: &["get", "list", "watch", "create", "patch"],
    },
    // Only with spec.reservation: one extended resource in capacity and allocatable.
    Permission { group: "", resources: &["nodes/status"], verbs: &["patch"] },
    // With spec.reservation: a class of the same name stops every pod that requests the resource.
    Permission { group: "resource.k8s.io", resources: &["deviceclasses"], verbs: &["list"] },
    // Only with spec.eviction: the Deployment's pods on nodes that stay unfit.
    Permission { group: "apps", resources: &["replicasets"], verbs: &["list"] },
    // With spec.eviction those pods, and with spec.reservation the requests of all pods.
    Permission { group: "", resources: &["pods"], verbs: &["list", "watch"] },
    Permission { group: "", resources: &["pods/eviction"], verbs: &["create"] },
];

/// TrafficWatch judges nodes by the load of their network links, as measured by Prometheus. It
/// labels each node as fit or unfit, and keeps one Deployment on the fit nodes.
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
    doc = "TrafficWatch judges nodes by the load of their network links, as measured by Prometheus. It labels each node as fit or unfit, and keeps one Deployment on the fit nodes.",
    validation = Rule::new("has(self.spec.label) || self.metadata.name.size() <= 233")
        .message("metadata.name: too long for a node label key (at most 233 characters): set spec.label to a shorter one"),
    validation = Rule::new("has(self.spec.maxBandwidthPercent) || has(self.spec.maxBandwidth) || (has(self.spec.criteria) && self.spec.criteria.size() > 0)")
        .message("spec: at least one of maxBandwidthPercent, maxBandwidth and criteria is needed: without a threshold no node can be judged"),
    validation = Rule::new("!(has(self.spec.maxBandwidthPercent) && has(self.spec.maxBandwidth))")
        .message("spec.maxBandwidth: cannot be set together with spec.maxBandwidthPercent; set one of them"),
    validation = Rule::new("!has(self.spec.query) || has(self.spec.maxBandwidthPercent) || has(self.spec.maxBandwidth)")
        .message("spec.query: needs spec.maxBandwidthPercent (then its values are percent) or spec.maxBandwidth (bits per second); a measure with a separate threshold belongs in spec.criteria"),
    validation = Rule::new(BUILT_IN_FIELDS)
        .message("spec.direction, devices, window, maxSampleAge, capacity: belong to the built-in measurement, which spec.query replaces and which spec.criteria alone does not use; leave them out"),
    validation = Rule::new("!has(self.spec.eviction) || has(self.spec.deployment)")
        .message("spec.eviction: needs spec.deployment: only its pods are ever evicted"),
    validation = Rule::new("!has(self.spec.reservation) || has(self.spec.maxBandwidthPercent) || has(self.spec.maxBandwidth)")
        .message("spec.reservation: needs spec.maxBandwidthPercent or spec.maxBandwidth: what a node offers is a part of that"),
    validation = Rule::new("(has(self.spec.label) ? self.spec.label : self.metadata.name) == (has(oldSelf.spec.label) ? oldSelf.spec.label : oldSelf.metadata.name)")
        .message("spec.label: cannot change (absent, it is metadata.name): create another TrafficWatch with the new label, and delete this one"),
    validation = Rule::new("!has(self.spec.reservation) || !has(oldSelf.spec.reservation) || self.spec.reservation.resource == oldSelf.spec.reservation.resource")
        .message("spec.reservation.resource: cannot change: create another TrafficWatch with the new resource, and delete this one"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Fit", type_ = "integer", json_path = ".status.summary.fit"),
    printcolumn(name = "Unfit", type_ = "integer", json_path = ".status.summary.unfit"),
    printcolumn(name = "Unknown", type_ = "integer", json_path = ".status.summary.unknown"),
    printcolumn(name = "Marked", type_ = "integer", json_path = ".status.summary.marked"),
    printcolumn(name = "Max", type_ = "string", json_path = ".status.max"),
    printcolumn(name = "Label", type_ = "string", json_path = ".status.label", priority = "1"),
    printcolumn(name = "Evaluated", type_ = "date", json_path = ".status.lastEvaluationTime", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct TrafficWatchSpec {
    /// Marks a node as unfit while it uses more than this percentage of its link capacity. A number
    /// as text, greater than 0 and at most 100, for example "60" or "1.5e-03". At least one of
    /// maxBandwidthPercent, maxBandwidth and criteria is required; maxBandwidthPercent and
    /// maxBandwidth are mutually exclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$') && double(self) > 0.0 && double(self) <= 100.0").message("maxBandwidthPercent must be a number greater than 0 and at most 100, e.g. \"60\""))]
    pub max_bandwidth_percent: Option<String>,

    /// Marks a node as unfit while it uses more than this many bits per second, summed over all
    /// selected devices. A quantity, for example "800M" or "2.5G". It does not require a known link
    /// speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("type(self) == int ? self > 0 : (isQuantity(self) && !self.matches('[num]$') && quantity(self).isGreaterThan(quantity('0')))").message("maxBandwidth must be a quantity of bits per second greater than 0, without the suffix m (a thousandth), e.g. \"800M\""))]
    pub max_bandwidth: Option<Quantity>,

    /// Percentage of the threshold (not of the capacity) at or below which an unfit node becomes
    /// fit again. With maxBandwidthPercent "60" and recoverPercent 90, a node recovers at 54
    /// percent. Between the two values, a node keeps its state. Defaults to 90.
    #[serde(default = "defaults::recover_percent")]
    #[schemars(range(min = 1, max = 100), extend("format" = "int32"))]
    pub recover_percent: u32,

    /// Direction of traffic that is compared with the threshold: Transmit, Receive or Busiest.
    /// Busiest uses the larger of the two. They are never added, because a full-duplex link carries
    /// its full speed both ways at once. Defaults to Transmit.
    #[serde(default)]
    pub direction: Direction,

    /// Prefix of the node label `<label>.traffic.example.com/unfit`. It cannot change. Defaults to
    /// metadata.name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 233))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()").message("label must be a DNS subdomain (lower case letters, digits, '-' and '.', e.g. \"team-a\") of at most 233 characters, because it starts the node label key <label>.traffic.example.com/unfit"))]
    pub label: Option<String>,

    /// Deployment to keep on fit nodes (an apps/v1 DeploymentSpec). It has the same name as this
    /// object. The operator creates it after every node with data has been judged once, and keeps
    /// it from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::deployment")]
    pub deployment: Option<serde_json::Value>,

    /// Avoidance of unfit nodes by the Deployment. Required never starts a pod on an unfit
    /// node. Preferred starts one there only if no other node has room. Defaults to Required.
    #[serde(default)]
    pub placement: Placement,

    /// Selects the nodes to judge. Defaults to all Linux nodes. A node that leaves the selection
    /// loses the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,

    /// Regular expression (RE2 syntax) of the network devices to measure, matched against the whole
    /// device name. Defaults to the usual names of physical devices.
    #[serde(default = "defaults::devices")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("''.matches(self) in [true, false]").message("devices must be a regular expression in RE2 syntax (as in Prometheus), e.g. \"eth[0-9]+|bond0\""))]
    pub devices: String,

    /// Link capacity of every judged node in bits per second, for example "10G". Set it for
    /// machines that do not know their link speed. If absent, the node annotation
    /// traffic.example.com/capacity is used, then the link speed of each device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("type(self) == int ? self > 0 : (isQuantity(self) && !self.matches('[num]$') && quantity(self).isGreaterThan(quantity('0')))").message("capacity must be a quantity of bits per second greater than 0, without the suffix m (a thousandth), e.g. \"10G\""))]
    pub capacity: Option<Quantity>,

    /// PromQL query that replaces the built-in measurement. It must return an instant vector with
    /// one element per node, in percent (with maxBandwidthPercent) or in bits per second (with
    /// maxBandwidth). The age of its samples is unknown, so any element counts as current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub query: Option<String>,

    /// Additional measures. A node is unfit while at least one measure exceeds its threshold. Each
    /// measure has its own hysteresis.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub criteria: Vec<Criterion>,

    /// Time between two judgments, from 1s to 24h. Defaults to 10s.
    #[serde(default = "defaults::interval")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')").message("interval must be a duration from 1s to 24h, e.g. \"10s\""))]
    pub interval: Duration,

    /// Time over which the traffic rate is computed, from 2s to 24h. Use at least four scrape
    /// intervals of the node exporter. Defaults to 2m.
    #[serde(default = "defaults::window")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('2s') && duration(self) <= duration('24h')").message("window must be a duration from 2s to 24h and at least four scrape intervals, e.g. \"2m\""))]
    pub window: Duration,

    /// Number of consecutive judgments that must agree before the label changes.
    #[serde(default)]
    pub consecutive: Consecutive,

    /// Maximum age of a sample. Older samples do not count as evidence. Defaults to 90s.
    #[serde(default = "defaults::max_sample_age")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')").message("maxSampleAge must be a duration from 1s to 24h, e.g. \"90s\""))]
    pub max_sample_age: Duration,

    /// Maximum number of judged nodes that may be marked unfit at the same time: a number, or a
    /// percentage that is rounded down but allows at least one node. The worst nodes are marked
    /// first, and a marked node keeps its mark. The remaining nodes are Suppressed and keep the
    /// label "false". Defaults to 50%.
    #[serde(default = "defaults::max_unfit")]
    #[schemars(extend("nullable" = false))]
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')").message("maxUnfit must be a number from 0 to 2147483647 or a percentage from 0% to 100%, e.g. \"50%\""))]
    pub max_unfit: IntOrString,

    /// Minimum number of judged nodes that stay fit whatever they measure: a number, or a
    /// percentage that is rounded up. With 1, a cluster of one node is never marked. Defaults to 1.
    #[serde(default = "defaults::min_fit")]
    #[schemars(extend("nullable" = false))]
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')").message("minFit must be a number from 0 to 2147483647 or a percentage from 0% to 100%, e.g. 1"))]
    pub min_fit: IntOrString,

    /// Treatment of a single node that has no evidence for a long time.
    #[serde(default)]
    pub on_unknown: OnUnknown,

    /// Name of a Prometheus endpoint in the operator's configuration, never a URL. Defaults to
    /// "default".
    #[serde(default = "defaults::endpoint")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue()").message("prometheus must be the name of an endpoint in the operator's configuration (lower case letters, digits and '-'), e.g. \"default\"; a URL is not accepted"))]
    pub prometheus: String,

    /// Effect of a taint to add to unfit nodes: `PreferNoSchedule` or `NoSchedule`. The taint has
    /// the key of the label and the value "true". If absent, nodes are not tainted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::optional_word")]
    #[x_kube(validation = Rule::new("self in ['PreferNoSchedule', 'NoSchedule']").message("taint must be PreferNoSchedule or NoSchedule; to make pods leave a node, use spec.eviction"))]
    pub taint: Option<TaintEffect>,

    /// Evicts pods of the Deployment from nodes that stay unfit. Evictions use the Eviction API, so
    /// disruption budgets hold, and they happen only while a fit node is available. If absent, pods
    /// are not evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction: Option<Eviction>,

    /// Offers the bandwidth that is free on each judged node as an extended resource, which pods
    /// request and the scheduler counts. A node offers a part of the threshold, minus the load that
    /// no pod declared, and never less than its running pods request. If absent, nodes offer none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<Reservation>,

    /// Stops judging and writing. Labels and the Deployment stay as they are; nodes stop offering
    /// the resource of spec.reservation, except where running pods request it.
    #[serde(default)]
    pub paused: bool,

    /// Enforce writes labels and the Deployment. Observe only computes status, metrics and events.
    /// Defaults to Enforce.
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

/// Keeps the label, whose key is all that a removal needs.
fn spec_for_cleanup(spec: &serde_json::Value) -> serde_json::Value {
    let mut bare = serde_json::json!({"maxBandwidthPercent": "100"});
    if let Some(label) = spec["label"].as_str() {
        bare["label"] = label.into();
    }
    bare
}

kind!(TrafficWatch, TrafficWatchStatus, cleanup spec_for_cleanup);
