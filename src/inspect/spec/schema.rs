//! Checks of a value against a structural schema: types, ranges, enumerations, and no unknown
//! field.
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Map, Value};

/// Fields that every object has, with a schema of the API server's own.
const OWN: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// Returns all errors in an object, each with its path.
pub(super) fn check(schema: &JSONSchemaProps, object: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    let Value::Object(fields) = object else { return vec!["must be an object".into()] };
    let rest = fields.iter().filter(|(name, _)| !OWN.contains(&name.as_str()));
    let rest: Map<_, _> = rest.map(|(name, value)| (name.clone(), value.clone())).collect();
    visit(schema, &Value::Object(rest), "", &mut errors);
    errors
}

fn visit(schema: &JSONSchemaProps, value: &Value, path: &str, errors: &mut Vec<String>) {
    if value.is_null() {
        // The API server drops a null that is not allowed if there is no default.
        return;
    }
    let mut wrong = |text: String| errors.push(format!("{path}: {value} {text}"));
    if let Some(type_) = mistyped(schema, value) {
        wrong(format!("must be {type_}"));
        return;
    }
    let excludes = |values: &&Vec<JSON>| !values.iter().any(|allowed| allowed.0 == *value);
    if let Some(values) = schema.enum_.as_ref().filter(excludes) {
        let values: Vec<_> = values.iter().map(|value| value.0.to_string()).collect();
        wrong(format!("must be one of {}", values.join(", ")));
    }
    if let Some(x) = value.as_f64() {
        if let Some(min) = schema.minimum.filter(|min| x < *min) {
            wrong(format!("must be at least {min}"));
        }
        if let Some(max) = schema.maximum.filter(|max| x > *max) {
            wrong(format!("must be at most {max}"));
        }
    }
    if let Some(text) = value.as_str() {
        let len = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_length.filter(|min| len < *min) {
            wrong(format!("must have at least {min} characters"));
        }
        if let Some(max) = schema.max_length.filter(|max| len > *max) {
            wrong(format!("must have at most {max} characters"));
        }
    }
    match value {
        Value::Object(fields) => visit_fields(schema, fields, path, errors),
        Value::Array(items) => {
            if let Some(max) =
                schema.max_items.filter(|max| i64::try_from(items.len()).is_ok_and(|n| n > *max))
            {
                errors.push(format!("{path}: must have at most {max} items"));
            }
            if let Some(JSONSchemaPropsOrArray::Schema(each)) = &schema.items {
                for (i, item) in items.iter().enumerate() {
                    visit(each, item, &format!("{path}[{i}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn visit_fields(
    schema: &JSONSchemaProps,
    fields: &Map<String, Value>,
    path: &str,
    errors: &mut Vec<String>,
) {
    let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for name in schema.required.iter().flatten() {
        if !OWN.contains(&name.as_str()) && fields.get(name).is_none_or(Value::is_null) {
            errors.push(format!("{}: is missing", at(name)));
        }
    }
    let open = schema.x_kubernetes_preserve_unknown_fields == Some(true);
    for (name, value) in fields {
        let property = schema.properties.as_ref().and_then(|properties| properties.get(name));
        match (property, &schema.additional_properties) {
            (Some(property), _) => visit(property, value, &at(name), errors),
            (None, Some(JSONSchemaPropsOrBool::Schema(each))) => {
                visit(each, value, &at(name), errors);
            }
            (None, Some(JSONSchemaPropsOrBool::Bool(true))) => {}
            (None, _) if open => {}
            (None, _) => errors.push(format!("{}: unknown field", at(name))),
        }
    }
}

/// Returns the expected type of a value with a different type.
fn mistyped(schema: &JSONSchemaProps, value: &Value) -> Option<&'static str> {
    if schema.x_kubernetes_int_or_string == Some(true) {
        return (!value.is_i64() && !value.is_u64() && !value.is_string())
            .then_some("an integer or a string");
    }
    let (fits, name) = match schema.type_.as_deref()? {
        "object" => (value.is_object(), "an object"),
        "array" => (value.is_array(), "a list"),
        "string" => (value.is_string(), "a string (write it in quotes)"),
        "integer" => (value.is_i64() || value.is_u64(), "an integer"),
        "number" => (value.is_number(), "a number"),
        "boolean" => (value.is_boolean(), "true or false"),
        _ => return None,
    };
    (!fits).then_some(name)
}
