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

use super::Check;
use crate::cluster::{Cluster, Options};
use crate::image;
use stage::Stage;

/// Two nodes in each of two zones: links within a zone and between zones.
const NODES: usize = 4;
const ZONES: [&str; 2] = ["zone-a", "zone-b"];

/// Starts a cluster, plays the demo, prints the checks, and takes the cluster down unless it should
/// be kept.
///
/// Returns whether all checks passed.
///
/// # Errors
///
/// If the cluster cannot be started or taken down. A failure in between is a failed check.
pub async fn run(keep: bool) -> Result<bool> {
    let product = image::product_archive();
    let options = Options {
        nodes: NODES,
        zones: ZONES.map(str::to_owned).to_vec(),
        images: vec![image::original_agent_archive(&product), product],
        ..Options::default()
    };
    super::perform(options, keep, play).await
}

/// Plays all acts; each adds its checks.
async fn play(cluster: &Cluster, started: Instant, checks: &mut Vec<Check>) -> Result<()> {
    let stage = Stage::new(cluster, started);
    stage.say("deploying the operator from deploy/, as `make deploy` does");
    cluster.deploy_operator().await?;
    original::play(&stage, checks).await?;
    sidecar::play(&stage, checks).await?;
    link::play(&stage, checks).await?;
    outage::play(&stage, checks).await
}
