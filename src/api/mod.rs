//! The custom resources: types only. No client, no clock, nothing async.
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{Client, CustomResourceExt, Resource, core::ApiResource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::infra::Api;

mod duration;
pub mod go;
pub mod network_prober;
#[cfg(test)]
mod properties;
mod quantity;
pub(crate) mod reference;
pub mod route_reflector_set;
mod schema;
pub mod swarm;
pub mod traffic_watch;

pub use duration::Duration;
pub use network_prober::{NetworkProber, NetworkProberSpec, NetworkProberStatus};
pub use quantity::{InvalidQuantity, parse_quantity};
pub use reference::LocalReference;
pub use route_reflector_set::{RouteReflectorSet, RouteReflectorSetSpec, RouteReflectorSetStatus};
pub use swarm::{Swarm, SwarmSpec, SwarmStatus};
pub use traffic_watch::{TrafficWatch, TrafficWatchSpec, TrafficWatchStatus};

/// The API group of every kind without a history, and the domain of our node keys.
pub const GROUP: &str = "traffic.example.com";

/// The category that lists every kind of this operator: `kubectl get traffic`.
pub const CATEGORY: &str = "traffic";

/// The suffix of the node label that every `TrafficWatch` writes.
pub const UNFIT_SUFFIX: &str = ".traffic.example.com/unfit";

/// Node annotation with the capacity of a node's links, in bits per second (a quantity: `10G`).
pub const CAPACITY_ANNOTATION: &str = "traffic.example.com/capacity";

/// Calico's node annotation that makes a node a reflector with that cluster id.
pub const CLUSTER_ID_ANNOTATION: &str = "projectcalico.org/RouteReflectorClusterID";

/// Calico's node annotations with the BGP addresses of a node and their prefix lengths: IPv4, IPv6.
pub const BGP_ADDRESS_ANNOTATIONS: [&str; 2] =
    ["projectcalico.org/IPv4Address", "projectcalico.org/IPv6Address"];

/// Calico's node annotation with the AS number of a node, if it differs from the cluster's.
pub const BGP_AS_ANNOTATION: &str = "projectcalico.org/ASNumber";

/// The node label with the slot of the `RouteReflectorSet` that a node holds.
pub const SLOT_LABEL: &str = "route-reflectors.traffic.example.com/slot";

/// The node label with the group of reflectors whose client a node is.
pub const GROUP_LABEL: &str = "route-reflectors.traffic.example.com/group";

/// Writes that the controller may make.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Mode {
    /// Everything that was decided, and status, metrics and events.
    #[default]
    Enforce,
    /// Status, metrics and events only.
    Observe,
}

/// One kind, with everything that the installation needs to know about it.
pub struct KindInfo {
    /// The definition of the kind; it is generated, schema included, by each call.
    pub crd: fn() -> CustomResourceDefinition,
    /// The names of the kind, which cost nothing.
    pub resource: fn() -> ApiResource,
    /// Cluster-wide permissions of the controller, in addition to watching the kind and writing its
    /// status.
    pub permissions: &'static [Permission],
    /// Permissions for cluster-scoped objects with these names.
    pub named: &'static [NamedPermission],
    /// Permissions in the operator's own namespace only.
    pub own_namespace: &'static [NamedPermission],
    /// Permissions of the webhook for this kind; `None` if the webhook does not serve it.
    pub webhook: Option<WebhookAccess>,
    /// True if the objects carry a finalizer, which is written by a patch of the object itself.
    pub finalizer: bool,
}

impl KindInfo {
    /// The kind's name: `TrafficWatch`.
    #[must_use]
    pub fn name(&self) -> String {
        (self.resource)().kind
    }
}

/// Permissions of the webhook for a kind, in addition to watching the kind itself. The webhook has
/// a separate account that writes nothing, because every pod of the cluster can reach its ports.
/// The controller's account has the same permissions, since it knows everything that the webhook
/// knows.
#[derive(Clone, Copy, Debug)]
pub struct WebhookAccess {
    /// Cluster-wide permissions.
    pub permissions: &'static [Permission],
    /// Permissions in the operator's own namespace only.
    pub own_namespace: &'static [NamedPermission],
}

/// One rule of the operator's `ClusterRole`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The API group, `""` for core.
    pub group: &'static str,
    /// The resources, sub-resources included (`nodes/status`).
    pub resources: &'static [&'static str],
    /// The verbs; `*` is not allowed.
    pub verbs: &'static [&'static str],
}

