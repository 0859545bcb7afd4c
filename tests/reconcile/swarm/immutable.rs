//! `configMap.immutable`: the ConfigMap that a pod mounts proves which streams it runs.
use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{Stage, sample, served, streams};
use crate::bench::eventually;

fn on_delete() -> Value {
    json!({"spec": {"updateStrategy": {"type": "OnDelete"}, "podManagementPolicy": "Parallel"}})
}

fn immutable(jobs: &[String]) -> Value {
    json!({"jobs": jobs, "configMap": {"immutable": true}})
}

/// Returns the ConfigMap that the template of a set mounts.
async fn mounted(stage: &Stage, set: &str) -> Option<String> {
    let set = stage.sets().get(set).await.ok()?;
    let volumes = set.spec?.template.spec?.volumes?;
    Some(volumes.into_iter().find_map(|volume| volume.config_map)?.name)
}

#[test]
fn each_file_is_an_immutable_map_that_the_template_mounts_and_old_ones_are_swept() {
    served(async |stage, _operator| {
        // These workers report nothing and read a stale cache: the ConfigMap that they mount is
        // sufficient proof.
        stage.puppet.control(|c| {
            c.mute.extend((0..4).map(|i| format!("fixed-{i}")));
            c.stale = true;
        });
        stage.stateful_set("fixed", 2, on_delete()).await;
        stage.swarm("fixed", immutable(&sample())).await;
        stage.settled("fixed", 2, &sample()).await;
        for workers in [3, 4, 2] {
            stage.scale("fixed", workers).await;
            stage.settled("fixed", workers as usize, &sample()).await;
            // A worker gets its streams once it is ready, and the last file may change no list:
            // then the template follows without a restart.
            let named = async || {
                let file = stage.file("fixed").await?;
                let name = format!("fixed-config-{}", file.version);
                let shared = file.workloads.values().all(|entry| !entry.jobs.is_empty());
                (shared && mounted(&stage, "fixed").await.as_ref() == Some(&name)).then_some(name)
            };
            let name = eventually("the template to mount the last file", named).await;
            stage.settled("fixed", workers as usize, &sample()).await;
            let map = stage.maps().get(&name).await.unwrap();
            assert_eq!(map.immutable, Some(true));
            assert!(map.data.unwrap().contains_key("config.yml"));
        }
        let few = async || {
            let maps = stage.maps().list(&ListParams::default()).await.ok()?;
            let fixed = maps.iter().filter(|map| map.name_any().starts_with("fixed-config-"));
            (fixed.count() <= 5).then_some(())
        };
        eventually("old maps to be swept", few).await;
    });
}

#[test]
fn an_immutable_file_needs_a_set_that_is_not_rolled_out_by_itself() {
    served(async |stage, _operator| {
        stage.stateful_set("roll", 2, json!({})).await;
        stage.swarm("roll", immutable(&streams(4))).await;
        let text = stage.condition("roll", "Ready", "False", "InvalidSpec").await;
        assert!(text.contains("needs updateStrategy.type OnDelete"), "{text}");
    });
}

/// The manifest names the mutable ConfigMap, and the live object another one: this is the patch
/// that `kubectl apply` then sends.
#[test]
fn a_name_that_kubectl_apply_takes_back_is_put_right_and_nobody_is_restarted() {
    served(async |stage, _operator| {
        stage.stateful_set("again", 2, on_delete()).await;
        stage.swarm("again", immutable(&streams(4))).await;
        let file = stage.settled("again", 2, &streams(4)).await;
        let name = format!("again-config-{}", file.version);
        let named = async || (mounted(&stage, "again").await.as_ref() == Some(&name)).then_some(());
        eventually("the template to mount the file", named).await;
        let uids = || ["again-0", "again-1"].map(|pod| stage.puppet.uid(pod));
        let before = uids();
        let volumes = json!([{"name": "config", "configMap": {"name": "again-config"}}]);
        let applied = json!({"spec": {"template": {"spec": {"volumes": volumes}}}});
        let params = PatchParams::default();
        let set = stage.sets().patch("again", &params, &Patch::Strategic(applied)).await.unwrap();
        let taken_back = set.metadata.generation;
        let put_right = async || {
            let set = stage.sets().get("again").await.ok()?;
            (set.metadata.generation > taken_back).then_some(())
        };
        eventually("another change of the template", put_right).await;
        eventually("the template to mount the file again", named).await;
        assert_eq!(stage.settled("again", 2, &streams(4)).await, file);
        assert_eq!(uids(), before);
    });
}
