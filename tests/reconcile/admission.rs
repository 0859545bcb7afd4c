//! Odd input that is accepted, and bad input that only the operator can refuse; `schema` has what the
//! API server refuses.
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::{
    bench::{Bench, run},
    traffic_watch::judging::three_nodes,
};

mod ready_condition;

/// A TrafficWatch with exactly this spec.
pub fn object(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

/// Generated specs have a resource of ours, which the operator may write.
#[test]
fn a_resource_may_have_any_domain_but_that_of_kubernetes() {
    run(async |bench| {
        for resource in ["a/B", "team-a.example.com/x_y.z"] {
            let spec = json!({"reservation": {"resource": resource}});
            let stored = bench.watch_in("default", "good", spec).await;
            stored.unwrap_or_else(|error| panic!("{resource}: {error}"));
            bench
                .watches("default")
                .delete("good", &DeleteParams::default())
                .await
                .expect("delete");
        }
    });
}

#[test]
fn the_original_samples_are_accepted_by_strict_clients_and_become_ready() {
    for file in ["trafficwatch.yaml", "trafficwatch-labeled.yaml"] {
        run(async |bench| sample_becomes_ready(&bench, file).await);
    }
}

async fn sample_becomes_ready(bench: &Bench, file: &str) {
    three_nodes(bench).await;
    let path = format!("{}/deploy/samples/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("sample");
    let mut sample: Value = serde_yaml::from_str(&text).expect("YAML");
    sample["metadata"]["namespace"] = "default".into();
    let name = sample["metadata"]["name"].as_str().expect("name").to_owned();
    let labels = sample["spec"]["deployment"]["template"]["metadata"]["labels"].clone();
    assert!(labels.is_object());
    let stored = bench.create(sample).await.expect("accepted");
    let kept = &stored.data["spec"]["deployment"]["template"]["metadata"]["labels"];
    assert_eq!(*kept, labels, "the template's metadata was pruned");
    let _operator = bench.operator();
    // The samples' interval is the default, 10 s: two judgments.
    bench.condition(&name, "Ready", "True", "Judged").await;
    let child = bench.deployments().get(&name).await.expect("the Deployment");
    assert_eq!(child.spec.expect("spec").replicas, Some(2));
}
