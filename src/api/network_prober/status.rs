//! What the controller last saw and did.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// How many pods are selected, which of them have an agent, and why the others have none.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkProberStatus {
    /// The generation this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The pods that are probed, by name (with the namespace where it is another): the first 100.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pods: Vec<String>,
    /// How many pods are selected; finished and terminating ones do not count.
    #[serde(default)]
    pub selected: i64,
    /// How many of them have an agent.
    #[serde(default)]
    pub injected: i64,
    /// How many have an agent of an earlier spec (image, ports, delivery or resources): they need a
    /// restart, which the operator leaves to you.
    #[serde(default)]
    pub need_restart: i64,
    /// Why the others have no agent, and how many for each reason.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub not_injected: Vec<NotInjected>,
    /// How many pods have an agent that cannot start: they wait for it.
    #[serde(default)]
    pub failing: i64,
    /// What their kubelets say of them, and how many for each word.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub failing_reasons: Vec<NotInjected>,
    /// The namespaces in which no further pod gets an agent until those there start: the first 100.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub paused: Vec<Paused>,
    /// A fingerprint of all pinglists: it changes exactly when one of them does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinglist_version: Option<String>,
    /// About how many time series the agents export together.
    #[serde(default)]
    pub estimated_series: i64,
    /// Ready, Covered (every selected pod has an agent) and Monitored (Prometheus was told of them).
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// A namespace in which injection pauses.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Paused {
    /// Which.
    pub namespace: String,
    /// What a kubelet says of an agent there.
    pub reason: String,
}

/// Some of the selected pods, and why.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotInjected {
    /// Why, in one word.
    pub reason: String,
    /// How many.
    pub count: i64,
}
