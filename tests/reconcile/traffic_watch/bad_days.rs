//! TrafficWatch while something else is broken: writes that are refused, storage that hangs,
//! replacements that never come, several objects at once.
use std::time::Duration;

use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
            ValidatingWebhookConfiguration,
        },
        core::v1::{Pod, ResourceQuota},
        events::v1::Event,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, CustomResourceExt, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use traffic_operator::api::TrafficWatch;

use crate::{
    bench::{ACCOUNT, Bench, eventually, run},
    prometheus::Sample,
    traffic_watch::judging::{KEY, deployment, three_nodes},
    traffic_watch::policies::{bind_and_ready, leaving},
};

/// What these tests put in the operator's way.
const OBSTACLE: &str = "obstacle";

impl Bench {
    /// Removes what stands in the operator's way.
    pub async fn clean_obstacles(&self) {
        let now = DeleteParams::default();
        let client = || self.client.clone();
        // None of them need be there.
        let _ = Api::<ValidatingAdmissionPolicyBinding>::all(client()).delete(OBSTACLE, &now).await;
        let _ = Api::<ValidatingAdmissionPolicy>::all(client()).delete(OBSTACLE, &now).await;
        let _ = Api::<ValidatingWebhookConfiguration>::all(client()).delete(OBSTACLE, &now).await;
        let quotas = Api::<ResourceQuota>::namespaced(client(), "default");
        let _ = quotas.delete(OBSTACLE, &now).await;
    }

    /// Makes the API server refuse requests of the operator.
    async fn refuse(&self, group: &str, resource: &str, expression: &str) {
        let metadata = json!({"name": OBSTACLE});
        let policy = json!({
            "metadata": metadata,
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [group], "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"], "resources": [resource],
                }]},
                "matchConditions": [
                    {"name": "operator", "expression": format!("request.userInfo.username == '{ACCOUNT}'")},
                    {"name": "which", "expression": expression},
                ],
                "validations": [{"expression": "false", "message": "not today"}],
            },
        });
        let binding = json!({
            "metadata": metadata,
            "spec": {"policyName": OBSTACLE, "validationActions": ["Deny"]},
        });
        let params = PostParams::default();
        let policies = Api::<ValidatingAdmissionPolicy>::all(self.client.clone());
        let policy = serde_json::from_value(policy).expect("policy");
        policies.create(&params, &policy).await.expect("policy");
        let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(self.client.clone());
        let binding = serde_json::from_value(binding).expect("binding");
        bindings.create(&params, &binding).await.expect("binding");
    }

    /// Waits until the API server refuses a node's patch by the operator.
    async fn until_refused(&self, node: &str) {
        let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(self.as_operator().await);
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": {"labels": {KEY: "true"}}}));
        let refused = async || nodes.patch(node, &params, &patch).await.err();
        eventually("the policy to hold", refused).await;
    }
}

async fn patch_spec(bench: &Bench, name: &str, spec: Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    bench.watches("default").patch(name, &PatchParams::default(), &patch).await.expect("patch");
}

/// No replacement can be created: of three pods on the unfit node one leaves, and no other.
#[test]
fn t01_eviction_never_empties_a_deployment_that_gets_no_replacements() {
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
        bench.judgements(5).await;
        assert!(leaving(&bench).await.is_empty(), "the last pod stays");
        // The quota goes, the replacement comes, and the way is free.
        quotas.delete(OBSTACLE, &DeleteParams::default()).await.unwrap();
        // The ReplicaSet's controller waits longer after each refusal: an edit wakes it.
        let wake = Patch::Merge(json!({"metadata": {"annotations": {"wake": "up"}}}));
        let sets = Api::<k8s_openapi::api::apps::v1::ReplicaSet>::namespaced(
            bench.client.clone(),
            "default",
        );
        for set in sets.list(&ListParams::default()).await.unwrap() {
            sets.patch(&set.name_any(), &PatchParams::default(), &wake).await.unwrap();
        }
        bind_and_ready(&bench, "node-1", 2).await;
        eventually("the second eviction", async || leaving(&bench).await.pop()).await;
    });
}

