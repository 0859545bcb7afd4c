//! An API server that is slow, or behind a slow line.
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use lab::fault::{Fault, Rule, Wire};
use serde_json::json;

use super::{edit, staged, start};
use crate::{
    bench::{eventually, run},
    prometheus::Sample,
    traffic_watch::judging::{KEY, three_nodes},
};

#[test]
fn answers_that_take_seconds_delay_a_decision_and_repeat_none() {
    staged("60s", async |mut stage| {
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

/// Of fifty marks that take 5 s each, eight at a time, the last would be written after half a
/// minute, when the nodes have long recovered.
#[test]
fn marks_are_not_written_when_their_judgment_is_over() {
    run(async |bench| {
        let nodes: Vec<_> = (0..100).map(|i| format!("slow-{i}")).collect();
        for name in &nodes {
            bench.node(name).await;
            bench.prometheus.set(name, Sample::percent("1"));
        }
        let spec = json!({"interval": "2s", "consecutive": {"unfit": 1, "fit": 1}});
        bench.watch("web", spec).await;
        let proxy = bench.proxy().await;
        let operator = start(&bench, &proxy, "60s", "operator-1");
        bench.until("web", &[("/summary/fit", json!(100))]).await;
        for name in &nodes {
            bench.until_label(name, KEY, Some("false")).await;
        }
        let delay = Fault::Delay(Duration::from_secs(5), Duration::from_secs(5));
        proxy.set([Rule::new(delay).resource("nodes").verbs(&["patch"])]);
        let since = Timestamp::now();
        for name in &nodes {
            bench.prometheus.set(name, Sample::percent("99"));
        }
        // The nodes recover while the first marks are written.
        let marked = ListParams::default().labels(&format!("{KEY}=true"));
        let any = async || {
            let nodes = bench.nodes().list(&marked).await.ok()?;
            nodes.items.first().map(drop)
        };
        eventually("a mark", any).await;
        for name in &nodes {
            bench.prometheus.set(name, Sample::percent("1"));
        }
        bench.until("web", &[("/summary/unfit", json!(50))]).await;
        bench.until("web", &[("/summary/unfit", json!(0)), ("/summary/fit", json!(100))]).await;
        for name in &nodes {
            bench.until_label(name, KEY, Some("false")).await;
        }
        let writes = bench.writes_since(since).await;
        let marks = writes.iter().filter(|write| write.resource == "nodes").count() / 2;
        assert!((1..=30).contains(&marks), "{marks} of 50 marks written");
        assert_eq!(operator.terminate().await, Some(0));
    });
}

/// The first page takes longer than a request may, and makes progress all the time.
#[test]
fn a_slow_line_delays_the_first_judgment_and_no_more() {
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
