//! The state that the controller last observed and decided.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

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
