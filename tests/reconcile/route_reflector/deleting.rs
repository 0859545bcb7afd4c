//! Objects that remain when a set is deleted, and the set that takes over.
use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;
use serde_json::json;

use super::{
    Stage,
    stage::{LABEL, two},
};
use crate::bench::{eventually, run};

#[test]
fn what_retain_leaves_a_new_set_takes_over_without_a_change() {
    run(async |bench| {
        let (stage, _operator) = Stage::served(bench, 4, json!({"mesh": "Migrate"})).await;
        // The puppet polls: it must have seen the mesh go.
        let seen = async || (stage.birds.sessions().values().sum::<u32>() == 10).then_some(());
        eventually("the sessions of the mesh closed", seen).await;
        let sessions = stage.birds.sessions();
        let since = Timestamp::now();
        stage.delete("main").await;
        stage.set("next", two(json!({"mesh": "Migrate"}))).await;
        stage.converged("next", &["node-1", "node-2"]).await;
        assert_eq!(stage.changes_since(since).await, []);
        assert_eq!(stage.birds.sessions(), sessions);
        assert_eq!(stage.mesh().await, Some(false));
        // The peer belongs to the new set: if another client changes it, it is repaired.
        let drift = json!({"spec": {"peerSelector": "all()"}});
        stage.birds.control(|birds| birds.careless = true);
        stage.peers().patch("peer-to-rrs-1", drift).await;
        stage
            .wait("the peer to be repaired", async || {
                let peer = stage.peers().get("peer-to-rrs-1").await?;
                (peer["spec"]["peerSelector"] == format!("has({LABEL})")).then_some(())
            })
            .await;
    });
}

#[test]
fn restore_mesh_brings_the_mesh_back_before_anything_goes() {
    run(async |bench| {
        let spec = json!({"mesh": "Migrate", "deletionPolicy": "RestoreMesh"});
        let (stage, operator) = Stage::served(bench, 4, spec).await;
        // The restored mesh cannot be verified: nothing is removed.
        stage.birds.control(|birds| {
            birds.lacking.insert("node-4".into(), 1);
        });
        let since = Timestamp::now();
        stage.sets().delete("main", &DeleteParams::default()).await.expect("delete");
        stage.wait("the mesh", async || (stage.mesh().await == Some(true)).then_some(())).await;
        let gauge = async |name: &str, label: &str| {
            let name = format!("traffic_operator_routereflector_{name}");
            operator.metric(&name, &["name=\"main\"", label]).await
        };
        let waits = async || (gauge("waiting_seconds", "").await > 5.0).then_some(());
        stage.wait("the gate to have been shut for a while", waits).await;
        // The steps back are reported as they happen.
        let reported = [
            gauge("slots", "state=\"leaving\"").await,
            gauge("mesh", "").await,
            gauge("desired", "").await,
        ];
        let as_it_is =
            reported.iter().zip([2.0, 1.0, 0.0]).all(|(reported, is)| (reported - is).abs() < 0.1);
        assert!(as_it_is, "{reported:?}");
        let (marks, peers) = (stage.marks().await, stage.peers().names().await);
        assert_eq!((marks.len(), peers.len()), (2, 2), "{marks:?} {peers:?}");
        // Another process continues where this one stopped.
        drop(operator);
        let _operator = stage.operator().await;
        stage.birds.control(|birds| birds.lacking.clear());
        stage.until_gone("main").await;
        assert_eq!(json!(stage.marks().await), json!({}));
        assert_eq!(stage.peers().names().await, <[&str; 0]>::default());
        let changes = stage.changes_since(since).await;
        let written: Vec<_> = changes
            .iter()
            .map(|e| (e.verb.as_str(), e.resource.split('.').next().unwrap(), e.name.as_str()))
            .collect();
        assert_eq!(written[0], ("patch", "bgpconfigurations", "default"));
        assert_eq!(written.len(), 5, "{written:?}");
        assert_eq!(written.iter().filter(|(verb, ..)| *verb == "delete").count(), 2);
        assert!(stage.birds.sessions().values().all(|sessions| *sessions == 3));
        stage.routes_were_kept();
    });
}

/// Rule 9.
#[test]
fn of_two_sets_the_older_is_served_and_the_younger_takes_over_when_it_goes() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        stage.nodes(4).await;
        let _operator = stage.operator().await;
        stage.set("a", two(json!({}))).await;
        stage.converged("a", &["node-1", "node-2"]).await;
        let since = Timestamp::now();
        let spec = json!({"count": {"min": 3, "max": 3}, "topology": "Simple"});
        stage.set("b", spec).await;
        let text = stage.condition("b", "Ready", "False", "Conflict").await;
        assert_eq!(
            text,
            "the cluster is served by the older RouteReflectorSet a; only one can be active"
        );
        assert_eq!(stage.changes_since(since).await, []);
        stage.delete("a").await;
        stage.converged("b", &["node-1", "node-2", "node-3"]).await;
        stage.routes_were_kept();
    });
}

/// Rule 10: a missing endpoint does not keep a set from being deleted.
#[test]
fn a_deletion_goes_on_though_the_gate_has_no_endpoint() {
    run(async |bench| {
        let (stage, _operator) =
            Stage::served(bench, 3, json!({"mesh": "Migrate", "deletionPolicy": "RestoreMesh"}))
                .await;
        stage.change("main", json!({"transition": {"prometheus": "elsewhere"}})).await;
        stage.condition("main", "Ready", "False", "InvalidSpec").await;
        stage.sets().delete("main", &DeleteParams::default()).await.expect("delete");
        // This step needs no gate; the next one waits for it, and the condition shows that.
        stage.wait("the mesh", async || (stage.mesh().await == Some(true)).then_some(())).await;
        let reported = async || {
            let text = stage.condition("main", "Ready", "Unknown", "RestoringMesh").await;
            text.contains("no endpoint \"elsewhere\" is configured").then_some(())
        };
        stage.wait("what the gate lacks", reported).await;
        stage.change("main", json!({"transition": {"prometheus": "default"}})).await;
        stage.until_gone("main").await;
        assert_eq!(json!(stage.marks().await), json!({}));
        stage.routes_were_kept();
    });
}
