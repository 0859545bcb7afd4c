//! Refusals of the API server, and their messages.
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

#[test]
fn what_does_not_go_together_is_refused_with_a_reason() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let streams = |all: Value| json!({"streams": all});
        let one = "exactly one of jobs, streams and streamsFrom is needed";
        let from = || json!({"configMapKeyRef": {"name": "m"}});
        let deployment = || json!({"kind": "Deployment"});
        let cases: Vec<(Value, &str)> = vec![
            (json!({}), one),
            (json!({"jobs": ["a"], "streams": [{"id": "a"}]}), one),
            (json!({"jobs": ["a"], "streamsFrom": from()}), one),
            (json!({"jobs": []}), "should have at least 1 items"),
            (json!({"jobs": ["a", "a"]}), "Duplicate value"),
            (json!({"jobs": [""]}), "should be at least 1 chars long"),
            (streams(json!([])), "should have at least 1 items"),
            (streams(json!([{"id": "a"}, {"id": "a"}])), "Duplicate value"),
            (streams(json!([{"id": "a", "weight": 0}])), "should be greater than or equal to 1"),
            (streams(json!([{"id": "a", "weight": -3}])), "should be greater than or equal to 1"),
            (streams(json!([{"weight": 1}])), "id: Required value"),
            (
                json!({"streams": [{"id": "a", "pin": "w-0"}], "workload": deployment()}),
                "pin needs a StatefulSet",
            ),
            (
                jobs(&json!({"workload": deployment(), "refresh": {"strategy": "DeletePod"}})),
                "DeletePod needs a StatefulSet",
            ),
            (
                jobs(&json!({"workload": deployment(), "configMap": {"immutable": true}})),
                "needs a StatefulSet and refresh.strategy DeletePod",
            ),
            (
                jobs(
                    &json!({"configMap": {"immutable": true}, "refresh": {"strategy": "HotReload"}}),
                ),
                "needs a StatefulSet and refresh.strategy DeletePod",
            ),
            (
                json!({"streams": [{"id": "a", "weight": 2}], "policy": "Stateless"}),
                "weight and weights need Sticky",
            ),
            (
                jobs(&json!({"policy": "Contiguous", "weights": {"query": "x"}})),
                "weight and weights need Sticky",
            ),
            (
                json!({"streams": [{"id": "a", "dedicated": true}], "policy": "Contiguous"}),
                "pin and dedicated need Sticky or Stateless",
            ),
            (
                json!({"streams": [{"id": "a", "pin": "w-0"}], "policy": "Contiguous"}),
                "pin and dedicated need Sticky or Stateless",
            ),
            (
                jobs(&json!({"autoscale": {"maxWeightPerWorker": 1, "min": 3, "max": 2}})),
                "must not be greater than spec.autoscale.max",
            ),
            (
                jobs(&json!({"autoscale": {"maxWeightPerWorker": 0, "max": 2}})),
                "maxWeightPerWorker must be a quantity greater than 0",
            ),
            (jobs(&json!({"autoscale": {"maxWeightPerWorker": 1}})), "max: Required value"),
        ];
        refused(&stage, cases).await;
    });
}

/// A pod that is recreated from an older revision of its template would read the former file. The
/// same name, explicit or not, is no change: `kubectl apply` of one manifest keeps working.
#[test]
fn the_name_of_the_file_cannot_change() {
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
    });
}

/// Workers read the key that their template names.
#[test]
fn the_key_of_the_file_cannot_change() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let change = async |name: &str, key: Value| {
            let patch = kube::api::Patch::Merge(json!({"spec": {"configMap": {"key": key}}}));
            let params = kube::api::PatchParams::default();
            let changed = stage.swarms().patch(name, &params, &patch).await;
            changed.err().map_or_else(String::new, |error| error.to_string())
        };
        let cannot = "spec.configMap.key: cannot change";
        stage.try_swarm("w", jobs(&json!({}))).await.expect("a Swarm without a key");
        assert!(change("w", json!("other.yml")).await.contains(cannot));
        assert_eq!(change("w", json!("config.yml")).await, "");
        assert_eq!(change("w", json!(null)).await, "");
        let given = jobs(&json!({"configMap": {"key": "mine.yml"}}));
        stage.try_swarm("keyed", given).await.expect("a Swarm with a key");
        assert!(change("keyed", json!("config.yml")).await.contains(cannot));
        assert!(change("keyed", json!(null)).await.contains(cannot));
    });
}

