//! Calico as other people's clusters have it.
use k8s_openapi::jiff::Timestamp;
use lab::calico::{self, Group};
use serde_json::json;

use super::{
    Stage,
    datastore::kind,
    stage::{ID, LABEL, two},
};
use crate::bench::run;

/// The API server refuses it by a rule of Calico's definitions, which may be known or not.
#[test]
fn a_mesh_that_may_not_be_switched_off_is_a_conflict_until_its_field_is_gone() {
    for version in ["v3.31.0", "v3.32.1"] {
        run(async |bench| {
            let stage = Stage::new(bench).await;
            stage.nodes(3).await;
            let default = || json!({"name": "default"});
            let information =
                kind(&stage.bench.client, stage.group, "ClusterInformation", "clusterinformations");
            let spec = json!({"datastoreReady": true, "calicoVersion": version});
            information.create("ClusterInformation", default(), spec).await;
            let mesh = json!({"nodeToNodeMeshEnabled": true, "nodeMeshMaxRestartTime": "300s"});
            stage.configurations().create("BGPConfiguration", default(), mesh).await;
            let operator = stage.operator().await;
            let since = Timestamp::now();
            stage.set("main", two(json!({"mesh": "Migrate"}))).await;
            let text = stage.condition("main", "Ready", "False", "Conflict").await;
            let command =
                r#"-p '{"spec":{"nodeMeshMaxRestartTime":null,"nodeToNodeMeshEnabled":false}}'"#;
            assert!(text.ends_with(command), "{text}");
            assert_eq!(stage.mesh().await, Some(true));
            for _ in 0..3 {
                stage.looks(&operator, "main", 1).await;
                let status = stage.status("main").await;
                let conditions = status["conditions"].as_array().expect("conditions");
                let ready = conditions.iter().find(|c| c["type"] == "Ready").expect("Ready");
                assert_eq!(ready["reason"], "Conflict", "{status:#}");
            }
            let writes = stage.bench.writes_since(since).await;
            let refused = writes.iter().filter(|w| w.resource.starts_with("bgpconfigurations"));
            assert_eq!(refused.count() > 0, version == "v3.31.0", "known before it is tried");
            let gone = json!({"spec": {"nodeMeshMaxRestartTime": null}});
            stage.configurations().patch("default", gone).await;
            stage.wait("the mesh off", async || (!stage.mesh().await?).then_some(())).await;
            stage.converged("main", &["node-1", "node-2"]).await;
            stage.condition("main", "Ready", "True", "Planned").await;
            stage.routes_were_kept();
        });
    }
}

#[test]
fn where_felix_programs_the_routes_nothing_is_written() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        stage.nodes(3).await;
        let pools = kind(&stage.bench.client, stage.group, "IPPool", "ippools");
        let pool = json!({"cidr": "10.1.0.0/16", "vxlanMode": "Always", "ipipMode": "Never"});
        pools.create("IPPool", json!({"name": "pods"}), pool).await;
        let operator = stage.operator().await;
        let since = Timestamp::now();
        stage.set("main", two(json!({"mesh": "Migrate"}))).await;
        let text = stage.condition("main", "Ready", "False", "RoutesByFelix").await;
        assert!(text.contains("every IPPool (pods;"), "{text}");
        stage.until_event("main", "RoutesByFelix").await;
        stage.condition("main", "RoutesSafe", "Unknown", "RoutesByFelix").await;
        stage.looks(&operator, "main", 3).await;
        assert_eq!(stage.changes_since(since).await, []);
        let idle =
            operator.metric("traffic_operator_routereflector_idle", &["name=\"main\""]).await;
        assert!((idle - 1.0).abs() < 0.1, "{idle}");
        // BIRD programs those of this one.
        let pool = json!({"cidr": "10.2.0.0/16", "vxlanMode": "Never", "ipipMode": "Always"});
        pools.create("IPPool", json!({"name": "more"}), pool).await;
        // Pools are read again within a minute, or with any change of the others.
        let mesh = json!({"nodeToNodeMeshEnabled": true});
        let default = json!({"name": "default"});
        stage.configurations().create("BGPConfiguration", default, mesh).await;
        stage.converged("main", &["node-1", "node-2"]).await;
        let text = stage.condition("main", "Ready", "True", "Planned").await;
        assert!(text.ends_with("and BGP does not: pods"), "{text}");
        stage.routes_were_kept();
    });
}

