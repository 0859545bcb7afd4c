//! Deployments that get no pods, belong to another owner, or are scaled by another client.
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Pod, ResourceQuota},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    bench::{eventually, run},
    prometheus::Sample,
    traffic_watch::{
        evicting::{bind_and_ready, leaving},
        judging::{KEY, deployment, patch_spec, three_nodes},
        refusals::OBSTACLE,
    },
};

/// No replacement can be created: of three pods on the unfit node only one is evicted.
#[test]
fn eviction_never_empties_a_deployment_that_gets_no_replacements() {
    run(async |bench| {
        three_nodes(&bench).await;
        let spec = json!({"deployment": deployment(), "eviction": {"after": "2s"}});
        bench.watch("web", spec).await;
        let _operator = bench.operator();
        bench.until("web", &[("/ready", json!(true))]).await;
        bind_and_ready(&bench, "node-2", 2).await;
        let quota = json!({"metadata": {"name": OBSTACLE}, "spec": {"hard": {"pods": "0"}}});
        let quotas = Api::<ResourceQuota>::namespaced(bench.client.clone(), "default");
        let quota = serde_json::from_value(quota).unwrap();
        quotas.create(&PostParams::default(), &quota).await.expect("quota");
        bench.prometheus.set("node-2", Sample::percent("99"));
        let first = eventually("an eviction", async || leaving(&bench).await.pop()).await;
        let pods = Api::<Pod>::namespaced(bench.client.clone(), "default");
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        pods.delete(&first, &now).await.unwrap();
        let available = async || {
            let status = bench.deployments().get("web").await.ok()?.status?;
            (status.available_replicas == Some(1)).then_some(())
        };
        eventually("one replica to be missing", available).await;
        bench.judgments(5).await;
        assert!(leaving(&bench).await.is_empty(), "the last pod stays");
        // Without the quota the replacement is created, and the next eviction is possible.
        quotas.delete(OBSTACLE, &DeleteParams::default()).await.unwrap();
        // The ReplicaSet's controller waits longer after each refusal: an edit triggers it.
        let wake = Patch::Merge(json!({"metadata": {"annotations": {"wake": "up"}}}));
        let sets = Api::<ReplicaSet>::namespaced(bench.client.clone(), "default");
        for set in sets.list(&ListParams::default()).await.unwrap() {
            sets.patch(&set.name_any(), &PatchParams::default(), &wake).await.unwrap();
        }
        bind_and_ready(&bench, "node-1", 2).await;
        eventually("the second eviction", async || leaving(&bench).await.pop()).await;
    });
}

/// A Deployment that carries our label and belongs to another owner: its pods must not be evicted.
#[test]
fn pods_of_a_deployment_that_is_not_ours_are_not_evicted() {
    run(async |bench| {
        three_nodes(&bench).await;
        let foreign = json!({
            "metadata": {"name": "web", "labels": {"app.kubernetes.io/managed-by": "traffic-operator"}},
            "spec": deployment(),
        });
        let foreign = serde_json::from_value(foreign).unwrap();
        bench.deployments().create(&PostParams::default(), &foreign).await.unwrap();
        bind_and_ready(&bench, "node-2", 2).await;
        bench.prometheus.set("node-2", Sample::percent("99"));
        let spec = json!({"deployment": deployment(), "eviction": {"after": "1s"}});
        bench.watch("web", spec).await;
        let _operator = bench.operator();
        bench.condition("web", "Ready", "False", "Conflict").await;
        bench.until_label("node-2", KEY, Some("true")).await;
        bench.judgments(5).await;
        assert!(leaving(&bench).await.is_empty());
    });
}

#[test]
fn replicas_that_the_author_hands_over_stay_as_they_are() {
    run(async |bench| {
        three_nodes(&bench).await;
        let mut spec = deployment();
        spec["replicas"] = 3.into();
        bench.watch("web", json!({"deployment": spec})).await;
        let _operator = bench.operator();
        let replicas = async || bench.deployments().get("web").await.ok()?.spec?.replicas;
        eventually("three replicas", async || replicas().await.filter(|n| *n == 3)).await;
        let generation = bench.deployments().get("web").await.unwrap().metadata.generation;
        patch_spec(&bench, "web", json!({"deployment": {"replicas": null}})).await;
        let handed_over = async || {
            let child = bench.deployments().get("web").await.ok()?;
            let ours = child.metadata.managed_fields?.into_iter().find(|entry| {
                entry.manager.as_deref() == Some("traffic-operator")
                    && entry.operation.as_deref() == Some("Apply")
            })?;
            ours.fields_v1?.0["f:spec"]["f:replicas"].is_null().then_some(())
        };
        eventually("the operator to let go of them", handed_over).await;
        let child = bench.deployments().get("web").await.unwrap();
        assert_eq!(child.spec.unwrap().replicas, Some(3));
        assert_eq!(child.metadata.generation, generation, "nothing was rolled or scaled");
        // Acts as the autoscaler.
        let scale = Patch::Merge(json!({"spec": {"replicas": 5}}));
        bench.deployments().patch_scale("web", &PatchParams::default(), &scale).await.unwrap();
        bench.judgments(4).await;
        assert_eq!(replicas().await, Some(5));
    });
}
