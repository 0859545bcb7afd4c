//! Changes of the number of workers, and of the list of streams.
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{Stage, sample, served, streams};
use crate::{
    bench::{eventually, run},
    faults,
};

/// Returns the shape of a handover: the number of streams of each worker.
fn counts(file: &super::file::File) -> Vec<usize> {
    let mut counts: Vec<_> = file.workloads.values().map(|entry| entry.jobs.len()).collect();
    counts.sort_unstable();
    counts
}

/// Bugs 1 and 3.7: the original lost the last L mod N streams and ran the same number twice.
#[test]
fn every_stream_is_on_exactly_one_worker_whatever_their_number() {
    served(async |stage, _operator| {
        let parallel = json!({"spec": {"podManagementPolicy": "Parallel"}});
        stage.stateful_set("hot", 0, parallel).await;
        stage.swarm("hot", json!({"jobs": sample(), "refresh": {"strategy": "HotReload"}})).await;
        let mut version = 0;
        for workers in [0, 1, 2, 4, 5, 6, 12, 3, 0, 2] {
            stage.scale("hot", workers).await;
            let workers = workers as usize;
            let file = stage.settled("hot", workers, &sample()).await;
            assert!(file.version >= version, "{} after {version}", file.version);
            version = file.version;
            if workers > 0 {
                let counts = counts(&file);
                let (least, most) = (counts[0], counts[counts.len() - 1]);
                assert!(counts.len() == workers && most - least <= 1, "{counts:?}");
            } else {
                let all =
                    json!([["/summary/unassigned", 27], ["/unassigned/0/reason", "NoWorker"]]);
                for pair in all.as_array().unwrap() {
                    let at = pair[0].as_str().unwrap();
                    stage.until("hot", &[(at, pair[1].clone())]).await;
                }
            }
        }
        let begun =
            stage.puppet.ledger(|ledger| ledger.gaps().values().map(Vec::len).sum::<usize>());
        // As few as possible: 2 -> 3 moves nine.
        stage.scale("hot", 3).await;
        let before = stage.file("hot").await.unwrap();
        let after = stage.settled("hot", 3, &sample()).await;
        let (before, after) = (before.owners(), after.owners());
        let moved = before.iter().filter(|(stream, owner)| after[*stream] != **owner).count();
        assert!(moved <= 9, "{moved}");
        stage.puppet.ledger(|ledger| {
            let gaps = ledger.gaps().values().flatten();
            assert_eq!(gaps.clone().count(), begun + moved, "no staying stream is interrupted");
            let last = ledger.gaps().values().filter_map(|gaps| gaps.last()).max();
            assert!(last.is_some_and(|gap| *gap < Duration::from_secs(10)), "{last:?}");
        });
    });
}

/// Bugs 6 and 7: the original restarted every worker, some of them twice.
#[test]
fn only_a_worker_whose_list_changed_is_restarted_and_only_that_very_pod() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let proxy = stage.bench.proxy().await;
        let operator = faults::start(&stage.bench, &proxy, "15s", "operator-1");
        operator.ready().await;
        stage.stateful_set("few", 3, json!({})).await;
        stage.swarm("few", json!({"jobs": streams(9)})).await;
        stage.settled("few", 3, &streams(9)).await;
        let uids = || ["few-0", "few-1", "few-2"].map(|pod| stage.puppet.uid(pod).unwrap());
        let before = uids();
        stage.change("few", json!({"jobs": streams(10)})).await;
        let file = stage.settled("few", 3, &streams(10)).await;
        let after = uids();
        let changed: Vec<_> = (0..3).filter(|i| before[*i] != after[*i]).collect();
        assert_eq!(changed.len(), 1, "{before:?} {after:?}");
        let mut evictions = proxy.requests();
        evictions.retain(|request| request.call.subresource == "eviction");
        assert_eq!(evictions.len(), 1, "{evictions:?}");
        assert!(evictions[0].body.contains(&format!("\"uid\":\"{}\"", before[changed[0]])));
        // Its entry is the only one with the new version.
        let newer = file.workloads.values().filter(|e| e.version == file.version).count();
        assert_eq!(newer, 1);
        // The order of the list does not matter.
        let mut turned = streams(10);
        turned.reverse();
        stage.change("few", json!({"jobs": turned})).await;
        let generation = stage.swarms().get("few").await.unwrap().metadata.generation;
        stage.until("few", &[("/observedGeneration", json!(generation))]).await;
        assert_eq!(stage.file("few").await.unwrap(), file);
        assert_eq!(uids(), after);
    });
}

#[test]
fn a_deployment_that_is_rolled_out_hands_over_pod_by_pod() {
    served(async |stage, _operator| {
        let surge = json!({"spec": {
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        }});
        stage.deployment("roll", 3, surge).await;
        let kind = json!({"kind": "Deployment", "name": "roll"});
        stage.swarm("roll", json!({"workload": kind, "jobs": sample()})).await;
        let before = stage.settled("roll", 3, &sample()).await;
        stage.puppet.control(|c| c.stop = Duration::from_millis(20));
        let template = json!({"metadata": {"annotations": {"restarted": "now"}}});
        let patch = Patch::Merge(json!({"spec": {"template": template}}));
        let params = PatchParams::default();
        stage.bench.deployments().patch("roll", &params, &patch).await.unwrap();
        let all_new = async || {
            let file = stage.file("roll").await?;
            let none = file.workloads.keys().all(|pod| !before.workloads.contains_key(pod));
            (none && file.workloads.len() == 3).then_some(())
        };
        eventually("only new pods in the file", all_new).await;
        let after = stage.settled("roll", 3, &sample()).await;
        assert_eq!(counts(&after), [9, 9, 9]);
    });
}
