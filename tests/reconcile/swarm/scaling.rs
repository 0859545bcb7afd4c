//! Changes of the number of workers, and of the list of streams.
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Stage, proxy::Proxy, sample, streams};
use crate::bench::{eventually, run};

/// Returns the shape of a handover: the number of streams of each worker.
fn counts(file: &super::file::File) -> Vec<usize> {
    let mut counts: Vec<_> = file.workloads.values().map(|entry| entry.jobs.len()).collect();
    counts.sort_unstable();
    counts
}

/// Bugs 1 and 3.7: the original lost the last L mod N streams and ran the same number twice.
#[test]
fn every_stream_is_on_exactly_one_worker_whatever_their_number() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
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
        let proxy = Proxy::start(&stage.bench).await;
        let _operator = proxy.operator(&stage.bench).await;
        stage.stateful_set("few", 3, json!({})).await;
        stage.swarm("few", json!({"jobs": streams(9)})).await;
        stage.settled("few", 3, &streams(9)).await;
        let uids = || ["few-0", "few-1", "few-2"].map(|pod| stage.puppet.uid(pod).unwrap());
        let before = uids();
        proxy.kill(None);
        stage.change("few", json!({"jobs": streams(10)})).await;
        let file = stage.settled("few", 3, &streams(10)).await;
        let after = uids();
        let changed: Vec<_> = (0..3).filter(|i| before[*i] != after[*i]).collect();
        assert_eq!(changed.len(), 1, "{before:?} {after:?}");
        let evictions: Vec<_> =
            proxy.writes().into_iter().filter(|w| w.contains("/eviction")).collect();
        assert_eq!(evictions.len(), 1, "{evictions:?}");
        assert!(evictions[0].contains(&format!("\"uid\":\"{}\"", before[changed[0]])));
        // Its entry is the only one with the new version.
        let newer = file.workloads.values().filter(|e| e.version == file.version).count();
        assert_eq!(newer, 1);
        // The order of the list does not matter.
        proxy.kill(None);
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
fn with_hot_reload_only_the_pod_whose_list_changed_is_annotated() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
        stage.stateful_set("note", 3, json!({})).await;
        let spec = |n| json!({"jobs": streams(n), "refresh": {"strategy": "HotReload"}});
        stage.swarm("note", spec(9)).await;
        stage.settled("note", 3, &streams(9)).await;
        let since = Timestamp::now();
        stage.change("note", spec(10)).await;
        let file = stage.settled("note", 3, &streams(10)).await;
        let writes = stage.bench.writes_since(since).await;
        let pods: Vec<_> = writes.iter().filter(|w| w.resource == "pods").collect();
        assert_eq!(pods.len(), 1, "{pods:?}");
        let entry = file.workloads.iter().find(|(_, entry)| entry.version == file.version);
        assert_eq!(pods[0].name, *entry.unwrap().0);
        let pod = stage.pods().get(&pods[0].name).await.unwrap();
        let noted = pod.metadata.annotations.unwrap().remove("traffic.example.com/swarm-epoch");
        assert_eq!(noted, Some(file.version.to_string()));
    });
}

#[test]
fn workers_are_called_as_their_pods_whatever_the_first_ordinal() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
        stage.stateful_set("five", 2, json!({"spec": {"ordinals": {"start": 5}}})).await;
        stage.swarm("five", json!({"jobs": sample(), "refresh": {"strategy": "HotReload"}})).await;
        let file = stage.settled("five", 2, &sample()).await;
        assert_eq!(file.workloads.keys().collect::<Vec<_>>(), ["five-5", "five-6"]);
    });
}

#[test]
fn a_deployment_that_is_rolled_out_hands_over_pod_by_pod() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
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

#[test]
fn what_has_no_place_is_listed_with_its_reason_and_disturbs_nobody() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
        stage.stateful_set("place", 2, json!({})).await;
        let plain: Vec<_> = streams(6).iter().map(|id| json!({"id": id})).collect();
        let hot = json!({"strategy": "HotReload"});
        stage.swarm("place", json!({"streams": plain, "refresh": hot})).await;
        stage.settled("place", 2, &streams(6)).await;
        let owners = |running: &std::collections::BTreeMap<String, Vec<String>>| {
            let old = running.iter().filter(|(stream, _)| streams(6).contains(stream));
            old.map(|(s, p)| (s.clone(), p.clone())).collect::<Vec<_>>()
        };
        let before = owners(&stage.puppet.running());
        let with = |more: Value| {
            let mut all = plain.clone();
            all.extend(more.as_array().unwrap().clone());
            all
        };
        // A pin to a missing worker.
        let pinned =
            with(json!([{"id": "pinned", "pin": "place-9"}, {"id": "here", "pin": "place-1"}]));
        stage.change("place", json!({"streams": pinned})).await;
        let reported = [
            ("/summary/unassigned", json!(1)),
            ("/unassigned/0", json!({"id": "pinned", "reason": "PinnedWorkerAbsent"})),
        ];
        stage.until("place", &reported).await;
        stage.condition("place", "Ready", "False", "Unassigned").await;
        let here = async || (stage.puppet.running().get("here")? == &["place-1"]).then_some(());
        eventually("the pinned stream", here).await;
        assert_eq!(owners(&stage.puppet.running()), before);
        // More dedicated streams than workers; ordinary streams keep a worker.
        let dedicated = with(json!([
            {"id": "alone-1", "dedicated": true}, {"id": "alone-2", "dedicated": true},
            {"id": "alone-3", "dedicated": true},
        ]));
        stage.change("place", json!({"streams": dedicated})).await;
        let reported = [
            ("/summary/unassigned", json!(2)),
            ("/unassigned/0/reason", json!("NoDedicatedWorker")),
            ("/moving", json!(0)),
        ];
        stage.until("place", &reported).await;
        // At most two each: two places for six.
        stage.change("place", json!({"streams": plain, "maxStreamsPerWorker": 2})).await;
        let reported = [
            ("/summary/unassigned", json!(2)),
            ("/unassigned/0/reason", json!("NoCapacity")),
            ("/moving", json!(0)),
        ];
        stage.until("place", &reported).await;
        stage.change("place", json!({"maxStreamsPerWorker": null})).await;
        stage.settled("place", 2, &streams(6)).await;
        stage.condition("place", "Ready", "True", "Placed").await;
    });
}

#[test]
fn no_more_streams_are_on_their_way_at_once_than_max_moves() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
        stage.stateful_set("slow", 1, json!({})).await;
        let spec = json!({
            "jobs": streams(12), "maxMoves": 2, "refresh": {"strategy": "HotReload"},
        });
        stage.swarm("slow", spec).await;
        stage.settled("slow", 1, &streams(12)).await;
        stage.puppet.control(|c| c.stop = Duration::from_millis(100));
        stage.scale("slow", 2).await;
        let mut most = 0;
        let half = async || {
            let data = stage.maps().get("slow-config").await.unwrap().data.unwrap();
            most = most.max(data["handover.yml"].matches("worker:").count());
            (stage.puppet.streams("slow-1").len() == 6).then_some(())
        };
        eventually("six streams on each", half).await;
        assert!((1..=2).contains(&most), "{most}");
        stage.settled("slow", 2, &streams(12)).await;
    });
}
