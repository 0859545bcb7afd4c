//! The policies of a spec, each by its writes and by what it leaves alone.
use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::{
    bench::{Bench, eventually, run},
    prometheus::{Prometheus, Sample},
    traffic_watch::judging::{KEY, patch_spec, three_nodes},
};

#[test]
fn an_absolute_threshold_marks_by_bits_per_second_without_any_link_speed() {
    run(async |bench| {
        three_nodes(&bench).await;
        let busy = Sample { percent: None, bytes: Some("101000000"), age: Some("1") };
        bench.prometheus.set("node-2", busy);
        bench.watch("web", json!({"maxBandwidthPercent": null, "maxBandwidth": "800M"})).await;
        let operator = bench.operator();
        bench.until_label("node-2", KEY, Some("true")).await;
        let status = bench.until("web", &[("/max", json!("800M"))]).await;
        assert_eq!(status["nodes"]["node-2"]["criteria"][0]["value"], "8.08e+08");
        bench.until_event("web", "NodeUnfit", "uses 808 Mbit/s, above 800M").await;
        let labels = ["node=\"node-2\"", "criterion=\"bandwidth\"", "unit=\"bits_per_second\""];
        let value = operator.metric("traffic_operator_trafficwatch_node_value", &labels).await;
        assert!((value - 808e6).abs() < 1.0, "{value}");
        // 90 Mbyte/s are 720 Mbit/s: 90 % of the threshold.
        let calm = Sample { percent: None, bytes: Some("90000000"), age: Some("1") };
        bench.prometheus.set("node-2", calm);
        bench.until_label("node-2", KEY, Some("false")).await;
    });
}

#[test]
fn a_query_of_the_authors_replaces_the_built_in_one_and_criteria_stand_beside_it() {
    run(async |bench| {
        three_nodes(&bench).await;
        for node in ["node-1", "node-2", "node-3"] {
            bench.prometheus.own("my_load", node, "10");
            bench.prometheus.own("sum by (node) (loss)", node, "0.001");
        }
        let criteria = json!([{"name": "loss", "query": "sum by (node) (loss)", "max": "0.01"}]);
        let spec = json!({"query": "my_load", "window": null, "criteria": criteria});
        bench.watch("web", spec).await;
        let operator = bench.operator();
        bench.until("web", &[("/ready", json!(true)), ("/max", json!("60 %, loss 0.01"))]).await;
        let queries = bench.prometheus.requests().join("\n");
        assert!(!queries.contains("node_network"), "{queries}");
        bench.prometheus.own("my_load", "node-1", "61");
        bench.until_label("node-1", KEY, Some("true")).await;
        bench.until("web", &[("/nodes/node-1/reason", json!("bandwidth"))]).await;
        bench.prometheus.own("my_load", "node-1", "10");
        bench.until_label("node-1", KEY, Some("false")).await;
        bench.prometheus.own("sum by (node) (loss)", "node-3", "0.02");
        bench.until_label("node-3", KEY, Some("true")).await;
        bench.until("web", &[("/nodes/node-3/reason", json!("loss"))]).await;
        bench.until_event("web", "NodeUnfit", "has loss 0.02, above 0.01").await;
        let message = bench.condition("web", "MetricsAvailable", "True", "Available").await;
        assert!(message.contains("the age of the samples of custom queries"), "{message}");
        let value = operator
            .metric("traffic_operator_trafficwatch_node_value", &["criterion=\"loss\"", "node-3"])
            .await;
        assert!((value - 0.02).abs() < 1e-9, "{value}");
        // A restart knows which measure said unfit.
        drop(operator);
        bench.prometheus.own("sum by (node) (loss)", "node-3", "0.0095");
        let operator = bench.operator_with("operator-2", "5s");
        operator.ready().await;
        bench.judgments(8).await;
        assert_eq!(bench.label("node-3", KEY).await.as_deref(), Some("true"));
    });
}

#[test]
fn what_happens_to_a_node_without_evidence_is_the_authors_choice() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.prometheus.set("node-2", Sample::percent("99"));
        for action in ["Hold", "Fit", "RemoveLabel", "Unfit"] {
            let spec = json!({"onUnknown": {"after": "3s", "action": action}});
            bench.watch(&action.to_lowercase(), spec).await;
        }
        let _operator = bench.operator();
        let key = |action: &str| format!("{action}.traffic.example.com/unfit");
        for action in ["hold", "fit", "removelabel", "unfit"] {
            bench.until_label("node-2", &key(action), Some("true")).await;
        }
        bench.prometheus.remove("node-2");
        bench.until_label("node-2", &key("fit"), Some("false")).await;
        bench.until_label("node-2", &key("removelabel"), None).await;
        for action in ["hold", "unfit"] {
            let status = bench.until(action, &[("/nodes/node-2/state", json!("Unknown"))]).await;
            assert_eq!(status["nodes"]["node-2"]["unfit"], true, "{action}");
        }
        bench.until_event("fit", "NodeUnknownExpired", "NoSample for 3s").await;
        let reported = bench.events("hold").await;
        assert!(reported.iter().all(|(reason, _)| reason != "NodeUnknownExpired"), "{reported:?}");
        bench.prometheus.set("node-2", Sample::percent("10"));
        for action in ["hold", "fit", "removelabel", "unfit"] {
            bench.until_label("node-2", &key(action), Some("false")).await;
        }
    });
}