/// Three closed control planes that are calm are no room for what runs on three busy workers.
#[test]
fn t02_closed_nodes_are_no_room_and_t03_a_mark_is_released_when_the_last_open_one_closes() {
    run(async |bench| {
        let taint = json!({"spec": {"taints": [
            {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]}});
        for node in ["cp-1", "cp-2", "cp-3", "worker-1", "worker-2", "worker-3"] {
            bench.node(node).await;
            bench.prometheus.set(node, Sample::percent("2"));
        }
        let params = PatchParams::default();
        for node in ["cp-1", "cp-2", "cp-3"] {
            bench.nodes().patch(node, &params, &Patch::Merge(taint.clone())).await.unwrap();
        }
        for (node, percent) in [("worker-1", "80"), ("worker-2", "90"), ("worker-3", "70")] {
            bench.prometheus.set(node, Sample::percent(percent));
        }
        bench.watch("web", json!({})).await;
        let _operator = bench.operator();
        bench.until_label("worker-2", KEY, Some("true")).await;
        let message = bench.condition("web", "PlacementLimited", "True", "LimitReached").await;
        assert!(message.contains("at most 1 of 3 that can take pods"), "{message}");
        bench.judgements(3).await;
        for node in ["worker-1", "worker-3"] {
            assert_eq!(bench.label(node, KEY).await.as_deref(), Some("false"), "{node}");
        }
        // One of the others is lost, the last one cordoned: the mark goes.
        bench.nodes().delete("worker-1", &DeleteParams::default()).await.unwrap();
        let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
        bench.nodes().patch("worker-3", &params, &cordon).await.unwrap();
        bench.until_label("worker-2", KEY, Some("false")).await;
        bench.until("web", &[("/nodes/worker-2/state", json!("Suppressed"))]).await;
        // There is room again.
        bench.node("worker-4").await;
        bench.prometheus.set("worker-4", Sample::percent("2"));
        bench.until_label("worker-2", KEY, Some("true")).await;
    });
}

#[test]
fn t03_max_unfit_zero_releases_every_mark_in_an_incident() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.prometheus.set("node-2", Sample::percent("99"));
        bench.watch("web", json!({"taint": "NoSchedule"})).await;
        let _operator = bench.operator();
        bench.until_label("node-2", KEY, Some("true")).await;
        patch_spec(&bench, "web", json!({"maxUnfit": 0})).await;
        bench.until_label("node-2", KEY, Some("false")).await;
        let node = bench.nodes().get("node-2").await.unwrap();
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        assert!(taints.iter().all(|taint| taint.key != KEY), "{taints:?}");
    });
}

/// A policy of the cluster refuses the Deployment, and is mended: no edit of the TrafficWatch is
/// needed.
#[test]
fn t09_a_deployment_that_was_refused_is_applied_when_somebody_changes_it() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.watch("web", json!({"deployment": deployment()})).await;
        let _operator = bench.operator();
        eventually("the Deployment", async || bench.deployments().get("web").await.ok()).await;
        bench.refuse("apps", "deployments", "object.metadata.name == 'web'").await;
        let mut other = deployment();
        other["template"]["spec"]["containers"][0]["image"] = "busybox:1.36".into();
        // The policy holds a moment after it was created.
        let refused = async || {
            patch_spec(&bench, "web", json!({"deployment": other})).await;
            bench.judgements(2).await;
            let status = bench.status("web").await;
            let conditions = status["conditions"].as_array()?.clone();
            let ready = conditions.into_iter().find(|c| c["type"] == "Ready")?;
            if ready["reason"] == "InvalidSpec" {
                return Some(ready["message"].as_str()?.to_owned());
            }
            patch_spec(&bench, "web", json!({"deployment": deployment()})).await;
            bench.judgements(2).await;
            None
        };
        let message = eventually("the refusal", refused).await;
        assert!(message.contains("not today"), "{message}");
        bench.clean_obstacles().await;
        let mut replicas = 7;
        let image = async || {
            // Until the policy is forgotten everywhere: another number each time, because what is
            // there already is no change.
            replicas += 1;
            let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            bench.deployments().patch("web", &PatchParams::default(), &scale).await.ok()?;
            bench.judgements(2).await;
            let spec = bench.deployments().get("web").await.ok()?.spec?;
            let image = spec.template.spec?.containers[0].image.clone()?;
            (image == "busybox:1.36").then_some(())
        };
        eventually("the new image", image).await;
        bench.condition("web", "Ready", "True", "Judged").await;
    });
}

