//! From the mesh to reflectors, and the reports of each step.
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Stage,
    stage::{ID, LABEL, SLOT, two},
};
use crate::bench::run;

/// Rule 4; R8: label, slot and cluster id are one patch; bugs 8 and 21: the original refreshed its
/// peers in every pass, and never finished.
#[test]
fn from_the_mesh_to_reflectors_by_few_writes_the_mesh_last_and_then_silence() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        stage.nodes(4).await;
        let operator = stage.operator().await;
        let since = Timestamp::now();
        stage.set("main", two(json!({"mesh": "Migrate"}))).await;
        stage.converged("main", &["node-1", "node-2"]).await;
        let changes = stage.changes_since(since).await;
        let written: Vec<_> = changes
            .iter()
            .map(|e| (e.verb.as_str(), e.resource.split('.').next().unwrap(), e.name.as_str()))
            .collect();
        let expected = [
            ("create", "bgppeers", "rrs-to-rrs"),
            ("create", "bgppeers", "peer-to-rrs-1"),
            ("patch", "nodes", "node-1"),
            ("patch", "nodes", "node-2"),
            ("create", "bgpconfigurations", "default"),
        ];
        assert_eq!(written, expected);
        stage.routes_were_kept();

        let marks = stage.marks().await;
        let expected = json!({
            "node-1": ["", "0", null, "224.0.0.0"], "node-2": ["", "1", null, "224.0.0.0"],
        });
        assert_eq!(json!(marks), expected, "{LABEL}, {SLOT}, group, {ID}");
        assert_eq!(stage.peers().names().await, ["peer-to-rrs-1", "rrs-to-rrs"]);
        let sessions = json!({"node-1": 3, "node-2": 3, "node-3": 2, "node-4": 2});
        assert_eq!(json!(stage.birds.sessions()), sessions);

        let status = stage.status("main").await;
        for (at, value) in [
            ("/desired", json!(2)),
            ("/ready", json!(2)),
            ("/topology", json!("Simple")),
            ("/mesh", json!("Off")),
            ("/datastore", json!("crd.projectcalico.org/v1")),
            ("/plan", json!([])),
            ("/slots/0/node", json!("node-1")),
            ("/slots/0/zone", json!("a")),
            ("/slots/1/clusterID", json!("224.0.0.0")),
        ] {
            assert_eq!(status.pointer(at), Some(&value), "{at}: {status:#}");
        }
        // As kubectl requests it: the last column is the age.
        let request = http::Request::get("/apis/traffic.example.com/v1alpha1/routereflectorsets")
            .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(vec![])
            .expect("request");
        let table: Value = stage.bench.client.request(request).await.expect("table");
        let cells = table["rows"][0]["cells"].as_array().expect("cells");
        let expected =
            json!(["main", "True", "Planned", 2, 2, "Simple", "Converged", "Off", "True"]);
        assert_eq!(json!(cells[..9]), expected);
        stage.condition("main", "Ready", "True", "Planned").await;
        stage.condition("main", "RoutesSafe", "True", "Redundant").await;
        let note = stage.until_event("main", "MeshSwitched").await;
        assert_eq!(note, "the node-to-node mesh is off");
        stage.until_event("main", "PeerWritten").await;
        let note = stage.until_event("main", "Promoted").await;
        assert!(note.contains("takes slot") && note.contains("cluster id 224.0.0.0"), "{note}");

        let (since, before) = (Timestamp::now(), stage.status("main").await);
        stage.looks(&operator, "main", 4).await;
        let writes = stage.bench.writes_since(since).await;
        let after = stage.status("main").await;
        assert!(writes.is_empty(), "{writes:?}\n{before:#}\n{after:#}");
        let name = ["name=\"main\""];
        let missing = "traffic_operator_routereflector_routes_missing";
        assert!(operator.metric(missing, &name).await.abs() < 0.1);
    });
}
