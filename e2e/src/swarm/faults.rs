//! The faults while streams are handed over.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::Api;

use super::file::File;
use super::stage::{NAMESPACE, Stage};
use lab::cluster::operator::NAMESPACE as OPERATOR;

/// The operator writes its first file within a second; without a leader it takes the length of a
/// lease.
const BEGIN: Duration = Duration::from_secs(40);
/// The first node runs the cluster's own services, and routes the lab's traffic to all others.
const SERVICES: &str = "node-1";

/// Waits until this many files have been published that no worker has noticed yet.
pub(super) async fn in_mid_handover(stage: &Stage<'_>, files: usize) -> Result<()> {
    stage.history.reaches(files, BEGIN).await
}

/// SIGKILL to the first process of a worker: the kubelet starts it again in the same pod.
pub(super) async fn worker_killed(stage: &mut Stage<'_>) -> Result<()> {
    let victim = "swarm-worker-1";
    stage.faults += 1;
    stage.step("worker killed", &[victim], async |stage| kill(stage, victim).await).await
}

async fn kill(stage: &Stage<'_>, victim: &str) -> Result<()> {
    let restarts = async || {
        let workers = stage.workers().await?;
        workers.get(victim).map(|worker| worker.restarts).with_context(|| format!("no {victim}"))
    };
    let before = restarts().await?;
    stage.say(&format!("kill -9 the process of {victim}"));
    stage.cluster.kill_container(NAMESPACE, victim).await?;
    stage.wait(&format!("{victim} started again"), async || Ok(restarts().await? > before)).await
}

/// A worker's pod is deleted, as by a user: another one of the same name replaces it.
pub(super) async fn worker_deleted(stage: &mut Stage<'_>) -> Result<()> {
    let victim = "swarm-worker-2";
    stage.faults += 1;
    stage
        .step("worker deleted", &[victim], async |stage| {
            let uid = stage.workers().await?.get(victim).map(|worker| worker.uid.clone());
            stage.kubectl(&["delete", "pod", victim, "--wait=false"])?;
            let is_another = async || {
                let now = stage.workers().await?.get(victim).map(|worker| worker.uid.clone());
                Ok(now.is_some() && now != uid)
            };
            stage.wait(&format!("another {victim}"), is_another).await
        })
        .await
}

/// The operator's leader is killed with SIGKILL as soon as this many new files are published: no
/// worker has acknowledged the last one.
pub(super) async fn operator_killed(
    stage: &mut Stage<'_>,
    replicas: usize,
    files: usize,
) -> Result<()> {
    let name = format!("{} -> {replicas}, operator killed", stage.replicas);
    stage.faults += 1;
    stage
        .step(&name, &[], async |stage| {
            let (known, leader) = (stage.history.len(), stage.cluster.operator_leader().await?);
            stage.scale(replicas)?;
            in_mid_handover(stage, known + files).await?;
            stage.cluster.kill_container(OPERATOR, &leader).await?;
            let file = stage.file()?;
            stage.say(&format!(
                "kill -9 the operator's leader {leader} at epoch {}, {} streams being released",
                file.epoch,
                file.releasing.len()
            ));
            Ok(())
        })
        .await
}

/// A worker dies while it should release streams or gain some.
pub(super) async fn worker_killed_in_mid_handover(
    stage: &mut Stage<'_>,
    replicas: usize,
) -> Result<()> {
    let victim = "swarm-worker-0";
    let name = format!("{} -> {replicas}, worker killed", stage.replicas);
    stage.faults += 1;
    stage
        .step(&name, &[victim], async |stage| {
            let known = stage.history.len();
            stage.scale(replicas)?;
            in_mid_handover(stage, known + 1).await?;
            stage.say(&format!("kill -9 the process of {victim}"));
            // It may be terminating already, which is no failure of the demo.
            if let Err(error) = stage.cluster.kill_container(NAMESPACE, victim).await {
                stage.say(&format!("    it runs no more: {error:#}"));
            }
            Ok(())
        })
        .await
}

/// A node's cable is pulled, a worker is added meanwhile, and the cable is plugged in again.
pub(super) async fn node_cut(stage: &mut Stage<'_>) -> Result<()> {
    let node = victim_node(stage).await?;
    let cut_off = of_node(stage, &node).await?;
    let replicas = stage.replicas + 1;
    let name = format!("{} -> {replicas}, a node cut off", stage.replicas);
    stage.faults += 1;
    stage.node_back(&node);
    let had = stage.file()?;
    stage
        .step(&name, &[], async |stage| {
            let before = stage.file()?;
            let theirs: BTreeSet<&str> =
                cut_off.iter().flat_map(|worker| before.streams_of(worker)).collect();
            let known = stage.history.len();
            stage.say(&format!("the cable of {node} is pulled"));
            stage.cluster.cut(&node)?;
            stage
                .wait(&format!("{node} not Ready"), async || Ok(!ready(stage, &node).await?))
                .await?;
            stage
                .say(&format!("==> {node} is NotReady, {} streams run on it unseen", theirs.len()));
            stage.scale(replicas)?;
            if stage.strategy == "HotReload" {
                only_cut_off_workers_are_pending(stage, &cut_off, replicas).await?;
            } else {
                evicted(stage, &cut_off).await?;
            }
            let given = stage.history.since(known).iter().any(|file| {
                let owners = file.owners();
                theirs
                    .iter()
                    .any(|stream| owners.get(stream).is_some_and(|owner| !cut_off.contains(*owner)))
            });
            if given {
                stage.wrong.push(format!("{node} was cut off, and one of its streams given away"));
            }
            let file = stage.file()?;
            stage.say(&format!(
                "==> epoch {}: no other worker has one of its streams, {} wait for its acknowledgement; plugged in again",
                file.epoch,
                file.releasing.iter().filter(|it| cut_off.contains(&it.worker)).count()
            ));
            stage.cluster.join(&node)?;
            stage.cluster.nodes_ready(std::slice::from_ref(&node)).await
        })
        .await?;
    if stage.strategy == "HotReload" {
        stayed(stage, &had, &cut_off)?;
    }
    Ok(())
}

