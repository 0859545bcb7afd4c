//! Calico as other people's clusters have it.
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{Stage, datastore::kind, stage::two};
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
