//! Objects that others write, read so that none of them keeps the others from being read.
use std::{borrow::Cow, marker::PhantomData};

use kube::{
    Resource,
    core::{
        ObjectMeta,
        error_boundary::{self, InvalidObject},
    },
};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use crate::partial_resource;

/// Gives a type around another one the identity of that one.
macro_rules! identity_of {
    ($kind:ident) => {
        type DynamicType = $kind::DynamicType;
        type Scope = $kind::Scope;

        fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
            $kind::kind(of)
        }
        fn group(of: &Self::DynamicType) -> Cow<'_, str> {
            $kind::group(of)
        }
        fn version(of: &Self::DynamicType) -> Cow<'_, str> {
            $kind::version(of)
        }
        fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
            $kind::plural(of)
        }
    };
}

/// An object, or the reason why it cannot be read, as the client library's type of the same name.
///
/// The managed fields are not read. Their times may be later than the client library can hold; that
/// type then fails to read the metadata, and the whole list fails with it.
#[derive(Clone, Debug)]
pub struct DeserializeGuard<K>(pub Result<K, InvalidObject>);

impl<'de, K: Resource + Deserialize<'de>> Deserialize<'de> for DeserializeGuard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(deserializer)?;
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let guard = error_boundary::DeserializeGuard::<K>::deserialize(object);
        guard.map(|guard| Self(guard.0)).map_err(D::Error::custom)
    }
}

impl<K: Resource> Resource for DeserializeGuard<K> {
    identity_of!(K);

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|invalid| &invalid.metadata, K::meta)
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|invalid| &mut invalid.metadata, K::meta_mut)
    }
}

/// The metadata of an object without its managed fields. Requests ask for metadata alone, as with
/// the client library's `PartialObjectMeta`.
#[derive(Clone, Debug, Deserialize)]
pub struct Metadata<K> {
    /// All but the managed fields.
    #[serde(default, deserialize_with = "partial_resource::metadata")]
    pub metadata: ObjectMeta,
    #[serde(skip)]
    full: PhantomData<fn() -> K>,
}

impl<K: Resource> Resource for Metadata<K> {
    identity_of!(K);

    fn metadata_api() -> bool {
        true
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    use kube::{ResourceExt, core::DynamicObject};
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;
    use crate::{
        api::{Kind, NetworkProber, RouteReflectorSet, Swarm, TrafficWatch},
        partial_resource::unreadable_metadata,
    };

    fn read<T: DeserializeOwned>(metadata: &Value, spec: &Value) -> T {
        let object = json!({"apiVersion": "v1", "kind": "K", "metadata": metadata, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    fn is_kept(metadata: &ObjectMeta) {
        let mut kept = unreadable_metadata();
        kept["managedFields"].take();
        assert_eq!(serde_json::to_value(metadata).unwrap(), json_without_nulls(kept));
    }

    fn json_without_nulls(mut metadata: Value) -> Value {
        metadata.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        metadata
    }

    /// A tenant adds such an entry to its own object once, and after the next restart of the
    /// operator no object of the kind is served, in any namespace.
    #[test]
    fn one_object_with_a_time_that_cannot_be_held_keeps_no_other_from_being_read() {
        fn broken<K: Kind>() {
            let list = json!({
                "apiVersion": "v1", "kind": "List", "metadata": {},
                "items": [{"metadata": unreadable_metadata(), "spec": 7}],
            });
            let list: kube::core::ObjectList<DeserializeGuard<K>> =
                serde_json::from_value(list).unwrap();
            let [object] = &list.items[..] else { panic!("{list:?}") };
            assert!(object.0.is_err(), "a broken spec is still an error of this object");
            is_kept(object.meta());
        }
        broken::<TrafficWatch>();
        broken::<NetworkProber>();
        broken::<Swarm>();
        broken::<RouteReflectorSet>();
        let spec = json!({"podSelector": {"matchLabels": {"app": "a"}}});
        let good: DeserializeGuard<NetworkProber> = read(&unreadable_metadata(), &spec);
        is_kept(&good.0.unwrap().metadata);
    }

    #[test]
    fn metadata_alone_is_read_whatever_its_managed_fields_hold() {
        is_kept(&read::<Metadata<Namespace>>(&unreadable_metadata(), &json!({})).metadata);
        is_kept(&read::<Metadata<ConfigMap>>(&unreadable_metadata(), &json!({})).metadata);
        let any = read::<Metadata<DynamicObject>>(&unreadable_metadata(), &json!({}));
        assert_eq!((any.name_any(), any.namespace()), ("o".into(), Some("n".into())));
        assert!(
            Metadata::<Namespace>::metadata_api() && !DeserializeGuard::<Swarm>::metadata_api()
        );
    }
}
