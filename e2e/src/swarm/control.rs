//! Checks that the sink would have seen a fault.

use anyhow::Result;

use super::stage::Stage;
use crate::objects::manifest;
use lab::streams::{Millis, Stretch, now};

/// Starts a pod that runs what another one runs already, and waits until the sink has counted it.
pub async fn play(stage: &Stage<'_>) -> Result<()> {
    let began = now();
    let impostor = manifest("e2e/manifests/swarm/impostor.yaml")?;
    stage.say("would it have been seen? kubectl apply -f e2e/manifests/swarm/impostor.yaml");
    stage.apply(&impostor.replace("SINK", &stage.sink.url())).await?;
    let theirs = stage.file()?.streams_of("swarm-worker-0").len();
    let since = Stretch::new(began, Millis::MAX);
    let count = || stage.sink.ledger().overlaps(since).len();
    stage.wait("the impostor seen", async || Ok(count() == theirs)).await?;
    let figure = format!("{} overlaps by a second swarm-worker-0, of {theirs} streams", count());
    stage.claim("a stream that runs twice is seen", true, figure);
    Ok(())
}
