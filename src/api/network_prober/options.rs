//! The nested structures of a `NetworkProber` spec.
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Duration;

use super::{Labels, defaults};

/// Location of agents.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Mode {
    /// An agent in each selected pod.
    #[default]
    Sidecar,
    /// One agent on each node.
    DaemonSet,
}

/// Delivery of the list of peers to agents.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum Delivery {
    /// From the operator, by HTTPS.
    Pull,
    /// From a file in a `ConfigMap`.
    ConfigMap,
}

/// Treatment of a pod while no replica of the operator answers.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum FailurePolicy {
    /// Create it without an agent.
    #[default]
    Ignore,
    /// Refuse it.
    Fail,
}

/// Pull policy of an image.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum PullPolicy {
    /// Pull it where it is not there.
    #[default]
    IfNotPresent,
    /// Ask the registry at each start.
    Always,
    /// Never pull it.
    Never,
}

impl PullPolicy {
    /// Its word in a container.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IfNotPresent => "IfNotPresent",
            Self::Always => "Always",
            Self::Never => "Never",
        }
    }
}

/// The number of pods that probe each pod.
#[derive(Clone, Copy, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Neighbors {
    /// Number of pods in its own zone that probe a pod. Defaults to 8.
    #[serde(default = "defaults::in_zone")]
    #[schemars(range(min = 0, max = 100), extend("format" = "int32"))]
    pub in_zone: u32,
    /// Number of pods in each other zone that probe a pod. Defaults to 2.
    #[serde(default = "defaults::per_other_zone")]
    #[schemars(range(min = 0, max = 100), extend("format" = "int32"))]
    pub per_other_zone: u32,
}

impl Default for Neighbors {
    fn default() -> Self {
        Self { in_zone: defaults::in_zone(), per_other_zone: defaults::per_other_zone() }
    }
}

/// Injection of agents into pods.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Injection {
    /// Treatment of a new pod while no replica of the operator answers: Ignore
    /// creates it without an agent, Fail refuses it. Defaults to Ignore.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// Pull policy of the agent's image, where a policy of the cluster requires one. Defaults to
    /// `IfNotPresent`, so that no pod waits for a registry at each start.
    #[serde(default)]
    pub image_pull_policy: PullPolicy,
    /// User of the agent's container, where a policy of the cluster requires one: not root.
    /// Defaults to a user of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647), extend("format" = "int64"))]
    pub run_as_user: Option<i64>,
    /// Resource requests and limits of the agent's container. The pod keeps its quality of service
    /// class: in a Guaranteed pod requests and limits are made equal, and in a `BestEffort` pod
    /// both are left out.
    #[serde(default)]
    pub resources: Resources,
}

/// Resource requests and limits of a container.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Resource requests. Defaults to 10m CPU and 16Mi memory.
    #[serde(default = "defaults::requests")]
    #[schemars(extend("maxProperties" = 8))]
    pub requests: BTreeMap<String, Quantity>,
    /// Resource limits. Defaults to 64Mi memory and no CPU limit.
    #[serde(default = "defaults::limits")]
    #[schemars(extend("maxProperties" = 8))]
    pub limits: BTreeMap<String, Quantity>,
}

impl Default for Resources {
    fn default() -> Self {
        Self { requests: defaults::requests(), limits: defaults::limits() }
    }
}

/// Objects that configure Prometheus. They are created only where the prometheus-operator is
/// installed.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Monitoring {
    /// Keeps a PodMonitor with the name of this object, so that Prometheus scrapes the agents.
    /// Defaults to true.
    #[serde(default = "defaults::yes")]
    pub pod_monitor: bool,
    /// Keeps a PrometheusRule with the name of this object. It records loss and round-trip time by
    /// pair and by node, and contains alerts on them. Defaults to true.
    #[serde(default = "defaults::yes")]
    pub prometheus_rule: bool,
    /// Scrape interval of the agents, from 1s to 10m. Defaults to 30s.
    #[serde(default = "defaults::interval")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('10m')").message("interval must be a duration from 1s to 10m, e.g. \"30s\""))]
    pub interval: Duration,
    /// Additional labels of the PodMonitor and the PrometheusRule, for a Prometheus that selects
    /// objects by label.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub labels: Labels,
}

impl Default for Monitoring {
    fn default() -> Self {
        Self {
            pod_monitor: true,
            prometheus_rule: true,
            interval: defaults::interval(),
            labels: Labels::new(),
        }
    }
}
