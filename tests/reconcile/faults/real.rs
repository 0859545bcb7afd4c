//! Real faults, where others are injected: processes that are killed, requests that the API server
//! rejects, and a name that nobody has.
use std::time::Duration;

use k8s_openapi::{
    api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        core::v1::Node,
        events::v1::Event,
        flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration},
    },
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};

use super::Stage;
use crate::{
    bench::{ACCOUNT, eventually, run},
    prometheus::Sample,
    traffic_watch::{
        judging::{KEY, three_nodes},
        refusals::OBSTACLE,
    },
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

/// Lets the API server's priority and fairness reject every request of the operator's account.
///
/// A level without seats still serves one request at a time: one that waits for a webhook takes
/// that place, for half a minute. Abort the returned task to end it.
async fn reject_all(stage: &Stage, webhook: &TcpListener) -> JoinHandle<()> {
    let client = &stage.bench.client;
    let params = PostParams::default();
    // None can be borrowed either.
    let limited = json!({
        "nominalConcurrencyShares": 0, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    });
    let level = serde_json::from_value(json!({
        "metadata": {"name": OBSTACLE}, "spec": {"type": "Limited", "limited": limited},
    }));
    let levels = Api::<PriorityLevelConfiguration>::all(client.clone());
    levels.create(&params, &level.expect("level")).await.expect("create level");
    let hook = serde_json::from_value(json!({
        "metadata": {"name": OBSTACLE},
        "webhooks": [{
            "name": "events.example.com", "sideEffects": "None", "timeoutSeconds": 30,
            "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "clientConfig": {"url": format!("https://{}/", webhook.local_addr().expect("address"))},
            "rules": [{
                "apiGroups": ["events.k8s.io"], "apiVersions": ["*"], "resources": ["events"],
                "operations": ["CREATE"],
            }],
            "matchConditions": [
                {"name": "ours", "expression": format!("object.metadata.name == '{OBSTACLE}'")},
            ],
        }],
    }));
    let hooks = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    hooks.create(&params, &hook.expect("webhook")).await.expect("create webhook");
    let rule = json!({
        "subjects": [{"kind": "User", "user": {"name": ACCOUNT}}],
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
            "clusterScope": true,
        }],
    });
    let schema = serde_json::from_value(json!({
        "metadata": {"name": OBSTACLE},
        "spec": {
            "priorityLevelConfiguration": {"name": OBSTACLE},
            "matchingPrecedence": 2,
            "rules": [rule],
        },
    }));
    let schemas = Api::<FlowSchema>::all(client.clone());
    schemas.create(&params, &schema.expect("schema")).await.expect("create schema");
    let occupies = tokio::spawn(occupy(stage.bench.operators_code().await));
    eventually("the operator's requests to be rejected", async || {
        (read_as_operator(stage).await == Some(429)).then_some(())
    })
    .await;
    occupies
}

/// Creates an event again and again; none is ever stored.
async fn occupy(client: Client) {
    let event = serde_json::from_value::<Event>(json!({
        "metadata": {"name": OBSTACLE}, "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Normal", "reason": "Test", "action": "Test", "reportingController": "test",
        "reportingInstance": "test",
        "regarding": {"kind": "Node", "name": "node-1", "namespace": "default"},
    }));
    let event = event.expect("event");
    let events = Api::<Event>::namespaced(client, "default");
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    loop {
        // Rejected, while the operator's own requests take the place.
        let _ = events.create(&dry_run, &event).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Reads a node under the operator's account; returns the code of a refusal.
async fn read_as_operator(stage: &Stage) -> Option<u16> {
    let nodes = Api::<Node>::all(stage.bench.operators_code().await);
    match nodes.get("node-2").await {
        Err(kube::Error::Api(refusal)) => Some(refusal.code),
        _ => None,
    }
}

#[test]
fn a12b_an_api_server_that_rejects_all_requests_for_a_while_is_asked_now_and_then() {
    run(async |bench| {
        let mut stage = Stage::new(bench, "60s").await;
        // It takes connections, and never answers.
        let webhook = TcpListener::bind("127.0.0.1:0").await.expect("listener");
        let occupies = reject_all(&stage, &webhook).await;
        let since = Timestamp::now();
        stage.measures("1");
        tokio::time::sleep(AWAY * 3).await;
        stage.assert_alive().await;
        let writes = stage.bench.writes_since(since).await.into_iter();
        let to_nodes: Vec<_> = writes.filter(|write| write.resource == "nodes").collect();
        assert!(to_nodes.iter().all(|write| write.code == 429), "{to_nodes:?}");
        assert!((1..=5).contains(&to_nodes.len()), "tries in 15 s: {to_nodes:?}");
        assert_eq!(stage.bench.label("node-2", KEY).await.as_deref(), Some("true"));
        occupies.abort();
        stage.bench.clean_obstacles().await;
        eventually("the operator's requests to be served", async || {
            read_as_operator(&stage).await.is_none().then_some(())
        })
        .await;
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
