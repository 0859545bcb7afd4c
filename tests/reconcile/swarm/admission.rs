//! What two versions of a spec may not differ in, and what policies check; `schema` has the rest.
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::Stage;
use crate::bench::{eventually, run};

/// Two streams, and more.
fn jobs(more: &Value) -> Value {
    crate::network_prober::with(json!({"jobs": ["a", "b"]}), more)
}

async fn refused(stage: &Stage, cases: Vec<(Value, &str)>) {
    for (spec, text) in cases {
        let error = stage.try_swarm("bad", spec.clone()).await.err();
        let error = error.map_or_else(String::new, |error| error.to_string());
        assert!(error.contains(text), "{spec}: {error:?} has no {text:?}");
    }
}

/// A pod that is recreated from an older revision of its template would read the former file. The
/// same name, explicit or not, is no change: `kubectl apply` of one manifest keeps working.
#[test]
fn neither_the_name_nor_the_key_of_the_file_can_change() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let change = async |name: &str, spec: Value| {
            let patch = kube::api::Patch::Merge(json!({"spec": spec}));
            let params = kube::api::PatchParams::default();
            let changed = stage.swarms().patch(name, &params, &patch).await;
            changed.err().map_or_else(String::new, |error| error.to_string())
        };
        let named = |name: Value| json!({"configMap": {"name": name}});
        let cannot = "spec.configMap.name: cannot change";
        stage.try_swarm("w", jobs(&json!({}))).await.expect("a Swarm without a name");
        assert!(change("w", named(json!("other"))).await.contains(cannot));
        assert!(change("w", json!({"workload": {"name": "v"}})).await.contains(cannot));
        // A user who sets the name explicitly may change the workload.
        assert_eq!(change("w", named(json!("w-config"))).await, "");
        assert_eq!(change("w", json!({"workload": {"name": "v"}})).await, "");
        assert!(change("w", named(json!(null))).await.contains(cannot));
        assert_eq!(change("w", json!({"workload": {"name": "w"}})).await, "");
        assert_eq!(change("w", named(json!(null))).await, "");
        // The other fields may change.
        assert_eq!(change("w", json!({"jobs": ["c"]})).await, "");
        let given = jobs(&named(json!("mine")));
        stage.try_swarm("named", given).await.expect("a Swarm with a name");
        assert!(change("named", named(json!("yours"))).await.contains(cannot));
        assert!(change("named", json!({"configMap": null})).await.contains(cannot));
        // As kubectl does, with the same manifest.
        let apply = async |spec: &Value| {
            let object = json!({
                "apiVersion": "traffic.example.com/v1alpha1", "kind": "Swarm",
                "metadata": {"name": "applied", "namespace": "default"}, "spec": spec,
            });
            let params = kube::api::PatchParams::apply("kubectl").force();
            let patch = kube::api::Patch::Apply(&object);
            stage.swarms().patch("applied", &params, &patch).await.expect("applied");
        };
        let spec = jobs(&json!({"workload": {"name": "applied"}}));
        apply(&spec).await;
        apply(&spec).await;
        // Workers read the key that their template names.
        let keyed = |key: Value| json!({"configMap": {"key": key}});
        let cannot = "spec.configMap.key: cannot change";
        assert!(change("w", keyed(json!("other.yml"))).await.contains(cannot));
        for same in [json!("config.yml"), json!(null)] {
            assert_eq!(change("w", keyed(same)).await, "");
        }
        stage.try_swarm("keyed", jobs(&keyed(json!("mine.yml")))).await.expect("with a key");
        for other in [json!("config.yml"), json!(null)] {
            assert!(change("keyed", keyed(other)).await.contains(cannot));
        }
    });
}

/// The field has no type, so policies check it.
#[test]
fn a_reference_that_is_neither_form_is_refused_with_its_field() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let text = "spec.fitnessRef must be {name: ...}, with the name of a TrafficWatch";
        // Policies take a moment to come into force.
        let wrong = jobs(&json!({"fitnessRef": "A"}));
        let refusal = async || {
            let error = stage.try_swarm("bad", wrong.clone()).await.err();
            let is_refused = error.is_some_and(|error| error.to_string().contains(text));
            if !is_refused {
                // Accepted; it may also be gone already.
                let _ = stage.swarms().delete("bad", &DeleteParams::default()).await;
            }
            is_refused.then_some(())
        };
        eventually("the policies", refusal).await;
        let more = [json!({"name": "w", "namespace": "n"}), json!(5), json!(["w"]), json!(true)];
        let forms = more.into_iter().chain([json!(""), json!("a/b"), json!({"name": "A"})]);
        let cases = forms.map(|form| (jobs(&json!({ "fitnessRef": form })), text));
        refused(&stage, cases.collect()).await;
        for (name, form) in [("object", json!({"name": "web"})), ("string", json!("web"))] {
            stage.swarm(name, jobs(&json!({ "fitnessRef": form }))).await;
        }
        // An existing value may stay when other fields change, and the form may change.
        for form in [json!("web"), json!({"name": "web"}), Value::Null] {
            stage.change("string", json!({"maxMoves": 3, "fitnessRef": form})).await;
        }
    });
}
