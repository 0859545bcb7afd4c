//! Faults of Prometheus and of the way to it: no doubt changes a label.
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use lab::fault::{Fault, Proxy, Rule, Wire};
use serde_json::json;

use crate::{
    bench::{Bench, Operator, eventually, run},
    prometheus::Sample,
    traffic_watch::judging::{KEY, three_nodes},
};

/// Starts an operator behind a proxy before Prometheus, and waits until node-2 is unfit.
async fn stage(bench: &Bench) -> (Operator, Proxy) {
    three_nodes(bench).await;
    bench.prometheus.set("node-2", Sample::percent("90"));
    bench.watch("web", json!({})).await;
    let proxy = Proxy::before(&bench.prometheus.url).await.expect("proxy");
    let args = ["--lease-duration", "5s", "--identity", "operator-1"];
    let operator = bench.operator_args(&["--prometheus-url", proxy.url()], &args);
    bench.until("web", &[("/ready", json!(true)), ("/summary/unfit", json!(1))]).await;
    bench.until_label("node-2", KEY, Some("true")).await;
    (operator, proxy)
}

/// Waits until the answers are not believed, whatever the reason is.
async fn until_doubted(bench: &Bench, what: &str) {
    let doubted = async || {
        let status = bench.status("web").await;
        let conditions = status["conditions"].as_array()?.clone();
        let found = conditions.into_iter().find(|c| c["type"] == "MetricsAvailable")?;
        (found["status"] == "False").then_some(())
    };
    eventually(what, doubted).await;
}

/// Asserts that no label changed since then, though node-2 is measured as fit.
async fn assert_held(bench: &Bench, since: Timestamp) {
    let writes = bench.writes_since(since).await;
    assert!(writes.iter().all(|w| w.resource != "nodes"), "{writes:?}");
    assert_eq!(bench.label("node-2", KEY).await.as_deref(), Some("true"));
}

/// Asserts that judging goes on by itself.
async fn assert_resumes(bench: &Bench) {
    bench.condition("web", "MetricsAvailable", "True", "Available").await;
    bench.until_label("node-2", KEY, Some("false")).await;
    bench.prometheus.set("node-2", Sample::percent("90"));
    bench.until_label("node-2", KEY, Some("true")).await;
}

#[test]
fn nobody_listens_where_prometheus_was() {
    run(async |bench| {
        let (operator, proxy) = stage(&bench).await;
        for (wire, reason) in
            [(Wire::Refused, "PrometheusUnreachable"), (Wire::Silent, "PrometheusTimeout")]
        {
            let since = Timestamp::now();
            proxy.wire(wire);
            bench.condition("web", "MetricsAvailable", "False", reason).await;
            bench.prometheus.set("node-2", Sample::percent("1"));
            operator.passes("trafficwatch", 3).await;
            assert_held(&bench, since).await;
            proxy.wire(Wire::Open);
            assert_resumes(&bench).await;
        }
        assert_eq!(operator.terminate().await, Some(0));
    });
}

#[test]
fn an_answer_that_trickles_or_breaks_off_is_no_answer() {
    run(async |bench| {
        let (operator, proxy) = stage(&bench).await;
        for fault in [Fault::Trickle(Duration::from_secs(1)), Fault::Cut(120), Fault::Cut(0)] {
            let (since, what) = (Timestamp::now(), format!("{fault:?}"));
            proxy.set([Rule::new(fault)]);
            until_doubted(&bench, &what).await;
            bench.prometheus.set("node-2", Sample::percent("1"));
            operator.passes("trafficwatch", 3).await;
            assert_held(&bench, since).await;
            proxy.clear();
            assert_resumes(&bench).await;
        }
        assert_eq!(operator.terminate().await, Some(0));
    });
}

#[test]
fn a_number_beyond_all_numbers_is_no_sample() {
    run(async |bench| {
        let (operator, _proxy) = stage(&bench).await;
        for (percent, bytes) in [("1e400", "1"), ("-1e400", "1"), ("1", "NaN"), ("0x1p-2", "1")] {
            let since = Timestamp::now();
            let sample = Sample { percent: Some(percent), bytes: Some(bytes), age: Some("1") };
            bench.prometheus.set("node-2", sample);
            // Either the one sample is invalid or, where it is no number at all, the answer.
            let unknown = ("/nodes/node-2/state", json!("Unknown"));
            bench.until("web", &[unknown, ("/nodes/node-2/unfit", json!(true))]).await;
            bench.judgments(4).await;
            assert_held(&bench, since).await;
            bench.prometheus.set("node-2", Sample::percent("90"));
            bench.until("web", &[("/nodes/node-2/state", json!("Unfit"))]).await;
        }
        assert_eq!(operator.terminate().await, Some(0));
    });
}

/// Returns the peak memory of the process in bytes.
fn peak(operator: &Operator) -> u64 {
    let path = format!("/proc/{}/status", operator.child.id());
    let status = std::fs::read_to_string(path).expect("status");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
    let kib: u64 = line.split_whitespace().nth(1).expect("a figure").parse().expect("a figure");
    kib << 10
}

#[test]
fn a_compressed_answer_is_bounded_by_what_it_becomes() {
    run(async |bench| {
        let (operator, proxy) = stage(&bench).await;
        let since = Timestamp::now();
        let before = peak(&operator);
        proxy.set([Rule::new(Fault::Bomb(256))]);
        until_doubted(&bench, "a bomb").await;
        bench.prometheus.set("node-2", Sample::percent("1"));
        operator.passes("trafficwatch", 3).await;
        assert_held(&bench, since).await;
        let more = peak(&operator).saturating_sub(before) >> 20;
        assert!(more < 128, "{more} MiB more for answers of 256 MiB");
        proxy.clear();
        assert_resumes(&bench).await;
        assert_eq!(operator.terminate().await, Some(0));
    });
}

/// Every exporter restarts at once: rates of all nodes are negative or absent.
#[test]
fn a_counter_reset_on_all_nodes_judges_none_of_them() {
    run(async |bench| {
        let (operator, _proxy) = stage(&bench).await;
        let since = Timestamp::now();
        for node in ["node-1", "node-2", "node-3"] {
            let reset = Sample { percent: Some("-3.1"), bytes: Some("-9"), age: Some("1") };
            bench.prometheus.set(node, reset);
        }
        bench.until("web", &[("/summary/unknown", json!(3))]).await;
        bench.judgments(4).await;
        assert_held(&bench, since).await;
        for node in ["node-1", "node-2", "node-3"] {
            bench.prometheus.set(node, Sample::percent("1"));
        }
        assert_resumes(&bench).await;
        assert_eq!(operator.terminate().await, Some(0));
    });
}

/// The clock of Prometheus, or of what it scrapes, is an hour off in either direction.
#[test]
fn samples_of_another_hour_are_no_evidence() {
    run(async |bench| {
        let (operator, _proxy) = stage(&bench).await;
        for age in ["3600", "-3600"] {
            let since = Timestamp::now();
            for node in ["node-1", "node-2", "node-3"] {
                let sample = Sample { percent: Some("1"), bytes: Some("1"), age: Some(age) };
                bench.prometheus.set(node, sample);
            }
            bench.until("web", &[("/summary/unknown", json!(3))]).await;
            bench.judgments(4).await;
            assert_held(&bench, since).await;
            for node in ["node-1", "node-2", "node-3"] {
                bench.prometheus.set(node, Sample::percent("1"));
            }
            assert_resumes(&bench).await;
        }
        assert_eq!(operator.terminate().await, Some(0));
    });
}
