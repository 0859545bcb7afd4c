//! Reflectors and mesh go where no route depends on BGP.
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{Stage, datastore::kind, stage::is_converged};
use crate::bench::run;

/// Longer than `transition.wait`, the shortest that there is.
const PATIENCE: Duration = Duration::from_mins(2);

#[test]
fn reflectors_stay_while_a_pool_needs_bgp_and_retire_when_none_does() {
    run(async |bench| {
        let (stage, operator) = Stage::served(bench, 4, json!({"mesh": "Migrate"})).await;
        let pools = kind(&stage.bench.client, stage.group, "IPPool", "ippools");
        let pool = json!({"cidr": "10.1.0.0/16", "vxlanMode": "Never", "ipipMode": "Never"});
        pools.create("IPPool", json!({"name": "pods"}), pool).await;
        let theirs = json!({"nodeSelector": "all()", "peerIP": "192.0.2.1", "asNumber": 64999});
        stage.peers().create("BGPPeer", json!({"name": "tor"}), theirs).await;
        let both = json!({"mesh": "Retire", "deletionPolicy": "RestoreMesh"});
        let refused = stage.try_set("both", both).await.expect_err("a contradiction").to_string();
        assert!(refused.contains("spec.mesh: Retire switches the mesh off"), "{refused}");

        let since = Timestamp::now();
        let retire = json!({"mesh": "Retire", "transition": {"wait": "60s"}});
        stage.change("main", retire).await;
        let text = stage.condition("main", "Ready", "False", "PlanRefused").await;
        assert!(text.contains("BIRD programs the routes of these IPPools: pods;"), "{text}");
        stage.condition("main", "Converged", "False", "PlanRefused").await;
        stage.until_event("main", "PlanRefused").await;
        stage.looks(&operator, "main", 3).await;
        assert_eq!(stage.changes_since(since).await, []);
        stage.routes_were_kept();

        // From now on the routes of BGP are nobody's.
        stage.birds.control(|controls| controls.careless = true);
        let began = Instant::now();
        pools.patch("pods", json!({"spec": {"vxlanMode": "Always"}})).await;
        stage.looks(&operator, "main", 1).await;
        let text = stage.condition("main", "Converged", "False", "WaitingForRoutes").await;
        assert!(text.ends_with("less than transition.wait"), "{text}");
        assert_eq!(stage.status("main").await["meshBefore"], "Off");
        while !is_converged(&stage.status("main").await) {
            assert!(began.elapsed() < PATIENCE, "{}", stage.state().await);
            tokio::time::sleep(Duration::from_secs(1)).await;
            stage.looks(&operator, "main", 1).await;
        }
        assert!(began.elapsed() >= Duration::from_mins(1), "{:?}", began.elapsed());
        let text = stage.condition("main", "Ready", "True", "Retired").await;
        assert!(text.ends_with("; BGPPeers of other owners stay: tor"), "{text}");
        stage.condition("main", "RoutesSafe", "True", "RoutesByFelix").await;
        stage.until_event("main", "Retired").await;
        let changes = stage.changes_since(since).await.into_iter();
        let ours = changes.filter(|change| !change.resource.starts_with("ippools"));
        let changed: Vec<_> = ours.map(|change| (change.verb, change.name)).collect();
        let expected = [
            ("delete", "peer-to-rrs-1"),
            ("delete", "rrs-to-rrs"),
            ("patch", "node-1"),
            ("patch", "node-2"),
        ];
        assert_eq!(changed, expected.map(|(verb, name)| (verb.to_owned(), name.to_owned())));
        assert_eq!(json!(stage.marks().await), json!({}));
        assert_eq!(stage.peers().names().await, ["tor"]);
        assert_eq!(stage.mesh().await, Some(false));
        let name = ["name=\"main\""];
        for (metric, expected) in [("retiring", 1.0), ("idle", 0.0), ("steps_left", 0.0)] {
            let metric = format!("traffic_operator_routereflector_{metric}");
            let value = operator.metric(&metric, &name).await;
            assert!((value - expected).abs() < 0.1, "{metric} {value}");
        }
        let (since, status) = (Timestamp::now(), stage.status("main").await);
        stage.looks(&operator, "main", 3).await;
        assert_eq!(stage.changes_since(since).await, []);
        assert_eq!(stage.status("main").await, status);

        // What served before serves again.
        pools.patch("pods", json!({"spec": {"vxlanMode": "Never"}})).await;
        stage.looks(&operator, "main", 1).await;
        let served = async || (stage.reflectors().await.len() == 2).then_some(());
        stage.wait("the reflectors", served).await;
        stage.condition("main", "Ready", "False", "PlanRefused").await;
        assert_eq!(stage.peers().names().await, ["peer-to-rrs-1", "rrs-to-rrs", "tor"]);
    });
}
