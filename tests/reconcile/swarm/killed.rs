//! The operator is killed at each of its writes, and starts again.
use std::time::Instant;

use serde_json::json;

use super::{
    Stage,
    proxy::{Kill, Proxy},
    sample,
};
use crate::bench::{eventually, run};

/// Tests every write of whole handovers, 2 -> 3 workers and back: killed before it, or killed after
/// it.
async fn at_every_write(stage: Stage, name: &str, kind: impl Fn(usize) -> Kill) {
    let proxy = Proxy::start(&stage.bench).await;
    let mut operator = proxy.operator(&stage.bench).await;
    stage.settled(name, 2, &sample()).await;
    let mut highest = 0;
    let mut kills = 0;
    // Even the longest handover has fewer writes; the loop ends with the first handover without an
    // n-th write.
    for n in 1..60 {
        let mut missed = 0;
        for workers in [3, 2] {
            proxy.kill(Some(kind(n)));
            stage.scale(name, workers).await;
            let workers = workers as usize;
            let end = async || {
                if proxy.killed() {
                    return Some(true);
                }
                let status = stage.status(name).await;
                let done = status["summary"]["workers"] == workers
                    && status["moving"] == 0
                    && status["conditions"].as_array().is_some_and(|all| {
                        all.iter().any(|c| c["type"] == "Converged" && c["status"] == "True")
                    });
                done.then_some(false)
            };
            if eventually("the kill, or the end of the handover", end).await {
                kills += 1;
                drop(operator);
                operator = proxy.operator(&stage.bench).await;
            } else {
                missed += 1;
                proxy.kill(None);
            }
            let file = stage.settled(name, workers, &sample()).await;
            assert!(file.version > highest, "{} after {highest}", file.version);
            highest = file.version;
        }
        if missed == 2 {
            eprintln!("{name}: {kills} kills, the last write was before {n}");
            assert!(n > 4, "a handover has more writes than {n}");
            return;
        }
    }
    panic!("no handover has this many writes");
}

#[test]
fn bug_04_killed_before_every_write_of_a_handover_nothing_runs_twice_and_no_version_goes_back() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        stage.stateful_set("kill", 2, json!({})).await;
        let spec = json!({"jobs": sample(), "refresh": {"strategy": "HotReload"}});
        stage.swarm("kill", spec).await;
        let began = Instant::now();
        at_every_write(stage, "kill", Kill::Before).await;
        eprintln!("before: {:?}", began.elapsed());
    });
}

#[test]
fn bug_04_killed_after_every_write_of_a_handover_nothing_runs_twice_and_no_version_goes_back() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        stage.stateful_set("kill", 2, json!({})).await;
        let spec = json!({"jobs": sample(), "refresh": {"strategy": "HotReload"}});
        stage.swarm("kill", spec).await;
        let began = Instant::now();
        at_every_write(stage, "kill", Kill::After).await;
        eprintln!("after: {:?}", began.elapsed());
    });
}
