//! The nested structures of a `Swarm` spec.
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Duration;

use super::defaults;

/// The kind of the workload that runs the workers.
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
    /// A worker is a pod: a replacement pod is a new worker.
    Deployment,
}

traffic_operator_core::named!(WorkloadKind { StatefulSet, Deployment });

/// The workload whose pods are the workers, in the namespace of this object.
#[derive(Clone, Debug, Deserialize, Eq, Hash, KubeSchema, PartialEq, Serialize)]
pub struct Workload {
    /// Kind of the workload: `StatefulSet` or `Deployment`. Defaults to `StatefulSet`.
    #[serde(default)]
    pub kind: WorkloadKind,
    /// Name of the workload.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()").message("workload.name must be the name of a StatefulSet or Deployment (lower case letters, digits, '-' and '.')"))]
    pub name: String,
}

/// One stream and its constraints.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct Stream {
    /// Unique id of the stream. Among streams with equal weights and constraints, only the id
    /// determines the worker.
    #[schemars(length(min = 1, max = 253))]
    pub id: String,
    /// Share of a worker's capacity that the stream takes, relative to other streams. Defaults to
    /// 1.
    #[serde(default = "defaults::weight")]
    #[schemars(range(min = 1, max = 1_000_000), extend("format" = "int32"))]
    pub weight: u32,
    /// Name of the only worker that may run the stream, for example "swarm-worker-0".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub pin: Option<String>,
    /// Reserves a whole worker for the stream. Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dedicated: bool,
}

/// Streams that are listed outside this object.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamsFrom {
    /// Key of a ConfigMap in the namespace of this object. Its value is YAML with `jobs` (a list of
    /// ids) or `streams` (a list like spec.streams), for example the original's controller
    /// configuration.
    pub config_map_key_ref: ConfigMapKeyRef,
}

/// One key of a ConfigMap.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct ConfigMapKeyRef {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()").message("name must be the name of a ConfigMap (lower case letters, digits, '-' and '.')"))]
    pub name: String,
    /// Key in the data of the ConfigMap.
    #[serde(default = "defaults::key")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[-._a-zA-Z0-9]+$')").message("key must be a key of a ConfigMap (letters, digits, '-', '_' and '.'), e.g. \"config.yml\""))]
    pub key: String,
}

/// The ConfigMap in which each worker finds its streams.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct ShareMap {
    /// Name of the ConfigMap. It cannot change. Defaults to `<workload.name>-config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 240))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()").message("configMap.name must be the name of a ConfigMap (lower case letters, digits, '-' and '.') of at most 240 characters"))]
    pub name: Option<String>,
    /// Key of the file. Defaults to "config.yml".
    #[serde(default = "defaults::key")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[-._a-zA-Z0-9]+$') && !(self in ['handover.yml', 'acknowledge.key'])").message("configMap.key must be a key of a ConfigMap (letters, digits, '-', '_' and '.') other than \"handover.yml\" and \"acknowledge.key\", e.g. \"config.yml\""))]
    pub key: String,
    /// Also writes each version of the file as an immutable ConfigMap `<name>-<version>`, and
    /// points the pod template of the StatefulSet at it. The ConfigMap that a pod mounts then
    /// proves which streams it runs, and no worker needs to acknowledge. Requires updateStrategy
    /// `OnDelete` and refresh.strategy `DeletePod`. Defaults to false.
    #[serde(default)]
    pub immutable: bool,
    /// Number of ConfigMaps over which the lists are divided, for more streams than one ConfigMap
    /// can hold (1 MiB). With 1, the file is in the ConfigMap `<name>`. With more, each worker
    /// reads one of `<name>-part-0`, `<name>-part-1`, …: its index is the CRC-32 of the worker's
    /// name modulo this number. It cannot change, because workers would then read another file.
    /// Defaults to 1.
    #[serde(default = "defaults::files")]
    #[schemars(range(min = 1, max = 32), extend("format" = "int32"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("configMap.files cannot change, because each worker would then read another file: delete the Swarm with --cascade=orphan and apply it again, with a pod template that mounts the new parts"))]
    pub files: u32,
}

impl Default for ShareMap {
    fn default() -> Self {
        Self { name: None, key: defaults::key(), immutable: false, files: defaults::files() }
    }
}

/// Assignment of streams to workers.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Policy {
    /// Balances the load with as few moves as possible.
    #[default]
    Sticky,
    /// Balances the load by a function of streams and workers alone, with the same result wherever
    /// it is computed.
    Stateless,
    /// Assigns blocks in the order of the list, as the original did.
    Contiguous,
}

/// Handover of a stream from one worker to another.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Handover {
    /// The new worker receives the stream only after the old worker has stopped it.
    #[default]
    Exclusive,
    /// The new worker receives the stream at once, so that both may run it for a moment.
    Immediate,
}

