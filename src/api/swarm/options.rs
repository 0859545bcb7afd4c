//! The parts of a spec that have fields of their own.
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Duration;

use super::defaults;

/// What runs the workers.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Deserialize,
    Eq,
    Hash,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
)]
pub enum WorkloadKind {
    /// Workers keep their names: `<name>-0`, `<name>-1`, …
    #[default]
    StatefulSet,
    /// A worker is a pod: another pod is another worker.
    Deployment,
}

impl WorkloadKind {
    /// The word of the Kubernetes API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StatefulSet => "StatefulSet",
            Self::Deployment => "Deployment",
        }
    }
}

/// The workload whose pods are the workers, in the namespace of this object.
#[derive(Clone, Debug, Deserialize, Eq, Hash, KubeSchema, PartialEq, Serialize)]
pub struct Workload {
    /// `StatefulSet` or `Deployment`.
    #[serde(default)]
    pub kind: WorkloadKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()").message("workload.name must be the name of a StatefulSet or Deployment (lower case letters, digits, '-' and '.')"))]
    pub name: String,
}

/// One stream with what is known of it.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct Stream {
    /// Identity; nothing else decides where it goes among equals.
    #[schemars(length(min = 1, max = 253))]
    pub id: String,
    /// How much of a worker it takes, compared with the others.
    #[serde(default = "defaults::weight")]
    #[schemars(range(min = 1, max = 1_000_000), extend("format" = "int32"))]
    pub weight: u32,
    /// The name of the only worker that may have it, e.g. "swarm-worker-0".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub pin: Option<String>,
    /// Has a worker of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dedicated: bool,
}

/// Streams that stand elsewhere.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamsFrom {
    /// A key of a ConfigMap in the namespace of this object: YAML with `jobs` (a list of ids) or
    /// `streams` (a list like spec.streams), e.g. the original's controller configuration.
    pub config_map_key_ref: ConfigMapKeyRef,
}

/// One key of a ConfigMap.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct ConfigMapKeyRef {
    /// The name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()").message("name must be the name of a ConfigMap (lower case letters, digits, '-' and '.')"))]
    pub name: String,
    /// The key in its data.
    #[serde(default = "defaults::key")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[-._a-zA-Z0-9]+$')").message("key must be a key of a ConfigMap (letters, digits, '-', '_' and '.'), e.g. \"config.yml\""))]
    pub key: String,
}

/// The ConfigMap in which each worker finds its share.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct ShareMap {
    /// Its name; `<workload.name>-config` if absent. It cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 240))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()").message("configMap.name must be the name of a ConfigMap (lower case letters, digits, '-' and '.') of at most 240 characters"))]
    pub name: Option<String>,
    /// The key of the file.
    #[serde(default = "defaults::key")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[-._a-zA-Z0-9]+$') && !(self in ['handover.yml', 'acknowledge.key'])").message("configMap.key must be a key of a ConfigMap (letters, digits, '-', '_' and '.') other than \"handover.yml\" and \"acknowledge.key\", e.g. \"config.yml\""))]
    pub key: String,
    /// Also write each file as an immutable ConfigMap `<name>-<version>` and point the pod template
    /// of the StatefulSet at it: what a pod mounts then proves what it runs, and no worker needs
    /// to report it. Needs updateStrategy `OnDelete` and refresh.strategy `DeletePod`.
    #[serde(default)]
    pub immutable: bool,
    /// Among how many objects the lists are divided, for more streams than one holds (1 MiB). 1 is one file
    /// in the ConfigMap `<name>`. With more each worker reads one of `<name>-part-0`, `<name>-part-1`, …:
    /// CRC-32 of its name modulo this number. It cannot change: workers read another file then.
    #[serde(default = "defaults::files")]
    #[schemars(range(min = 1, max = 32), extend("format" = "int32"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("configMap.files cannot change: each worker reads another file then; delete the Swarm with --cascade=orphan and apply it again, with a pod template that mounts the new parts"))]
    pub files: u32,
}

impl Default for ShareMap {
    fn default() -> Self {
        Self { name: None, key: defaults::key(), immutable: false, files: defaults::files() }
    }
}

/// How streams are placed.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Policy {
    /// Balanced, and as few moves as possible.
    #[default]
    Sticky,
    /// Balanced, and a function of streams and workers alone: the same wherever it is computed.
    Stateless,
    /// Blocks in the order of the list, as the original did.
    Contiguous,
}

/// How a stream goes from one worker to another.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Handover {
    /// The new worker gets it only once the old one has stopped it.
    #[default]
    Exclusive,
    /// At once: for a moment both may have it.
    Immediate,
}

