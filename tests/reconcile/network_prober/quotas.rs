//! Namespaces that would refuse pods because of their agents.
use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{agent, selector, with};
use crate::bench::{Bench, eventually, run};

impl Bench {
    /// Creates a quota, and waits until it is enforced.
    async fn quota(&self, namespace: &str, name: &str, hard: Value) {
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name},
            "spec": {"hard": hard},
        });
        let api = Api::<ResourceQuota>::namespaced(self.client.clone(), namespace);
        let params = PatchParams::apply("test").force();
        api.patch(name, &params, &Patch::Apply(quota)).await.expect("ResourceQuota");
        let enforced = async || {
            let quota = api.get(name).await.ok()?;
            let wanted = quota.spec?.hard?;
            (quota.status?.hard? == wanted).then_some(())
        };
        eventually("the quota to be enforced", enforced).await;
    }

    async fn limit_range(&self, namespace: &str, name: &str, item: Value) {
        let range = json!({
            "metadata": {"name": name}, "spec": {"limits": [with(json!({"type": "Container"}), &item)]},
        });
        let range = serde_json::from_value(range).expect("LimitRange");
        let api = Api::<LimitRange>::namespaced(self.client.clone(), namespace);
        api.create(&PostParams::default(), &range).await.expect("LimitRange");
    }

    /// Waits until a pod with these resources gets an agent, or gets none.
    async fn until_injected(&self, namespace: &str, resources: &Value, injected: bool) {
        let change = resourced(resources);
        let asked = async || {
            let pod = self.try_pod(namespace, "asked", &change, true).await.ok()?;
            (agent(&pod).is_some() == injected).then_some(())
        };
        eventually(&format!("pods of {namespace}: injected {injected}"), asked).await;
    }

    async fn covered_message(&self, namespace: &str, name: &str) -> String {
        let status = self.prober_status(&format!("{namespace}/{name}")).await;
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let covered = conditions.iter().find(|condition| condition["type"] == "Covered");
        covered.and_then(|covered| covered["message"].as_str()).unwrap_or_default().to_owned()
    }
}

fn resourced(resources: &Value) -> Value {
    json!({"spec": {"containers": [{"name": "app", "image": "app", "resources": resources}]}})
}

#[test]
fn pods_that_would_be_refused_with_an_agent_are_created_without_and_it_is_said() {
    run(async |bench| {
        let namespace = "n09-refuses";
        bench.namespace(namespace, json!({})).await;
        bench.namespace("n09-full", json!({})).await;
        bench.limit_range(namespace, "at-least", json!({"min": {"cpu": "20m"}})).await;
        bench.quota("n09-full", "tight", json!({"requests.cpu": "105m"})).await;
        let _operator = bench.ready_operator().await;
        for namespace in [namespace, "n09-full"] {
            bench.try_prober(namespace, "np", selector()).await.expect("NetworkProber");
        }
        let resources = json!({"requests": {"cpu": "100m"}});
        let said = async |namespace: &str, text: &str| {
            let holds =
                async || bench.covered_message(namespace, "np").await.contains(text).then_some(());
            eventually(&format!("{namespace}: {text}"), holds).await;
        };
        said(namespace, "n09-refuses (LimitRange at-least: ").await;
        // The agent requests 10m by default; with it the pod would be refused.
        let pod = bench.pod(namespace, "plain", resourced(&resources)).await;
        assert!(agent(&pod).is_none());
        let counted = json!([{"reason": "ResourcesRefused", "count": 1}]);
        bench.until_prober("n09-refuses/np", &[("/notInjected", counted)]).await;
        bench.until_event("np", "ResourcesRefused", "LimitRange at-least").await;
        // The author's remedy.
        let patch = json!({"spec": {"injection": {"resources": {"requests": {"cpu": "20m"}}}}});
        let params = PatchParams::default();
        let probers = bench.probers(namespace);
        probers.patch("np", &params, &Patch::Merge(patch)).await.expect("patch");
        bench.until_injected(namespace, &resources, true).await;
        assert!(agent(&bench.pod(namespace, "second", resourced(&resources)).await).is_some());
        // A quota with room for the pod but not for its agent; and one with room for neither.
        let small = json!({"requests": {"cpu": "50m"}});
        bench.until_injected("n09-full", &small, true).await;
        let pod = bench.pod("n09-full", "plain", resourced(&resources)).await;
        assert!(agent(&pod).is_none(), "105m are enough for its 100m, and not for an agent");
    });
}
