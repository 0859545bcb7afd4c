//! `Swarm`: assigns streams to workers.
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Condition};
use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::Mode;
use super::{Duration, LocalReference, Permission, kind};

/// Permissions of the controller, in addition to reading and patching `Swarm` itself.
pub const PERMISSIONS: &[Permission] = &[
    // The workers. HotReload writes one annotation.
    Permission { group: "", resources: &["pods"], verbs: &["get", "list", "watch", "patch"] },
    // DeletePod.
    Permission { group: "", resources: &["pods/eviction"], verbs: &["create"] },
    // Autoscaling sets the number of workers; configMap.immutable writes the name of one volume.
    Permission { group: "apps", resources: &["statefulsets"], verbs: &["list", "watch", "patch"] },
    Permission { group: "apps", resources: &["deployments"], verbs: &["list", "watch"] },
    // Which zones and states the workers' nodes have.
    Permission { group: "", resources: &["nodes"], verbs: &["list", "watch"] },
    // fitnessRef.
    Permission {
        group: "traffic.example.com",
        resources: &["trafficwatches"],
        verbs: &["list", "watch"],
    },
    // autoscale.
    Permission {
        group: "apps",
        resources: &["statefulsets/scale", "deployments/scale"],
        verbs: &["patch"],
    },
    // The shares; streamsFrom.
    Permission {
        group: "",
        resources: &["configmaps"],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
    },
];

