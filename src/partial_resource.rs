//! Objects of Kubernetes that are reduced while they are read: skipped fields are never allocated.
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
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

/// Reads the metadata of an object without its managed fields, which are the larger part of it.
pub(crate) fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kept {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        // These times are set by the API server.
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        finalizers: Option<Vec<String>>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    let Kept {
        name,
        namespace,
        uid,
        resource_version,
        generation,
        creation_timestamp,
        deletion_timestamp,
        labels,
        annotations,
        finalizers,
        owner_references,
    } = Kept::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name,
        namespace,
        uid,
        resource_version,
        generation,
        creation_timestamp,
        deletion_timestamp,
        labels,
        annotations,
        finalizers,
        owner_references,
        ..ObjectMeta::default()
    })
}

/// Metadata that the client library cannot read, for tests.
#[cfg(test)]
pub(crate) fn unreadable_metadata() -> serde_json::Value {
    let metadata = serde_json::json!({
        "name": "o", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"},
        "annotations": {"c": "d"}, "finalizers": ["f"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "k", "uid": "v"}],
        "managedFields": [{
            "manager": "m", "operation": "Update", "apiVersion": "v1",
            "time": "9999-12-31T23:59:59Z", "fieldsType": "FieldsV1", "fieldsV1": {},
        }],
    });
    assert!(serde_json::from_value::<ObjectMeta>(metadata.clone()).is_err(), "it can be read");
    metadata
}
