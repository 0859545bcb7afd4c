//! Workers that do not reach their desired list, and the workers beside them.
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use super::{fake_kubelet::Delivery, served, streams};
use crate::bench::eventually;

/// Returns streams other than the former ones: every list changes.
fn other(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("other:{i}")).collect()
}

/// Two budgets select one pod: the API server answers 500 to its eviction, for as long as both
/// exist.
#[test]
fn a_pod_that_two_budgets_guard_keeps_no_other_from_its_list() {
    served(async |stage, _operator| {
        stage.stateful_set("two", 2, json!({})).await;
        stage.puppet.control(|c| c.delivery = Delivery::Birth);
        stage.swarm("two", json!({"jobs": streams(6)})).await;
        stage.settled("two", 2, &streams(6)).await;
        let budgets = Api::<PodDisruptionBudget>::namespaced(stage.bench.client.clone(), "default");
        for name in ["one", "other"] {
            let label = json!({"statefulset.kubernetes.io/pod-name": "two-0"});
            let budget = json!({
                "metadata": {"name": name},
                "spec": {"maxUnavailable": 1, "selector": {"matchLabels": label}},
            });
            let budget = serde_json::from_value(budget).unwrap();
            budgets.create(&PostParams::default(), &budget).await.unwrap();
        }
        let before = ["two-0", "two-1"].map(|pod| stage.puppet.uid(pod).unwrap());
        stage.change("two", json!({"jobs": other(6)})).await;
        let note = stage.until_event("two", "EvictionRefused").await;
        assert!(note.contains("more than one PodDisruptionBudget"), "{note}");
        let runs = async || {
            let streams = stage.puppet.streams("two-1");
            (!streams.is_empty() && streams.iter().all(|s| s.starts_with("other:"))).then_some(())
        };
        eventually("two-1 to run its new list", runs).await;
        assert_eq!(stage.puppet.uid("two-0").as_ref(), Some(&before[0]));
        assert_ne!(stage.puppet.uid("two-1").as_ref(), Some(&before[1]));
        budgets.delete("other", &DeleteParams::default()).await.unwrap();
        stage.settled("two", 2, &other(6)).await;
        let left = budgets.list(&ListParams::default()).await.unwrap();
        assert_eq!(left.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["one"]);
    });
}