/// Swarm assigns each of a list of streams to exactly one worker of a StatefulSet or Deployment.
/// When either changes, it moves as few streams as possible, and a stream leaves its old worker
/// before the new one receives it.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, PartialEq, Serialize)]
#[kube(
    group = "traffic.example.com",
    version = "v1alpha1",
    kind = "Swarm",
    namespaced,
    status = "SwarmStatus",
    shortname = "sw",
    category = "traffic",
    derive = "PartialEq",
    doc = "Swarm assigns each of a list of streams to exactly one worker of a StatefulSet or Deployment. When either changes, it moves as few streams as possible, and a stream leaves its old worker before the new one receives it.",
    validation = Rule::new("[has(self.spec.jobs), has(self.spec.streams), has(self.spec.streamsFrom)].filter(x, x).size() == 1")
        .message("spec: exactly one of jobs, streams and streamsFrom is needed"),
    validation = Rule::new("self.spec.workload.kind != 'Deployment' || !has(self.spec.refresh) || !has(self.spec.refresh.strategy) || self.spec.refresh.strategy != 'DeletePod'")
        .message("spec.refresh.strategy: DeletePod needs a StatefulSet: the replacement pod of a Deployment is a new worker; use HotReload"),
    validation = Rule::new("self.spec.workload.kind != 'Deployment' || !has(self.spec.streams) || self.spec.streams.all(s, !has(s.pin))")
        .message("spec.streams: pin needs a StatefulSet: the names of a Deployment's pods do not last"),
    validation = Rule::new("!self.spec.configMap.immutable || (self.spec.workload.kind == 'StatefulSet' && (!has(self.spec.refresh) || !has(self.spec.refresh.strategy) || self.spec.refresh.strategy == 'DeletePod'))")
        .message("spec.configMap.immutable: needs a StatefulSet and refresh.strategy DeletePod: an immutable file reaches a worker only with a new pod"),
    validation = Rule::new("!self.spec.configMap.immutable || self.spec.configMap.files == 1")
        .message("spec.configMap.files: must be 1 with immutable: an immutable file is in one ConfigMap"),
    validation = Rule::new("self.spec.policy == 'Sticky' || (!has(self.spec.weights) && (!has(self.spec.streams) || self.spec.streams.all(s, s.weight == 1)))")
        .message("spec.policy: Stateless and Contiguous balance by number; weight and weights need Sticky"),
    validation = Rule::new("self.spec.policy != 'Contiguous' || !has(self.spec.streams) || self.spec.streams.all(s, !has(s.pin) && (!has(s.dedicated) || !s.dedicated))")
        .message("spec.policy: Contiguous places by the order of the list; pin and dedicated need Sticky or Stateless"),
    validation = Rule::new("!has(self.spec.autoscale) || self.spec.autoscale.min <= self.spec.autoscale.max")
        .message("spec.autoscale.min: must not be greater than spec.autoscale.max"),
    // Pods that come back during a rollout mount what the older revision names: the former file,
    // which nobody keeps up to date.
    validation = Rule::new("(has(self.spec.configMap.name) ? self.spec.configMap.name : self.spec.workload.name + '-config') == (has(oldSelf.spec.configMap.name) ? oldSelf.spec.configMap.name : oldSelf.spec.workload.name + '-config')")
        .message("spec.configMap.name: cannot change (absent, it is <workload.name>-config): pods that mount the former ConfigMap would run streams a second time; keep the name, or create another Swarm"),
    // A pod reads the file under the key that its template names: it would keep the former one.
    validation = Rule::new("self.spec.configMap.key == oldSelf.spec.configMap.key")
        .message("spec.configMap.key: cannot change (absent, it is config.yml): workers would go on with the file under the former key; keep the key, or create another Swarm"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Streams", type_ = "integer", json_path = ".status.summary.streams"),
    printcolumn(name = "Workers", type_ = "integer", json_path = ".status.summary.workers"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.summary.ready"),
    printcolumn(name = "Moving", type_ = "integer", json_path = ".status.moving"),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".status.epoch", priority = "1"),
    printcolumn(name = "Unassigned", type_ = "integer", json_path = ".status.summary.unassigned", priority = "1"),
    printcolumn(name = "Converged", type_ = "string", json_path = ".status.conditions[?(@.type=='Converged')].status", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct SwarmSpec {
    /// StatefulSet or Deployment whose pods are the workers, in the namespace of this object. The
    /// Swarm follows its number of replicas, which you set with `kubectl scale`.
    pub workload: Workload,

    /// Ids of the streams. Their order matters only to policy Contiguous. Exactly one of jobs,
    /// streams and streamsFrom is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 30_000), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub jobs: Option<Vec<String>>,

    /// Streams with their weights and constraints. Exactly one of jobs, streams and streamsFrom is
    /// required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 30_000))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["id".into()]))]
    pub streams: Option<Vec<Stream>>,

    /// Source of the streams outside this object, which the operator watches for changes. Exactly
    /// one of jobs, streams and streamsFrom is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams_from: Option<StreamsFrom>,

    /// ConfigMap in which each worker finds its streams, in the original's format.
    #[serde(default)]
    pub config_map: ShareMap,

    /// Assignment of streams. Sticky moves as few streams as possible. Stateless depends only on
    /// the streams and the workers. Contiguous assigns blocks in the order of the list, as the
    /// original did. Defaults to Sticky.
    #[serde(default)]
    pub policy: Policy,

    /// Handover of a stream. Exclusive assigns it to the new worker only after the old worker has
    /// stopped it. Immediate assigns it at once, so that both may run it for a moment. Defaults to
    /// Exclusive.
    #[serde(default)]
    pub handover: Handover,

    /// Loading and acknowledgement of new streams by the workers.
    #[serde(default)]
    pub refresh: Refresh,

    /// Maximum number of streams of one worker. Streams that do not fit are listed in
    /// status.unassigned. If absent, there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 30_000), extend("format" = "int32"))]
    pub max_streams_per_worker: Option<u32>,

    /// Maximum number of streams that move at the same time to improve the balance. Streams whose
    /// worker is gone do not count. If absent, there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 30_000), extend("format" = "int32"))]
    pub max_moves: Option<u32>,

    /// Weights of the streams as measured by Prometheus, in place of the weights in streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Weights>,

    /// Reference to a TrafficWatch in the same namespace, for example {name: web}. Streams leave
    /// workers on nodes that it marks unfit, while workers on other nodes are available. A plain
    /// name is deprecated.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::api::reference::fitness_ref"
    )]
    #[schemars(schema_with = "crate::api::schema::local_reference")]
    pub fitness_ref: Option<LocalReference>,

    /// Scales the workload by the total weight of the streams. If absent, the workload is not
    /// scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<Autoscale>,

    /// Stops deciding and writing. The file stays as it is.
    #[serde(default)]
    pub paused: bool,

    /// Enforce writes the file and refreshes workers. Observe only computes status, metrics and
    /// events. Defaults to Enforce.
    #[serde(default)]
    pub mode: Mode,
}

impl Swarm {
    /// The name of the ConfigMap with the streams of each worker.
    #[must_use]
    pub fn config_map(&self) -> String {
        let named = self.spec.config_map.name.clone();
        named.unwrap_or_else(|| format!("{}-config", self.spec.workload.name))
    }

    /// The names of the parts of a divided file; empty if the file is in one `ConfigMap`.
    #[must_use]
    pub fn parts(&self) -> Vec<String> {
        let name = self.config_map();
        let parts = self.spec.config_map.files;
        (0..parts).filter(|_| parts > 1).map(|part| format!("{name}-part-{part}")).collect()
    }

    /// The strategy by which workers load their new streams.
    #[must_use]
    pub fn strategy(&self) -> Strategy {
        self.spec.refresh.strategy.unwrap_or(match self.spec.workload.kind {
            WorkloadKind::StatefulSet => Strategy::DeletePod,
            WorkloadKind::Deployment => Strategy::HotReload,
        })
    }

