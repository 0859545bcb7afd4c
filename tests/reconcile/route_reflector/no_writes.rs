//! Times without any write, and objects that are never written.
use std::collections::BTreeMap;

use kube::{ResourceExt, api::ListParams};
use serde_json::{Value, json};

use super::{
    Stage,
    stage::{GROUP, ID, LABEL, SLOT, two},
};
use crate::bench::run;

/// Returns the foreign labels and annotations of nodes.
async fn foreign_of_nodes(stage: &Stage) -> BTreeMap<String, Value> {
    let nodes = stage.bench.nodes().list(&ListParams::default()).await.expect("nodes");
    let foreign = nodes.into_iter().map(|node| {
        let (mut labels, mut annotations) = (node.labels().clone(), node.annotations().clone());
        for key in [LABEL, SLOT, GROUP] {
            labels.remove(key);
        }
        annotations.remove(ID);
        // The node controller writes this one some time after the node is created.
        labels.remove("beta.kubernetes.io/os");
        annotations.remove("node.alpha.kubernetes.io/ttl");
        (node.name_any(), json!([labels, annotations]))
    });
    foreign.collect()
}

/// Rule 3; bug 1: the original deleted every BGPPeer that it had not generated. Bug 19: it crashed
/// on nodes without labels.
#[test]
fn what_is_not_ours_stays_byte_by_byte_from_the_first_step_to_the_last() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        stage.nodes(3).await;
        let own = json!({
            "labels": {"team": "net", "rr": "", "route-reflectors.example.com/slot": "7"},
            "annotations": {"projectcalico.org/IPv4IPIPTunnelAddr": "10.1.0.1", "note": "x"},
        });
        stage.patch_node("node-3", json!({"metadata": own})).await;
        stage.odd_node("node-4", 4, "", json!({"metadata": {"labels": null}})).await;
        let peers = stage.peers();
        let router = json!({"peerIP": "192.0.2.1", "asNumber": 65001});
        let shapes = [
            ("global", router.clone()),
            ("of-a-node", json!({"node": "node-2", "peerIP": "192.0.2.2:179", "asNumber": 65002})),
            ("of-a-rack", json!({"nodeSelector": "rack == 'r1'", "peerIP": "192.0.2.3", "x": [1]})),
            ("unreadable", json!({"nodeSelector": "a ==", "peerSelector": "has(b)"})),
            ("peer-to-rrs-7", json!({"nodeSelector": "team == 'x'", "peerSelector": "has(rr7)"})),
        ];
        for (name, spec) in &shapes {
            let labels = json!({"app.kubernetes.io/managed-by": "somebody"});
            peers.create("BGPPeer", json!({"name": name, "labels": labels}), spec.clone()).await;
        }
        let before = foreign_of_nodes(&stage).await;
        let mut snapshot = vec![];
        for (name, _) in &shapes {
            snapshot.push(peers.get(name).await);
        }
        let _operator = stage.operator().await;
        stage.set("main", two(json!({"mesh": "Migrate", "deletionPolicy": "RestoreMesh"}))).await;
        stage.converged("main", &["node-1", "node-2"]).await;
        let text = stage.condition("main", "Ready", "True", "Planned").await;
        let named =
            "BGPPeer unreadable (spec.nodeSelector at character 5: expected a text in quotes)";
        assert!(text.ends_with(named), "{text}");
        stage.cordon("node-1", true).await;
        stage.converged("main", &["node-3", "node-2"]).await;
        stage.delete("main").await;
        assert_eq!(json!(stage.marks().await), json!({}));
        assert_eq!(peers.names().await.len(), shapes.len());
        assert_eq!(foreign_of_nodes(&stage).await, before);
        for ((name, _), before) in shapes.iter().zip(snapshot) {
            assert_eq!(peers.get(name).await, before, "{name}");
        }
        stage.routes_were_kept();
    });
}
