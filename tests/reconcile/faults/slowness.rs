//! An API server that is slow, or behind a slow line.
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use lab::fault::{Fault, Rule, Wire};
use serde_json::json;

use super::{Stage, edit, start};
use crate::{
    bench::run,
    prometheus::Sample,
    traffic_watch::judging::{KEY, three_nodes},
};

#[test]
fn a16_answers_that_take_seconds_delay_a_decision_and_repeat_none() {
    run(async |bench| {
        let mut stage = Stage::new(bench, "60s").await;
        let delay = |least, most| {
            Rule::new(Fault::Delay(Duration::from_secs(least), Duration::from_secs(most)))
        };
        // The first rule that applies decides.
        stage.proxy.set([delay(0, 1).resource("leases"), delay(1, 7)]);
        stage.measures("1");
        stage.bench.until_label("node-2", KEY, Some("false")).await;
        stage.assert_alive().await;
        stage.recovers().await;
    });
}

/// The first page takes longer than a request may, and makes progress all the time: see
/// docs/operations/faults.md.
#[test]
fn a17_a_slow_line_delays_the_first_judgment_and_no_more() {
    run(async |bench| {
        three_nodes(&bench).await;
        // 600 kB of nodes, whatever of them is asked for.
        let large = json!({"metadata": {"annotations": {"example.com/large": "x".repeat(20_000)}}});
        for i in 0..30 {
            let name = format!("large-{i}");
            bench.node(&name).await;
            edit(&bench, &name, large.clone()).await;
            bench.prometheus.set(&name, Sample::percent("10"));
        }
        bench.prometheus.set("node-2", Sample::percent("90"));
        bench.watch("web", json!({})).await;
        let proxy = bench.proxy().await;
        proxy.wire(Wire::Slow(50_000));
        let operator = start(&bench, &proxy, "30s", "operator-1");
        bench.until_label("node-2", KEY, Some("true")).await;
        bench.until("web", &[("/ready", json!(true)), ("/summary/nodes", json!(33))]).await;
        let since = Timestamp::now();
        proxy.wire(Wire::Open);
        bench.judgments(3).await;
        assert_eq!(super::written(&bench, since, "node-2").await, 0);
        assert_eq!(operator.terminate().await, Some(0));
    });
}