    /// `<namespace>/<name>`.
    #[must_use]
    pub fn key(&self) -> (String, String) {
        (self.namespace().unwrap_or_default(), self.name_any())
    }
}

kind!(Swarm, SwarmStatus);

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
    /// operator takes no stream from it: time alone frees no stream. A stream that moves for balance
    /// waits at most this long for its next worker to be ready and to prepare it. Defaults to 2m.
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

/// The assignment of streams to workers, the streams that are moving, and those without a worker.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SwarmStatus {
    /// Generation of the spec that this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Version of the published file. It never decreases.
    #[serde(default)]
    pub epoch: i64,
    /// Number of streams and workers in each state.
    #[serde(default)]
    pub summary: Summary,
    /// Number of streams that are moving: their old worker has not stopped them yet, or no worker
    /// has them yet.
    #[serde(default)]
    pub moving: i64,
    /// Workers with their streams, at most 100.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub workers: Vec<WorkerStatus>,
    /// Streams without a worker, and the reason. At most 100.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub unassigned: Vec<UnassignedStream>,
    /// Standard conditions: Ready (the streams are assigned and the file is written), Converged
    /// (every worker runs exactly its streams) and, with weights or fitnessRef, MetricsAvailable.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(schema_with = "crate::api::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// The number of streams and workers in each state.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Number of streams in the spec.
    #[serde(default)]
    pub streams: i64,
    /// Number of streams in the lists of workers.
    #[serde(default)]
    pub owned: i64,
    /// Number of streams that a worker has to stop and has not yet acknowledged.
    #[serde(default)]
    pub releasing: i64,
    /// Number of streams that no worker runs and that have a worker to go to.
    #[serde(default)]
    pub free: i64,
    /// Number of streams that no worker can take.
    #[serde(default)]
    pub unassigned: i64,
    /// Number of workers that the Swarm assigns streams to.
    #[serde(default)]
    pub workers: i64,
    /// Number of workers with a ready pod.
    #[serde(default)]
    pub ready: i64,
    /// Number of workers whose pod does not sign its answers. A pod that takes over the address of
    /// such a pod can answer in its place.
    #[serde(default)]
    pub unsigned: i64,
}

/// The state of one worker.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerStatus {
    /// Name of the worker, which is the name of its pod.
    pub name: String,
    /// Number of streams in its list.
    #[serde(default)]
    pub streams: i64,
    /// Total weight of its streams in the unit of the weights, rounded to three significant digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// Version of the file at which its list last changed.
    #[serde(default)]
    pub wanted: i64,
    /// Version of the file that it acknowledged. Absent while its pod has acknowledged none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<i64>,
}

/// A stream without a worker.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct UnassignedStream {
    /// Id of the stream.
    pub id: String,
    /// Reason: `NoWorker`, `PinnedWorkerAbsent`, `NoDedicatedWorker` or `NoCapacity`.
    pub reason: String,
}

mod defaults {
    //! What fields have that a spec leaves out.
    use std::time::Duration as Std;

    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::Duration;

    /// The name of the original's file.
    pub(super) fn key() -> String {
        "config.yml".into()
    }
    /// One file, as the original.
    pub(super) fn files() -> u32 {
        1
    }
    /// The port of the original.
    pub(super) fn port() -> u16 {
        9090
    }
    /// The path of the original.
    pub(super) fn path() -> String {
        "/internal/version".into()
    }
    pub(super) fn weight() -> u32 {
        1
    }
    /// One at a time, as in a rolling update of a StatefulSet.
    pub(super) fn max_unavailable() -> u32 {
        1
    }
    /// Enough for a pod to be drained (30 s), rescheduled and started; a longer time deserves
    /// attention.
    pub(super) fn timeout() -> Duration {
        Std::from_mins(2).into()
    }
    /// The scrape interval of most installations.
    pub(super) fn weights_interval() -> Duration {
        Std::from_secs(30).into()
    }
    /// A move costs a gap; a load of a third above the mean justifies one.
    pub(super) fn rebalance_above() -> Quantity {
        Quantity("1.3".into())
    }
    /// Longer than a peak, shorter than an hour of overload.
    pub(super) fn rebalance_for() -> Duration {
        Std::from_mins(10).into()
    }
    pub(super) fn min_workers() -> u32 {
        1
    }
    /// The scale-down window of the horizontal pod autoscaler.
    pub(super) fn cooldown() -> Duration {
        Std::from_mins(5).into()
    }
    /// The endpoint that `--prometheus-url` names.
    pub(super) fn endpoint() -> String {
        "default".into()
    }
}
