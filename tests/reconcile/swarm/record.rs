//! The file and its version: their content after restarts, deletions and edits, and their owner.
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Stage, served, streams};
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
fn streams_of_a_config_map_are_followed_as_it_changes() {
    served(async |stage, _operator| {
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

#[test]
fn a_config_map_of_someone_else_is_not_touched_until_it_is_handed_over() {
    served(async |stage, _operator| {
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
