//! What the controller last saw and did.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Which worker has how many streams, which of them are on their way, and which have no worker.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SwarmStatus {
    /// The generation this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The version of the file that is published; it never goes backwards.
    #[serde(default)]
    pub epoch: i64,
    /// How many streams and workers there are.
    #[serde(default)]
    pub summary: Summary,
    /// How many streams are on their way: their old worker has not stopped them yet, or nobody has
    /// them yet.
    #[serde(default)]
    pub moving: i64,
    /// The workers: the first 100.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub workers: Vec<WorkerStatus>,
    /// Streams that have no worker, and why: the first 100.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub unassigned: Vec<UnassignedStream>,
    /// Ready (the streams are placed and the file is written), Converged (every worker runs exactly its
    /// share) and, with weights or fitnessRef, MetricsAvailable.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Counts.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Streams of the spec.
    #[serde(default)]
    pub streams: i64,
    /// Streams that stand in a worker's list.
    #[serde(default)]
    pub owned: i64,
    /// Streams that a worker is to stop and has not been seen to.
    #[serde(default)]
    pub releasing: i64,
    /// Streams that nobody runs and that have a worker to go to.
    #[serde(default)]
    pub free: i64,
    /// Streams that no worker can take.
    #[serde(default)]
    pub unassigned: i64,
    /// Workers that are to have streams.
    #[serde(default)]
    pub workers: i64,
    /// Those of them with a ready pod.
    #[serde(default)]
    pub ready: i64,
    /// Those of them whose pod does not sign what it answers: whoever gets hold of its address can answer in
    /// its place.
    #[serde(default)]
    pub unsigned: i64,
}

/// One worker.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerStatus {
    /// Its name: that of its pod.
    pub name: String,
    /// How many streams stand in its list.
    #[serde(default)]
    pub streams: i64,
    /// What they weigh together, in the unit of the weights; to three significant digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// The version at which its list last changed.
    #[serde(default)]
    pub wanted: i64,
    /// The version it has acknowledged; absent while its pod has acknowledged none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<i64>,
}

/// A stream without a worker.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct UnassignedStream {
    /// The stream.
    pub id: String,
    /// Why: `NoWorker`, `PinnedWorkerAbsent`, `NoDedicatedWorker`, `NoCapacity`.
    pub reason: String,
}
