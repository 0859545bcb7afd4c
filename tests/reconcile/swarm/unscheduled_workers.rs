//! Workers whose pods get no node.
use serde_json::json;

use super::{Stage, streams};
use crate::bench::{eventually, run};

#[test]
fn streams_go_to_workers_that_run_and_what_nobody_runs_is_said() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let operator = stage.ready_operator().await;
        stage.stateful_set("gap", 2, json!({})).await;
        let refresh = json!({"strategy": "HotReload", "timeout": "1s"});
        stage.swarm("gap", json!({"jobs": streams(6), "refresh": refresh})).await;
        stage.settled("gap", 2, &streams(6)).await;
        // The next worker gets no node.
        stage.puppet.control(|c| c.unscheduled.insert("gap-2".into()));
        stage.scale("gap", 3).await;
        stage.until("gap", &[("/summary/workers", json!(3))]).await;
        stage.condition("gap", "Converged", "True", "Converged").await;
        stage.change("gap", json!({"jobs": streams(9)})).await;
        let all = async |n: usize| {
            let what = format!("{n} streams to run");
            let run = async || (stage.puppet.running().len() == n).then_some(());
            eventually(&what, run).await;
        };
        all(9).await;
        stage.condition("gap", "Ready", "True", "Placed").await;
        // The others are full: it owns the rest, and the status shows that.
        stage.change("gap", json!({"jobs": streams(12), "maxStreamsPerWorker": 5})).await;
        let text = stage.condition("gap", "Ready", "False", "WorkerAbsent").await;
        assert!(text.contains("2 streams: they are in the list of worker gap-2"), "{text}");
        assert!(text.contains("no node"), "{text}");
        stage
            .until("gap", &[("/summary/unassigned", json!(0)), ("/summary/owned", json!(12))])
            .await;
        all(10).await;
        let state = async |state: &str| {
            let labels = ["name=\"gap\"", &format!("state=\"{state}\"")];
            operator.metric("traffic_operator_swarm_streams", &labels).await
        };
        let reported = async || {
            let (owned, stranded) = (state("owned").await, state("stranded").await);
            ((owned - 10.0).abs() < 0.1 && (stranded - 2.0).abs() < 0.1).then_some(())
        };
        eventually("the metric to agree", reported).await;
        // It gets its node.
        stage.puppet.control(|c| c.unscheduled.clear());
        stage.settled("gap", 3, &streams(12)).await;
        stage.condition("gap", "Ready", "True", "Placed").await;
    });
}
