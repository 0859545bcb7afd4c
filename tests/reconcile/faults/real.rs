//! Real faults, where others are injected: processes that are killed, and a name that nobody has.
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::Stage;
use crate::{
    bench::{eventually, run},
    prometheus::Sample,
    traffic_watch::judging::{KEY, three_nodes},
};

/// The time for which a component is away: longer than several intervals and retries.
const AWAY: Duration = Duration::from_secs(5);

/// Kills a component of the control plane, and starts it again on the same data.
async fn dies_and_comes_back(stage: &Stage, component: &str) {
    stage.bench.plane().kill(component).expect("kill");
    stage.measures("1");
    tokio::time::sleep(AWAY).await;
    stage.bench.plane().restart(component).await.expect("restart");
    let back = async || stage.bench.nodes().get("node-2").await.ok();
    eventually("the API server to be back", back).await;
}

#[test]
fn a02b_an_api_server_that_is_killed_and_started_again_finds_the_operator_judging() {
    run(async |bench| {
        let mut stage = Stage::new(bench, "60s").await;
        dies_and_comes_back(&stage, "kube-apiserver").await;
        stage.assert_alive().await;
        stage.recovers().await;
    });
}

#[test]
fn a04b_an_etcd_that_is_killed_and_started_again_changes_nothing() {
    run(async |bench| {
        let mut stage = Stage::new(bench, "60s").await;
        dies_and_comes_back(&stage, "etcd").await;
        stage.assert_alive().await;
        stage.recovers().await;
    });
}

/// No server of the name service has a name below `invalid`.
#[test]
fn p01b_a_prometheus_whose_name_is_unknown_changes_no_label() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.prometheus.set("node-2", Sample::percent("90"));
        bench.watch("web", json!({})).await;
        let operator = bench.operator();
        bench.until_label("node-2", KEY, Some("true")).await;
        assert_eq!(operator.terminate().await, Some(0));
        bench.prometheus.set("node-2", Sample::percent("1"));
        let since = Timestamp::now();
        let args = ["--lease-duration", "5s", "--identity", "operator-1"];
        let url = "http://prometheus.monitoring.invalid:9090";
        let operator = bench.operator_args(&["--prometheus-url", url], &args);
        operator.ready().await;
        let text =
            bench.condition("web", "MetricsAvailable", "False", "PrometheusUnreachable").await;
        assert!(text.contains("prometheus.monitoring.invalid"), "{text}");
        operator.passes("trafficwatch", 3).await;
        let writes = bench.writes_since(since).await;
        assert!(writes.iter().all(|write| write.resource != "nodes"), "{writes:?}");
        assert_eq!(bench.label("node-2", KEY).await.as_deref(), Some("true"));
        assert_eq!(operator.terminate().await, Some(0));
        let _operator = bench.operator();
        bench.until_label("node-2", KEY, Some("false")).await;
    });
}
