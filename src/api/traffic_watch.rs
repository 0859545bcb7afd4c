//! `TrafficWatch`: judges nodes by the load of their network links.
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, LabelSelector, Time},
    util::intstr::IntOrString,
};
use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::Mode;
use super::{Duration, GROUP, Permission, kind};

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

/// Direction of traffic that is compared with the threshold.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum Direction {
    /// Bytes that the node sends.
    #[default]
    Transmit,
    /// Bytes that the node receives.
    Receive,
    /// The larger of the two directions.
    Busiest,
}

/// Avoidance of unfit nodes by the Deployment.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Placement {
    /// Required node affinity: no pod starts on an unfit node.
    #[default]
    Required,
    /// Preferred node affinity with weight 100.
    Preferred,
}

/// Number of consecutive judgments that must agree.
#[derive(Clone, Copy, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct Consecutive {
    /// Consecutive judgments above the threshold that mark a fit node as unfit.
    #[serde(default = "defaults::consecutive")]
    #[schemars(range(min = 1, max = 1000), extend("format" = "int32"))]
    pub unfit: u32,
    /// Consecutive judgments at or below the recovery threshold that mark an unfit node as fit.
    #[serde(default = "defaults::consecutive")]
    #[schemars(range(min = 1, max = 1000), extend("format" = "int32"))]
    pub fit: u32,
}

impl Default for Consecutive {
    fn default() -> Self {
        Self { unfit: defaults::consecutive(), fit: defaults::consecutive() }
    }
}

/// An additional measure, which alone can make a node unfit.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Criterion {
    /// Name of the measure in status, events and metrics, for example "loss".
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue() && self != 'bandwidth'").message("name must be a DNS label (lower case letters, digits and '-', at most 63 characters) other than \"bandwidth\", which is the measure of maxBandwidthPercent and maxBandwidth"))]
    pub name: String,

    /// PromQL query that returns an instant vector with one element per node. The labels identify
    /// the node in the same way as those of the node exporter's series. The age of its samples is
    /// unknown, so any element counts as current.
    #[schemars(length(min = 1, max = 16384))]
    pub query: String,

    /// Threshold: a node is unfit while its value is greater. A quantity that is not negative, for
    /// example 5, "0.01", "200m" or "1.5G".
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 0 : (isQuantity(self) && quantity(self).compareTo(quantity('0')) >= 0)").message("max must be a quantity that is not negative, e.g. \"0.01\""))]
    #[schemars(extend("maxLength" = 64))]
    pub max: Quantity,

    /// Percentage of max at or below which a node becomes fit again. Defaults to
    /// spec.recoverPercent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100), extend("format" = "int32"))]
    pub recover_percent: Option<u32>,
}

/// Treatment of a single node that has no evidence for a long time.
#[derive(Clone, Copy, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
pub struct OnUnknown {
    /// Time without evidence after which the action applies, at most 168h. The clock stands still
    /// while the request to Prometheus fails or too few nodes have data, because then the
    /// measurement is at fault, not the node. Defaults to 10m.
    #[serde(default = "defaults::unknown_after")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')").message("after must be a duration of at most 168h, e.g. \"10m\""))]
    pub after: Duration,
    /// Action to take then. Defaults to Hold.
    #[serde(default)]
    pub action: UnknownAction,
}

impl Default for OnUnknown {
    fn default() -> Self {
        Self { after: defaults::unknown_after(), action: UnknownAction::Hold }
    }
}

/// Action for a node without evidence.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum UnknownAction {
    /// Keep the label as it is.
    #[default]
    Hold,
    /// Mark the node as fit.
    Fit,
    /// Mark the node as unfit, as far as maxUnfit and minFit allow.
    Unfit,
    /// Remove the label, as if the node had never been judged.
    RemoveLabel,
}

/// Effect of the taint on unfit nodes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum TaintEffect {
    /// The scheduler avoids the node if another node has room.
    PreferNoSchedule,
    /// The scheduler places no pod on the node unless the pod tolerates the taint.
    NoSchedule,
}

traffic_operator_core::named!(TaintEffect { PreferNoSchedule, NoSchedule });

