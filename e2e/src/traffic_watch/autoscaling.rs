//! The real Karpenter, with its provider of simulated nodes: pods that avoid unfit nodes, or wait
//! for bandwidth, make a node come.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::process::CommandLine;
use lab::tools;
use serde_json::{Value, json};

use super::{deployment, until_label, watch_by};
use crate::stage::Stage;

const KARPENTER: &str = "karpenter";
const RESOURCE: &str = "traffic.example.com/new-mbps";
/// Longer than Karpenter needs to decide about a pod, which it does seconds after it came.
const UNDECIDED: Duration = Duration::from_secs(20);

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    begin(stage).await?;
    unfit(stage).await?;
    bandwidth(stage).await
}

/// Starts Karpenter, with a pool of Linux nodes.
async fn begin(stage: &Stage<'_>) -> Result<()> {
    let program = tokio::task::spawn_blocking(|| tools::only("karpenter")).await??;
    // Last of all: nothing of Karpenter's is left when its definitions go.
    for definition in tokio::task::spawn_blocking(lab::cluster::definitions_of_karpenter).await?? {
        stage.apply(&definition).await?;
    }
    stage.finally(nodes_gone);
    let command = CommandLine::new(program, ["--disable-leader-election=true"])
        .env("KUBECONFIG", stage.cluster.kubeconfig_inside(KARPENTER)?)
        .env("FEATURE_GATES", "NodeOverlay=true")
        .env("METRICS_PORT", "18080")
        .env("HEALTH_PROBE_PORT", "18081");
    stage.cluster.start_beside(KARPENTER, None, command)?;
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let linux = json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]});
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": [linux]}}},
    });
    let class = json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
        "metadata": {"name": "default"},
    });
    for object in [class, pool] {
        let text = object.to_string();
        let created = async || Ok(stage.cluster.apply(&text).await.is_ok());
        stage.wait("Karpenter's kinds served", created).await?;
    }
    Ok(())
}

/// Removes the nodes that Karpenter made, and what would make more, while it still runs; then it.
fn nodes_gone(cluster: &lab::Cluster) -> Result<()> {
    for kind in ["nodepools", "nodeoverlays"] {
        cluster.kubectl(&["delete", kind, "--all", "--wait=false"])?;
    }
    cluster.kubectl(&["delete", "nodeclaims", "--all", "--timeout=60s"])?;
    cluster.kubectl(&["delete", "nodes", "-l", "karpenter.sh/nodepool", "--timeout=60s"])?;
    cluster.end_beside(KARPENTER)
}

/// The nodes that Karpenter made, by the pods that it made them for.
fn made(stage: &Stage<'_>) -> Result<Vec<Value>> {
    stage.list(&["nodes", "-l", "karpenter.sh/nodepool"])
}

/// Half of the nodes are unfit, which is as many as the operator marks, and each takes one pod.
async fn unfit(stage: &Stage<'_>) -> Result<()> {
    let half = "interval: 2s\nconsecutive: {unfit: 1, fit: 1}\ncriteria:\n\
                - {name: chosen, max: \"0.5\", query: 'up{job=\"node-exporter\",\
                instance=~\"node-2|node-3\"} * 1 or up{job=\"node-exporter\"} * 0'}";
    watch_by(stage, "crowded", half).await?;
    for node in ["node-2", "node-3"] {
        until_label(stage, node, "crowded", "true").await?;
    }
    ensure!(made(stage)?.is_empty(), "a node before any pod waits");
    let apart = "affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - topologyKey: kubernetes.io/hostname
            labelSelector: {matchLabels: {app: crowded}}";
    watch_by(stage, "crowded", &format!("{half}\n{}", deployment("crowded", apart))).await?;
    // Two of four have a node.
    let came = async || Ok(made(stage)?.len() >= 2);
    stage.wait("nodes for pods that avoid unfit nodes", came).await?;
    let node = &made(stage)?[0];
    let marks = node["metadata"]["labels"].as_object().context("labels")?;
    let marked = marks.iter().any(|(name, value)| name.ends_with("/unfit") && value == "true");
    stage.claim(
        "pods that avoid unfit nodes make Karpenter add nodes",
        !marked,
        format!("{}, beside node-2 and node-3, which are unfit", node["metadata"]["name"]),
    );
    Ok(())
}

async fn bandwidth(stage: &Stage<'_>) -> Result<()> {
    let before = made(stage)?.len();
    let spec = format!(
        "maxBandwidthPercent: \"60\"\ninterval: 2s\nwindow: 20s\nreservation: {{resource: {RESOURCE}}}"
    );
    watch_by(stage, "offers", &spec).await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "wide", "namespace": "default"},
        "spec": {"containers": [{
            "name": "c", "image": "busybox:1.35", "command": ["busybox", "sleep", "infinity"],
            "resources": {"requests": {RESOURCE: "5000"}, "limits": {RESOURCE: "5000"}},
        }]},
    });
    stage.apply(&pod.to_string()).await?;
    let query = "max(traffic_operator_trafficwatch_reservation_waiting_pods{name=\"offers\"}) == 1";
    let counted = async || Ok(!stage.cluster.query(query).await?.is_empty());
    stage.wait("the pod counted as waiting for bandwidth", counted).await?;
    tokio::time::sleep(UNDECIDED).await;
    let without = made(stage)?.len() - before;
    let overlay = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "egress"},
        "spec": {
            "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
            "capacity": {RESOURCE: "10000"},
        },
    });
    stage.cluster.apply(&overlay.to_string()).await?;
    let came = async || Ok(made(stage)?.len() > before);
    stage.wait("a node for a pod that waits for bandwidth", came).await?;
    stage.claim(
        "a pod that waits for bandwidth makes Karpenter add a node, with a NodeOverlay",
        without == 0,
        format!("{without} nodes without it, {} with it", made(stage)?.len() - before),
    );
    Ok(())
}
