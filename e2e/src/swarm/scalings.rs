//! Other numbers of workers, in both strategies.

use anyhow::Result;
use serde_json::json;

use super::faults;
use super::stage::{Stage, WORKERS};

/// Scales to another number, and judges what follows.
pub(super) async fn to(stage: &mut Stage<'_>, replicas: usize) -> Result<()> {
    let name = format!("{} -> {replicas}", stage.replicas);
    stage.step(&name, &[], async |stage| stage.scale(replicas)).await
}

/// Scales to a number, and to another one as soon as streams are on their way.
async fn by_way_of(stage: &mut Stage<'_>, detour: usize, replicas: usize) -> Result<()> {
    let name = format!("{} -> {detour} -> {replicas}", stage.replicas);
    stage
        .step(&name, &[], async |stage| {
            let known = stage.history.len();
            stage.scale(detour)?;
            // The first file names the new worker, the second one takes streams from the others.
            faults::in_mid_handover(stage, known + 2).await?;
            stage.scale(replicas)
        })
        .await
}

/// Workers that read their file again while they run.
pub(super) async fn hot_reload(stage: &mut Stage<'_>) -> Result<()> {
    stage.say("the original's 27 streams, on workers that reload: 2 -> 3 -> 12 -> 2 -> 0 -> 2");
    stage.step("start", &[], async |stage| stage.start().await).await?;
    let shown = stage.kubectl(&["get", "swarm"])?;
    stage.say(&shown.trim_end().replace('\n', "\n         "));
    for replicas in [3, 12, 2, 0, 2, 3] {
        to(stage, replicas).await?;
    }
    stage.say("a worker dies, a worker is deleted, a node is cut off");
    faults::worker_killed(stage).await?;
    faults::worker_deleted(stage).await?;
    faults::node_cut(stage).await?;
    faults::node_deleted(stage).await?;
    stage.say("the operator is killed in mid-handover");
    for (replicas, files) in [(2, 1), (5, 2), (3, 1)] {
        faults::operator_killed(stage, replicas, files).await?;
    }
    Ok(())
}

/// Workers that are restarted in order to read their file, as the original's were.
pub(super) async fn delete_pod(stage: &mut Stage<'_>) -> Result<()> {
    stage.say("the same with workers that are restarted, as the original's were");
    stage.strategy = "DeletePod";
    stage
        .step("another strategy", &[], async |stage| {
            let patch = json!({"spec": {"refresh": {"strategy": "DeletePod"}}}).to_string();
            let arguments = ["patch", "swarm", WORKERS, "--type=merge", "--patch", &patch];
            stage.kubectl(&arguments).map(drop)
        })
        .await?;
    for replicas in [2, 3] {
        to(stage, replicas).await?;
    }
    faults::operator_killed(stage, 5, 2).await?;
    faults::worker_killed_in_mid_handover(stage, 3).await?;
    by_way_of(stage, 4, 2).await?;
    faults::operator_killed(stage, 3, 3).await?;
    faults::node_cut(stage).await?;
    for replicas in [1, 2] {
        to(stage, replicas).await?;
    }
    by_way_of(stage, 4, 3).await?;
    to(stage, 2).await
}
