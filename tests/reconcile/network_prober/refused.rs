//! Policies that refuse pods because of their agents.
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    apps::v1::Deployment,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use super::{agent, selector, with};
use crate::bench::{Bench, eventually, run};

const POLICY: &str = "refused-images";

impl Bench {
    /// Allows only images of a registry in the namespaces with a label.
    async fn only_images_of(&self, registry: &str) {
        let all = "object.spec.containers + object.spec.?initContainers.orValue([])";
        let policy = json!({"metadata": {"name": POLICY}, "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
            ]},
            "validations": [{
                "expression": format!("({all}).all(c, c.image.startsWith('{registry}/'))"),
                "message": "images only from our registry",
            }],
        }});
        let binding = json!({"metadata": {"name": POLICY}, "spec": {
            "policyName": POLICY, "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"images": "ours"}}},
        }});
        let params = PostParams::default();
        let policies = Api::<ValidatingAdmissionPolicy>::all(self.client.clone());
        let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(self.client.clone());
        let policy = serde_json::from_value(policy).expect("policy");
        let binding = serde_json::from_value(binding).expect("binding");
        policies.create(&params, &policy).await.expect("policy");
        bindings.create(&params, &binding).await.expect("binding");
    }

    async fn all_images(&self) {
        let policies = Api::<ValidatingAdmissionPolicy>::all(self.client.clone());
        let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(self.client.clone());
        let params = DeleteParams::default();
        bindings.delete(POLICY, &params).await.expect("binding");
        policies.delete(POLICY, &params).await.expect("policy");
    }

    /// Creates a Deployment of two pods that are allowed without an agent.
    async fn deployment(&self, namespace: &str, name: &str) {
        let labels = json!({"app": "net-prober", "name": name});
        let deployment = json!({"metadata": {"name": name}, "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "containers": [{"name": "app", "image": "ours.example.com/app"}],
            }},
        }});
        let deployment = serde_json::from_value(deployment).expect("Deployment");
        let api = Api::<Deployment>::namespaced(self.client.clone(), namespace);
        api.create(&PostParams::default(), &deployment).await.expect("Deployment");
    }

    /// Waits until a Deployment has two pods; returns how many of them have an agent.
    async fn agents_of(&self, namespace: &str, name: &str) -> usize {
        let params = ListParams::default().labels(&format!("name={name}"));
        let two = async || {
            let pods = self.pods(namespace).list(&params).await.ok()?.items;
            (pods.len() == 2).then(|| pods.iter().filter(|pod| agent(pod).is_some()).count())
        };
        eventually(&format!("two pods of {name}"), two).await
    }
}

/// The controllers of pods try again, and so get them; who reads the status learns why they are
/// not measured, by the policy's own words.
#[test]
fn pods_that_a_policy_refuses_with_an_agent_are_created_without_one() {
    run(async |bench| {
        let consent = json!({"annotations": {"probes.bigmikes.io/allow": "default/np"}});
        let ours = with(json!({"labels": {"images": "ours"}}), &consent);
        bench.namespace("n02-refuses", ours).await;
        bench.namespace("n02-allows", consent).await;
        let operator = bench.ready_operator().await;
        bench.prober("np", with(selector(), &json!({"namespaceSelector": {}}))).await;
        for namespace in ["n02-refuses", "n02-allows"] {
            bench.intercepted(namespace).await;
        }
        bench.only_images_of("ours.example.com").await;
        let refused = async || {
            let asked = bench.try_pod("n02-refuses", "asked", &json!({}), true).await;
            asked.err().filter(|error| error.to_string().contains("our registry"))
        };
        eventually("the policy to be in force", refused).await;
        bench.deployment("n02-refuses", "web").await;
        assert_eq!(bench.agents_of("n02-refuses", "web").await, 0);
        let message = bench.until_condition("np", "Ready", "False", "AgentRefused").await;
        for expected in ["n02-refuses", "images only from our registry"] {
            assert!(message.contains(expected), "{message}");
        }
        let paused = json!([{"namespace": "n02-refuses", "reason": "AgentRefused"}]);
        let counted = json!([{"reason": "AgentRefused", "count": 2}]);
        bench.until_prober("np", &[("/paused", paused), ("/notInjected", counted)]).await;
        let metric = "traffic_operator_networkprober_paused_namespaces";
        assert!(operator.metric(metric, &["name=\"np\""]).await > 0.5);
        // Others of the namespace are created at once, and other namespaces have agents.
        bench.deployment("n02-refuses", "api").await;
        assert_eq!(bench.agents_of("n02-refuses", "api").await, 0);
        bench.deployment("n02-allows", "web").await;
        assert_eq!(bench.agents_of("n02-allows", "web").await, 2);
        // A change of the spec is tried at once.
        bench.all_images().await;
        bench
            .change("np", json!({"injection": {"imagePullPolicy": "Always", "runAsUser": 4711}}))
            .await;
        bench.intercepted("n02-refuses").await;
        bench.until_condition("np", "Ready", "True", "Serving").await;
        for pod in &bench.pods("n02-refuses").list(&ListParams::default()).await.expect("pods") {
            assert!(pod.annotations().contains_key("probes.bigmikes.io/refused-with"));
        }
    });
}