/// How workers are brought to read their new share.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Strategy {
    /// Their pods are evicted.
    DeletePod,
    /// They read the file again; the operator makes the kubelet bring it at once.
    HotReload,
    /// They are left alone.
    None,
}

/// How workers are brought to their new share, and how they acknowledge it.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refresh {
    /// `DeletePod` evicts the pods whose share changed (the default of a StatefulSet); `HotReload` has the
    /// kubelet bring the file at once (the default of a Deployment); None leaves both to the
    /// workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::api::schema::optional_word")]
    #[x_kube(validation = Rule::new("self in ['DeletePod', 'HotReload', 'None']").message("refresh.strategy must be DeletePod, HotReload or None"))]
    pub strategy: Option<Strategy>,
    /// How many workers may be without a ready pod before another one is evicted (`DeletePod`).
    #[serde(default = "defaults::max_unavailable")]
    #[schemars(range(min = 1, max = 1000), extend("format" = "int32"))]
    pub max_unavailable: u32,
    /// A worker that has not acknowledged its share for so long is told as stuck. Nothing is taken
    /// from it: time frees no stream.
    #[serde(default = "defaults::timeout")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')").message("refresh.timeout must be a duration from 1s to 24h, e.g. \"2m\""))]
    pub timeout: Duration,
    /// The port at which a worker says which version of the file it runs.
    #[serde(default = "defaults::port")]
    #[schemars(range(min = 1, max = 65535), extend("format" = "int32"))]
    pub port: u16,
    /// The path there: `GET` answers `{"jobs": […], "version": N}`.
    #[serde(default = "defaults::path")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("self.matches('^/[^ \\t\\r\\n]*$')").message("refresh.path must be a path that begins with /, e.g. \"/internal/version\""))]
    pub path: String,
}

impl Default for Refresh {
    fn default() -> Self {
        Self {
            strategy: None,
            max_unavailable: defaults::max_unavailable(),
            timeout: defaults::timeout(),
            port: defaults::port(),
            path: defaults::path(),
        }
    }
}

/// Weights that Prometheus measures.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Weights {
    /// PromQL that gives an instant vector of one element per stream, named by its label `stream`:
    /// `sum by (stream) (rate(stream_bytes_total[5m]))`. A stream without a value keeps its last
    /// weight; before it ever had one, it weighs as much as the mean.
    #[schemars(length(min = 1, max = 16384))]
    pub query: String,
    /// The name of the Prometheus endpoint in the operator's configuration; never a URL.
    #[serde(default = "defaults::endpoint")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue()").message("weights.prometheus must be the name of an endpoint in the operator's configuration (lower case letters, digits and '-'), e.g. \"default\"; a URL is not accepted"))]
    pub prometheus: String,
    /// How often Prometheus is asked.
    #[serde(default = "defaults::weights_interval")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')").message("weights.interval must be a duration from 1s to 24h, e.g. \"30s\""))]
    pub interval: Duration,
    /// Streams are moved for balance only while the heaviest worker carries more than this many
    /// times the mean.
    #[serde(default = "defaults::rebalance_above")]
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 1 : (isQuantity(self) && quantity(self).compareTo(quantity('1')) >= 0)").message("weights.rebalanceAbove must be a number of at least 1, e.g. \"1.3\""))]
    pub rebalance_above: Quantity,
    /// For how long that must have been so.
    #[serde(default = "defaults::rebalance_for", rename = "for")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')").message("weights.for must be a duration of at most 168h, e.g. \"10m\""))]
    pub for_: Duration,
}

/// How many workers there are to be.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Autoscale {
    /// So much weight is one worker's share: workers = weight of all streams / this, rounded up. In
    /// the unit of weights.query, or of the streams' own weights.
    #[x_kube(validation = Rule::new("type(self) == int ? self > 0 : (isQuantity(self) && quantity(self).isGreaterThan(quantity('0')))").message("autoscale.maxWeightPerWorker must be a quantity greater than 0, e.g. 100 or \"50M\""))]
    pub max_weight_per_worker: Quantity,
    /// Never fewer.
    #[serde(default = "defaults::min_workers")]
    #[schemars(range(min = 0, max = 10_000), extend("format" = "int32"))]
    pub min: u32,
    /// Never more.
    #[schemars(range(min = 1, max = 10_000), extend("format" = "int32"))]
    pub max: u32,
    /// For how long after a change of the number of workers it is not changed again.
    #[serde(default = "defaults::cooldown")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')").message("autoscale.cooldown must be a duration of at most 168h, e.g. \"5m\""))]
    pub cooldown: Duration,
}
