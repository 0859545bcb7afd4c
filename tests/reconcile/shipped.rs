//! The policies, and the webhook object, that `make deploy` installs beside the roles.
use std::path::Path;

use serde_json::Value;

/// Returns the admission policies and their roles: the files that `deploy/base` installs.
pub fn policies() -> Vec<String> {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/base");
    let read = |name: &str| std::fs::read_to_string(base.join(name)).expect(name);
    let index: Value = serde_yaml::from_str(&read("kustomization.yaml")).expect("YAML");
    let names = index["resources"].as_array().expect("resources").iter();
    let names = names.filter_map(Value::as_str);
    names
        .filter(|name| name.ends_with("policy.yaml") || *name == "authorroles.yaml")
        .map(read)
        .collect()
}

/// Returns the object that the operator writes its webhooks into.
pub fn webhook() -> String {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/base");
    std::fs::read_to_string(base.join("webhook.yaml")).expect("webhook.yaml")
}

/// Changes `ownedpolicy.yaml` as it describes for an operator outside of the cluster, like this
/// one: the policy has to name the URL of its webhook.
pub fn answer_from_outside(policy: &mut Value) {
    if policy["kind"] == "ValidatingAdmissionPolicy"
        && policy["metadata"]["name"] == "traffic-operator-webhooks"
    {
        let variables = policy["spec"]["variables"].as_array_mut().expect("variables");
        let urls = variables.iter_mut().find(|v| v["name"] == "urls").expect("urls");
        urls["expression"] = "['https://127.0.0.1:']".into();
    }
}
