//! Workers that are unreachable, that may not be evicted, or that stay away; and workloads that
//! appear and disappear.
use std::collections::BTreeSet;

use k8s_openapi::{api::policy::v1::PodDisruptionBudget, jiff::Timestamp};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use super::{Stage, sample, streams};
use crate::bench::{Operator, eventually, run};

/// Waits until the operator has made this many more passes.
pub async fn passes(operator: &Operator, count: u32) {
    operator.passes("swarm", count).await;
}

pub fn hot(jobs: &[String]) -> Value {
    json!({"jobs": jobs, "refresh": {"strategy": "HotReload", "timeout": "1s"}})
}

#[test]
fn what_an_unreachable_worker_runs_stays_its_own_until_someone_says_that_it_is_off() {
    run(async |bench| {
        let (stage, operator, _) = Stage::running(bench, "far", 2, hot(&streams(6))).await;
        let uid = stage.puppet.uid("far-1").unwrap();
        let mine = stage.puppet.streams("far-1");
        // Its node is cut off; the node controller sets the pod to not Ready.
        stage.puppet.control(|c| c.cut.insert("far-1".into()));
        let unready = json!({"conditions": [{"type": "Ready", "status": "False"}]});
        stage.bench.set_pod_status("default", "far-1", unready).await;
        stage.until("far", &[("/summary/ready", json!(1))]).await;
        passes(&operator, 3).await;
        assert_eq!(stage.puppet.streams("far-1"), mine);
        assert_eq!(stage.puppet.streams("far-0").len(), 3);
        // The worker must go, and cannot be reached.
        stage.scale("far", 1).await;
        let reported = stage.condition("far", "Converged", "False", "RefreshTimeout").await;
        assert!(
            reported.contains("worker far-1") && reported.contains("out-of-service"),
            "{reported}"
        );
        stage.until_event("far", "RefreshTimeout").await;
        stage.until("far", &[("/summary/releasing", json!(3)), ("/summary/owned", json!(3))]).await;
        // The other workers continue.
        let mut jobs = streams(6);
        jobs.push("stream:new".into());
        stage.change("far", json!({"jobs": jobs})).await;
        let new =
            async || stage.puppet.streams("far-0").contains(&"stream:new".into()).then_some(());
        eventually("the new stream", new).await;
        assert_eq!(stage.puppet.streams("far-1"), mine);
        // The machine is switched off, and the user reports that.
        stage.puppet.control(|c| c.off.insert(uid));
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        stage.pods().delete("far-1", &now).await.unwrap();
        stage.settled("far", 1, &jobs).await;
    });
}

/// A worker that does not answer, and one whose container crashes: both keep their streams.
#[test]
fn a_worker_that_does_not_answer_is_waited_for_and_one_that_crashes_goes_on() {
    run(async |bench| {
        let (stage, operator, _) = Stage::running(bench, "mute", 2, hot(&streams(8))).await;
        stage.puppet.control(|c| {
            c.mute.insert("mute-0".into());
            c.mute.insert("mute-1".into());
        });
        stage.scale("mute", 3).await;
        // The workers have stopped the streams; until they report that, no other worker gets them.
        stage.condition("mute", "Converged", "False", "RefreshTimeout").await;
        operator.passes("swarm", 3).await;
        assert!(stage.puppet.streams("mute-2").is_empty());
        let uid = stage.puppet.uid("mute-1").unwrap();
        stage.puppet.control(|c| {
            c.mute.clear();
            c.crash.insert(uid);
        });
        stage.settled("mute", 3, &streams(8)).await;
    });
}

/// Bug 8: the original restarted workers by the clock.
#[test]
fn the_next_worker_is_restarted_only_once_the_last_one_is_ready_again() {
    run(async |bench| {
        let (stage, operator, _) =
            Stage::running(bench, "turn", 3, json!({"jobs": streams(9)})).await;
        let all = ["turn-0", "turn-1", "turn-2"];
        let before = all.map(|pod| stage.puppet.uid(pod).unwrap());
        // The replacement pod gets no node.
        stage.puppet.control(|c| c.unscheduled.extend(all.map(Into::into)));
        let since = Timestamp::now();
        // Every list changes.
        let other: Vec<_> = (0..9).map(|i| format!("other:{i}")).collect();
        stage.change("turn", json!({"jobs": other})).await;
        // Pods, not requests: a terminating pod may be evicted a second time before the watch has
        // delivered its deletion.
        let evicted = async || {
            let writes = stage.bench.writes_since(since).await.into_iter();
            let evictions = writes.filter(|w| w.subresource == "eviction" && w.code == 201);
            evictions.map(|w| w.name).collect::<BTreeSet<_>>().len()
        };
        eventually("an eviction", async || (evicted().await == 1).then_some(())).await;
        passes(&operator, 8).await;
        assert_eq!(evicted().await, 1);
        stage.puppet.control(|c| c.unscheduled.clear());
        stage.settled("turn", 3, &other).await;
        assert_eq!(evicted().await, 3);
        let after = all.map(|pod| stage.puppet.uid(pod).unwrap());
        assert!((0..3).all(|i| before[i] != after[i]));
    });
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
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
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

#[test]
fn of_two_swarms_on_one_workload_the_older_serves_it_and_the_younger_takes_over() {
    run(async |bench| {
        let (stage, _operator, _) = Stage::running(bench, "both", 2, hot(&streams(4))).await;
        // Names decide if both were created in the same second.
        let mut spec = hot(&streams(6));
        spec["workload"] = json!({"name": "both"});
        stage.swarm("younger", spec).await;
        let text = stage.condition("younger", "Ready", "False", "Conflict").await;
        assert_eq!(text, "StatefulSet both is served by the older Swarm both");
        stage.settled("both", 2, &streams(4)).await;
        stage.swarms().delete("both", &DeleteParams::default()).await.unwrap();
        let all = async || (stage.puppet.running().len() == 6).then_some(());
        eventually("the younger's streams", all).await;
        stage.condition("younger", "Converged", "True", "Converged").await;
        stage.puppet.assert_no_overlap();
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

/// The new workload does not include the pods of the old one, which still run.
#[test]
fn a_swarm_that_is_given_another_workload_takes_its_streams_along() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
        stage.stateful_set("old", 2, json!({})).await;
        let volumes = json!([{"name": "config", "configMap": {"name": "old-config"}}]);
        let change = json!({"spec": {"template": {"spec": {"volumes": volumes}}}});
        stage.stateful_set("new", 2, change).await;
        let mut spec = hot(&streams(6));
        spec["configMap"] = json!({"name": "old-config"});
        stage.swarm("old", spec).await;
        stage.settled("old", 2, &streams(6)).await;
        stage.puppet.control(|c| c.held.insert("old-1".into()));
        stage.change("old", json!({"workload": {"name": "new"}})).await;
        let half = async || {
            let running = stage.puppet.running();
            (running.values().filter(|pods| pods[0].starts_with("new-")).count() == 3).then_some(())
        };
        eventually("the streams of old-0 to be on the new workers", half).await;
        stage.until("old", &[("/summary/releasing", json!(3))]).await;
        stage.puppet.assert_no_overlap();
        stage.puppet.control(|c| c.held.clear());
        stage.settled("old", 2, &streams(6)).await;
    });
}
