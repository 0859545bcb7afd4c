//! The network prober, played on a real cluster and judged.

mod figures;
mod link;
mod original;
mod outage;
mod scope;
mod sidecar;
mod stage;

use std::time::Instant;

use anyhow::Result;

use lab::checks::Check;
use lab::cluster::Cluster;
use stage::Stage;

/// Plays all acts; each adds its checks.
pub async fn play(cluster: &Cluster, started: Instant, checks: &mut Vec<Check>) -> Result<()> {
    let stage = Stage::new(cluster, started);
    stage.say("deploying the operator from deploy/, as `make deploy` does");
    cluster.deploy_operator().await?;
    original::play(&stage, checks).await?;
    sidecar::play(&stage, checks).await?;
    link::play(&stage, checks).await?;
    outage::play(&stage, checks).await
}