#[test]
fn t10_a_node_that_cannot_be_written_holds_nothing_else_back() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.refuse("", "nodes", "object.metadata.name == 'node-2'").await;
        bench.until_refused("node-2").await;
        bench.prometheus.set("node-1", Sample::percent("99"));
        bench.watch("web", json!({"deployment": deployment()})).await;
        let operator = bench.operator();
        bench.until_label("node-1", KEY, Some("true")).await;
        bench.until_label("node-3", KEY, Some("false")).await;
        eventually("the Deployment", async || bench.deployments().get("web").await.ok()).await;
        // Status and condition say it, judging goes on at its pace, and no event repeats.
        bench.until("web", &[("/ready", json!(true)), ("/summary/unfit", json!(1))]).await;
        let message = bench.condition("web", "Ready", "Unknown", "ApiError").await;
        assert!(message.contains("patch node") && message.contains("not today"), "{message}");
        assert_eq!(bench.label("node-2", KEY).await, None);
        let errors = ["controller=\"trafficwatch\""];
        assert!(operator.metric("traffic_operator_reconcile_errors_total", &errors).await >= 1.0);
        let since = k8s_openapi::jiff::Timestamp::now();
        bench.judgements(8).await;
        let tried = bench.writes_since(since);
        let tried = tried.iter().filter(|write| write.name == "node-2").count();
        assert!(tried <= 1, "{tried} tries in 8 judgements: the first pause is ten seconds");
        bench.prometheus.set("node-1", Sample::percent("1"));
        bench.until_label("node-1", KEY, Some("false")).await;
        let told = bench.events("web").await;
        let told = told.iter().filter(|(reason, _)| reason == "ApiError").count();
        assert!(told <= 1, "{told} events of one trouble");
        bench.clean_obstacles().await;
        bench.until_label("node-2", KEY, Some("false")).await;
        bench.condition("web", "Ready", "True", "Judged").await;
    });
}

/// A server that takes connections and never answers.
async fn silent_server() -> (std::net::SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("address");
    let task = tokio::spawn(async move {
        let mut open = vec![];
        while let Ok((connection, _)) = listener.accept().await {
            open.push(connection);
        }
    });
    (address, task)
}

