//! `candidates.fitnessRef`: a TrafficWatch reports overloaded links.
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{Stage, stage::two};
use crate::{bench::run, prometheus::Sample};

/// Rule 1.
#[test]
fn an_unfit_reflector_is_replaced_and_none_while_nothing_is_measured() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        stage.nodes(4).await;
        let all = ["node-1", "node-2", "node-3", "node-4"];
        for node in all {
            stage.bench.prometheus.set(node, Sample::percent("1"));
        }
        stage.bench.watch("load", json!({})).await;
        let operator = stage.operator().await;
        stage.bench.condition("load", "Ready", "True", "Judged").await;
        let fitness = json!({"namespace": "default", "name": "load"});
        let candidates = json!({"fitnessRef": fitness, "demoteAfter": "3s"});
        stage.set("main", two(json!({"mesh": "Migrate", "candidates": candidates}))).await;
        stage.converged("main", &["node-1", "node-2"]).await;
        stage.bench.prometheus.set("node-1", Sample::percent("99"));
        stage.converged("main", &["node-3", "node-2"]).await;
        // Another client marks it while the watch has no measurements.
        for node in all {
            stage.bench.prometheus.remove(node);
        }
        stage
            .wait("no measurement", async || {
                let status = stage.bench.status("load").await;
                let all = status["conditions"].as_array()?.clone();
                let c = all.into_iter().find(|c| c["type"] == "MetricsAvailable")?;
                (c["status"] != "True").then_some(())
            })
            .await;
        let since = Timestamp::now();
        let labels = json!({"load.traffic.example.com/unfit": "true"});
        stage.patch_node("node-2", json!({"metadata": {"labels": labels}})).await;
        // Longer than `demoteAfter`.
        tokio::time::sleep(Duration::from_secs(4)).await;
        stage.looks(&operator, "main", 3).await;
        let text = stage.condition("main", "Ready", "True", "Planned").await;
        let frozen = "no reflector is replaced for being unfit: TrafficWatch default/load has no measurement";
        assert!(text.ends_with(frozen), "{text}");
        assert_eq!(json!(stage.reflectors().await), json!({"0": "node-3", "1": "node-2"}));
        let nodes = stage.changes_since(since).await.into_iter().filter(|e| e.resource != "nodes");
        assert_eq!(nodes.filter(|e| e.resource.contains("projectcalico")).count(), 0);
        stage.routes_were_kept();
    });
}