async fn taints(bench: &Bench, node: &str) -> BTreeMap<String, String> {
    let node: Node = bench.nodes().get(node).await.expect("node");
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    taints.into_iter().map(|taint| (taint.key, taint.effect)).collect()
}

async fn until_taint(bench: &Bench, node: &str, effect: Option<&str>) {
    let what = format!("taint of {node}: {effect:?}");
    let holds =
        async || (taints(bench, node).await.get(KEY).map(String::as_str) == effect).then_some(());
    eventually(&what, holds).await;
}

#[test]
fn a_taint_comes_and_goes_with_the_label_and_leaves_the_taints_of_others() {
    run(async |bench| {
        three_nodes(&bench).await;
        let foreign =
            json!({"spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}});
        let params = PatchParams::default();
        bench.nodes().patch("node-2", &params, &Patch::Merge(foreign)).await.unwrap();
        bench.prometheus.set("node-2", Sample::percent("99"));
        bench.watch("web", json!({"taint": "PreferNoSchedule"})).await;
        let _operator = bench.operator();
        until_taint(&bench, "node-2", Some("PreferNoSchedule")).await;
        patch_spec(&bench, "web", json!({"taint": "NoSchedule"})).await;
        until_taint(&bench, "node-2", Some("NoSchedule")).await;
        assert_eq!(taints(&bench, "node-2").await["team"], "NoSchedule");
        assert!(!taints(&bench, "node-1").await.contains_key(KEY));
        // Nothing is written while nothing changes.
        bench.judgments(2).await;
        let since = Timestamp::now();
        bench.judgments(4).await;
        let writes = bench.writes_since(since).await;
        assert!(writes.iter().all(|w| w.resource != "nodes"), "{writes:?}");
        bench.prometheus.set("node-2", Sample::percent("10"));
        until_taint(&bench, "node-2", None).await;
        bench.prometheus.set("node-2", Sample::percent("99"));
        until_taint(&bench, "node-2", Some("NoSchedule")).await;
        // The taint is removed with the object.
        bench.watches("default").delete("web", &DeleteParams::default()).await.unwrap();
        until_taint(&bench, "node-2", None).await;
        bench.until_label("node-2", KEY, None).await;
        assert_eq!(taints(&bench, "node-2").await["team"], "NoSchedule");
    });
}

#[test]
fn each_object_asks_the_endpoint_that_it_names() {
    run(async |bench| {
        three_nodes(&bench).await;
        let other = Prometheus::start().await;
        for node in ["node-1", "node-2", "node-3"] {
            other.set(node, Sample::percent(if node == "node-3" { "99" } else { "10" }));
        }
        bench.watch("web", json!({})).await;
        bench.watch("elsewhere", json!({"prometheus": "other"})).await;
        bench.watch("nowhere", json!({"prometheus": "missing"})).await;
        let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("endpoints.yaml");
        let text = format!(
            "endpoints:\n  default: {{url: '{}'}}\n  other: {{url: '{}'}}\n",
            bench.prometheus.url, other.url
        );
        std::fs::write(&file, text).expect("endpoints");
        let path = file.display().to_string();
        let operator =
            bench.operator_args(&["--prometheus-config", &path], &["--lease-duration", "5s"]);
        bench.until_label("node-3", "elsewhere.traffic.example.com/unfit", Some("true")).await;
        bench.until_label("node-3", KEY, Some("false")).await;
        let message = bench.condition("nowhere", "Ready", "False", "InvalidSpec").await;
        assert!(message.contains("spec.prometheus: no endpoint \"missing\""), "{message}");
        assert!(message.contains("default, other"), "{message}");
        let label = ["endpoint=\"other\"", "result=\"success\""];
        assert!(operator.metric("traffic_operator_prometheus_requests_total", &label).await > 0.0);
    });
}

#[test]
fn a_window_that_holds_too_few_scrapes_is_reported_and_judged_all_the_same() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.prometheus.scrapes("2");
        bench.watch("web", json!({"window": "2s"})).await;
        let _operator = bench.operator();
        bench.until_event("web", "WindowTooShort", "spec.window of 2s holds 2 scrapes").await;
        let message = bench.condition("web", "MetricsAvailable", "True", "Available").await;
        assert!(message.contains("fewer than four scrapes"), "{message}");
        bench.until("web", &[("/ready", json!(true))]).await;
    });
}