/// Conditions on which pods of the Deployment leave a node that stays unfit.
#[derive(Clone, Copy, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    /// Time for which a node must have been unfit before its pods are evicted, at most 168h.
    /// Defaults to 10m.
    #[serde(default = "defaults::unknown_after")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')").message("after must be a duration of at most 168h, e.g. \"10m\""))]
    pub after: Duration,
    /// Maximum number of pods to evict in one judgment. Defaults to 1.
    #[serde(default = "defaults::max_per_pass")]
    #[schemars(range(min = 1, max = 100), extend("format" = "int32"))]
    pub max_per_pass: u32,
}

/// Bandwidth that nodes offer to pods as an extended resource.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reservation {
    /// Name of the extended resource, for example "traffic.example.com/egress-mbps". It cannot
    /// change. Pods request it in spec.containers[].resources. Without a change of the admission
    /// policy traffic-operator-nodestatus, its prefix must be traffic.example.com or end in
    /// .traffic.example.com.
    #[schemars(length(min = 3, max = 300))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self.indexOf('/') <= 244 && !self.contains('kubernetes.io/') && !self.startsWith('requests.')").message("resource must be the name of an extended resource with a prefix outside of kubernetes.io, e.g. \"traffic.example.com/egress-mbps\""))]
    pub resource: String,

    /// Bits per second of one unit of the resource. With 1M, a pod that requests 200 reserves 200
    /// Mbit/s. Defaults to 1M.
    #[serde(default = "defaults::unit")]
    #[schemars(extend("nullable" = false))]
    #[x_kube(validation = Rule::new("type(self) == int ? self > 0 : (isQuantity(self) && quantity(self).isGreaterThan(quantity('0')))").message("unit must be a quantity of bits per second greater than 0, e.g. \"1M\""))]
    pub unit: Quantity,

    /// Percentage of the threshold that no pod can reserve, from 0% to 99%. It absorbs what a
    /// measurement shows late, and changes that are smaller than a step. Defaults to 10%.
    #[serde(default = "defaults::reserve")]
    #[schemars(length(max = 8))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9]?[0-9]%$')").message("reserve must be a percentage from 0% to 99%, e.g. \"10%\""))]
    pub reserve: String,

    /// Smallest change that is written, from 1% to 99% of what the node can offer at most. Values
    /// that change by less stay as they are. Defaults to 5%.
    #[serde(default = "defaults::step")]
    #[schemars(length(max = 8))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]?%$')").message("step must be a percentage from 1% to 99%, e.g. \"5%\""))]
    pub step: String,
}

/// The extended resource on the nodes, over all judged nodes. Its figures are refreshed once a
/// minute.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReservationStatus {
    /// Name of the extended resource that nodes offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Sum of what the nodes offer, in units.
    #[serde(default)]
    pub offered: i64,
    /// Sum of what pods on these nodes request, in units.
    #[serde(default)]
    pub requested: i64,
    /// Number of nodes that offer the resource.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub nodes: u32,
    /// Resources that this object no longer offers, at most 10. They stay on nodes whose pods
    /// request them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub leaving: Vec<String>,
}

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
    /// Number of nodes in state Unfit: marked, and with evidence now.
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
    /// Time of the last evaluation with evidence, at most ten minutes old while there is any. Absent
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

mod defaults {
    //! What fields have that a spec leaves out, each with its reason.
    use std::time::Duration as Std;

    use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString};

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

    /// Half: more unfit nodes than fit ones are a sign of a wrong threshold, or of trouble that moving
    /// pods makes worse.
    pub(super) fn max_unfit() -> IntOrString {
        IntOrString::String("50%".into())
    }

    /// Required node affinity with no fit node left would leave every new pod pending.
    pub(super) fn min_fit() -> IntOrString {
        IntOrString::Int(1)
    }

    /// An exporter that is replaced or a node that reboots is back long before.
    pub(super) fn unknown_after() -> Duration {
        Std::from_mins(10).into()
    }

    /// The original's only Prometheus: kube-prometheus, as `--prometheus-url` names it.
    pub(super) fn endpoint() -> String {
        "default".into()
    }

    /// One at a time: the pod must run elsewhere before the next leaves.
    pub(super) fn max_per_pass() -> u32 {
        1
    }

    /// Megabits: whole numbers of them are what people say of services.
    pub(super) fn unit() -> Quantity {
        Quantity("1M".into())
    }

    /// Twice the step: what a change below a step hides, and a burst.
    pub(super) fn reserve() -> String {
        "10%".into()
    }

    /// A link in steady use changes its rate over two minutes by a few percent.
    pub(super) fn step() -> String {
        "5%".into()
    }
}
