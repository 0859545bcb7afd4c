//! A file that is divided among three `ConfigMap`s.
use k8s_openapi::{api::core::v1::ResourceQuota, jiff::Timestamp};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use traffic_operator::placement::part;

use super::{Stage, served, streams};

/// With this name, the first three workers read different parts.
const NAME: &str = "ag";

/// Returns a template whose volume has every part.
fn template(name: &str) -> Value {
    let sources: Vec<_> = (0..3)
        .map(|part| {
            let map = format!("{name}-config-part-{part}");
            let items = json!([{"key": "config.yml", "path": format!("part-{part}/config.yml")}]);
            json!({"configMap": {"name": map, "items": items}})
        })
        .collect();
    let volume = json!({"name": "config", "projected": {"sources": sources}});
    json!({"spec": {"template": {"spec": {"volumes": [volume]}}}})
}

fn spec(n: usize) -> Value {
    json!({"jobs": streams(n), "configMap": {"files": 3}, "refresh": {"strategy": "HotReload"}})
}

/// Returns the version of each ConfigMap: head and parts.
async fn versions(stage: &Stage) -> Vec<String> {
    let mut all = vec![];
    let parts = (0..3).map(|part| format!("{NAME}-config-part-{part}"));
    for name in [format!("{NAME}-config")].into_iter().chain(parts) {
        let map = stage.maps().get(&name).await.expect("a ConfigMap");
        all.push(map.metadata.resource_version.expect("a version"));
    }
    all
}

#[test]
fn a_divided_file_moves_streams_is_repaired_and_rests() {
    served(async |stage, operator| {
        let parts: std::collections::BTreeSet<_> =
            (0..3).map(|i| part::of(&format!("{NAME}-{i}"), 3)).collect();
        assert_eq!(parts.len(), 3, "each worker reads another part");
        stage.stateful_set(NAME, 2, template(NAME)).await;
        stage.swarm(NAME, spec(12)).await;
        stage.settled(NAME, 2, &streams(12)).await;
        stage.scale(NAME, 3).await;
        stage.settled(NAME, 3, &streams(12)).await;
        stage.scale(NAME, 2).await;
        let file = stage.settled(NAME, 2, &streams(12)).await;

        // One stream less is one list less: a write of the head and of that part, and one more each
        // when the stream has stopped.
        let before = versions(&stage).await;
        let gone = usize::try_from(part::of(file.owners()["stream:11"][0], 3)).expect("few");
        stage.change(NAME, json!({"jobs": streams(11)})).await;
        stage.settled(NAME, 2, &streams(11)).await;
        let after = versions(&stage).await;
        let changed: Vec<_> = (0..4).filter(|i| before[*i] != after[*i]).collect();
        assert_eq!(changed, [0, 1 + gone]);

        // One part is deleted, and one is edited: both are restored.
        let map = format!("{NAME}-config-part-{gone}");
        stage.maps().delete(&map, &DeleteParams::default()).await.expect("delete");
        stage.until_event(NAME, "ConfigMapRestored").await;
        let file = stage.settled(NAME, 2, &streams(11)).await;
        let edit = json!({"data": {"config.yml": "workloads: {}\nversion: 1\n"}});
        let params = PatchParams::default();
        stage.maps().patch(&map, &params, &Patch::Merge(&edit)).await.expect("edit");
        stage.until_event(NAME, "ForeignEdit").await;
        let repaired = stage.settled(NAME, 2, &streams(11)).await;
        assert_eq!(repaired.owners(), file.owners());
        assert!(repaired.version > file.version);

        // A new process relies on the existing objects.
        drop(operator);
        let operator = stage.ready_operator().await;
        stage.settled(NAME, 2, &streams(11)).await;
        let since = Timestamp::now();
        operator.passes("swarm", 2).await;
        let writes = stage.bench.writes_since(since).await;
        assert!(writes.is_empty(), "{writes:?}");
        assert_eq!(stage.file(NAME).await.expect("a file"), repaired);
        let other = Patch::Merge(json!({"spec": {"configMap": {"files": 4}}}));
        let refused = stage.swarms().patch(NAME, &params, &other).await;
        let refused = refused.expect_err("another number").to_string();
        assert!(refused.contains("configMap.files cannot change"), "{refused}");
    });
}

/// Each write of the head is news for the next pass, which would write it again at once.
#[test]
fn a_part_that_no_quota_allows_costs_no_flood() {
    served(async |stage, _operator| {
        stage.stateful_set(NAME, 2, template(NAME)).await;
        stage.swarm(NAME, spec(6)).await;
        let before = stage.settled(NAME, 2, &streams(6)).await;
        let quotas = Api::<ResourceQuota>::namespaced(stage.bench.client.clone(), "default");
        let quota = serde_json::from_value(json!({
            "metadata": {"name": "few"}, "spec": {"hard": {"count/configmaps": 1}},
        }));
        quotas.create(&PostParams::default(), &quota.expect("a quota")).await.expect("create");
        let map = format!("{NAME}-config-part-1");
        let since = Timestamp::now();
        stage.maps().delete(&map, &DeleteParams::default()).await.expect("delete");
        tokio::time::sleep(std::time::Duration::from_secs(10)).await;
        let writes = stage.bench.writes_since(since).await;
        let head = format!("{NAME}-config");
        let heads = writes.iter().filter(|write| write.name == head).count();
        let told = writes.iter().filter(|write| write.resource.starts_with("swarms")).count();
        quotas.delete("few", &DeleteParams::default()).await.expect("lift the quota");
        assert!((1..=6).contains(&heads), "{heads} writes of the head");
        assert!(told <= 6, "{told} writes of the status");
        let after = stage.settled(NAME, 2, &streams(6)).await;
        assert_eq!(after.owners(), before.owners());
        stage.condition(NAME, "Ready", "True", "Placed").await;
    });
}
