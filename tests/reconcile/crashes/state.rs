//! The end state of a pass, without what differs from run to run.
use k8s_openapi::{
    ByteString,
    api::{coordination::v1::Lease, core::v1::Secret},
};
use kube::{Api, api::DeleteParams};
use serde_json::{Map, Value, json};
use traffic_operator::{
    manifests::{NAME, NAMESPACE},
    webhook::certificates,
};

use crate::bench::Bench;

/// Fields with times and random values: bookkeeping of the API server and of its controllers,
/// moments in a status, UIDs and what is computed from them, and certificates, which each run
/// issues itself.
const VOLATILE: [&str; 18] = [
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
    "lastTransitionTime",
    "lastStepTime",
    "since",
    "unfitSince",
    "time",
    "renewTime",
    "acquireTime",
    "caBundle",
    "ca.crt",
    "deployment.kubernetes.io/revision",
    "probes.bigmikes.io/owner-uid",
    "traffic.example.com/swarm-uid",
    "pinglistVersion",
];

/// The prefixes of our labels, annotations and taints of nodes.
const OURS: [&str; 3] =
    ["traffic.example.com", "calico-route-reflector", "projectcalico.org/RouteReflectorClusterID"];

/// Removes these fields, and those that differ in every run.
fn strip(value: &mut Value, more: &[&str]) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| {
                !VOLATILE.contains(&key.as_str()) && !more.contains(&key.as_str())
            });
            for (key, value) in fields {
                if key == "config.json" {
                    *value = lists(value);
                }
                strip(value, more);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| strip(value, more)),
        _ => {}
    }
}

/// Reads a list of agents, which names pods by their UIDs; any other text stays as it is.
fn lists(text: &Value) -> Value {
    let bytes = serde_json::from_value::<ByteString>(text.clone());
    let read = bytes.ok().and_then(|bytes| serde_json::from_slice(&bytes.0).ok());
    read.unwrap_or_else(|| text.clone())
}

/// Returns the objects of a list, without the fields that differ and without `more`.
pub async fn objects(bench: &Bench, path: &str, more: &[&str]) -> Value {
    let request = http::Request::get(path).body(Vec::new()).expect("request");
    let mut list: Value = bench.client.request(request).await.expect(path);
    let mut items = list["items"].take();
    strip(&mut items, more);
    items
}

/// Returns our labels, annotations and taints of each node.
pub async fn nodes(bench: &Bench) -> Value {
    let nodes = objects(bench, "/api/v1/nodes", &[]).await;
    let is_ours = |key: &str| OURS.iter().any(|ours| key.contains(ours));
    let ours = |fields: &Value| -> Map<String, Value> {
        let fields = fields.as_object().into_iter().flatten();
        fields.filter(|(key, _)| is_ours(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    let each = |node: &Value| {
        let metadata = &node["metadata"];
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let taints: Vec<_> =
            taints.filter(|taint| taint["key"].as_str().is_some_and(is_ours)).collect();
        json!([metadata["name"], ours(&metadata["labels"]), ours(&metadata["annotations"]), taints])
    };
    nodes.as_array().into_iter().flatten().map(each).collect()
}

/// Returns the objects that a pass of every kind has: the Lease, and the Secret of the webhook.
pub async fn shared(bench: &Bench) -> Value {
    let lease = leases(bench).get_opt(NAME).await.expect("Lease");
    let mut lease = json!(lease.and_then(|lease| lease.spec));
    strip(&mut lease, &[]);
    let secret = secrets(bench).get_opt(certificates::NAME).await.expect("Secret");
    let secret = secret.map(|secret| {
        let keys: Vec<_> = secret.data.into_iter().flatten().map(|(key, _)| key).collect();
        json!([secret.type_, secret.metadata.labels, keys])
    });
    json!([lease, secret])
}

/// Removes those two, so that each run writes them.
pub async fn forget_shared(bench: &Bench) {
    // They may be missing.
    let _ = leases(bench).delete(NAME, &DeleteParams::default()).await;
    let _ = secrets(bench).delete(certificates::NAME, &DeleteParams::default()).await;
}

fn leases(bench: &Bench) -> Api<Lease> {
    Api::namespaced(bench.client.clone(), NAMESPACE)
}

fn secrets(bench: &Bench) -> Api<Secret> {
    Api::namespaced(bench.client.clone(), NAMESPACE)
}

/// Returns the differences between two states, each with its place.
pub fn differences(expected: &Value, found: &Value) -> Vec<String> {
    let mut all = vec![];
    compare("", expected, found, &mut all);
    all
}

fn compare(at: &str, expected: &Value, found: &Value, all: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            let added = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(added) {
                compare(&format!("{at}/{key}"), &expected[key], &found[key], all);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{at}/{i}"), a, b, all);
            }
        }
        _ if expected == found => {}
        _ => all.push(format!("{at}: {found}, in an undisturbed run {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_its_place_and_times_are_none() {
        let list = |uid: &str| json!({"config.json": ByteString(json!({"a": {"uid": uid}}).to_string().into_bytes())});
        let mut one = json!({"a": [{"uid": "1", "b": 1, "x": 1}], "time": 1, "l": list("1")});
        let mut other =
            json!({"a": [{"uid": "2", "b": 2, "x": 2, "c": 3}], "time": 2, "l": list("2")});
        strip(&mut one, &["x"]);
        strip(&mut other, &["x"]);
        assert_eq!(
            differences(&one, &other),
            ["/a/0/b: 2, in an undisturbed run 1", "/a/0/c: 3, in an undisturbed run null"]
        );
        assert!(differences(&one, &one).is_empty());
    }
}
