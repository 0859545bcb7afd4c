//! The main job: labels follow the measured load, and the Deployment follows the labels.
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    bench::{Bench, eventually, run},
    prometheus::Sample,
};

pub const KEY: &str = "web.traffic.example.com/unfit";

/// Three nodes, all measured at 10 percent.
pub async fn three_nodes(bench: &Bench) {
    for node in ["node-1", "node-2", "node-3"] {
        bench.node(node).await;
        bench.prometheus.set(node, Sample::percent("10"));
    }
}

pub fn with_three_nodes<F: Future<Output = ()>>(test: impl FnOnce(Bench) -> F) {
    run(async |bench| {
        three_nodes(&bench).await;
        test(bench).await;
    });
}

pub async fn patch_spec(bench: &Bench, name: &str, spec: Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    bench.watches("default").patch(name, &PatchParams::default(), &patch).await.expect("patch");
}

pub fn deployment() -> Value {
    json!({
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web", "team": "a"}},
            "spec": {"containers": [{"name": "c", "image": "busybox:1.35"}]}
        }
    })
}

#[test]
fn a_loaded_node_is_marked_and_unmarked_and_the_deployment_waits_for_the_first_judgment() {
    with_three_nodes(async |bench| {
        bench.prometheus.set("node-2", Sample::percent("71.5"));
        bench.watch("web", json!({"deployment": deployment()})).await;
        let operator = bench.operator();
        let status = bench
            .until(
                "web",
                &[
                    ("/ready", json!(true)),
                    (
                        "/summary",
                        json!({"nodes": 3, "fit": 2, "unfit": 1, "unknown": 0, "suppressed": 0, "marked": 1}),
                    ),
                ],
            )
            .await;
        assert_eq!(bench.label("node-2", KEY).await.as_deref(), Some("true"));
        assert_eq!(bench.label("node-1", KEY).await.as_deref(), Some("false"));
        let node = &status["nodes"]["node-2"];
        assert_eq!(node["currentBandwidthPercent"], "7.15e+01");
        assert_eq!(node["currentTransmitTotal"], 281_814);
        assert_eq!((&node["unfit"], &node["state"]), (&json!(true), &json!("Unfit")));
        assert_eq!(node["device"], "eth0");
        let age = Timestamp::now().as_second() - node["time"].as_i64().unwrap();
        assert!((0..30).contains(&age), "{node}");
        bench.condition("web", "Ready", "True", "Judged").await;
        bench.condition("web", "MetricsAvailable", "True", "Available").await;

        let child =
            eventually("the Deployment", async || bench.deployments().get("web").await.ok()).await;
        let template = child.spec.unwrap().template;
        let labels = template.metadata.unwrap().labels.unwrap();
        assert_eq!(labels.get("team").map(String::as_str), Some("a"));
        let affinity = serde_json::to_value(template.spec.unwrap().affinity).unwrap();
        assert_eq!(
            affinity.pointer(
                "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"
            ),
            Some(&json!([
                {"matchExpressions": [{"key": KEY, "operator": "NotIn", "values": ["true"]}]},
                {"matchExpressions": [{
                    "key": "cluster-autoscaler.kubernetes.io/template-node",
                    "operator": "In", "values": ["true"],
                }]},
            ]))
        );

        // 54 is the recovery threshold: 55 keeps the mark, 54 ends it.
        bench.prometheus.set("node-2", Sample::percent("55"));
        bench.judgments(4).await;
        assert_eq!(bench.label("node-2", KEY).await.as_deref(), Some("true"));
        bench.prometheus.set("node-2", Sample::percent("54"));
        bench.until_label("node-2", KEY, Some("false")).await;
        for reason in ["NodeUnfit", "NodeFit"] {
            bench.until_event("web", reason, "node-2").await;
        }
        let fit = async || {
            let nodes = "traffic_operator_trafficwatch_nodes";
            let fit = operator.metric(nodes, &["state=\"Fit\""]).await;
            ((fit - 3.0).abs() < f64::EPSILON).then_some(())
        };
        eventually("three fit nodes in the metrics", fit).await;
        assert_eq!(operator.terminate().await, Some(0));
    });
}

