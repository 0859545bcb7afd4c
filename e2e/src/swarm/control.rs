//! Checks that the sink would have seen a fault.

use anyhow::{Context, Result};

use super::stage::Stage;
use lab::checks::Check;
use lab::streams::{Millis, Stretch, now};
use lab::workspace;

/// Starts a pod that runs what another one runs already, and waits until the sink has counted it.
pub async fn play(stage: &Stage<'_>) -> Result<Check> {
    let began = now();
    let path = workspace::root().join("e2e/manifests/swarm/impostor.yaml");
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    stage.say("ACT 5  would it have been seen? kubectl apply -f e2e/manifests/swarm/impostor.yaml");
    stage.cluster.apply(&text.replace("SINK", &stage.sink.url())).await?;
    let theirs = stage.file()?.streams_of("swarm-worker-0").len();
    let since = Stretch::new(began, Millis::MAX);
    let count = || stage.sink.ledger().overlaps(since).len();
    stage.until("the impostor seen", async || Ok(count() == theirs)).await?;
    let figure = format!("{} overlaps by a second swarm-worker-0, of {theirs} streams", count());
    stage.say(&format!("==> {figure}"));
    stage.kubectl(&["delete", "pod", "impostor", "--wait=false"])?;
    Ok(Check::new("a stream that runs twice is seen", true, figure))
}
