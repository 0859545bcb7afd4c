//! A tenant's permitted objects, from admission to the nodes and back to rest.
use std::time::Duration;

use k8s_openapi::{api::apps::v1::Deployment, jiff::Timestamp};
use kube::Api;
use serde_json::json;

use super::{Author, LABEL, TENANT, WATCH, refused};
use crate::{
    bench::{eventually, run},
    prometheus::Sample,
    traffic_watch::judging::{deployment, three_nodes},
};

/// Time without a write: many judgments, and less than the minute between two refreshes of a
/// status.
const QUIET: Duration = Duration::from_secs(20);

#[test]
fn a_tenant_judges_nodes_under_a_label_of_its_own_and_then_all_is_quiet() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.prometheus.set("node-2", Sample::percent("90"));
        let operator = bench.operator();
        let jane = Author::tenant(&bench, "jane-whole").await;
        let harm = json!({
            "taint": "NoSchedule", "maxBandwidthPercent": "0.0001", "maxUnfit": "100%", "minFit": 0,
        });
        refused(jane.create(WATCH, "web", harm).await, &["patch nodes"]);
        jane.create(WATCH, "web", json!({"deployment": deployment()})).await.expect("web");
        let key = format!("{LABEL}.traffic.example.com/unfit");
        bench.until_label("node-2", &key, Some("true")).await;
        bench.until_label("node-1", &key, Some("false")).await;
        let deployments = Api::<Deployment>::namespaced(bench.client.clone(), TENANT);
        eventually("the Deployment", async || deployments.get("web").await.ok()).await;
        let node = bench.nodes().get("node-2").await.expect("node");
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        assert!(taints.iter().all(|taint| taint.key != key), "{taints:?}");

        // Right after a refresh of the status there is no other one for a minute.
        let before = Timestamp::now();
        let refreshed = async || {
            let writes = bench.writes_since(before).await;
            writes.iter().any(|w| w.subresource == "status" && w.name == "web").then_some(())
        };
        bench.prometheus.set("node-2", Sample::percent("10"));
        bench.until_label("node-2", &key, Some("false")).await;
        eventually("the status", refreshed).await;
        let resting = async || {
            let since = Timestamp::now();
            bench.judgments(3).await;
            bench.writes_since(since).await.is_empty().then_some(())
        };
        eventually("rest", resting).await;
        let since = Timestamp::now();
        tokio::time::sleep(QUIET).await;
        let writes = bench.writes_since(since).await;
        assert!(writes.is_empty(), "{writes:?}");

        // The operator tried no write for the refused objects.
        let log = operator.log();
        assert!(!log.contains("is forbidden"), "{log}");
        jane.delete(WATCH, "web").await.expect("delete");
        bench.until_label("node-1", &key, None).await;
    });
}