/// Each event takes five seconds to be refused: decisions do not wait for them.
#[test]
fn t12_storage_of_events_that_hangs_delays_no_judgement() {
    run(async |bench| {
        three_nodes(&bench).await;
        let (address, server) = silent_server().await;
        let hook = json!({
            "metadata": {"name": OBSTACLE},
            "webhooks": [{
                "name": "events.example.com", "sideEffects": "None", "timeoutSeconds": 5,
                "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
                "clientConfig": {"url": format!("https://{address}/")},
                "rules": [{
                    "apiGroups": ["events.k8s.io"], "apiVersions": ["*"], "resources": ["events"],
                    "operations": ["CREATE", "UPDATE"],
                }],
                "matchConditions": [
                    {"name": "operator", "expression": format!("request.userInfo.username == '{ACCOUNT}'")},
                ],
            }],
        });
        let hooks = Api::<ValidatingWebhookConfiguration>::all(bench.client.clone());
        let hook = serde_json::from_value(hook).unwrap();
        hooks.create(&PostParams::default(), &hook).await.expect("webhook");
        let events = Api::<Event>::namespaced(bench.as_operator().await, "default");
        let event = json!({
            "metadata": {"name": OBSTACLE}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal",
            "reason": "Test", "action": "Test", "reportingController": "test", "reportingInstance": "test",
            "regarding": {"kind": "Node", "name": "node-1", "namespace": "default"},
        });
        let event: Event = serde_json::from_value(event).expect("event");
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let hangs = async || events.create(&dry_run, &event).await.err();
        let error = eventually("events to hang", hangs).await.to_string();
        assert!(error.contains("events.example.com"), "{error}");
        bench.watch("web", json!({})).await;
        let operator = bench.operator();
        bench.until_label("node-1", KEY, Some("false")).await;
        for percent in ["99", "1", "99", "1"] {
            let began = std::time::Instant::now();
            bench.prometheus.set("node-2", Sample::percent(percent));
            let unfit = if percent == "99" { "true" } else { "false" };
            bench.until_label("node-2", KEY, Some(unfit)).await;
            let status = if percent == "99" { "Unfit" } else { "Fit" };
            bench.until("web", &[("/nodes/node-2/state", json!(status))]).await;
            // Two judgements a second apart, and not two events of five seconds each.
            assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        }
        let dropped = async || {
            let dropped = operator.metric("traffic_operator_events_dropped_total", &[]).await;
            (dropped >= 1.0).then_some(())
        };
        eventually("what is lost to be counted", dropped).await;
        server.abort();
    });
}

/// A Deployment that bears our label and belongs to somebody else: its pods are not ours to evict.
#[test]
fn t14_pods_of_a_deployment_that_is_not_ours_are_not_evicted() {
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
        bench.judgements(5).await;
        assert!(leaving(&bench).await.is_empty());
    });
}

#[test]
fn t14_replicas_that_the_author_hands_over_stay_as_they_are() {
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
        // The autoscaler.
        let scale = Patch::Merge(json!({"spec": {"replicas": 5}}));
        bench.deployments().patch_scale("web", &PatchParams::default(), &scale).await.unwrap();
        bench.judgements(4).await;
        assert_eq!(replicas().await, Some(5));
    });
}

/// Its schema changed, or a version of the operator that wrote more: it must not stay for ever.
#[test]
fn t14_an_object_that_cannot_be_read_can_be_deleted() {
    run(async |bench| {
        three_nodes(&bench).await;
        let crds = Api::<CustomResourceDefinition>::all(bench.client.clone());
        let name = TrafficWatch::crd().name_any();
        bench.watch("web", json!({"label": "odd"})).await;
        let operator = bench.operator();
        let key = "odd.traffic.example.com/unfit";
        bench.until_label("node-1", key, Some("false")).await;
        let replace = async |spec: Value| {
            let mut now = crds.get(&name).await.expect("definition");
            now.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema =
                serde_json::from_value(spec).unwrap();
            crds.replace(&name, &PostParams::default(), &now).await.expect("replace");
        };
        let strict = crds.get(&name).await.unwrap().spec.versions[0].schema.clone();
        let strict = serde_json::to_value(strict.unwrap().open_api_v3_schema).unwrap();
        replace(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})).await;
        let spoil = Patch::Merge(json!({"spec": {"interval": ["never"], "maxUnfit": {"a": 1}}}));
        let spoilt = async || {
            // Until the API server serves the new schema.
            let request = http::Request::patch(
                "/apis/traffic.example.com/v1alpha1/namespaces/default/trafficwatches/web",
            );
            let Patch::Merge(body) = &spoil else { return None };
            let request = request.header("Content-Type", "application/merge-patch+json");
            let request = request.body(body.to_string().into_bytes()).unwrap();
            bench.client.request::<Value>(request).await.ok()
        };
        eventually("the object to be spoilt", spoilt).await;
        let logged = async || operator.log().contains("InvalidSpec").then_some(());
        eventually("the operator to see it", logged).await;
        let request = http::Request::delete(
            "/apis/traffic.example.com/v1alpha1/namespaces/default/trafficwatches/web",
        );
        bench.client.request::<Value>(request.body(vec![]).unwrap()).await.expect("delete");
        bench.until_label("node-1", key, None).await;
        let gone = async || {
            let path = "/apis/traffic.example.com/v1alpha1/namespaces/default/trafficwatches/web";
            let request = http::Request::get(path).body(vec![]).unwrap();
            bench.client.request::<Value>(request).await.is_err().then_some(())
        };
        eventually("the object to go", gone).await;
        replace(strict).await;
    });
}

