//! Requests of the operator that the API server refuses.
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::ResourceQuota,
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
    traffic_watch::judging::{KEY, deployment, with_three_nodes},
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
