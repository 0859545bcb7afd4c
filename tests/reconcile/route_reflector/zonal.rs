//! Two zones with reflectors of their own.
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{Stage, stage::GROUP};
use crate::bench::{eventually, run};

/// Bugs 15, 17 and 20: peers by zone, whose number does not depend on the number of nodes.
/// Bug 7: the original did not notice new nodes.
#[test]
fn zones_have_reflectors_of_their_own_and_nodes_come_and_go_without_a_peer_changing() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        stage.nodes(8).await;
        let _operator = stage.operator().await;
        let spec = json!({"count": {"min": 4, "max": 4}, "topology": "Zonal", "mesh": "Migrate"});
        stage.set("main", spec).await;
        stage.wait("half of it", async || (stage.marks().await.len() == 8).then_some(())).await;
        stage.converged("main", &["node-1", "node-2", "node-3", "node-4"]).await;
        let peers = ["peer-to-rrs-a", "peer-to-rrs-b", "rrs-to-rrs"];
        assert_eq!(stage.peers().names().await, peers);
        let status = stage.status("main").await;
        assert_eq!(status["topology"], "Zonal");
        let groups: Vec<_> = status["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|g| (&g["name"], &g["nodes"]))
            .collect();
        assert_eq!(json!(groups), json!([["a", 2], ["b", 2]]));
        let ids: std::collections::BTreeSet<_> = status["slots"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["clusterID"].to_string())
            .collect();
        assert_eq!(ids.len(), 2, "{ids:?}");
        stage.routes_were_kept();

        let since = Timestamp::now();
        stage.node(9, "b").await;
        let joined = async || {
            let label = stage.bench.label("node-9", GROUP).await;
            (label.as_deref() == Some("b")).then_some(())
        };
        eventually("the group of a new node", joined).await;
        stage.converged("main", &["node-1", "node-2", "node-3", "node-4"]).await;
        let changes = stage.changes_since(since).await;
        assert_eq!(changes.len(), 1, "{changes:?}");
        let since = Timestamp::now();
        stage.cordon("node-1", true).await;
        stage
            .wait("node-5 in place of node-1", async || {
                let there = stage.reflectors().await;
                (there.values().any(|n| n == "node-5") && !there.values().any(|n| n == "node-1"))
                    .then_some(())
            })
            .await;
        // What a write changes is visible before its answer, and so before its line in the log.
        let both = async || {
            let written: Vec<_> =
                stage.changes_since(since).await.into_iter().map(|event| event.name).collect();
            (written == ["node-5", "node-1"]).then_some(())
        };
        stage.wait("two writes", both).await;
        stage.routes_were_kept();
    });
}
