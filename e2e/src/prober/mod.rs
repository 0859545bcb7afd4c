//! `NetworkProber`s: agents in pods measure the network.

pub mod broken;
mod figures;
mod large;
mod link;
pub mod objects;
mod original;
mod outage;
pub mod pods;
mod sidecar;
mod targets;
mod trace;

use anyhow::Result;
use serde_json::Value;

use crate::stage::Stage;

/// The name of the `NetworkProber`, as the original's sample has it.
const SAMPLE: &str = "networkprober-sample";
/// Value of the label on its series: namespace and name.
const PROBER: &str = "default/networkprober-sample";
/// Labels of the tour's pods.
const PODS: &str = "app=net-prober,part=web";

/// The tour: the original's sample, the operator's own agent, targets of which one is slow and one
/// fails, a path that is lost, a link that is slow and lossy, and one that carries no large packets.
pub async fn play(stage: &Stage<'_>) -> Result<()> {
    original::play(stage).await?;
    sidecar::play(stage).await?;
    // While the path is lost, targets are measured.
    let lost = trace::Rule::set(stage)?;
    targets::play(stage).await?;
    trace::named(stage, lost).await?;
    link::play(stage).await?;
    large::play(stage).await
}

/// The operator away, with the agents of the tour.
pub async fn without_the_operator(stage: &Stage<'_>) -> Result<()> {
    apply(stage, "prober.yaml").await?;
    ready(stage).await?;
    outage::play(stage).await
}

/// Waits for the prober: pods that come before have no agent.
async fn ready(stage: &Stage<'_>) -> Result<()> {
    let prober = ["networkprober", SAMPLE];
    stage.wait("the NetworkProber ready", async || stage.holds(&prober, "Ready")).await
}

/// Applies one of the tour's manifests.
async fn apply(stage: &Stage<'_>, file: &str) -> Result<()> {
    stage.apply_file(&format!("e2e/manifests/prober/{file}")).await
}

/// The status of the `NetworkProber`.
fn prober_status(stage: &Stage<'_>) -> Result<Value> {
    objects::status(stage, "default", SAMPLE)
}

/// Waits until this many of the tour's pods are ready and returns them.
async fn pods_ready(stage: &Stage<'_>, count: usize) -> Result<Vec<Value>> {
    objects::selected(stage, "default", PODS, count).await
}
