//! The words and small structures of a `TrafficWatch`'s policies.
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Duration;

use super::defaults;

/// Which direction of a link counts.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum Direction {
    /// Bytes the node sends.
    #[default]
    Transmit,
    /// Bytes the node receives.
    Receive,
    /// The larger of the two.
    Busiest,
}

/// How strongly the Deployment avoids unfit nodes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Placement {
    /// Required node affinity: a pod is never started on an unfit node.
    #[default]
    Required,
    /// Preferred node affinity of weight 100.
    Preferred,
}

/// How many judgements in a row must agree.
#[derive(Clone, Copy, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct Consecutive {
    /// Judgements above the threshold before a fit node is marked unfit.
    #[serde(default = "defaults::consecutive")]
    #[schemars(range(min = 1, max = 1000), extend("format" = "int32"))]
    pub unfit: u32,
    /// Judgements at or below the recovery threshold before an unfit node is marked fit.
    #[serde(default = "defaults::consecutive")]
    #[schemars(range(min = 1, max = 1000), extend("format" = "int32"))]
    pub fit: u32,
}

impl Default for Consecutive {
    fn default() -> Self {
        Self { unfit: defaults::consecutive(), fit: defaults::consecutive() }
    }
}

/// A further measure: any of them may say that a node is unfit.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Criterion {
    /// What it is called in status, events and metrics: "loss".
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue() && self != 'bandwidth'").message("name must be a DNS label (lower case letters, digits and '-', at most 63 characters) other than \"bandwidth\", which is the measure of maxBandwidthPercent and maxBandwidth"))]
    pub name: String,

    /// PromQL that gives an instant vector of one element per node. Labels name the node, as for the
    /// node exporter's series. How old its samples are is not known: presence is the evidence.
    #[schemars(length(min = 1, max = 16384))]
    pub query: String,

    /// A node is unfit while its value is above this. A quantity that is not negative: 5, "0.01",
    /// "200m", "1.5G".
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 0 : (isQuantity(self) && quantity(self).compareTo(quantity('0')) >= 0)").message("max must be a quantity that is not negative, e.g. \"0.01\""))]
    pub max: Quantity,

    /// Fit again at or below this percent of max; spec.recoverPercent if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100), extend("format" = "int32"))]
    pub recover_percent: Option<u32>,
}

/// What happens to a single node whose evidence stays away.
#[derive(Clone, Copy, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
pub struct OnUnknown {
    /// How long evidence about the node must stay away. The clock stands still while the request
    /// fails or too few nodes have data: then the measurement is in trouble, not the node.
    #[serde(default = "defaults::unknown_after")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')").message("after must be a duration of at most 168h, e.g. \"10m\""))]
    pub after: Duration,
    /// What is done then.
    #[serde(default)]
    pub action: UnknownAction,
}

impl Default for OnUnknown {
    fn default() -> Self {
        Self { after: defaults::unknown_after(), action: UnknownAction::Hold }
    }
}

/// What is done with a node whose evidence stayed away.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum UnknownAction {
    /// The label stays as it is.
    #[default]
    Hold,
    /// The node is marked fit.
    Fit,
    /// The node is marked unfit, as far as maxUnfit and minFit allow.
    Unfit,
    /// The label goes, as if the node had never been judged.
    RemoveLabel,
}

/// The effect of the taint on unfit nodes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum TaintEffect {
    /// The scheduler avoids the node when there is other room.
    PreferNoSchedule,
    /// No pod that does not tolerate the taint is started on the node.
    NoSchedule,
}

impl TaintEffect {
    /// The word of the Kubernetes API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoSchedule => "NoSchedule",
        }
    }
}

/// When pods of the Deployment leave a node that stays unfit.
#[derive(Clone, Copy, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    /// How long a node must have been unfit.
    #[serde(default = "defaults::unknown_after")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')").message("after must be a duration of at most 168h, e.g. \"10m\""))]
    pub after: Duration,
    /// How many pods are evicted in one judgement at most.
    #[serde(default = "defaults::max_per_pass")]
    #[schemars(range(min = 1, max = 100), extend("format" = "int32"))]
    pub max_per_pass: u32,
}
