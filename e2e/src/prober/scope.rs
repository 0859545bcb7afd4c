//! The namespaces for which a webhook is called. No IO.

use serde_json::Value;

/// Returns whether a label selector matches these labels; one without requirements matches
/// everything.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let exact = selector["matchLabels"].as_object().into_iter().flatten();
    let listed = selector["matchExpressions"].as_array().into_iter().flatten();
    exact.into_iter().all(|(key, value)| labels[key] == *value)
        && listed.into_iter().all(|expression| holds(expression, labels))
}

fn holds(expression: &Value, labels: &Value) -> bool {
    let found = expression["key"].as_str().map_or(&Value::Null, |key| &labels[key]);
    let listed = expression["values"].as_array().is_some_and(|values| values.contains(found));
    match expression["operator"].as_str() {
        Some("In") => listed,
        Some("NotIn") => !listed,
        Some("Exists") => !found.is_null(),
        Some("DoesNotExist") => found.is_null(),
        // The API server knows no other; a caller with another one should be warned.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_mean_what_the_api_server_takes_them_for() {
        let labels = json!({"kubernetes.io/metadata.name": "kube-system", "a": "b"});
        let by = |operator: &str, values: &[&str]| {
            let key = "kubernetes.io/metadata.name";
            json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
        };
        assert!(selects(&json!(null), &labels) && selects(&json!({}), &labels));
        assert!(!selects(&by("In", &["default"]), &labels));
        assert!(selects(&by("In", &["default", "kube-system"]), &labels));
        assert!(!selects(&by("NotIn", &["kube-system"]), &labels));
        assert!(
            selects(&by("Exists", &[]), &labels) && !selects(&by("DoesNotExist", &[]), &labels)
        );
        assert!(selects(&json!({"matchLabels": {"a": "b"}}), &labels));
        assert!(!selects(&json!({"matchLabels": {"a": "c"}}), &labels));
        assert!(selects(&by("Gt", &["1"]), &labels));
    }
}
