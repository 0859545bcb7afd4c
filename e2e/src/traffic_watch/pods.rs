//! Pods that request an extended resource, and what nodes offer of it.
use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::objects;
use crate::prober::objects::{limited_pod, pod};
use crate::stage::{PATIENCE, Stage};

/// The state of a pod that must not change when nothing about the pod does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    pub uid: String,
    pub node: String,
    pub phase: String,
    /// The kubelet's reason, if it rejected the pod.
    pub reason: String,
    pub restarts: i64,
}

impl Life {
    fn of(pod: &Value) -> Self {
        let text = objects::text;
        Self {
            uid: text(&pod["metadata"]["uid"]),
            node: objects::node(pod),
            phase: text(&pod["status"]["phase"]),
            reason: text(&pod["status"]["reason"]),
            restarts: objects::restarts(pod),
        }
    }
}

/// Returns the state of a pod.
pub fn life(stage: &Stage<'_>, name: &str) -> Result<Life> {
    Ok(Life::of(&stage.get(&["pod", name])?))
}

/// Waits until a pod runs; returns its state.
pub async fn running(stage: &Stage<'_>, name: &str) -> Result<Life> {
    let runs = async || Ok(life(stage, name)?.phase == "Running");
    stage.wait(&format!("{name} running"), runs).await?;
    life(stage, name)
}

/// Creates a pod that requests this much of a resource; `more` goes into its spec.
pub async fn request(
    stage: &Stage<'_>,
    name: &str,
    (resource, amount): (&str, u64),
    more: &str,
) -> Result<()> {
    let limits = format!("{{{resource}: \"{amount}\"}}");
    stage.apply(&limited_pod("default", name, name, more, &limits)).await
}

/// The line of a pod's spec that lets the scheduler choose this node alone.
pub fn only_on(node: &str) -> String {
    format!("nodeSelector: {{kubernetes.io/hostname: {node}}}")
}

/// Waits until a kubelet that was restarted has admitted all pods of its node: it takes those that
/// exist before those that are created later.
pub async fn admitted_again(stage: &Stage<'_>, node: &str) -> Result<()> {
    let name = format!("later-on-{node}");
    stage.apply(&pod("default", &name, &name, &format!("nodeName: {node}"))).await?;
    running(stage, &name).await?;
    delete(stage, &[&name])
}

/// Waits for the words with which the scheduler says that a pod whose name begins like this waits
/// for a resource.
pub async fn insufficient(stage: &Stage<'_>, pod: &str, resource: &str) -> Result<String> {
    let reason = format!("Insufficient {resource}");
    let look = async || {
        let events = stage.list(&["events", "--field-selector=reason=FailedScheduling"])?;
        let of_it =
            |event: &&Value| objects::text(&event["involvedObject"]["name"]).starts_with(pod);
        let messages = events.iter().rev().filter(of_it).map(|event| &event["message"]);
        Ok(messages.map(objects::text).find(|words| words.contains(&reason)))
    };
    stage.until(&format!("the scheduler's reason for {pod}"), PATIENCE, look).await
}

/// Deletes pods.
pub fn delete(stage: &Stage<'_>, names: &[&str]) -> Result<()> {
    let end = ["--grace-period=0", "--force", "--ignore-not-found"];
    stage.cluster.kubectl(&[&["delete", "pod"], names, &end].concat()).map(drop)
}

/// Returns the amounts of a resource that a node offers: capacity and allocatable, as written.
pub fn offered(stage: &Stage<'_>, node: &str, resource: &str) -> Result<[Option<u64>; 2]> {
    let status = &stage.get(&["node", node])?["status"];
    let amount = |list: &str| -> Result<Option<u64>> {
        let found = &status[list][resource];
        let Some(text) = found.as_str() else { return Ok(None) };
        let amount = text.parse().with_context(|| format!("{list} of {node}: {text:?}"))?;
        Ok(Some(amount))
    };
    Ok([amount("capacity")?, amount("allocatable")?])
}

/// Returns the amount of a resource that a node offers to the scheduler, 0 without any.
pub fn allocatable(stage: &Stage<'_>, node: &str, resource: &str) -> Result<u64> {
    let [capacity, allocatable] = offered(stage, node, resource)?;
    ensure!(capacity == allocatable, "{node}: capacity {capacity:?}, allocatable {allocatable:?}");
    Ok(allocatable.unwrap_or(0))
}

/// Writes amounts into a node's status, as an administrator does; `None` removes the key.
pub fn offer(
    stage: &Stage<'_>,
    node: &str,
    resource: &str,
    lists: &[&str],
    amount: Option<u64>,
) -> Result<()> {
    let amount = amount.map(|amount| amount.to_string());
    let lists: BTreeMap<&str, Value> =
        lists.iter().map(|list| (*list, json!({resource: amount}))).collect();
    let patch = json!({"status": lists}).to_string();
    let arguments = ["patch", "node", node, "--subresource=status", "--type=merge", "-p", &patch];
    stage.cluster.kubectl(&arguments).map(drop)
}
