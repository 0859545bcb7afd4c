//! The state that the controller last observed and wrote.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The number of pods that are selected and that have an agent, and the reasons why others have
/// none.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkProberStatus {
    /// Generation of the spec that this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Names of the pods that are probed, with the namespace if it is not that of this object. At
    /// most 100.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pods: Vec<String>,
    /// Number of selected pods. Finished and terminating pods do not count.
    #[serde(default)]
    pub selected: i64,
    /// Number of selected pods that have an agent.
    #[serde(default)]
    pub injected: i64,
    /// Number of pods whose agent has an earlier spec (image, ports, delivery or resources). They
    /// need a restart, which the operator leaves to you.
    #[serde(default)]
    pub need_restart: i64,
    /// Reasons why selected pods have no agent, with the number of pods for each.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub not_injected: Vec<NotInjected>,
    /// Number of pods that wait for an agent that cannot start.
    #[serde(default)]
    pub failing: i64,
    /// Reasons that the kubelets report for those agents, with the number of pods for each.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub failing_reasons: Vec<NotInjected>,
    /// Namespaces in which no further pod gets an agent until the existing agents start. At most
    /// 100.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub paused: Vec<Paused>,
    /// Fingerprint of all lists of peers. It changes only when one of the lists changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinglist_version: Option<String>,
    /// Estimated number of time series that all agents export together.
    #[serde(default)]
    pub estimated_series: i64,
    /// Standard conditions: Ready, Covered (every selected pod has an agent) and Monitored
    /// (Prometheus is configured to scrape the agents).
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(schema_with = "crate::api::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A namespace in which injection pauses.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Paused {
    /// Name of the namespace.
    pub namespace: String,
    /// Reason that a kubelet reports for an agent there.
    pub reason: String,
}

/// A group of selected pods with the same reason.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotInjected {
    /// The reason, in one word.
    pub reason: String,
    /// Number of pods.
    pub count: i64,
}
