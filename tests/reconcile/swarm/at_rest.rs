//! A Swarm at rest: nothing is written, and its status and events are right.
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;
use serde_json::json;

use super::{Stage, sample, served, streams};
use crate::bench::{Operator, eventually, run};

/// The resource of Swarms, as the audit log names it.
pub const SWARMS: &str = "swarms.traffic.example.com";

/// Asserts that two passes refresh the status of each Swarm at most once, and write nothing else.
async fn assert_at_rest(stage: &Stage, operator: &Operator, swarms: u32) {
    let since = Timestamp::now();
    operator.passes("swarm", 2 * swarms).await;
    let writes = stage.bench.writes_since(since).await;
    let own = writes.iter().filter(|w| w.resource == SWARMS && w.subresource == "status").count();
    assert!(own == writes.len() && own <= swarms as usize, "{writes:?}");
}

#[test]
fn twenty_swarms_at_rest_write_nothing() {
    served(async |stage, operator| {
        let named = |i| format!("rest-{i}");
        for name in (0..20).map(named) {
            stage.stateful_set(&name, 1, json!({})).await;
            let jobs: Vec<_> = (0..4).map(|j| format!("{name}:{j}")).collect();
            stage.swarm(&name, json!({"jobs": jobs})).await;
        }
        for name in (0..20).map(named) {
            stage.condition(&name, "Converged", "True", "Converged").await;
            // A worker may become ready after it has its streams: the status has that, too.
            stage.until(&name, &[("/summary/ready", json!(1))]).await;
        }
        // At rest is a state in which every Swarm had its turn and nothing was written, however
        // long a busy machine takes to arrive there.
        let rests = async || {
            let since = Timestamp::now();
            operator.passes("swarm", 20).await;
            stage.bench.writes_since(since).await.is_empty().then_some(())
        };
        eventually("a round of passes without a write", rests).await;
        let began = Instant::now();
        assert_at_rest(&stage, &operator, 20).await;
        // Two rounds: a pass of each every few seconds, and not one after the other.
        assert!(began.elapsed() > Duration::from_secs(4), "40 passes in {:?}", began.elapsed());
        // A kubelet of the test may be behind the processes that it plays.
        let all = async || (stage.puppet.running().len() == 80).then_some(());
        eventually("80 streams to run", all).await;
        stage.puppet.assert_no_overlap();
    });
}

#[test]
fn one_that_observes_or_pauses_writes_nothing_but_its_status() {
    served(async |stage, operator| {
        stage.stateful_set("look", 2, json!({})).await;
        let since = Timestamp::now();
        let spec = json!({"jobs": sample(), "mode": "Observe"});
        stage.swarm("look", spec).await;
        stage.condition("look", "Ready", "True", "Observing").await;
        stage
            .until("look", &[("/summary/streams", json!(27)), ("/summary/workers", json!(2))])
            .await;
        assert!(stage.file("look").await.is_none());
        stage.change("look", json!({"paused": true, "mode": "Enforce"})).await;
        stage.condition("look", "Ready", "True", "Paused").await;
        assert!(stage.file("look").await.is_none());
        // The Secret is the webhook's, and may be created only now.
        let own = ["events.events.k8s.io", "secrets"];
        let others = |w: &&lab::AuditEvent| {
            w.subresource != "status" && !own.contains(&w.resource.as_str()) && w.code < 300
        };
        let writes = stage.bench.writes_since(since).await;
        assert_eq!(writes.iter().filter(others).count(), 0, "{writes:?}");
        stage.change("look", json!({"paused": false})).await;
        let before = stage.settled("look", 2, &sample()).await;
        // While it is paused again, the file stays unchanged, whatever happens to the list.
        stage.change("look", json!({"paused": true, "jobs": streams(3)})).await;
        stage.condition("look", "Ready", "True", "Paused").await;
        assert_eq!(stage.file("look").await.unwrap(), before);
        assert_eq!(stage.puppet.running().len(), 27);
        assert_at_rest(&stage, &operator, 1).await;
    });
}

#[test]
fn with_a_swarm_its_config_map_goes_and_workers_run_on() {
    run(async |bench| {
        let (stage, _operator, _) =
            Stage::running(bench, "end", 2, json!({"jobs": sample()})).await;
        stage.swarms().delete("end", &DeleteParams::default()).await.unwrap();
        let gone = async || stage.file("end").await.is_none().then_some(());
        eventually("the ConfigMap to be gone", gone).await;
        assert_eq!(stage.puppet.running().len(), 27);
        assert_eq!(stage.sets().get("end").await.unwrap().spec.unwrap().replicas, Some(2));
    });
}
