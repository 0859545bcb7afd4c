//! Extended resources that someone else writes into the status of a node, and its kubelet: the
//! facts on which reservations rest (docs/concepts/kubelet-and-extended-resources.md).
use std::time::Duration;

use anyhow::{Result, ensure};

use super::pods::{admitted_again, delete, life, offer, offered, only_on, request, running};
use crate::stage::Stage;

/// A resource that no kubelet and no operator knows.
const TOKENS: &str = "lab.example.com/tokens";
const NODE: &str = "node-3";
const BOTH: [&str; 2] = ["capacity", "allocatable"];
/// The tokens of each pod.
const WANTED: u64 = 4;
/// Several status updates of a kubelet: it sends one every 2 s here, every 10 s by default.
const UPDATES: Duration = Duration::from_secs(7);

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    stage.finally(|cluster| {
        let patch = format!(
            r#"{{"status":{{"capacity":{{"{TOKENS}":null}},"allocatable":{{"{TOKENS}":null}}}}}}"#
        );
        let of = ["patch", "node", NODE, "--subresource=status", "--type=merge", "-p", &patch];
        cluster.kubectl(&of).map(drop)
    });
    let tokens = || offered(stage, NODE, TOKENS);
    offer(stage, NODE, TOKENS, &BOTH, Some(10))?;
    request(stage, "first", (TOKENS, WANTED), &only_on(NODE)).await?;
    let first = running(stage, "first").await?;

    // It copies its capacity to what can be allocated, and nothing else.
    offer(stage, NODE, TOKENS, &["allocatable"], Some(5))?;
    stage.wait("allocatable as capacity", async || Ok(tokens()? == [Some(10); 2])).await?;
    offer(stage, NODE, TOKENS, &["capacity"], Some(8))?;
    stage.wait("allocatable as capacity", async || Ok(tokens()? == [Some(8); 2])).await?;

    stage.cluster.restart_kubelet(NODE).await?;
    admitted_again(stage, NODE).await?;
    ensure!(tokens()? == [Some(8); 2], "after a restart: {:?}", tokens()?);
    ensure!(life(stage, "first")? == first, "{:?}", life(stage, "first")?);

    // Less than what runs: nothing happens until the kubelet starts again.
    offer(stage, NODE, TOKENS, &BOTH, Some(WANTED - 1))?;
    tokio::time::sleep(UPDATES).await;
    ensure!(life(stage, "first")? == first, "{:?}", life(stage, "first")?);
    stage.cluster.restart_kubelet(NODE).await?;
    stage.wait("the pod rejected", async || Ok(life(stage, "first")?.phase == "Failed")).await?;
    let rejected = life(stage, "first")?.reason;
    ensure!(rejected == format!("OutOf{TOKENS}"), "{rejected}");
    delete(stage, &["first"])?;

    // No key is not the same as zero.
    offer(stage, NODE, TOKENS, &BOTH, Some(8))?;
    request(stage, "second", (TOKENS, WANTED), &only_on(NODE)).await?;
    let second = running(stage, "second").await?;
    offer(stage, NODE, TOKENS, &BOTH, None)?;
    stage.cluster.restart_kubelet(NODE).await?;
    admitted_again(stage, NODE).await?;
    ensure!(life(stage, "second")? == second, "{:?}", life(stage, "second")?);
    ensure!(tokens()? == [None; 2], "{:?}", tokens()?);

    // A node that is registered again has what its kubelet knows.
    offer(stage, NODE, TOKENS, &BOTH, Some(8))?;
    register_again(stage, NODE).await?;
    ensure!(tokens()? == [None; 2], "after a registration: {:?}", tokens()?);
    admitted_again(stage, NODE).await?;
    ensure!(life(stage, "second")? == second, "{:?}", life(stage, "second")?);
    delete(stage, &["second"])?;
    stage.claim(
        "a kubelet keeps foreign resources and admits pods against them again",
        true,
        format!(
            "{NODE}: capacity copied to allocatable; a value survives a restart; {} of {WANTED} \
             rejects ({rejected}); no key rejects nothing; a registration removes the key",
            WANTED - 1
        ),
    );
    Ok(())
}

/// Deletes a Node and lets its kubelet register it again, as a new object with the same name. The
/// label and the annotation of the lab come back: those who register nodes write them.
pub async fn register_again(stage: &Stage<'_>, node: &str) -> Result<()> {
    let uid = || Ok::<_, anyhow::Error>(stage.get(&["node", node])?["metadata"]["uid"].clone());
    let before = uid()?;
    stage.cluster.kubectl(&["delete", "node", node])?;
    // A kubelet registers its node once: it does not notice that the object is gone.
    stage.cluster.restart_kubelet(node).await?;
    stage.cluster.nodes_ready(&[node.to_owned()]).await?;
    ensure!(uid()? != before, "{node} was not registered again");
    stage.cluster.mark(node).await
}
