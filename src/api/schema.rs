//! Schemas that the derive cannot express.
use k8s_openapi::api::apps::v1::DeploymentSpec;
use schemars::{Schema, SchemaGenerator};
use serde_json::Value;

/// The schema of an embedded `DeploymentSpec`, opened and without inner descriptions.
///
/// - Opened (`x-kubernetes-preserve-unknown-fields` wherever fields are listed): a field newer than
///   the Kubernetes version this operator was built for is neither refused nor pruned, and the
///   template's own metadata is kept.
/// - Without descriptions: 64 kB instead of 326 kB, so that client-side `kubectl apply`, which
///   stores the object in an annotation of at most 256 KiB, can install the definition.
pub(super) fn deployment(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<Option<DeploymentSpec>>();
    open(&mut schema);
    schema
}

/// The schema of an optional word, which a rule checks. An API server refuses null where words are
/// listed (`enum`), even if null is among them; `taint:` with nothing after it must mean the same
/// as no such line.
pub(super) fn optional_word(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({"type": "string", "nullable": true, "maxLength": 32})
}

/// The schema of a [`LocalReference`](super::LocalReference): an object with a name, or a string.
/// Without a type it allows both; the rest of the check is with admission policies and the type.
pub(super) fn local_reference(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
        // Applies to the string alone.
        "maxLength": 253,
        // These apply to the object alone.
        "required": ["name"],
        "properties": {
            "name": {
                "type": "string", "minLength": 1, "maxLength": 253,
                "description": "Name of the object.",
            },
        },
    })
}

/// Opens a schema and everything below it. The generator keeps the real schema in its definitions:
/// inline transforms run after this, so both the reference and its target must be opened in place.
fn open(schema: &mut Schema) {
    if let Some(object) = schema.as_object_mut() {
        object.remove("description");
        if object.contains_key("properties") {
            object.insert("x-kubernetes-preserve-unknown-fields".into(), Value::Bool(true));
        }
    }
    schemars::transform::transform_subschemas(&mut open, schema);
}
