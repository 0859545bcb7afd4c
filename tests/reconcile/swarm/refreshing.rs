//! Workers that do not reach their desired list, and the workers beside them.
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use k8s_openapi::{api::policy::v1::PodDisruptionBudget, jiff::Timestamp};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    Stage,
    at_rest::SWARMS,
    fake_kubelet::Delivery,
    proxy::Proxy,
    streams,
    unreachable_workers::{hot, passes},
};
use crate::bench::{eventually, run};

/// Returns the evictions that the API server has accepted, by pod.
async fn evictions(stage: &Stage, since: Timestamp) -> Vec<String> {
    let writes = stage.bench.writes_since(since).await.into_iter();
    let evictions = writes.filter(|w| w.subresource == "eviction" && w.code == 201);
    evictions.map(|w| w.name).collect()
}

/// Returns streams other than the former ones: every list changes.
fn other(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("other:{i}")).collect()
}

/// A kubelet has no room for a pod of a Deployment: phase Failed, without a status of containers.
/// The pod's controller creates another one and leaves the failed one in place.
#[test]
fn a_pod_that_its_kubelet_rejected_does_not_end_balancing() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
        stage.deployment("room", 2, json!({})).await;
        let kind = json!({"kind": "Deployment", "name": "room"});
        stage.swarm("room", json!({"workload": kind, "jobs": streams(12)})).await;
        stage.settled("room", 2, &streams(12)).await;
        stage.puppet.control(|c| c.reject = 1);
        let patch = Patch::Merge(json!({"spec": {"replicas": 4}}));
        let params = PatchParams::default();
        stage.bench.deployments().patch_scale("room", &params, &patch).await.unwrap();
        let even = async || {
            let file = stage.file("room").await?;
            let counts: Vec<_> = file.workloads.values().map(|entry| entry.jobs.len()).collect();
            (counts == [3, 3, 3, 3]).then_some(())
        };
        eventually("three streams on each of four workers", even).await;
        let of_it = ListParams::default().labels("app=room");
        let pods = stage.pods().list(&of_it).await.unwrap();
        let phase = |pod: &k8s_openapi::api::core::v1::Pod| pod.status.clone()?.phase;
        let rejected = pods.iter().filter(|pod| phase(pod).as_deref() == Some("Failed"));
        assert_eq!(rejected.count(), 1, "it is still there");
        stage.settled("room", 4, &streams(12)).await;
    });
}

/// A worker that reports, for example, a number of another system as its version. No version can be
/// above the largest number.
#[test]
fn a_worker_that_reports_an_absurd_version_costs_no_write() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let operator = stage.ready_operator().await;
        stage.stateful_set("huge", 2, json!({})).await;
        stage.puppet.control(|c| c.claims.insert("huge-0".into(), (1 << 53) - 1));
        stage.swarm("huge", hot(&streams(6))).await;
        let all = async |n: usize| {
            let run = async || (stage.puppet.running().len() == n).then_some(());
            eventually("all streams to run", run).await;
        };
        all(6).await;
        passes(&operator, 2).await;
        let before = stage.file("huge").await.unwrap().version;
        let since = Timestamp::now();
        passes(&operator, 2).await;
        let writes = stage.bench.writes_since(since).await;
        let files = writes.iter().filter(|w| w.resource == "configmaps").count();
        let own = writes.iter().filter(|w| w.resource == SWARMS).count();
        assert!(files == 0 && own <= 1, "{writes:?}");
        // The others continue, and the versions continue from the former ones.
        stage.change("huge", json!({"jobs": streams(8)})).await;
        all(8).await;
        let version = stage.file("huge").await.unwrap().version;
        assert!(version < before + 20, "{version} after {before}");
        stage.puppet.control(|c| c.claims.clear());
        stage.settled("huge", 2, &streams(8)).await;
    });
}

/// Returns the number of evictions of one worker that are allowed in this time: with pauses of 5 s,
/// 10 s, 20 s, …
fn allowed(elapsed: Duration) -> usize {
    let begins = (0..7).map(|n| Duration::from_secs(5 * ((1 << n) - 1)));
    begins.filter(|begin| *begin <= elapsed).count()
}

/// The worker follows its file, and reports otherwise: its version never rises.
#[test]
fn a_worker_whose_version_never_rises_is_evicted_less_and_less_and_the_others_have_their_turn() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let operator = stage.ready_operator().await;
        stage.stateful_set("deaf", 3, json!({})).await;
        stage.puppet.control(|c| c.delivery = Delivery::Birth);
        stage.swarm("deaf", json!({"jobs": streams(9)})).await;
        let file = stage.settled("deaf", 3, &streams(9)).await;
        let others = ["deaf-1", "deaf-2"];
        let before = others.map(|pod| stage.puppet.uid(pod).unwrap());
        let version = file.version;
        stage.puppet.control(|c| c.claims.insert("deaf-0".into(), version));
        let (since, began) = (Timestamp::now(), Instant::now());
        stage.change("deaf", json!({"jobs": other(9)})).await;
        let turned = async || {
            let restarted = others.iter().zip(&before).all(|(pod, before)| {
                let streams = stage.puppet.streams(pod);
                let runs = streams.iter().any(|stream| stream.starts_with("other:"));
                runs && stage.puppet.uid(pod).is_some_and(|uid| uid != *before)
            });
            restarted.then_some(())
        };
        eventually("the others to have their new lists", turned).await;
        passes(&operator, 20).await;
        let of_it =
            evictions(&stage, since).await.into_iter().filter(|pod| pod == "deaf-0").count();
        let allowed = allowed(began.elapsed());
        assert!((1..=allowed).contains(&of_it), "{of_it} evictions, {allowed} allowed");
        // It reports the streams that it runs: that takes no restart of a worker, and no pause
        // delays it.
        stage.puppet.control(|c| c.claims.clear());
        stage.settled("deaf", 3, &other(9)).await;
    });
}

/// The watch delivers the deletion later than the next pass. The pod is not evicted twice, and no
/// other pod is evicted meanwhile.
#[test]
fn a_pod_is_evicted_once_however_late_the_watch_brings_its_end() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let proxy = Proxy::start(&stage.bench).await;
        let operator = proxy.operator(&stage.bench).await;
        stage.stateful_set("once", 2, json!({})).await;
        stage.puppet.control(|c| c.delivery = Delivery::Birth);
        stage.swarm("once", json!({"jobs": streams(6)})).await;
        stage.settled("once", 2, &streams(6)).await;
        proxy.stall(Some("/namespaces/default/pods"));
        // The watch delivers the replacement only once it continues.
        stage.puppet.control(|c| c.stop = Duration::from_secs(1));
        proxy.kill(None);
        stage.change("once", json!({"jobs": other(6)})).await;
        let evicted = || {
            let writes = proxy.writes().into_iter();
            writes.filter(|write| write.contains("/eviction")).collect::<Vec<_>>()
        };
        eventually("an eviction", async || (!evicted().is_empty()).then_some(())).await;
        passes(&operator, 8).await;
        assert_eq!(evicted().len(), 1, "{:?}", evicted());
        proxy.stall(None);
        stage.puppet.control(|c| c.stop = Duration::ZERO);
        stage.settled("once", 2, &other(6)).await;
        let all = evicted();
        let pods: BTreeSet<_> = all.iter().collect();
        assert_eq!((all.len(), pods.len()), (2, 2), "{all:?}");
    });
}

/// Two budgets select one pod: the API server answers 500 to its eviction, for as long as both
/// exist.
#[test]
fn a_pod_that_two_budgets_guard_keeps_no_other_from_its_list() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
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
