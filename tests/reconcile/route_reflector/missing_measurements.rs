//! Rule 1: missing or partial measurements remove no reflector.
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::Stage;
use crate::{bench::run, prometheus::Mode};

#[test]
fn a_successor_that_is_dead_lacks_sessions_or_was_not_looked_at_takes_nobodys_place() {
    run(async |bench| {
        let (stage, operator) = Stage::served(bench, 4, json!({"mesh": "Migrate"})).await;
        stage.cordon("node-1", true).await;
        let promoted = async || (stage.marks().await.len() == 3).then_some(());
        stage.wait("the promotion", promoted).await;
        let since = Timestamp::now();
        stage.birds.control(|birds| {
            birds.dead.insert("node-3".into());
        });
        // The others have no session with it either: that is found and reported first.
        let text = stage.condition("main", "Converged", "False", "WaitingForSessions").await;
        assert!(text.contains("demoting node-1: sessions are not established: "), "{text}");
        stage.birds.control(|birds| {
            birds.dead.clear();
            birds.lacking.insert("node-3".into(), 1);
        });
        let lacks = async || {
            let text = stage.condition("main", "Converged", "False", "WaitingForSessions").await;
            // Excludes the one that is being replaced: it may be broken.
            text.ends_with("node-3 has 1 of 2").then_some(())
        };
        stage.wait("the reason", lacks).await;
        stage.birds.control(|birds| {
            birds.lacking.clear();
            birds.scraped = Some(1_700_000_000.0);
        });
        let stale = async || {
            let text = stage.condition("main", "Converged", "False", "WaitingForSamples").await;
            text.ends_with("not measured since the last step: node-2, node-3").then_some(())
        };
        stage.wait("the reason", stale).await;
        operator.passes("routereflectorset", 3).await;
        assert_eq!(stage.changes_since(since).await, []);
        stage.birds.control(|birds| birds.scraped = None);
        stage.converged("main", &["node-3", "node-2"]).await;
        stage.routes_were_kept();
    });
}

/// This one is slow: the time has a minimum of a minute.
#[test]
fn a_dead_reflectors_slot_is_filled_though_nothing_is_measured_and_the_time_out_is_reported() {
    run(async |bench| {
        let transition = json!({"wait": "60s", "timeout": "60s"});
        let (stage, _operator) =
            Stage::served(bench, 5, json!({"mesh": "Migrate", "transition": transition})).await;
        stage.bench.prometheus.answer(Mode::Raw(503, "text/plain", "away".into()));
        stage.delete_node("node-1").await;
        let filled = async || (stage.reflectors().await.get("0")? == "node-3").then_some(());
        stage.wait("the slot to be filled", filled).await;
        stage.until_event("main", "ReflectorGone").await;
        stage.cordon("node-2", true).await;
        stage.condition("main", "Converged", "False", "GateUnavailable").await;
        let text = stage.condition("main", "Converged", "False", "GateTimeout").await;
        assert!(text.starts_with("promoting node-4 has waited longer"), "{text}");
        stage.until_event("main", "GateTimeout").await;
        assert_eq!(stage.marks().await.len(), 2, "no other node is marked");
        stage.bench.prometheus.answer(Mode::Samples);
        stage.converged("main", &["node-3", "node-4"]).await;
        stage.routes_were_kept();
    });
}
