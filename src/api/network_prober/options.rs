//! The parts of a spec that have fields of their own.
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Duration;

use super::{Labels, defaults};

/// Where agents run.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Mode {
    /// In each selected pod.
    #[default]
    Sidecar,
    /// Once on each node.
    DaemonSet,
}

/// How a peer is probed.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum Protocol {
    /// A request on a new connection, to the headers of the answer.
    #[serde(rename = "HTTP")]
    Http,
    /// A connection.
    #[serde(rename = "TCP")]
    Tcp,
    /// A packet and its echo.
    #[serde(rename = "UDP")]
    Udp,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Http, Self::Tcp, Self::Udp];

    /// The value of the label `protocol`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// How agents learn whom to probe.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum Delivery {
    /// From the operator.
    Pull,
    /// From a file that a `ConfigMap` brings.
    ConfigMap,
}

/// What the API server does with a pod when no replica of the operator answers.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum FailurePolicy {
    /// Creates it without an agent.
    #[default]
    Ignore,
    /// Refuses it.
    Fail,
}

/// How many probe each pod.
#[derive(Clone, Copy, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Neighbours {
    /// How many pods of its own zone probe a pod.
    #[serde(default = "defaults::in_zone")]
    #[schemars(range(min = 0, max = 100), extend("format" = "int32"))]
    pub in_zone: u32,
    /// How many pods of each other zone probe it.
    #[serde(default = "defaults::per_other_zone")]
    #[schemars(range(min = 0, max = 100), extend("format" = "int32"))]
    pub per_other_zone: u32,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self { in_zone: defaults::in_zone(), per_other_zone: defaults::per_other_zone() }
    }
}

/// How agents are put into pods.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Injection {
    /// Ignore creates pods without an agent while no replica of the operator answers; Fail refuses
    /// them.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// What the agent's container requests and may use. A pod keeps its quality of service: in a
    /// Guaranteed pod requests and limits are made equal, in a `BestEffort` pod there are none.
    #[serde(default)]
    pub resources: Resources,
}

/// What a container requests and may use.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What it requests.
    #[serde(default = "defaults::requests")]
    #[schemars(extend("maxProperties" = 8))]
    pub requests: BTreeMap<String, Quantity>,
    /// What it may use.
    #[serde(default = "defaults::limits")]
    #[schemars(extend("maxProperties" = 8))]
    pub limits: BTreeMap<String, Quantity>,
}

impl Default for Resources {
    fn default() -> Self {
        Self { requests: defaults::requests(), limits: defaults::limits() }
    }
}

/// What Prometheus gets. The objects are made where the prometheus-operator is installed.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Monitoring {
    /// Keep a PodMonitor with the name of this object, so that Prometheus scrapes the agents.
    #[serde(default = "defaults::yes")]
    pub pod_monitor: bool,
    /// Keep a PrometheusRule with the name of this object: loss and round-trip time by pair and by
    /// node, and alerts on them.
    #[serde(default = "defaults::yes")]
    pub prometheus_rule: bool,
    /// How often the agents are scraped.
    #[serde(default = "defaults::interval")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('10m')").message("interval must be a duration from 1s to 10m, e.g. \"30s\""))]
    pub interval: Duration,
    /// Labels of the PodMonitor and the PrometheusRule, for a Prometheus that selects by them.
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
