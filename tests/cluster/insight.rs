//! Policies that move pods, and the commands that explain the reasons: on the cluster, against the
//! real history.
use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::{scenarios::deployment, stage::Stage};

/// Runs the operator's binary like a user, with a kubeconfig and the address of Prometheus.
async fn command(stage: &Stage, arguments: &[&str]) -> Result<(bool, String)> {
    let output = Command::new(env!("CARGO_BIN_EXE_traffic-operator"))
        .args(arguments)
        .env("KUBECONFIG", stage.cluster.kubeconfig())
        .env("TRAFFIC_OPERATOR_PROMETHEUS_URL", stage.cluster.prometheus_url().await?)
        .output()?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// The state as the leader's status page shows it.
async fn view(stage: &Stage, name: &str) -> Result<Value> {
    let namespace = "traffic-operator-system";
    let lease = stage.json(&["-n", namespace, "lease", "traffic-operator"])?;
    let leader = lease["spec"]["holderIdentity"].as_str().context("a leader")?;
    let path = format!("/api/v1/trafficwatches?namespace=default&name={name}");
    let view = stage.cluster.get_in_pod(namespace, leader, 8082, &path).await?;
    let view: Value = serde_json::from_str(&view)?;
    ensure!(view["leader"] == true, "{view}");
    Ok(view["watches"][0].clone())
}

pub async fn pods_leave_a_node_that_stays_unfit_and_budgets_hold(stage: &Stage) -> Result<()> {
    let spec = format!("taint: NoSchedule\neviction: {{after: 6s}}\n{}", deployment("leave", ""));
    stage.watch("leave", &spec).await?;
    let budget = "apiVersion: policy/v1\nkind: PodDisruptionBudget\n\
         metadata: {name: leave, namespace: default}\n\
         spec: {minAvailable: 3, selector: {matchLabels: {app: leave}}}\n";
    stage.cluster.apply(budget).await?;
    stage.until_ready("leave").await?;
    stage
        .until("four pods, some on node-2", async || {
            let nodes = stage.nodes_of("app=leave")?;
            Ok(nodes.len() == 4 && nodes.contains(&"node-2".into()))
        })
        .await?;
    let traffic = stage.cluster.traffic("node-2", 500_000_000, Duration::from_mins(4))?;
    stage.until_label("node-2", "leave", Some("true")).await?;
    let mut fewest = i64::MAX;
    stage
        .until("all pods off node-2, without a hand", async || {
            let status = &stage.json(&["deployment", "leave"])?["status"];
            fewest = fewest.min(status["availableReplicas"].as_i64().unwrap_or(0));
            let nodes = stage.nodes_of("app=leave")?;
            Ok(nodes.len() == 4 && nodes.iter().all(|n| n == "node-1" || n == "node-3"))
        })
        .await?;
    ensure!(fewest >= 3, "{fewest} pods were available, the budget says 3");
    let taints = stage.json(&["node", "node-2"])?["spec"]["taints"].to_string();
    ensure!(taints.contains("leave.traffic.example.com/unfit"), "{taints}");
    let events = stage.json(&["events"])?.to_string();
    ensure!(events.contains("PodEvicted"), "no event tells of the eviction");
    traffic.stop().await?;
    stage.until_label("node-2", "leave", Some("false")).await?;
    let taints = stage.json(&["node", "node-2"])?["spec"]["taints"].to_string();
    ensure!(!taints.contains("leave.traffic.example.com/unfit"), "{taints}");
    stage.cluster.kubectl(&["delete", "pdb", "leave"])?;
    stage.delete("leave")
}

pub async fn why_a_node_is_unfit_is_answered_by_one_command(stage: &Stage) -> Result<()> {
    stage.watch("why", "consecutive: {unfit: 2, fit: 2}").await?;
    stage.until_ready("why").await?;
    let traffic = stage.cluster.traffic("node-2", 500_000_000, Duration::from_mins(3))?;
    stage.until_label("node-2", "why", Some("true")).await?;
    let (done, said) =
        command(stage, &["explain", "node", "node-2", "--watch", "default/why"]).await?;
    ensure!(done, "{said}");
    for text in [
        "node-2 is Unfit for default/why",
        "% on eth0, above 30 %",
        "fit again with bandwidth at or below 27 % for 2 judgments in a row",
        "why.traffic.example.com/unfit=true, as it should be",
        "node_network_transmit_bytes_total",
        "From the leader",
    ] {
        ensure!(said.contains(text), "no {text:?} in:\n{said}");
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("why.yaml");
    std::fs::write(&file, stage.cluster.kubectl(&["get", "trafficwatch", "why", "-o", "yaml"])?)?;
    let path = file.to_str().context("path")?;
    // If a busy node misses a scrape, the next one makes up for it.
    stage
        .until("node-2 evaluated", async || {
            let (done, said) = command(stage, &["evaluate", "-f", path, "--cluster"]).await?;
            let row = said.lines().find(|line| line.contains("node-2")).unwrap_or_default();
            ensure!(done && row.contains("eth0"), "{said}");
            Ok(true)
        })
        .await?;
    let (done, said) = command(stage, &["doctor"]).await?;
    ensure!(done && said.contains("3 of 3 belong to a node"), "{said}");
    traffic.stop().await?;
    stage.delete("why")
}

/// Two bursts and an unavailable exporter: the operator's transitions are those that the replay of
/// the same time predicts, in the same order.
pub async fn backtest_agrees_with_what_the_operator_did(stage: &Stage) -> Result<()> {
    stage.watch("history", "maxSampleAge: 10s").await?;
    stage.until_ready("history").await?;
    // A quiet window, so that both begin in the same state.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let from = Timestamp::now();
    for node in ["node-2", "node-3"] {
        let traffic = stage.cluster.traffic(node, 500_000_000, Duration::from_secs(25))?;
        stage.until_label(node, "history", Some("true")).await?;
        traffic.stop().await?;
        stage.until_label(node, "history", Some("false")).await?;
    }
    stage.cluster.in_node("node-3", "pkill", &["-STOP", "-x", "node_exporter"])?;
    let unknown = stage
        .until("node-3 Unknown", async || {
            Ok(stage.status("history")?["nodes"]["node-3"]["state"] == "Unknown")
        })
        .await;
    stage.cluster.in_node("node-3", "pkill", &["-CONT", "-x", "node_exporter"])?;
    unknown?;
    stage
        .until("node-3 judged again", async || {
            Ok(stage.status("history")?["nodes"]["node-3"]["state"] == "Fit")
        })
        .await?;
    let to = Timestamp::now();
    let mut did = transitions(&view(stage, "history").await?["transitions"], from)?;
    did.reverse();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("history.yaml");
    std::fs::write(
        &file,
        stage.cluster.kubectl(&["get", "trafficwatch", "history", "-o", "yaml"])?,
    )?;
    let path = file.to_str().context("path")?;
    let (from_text, to_text) = (from.to_string(), to.to_string());
    let arguments =
        ["backtest", "-f", path, "--cluster", "--from", &from_text, "--to", &to_text, "-o", "json"];
    let (done, said) = command(stage, &arguments).await?;
    ensure!(done, "{said}");
    let report: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
    let would = transitions(&report["backtests"][0]["run"]["transitions"], from)?;
    let words =
        |all: &[(Timestamp, String)]| all.iter().map(|(_, t)| t.clone()).collect::<Vec<_>>();
    ensure!(words(&did) == words(&would), "did\n{did:#?}\nbacktest\n{would:#?}");
    ensure!(did.len() >= 6, "{did:#?}");
    for ((did, what), (would, _)) in did.iter().zip(&would) {
        // Both query every 2 s, but at different instants; a sample more or less shifts one tick.
        let apart = did.duration_since(*would).unsigned_abs();
        ensure!(apart <= Duration::from_secs(6), "{what}: {did} and {would}");
    }
    stage.delete("history")
}

/// Returns node, states and reason of each transition since then, in the order of the list.
fn transitions(list: &Value, since: Timestamp) -> Result<Vec<(Timestamp, String)>> {
    let mut all = Vec::new();
    for transition in list.as_array().with_context(|| format!("transitions: {list}"))? {
        let text = |key: &str| transition[key].as_str().unwrap_or_default().to_owned();
        let at: Timestamp = text("at").parse()?;
        if at >= since {
            let (node, from, to) = (text("node"), text("from"), text("to"));
            all.push((at, format!("{node} {from} -> {to} {}", text("reason"))));
        }
    }
    Ok(all)
}
