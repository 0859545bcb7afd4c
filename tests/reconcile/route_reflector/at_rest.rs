//! The cost of a set at rest to the API server.
use k8s_openapi::jiff::Timestamp;
use lab::AuditEvent;
use serde_json::json;

use super::{Stage, datastore::installed};
use crate::bench::{Bench, eventually, run};

/// Counts writes of its own status, too.
#[test]
fn a_set_at_rest_writes_nothing_but_one_refresh_of_its_status_a_minute() {
    run(async |bench| {
        let (stage, operator) = Stage::served(bench, 3, json!({})).await;
        let since = Timestamp::now();
        stage.looks(&operator, "main", 4).await;
        let writes = stage.bench.writes_since(since).await;
        let own = writes.iter().filter(|w| w.subresource == "status").count();
        assert!(own == writes.len() && own <= 1, "{writes:?}");
    });
}

/// Returns the operator's requests to find Calico since then; a write by the test marks the end.
async fn discoveries(bench: &Bench, since: Timestamp, mark: &str) -> Vec<String> {
    bench.node(mark).await;
    let is_mark = |e: &AuditEvent| e.verb == "create" && e.resource == "nodes";
    let events = eventually("the mark in the audit log", async || {
        let events = bench.plane().audit_since(since).expect("audit log");
        events.iter().any(|e| is_mark(e) && e.code == 201).then_some(events)
    })
    .await;
    let end = events.iter().find(|e| is_mark(e)).map(|e| e.time).expect("mark");
    let ours = events
        .into_iter()
        .filter(|event| event.user_agent.starts_with("traffic-operator/") && event.time <= end);
    let asks = |uri: &str| uri == "/apis" || uri.contains("projectcalico.org");
    ours.map(|event| event.uri).filter(|uri| asks(uri)).collect()
}

/// The operator looked for it every five seconds, with two requests, in clusters without sets and
/// without Calico.
#[test]
fn calico_is_not_looked_for_without_a_set_and_once_a_minute_where_there_is_none() {
    run(async |bench| {
        installed(&bench, &[]).await;
        let since = Timestamp::now();
        let stage = Stage::bare(bench, lab::calico::Group::V1);
        let _operator = stage.operator().await;
        assert_eq!(discoveries(&stage.bench, since, "mark-1").await, Vec::<String>::new());

        let since = Timestamp::now();
        stage.set("main", json!({})).await;
        stage.condition("main", "Ready", "False", "CalicoNotFound").await;
        for min in [2, 3] {
            stage.change("main", json!({"count": {"min": min}})).await;
            stage.condition("main", "Ready", "False", "CalicoNotFound").await;
        }
        assert_eq!(discoveries(&stage.bench, since, "mark-2").await, ["/apis"]);
    });
}
