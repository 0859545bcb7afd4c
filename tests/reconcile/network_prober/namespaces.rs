//! Namespaces that are as new as their pods.
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use super::{agent, selector, with};
use crate::bench::{Bench, run};

impl Bench {
    /// Makes a namespace and, at once, a pod in it; reports whether the pod has an agent.
    async fn made_at_once(&self, name: &str, metadata: Value) -> bool {
        let client = &self.client;
        let object = with(json!({"metadata": {"name": name}}), &json!({"metadata": metadata}));
        let namespace = serde_json::from_value(object).expect("Namespace");
        let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.expect("create Namespace");
        // The test does not wait for the controller that creates the account.
        let account = serde_json::from_value(json!({"metadata": {"name": "default"}}));
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), name);
        let _ = accounts.create(&PostParams::default(), &account.expect("account")).await;
        agent(&self.pod(name, "first", json!({})).await).is_some()
    }
}

#[test]
fn a_pod_that_is_made_with_its_namespace_has_an_agent() {
    run(async |bench| {
        bench.namespace("kube-system", json!({})).await;
        bench.namespace("n07-first", json!({"labels": {"probed": "yes"}})).await;
        let _operator = bench.ready_operator().await;
        let spec =
            with(selector(), &json!({"namespaceSelector": {"matchLabels": {"probed": "yes"}}}));
        bench.try_prober("traffic-operator-system", "np", spec).await.expect("NetworkProber");
        bench.intercepted("n07-first").await;
        let probed = json!({"labels": {"probed": "yes"}});
        for number in 0..10 {
            let name = format!("n07-new-{number}");
            assert!(bench.made_at_once(&name, probed.clone()).await, "{name} has no agent");
        }
        // A namespace's opt-out also holds from its creation.
        let out = with(probed, &json!({"annotations": {"probes.bigmikes.io/inject": "false"}}));
        assert!(!bench.made_at_once("n07-out", out).await, "it opted out");
        assert!(!bench.made_at_once("n07-other", json!({})).await, "it is not selected");
        let labeled = json!({"labels": {"probed": "yes"}});
        bench.namespace("kube-system", labeled).await;
        let pod = bench.try_pod("kube-system", "system", &json!({}), true).await;
        assert!(agent(&pod.expect("pod")).is_none(), "it belongs to the system");
        bench.until_prober("traffic-operator-system/np", &[("/injected", json!(10))]).await;
    });
}