#[test]
fn fields_with_a_mistake_are_refused_with_a_reason() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let cases: Vec<(Value, &str)> = vec![
            (jobs(&json!({"workload": {"name": "A_b"}})), "workload.name must be the name"),
            (jobs(&json!({"workload": {"kind": "DaemonSet"}})), "Unsupported value: \"DaemonSet\""),
            (jobs(&json!({"configMap": {"name": "A b"}})), "configMap.name must be the name"),
            (jobs(&json!({"configMap": {"key": "handover.yml"}})), "configMap.key must be a key"),
            (
                jobs(&json!({"configMap": {"key": "acknowledge.key"}})),
                "configMap.key must be a key",
            ),
            (jobs(&json!({"configMap": {"key": "a/b"}})), "configMap.key must be a key"),
            (
                jobs(&json!({"refresh": {"strategy": "Restart"}})),
                "strategy must be DeletePod, HotReload or None",
            ),
            (jobs(&json!({"refresh": {"maxUnavailable": 0}})), "greater than or equal to 1"),
            (jobs(&json!({"refresh": {"timeout": "0s"}})), "timeout must be a duration"),
            (jobs(&json!({"refresh": {"timeout": "soon"}})), "timeout must be a duration"),
            (jobs(&json!({"refresh": {"port": 0}})), "greater than or equal to 1"),
            (jobs(&json!({"refresh": {"port": 65_536}})), "less than or equal to 65535"),
            (jobs(&json!({"refresh": {"path": "version"}})), "path must be a path"),
            (jobs(&json!({"maxStreamsPerWorker": 0})), "greater than or equal to 1"),
            (jobs(&json!({"maxMoves": 0})), "greater than or equal to 1"),
            (jobs(&json!({"weights": {"query": ""}})), "should be at least 1 chars long"),
            (jobs(&json!({"weights": {}})), "query: Required value"),
            (
                jobs(&json!({"weights": {"query": "x", "prometheus": "http://x"}})),
                "a URL is not accepted",
            ),
            (
                jobs(&json!({"weights": {"query": "x", "interval": "10ms"}})),
                "interval must be a duration",
            ),
            (
                jobs(&json!({"weights": {"query": "x", "rebalanceAbove": "0.9"}})),
                "rebalanceAbove must be a number of at least 1",
            ),
            (jobs(&json!({"weights": {"query": "x", "for": "never"}})), "for must be a duration"),
            (jobs(&json!({"fitnessRef": {}})), "spec.fitnessRef.name: Required value"),
            (jobs(&json!({"fitnessRef": {"name": 5}})), "must be of type string"),
            (jobs(&json!({"fitnessRef": "a".repeat(254)})), "may not be more than 253"),
            (
                json!({"streamsFrom": {"configMapKeyRef": {"name": "A"}}}),
                "name must be the name of a ConfigMap",
            ),
            (
                json!({"streamsFrom": {"configMapKeyRef": {"name": "a", "key": "a b"}}}),
                "key must be a key of a ConfigMap",
            ),
            (jobs(&json!({"policy": "Random"})), "Unsupported value: \"Random\""),
            (jobs(&json!({"handover": "Later"})), "Unsupported value: \"Later\""),
            (jobs(&json!({"mode": "Try"})), "Unsupported value: \"Try\""),
            (jobs(&json!({"streems": ["a"]})), "unknown field"),
        ];
        refused(&stage, cases).await;
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

/// The smallest spec, and one with every field.
#[test]
fn the_shortest_and_the_longest_spec_are_taken() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        stage.swarm("short", json!({"jobs": ["a"]})).await;
        let swarm = stage.swarms().get("short").await.unwrap();
        let spec = serde_json::to_value(&swarm.spec).unwrap();
        let files = json!({"key": "config.yml", "immutable": false, "files": 1});
        assert_eq!(spec["configMap"], files);
        assert_eq!(spec["refresh"]["maxUnavailable"], 1);
        assert_eq!(swarm.spec.refresh.timeout, std::time::Duration::from_mins(2).into());
        assert_eq!(spec["policy"], "Sticky");
        assert_eq!(swarm.config_map(), "short-config");
        let long = json!({
            "streams": [{"id": "a", "weight": 3, "pin": "long-0"}, {"id": "b", "dedicated": true}],
            "configMap": {"name": "other", "key": "other.yml"}, "handover": "Immediate",
            "refresh": {
                "strategy": "None", "maxUnavailable": 3, "timeout": "90s", "path": "/v",
            },
            "maxStreamsPerWorker": 9, "maxMoves": 2,
            "weights": {"query": "x", "interval": "10s", "rebalanceAbove": 2, "for": "1m"},
            "fitnessRef": {"name": "web"},
            "autoscale": {"maxWeightPerWorker": "50M", "min": 0, "max": 9, "cooldown": "1m"},
            "mode": "Observe", "paused": true,
        });
        stage.swarm("long", long).await;
    });
}
