//! The enumerations and nested structures of a `TrafficWatch` spec.
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Duration;

use super::defaults;

/// Direction of traffic that is compared with the threshold.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum Direction {
    /// Bytes that the node sends.
    #[default]
    Transmit,
    /// Bytes that the node receives.
    Receive,
    /// The larger of the two directions.
    Busiest,
}

/// Avoidance of unfit nodes by the Deployment.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Placement {
    /// Required node affinity: no pod starts on an unfit node.
    #[default]
    Required,
    /// Preferred node affinity with weight 100.
    Preferred,
}

/// Number of consecutive judgments that must agree.
#[derive(Clone, Copy, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct Consecutive {
    /// Consecutive judgments above the threshold that mark a fit node as unfit.
    #[serde(default = "defaults::consecutive")]
    #[schemars(range(min = 1, max = 1000), extend("format" = "int32"))]
    pub unfit: u32,
    /// Consecutive judgments at or below the recovery threshold that mark an unfit node as fit.
    #[serde(default = "defaults::consecutive")]
    #[schemars(range(min = 1, max = 1000), extend("format" = "int32"))]
    pub fit: u32,
}

impl Default for Consecutive {
    fn default() -> Self {
        Self { unfit: defaults::consecutive(), fit: defaults::consecutive() }
    }
}

/// An additional measure, which alone can make a node unfit.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Criterion {
    /// Name of the measure in status, events and metrics, for example "loss".
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue() && self != 'bandwidth'").message("name must be a DNS label (lower case letters, digits and '-', at most 63 characters) other than \"bandwidth\", which is the measure of maxBandwidthPercent and maxBandwidth"))]
    pub name: String,

    /// PromQL query that returns an instant vector with one element per node. The labels identify
    /// the node in the same way as those of the node exporter's series. The age of its samples is
    /// unknown, so any element counts as current.
    #[schemars(length(min = 1, max = 16384))]
    pub query: String,

    /// Threshold: a node is unfit while its value is greater. A quantity that is not negative, for
    /// example 5, "0.01", "200m" or "1.5G".
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 0 : (isQuantity(self) && quantity(self).compareTo(quantity('0')) >= 0)").message("max must be a quantity that is not negative, e.g. \"0.01\""))]
    #[schemars(extend("maxLength" = 64))]
    pub max: Quantity,

    /// Percentage of max at or below which a node becomes fit again. Defaults to
    /// spec.recoverPercent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100), extend("format" = "int32"))]
    pub recover_percent: Option<u32>,
}

/// Treatment of a single node that has no evidence for a long time.
#[derive(Clone, Copy, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
pub struct OnUnknown {
    /// Time without evidence after which the action applies, at most 168h. The clock stands still
    /// while the request to Prometheus fails or too few nodes have data, because then the
    /// measurement is at fault, not the node. Defaults to 10m.
    #[serde(default = "defaults::unknown_after")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')").message("after must be a duration of at most 168h, e.g. \"10m\""))]
    pub after: Duration,
    /// Action to take then. Defaults to Hold.
    #[serde(default)]
    pub action: UnknownAction,
}

impl Default for OnUnknown {
    fn default() -> Self {
        Self { after: defaults::unknown_after(), action: UnknownAction::Hold }
    }
}

/// Action for a node without evidence.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum UnknownAction {
    /// Keep the label as it is.
    #[default]
    Hold,
    /// Mark the node as fit.
    Fit,
    /// Mark the node as unfit, as far as maxUnfit and minFit allow.
    Unfit,
    /// Remove the label, as if the node had never been judged.
    RemoveLabel,
}

/// Effect of the taint on unfit nodes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum TaintEffect {
    /// The scheduler avoids the node if another node has room.
    PreferNoSchedule,
    /// The scheduler places no pod on the node unless the pod tolerates the taint.
    NoSchedule,
}

traffic_operator_core::named!(TaintEffect { PreferNoSchedule, NoSchedule });

/// Conditions on which pods of the Deployment leave a node that stays unfit.
#[derive(Clone, Copy, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    /// Time for which a node must have been unfit before its pods are evicted, at most 168h.
    /// Defaults to 10m.
    #[serde(default = "defaults::unknown_after")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')").message("after must be a duration of at most 168h, e.g. \"10m\""))]
    pub after: Duration,
    /// Maximum number of pods to evict in one judgment. Defaults to 1.
    #[serde(default = "defaults::max_per_pass")]
    #[schemars(range(min = 1, max = 100), extend("format" = "int32"))]
    pub max_per_pass: u32,
}
