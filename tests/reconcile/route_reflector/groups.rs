//! Calico in either API group, missing, and installed later; and its own reports of sessions.
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use lab::calico::{self, Group};
use serde_json::json;

use super::{
    Stage,
    datastore::{installed, kind},
    stage::{is_converged, two},
};
use crate::{bench::run, prometheus::Sample};

#[test]
fn without_calico_everything_else_goes_on_and_it_may_be_installed_later() {
    run(async |bench| {
        installed(&bench, &[]).await;
        let stage = Stage::bare(bench, Group::V3);
        stage.nodes(3).await;
        for (node, percent) in [("node-1", "99"), ("node-2", "1"), ("node-3", "1")] {
            stage.bench.prometheus.set(node, Sample::percent(percent));
        }
        stage.bench.watch("web", json!({})).await;
        let _operator = stage.operator().await;
        stage.set("main", two(json!({"mesh": "Migrate"}))).await;
        stage.condition("main", "Ready", "False", "CalicoNotFound").await;
        stage.bench.until_label("node-1", "web.traffic.example.com/unfit", Some("true")).await;
        calico::install(&stage.bench.client, Group::V3).await.expect("install");
        stage.converged("main", &["node-1", "node-2"]).await;
        let status = stage.status("main").await;
        assert_eq!(status["datastore"], "projectcalico.org/v3");
        assert_eq!(stage.mesh().await, Some(false));
        stage.routes_were_kept();
    });
}

/// They have no ports, although BIRD listens at another one here.
#[test]
fn calicos_own_reports_open_the_gate_and_are_gone_afterwards() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        stage.nodes(3).await;
        let port = json!({"nodeToNodeMeshEnabled": true, "listenPort": 178});
        let default = json!({"name": "default"});
        stage.configurations().create("BGPConfiguration", default, port).await;
        let _operator = stage.operator().await;
        let spec = json!({"mesh": "Migrate", "transition": {"gate": "NodeStatus"}});
        stage.set("main", two(spec)).await;
        let reports =
            || kind(&stage.bench.client, stage.group, "CalicoNodeStatus", "caliconodestatuses");
        let mut most = 0;
        stage
            .wait("the end", async || {
                let names = reports().names().await;
                most = most.max(names.len());
                let sessions = stage.birds.names();
                for name in names {
                    let node = name.trim_start_matches("traffic-operator-");
                    let now = format!("{:.0}", Timestamp::now());
                    let peer = |name: &String| {
                        let (kind, address) = name.split_once('_').expect("a kind");
                        let kind = if kind == "Mesh" { "NodeMesh" } else { "NodePeer" };
                        let address = address.replace('_', ".");
                        json!({"peerIP": address, "type": kind, "state": "Established"})
                    };
                    let peers: Vec<_> =
                        sessions.get(node).into_iter().flatten().map(peer).collect();
                    let status = json!({"lastUpdated": now, "bgp": {
                        "numberEstablishedV4": peers.len(), "numberNotEstablishedV4": 0,
                        "numberEstablishedV6": 0, "numberNotEstablishedV6": 0, "peersV4": peers,
                    }});
                    reports().try_patch(&name, json!({"status": status})).await;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
                let status = stage.status("main").await;
                let done = is_converged(&status);
                (done && stage.mesh().await == Some(false)).then_some(())
            })
            .await;
        assert!((1..=10).contains(&most), "{most}");
        let none = async || reports().names().await.is_empty().then_some(());
        stage.wait("no report left", none).await;
        stage.routes_were_kept();
    });
}
