//! The policies of a spec, each by its writes and by what it leaves alone.
use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::{
    bench::{Bench, eventually},
    prometheus::Sample,
    traffic_watch::judging::{KEY, patch_spec, with_three_nodes},
};

async fn taints(bench: &Bench, node: &str) -> BTreeMap<String, String> {
    let node: Node = bench.nodes().get(node).await.expect("node");
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    taints.into_iter().map(|taint| (taint.key, taint.effect)).collect()
}

async fn until_taint(bench: &Bench, node: &str, effect: Option<&str>) {
    let what = format!("taint of {node}: {effect:?}");
    let holds =
        async || (taints(bench, node).await.get(KEY).map(String::as_str) == effect).then_some(());
    eventually(&what, holds).await;
}

#[test]
fn a_taint_comes_and_goes_with_the_label_and_leaves_the_taints_of_others() {
    with_three_nodes(async |bench| {
        let foreign =
            json!({"spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}});
        let params = PatchParams::default();
        bench.nodes().patch("node-2", &params, &Patch::Merge(foreign)).await.unwrap();
        bench.prometheus.set("node-2", Sample::percent("99"));
        bench.watch("web", json!({"taint": "PreferNoSchedule"})).await;
        let _operator = bench.operator();
        until_taint(&bench, "node-2", Some("PreferNoSchedule")).await;
        patch_spec(&bench, "web", json!({"taint": "NoSchedule"})).await;
        until_taint(&bench, "node-2", Some("NoSchedule")).await;
        assert_eq!(taints(&bench, "node-2").await["team"], "NoSchedule");
        assert!(!taints(&bench, "node-1").await.contains_key(KEY));
        // Nothing is written while nothing changes.
        bench.judgments(2).await;
        let since = Timestamp::now();
        bench.judgments(4).await;
        let writes = bench.writes_since(since).await;
        assert!(writes.iter().all(|w| w.resource != "nodes"), "{writes:?}");
        bench.prometheus.set("node-2", Sample::percent("10"));
        until_taint(&bench, "node-2", None).await;
        bench.prometheus.set("node-2", Sample::percent("99"));
        until_taint(&bench, "node-2", Some("NoSchedule")).await;
        // The taint is removed with the object.
        bench.watches("default").delete("web", &DeleteParams::default()).await.unwrap();
        until_taint(&bench, "node-2", None).await;
        bench.until_label("node-2", KEY, None).await;
        assert_eq!(taints(&bench, "node-2").await["team"], "NoSchedule");
    });
}
