//! The policies, and the webhook object, that `make deploy` installs beside the roles; a component.
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bench::{Bench, apply_object, eventually, run};

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

/// Applies every object of a file.
async fn apply_file(bench: &Bench, file: &str) {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
    for document in serde_yaml::Deserializer::from_str(&text.expect("the file")) {
        apply_object(&bench.client, Value::deserialize(document).expect("YAML")).await;
    }
}

#[test]
fn the_api_server_ranks_the_lease_as_those_of_kubernetes() {
    run(async |bench| {
        apply_file(&bench, "deploy/components/priority/flowschemas.yaml").await;
        let operator = bench.as_operator().await;
        for (path, schema) in [
            (
                "/apis/coordination.k8s.io/v1/namespaces/traffic-operator-system/leases/traffic-operator",
                "traffic-operator-lease",
            ),
            ("/api/v1/nodes", "traffic-operator"),
        ] {
            let kind = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
            let request = http::Request::get(format!("{kind}/{schema}")).body(vec![]);
            let schema: Value =
                bench.client.request(request.expect("request")).await.expect(schema);
            let uid = schema["metadata"]["uid"].as_str().expect("a UID");
            eventually(path, async || {
                let request = http::Request::get(path).body(kube::client::Body::empty());
                let answer = operator.send(request.expect("request")).await.ok()?;
                let by = answer.headers().get("x-kubernetes-pf-flowschema-uid")?;
                (by == uid).then_some(())
            })
            .await;
        }
    });
}

#[test]
fn the_component_shapes_a_pod_to_what_it_reserves() {
    run(async |bench| {
        apply_file(&bench, "deploy/components/shape-reserved/policy.yaml").await;
        let pods = Api::<Pod>::namespaced(bench.client.clone(), "default");
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let key = "kubernetes.io/egress-bandwidth";
        let shaped = async |amounts: &[u32], annotations: Option<Value>| {
            let containers = amounts.iter().enumerate().map(|(i, amount)| {
                let mut container =
                    json!({"name": format!("c{i}"), "image": "registry.invalid/c:1"});
                if *amount > 0 {
                    let limits = json!({"traffic.example.com/egress-mbps": amount.to_string()});
                    container["resources"] = json!({"limits": limits});
                }
                container
            });
            let pod = json!({
                "metadata": {"name": "shaped", "annotations": annotations},
                "spec": {"containers": containers.collect::<Vec<_>>(), "automountServiceAccountToken": false},
            });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let pod = pods.create(&dry, &pod).await.expect("a dry run");
            pod.metadata.annotations.and_then(|annotations| annotations.get(key).cloned())
        };
        // Policies take a moment to come into force.
        let in_force = async || shaped(&[200, 0, 50], None).await.filter(|value| value == "250M");
        eventually("the policy in force", in_force).await;
        let other = Some(json!({"team": "a"}));
        assert_eq!(shaped(&[1000], other).await.as_deref(), Some("1000M"));
        assert_eq!(shaped(&[200], Some(json!({key: "1G"}))).await.as_deref(), Some("1G"));
        assert_eq!(shaped(&[0], None).await, None);
        let limits = |amount: &str| json!({"limits": {"traffic.example.com/egress-mbps": amount}});
        let container = |name: &str, amount: &str| json!({"name": name, "image": "registry.invalid/c:1", "resources": limits(amount)});
        let mut sidecar = container("sidecar", "30");
        sidecar["restartPolicy"] = "Always".into();
        // One that ends before the others begin sends nothing beside them.
        let pod = json!({"metadata": {"name": "shaped"}, "spec": {
            "automountServiceAccountToken": false, "containers": [container("c", "200")],
            "initContainers": [sidecar, container("first", "900")],
        }});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let pod = pods.create(&dry, &pod).await.expect("a dry run");
        assert_eq!(pod.metadata.annotations.expect("annotations")[key], "230M");
    });
}