/// Ten tenants, each below its own limit, close no more than half of the cluster together.
#[test]
fn s01_all_objects_together_mark_no_more_than_the_operator_allows() {
    run(async |bench| {
        for i in 1..=6 {
            let node = format!("node-{i}");
            bench.node(&node).await;
            bench.prometheus.set(&node, Sample::percent("10"));
            let alone =
                Patch::Merge(json!({"metadata": {"labels": {"pool": format!("p{}", i % 3)}}}));
            bench.nodes().patch(&node, &PatchParams::default(), &alone).await.unwrap();
            bench.prometheus.set(&node, Sample::percent("99"));
        }
        for pool in 0..3 {
            let selector = json!({"matchLabels": {"pool": format!("p{pool}")}});
            let spec = json!({"nodeSelector": selector, "maxUnfit": "100%", "minFit": 0});
            bench.watch(&format!("web-{pool}"), spec).await;
        }
        let operator = bench.operator();
        let marked = async || {
            let nodes = bench.nodes().list(&ListParams::default()).await.expect("nodes");
            let unfit = |labels: &std::collections::BTreeMap<String, String>| {
                labels.iter().any(|(k, v)| k.ends_with("traffic.example.com/unfit") && v == "true")
            };
            nodes.iter().filter(|node| unfit(node.labels())).count()
        };
        eventually("three of six", async || (marked().await == 3).then_some(())).await;
        bench.judgements(6).await;
        assert_eq!(marked().await, 3);
        let mut reasons = vec![];
        for pool in 0..3 {
            let status = bench.status(&format!("web-{pool}")).await;
            let conditions = status["conditions"].as_array().unwrap().clone();
            let limited = conditions.into_iter().find(|c| c["type"] == "PlacementLimited").unwrap();
            reasons.push(limited["reason"].as_str().unwrap().to_owned());
        }
        assert!(reasons.contains(&"OperatorLimitReached".to_owned()), "{reasons:?}");
        for (metric, expected) in [
            ("traffic_operator_unfit_nodes", 3.0),
            ("traffic_operator_unfit_nodes_limit", 3.0),
            ("traffic_operator_trafficwatch_above_ceiling", 3.0),
        ] {
            let value = operator.metric(metric, &[]).await;
            assert!((value - expected).abs() < f64::EPSILON, "{metric} = {value}");
        }
        // A place that is free is taken by another.
        let free = async || {
            let nodes = bench.nodes().list(&ListParams::default()).await.ok()?;
            let marked = nodes.iter().find(|node| {
                node.labels()
                    .iter()
                    .any(|(k, v)| k.ends_with("traffic.example.com/unfit") && v == "true")
            })?;
            Some(marked.name_any())
        };
        let calm = free().await.unwrap();
        bench.prometheus.set(&calm, Sample::percent("1"));
        let moved = async || {
            let nodes = bench.nodes().get(&calm).await.ok()?;
            let still = nodes
                .labels()
                .iter()
                .any(|(k, v)| k.ends_with("traffic.example.com/unfit") && v == "true");
            (!still && marked().await == 3).then_some(())
        };
        eventually("another node to take the place", moved).await;
    });
}
