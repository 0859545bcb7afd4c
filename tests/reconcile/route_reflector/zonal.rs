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

/// Four zones with two reflectors each: when both of one zone failed, nothing was written any more.
#[test]
fn both_reflectors_of_one_of_four_zones_are_replaced() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        for (number, zone) in (1..=16).zip(["a", "b", "c", "d"].into_iter().cycle()) {
            stage.node(number, zone).await;
        }
        let _operator = stage.operator().await;
        let candidates = json!({"replaceAfter": "1s"});
        let spec = json!({
            "count": {"min": 8, "max": 8}, "topology": "Zonal", "mesh": "Migrate", "candidates": candidates,
        });
        stage.set("main", spec).await;
        stage
            .wait("the mesh off", async || (stage.mesh().await == Some(false)).then_some(()))
            .await;
        let of_zone = |reflectors: &[String], zone: usize| {
            let number = |node: &String| node.trim_start_matches("node-").parse::<usize>().unwrap();
            reflectors.iter().filter(|node| (number(node) - 1) % 4 == zone).count()
        };
        let reflectors = async || stage.reflectors().await.into_values().collect::<Vec<_>>();
        let first = reflectors().await;
        assert!((0..4).all(|zone| of_zone(&first, zone) == 2), "{first:?}");
        stage.routes_were_kept();
        let since = Timestamp::now();
        // Routes are missing until they are replaced.
        stage.birds.control(|birds| birds.careless = true);
        for dead in ["node-1", "node-5"] {
            stage.birds.control(|birds| _ = birds.dead.insert(dead.to_owned()));
            stage.set_ready(dead, false, Timestamp::now()).await;
        }
        let replaced = async || {
            let now = reflectors().await;
            let dead = now.iter().any(|node| ["node-1", "node-5"].contains(&node.as_str()));
            (!dead && of_zone(&now, 0) == 2).then_some(now)
        };
        let then = stage.wait("both replaced", replaced).await;
        assert_eq!(then.len(), 8, "{then:?}");
        let changes = stage.changes_since(since).await.into_iter();
        let others: Vec<_> = changes.filter(|event| event.resource != "nodes").collect();
        assert_eq!(others, [], "no BGPPeer is written for a replacement");
    });
}
