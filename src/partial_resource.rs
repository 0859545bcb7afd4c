//! Objects of Kubernetes that are reduced while they are read: skipped fields are never allocated.
use serde::{Deserialize, Deserializer};

/// Gives a reduced type the identity of the full one, so that the client lists and watches it.
///
/// `partial_resource!(NodeObject as Node, ClusterResourceScope)`: the reduced type has a field
/// `metadata`.
macro_rules! partial_resource {
    ($reduced:ty as $full:ty, $scope:ty) => {
        impl kube::Resource for $reduced {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                <$full as kube::Resource>::kind(&())
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                <$full as kube::Resource>::group(&())
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                <$full as kube::Resource>::version(&())
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                <$full as kube::Resource>::plural(&())
            }
            fn meta(&self) -> &kube::core::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use partial_resource;

/// Reads null as the type's empty value, like the API server.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