/// Reflectors made by hand, as Calico documents it, with the settings of their sessions.
#[test]
fn reflectors_made_by_hand_keep_their_ids_and_the_settings_of_their_sessions() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        stage.nodes(4).await;
        for node in ["node-3", "node-4"] {
            let labels = json!({LABEL: "true"});
            let metadata = json!({"labels": labels, "annotations": {ID: "244.0.0.1"}});
            stage.patch_node(node, json!({"metadata": metadata})).await;
        }
        let default = json!({"name": "default"});
        let off = json!({"nodeToNodeMeshEnabled": false});
        stage.configurations().create("BGPConfiguration", default, off).await;
        let password = json!({"secretKeyRef": {"name": "bgp", "key": "rr"}});
        let spec = json!({
            "nodeSelector": "all()", "peerSelector": "calico-route-reflector == 'true'", "password": password,
            "keepaliveTime": "10s", "sourceAddress": "None",
        });
        let name = json!({"name": "peer-with-route-reflectors"});
        stage.peers().create("BGPPeer", name, spec.clone()).await;
        let carried = async || {
            let sessions = stage.birds.sessions();
            (sessions.len() == 4 && sessions.values().all(|n| *n > 1)).then_some(())
        };
        stage.wait("the sessions", carried).await;
        stage.birds.forget();
        let _operator = stage.operator().await;
        let since = Timestamp::now();
        stage.set("main", two(json!({"nodeLabel": "calico-route-reflector=true"}))).await;
        stage.converged("main", &["node-3", "node-4"]).await;
        let changes = stage.changes_since(since).await;
        let mut changed: Vec<_> = changes.iter().map(|c| c.name.as_str()).collect();
        // Both nodes at once.
        changed[..2].sort_unstable();
        assert_eq!(changed, ["node-3", "node-4", "rrs-to-rrs", "peer-to-rrs-1"]);
        for node in ["node-3", "node-4"] {
            assert_eq!(stage.marks().await[node][3], "244.0.0.1");
        }
        for ours in ["rrs-to-rrs", "peer-to-rrs-1"] {
            let peer = stage.peers().get(ours).await.expect("ours");
            for field in ["password", "keepaliveTime", "sourceAddress"] {
                assert_eq!(peer["spec"][field], spec[field], "{ours}: {peer:#}");
            }
        }
        let other = json!({"spec": {"keepaliveTime": "20s"}});
        stage.peers().patch("peer-with-route-reflectors", other).await;
        let text = stage.condition("main", "Ready", "False", "Conflict").await;
        assert!(text.contains("peer-with-route-reflectors (spec.keepaliveTime)"), "{text}");
        stage.peers().delete("peer-with-route-reflectors").await;
        stage.condition("main", "Ready", "True", "Planned").await;
        stage.routes_were_kept();
    });
}

/// Ours are a small part of them.
#[test]
fn a_mesh_becomes_reflectors_by_calicos_own_definitions() {
    run(async |bench| {
        calico::remove(&bench.client, Group::V1).await.expect("remove");
        calico::remove(&bench.client, Group::V3).await.expect("remove");
        calico::install_published(&bench.client).await.expect("install");
        let stage = Stage::bare(bench, Group::V1);
        stage.nodes(4).await;
        let default = || json!({"name": "default"});
        let information =
            kind(&stage.bench.client, stage.group, "ClusterInformation", "clusterinformations");
        let spec = json!({
            "datastoreReady": true, "calicoVersion": "v3.31.0", "clusterGUID": "x",
            "clusterType": "k8s,bgp,kdd,typha",
        });
        information.create("ClusterInformation", default(), spec).await;
        let spec = json!({
            "nodeToNodeMeshEnabled": true, "asNumber": 64512, "logSeverityScreen": "Info",
            "nodeMeshMaxRestartTime": "300s", "serviceClusterIPs": [{"cidr": "10.96.0.0/12"}],
        });
        stage.configurations().create("BGPConfiguration", default(), spec).await;
        let pools = kind(&stage.bench.client, stage.group, "IPPool", "ippools");
        let spec = json!({"cidr": "10.1.0.0/16", "ipipMode": "Always", "nodeSelector": "all()"});
        pools.create("IPPool", json!({"name": "pods"}), spec).await;
        let spec = json!({
            "peerIP": "192.0.2.1", "asNumber": 65001, "nodeSelector": "rack == 'r1'",
            "password": {"secretKeyRef": {"name": "bgp", "key": "tor"}}, "maxRestartTime": "60s",
            "sourceAddress": "None", "numAllowedLocalASNumbers": 1, "filters": ["pods"],
        });
        stage.peers().create("BGPPeer", json!({"name": "tor"}), spec).await;
        let _operator = stage.operator().await;
        stage.set("main", two(json!({"mesh": "Migrate"}))).await;
        stage.converged("main", &["node-1", "node-2"]).await;
        assert_eq!(stage.mesh().await, Some(false));
        let text = stage.condition("main", "Ready", "True", "Planned").await;
        assert_eq!(text, "2 reflectors in topology Simple");
        let peer = stage.peers().get("rrs-to-rrs").await.expect("ours");
        assert_eq!(peer["spec"]["maxRestartTime"], "300s");
        stage.routes_were_kept();
        for group in [Group::V1, Group::V3] {
            calico::remove(&stage.bench.client, group).await.expect("remove");
        }
    });
}
