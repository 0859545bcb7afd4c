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

/// The schema of standard conditions, with the bounds of `metav1.Condition`: the client library's type
/// has none, so that any word would be a status.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "type": "string", "format": "date-time",
                    "description": "Time of the last change of the status.",
                },
                "message": {
                    "type": "string", "maxLength": 32768,
                    "description": "Details, for a person.",
                },
                "observedGeneration": {
                    "type": "integer", "format": "int64", "minimum": 0,
                    "description": "Generation of the object that the condition is about.",
                },
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "Reason for the status, in one word.",
                },
                "status": {
                    "type": "string", "enum": ["True", "False", "Unknown"],
                    "description": "True, False or Unknown.",
                },
                "type": {
                    "type": "string", "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                    "description": "The claim that is true, false or unknown.",
                },
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
