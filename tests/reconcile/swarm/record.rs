//! The file and its version: their content after restarts, deletions and edits, and their owner.
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Stage, fake_kubelet::Delivery, sample, streams};
use crate::bench::{eventually, run};

fn hot(jobs: &[String]) -> Value {
    json!({"jobs": jobs, "refresh": {"strategy": "HotReload"}})
}

/// Changes to the ConfigMaps by a test.
impl Stage {
    async fn map(&self, name: &str, key: &str, text: &str) {
        let map = json!({"metadata": {"name": name}, "data": {key: text}});
        let map = serde_json::from_value(map).expect("ConfigMap");
        self.maps().create(&PostParams::default(), &map).await.expect("create ConfigMap");
    }

    async fn rewrite(&self, name: &str, key: &str, text: &str) {
        let patch = Patch::Merge(json!({"data": {key: text}}));
        self.maps().patch(name, &PatchParams::default(), &patch).await.expect("patch ConfigMap");
    }

    async fn remove_map(&self, name: &str) {
        self.maps().delete(name, &DeleteParams::default()).await.expect("delete ConfigMap");
    }
}

#[test]
fn a_restarted_operator_goes_on_with_the_version_and_restarts_nobody() {
    run(async |bench| {
        let (stage, operator, before) =
            Stage::running(bench, "again", 2, json!({"jobs": sample()})).await;
        let uids = || ["again-0", "again-1"].map(|pod| stage.puppet.uid(pod));
        let pods = uids();
        assert_eq!(operator.terminate().await, Some(0));
        // While no operator is running.
        stage.scale("again", 3).await;
        let operator = stage.ready_operator().await;
        let after = stage.settled("again", 3, &sample()).await;
        assert!(after.version > before.version);
        assert_eq!(operator.terminate().await, Some(0));
        let pods = (pods, uids());
        let operator = stage.ready_operator().await;
        operator.passes("swarm", 3).await;
        assert_eq!(stage.file("again").await.unwrap(), after);
        assert_eq!(uids(), pods.1);
    });
}

#[test]
fn streams_of_a_config_map_are_followed_as_it_changes() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
        stage.stateful_set("from", 2, json!({})).await;
        let text = |n| format!("jobs: {}\nversion: 0\n", json!(streams(n)));
        stage.map("source", "config.yml", &text(4)).await;
        let from = json!({"configMapKeyRef": {"name": "source"}});
        let spec = json!({"streamsFrom": from, "refresh": {"strategy": "HotReload"}});
        stage.swarm("from", spec).await;
        stage.settled("from", 2, &streams(4)).await;
        stage.rewrite("source", "config.yml", &text(7)).await;
        stage.settled("from", 2, &streams(7)).await;
        stage.rewrite("source", "config.yml", &text(3)).await;
        let file = stage.settled("from", 2, &streams(3)).await;
        // A list with an error takes no stream from any worker.
        for (bad, words) in [
            ("jobs: [a, a]", "\"a\" is listed 2 times"),
            ("jobs: []", "no stream is listed; workers keep what they have"),
            ("jobs: [", "config.yml"),
        ] {
            stage.rewrite("source", "config.yml", bad).await;
            let reported = async || {
                let text = stage.condition("from", "Ready", "False", "InvalidSpec").await;
                text.contains(words).then_some(())
            };
            eventually(words, reported).await;
            assert_eq!(stage.file("from").await.unwrap(), file);
            assert_eq!(stage.puppet.running().len(), 3);
        }
        stage.remove_map("source").await;
        let reported = async || {
            let text = stage.condition("from", "Ready", "False", "InvalidSpec").await;
            text.contains("does not exist").then_some(())
        };
        eventually("the absence is reported", reported).await;
        assert_eq!(stage.puppet.running().len(), 3);
        stage.map("source", "config.yml", &text(5)).await;
        stage.settled("from", 2, &streams(5)).await;
    });
}

/// Bug 10: the original required the file to exist, and crashed on one without data.
#[test]
fn a_file_that_is_deleted_comes_back_with_a_higher_version_and_nothing_moves() {
    run(async |bench| {
        let (stage, operator, before) = Stage::running(bench, "lost", 2, hot(&sample())).await;
        let starts = stage.puppet.ledger(super::ledger::Ledger::starts);
        stage.remove_map("lost-config").await;
        stage.until_event("lost", "ConfigMapRestored").await;
        let after = stage.settled("lost", 2, &sample()).await;
        assert!(after.version > before.version, "{} {}", after.version, before.version);
        assert_eq!(after.owners(), before.owners());
        assert_eq!(stage.puppet.ledger(super::ledger::Ledger::starts), starts);
        // While no operator is running: then it is unknown what workers have read.
        assert_eq!(operator.terminate().await, Some(0));
        stage.remove_map("lost-config").await;
        let _operator = stage.ready_operator().await;
        stage.until_event("lost", "HistoryUnknown").await;
        let last = stage.settled("lost", 2, &sample()).await;
        assert!(last.version > after.version);
    });
}