/// One rule of the operator's roles that is limited to some objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedPermission {
    /// The permission to restrict.
    pub permission: Permission,
    /// The names of the objects that it covers; empty for all.
    pub names: &'static [&'static str],
}

/// Every kind that the operator serves, in the order of installation.
pub const KINDS: &[KindInfo] = &[
    KindInfo {
        crd: TrafficWatch::crd,
        resource: TrafficWatch::api_resource,
        permissions: traffic_watch::PERMISSIONS,
        named: &[],
        own_namespace: &[],
        webhook: None,
        finalizer: true,
    },
    KindInfo {
        crd: NetworkProber::crd,
        resource: NetworkProber::api_resource,
        permissions: network_prober::PERMISSIONS,
        named: network_prober::NAMED,
        own_namespace: network_prober::OWN_NAMESPACE,
        webhook: Some(network_prober::WEBHOOK_ACCESS),
        finalizer: true,
    },
    KindInfo {
        crd: Swarm::crd,
        resource: Swarm::api_resource,
        permissions: swarm::PERMISSIONS,
        named: &[],
        own_namespace: &[],
        webhook: None,
        finalizer: false,
    },
    KindInfo {
        crd: RouteReflectorSet::crd,
        resource: RouteReflectorSet::api_resource,
        permissions: route_reflector_set::PERMISSIONS,
        named: &[],
        own_namespace: &[],
        webhook: None,
        finalizer: true,
    },
];

/// Reports whether the operator is done with an object: it is being deleted, and does not carry our
/// finalizer. Other finalizers may keep it, such as that of foreground deletion.
#[must_use]
pub fn has_ended(object: &impl Resource, finalizer: &str) -> bool {
    object.meta().deletion_timestamp.is_some()
        && !object.meta().finalizers.iter().flatten().any(|present| present == finalizer)
}

/// A kind that the generic controller can reconcile.
pub trait Kind:
    Resource<DynamicType = ()>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    /// The status subresource.
    type Status: Clone + Default + PartialEq + Serialize + Send + Sync + std::fmt::Debug;

    /// The API of one namespace; cluster-scoped kinds ignore it.
    fn api(client: Client, namespace: Option<&str>) -> Api<Self>;
    /// The status that the API server holds, if one was written.
    fn status(&self) -> Option<&Self::Status>;
    /// The standard conditions in a status.
    fn conditions_mut(status: &mut Self::Status) -> &mut Vec<Condition>;
    /// The field of a status with the generation that it was computed from.
    fn observed_generation_mut(status: &mut Self::Status) -> &mut Option<i64>;
    /// The part of an unreadable spec that cleanup needs; `None` if it is unknown.
    #[must_use]
    fn spec_for_cleanup(_spec: &serde_json::Value) -> Option<serde_json::Value> {
        None
    }
}

/// Implements [`Kind`] for a kind whose status has the usual fields; `cluster` marks a
/// cluster-scoped kind.
macro_rules! kind {
    (@ $kind:ty, $status:ty, $api:expr $(, $cleanup:expr)?) => {
        impl $crate::api::Kind for $kind {
            type Status = $status;

            fn api(client: kube::Client, namespace: Option<&str>) -> $crate::infra::Api<Self> {
                let api: fn(kube::Client, Option<&str>) -> $crate::infra::Api<Self> = $api;
                api(client, namespace)
            }

            fn status(&self) -> Option<&Self::Status> {
                self.status.as_ref()
            }

            fn conditions_mut(
                status: &mut Self::Status,
            ) -> &mut Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
                &mut status.conditions
            }

            fn observed_generation_mut(status: &mut Self::Status) -> &mut Option<i64> {
                &mut status.observed_generation
            }

            $(fn spec_for_cleanup(spec: &serde_json::Value) -> Option<serde_json::Value> {
                Some($cleanup(spec))
            })?
        }
    };
    (cluster $kind:ty, $status:ty $(, cleanup $cleanup:expr)?) => {
        kind!(@ $kind, $status, |client, _| $crate::infra::Api::all(client) $(, $cleanup)?);
    };
    ($kind:ty, $status:ty $(, cleanup $cleanup:expr)?) => {
        kind!(@ $kind, $status, |client: kube::Client, namespace: Option<&str>| match namespace {
            Some(namespace) => $crate::infra::Api::namespaced(client, namespace),
            None => $crate::infra::Api::all(client),
        } $(, $cleanup)?);
    };
}

use kind;
