//! Our objects are removed with their owner; objects of others are never touched.
use k8s_openapi::{api::core::v1::Namespace, jiff::Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::{
    bench::{eventually, run},
    prometheus::Sample,
    traffic_watch::judging::{KEY, deployment, patch_spec, with_three_nodes},
};

/// Original 1.4 #11: labels stayed after the object was deleted.
#[test]
fn labels_go_with_the_object_and_those_of_a_former_key_before_it() {
    with_three_nodes(async |bench| {
        let foreign =
            Patch::Merge(json!({"metadata": {"labels": {"other.example.com/unfit": "true"}}}));
        bench.nodes().patch("node-1", &PatchParams::default(), &foreign).await.unwrap();
        bench.watch("web", json!({})).await;
        // As the label was when it could still change.
        let former = "blue.traffic.example.com/unfit";
        let labels = Patch::Merge(json!({"metadata": {"labels": {former: "true"}}}));
        bench.nodes().patch("node-1", &PatchParams::default(), &labels).await.unwrap();
        let status = Patch::Merge(json!({"status": {"label": former}}));
        let watches = bench.watches("default");
        watches.patch_status("web", &PatchParams::default(), &status).await.unwrap();
        let operator = bench.operator();
        bench.until_label("node-1", KEY, Some("false")).await;
        bench.until_label("node-1", former, None).await;
        bench.until("web", &[("/ready", json!(true)), ("/label", json!(KEY))]).await;
        watches.delete("web", &DeleteParams::default()).await.unwrap();
        for node in ["node-1", "node-2", "node-3"] {
            bench.until_label(node, KEY, None).await;
        }
        let gone =
            async || bench.watches("default").get_opt("web").await.unwrap().is_none().then_some(());
        eventually("the object to go", gone).await;
        assert_eq!(bench.label("node-1", "other.example.com/unfit").await.as_deref(), Some("true"));
        let series = operator.metric("traffic_operator_trafficwatch_nodes", &[]).await;
        assert!(series == 0.0, "series of a deleted object");
        let retried = operator.metric("traffic_operator_reconcile_errors_total", &[]).await;
        assert!(retried == 0.0, "a deleted object was retried");
    });
}

#[test]
fn the_label_and_the_resource_cannot_change() {
    run(async |bench| {
        let (watches, params) = (bench.watches("default"), PatchParams::default());
        let change = async |name: &str, spec: Value| {
            let patch = Patch::Merge(json!({"spec": spec}));
            let changed = watches.patch(name, &params, &patch).await;
            changed.err().map_or_else(String::new, |error| error.to_string())
        };
        let cannot = "spec.label: cannot change";
        bench.watch("web", json!({})).await;
        assert!(change("web", json!({"label": "blue"})).await.contains(cannot));
        // The name, explicit or not, is no change.
        assert_eq!(change("web", json!({"label": "web"})).await, "");
        assert_eq!(change("web", json!({"label": null})).await, "");
        bench.watch("named", json!({"label": "blue"})).await;
        for label in [json!("green"), json!(null)] {
            assert!(change("named", json!({"label": label})).await.contains(cannot));
        }
        let cannot = "spec.reservation.resource: cannot change";
        let offers = |name: &str| json!({"reservation": {"resource": format!("traffic.example.com/{name}")}});
        assert_eq!(change("web", offers("first")).await, "");
        assert!(change("web", offers("second")).await.contains(cannot));
        assert_eq!(change("web", json!({"reservation": {"step": "7%"}})).await, "");
        assert_eq!(change("web", json!({"reservation": null})).await, "");
        assert_eq!(change("web", json!({"interval": "2s"})).await, "");
    });
}

/// Original 1.4 #15, design rule 9.
#[test]
fn of_two_claims_to_one_label_the_younger_writes_nothing_until_the_older_goes() {
    with_three_nodes(async |bench| {
        bench.prometheus.set("node-2", Sample::percent("90"));
        bench.watch("web", json!({})).await;
        let _operator = bench.operator();
        bench.until_label("node-2", KEY, Some("true")).await;
        // Creation times have a resolution of seconds; equal ones go by name, and "zzz" comes after
        // "web".
        bench
            .watch(
                "zzz",
                json!({"label": "web", "maxBandwidthPercent": "95", "deployment": deployment()}),
            )
            .await;
        let message = bench.condition("zzz", "Ready", "False", "Conflict").await;
        assert!(message.contains("default/web"), "{message}");
        let since = Timestamp::now();
        bench.judgments(3).await;
        let writes = bench.writes_since(since).await;
        assert!(writes.iter().all(|w| w.name != "zzz" || w.subresource == "status"), "{writes:?}");
        assert_eq!(bench.label("node-2", KEY).await.as_deref(), Some("true"));
        assert!(bench.deployments().get_opt("zzz").await.unwrap().is_none());
        // The other one takes over; no node is without a label in between.
        let since = Timestamp::now();
        bench.watches("default").delete("web", &DeleteParams::default()).await.unwrap();
        bench.condition("zzz", "Ready", "True", "Judged").await;
        let writes = bench.writes_since(since).await;
        assert!(writes.iter().all(|write| write.resource != "nodes"), "{writes:?}");
        // 90 is below its threshold, but above its recovery: the label is taken over unchanged.
        assert_eq!(bench.label("node-2", KEY).await.as_deref(), Some("true"));
        bench.prometheus.set("node-2", Sample::percent("80"));
        bench.until_label("node-2", KEY, Some("false")).await;
    });
}

/// A foreign Deployment of that name stopped judging.
#[test]
fn a_deployment_of_anothers_does_not_stop_the_judgment() {
    with_three_nodes(async |bench| {
        bench.prometheus.set("node-2", Sample::percent("90"));
        let foreign = json!({"metadata": {"name": "web"}, "spec": deployment()});
        let foreign = serde_json::from_value(foreign).expect("Deployment");
        bench.deployments().create(&PostParams::default(), &foreign).await.expect("create");
        let at_once = json!({"fit": 1, "unfit": 1});
        let spec = json!({"consecutive": at_once, "deployment": deployment()});
        bench.watch("web", spec).await;
        let operator = bench.operator();
        bench.until_label("node-2", KEY, Some("true")).await;
        let message = bench.condition("web", "Ready", "False", "Conflict").await;
        assert!(message.contains("Deployment default/web"), "{message}");
        // The nodes are still judged, and the name is claimed as soon as it is free.
        bench.prometheus.set("node-2", Sample::percent("1"));
        bench.until_label("node-2", KEY, Some("false")).await;
        bench.condition("web", "Ready", "False", "Conflict").await;
        let theirs = bench.deployments().get("web").await.expect("the Deployment");
        assert!(theirs.metadata.owner_references.is_none());
        bench.deployments().delete("web", &DeleteParams::default()).await.expect("delete");
        bench.condition("web", "Ready", "True", "Judged").await;
        assert_eq!(operator.terminate().await, Some(0));
    });
}

#[test]
fn edits_of_the_deployment_are_repaired_and_what_the_author_left_open_is_left_alone() {
    with_three_nodes(async |bench| {
        let mut spec = deployment();
        spec.as_object_mut().unwrap().remove("replicas");
        bench.watch("web", json!({"deployment": spec})).await;
        let _operator = bench.operator();
        let child = async || bench.deployments().get("web").await.ok();
        eventually("the Deployment", child).await;
        let params = PatchParams::default();
        // Another client scales, for example an autoscaler. The author has not set the field.
        let scale = Patch::Merge(json!({"spec": {"replicas": 4}}));
        bench.deployments().patch("web", &params, &scale).await.unwrap();
        let image = Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [
            {"name": "c", "image": "busybox:other"}]}}}}));
        bench.deployments().patch("web", &params, &image).await.unwrap();
        let repaired = async || {
            let spec = bench.deployments().get("web").await.ok()?.spec?;
            let image = spec.template.spec?.containers[0].image.clone()?;
            (image == "busybox:1.35").then_some(spec.replicas)
        };
        assert_eq!(eventually("the image to be repaired", repaired).await, Some(4));
        bench.deployments().delete("web", &DeleteParams::default()).await.unwrap();
        eventually("the Deployment again", async || {
            bench
                .deployments()
                .get("web")
                .await
                .ok()
                .filter(|d| d.metadata.deletion_timestamp.is_none())
        })
        .await;
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

#[test]
fn a_namespace_can_be_deleted_while_the_operator_runs() {
    with_three_nodes(async |bench| {
        let namespaces = kube::Api::<Namespace>::all(bench.client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": "tenant"}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        bench.watch_in("tenant", "web", json!({})).await.unwrap();
        let _operator = bench.operator();
        bench.until_label("node-1", KEY, Some("false")).await;
        namespaces.delete("tenant", &DeleteParams::default()).await.unwrap();
        let gone = async || namespaces.get_opt("tenant").await.unwrap().is_none().then_some(());
        eventually("the namespace to go", gone).await;
        assert_eq!(bench.label("node-1", KEY).await, None);
    });
}
