//! Objects that others write, read so that none of them keeps the others from being read.
use std::{borrow::Cow, marker::PhantomData};

use k8s_openapi::jiff::Timestamp;
use kube::{
    Resource,
    api::{Evict, Portforward},
    core::{ObjectMeta, error_boundary::InvalidObject},
};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned, ser::Error as _,
};
use serde_json::{Value, value::RawValue};

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

/// An object, or the reason why it cannot be read, as the client library's type of the same name:
/// no object of a list keeps the others from being read.
///
/// A time that the client library cannot hold, such as 9999-12-31T23:59:59Z, is read as the nearest
/// one that it can: Kubernetes accepts more of them, from anyone who may write an object.
#[derive(Clone, Debug)]
pub struct DeserializeGuard<K>(pub Result<K, Box<InvalidObject>>);

impl<'de, K: DeserializeOwned> Deserialize<'de> for DeserializeGuard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(serde_json::from_str(text.get()).or_else(|_| read_again(text.get()))))
    }
}

impl<K: Serialize> Serialize for DeserializeGuard<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Ok(object) => object.serialize(serializer),
            Err(invalid) => Err(S::Error::custom(invalid)),
        }
    }
}

impl<K: Evict> Evict for DeserializeGuard<K> {}

impl<K: Portforward> Portforward for DeserializeGuard<K> {}

/// Reads an object with every time in it as near as it can be held.
fn read_again<K: DeserializeOwned>(text: &str) -> Result<K, Box<InvalidObject>> {
    #[derive(Deserialize)]
    struct Meta {
        metadata: Box<RawValue>,
    }
    let invalid = |error: serde_json::Error, metadata: Option<&Value>| {
        let metadata = metadata.and_then(|metadata| partial_resource::metadata(metadata).ok());
        let (error, metadata) = (error.to_string(), metadata.unwrap_or_default());
        Box::new(InvalidObject { error, metadata })
    };
    match holdable(text) {
        Ok(object) => {
            K::deserialize(&object).map_err(|error| invalid(error, object.get("metadata")))
        }
        // Nested too deeply, which its metadata is not.
        Err(error) => {
            let metadata = serde_json::from_str::<Meta>(text);
            let metadata = metadata.and_then(|meta| holdable(meta.metadata.get()));
            Err(invalid(error, metadata.as_ref().ok()))
        }
    }
}

fn holdable(text: &str) -> serde_json::Result<Value> {
    let mut value = serde_json::from_str(text)?;
    hold_times(&mut value);
    Ok(value)
}

fn hold_times(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(nearest) = nearest(text) {
                *text = nearest;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hold_times),
        Value::Object(fields) => fields.values_mut().for_each(hold_times),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the nearest time that can be held; `None` for one that can be, and for other texts.
///
/// Kubernetes reads years of four digits with any offset, and writes them in UTC: a year of five
/// digits, or one before zero, as Go prints it (-0001).
fn nearest(text: &str) -> Option<String> {
    let (year, rest) = text.strip_prefix('-').unwrap_or(text).split_once('-')?;
    let is_time = year.len() >= 4
        && year.bytes().all(|digit| digit.is_ascii_digit())
        && rest.as_bytes().get(5).is_some_and(|between| between.eq_ignore_ascii_case(&b't'));
    if !is_time || text.parse::<Timestamp>().is_ok() {
        return None;
    }
    let nearest = if text.starts_with('-') {
        Timestamp::MIN
    } else if year.len() > 4 || year == "9999" {
        Timestamp::MAX
    } else {
        // An offset of more hours than there are.
        format!("{}Z", text.get(..19)?).parse().ok()?
    };
    Some(nearest.to_string())
}

impl<K: Resource> Resource for DeserializeGuard<K> {
    identity_of!(K);

    fn metadata_api() -> bool {
        K::metadata_api()
    }

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
    use k8s_openapi::api::{
        coordination::v1::Lease,
        core::v1::{ConfigMap, Namespace},
    };
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
        let mut metadata = good.0.unwrap().metadata;
        let managed = metadata.managed_fields.take().unwrap();
        assert_eq!(managed[0].time.as_ref().unwrap().0, Timestamp::MAX);
        is_kept(&metadata);
    }

    #[test]
    fn a_time_that_cannot_be_held_is_the_nearest_one_that_can() {
        let (first, last) = (Timestamp::MIN, Timestamp::MAX);
        for (text, expected) in [
            ("9999-12-31T23:59:59Z", Some(last)),
            ("9999-12-31T23:59:59.999999Z", Some(last)),
            ("9999-12-31t23:59:59-12:00", Some(last)),
            ("10000-01-01T11:59:59Z", Some(last)),
            ("-0001-12-31T10:00:00Z", Some(first)),
            ("2026-01-01T00:00:00+99:99", Some("2026-01-01T00:00:00Z".parse().unwrap())),
            ("9999-12-30T21:59:59Z", None),
            ("0000-01-01T00:00:00+14:00", None),
            ("2026-01-01T00:00:00Z", None),
            ("9999-99-99T99:99:99Z of an annotation", Some(last)),
            ("9999-12-31", None),
            ("10000-nodes", None),
            ("-", None),
            ("", None),
        ] {
            let found = nearest(text).map(|text| text.parse::<Timestamp>().unwrap());
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn every_time_of_an_object_is_read() {
        let never = "9999-12-31T23:59:59Z";
        let object = json!({
            "metadata": {"name": "a", "creationTimestamp": never, "deletionTimestamp": never},
            "spec": {"holderIdentity": never, "acquireTime": never, "renewTime": never},
        });
        let lease: DeserializeGuard<Lease> = serde_json::from_value(object).unwrap();
        let lease = lease.0.unwrap();
        let spec = lease.spec.unwrap();
        assert_eq!(spec.renew_time.unwrap().0, Timestamp::MAX);
        assert_eq!(spec.acquire_time.unwrap().0, Timestamp::MAX);
        assert_eq!(lease.metadata.deletion_timestamp.unwrap().0, Timestamp::MAX);
    }

    #[test]
    fn an_object_that_is_nested_too_deeply_has_a_name() {
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        let list = format!(
            r#"{{"metadata": {{}}, "items": [
                {{"spec": {{"x": {deep}}}, "metadata": {{"name": "deep"}}}},
                {{"metadata": {{"name": "flat"}}}}
            ]}}"#
        );
        let list: kube::core::ObjectList<DeserializeGuard<DynamicObject>> =
            serde_json::from_str(&list).unwrap();
        let [deep, flat] = &list.items[..] else { panic!("{list:?}") };
        assert!(deep.0.is_err() && flat.0.is_ok());
        assert_eq!((deep.name_any(), flat.name_any()), ("deep".into(), "flat".into()));
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