/// Loading of new streams by the workers.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Strategy {
    /// The operator evicts their pods.
    DeletePod,
    /// The workers read the file again. The operator makes the kubelet update it at once.
    HotReload,
    /// The operator leaves them alone.
    None,
}

/// Loading and acknowledgement of new streams by the workers.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refresh {
    /// Strategy of the refresh. `DeletePod` evicts the pods whose streams changed (the default for
    /// a StatefulSet). `HotReload` makes the kubelet update the mounted file at once (the default
    /// for a Deployment). None leaves both to the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::api::schema::optional_word")]
    #[x_kube(validation = Rule::new("self in ['DeletePod', 'HotReload', 'None']").message("refresh.strategy must be DeletePod, HotReload or None"))]
    pub strategy: Option<Strategy>,
    /// Maximum number of workers without a ready pod before the operator evicts another one
    /// (`DeletePod`). Defaults to 1.
    #[serde(default = "defaults::max_unavailable")]
    #[schemars(range(min = 1, max = 1000), extend("format" = "int32"))]
    pub max_unavailable: u32,
    /// Time after which a worker that has not acknowledged its streams is reported as stuck. The
    /// operator takes no stream from it: time alone frees no stream. Defaults to 2m.
    #[serde(default = "defaults::timeout")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')").message("refresh.timeout must be a duration from 1s to 24h, e.g. \"2m\""))]
    pub timeout: Duration,
    /// Port on which a worker reports the version of the file it runs. Defaults to 9090.
    #[serde(default = "defaults::port")]
    #[schemars(range(min = 1, max = 65535), extend("format" = "int32"))]
    pub port: u16,
    /// Path on that port. `GET` returns `{"jobs": […], "version": N}`. Defaults to
    /// "/internal/version".
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

/// Weights of the streams as measured by Prometheus.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Weights {
    /// PromQL query that returns an instant vector with one element per stream, identified by its
    /// label `stream`, for example `sum by (stream) (rate(stream_bytes_total[5m]))`. A stream
    /// without a value keeps its last weight. A stream that never had a value weighs as much as the
    /// mean.
    #[schemars(length(min = 1, max = 16384))]
    pub query: String,
    /// Name of a Prometheus endpoint in the operator's configuration, never a URL. Defaults to
    /// "default".
    #[serde(default = "defaults::endpoint")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue()").message("weights.prometheus must be the name of an endpoint in the operator's configuration (lower case letters, digits and '-'), e.g. \"default\"; a URL is not accepted"))]
    pub prometheus: String,
    /// Time between two queries, from 1s to 24h. Defaults to 30s.
    #[serde(default = "defaults::weights_interval")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')").message("weights.interval must be a duration from 1s to 24h, e.g. \"30s\""))]
    pub interval: Duration,
    /// Ratio of the heaviest worker's load to the mean load above which streams move to improve the
    /// balance. Defaults to "1.3".
    #[serde(default = "defaults::rebalance_above")]
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 1 : (isQuantity(self) && quantity(self).compareTo(quantity('1')) >= 0)").message("weights.rebalanceAbove must be a number of at least 1, e.g. \"1.3\""))]
    pub rebalance_above: Quantity,
    /// Time for which the ratio must have been exceeded, at most 168h. Defaults to 10m.
    #[serde(default = "defaults::rebalance_for", rename = "for")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')").message("weights.for must be a duration of at most 168h, e.g. \"10m\""))]
    pub for_: Duration,
}

/// Scales the workload by the total weight of the streams.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Autoscale {
    /// Weight that one worker can carry. The number of workers is the weight of the streams that
    /// are not dedicated divided by this, rounded up, and one more for each dedicated stream. In
    /// the unit of weights.query, or of the streams' own weights.
    #[x_kube(validation = Rule::new("type(self) == int ? self > 0 : (isQuantity(self) && quantity(self).isGreaterThan(quantity('0')))").message("autoscale.maxWeightPerWorker must be a quantity greater than 0, e.g. 100 or \"50M\""))]
    pub max_weight_per_worker: Quantity,
    /// Minimum number of workers. Defaults to 1.
    #[serde(default = "defaults::min_workers")]
    #[schemars(range(min = 0, max = 10_000), extend("format" = "int32"))]
    pub min: u32,
    /// Maximum number of workers.
    #[schemars(range(min = 1, max = 10_000), extend("format" = "int32"))]
    pub max: u32,
    /// Time after a change of the number of workers during which it does not change again, at most
    /// 168h. Defaults to 5m.
    #[serde(default = "defaults::cooldown")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')").message("autoscale.cooldown must be a duration of at most 168h, e.g. \"5m\""))]
    pub cooldown: Duration,
}
