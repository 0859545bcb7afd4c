//! Defects in the objects that the operator writes and deletes.
use k8s_openapi::jiff::Timestamp;
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    super::{agent, selector, served, with},
    original,
};
use crate::bench::eventually;

/// 9, 10, 11: failed writes were dropped, and a changed or deleted child stayed that way.
#[test]
fn what_someone_changes_or_deletes_comes_back() {
    served(async |bench, _operator| {
        bench.prober("np", original()).await;
        bench.until_listed("default", "np", &[]).await;
        bench.intercepted("default").await;
        let map = bench.maps("default").get("np").await.expect("ConfigMap");
        let owner = &map.owner_references()[0];
        assert_eq!(
            (owner.kind.as_str(), owner.name.as_str(), owner.controller),
            ("NetworkProber", "np", Some(true))
        );
        bench.maps("default").delete("np", &DeleteParams::default()).await.expect("delete");
        bench.until_listed("default", "np", &[]).await;
        let spoil = Patch::Merge(json!({"binaryData": {"config.json": "e30="}}));
        bench.maps("default").patch("np", &PatchParams::default(), &spoil).await.expect("patch");
        bench.until_listed("default", "np", &[]).await;
        bench.empty_webhooks().await;
        eventually("the webhook", async || bench.entry("default", "np").await).await;
    });
}

/// 11: a foreign `ConfigMap` was overwritten, and later deleted.
#[test]
fn a_config_map_of_someone_elses_is_neither_written_nor_deleted() {
    served(async |bench, _operator| {
        let foreign = json!({"metadata": {"name": "np"}, "data": {"mine": "yes"}});
        let foreign = serde_json::from_value(foreign).expect("ConfigMap");
        bench.maps("default").create(&PostParams::default(), &foreign).await.expect("create");
        bench.prober("np", original()).await;
        let message = bench.until_condition("np", "Ready", "False", "Conflict").await;
        assert!(message.contains("ConfigMap default/np exists"), "{message}");
        let since = Timestamp::now();
        bench.probers("default").delete("np", &DeleteParams::default()).await.expect("delete");
        let gone =
            async || bench.probers("default").get_opt("np").await.ok()?.is_none().then_some(());
        eventually("the object to go", gone).await;
        let map = bench.maps("default").get("np").await.expect("still there");
        assert_eq!(map.data.expect("data")["mine"], "yes");
        assert!(map.binary_data.is_none());
        let writes = bench.writes_since(since).await;
        assert!(writes.iter().all(|write| write.resource != "configmaps"), "{writes:?}");
        bench.maps("default").delete("np", &DeleteParams::default()).await.expect("delete");
    });
}

/// 12: after the object was deleted, injected pods could not be started again.
#[test]
fn everything_outside_goes_with_the_object_and_pods_can_do_without() {
    served(async |bench, _operator| {
        let consent = json!({"annotations": {"probes.bigmikes.io/allow": "*"}});
        bench.namespace("elsewhere", consent).await;
        bench.prober("np", with(selector(), &json!({"namespaceSelector": {}}))).await;
        bench.intercepted("elsewhere").await;
        let pod = bench.pod("elsewhere", "a", json!({})).await;
        let volumes = serde_json::to_value(pod.spec.expect("spec").volumes).expect("volumes");
        let ours = volumes.as_array().expect("list").iter().find(|v| v["name"] == "net-prober-vol");
        let sources = &ours.expect("volume")["projected"]["sources"];
        for map in [0, 1] {
            assert_eq!(sources[map]["configMap"]["optional"], true, "{sources}");
        }
        assert_eq!(sources[2]["serviceAccountToken"]["audience"], "traffic-operator");
        eventually("its ConfigMap", async || {
            bench.maps("elsewhere").get_opt("np").await.ok().flatten()
        })
        .await;
        bench.probers("default").delete("np", &DeleteParams::default()).await.expect("delete");
        let gone = async || {
            let prober = bench.probers("default").get_opt("np").await.ok()?;
            let webhook = bench.entry("default", "np").await;
            let map = bench.maps("elsewhere").get_opt("np").await.ok()?;
            (prober.is_none() && webhook.is_none() && map.is_none()).then_some(())
        };
        eventually("everything to go", gone).await;
        let pod = bench.pod("elsewhere", "later", json!({})).await;
        assert!(agent(&pod).is_none());
    });
}
