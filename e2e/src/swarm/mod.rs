//! The swarm, played on a real cluster and judged by what its workers report.

mod control;
mod faults;
mod file;
mod history;
mod scalings;
mod settled;
mod stage;
mod table;
mod verdict;

use std::time::Instant;

use anyhow::Result;

use lab::checks::Check;
use lab::cluster::Cluster;
use stage::Stage;

/// Plays all acts, and judges the reports, even if one of the acts did not finish.
pub async fn play(cluster: &Cluster, started: Instant, checks: &mut Vec<Check>) -> Result<()> {
    let mut stage = Stage::new(cluster, started).await?;
    stage.say("deploying the operator from deploy/, as `make deploy` does");
    cluster.deploy_operator().await?;
    let played = acts(&mut stage).await;
    verdict::print(&stage);
    checks.extend(verdict::reported(&stage));
    checks.extend(verdict::written(&stage)?);
    played?;
    checks.extend(verdict::own_metrics(&stage).await?);
    checks.push(control::play(&stage).await?);
    Ok(())
}

async fn acts(stage: &mut Stage<'_>) -> Result<()> {
    scalings::hot_reload(stage).await?;
    scalings::delete_pod(stage).await
}
