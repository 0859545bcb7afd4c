//! R9: the operator is killed at each of its writes, and starts again.
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{
    Stage,
    stage::{is_converged, two},
};
use crate::{
    bench::{Operator, run},
    swarm::proxy::{Kill, Proxy},
};

/// More lives than any transition here has writes.
const LIVES: usize = 60;

/// Runs lives of one write each, until these are the reflectors and nothing is left to do; returns
/// the last life and the number of lives.
async fn live_and_die(
    stage: &Stage,
    proxy: &Proxy,
    kill: Kill,
    reflectors: &[&str],
) -> (Operator, usize) {
    for life in 1..LIVES {
        let operator = proxy.life(&stage.bench, kill);
        let ended = stage.wait("the kill, or the end", async || {
            if proxy.killed() {
                return Some(false);
            }
            let status = stage.status("main").await;
            let there = stage.reflectors().await;
            let done = is_converged(&status)
                && status["plan"] == json!([])
                && stage.mesh().await == Some(false)
                && there.values().map(String::as_str).eq(reflectors.iter().copied())
                && stage.marks().await.len() == reflectors.len();
            done.then_some(true)
        });
        if ended.await {
            return (operator, life);
        }
    }
    panic!("no end after {LIVES} lives: {}", stage.state().await);
}

/// A migration and a replacement, with one write per life.
async fn at_every_write(stage: Stage, kill: Kill) {
    stage.nodes(4).await;
    stage.set("main", two(json!({"mesh": "Migrate"}))).await;
    let proxy = Proxy::start(&stage.bench).await;
    let (operator, lives) = live_and_die(&stage, &proxy, kill, &["node-1", "node-2"]).await;
    assert!(lives > 6, "a migration has more writes than {lives}");
    drop(operator);
    let peers = stage.peers().names().await;
    stage.cordon("node-1", true).await;
    let (_operator, lives) = live_and_die(&stage, &proxy, kill, &["node-3", "node-2"]).await;
    assert!(lives > 2, "a replacement has more writes than {lives}");
    assert_eq!(stage.peers().names().await, peers);
    stage.routes_were_kept();
}

#[test]
fn r09_killed_before_every_write_of_a_migration_and_a_replacement_no_route_is_lost() {
    run(async |bench| at_every_write(Stage::new(bench).await, Kill::Before(2)).await);
}

#[test]
fn r09_killed_after_every_write_of_a_migration_and_a_replacement_no_route_is_lost() {
    run(async |bench| at_every_write(Stage::new(bench).await, Kill::After(1)).await);
}

/// A process that dies between a step and its record in the status loses the time of the step. With
/// gate Wait there is no other evidence.
#[test]
fn r09_killed_after_a_promotion_the_wait_before_the_demotion_begins_again() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        stage.nodes(4).await;
        let operator = stage.operator().await;
        stage.set("main", two(json!({}))).await;
        stage.converged("main", &["node-1", "node-2"]).await;
        drop(operator);
        let proxy = Proxy::start(&stage.bench).await;
        let first = proxy.operator(&stage.bench).await;
        stage.condition("main", "Converged", "True", "Converged").await;
        // A new process does not trust samples of its first five seconds.
        tokio::time::sleep(std::time::Duration::from_secs(8)).await;
        proxy.kill(Some(Kill::After(1)));
        stage.cordon("node-1", true).await;
        stage.wait("the promotion", async || proxy.killed().then_some(())).await;
        let writes = proxy.writes();
        assert!(writes[0].starts_with("PATCH /api/v1/nodes/node-3"), "{writes:?}");
        drop(first);
        stage.change("main", json!({"transition": {"gate": "Wait"}})).await;
        let since = Timestamp::now();
        let operator = stage.operator().await;
        let text = stage.condition("main", "Converged", "False", "WaitingForSamples").await;
        assert_eq!(text, "demoting node-1: the waiting time after the last step has not passed");
        operator.passes("routereflectorset", 2).await;
        assert_eq!(stage.marks().await.len(), 3);
        assert_eq!(stage.changes_since(since).await, []);
    });
}
