//! References to an object by its name.
use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, value::MapAccessDeserializer},
};

/// A reference to an object whose kind and namespace follow from the field: `{name: web}`. A plain
/// string, the form before it, is read as the name.
///
/// A structural schema has no unions except integer or string, and the alternatives to a field
/// without a type are worse:
///
/// - An object alone in the schema, and a webhook that rewrites strings: stored strings stay, and
///   server-side apply fails on an object that does not have the types of its schema, even for a
///   status.
/// - A second version with a conversion webhook: nobody can read an object while the operator is
///   down.
/// - A second field beside the string: two names for one thing, for ever.
///
/// CEL rules of a definition do not see a field without a type. Admission policies do
/// (`deploy/base/fieldpolicy.yaml`): they refuse values of other forms, and warn of strings. Where
/// they are not installed, this type refuses the same, and the object reports `InvalidSpec`.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize)]
pub struct LocalReference {
    /// Name of the object.
    pub name: String,
}

/// The form that is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    name: String,
}

impl LocalReference {
    /// Checks a name: it becomes a part of a path of the API.
    fn of<E: de::Error>(name: String) -> Result<Self, E> {
        if is_subdomain(&name) {
            Ok(Self { name })
        } else {
            let name = crate::prometheus::shortened(name, 50);
            Err(E::custom(format_args!(
                "{name:?} is not the name of an object (lower case letters, digits, '-' and '.')"
            )))
        }
    }
}

impl<'de> Deserialize<'de> for LocalReference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> de::Visitor<'de> for Forms {
            type Value = LocalReference;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a name, e.g. {name: web}")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<LocalReference, E> {
                LocalReference::of(name.to_owned())
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<LocalReference, A::Error> {
                let Object { name } = Object::deserialize(MapAccessDeserializer::new(map))?;
                LocalReference::of(name)
            }
        }
        deserializer.deserialize_any(Forms)
    }
}

/// Reads an optional reference, with the field at the beginning of each error: serde names none.
fn read<'de, D: Deserializer<'de>>(
    deserializer: D,
    field: &str,
) -> Result<Option<LocalReference>, D::Error> {
    Option::deserialize(deserializer)
        .map_err(|error: D::Error| de::Error::custom(format_args!("{field}: {error}")))
}

/// Reads `fitnessRef`.
pub(super) fn fitness_ref<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<LocalReference>, D::Error> {
    read(deserializer, "fitnessRef")
}

/// Reads `datastore.etcd.secretRef`.
pub(super) fn secret_ref<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<LocalReference>, D::Error> {
    read(deserializer, "datastore.etcd.secretRef")
}

/// Reports whether a text is a DNS subdomain, as names of objects are.
pub(crate) fn is_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // The API server's limit for names.
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Spec {
        #[serde(default, deserialize_with = "fitness_ref")]
        of: Option<LocalReference>,
    }

    fn read(of: &Value) -> Result<Option<LocalReference>, String> {
        let spec = serde_json::from_value::<Spec>(json!({ "of": of }));
        spec.map(|spec| spec.of).map_err(|error| error.to_string())
    }

    #[test]
    fn both_forms_are_the_same_reference_and_the_object_is_written() {
        let web = LocalReference { name: "web.team-a".into() };
        for form in [json!("web.team-a"), json!({"name": "web.team-a"})] {
            assert_eq!(read(&form), Ok(Some(web.clone())), "{form}");
        }
        assert_eq!(json!(web), json!({"name": "web.team-a"}));
        assert_eq!(read(&Value::Null), Ok(None));
        assert_eq!(serde_json::from_value::<Spec>(json!({})).unwrap().of, None);
    }

    #[test]
    fn every_other_value_is_refused_with_the_field() {
        let name = "is not the name of an object";
        let form = "expected an object with a name, e.g. {name: web}";
        for (value, text) in [
            (json!(""), name),
            (json!("Web"), name),
            (json!("../web"), name),
            (json!("a..b"), name),
            (json!("-a"), name),
            (json!("a".repeat(254)), name),
            (json!({"name": "a/b"}), name),
            (json!({}), "missing field `name`"),
            (json!({"name": 5}), "expected a string"),
            (json!({"name": "a", "namespace": "b"}), "unknown field `namespace`"),
            (json!(5), form),
            (json!(true), form),
            (json!(["a"]), form),
        ] {
            let error = read(&value).expect_err("a refusal");
            assert!(error.starts_with("fitnessRef: "), "{value}: {error}");
            assert!(error.contains(text), "{value}: {error}");
        }
    }
}
