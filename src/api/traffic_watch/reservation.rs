//! Bandwidth as a resource that the scheduler counts: its part of the spec and of the status.
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::defaults;

/// Bandwidth that nodes offer to pods as an extended resource.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reservation {
    /// Name of the extended resource, for example "traffic.example.com/egress-mbps". It cannot
    /// change. Pods request it in spec.containers[].resources. Without a change of the admission
    /// policy traffic-operator-nodestatus, its prefix must be traffic.example.com or end in
    /// .traffic.example.com.
    #[schemars(length(min = 3, max = 300))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self.indexOf('/') <= 244 && !self.contains('kubernetes.io/') && !self.startsWith('requests.')").message("resource must be the name of an extended resource with a prefix outside of kubernetes.io, e.g. \"traffic.example.com/egress-mbps\""))]
    pub resource: String,

    /// Bits per second of one unit of the resource. With 1M, a pod that requests 200 reserves 200
    /// Mbit/s. Defaults to 1M.
    #[serde(default = "defaults::unit")]
    #[schemars(extend("nullable" = false))]
    #[x_kube(validation = Rule::new("type(self) == int ? self > 0 : (isQuantity(self) && quantity(self).isGreaterThan(quantity('0')))").message("unit must be a quantity of bits per second greater than 0, e.g. \"1M\""))]
    pub unit: Quantity,

    /// Percentage of the threshold that no pod can reserve, from 0% to 99%. It absorbs what a
    /// measurement shows late, and changes that are smaller than a step. Defaults to 10%.
    #[serde(default = "defaults::reserve")]
    #[schemars(length(max = 8))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9]?[0-9]%$')").message("reserve must be a percentage from 0% to 99%, e.g. \"10%\""))]
    pub reserve: String,

    /// Smallest change that is written, from 1% to 99% of what the node can offer at most. Values
    /// that change by less stay as they are. Defaults to 5%.
    #[serde(default = "defaults::step")]
    #[schemars(length(max = 8))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]?%$')").message("step must be a percentage from 1% to 99%, e.g. \"5%\""))]
    pub step: String,
}

/// The extended resource on the nodes, over all judged nodes. Its figures are refreshed once a
/// minute.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReservationStatus {
    /// Name of the extended resource that nodes offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Sum of what the nodes offer, in units.
    #[serde(default)]
    pub offered: i64,
    /// Sum of what pods on these nodes request, in units.
    #[serde(default)]
    pub requested: i64,
    /// Number of nodes that offer the resource.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub nodes: u32,
    /// Resources that this object no longer offers, at most 10. They stay on nodes whose pods
    /// request them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub leaving: Vec<String>,
}
