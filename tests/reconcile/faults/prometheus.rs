//! A fault of the way to Prometheus that costs memory; the tests of the client have the others.
use k8s_openapi::jiff::Timestamp;
use lab::fault::{Fault, Proxy, Rule};
use serde_json::json;

use crate::{
    bench::{eventually, run},
    prometheus::Sample,
    traffic_watch::judging::{KEY, three_nodes},
};

#[test]
fn a_compressed_answer_is_bounded_by_what_it_becomes() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.prometheus.set("node-2", Sample::percent("90"));
        bench.watch("web", json!({})).await;
        let proxy = Proxy::before(&bench.prometheus.url).await.expect("proxy");
        let args = ["--lease-duration", "15s", "--identity", "operator-1"];
        let operator = bench.operator_args(&["--prometheus-url", proxy.url()], &args);
        bench.until_label("node-2", KEY, Some("true")).await;
        let (since, before) = (Timestamp::now(), operator.peak());
        proxy.set([Rule::new(Fault::Bomb(256))]);
        // Whatever the reason is.
        let doubted = async || {
            let found = bench.condition_in("default", "web", "MetricsAvailable").await?;
            (found["status"] == "False").then_some(())
        };
        eventually("a bomb", doubted).await;
        bench.prometheus.set("node-2", Sample::percent("1"));
        operator.passes("trafficwatch", 3).await;
        let writes = bench.writes_since(since).await;
        assert!(writes.iter().all(|w| w.resource != "nodes"), "{writes:?}");
        let more = operator.peak().saturating_sub(before) >> 20;
        assert!(more < 128, "{more} MiB more for answers of 256 MiB");
        proxy.clear();
        bench.until_label("node-2", KEY, Some("false")).await;
        assert_eq!(operator.terminate().await, Some(0));
    });
}
