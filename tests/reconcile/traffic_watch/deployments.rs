//! Deployments that belong to another owner, or are scaled by another client.
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::{
    bench::eventually,
    prometheus::Sample,
    traffic_watch::{
        evicting::{bind_and_ready, leaving},
        judging::{KEY, deployment, patch_spec, with_three_nodes},
    },
};

/// A Deployment that carries our label and belongs to another owner: its pods must not be evicted.
#[test]
fn pods_of_a_deployment_that_is_not_ours_are_not_evicted() {
    with_three_nodes(async |bench| {
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
    with_three_nodes(async |bench| {
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
