//! Changes to workers that the operator's account may make, even if the operator is compromised.
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::Stage;
use crate::bench::{eventually, run};

#[test]
fn the_operators_account_can_change_nothing_of_workers_but_what_is_its_own() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let volumes = json!([
            {"name": "config", "configMap": {"name": "m", "optional": true}},
            {"name": "tmp", "emptyDir": {}}
        ]);
        let change = json!({"spec": {"template": {"spec": {"volumes": volumes}}}});
        stage.stateful_set("rights", 1, change).await;
        let made = async || stage.pods().get_opt("rights-0").await.ok().flatten();
        eventually("the pod", made).await;

        let client = stage.bench.as_operator().await;
        let pods = Api::<Pod>::namespaced(client.clone(), "default");
        let sets = Api::<StatefulSet>::namespaced(client, "default");
        let params = PatchParams::default();
        let pod = async |patch: Value| {
            let patched = pods.patch("rights-0", &params, &Patch::Strategic(patch)).await;
            patched.map(drop).map_err(|error| error.to_string())
        };
        let set = async |patch: Value| {
            let patched = sets.patch("rights", &params, &Patch::Strategic(patch)).await;
            patched.map(drop).map_err(|error| error.to_string())
        };
        // New policies take a moment to be compiled.
        let key = "traffic.example.com/swarm-epoch";
        let refused =
            async || pod(json!({"metadata": {"labels": {"x": "y"}}})).await.err().map(drop);
        eventually("the policy of pods", refused).await;
        pod(json!({"metadata": {"annotations": {key: "7"}}})).await.expect("its annotation");
        for patch in [
            json!({"metadata": {"annotations": {"other": "7"}}}),
            json!({"metadata": {"labels": {"app": "other"}}}),
            json!({"metadata": {"finalizers": ["example.com/x"]}}),
            json!({"spec": {"containers": [{"name": "worker", "image": "other"}]}}),
        ] {
            let error = pod(patch.clone()).await.expect_err(&patch.to_string());
            assert!(error.contains("traffic-operator may change"), "{patch}: {error}");
        }
        let template = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
        let renamed = json!({"volumes": [{"name": "config", "configMap": {"name": "m-7"}}]});
        set(template(renamed)).await.expect("its volume");
        for patch in [
            template(json!({"containers": [{"name": "worker", "image": "other"}]})),
            template(json!({"volumes": [{"name": "more", "emptyDir": {}}]})),
            template(json!({"volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}]})),
            template(json!({"hostNetwork": true})),
            template(json!({"serviceAccountName": "admin"})),
            json!({"spec": {"replicas": 9}}),
            json!({"metadata": {"labels": {"x": "y"}}}),
        ] {
            let error = set(patch.clone()).await.expect_err(&patch.to_string());
            assert!(error.contains("traffic-operator may change"), "{patch}: {error}");
        }
    });
}