#[test]
fn an_edit_of_someone_else_is_put_back_under_a_version_above_both() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let operator = stage.ready_operator().await;
        stage.puppet.control(|c| c.delivery = Delivery::Eager);
        stage.stateful_set("edit", 2, json!({})).await;
        stage.swarm("edit", hot(&streams(4))).await;
        let before = stage.settled("edit", 2, &streams(4)).await;
        // One worker loses all its streams, and has read that.
        let edit = |file: &super::file::File| {
            let jobs = file.jobs("edit-0");
            let version = file.version + 7;
            let text = format!(
                "workloads:\n  edit-0:\n    jobs: {}\n  edit-1:\n    jobs: []\nversion: {version}\n",
                json!(jobs)
            );
            (text, version)
        };
        let (text, version) = edit(&before);
        stage.rewrite("edit-config", "config.yml", &text).await;
        stage.until_event("edit", "ForeignEdit").await;
        let after = stage.settled("edit", 2, &streams(4)).await;
        assert!(after.version > version, "{} {version}", after.version);
        assert_eq!(after.owners(), before.owners());
        // While no operator is running.
        assert_eq!(operator.terminate().await, Some(0));
        let (text, version) = edit(&after);
        stage.rewrite("edit-config", "config.yml", &text).await;
        let read = async || stage.puppet.streams("edit-1").is_empty().then_some(());
        eventually("the edit to be read", read).await;
        let _operator = stage.ready_operator().await;
        stage.until_event("edit", "HistoryUnknown").await;
        let last = stage.settled("edit", 2, &streams(4)).await;
        assert!(last.version > version, "{} {version}", last.version);
    });
}

/// Garbage in place of the record counts as an edit, too.
#[test]
fn a_file_that_cannot_be_read_is_put_back() {
    run(async |bench| {
        let (stage, _operator, before) = Stage::running(bench, "bad", 2, hot(&streams(4))).await;
        stage.rewrite("bad-config", "config.yml", "workloads: [").await;
        stage.until_event("bad", "ForeignEdit").await;
        let after = stage.settled("bad", 2, &streams(4)).await;
        assert_eq!(after.owners(), before.owners());
        assert!(after.version > before.version);
    });
}

#[test]
fn a_config_map_of_someone_else_is_not_touched_until_it_is_handed_over() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
        // The original's file, which its workers follow.
        let theirs = "workloads:\n  take-0:\n    jobs: [\"stream:0\", \"stream:1\"]\n    version: 0\n  \
                      take-1:\n    jobs: [\"stream:2\"]\n    version: 0\nversion: 41\n";
        stage.map("take-config", "config.yml", theirs).await;
        stage.stateful_set("take", 2, json!({})).await;
        let runs = async || (stage.puppet.running().len() == 3).then_some(());
        eventually("the original's workers", runs).await;
        stage.swarm("take", hot(&streams(4))).await;
        let text = stage.condition("take", "Ready", "False", "Conflict").await;
        assert!(text.contains("traffic.example.com/swarm=take"), "{text}");
        let data = stage.maps().get("take-config").await.unwrap().data.unwrap();
        assert_eq!(data["config.yml"], theirs);
        assert_eq!(data.len(), 1);
        let given = json!({"metadata": {"annotations": {"traffic.example.com/swarm": "take"}}});
        let params = PatchParams::default();
        stage.maps().patch("take-config", &params, &Patch::Merge(given)).await.unwrap();
        let file = stage.settled("take", 2, &streams(4)).await;
        assert!(file.version > 41);
    });
}

#[test]
fn a_list_that_no_config_map_can_hold_is_refused_and_workers_keep_what_they_have() {
    run(async |bench| {
        let (stage, _operator, before) = Stage::running(bench, "huge", 2, hot(&streams(4))).await;
        let many: Vec<_> = (0..30_000).map(|i| format!("stream:{i:040}")).collect();
        stage.change("huge", json!({"jobs": many})).await;
        let text = stage.condition("huge", "Ready", "False", "InvalidSpec").await;
        assert!(text.contains("in one ConfigMap, which holds 1048576"), "{text}");
        assert!(text.contains("spec.configMap.files, at least 4"), "{text}");
        assert_eq!(stage.file("huge").await.unwrap(), before);
        assert_eq!(stage.puppet.running().len(), 4);
    });
}

