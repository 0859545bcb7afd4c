//! Workers that are unreachable, that may not be evicted, or that stay away; and workloads that
//! appear and disappear.
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use super::{Stage, sample, served, streams};
use crate::bench::{Operator, eventually, run};

/// Waits until the operator has made this many more passes.
pub async fn passes(operator: &Operator, count: u32) {
    operator.passes("swarm", count).await;
}

pub fn hot(jobs: &[String]) -> Value {
    json!({"jobs": jobs, "refresh": {"strategy": "HotReload", "timeout": "1s"}})
}

#[test]
fn a_disruption_budget_is_respected_and_reported_and_the_rest_goes_on_when_it_allows() {
    run(async |bench| {
        let (stage, operator, _) =
            Stage::running(bench, "budget", 2, json!({"jobs": streams(6)})).await;
        let budgets = Api::<PodDisruptionBudget>::namespaced(stage.bench.client.clone(), "default");
        let budget = json!({
            "metadata": {"name": "budget"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "budget"}}},
        });
        let budget = serde_json::from_value(budget).unwrap();
        budgets.create(&PostParams::default(), &budget).await.unwrap();
        let counted = async || {
            let budget = budgets.get("budget").await.ok()?;
            (budget.status?.expected_pods == 2).then_some(())
        };
        eventually("the budget to be counted", counted).await;
        stage.change("budget", json!({"jobs": streams(5)})).await;
        let note = stage.until_event("budget", "EvictionRefused").await;
        assert!(note.contains("disruption budget"), "{note}");
        assert_eq!(stage.puppet.running().len(), 6, "no worker was restarted");
        // Nor is its zone held, in which nothing happens.
        let held = operator.metric("traffic_operator_disruption_in_progress", &[]).await;
        assert!(held < 1.0, "{held} zones held");
        budgets.delete("budget", &DeleteParams::default()).await.unwrap();
        stage.settled("budget", 2, &streams(5)).await;
    });
}

#[test]
fn a_workload_may_come_late_go_and_come_again() {
    served(async |stage, _operator| {
        stage.swarm("late", hot(&sample())).await;
        let text = stage.condition("late", "Ready", "False", "WorkloadNotFound").await;
        assert!(text.contains("no StatefulSet late"), "{text}");
        assert!(stage.file("late").await.is_none());
        stage.stateful_set("late", 2, json!({})).await;
        let before = stage.settled("late", 2, &sample()).await;
        stage.sets().delete("late", &DeleteParams::foreground()).await.unwrap();
        stage.condition("late", "Ready", "False", "WorkloadNotFound").await;
        let gone = async || stage.puppet.running().is_empty().then_some(());
        eventually("its pods to end", gone).await;
        assert_eq!(stage.file("late").await.unwrap(), before, "the file stays as it is");
        let absent = async || stage.sets().get_opt("late").await.unwrap().is_none().then_some(());
        eventually("the set to be gone", absent).await;
        stage.stateful_set("late", 2, json!({})).await;
        let after = stage.settled("late", 2, &sample()).await;
        assert_eq!(after.owners(), before.owners());
    });
}

/// If another client removes a pod's labels, the watch loses the pod, which keeps running.
#[test]
fn a_pod_whose_labels_were_removed_keeps_its_streams() {
    run(async |bench| {
        let (stage, operator, _) = Stage::running(bench, "bare", 2, hot(&streams(6))).await;
        // The worker follows its file, but its set has released the pod.
        stage.puppet.control(|c| c.held.insert("bare-1".into()));
        let patch = kube::api::Patch::Merge(json!({"metadata": {"labels": {"app": null}}}));
        stage.pods().patch("bare-1", &kube::api::PatchParams::default(), &patch).await.unwrap();
        stage.scale("bare", 1).await;
        stage.until("bare", &[("/summary/releasing", json!(3))]).await;
        passes(&operator, 4).await;
        stage.puppet.assert_no_overlap();
        assert_eq!(stage.puppet.streams("bare-1").len(), 3);
        stage.pods().delete("bare-1", &DeleteParams::default()).await.unwrap();
        stage.settled("bare", 1, &streams(6)).await;
    });
}
