//! Pods leave a loaded node, and its label stays while the operator and Prometheus are away.

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use lab::cluster::operator::{NAME, NAMESPACE};

use super::{
    LOAD, LOADED, deployment, judged_after, label, node_writes, nodes_of, status, until_label,
    until_ready, until_state, watch,
};
use crate::stage::{PATIENCE, Stage};

const WATCH: &str = "stays";
const NODE: &str = "node-3";

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    let budget = format!(
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\n\
         metadata: {{name: {WATCH}, namespace: default}}\n\
         spec: {{minAvailable: 3, selector: {{matchLabels: {{app: {WATCH}}}}}}}\n"
    );
    stage.apply(&budget).await?;
    let leaves = "taint: NoSchedule\neviction: {after: 6s}\nconsecutive: {unfit: 2, fit: 2}";
    watch(stage, WATCH, &format!("{leaves}\n{}", deployment(WATCH, ""))).await?;
    until_ready(stage, WATCH).await?;
    let app = format!("app={WATCH}");
    let spread = async || {
        let nodes = nodes_of(stage, &app)?;
        Ok(nodes.len() == 4 && nodes.contains(&NODE.to_owned()))
    };
    stage.wait(&format!("four pods, some on {NODE}"), spread).await?;
    let traffic = stage.cluster.traffic(NODE, LOAD, LOADED)?;
    until_label(stage, NODE, WATCH, "true").await?;
    pods_leave(stage, &app).await?;
    let since = Timestamp::now();
    operator_killed_and_rolled(stage).await?;
    prometheus_away(stage).await?;
    let (writes, kept) = (node_writes(stage, since).await?, label(stage, NODE, WATCH)?);
    stage.claim(
        "no label changes while operator and Prometheus come and go",
        writes.is_empty() && kept.as_deref() == Some("true"),
        format!("{} writes to nodes {writes:?}, {NODE} is labeled {kept:?}", writes.len()),
    );
    traffic.stop().await?;
    until_label(stage, NODE, WATCH, "false").await?;
    let taints = taints(stage)?;
    stage.claim("a fit node has no taint", !taints.contains(WATCH), taints.clone());
    Ok(())
}

fn taints(stage: &Stage<'_>) -> Result<String> {
    Ok(stage.get(&["node", NODE])?["spec"]["taints"].to_string())
}

async fn pods_leave(stage: &Stage<'_>, app: &str) -> Result<()> {
    let mut fewest = i64::MAX;
    let left = async || {
        let status = &stage.get(&["deployment", WATCH])?["status"];
        fewest = fewest.min(status["availableReplicas"].as_i64().unwrap_or(0));
        let nodes = nodes_of(stage, app)?;
        let off = nodes.iter().all(|node| !node.is_empty() && node != NODE);
        Ok((nodes.len() == 4 && off).then_some(()))
    };
    stage.until(&format!("all pods off {NODE}, without a hand"), PATIENCE, left).await?;
    let told = stage.get(&["events"])?.to_string().contains("PodEvicted");
    let taints = taints(stage)?;
    let tainted = taints.contains(&format!("{WATCH}.traffic.example.com/unfit"));
    stage.claim(
        "pods leave a node that stays unfit, and their budget holds",
        fewest >= 3 && told && tainted,
        format!("at least {fewest} of 4 available (the budget: 3), taints {taints}"),
    );
    Ok(())
}

async fn operator_killed_and_rolled(stage: &Stage<'_>) -> Result<()> {
    let nodes = stage.cluster.node_names();
    // It exits 1 where no replica runs; the kernel keeps 15 characters of a process' name.
    let kill = |node: &&String| {
        stage.cluster.in_node(node, "pkill", &["-KILL", "-x", "traffic-operato"]).is_ok()
    };
    let killed = nodes.iter().filter(kill).count();
    ensure!(killed > 0, "no replica was found to be killed");
    stage.say(&format!("kill -9 every replica of the operator, on {killed} nodes"));
    judged_after(stage, WATCH, Timestamp::now()).await?;
    let deployment = format!("deployment/{NAME}");
    stage.kubectl(&["-n", NAMESPACE, "rollout", "restart", &deployment])?;
    stage.cluster.operator_ready().await?;
    judged_after(stage, WATCH, Timestamp::now()).await?;
    stage.claim("judging resumes after kill -9 and after a roll-out", true, "both judged again");
    Ok(())
}

async fn prometheus_away(stage: &Stage<'_>) -> Result<()> {
    let replicas = |count: u8| {
        move |cluster: &lab::Cluster| {
            let patch = format!(r#"{{"spec":{{"replicas":{count}}}}}"#);
            let arguments = ["patch", "prometheus", "k8s", "--type=merge", "-p", &patch];
            cluster.kubectl(&[&["-n", "monitoring"], &arguments[..]].concat()).map(drop)
        }
    };
    stage.say("Prometheus away");
    stage.finally(replicas(1));
    replicas(0)(stage.cluster)?;
    let pod = ["delete", "pod", "-n", "monitoring", "prometheus-k8s-0", "--ignore-not-found"];
    stage.kubectl(&[&pod[..], &["--force", "--grace-period=0"]].concat())?;
    let available = || stage.holds(&["trafficwatch", WATCH], "MetricsAvailable");
    stage.wait("MetricsAvailable=False", async || available().map(|there| !there)).await?;
    let unknown = status(stage, WATCH)?["summary"]["unknown"].clone();
    tokio::time::sleep(Duration::from_secs(10)).await;
    replicas(1)(stage.cluster)?;
    stage.wait("MetricsAvailable=True", async || available()).await?;
    until_state(stage, NODE, WATCH, "Unfit").await?;
    stage.claim(
        "without Prometheus every node is unknown, and judging resumes by itself",
        unknown == stage.cluster.node_names().len(),
        format!("{unknown} unknown"),
    );
    Ok(())
}