/// The streams that workers keep while they are cut off run all the time.
fn stayed(stage: &mut Stage<'_>, had: &File, cut_off: &BTreeSet<String>) -> Result<()> {
    let (has, time) = (stage.file()?, stage.rows.last().context("no step")?.time);
    let gaps = stage.sink.ledger().gap_times(time);
    let (before, after) = (had.owners(), has.owners());
    let kept = before
        .iter()
        .filter(|(stream, owner)| cut_off.contains(**owner) && after.get(*stream) == Some(*owner));
    let stopped: Vec<&&str> =
        kept.map(|(stream, _)| stream).filter(|it| gaps.contains_key(**it)).collect();
    if !stopped.is_empty() {
        stage.wrong.push(format!("streams of the node that was cut off did not run: {stopped:?}"));
    }
    Ok(())
}

/// A node is cut off, dies, and its Node is deleted: only that says that nothing runs there any more.
pub(super) async fn node_deleted(stage: &mut Stage<'_>) -> Result<()> {
    let node = victim_node(stage).await?;
    let gone = of_node(stage, &node).await?;
    let replicas = stage.replicas + 1;
    let name = format!("{} -> {replicas}, a node deleted", stage.replicas);
    stage.faults += 1;
    stage.node_back(&node);
    let excused: Vec<&str> = gone.iter().map(String::as_str).collect();
    stage
        .step(&name, &excused, async |stage| {
            stage.say(&format!("{node} is cut off"));
            stage.cluster.cut(&node)?;
            stage.wait("the node not Ready", async || Ok(!ready(stage, &node).await?)).await?;
            stage.scale(replicas)?;
            only_cut_off_workers_are_pending(stage, &gone, replicas).await?;
            stage.cluster.kill_node(&node)?;
            stage.kubectl(&["delete", "node", &node])?;
            let elsewhere = async || {
                let workers = stage.workers().await?;
                let there =
                    |name: &String| workers.get(name).is_some_and(|it| it.node != node && it.ready);
                Ok(gone.iter().all(there) && stage.file()?.releasing.is_empty())
            };
            stage.wait("its workers and streams elsewhere", elsewhere).await?;
            stage.cluster.join(&node)?;
            stage.cluster.start_node(&node)?;
            stage.cluster.nodes_ready(std::slice::from_ref(&node)).await?;
            stage.cluster.mark(&node).await
        })
        .await
}

/// The workers on a node.
async fn of_node(stage: &Stage<'_>, node: &str) -> Result<BTreeSet<String>> {
    let workers = stage.workers().await?.into_iter().filter(|(_, worker)| worker.node == node);
    Ok(workers.map(|(name, _)| name).collect())
}

/// A node with workers, but neither the operator's leader nor the cluster's own services.
async fn victim_node(stage: &Stage<'_>) -> Result<String> {
    let leader = stage.cluster.operator_leader().await?;
    let path = "jsonpath={.spec.nodeName}";
    let arguments = ["get", "pod", "-n", OPERATOR, &leader, "-o", path];
    let theirs = stage.cluster.kubectl(&arguments)?;
    let workers = stage.workers().await?;
    let found = workers.values().map(|worker| worker.node.clone());
    match found.into_iter().find(|node| node != SERVICES && *node != theirs) {
        Some(node) => Ok(node),
        None => bail!("no node can be cut off: the leader is on {theirs}, workers on {workers:?}"),
    }
}

async fn ready(stage: &Stage<'_>, node: &str) -> Result<bool> {
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let status = nodes.get(node).await?.status.unwrap_or_default();
    Ok(status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True"))
}

/// Waits until the new worker has the streams that the others can release, and only the
/// acknowledgements of the workers that are cut off are missing.
async fn only_cut_off_workers_are_pending(
    stage: &Stage<'_>,
    cut_off: &BTreeSet<String>,
    replicas: usize,
) -> Result<()> {
    stage
        .wait("only workers that are cut off are pending", async || {
            let file = stage.file()?;
            let theirs = !file.releasing.is_empty()
                && file.releasing.iter().all(|it| cut_off.contains(&it.worker));
            let newest = file.shares.get(&format!("swarm-worker-{}", replicas - 1));
            Ok(theirs && newest.is_some_and(|share| !share.jobs.is_empty()))
        })
        .await
}

/// Waits until a pod that is cut off should go: it does not learn of it.
async fn evicted(stage: &Stage<'_>, cut_off: &BTreeSet<String>) -> Result<()> {
    stage
        .wait("a pod that is cut off evicted", async || {
            let workers = stage.workers().await?;
            Ok(workers.iter().any(|(name, worker)| cut_off.contains(name) && worker.leaving))
        })
        .await
}