#[test]
fn twenty_watches_that_share_a_measurement_cost_one_request_and_no_write_when_nothing_changes() {
    with_three_nodes(async |bench| {
        for i in 0..20 {
            bench.watch(&format!("web-{i}"), json!({"interval": "2s"})).await;
        }
        let args = ["--lease-duration", "15s", "--trafficwatches-per-namespace", "0"];
        let operator = bench.operator_args(&["--prometheus-url", &bench.prometheus.url], &args);
        for i in 0..20 {
            bench.until(&format!("web-{i}"), &[("/ready", json!(true))]).await;
        }
        bench.judgments(2).await;
        let (since, before) = (Timestamp::now(), bench.prometheus.requests().len());
        let began = Instant::now();
        bench.judgments(10).await;
        let (requests, time) = (bench.prometheus.requests().len() - before, began.elapsed());
        // One for each interval, whether the machine is fast or slow, and one at each end.
        let intervals = usize::try_from(time.as_secs() / 2).expect("a count");
        assert!(requests <= intervals + 2, "{requests} requests in {intervals} intervals");
        let writes = bench.writes_since(since).await;
        let refreshes = writes.iter().filter(|w| w.subresource == "status").count();
        assert_eq!(writes.len(), refreshes, "{writes:?}");
        // One of each object at the beginning.
        assert!(refreshes <= 20, "{refreshes} status refreshes in {time:?}");
        bench.watch("late", json!({"interval": "2s"})).await;
        let status = bench.until("late", &[("/ready", json!(true))]).await;
        for node in ["node-1", "node-2", "node-3"] {
            assert_eq!(status["nodes"][node]["currentTransmitTotal"], 281_814);
        }
        // A node that has come is in the next answer with its total.
        bench.prometheus.set("node-4", Sample::percent("1"));
        bench.node("node-4").await;
        let total = "/nodes/node-4/currentTransmitTotal";
        bench.until("late", &[(total, json!(281_814))]).await;
        drop(operator);
    });
}

#[test]
fn a_foreign_edit_of_our_label_is_repaired() {
    with_three_nodes(async |bench| {
        bench.prometheus.set("node-2", Sample::percent("90"));
        bench.watch("web", json!({})).await;
        let _operator = bench.operator();
        bench.until_label("node-2", KEY, Some("true")).await;
        bench.until_label("node-1", KEY, Some("false")).await;
        for (node, value, ours) in [
            ("node-2", json!("false"), "true"),
            ("node-1", json!(null), "false"),
            ("node-3", json!("maybe"), "false"),
        ] {
            let patch = Patch::Merge(json!({"metadata": {"labels": {KEY: value}}}));
            bench.nodes().patch(node, &PatchParams::default(), &patch).await.unwrap();
            bench.until_label(node, KEY, Some(ours)).await;
        }
    });
}

#[test]
fn observe_writes_nothing_but_its_status() {
    with_three_nodes(async |bench| {
        bench.prometheus.set("node-2", Sample::percent("90"));
        let since = Timestamp::now();
        bench.watch("web", json!({"mode": "Observe", "deployment": deployment()})).await;
        let _operator = bench.operator();
        bench.until("web", &[("/summary/unfit", json!(1)), ("/ready", json!(true))]).await;
        bench.judgments(2).await;
        for write in bench.writes_since(since).await {
            // The first operator creates the webhook's authority.
            let ours = write.resource.starts_with("events")
                || write.subresource == "status"
                || write.resource == "secrets";
            assert!(ours, "{write:?}");
        }
        // It does not write its status again and again, either.
        let since = Timestamp::now();
        bench.judgments(4).await;
        let writes = bench.writes_since(since).await;
        assert!(writes.len() <= 1, "{writes:?}");
        assert_eq!(bench.label("node-2", KEY).await, None);
    });
}

#[test]
fn paused_asks_nothing_and_writes_nothing() {
    with_three_nodes(async |bench| {
        bench.prometheus.set("node-2", Sample::percent("90"));
        bench.watch("web", json!({})).await;
        let operator = bench.operator();
        bench.until_label("node-2", KEY, Some("true")).await;
        let pause = |paused: bool| Patch::Merge(json!({"spec": {"paused": paused}}));
        let api = bench.watches("default");
        api.patch("web", &PatchParams::default(), &pause(true)).await.unwrap();
        bench.condition("web", "Ready", "False", "Paused").await;
        bench.prometheus.set("node-2", Sample::percent("1"));
        let (since, before) = (Timestamp::now(), bench.prometheus.requests().len());
        // A fixed time, because several intervals without a request are the test.
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(bench.prometheus.requests().len(), before);
        let series = operator.metric("traffic_operator_trafficwatch_threshold", &[]).await;
        assert!(series < 0.5, "there is no decision, and no series may suggest one");
        assert_eq!(bench.writes_since(since).await, vec![]);
        assert_eq!(bench.label("node-2", KEY).await.as_deref(), Some("true"));
        api.patch("web", &PatchParams::default(), &pause(false)).await.unwrap();
        bench.until_label("node-2", KEY, Some("false")).await;
        bench.condition("web", "Ready", "True", "Judged").await;
    });
}
