//! Requests of the operator that the API server refuses or leaves waiting.
use std::time::Duration;

use k8s_openapi::api::{
    admissionregistration::v1::{
        ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
    },
    apps::v1::Deployment,
    core::v1::ResourceQuota,
    events::v1::Event,
    flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration},
};
use kube::{
    Api,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
    },
};
use serde_json::{Value, json};

use crate::{
    bench::{ACCOUNT, Bench, apply_object, eventually, run},
    prometheus::Sample,
    traffic_watch::judging::{KEY, deployment, patch_spec, with_three_nodes},
};

/// The name of the obstacles that these tests set up for the operator.
const OBSTACLE: &str = "obstacle";

impl Bench {
    pub async fn clean_obstacles(&self) {
        let now = DeleteParams::default();
        let client = || self.client.clone();
        // Each of them may be missing.
        let _ = Api::<ValidatingAdmissionPolicyBinding>::all(client()).delete(OBSTACLE, &now).await;
        let _ = Api::<ValidatingAdmissionPolicy>::all(client()).delete(OBSTACLE, &now).await;
        let _ = Api::<ValidatingWebhookConfiguration>::all(client()).delete(OBSTACLE, &now).await;
        let _ = Api::<FlowSchema>::all(client()).delete(OBSTACLE, &now).await;
        let _ = Api::<PriorityLevelConfiguration>::all(client()).delete(OBSTACLE, &now).await;
        let quotas = Api::<ResourceQuota>::namespaced(client(), "default");
        let _ = quotas.delete(OBSTACLE, &now).await;
        // The types are of an older Kubernetes.
        let class = GroupVersionKind::gvk("resource.k8s.io", "v1", "DeviceClass");
        let class = ApiResource::from_gvk_with_plural(&class, "deviceclasses");
        let _ = Api::<DynamicObject>::all_with(client(), &class).delete(OBSTACLE, &now).await;
    }

    /// Creates a class of devices that stands for an extended resource.
    pub async fn device_class(&self, resource: &str) {
        let class = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
            "metadata": {"name": OBSTACLE}, "spec": {"extendedResourceName": resource},
        });
        apply_object(&self.client, class).await;
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

/// An admission policy refuses the Deployment and is then corrected: the TrafficWatch needs no
/// edit.
#[test]
fn a_deployment_that_was_refused_is_applied_when_someone_changes_it() {
    with_three_nodes(async |bench| {
        bench.watch("web", json!({"deployment": deployment()})).await;
        let _operator = bench.operator();
        eventually("the Deployment", async || bench.deployments().get("web").await.ok()).await;
        // A policy takes effect, and loses it, a moment after the request.
        let deployments = Api::<Deployment>::namespaced(bench.as_operator().await, "default");
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": {"labels": {"tried": "true"}}}));
        let tried = async || deployments.patch("web", &params, &patch).await;
        bench.refuse("apps", "deployments", "object.metadata.name == 'web'").await;
        eventually("the policy to hold", async || tried().await.err()).await;
        let mut other = deployment();
        other["template"]["spec"]["containers"][0]["image"] = "busybox:1.36".into();
        patch_spec(&bench, "web", json!({"deployment": other})).await;
        let message = bench.condition("web", "Ready", "False", "InvalidSpec").await;
        assert!(message.contains("not today"), "{message}");
        bench.clean_obstacles().await;
        eventually("the policy to be gone", async || tried().await.ok()).await;
        let scale = Patch::Merge(json!({"spec": {"replicas": 8}}));
        bench.deployments().patch("web", &PatchParams::default(), &scale).await.expect("patch");
        // A minute at most, and without a change the next try comes after three.
        let mut image = None;
        for _ in 0..60 {
            bench.judgments(1).await;
            let spec = bench.deployments().get("web").await.expect("Deployment").spec;
            let spec = spec.expect("spec").template.spec.expect("spec");
            image = spec.containers[0].image.clone();
            if image.as_deref() == Some("busybox:1.36") {
                break;
            }
        }
        assert_eq!(image.as_deref(), Some("busybox:1.36"));
        bench.condition("web", "Ready", "True", "Judged").await;
    });
}

#[test]
fn a_node_that_cannot_be_written_holds_nothing_else_back() {
    with_three_nodes(async |bench| {
        bench.refuse("", "nodes", "object.metadata.name == 'node-2'").await;
        bench.until_refused("node-2").await;
        bench.prometheus.set("node-1", Sample::percent("99"));
        bench.watch("web", json!({"deployment": deployment()})).await;
        let operator = bench.operator();
        bench.until_label("node-1", KEY, Some("true")).await;
        bench.until_label("node-3", KEY, Some("false")).await;
        eventually("the Deployment", async || bench.deployments().get("web").await.ok()).await;
        // Status and condition report it, judging continues at its pace, and no event repeats.
        bench.until("web", &[("/ready", json!(true)), ("/summary/unfit", json!(1))]).await;
        let message = bench.condition("web", "Ready", "Unknown", "ApiError").await;
        assert!(message.contains("patch node") && message.contains("not today"), "{message}");
        assert_eq!(bench.label("node-2", KEY).await, None);
        let errors = ["controller=\"trafficwatch\""];
        assert!(operator.metric("traffic_operator_reconcile_errors_total", &errors).await >= 1.0);
        let since = k8s_openapi::jiff::Timestamp::now();
        bench.judgments(8).await;
        let tried = bench.writes_since(since).await;
        let tried = tried.iter().filter(|write| write.name == "node-2").count();
        assert!(tried <= 1, "{tried} tries in 8 judgments: the first pause is ten seconds");
        bench.prometheus.set("node-1", Sample::percent("1"));
        bench.until_label("node-1", KEY, Some("false")).await;
        let reported = bench.events("web").await;
        let reported = reported.iter().filter(|(reason, _)| reason == "ApiError").count();
        assert!(reported <= 1, "{reported} events about one problem");
        bench.clean_obstacles().await;
        bench.until_label("node-2", KEY, Some("false")).await;
        bench.condition("web", "Ready", "True", "Judged").await;
    });
}

/// Starts a server that accepts connections and never answers.
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

/// Each event takes five seconds to be refused: decisions do not wait for it.
#[test]
fn storage_of_events_that_hangs_delays_no_judgment() {
    with_three_nodes(async |bench| {
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
            // Two judgments, one second apart, and not two events of five seconds each.
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

/// As `metav1.Condition`: other tools wait for these words.
#[test]
fn a_condition_has_one_of_three_statuses_and_a_reason() {
    run(async |bench| {
        bench.watch("web", json!({})).await;
        let good = json!({
            "type": "Other", "status": "Unknown", "reason": "Why", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let api = bench.watches("default");
        let patched = async |condition: &Value| {
            let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
            api.patch_status("web", &PatchParams::default(), &patch).await
        };
        patched(&good).await.expect("a condition");
        for (field, value) in
            [("status", "Maybe"), ("type", "Bad type !"), ("reason", ""), ("reason", "two words")]
        {
            let mut bad = good.clone();
            bad[field] = value.into();
            let error = patched(&bad).await.expect_err(value).to_string();
            assert!(error.contains(&format!("conditions[0].{field}")), "{error}");
        }
    });
}
