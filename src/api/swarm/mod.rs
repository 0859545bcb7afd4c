//! `Swarm`: assigns streams to workers.
use kube::{CustomResource, KubeSchema, ResourceExt};
use serde::{Deserialize, Serialize};

use super::{LocalReference, Permission, kind};

mod defaults;
mod options;
mod status;

pub use super::Mode;
pub use options::{
    Autoscale, ConfigMapKeyRef, Handover, Policy, Refresh, ShareMap, Strategy, Stream, StreamsFrom,
    Weights, Workload, WorkloadKind,
};
pub use status::{Summary, SwarmStatus, UnassignedStream, WorkerStatus};

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