/// Bug 1 as it occurs in the original's cluster: a stream in two lists, and one in none.
#[test]
fn the_file_of_the_original_is_taken_over_and_what_ran_twice_runs_once() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
        let theirs = "workloads:\n  twice-0:\n    jobs: [\"stream:0\", \"stream:1\"]\n  twice-1:\n    \
                      jobs: [\"stream:1\", \"stream:2\"]\nversion: 3\n";
        stage.map("twice-config", "config.yml", theirs).await;
        stage.stateful_set("twice", 2, json!({})).await;
        let twice = async || (stage.puppet.running().get("stream:1")?.len() == 2).then_some(());
        eventually("the original's overlap", twice).await;
        let before = stage.puppet.ledger(|ledger| ledger.overlaps().len());
        let given = json!({"metadata": {"annotations": {"traffic.example.com/swarm": "twice"}}});
        let params = PatchParams::default();
        stage.maps().patch("twice-config", &params, &Patch::Merge(given)).await.unwrap();
        stage.swarm("twice", hot(&streams(4))).await;
        let once = async || {
            let running = stage.puppet.running();
            (running.len() == 4 && running.values().all(|pods| pods.len() == 1)).then_some(())
        };
        eventually("each stream to run once", once).await;
        stage.condition("twice", "Converged", "True", "Converged").await;
        assert_eq!(stage.puppet.ledger(|ledger| ledger.overlaps().len()), before);
    });
}

/// Everything that knows the last version is gone: the file, the status, and every worker.
#[test]
fn the_fencing_token_does_not_go_back_when_a_swarm_is_created_again() {
    run(async |bench| {
        let (stage, _operator, _) = Stage::running(bench, "token", 2, hot(&sample())).await;
        for workers in [3, 2, 0] {
            stage.scale("token", workers).await;
            let owned = if workers == 0 { 0 } else { 27 };
            stage.until("token", &[("/summary/owned", json!(owned)), ("/moving", json!(0))]).await;
        }
        let none = async || {
            let pods = stage.pods().list(&kube::api::ListParams::default()).await.ok()?;
            pods.items.is_empty().then_some(())
        };
        eventually("no pod", none).await;
        let before = stage.file("token").await.unwrap();
        stage.swarms().delete("token", &DeleteParams::default()).await.unwrap();
        let gone = async || stage.file("token").await.is_none().then_some(());
        eventually("no file", gone).await;
        // On average, fewer than one file a second.
        let later = async || {
            let now = k8s_openapi::jiff::Timestamp::now().as_second();
            (u64::try_from(now).unwrap() > before.version).then_some(())
        };
        eventually("the time of the last version", later).await;
        stage.swarm("token", hot(&sample())).await;
        stage.scale("token", 2).await;
        let after = stage.settled("token", 2, &sample()).await;
        assert!(after.version > before.version, "{} {}", after.version, before.version);
        let tokens = |file: &super::file::File| {
            file.workloads.values().map(|entry| entry.version).collect::<Vec<_>>()
        };
        assert!(tokens(&after).iter().all(|token| *token > before.version), "{:?}", tokens(&after));
    });
}

/// The status would report a version that no file has, which the next pass takes for the edit of
/// another client.
#[test]
fn a_file_that_is_refused_raises_no_version() {
    run(async |bench| {
        let (stage, _operator, before) = Stage::running(bench, "fixed", 2, hot(&streams(6))).await;
        let fixed = Patch::Merge(json!({"immutable": true}));
        let params = PatchParams::default();
        stage.maps().patch("fixed-config", &params, &fixed).await.expect("immutable");
        let since = k8s_openapi::jiff::Timestamp::now();
        stage.scale("fixed", 3).await;
        let text = stage.condition("fixed", "Ready", "False", "InvalidSpec").await;
        assert!(text.contains("ConfigMap fixed-config: "), "{text}");
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        assert_eq!(stage.status("fixed").await["epoch"], json!(before.version));
        assert_eq!(stage.file("fixed").await.unwrap(), before);
        let writes = stage.bench.writes_since(since).await;
        let told = writes.iter().filter(|write| write.resource.starts_with("swarms")).count();
        assert!(told <= 2, "{writes:?}");
        stage.remove_map("fixed-config").await;
        let after = stage.settled("fixed", 3, &streams(6)).await;
        assert!(after.version > before.version);
        let events = stage.events("fixed").await;
        assert!(events.iter().all(|(reason, _)| reason != "ForeignEdit"), "{events:?}");
    });
}
