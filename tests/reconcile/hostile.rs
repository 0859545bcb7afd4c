//! A hostile Prometheus, and a namespace that queries it: no other object is affected.
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, http::header, response::IntoResponse};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use traffic_operator::api::Swarm;

use crate::{
    bench::{Bench, eventually},
    prometheus::Sample,
    traffic_watch::judging::{KEY, with_three_nodes},
};

/// The memory limit of the controllers' container in the Deployment.
const LIMIT: u64 = 384 << 20;

/// Serves one of these in turn: 32 MiB at once, and 3 MiB that never end.
async fn hostile() -> (String, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let answer = move || {
        let turn = counter.fetch_add(1, Ordering::SeqCst);
        async move {
            let begin =
                r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"x":""#;
            let chunk = || Ok::<_, std::io::Error>("x".repeat(1 << 20));
            let begin = stream::iter([Ok(begin.to_owned())]);
            let body = if turn.is_multiple_of(2) {
                Body::from_stream(begin.chain(stream::repeat_with(chunk).take(32)))
            } else {
                let some = begin.chain(stream::repeat_with(chunk).take(3));
                Body::from_stream(some.chain(stream::pending()))
            };
            ([(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    let router = Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, count)
}

async fn namespace(bench: &Bench, name: &str) {
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": name}})).expect("it");
    // It may exist already.
    let _ = Api::all(bench.client.clone()).create(&PostParams::default(), &namespace).await;
}

fn endpoints(name: &str, text: &str) -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, text).expect("endpoints");
    file.display().to_string()
}

#[test]
fn a_hostile_prometheus_of_one_namespace_harms_no_other() {
    with_three_nodes(async |bench| {
        namespace(&bench, "greedy").await;
        let (hostile, count) = hostile().await;
        let text = format!(
            "endpoints:\n  default: {{url: '{}'}}\n  edge: {{url: '{hostile}', timeout: 5s}}\n",
            bench.prometheus.url
        );
        let path = endpoints("hostile.yaml", &text);
        let operator =
            bench.operator_args(&["--prometheus-config", &path], &["--lease-duration", "15s"]);
        // Four objects with ten queries each, all of them different.
        for object in 0..4 {
            let criteria: Vec<_> = (0..10)
                .map(|i| json!({"name": format!("c{i}"), "query": format!("up + {object}{i}"), "max": "5"}))
                .collect();
            let object = json!({
                "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
                "metadata": {"name": format!("greedy-{object}"), "namespace": "greedy"},
                "spec": {"prometheus": "edge", "interval": "2s", "criteria": criteria},
            });
            bench.create(object).await.expect("TrafficWatch");
        }
        eventually("the hostile Prometheus to be asked", async || {
            (count.load(Ordering::SeqCst) > 8).then_some(())
        })
        .await;
        // Objects of other namespaces are judged, with the built-in query and with their own.
        for (node, loss) in [("node-1", "0"), ("node-2", "0"), ("node-3", "9")] {
            bench.prometheus.own("probe_loss", node, loss);
        }
        let loss = json!([{"name": "loss", "query": "probe_loss", "max": "5"}]);
        bench.watch("loss", json!({"criteria": loss})).await;
        bench.watch("web", json!({})).await;
        let lossy = "loss.traffic.example.com/unfit";
        bench.until_label("node-3", lossy, Some("true")).await;
        // The same node: all objects together may mark one of three.
        for (percent, unfit) in [("90", "true"), ("10", "false"), ("90", "true")] {
            bench.prometheus.set("node-3", Sample::percent(percent));
            bench.until_label("node-3", KEY, Some(unfit)).await;
        }
        let over = eventually("a reason of its own", async || {
            let mut all = vec![];
            for object in 0..4 {
                all.push(
                    bench
                        .condition_in("greedy", &format!("greedy-{object}"), "MetricsAvailable")
                        .await?,
                );
            }
            let over = |c: &Value| c["status"] == "False" && c["reason"] == "OverBudget";
            all.into_iter().find(over)
        })
        .await;
        assert!(over["message"].to_string().len() < 2000, "{over}");
        let label = ["endpoint=\"edge\"", "result=\"OverBudget\""];
        assert!(operator.metric("traffic_operator_prometheus_requests_total", &label).await > 0.0);
        assert!(count.load(Ordering::SeqCst) > 20, "it was queried all the time");
        let peak = operator.peak();
        println!("peak of the operator's memory: {} MiB", peak >> 20);
        assert!(peak < LIMIT, "{} MiB", peak >> 20);
        let longest = operator.log().lines().map(str::len).max().unwrap_or(0);
        assert!(longest < 20_000, "a log line of {longest} bytes");
    });
}

#[test]
fn an_endpoint_is_asked_for_objects_of_its_namespaces_only() {
    with_three_nodes(async |bench| {
        namespace(&bench, "greedy").await;
        let edge = crate::prometheus::Prometheus::start().await;
        for node in ["node-1", "node-2", "node-3"] {
            edge.set(node, Sample::percent("10"));
        }
        let text = format!(
            "endpoints:\n  default: {{url: '{}'}}\n  edge: {{url: '{}', allowedNamespaces: [greedy]}}\n",
            bench.prometheus.url, edge.url
        );
        let path = endpoints("allowed.yaml", &text);
        bench.watch("web", json!({"prometheus": "edge"})).await;
        let swarm = json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "Swarm",
            "metadata": {"name": "cams", "namespace": "default"},
            "spec": {"workload": {"kind": "StatefulSet", "name": "cams"}, "jobs": ["a"],
                     "weights": {"query": "x", "prometheus": "edge", "interval": "1s"}},
        });
        let swarms = Api::<Swarm>::namespaced(bench.client.clone(), "default");
        let swarm = serde_json::from_value(swarm).expect("Swarm");
        swarms.create(&PostParams::default(), &swarm).await.expect("Swarm");
        let _operator =
            bench.operator_args(&["--prometheus-config", &path], &["--lease-duration", "15s"]);
        let words = "endpoint \"edge\" is not for objects in namespace default";
        let message = bench.condition("web", "Ready", "False", "InvalidSpec").await;
        assert!(message.contains(&format!("spec.prometheus: {words}")), "{message}");
        let swarms =
            Api::<traffic_operator::api::Swarm>::namespaced(bench.client.clone(), "default");
        let message = eventually("the Swarm to be refused", async || {
            let status = swarms.get("cams").await.ok()?.status?;
            let ready = status.conditions.into_iter().find(|c| c.type_ == "Ready")?;
            (ready.reason == "InvalidSpec").then_some(ready.message)
        })
        .await;
        assert!(message.contains(&format!("spec.weights.prometheus: {words}")), "{message}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(edge.requests(), Vec::<String>::new(), "nothing is queried");
        // Where it is allowed, it is queried.
        bench.watch_in("greedy", "allowed", json!({"prometheus": "edge"})).await.expect("it");
        bench.until_label("node-1", "allowed.traffic.example.com/unfit", Some("false")).await;
        assert!(!edge.requests().is_empty());
    });
}
