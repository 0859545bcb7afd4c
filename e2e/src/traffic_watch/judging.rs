//! A node that is loaded, one whose exporter falls silent, and the commands that say why.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use lab::cluster::operator::{NAME, NAMESPACE, PAGE};
use serde_json::Value;

use super::{
    LOAD, LOADED, deployment, label, node_writes, nodes_of, status, until_label, until_off,
    until_ready, until_state, watch,
};
use crate::stage::Stage;

const WATCH: &str = "load";
/// The object whose Deployment has an affinity of its own.
const AFFINE: &str = "affine";
const NODE: &str = "node-2";
/// The node whose exporter accepts connections and does not answer.
const SILENT: &str = "node-3";
/// A window, so that operator and replay begin in the same state.
const CALM: Duration = Duration::from_secs(20);

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    let spec = "maxSampleAge: 10s\nconsecutive: {unfit: 2, fit: 2}";
    watch(stage, WATCH, &format!("{spec}\n{}", deployment(WATCH, ""))).await?;
    until_ready(stage, WATCH).await?;
    tokio::time::sleep(CALM).await;
    let from = Timestamp::now();
    stage.say(&format!("{NODE} sends {} Mbit/s", LOAD / 1_000_000));
    let traffic = stage.cluster.traffic(NODE, LOAD, LOADED)?;
    until_label(stage, NODE, WATCH, "true").await?;
    new_pods(stage).await?;
    an_affinity_of_the_authors_own(stage).await?;
    why(stage).await?;
    traffic.stop().await?;
    for watch in [WATCH, AFFINE] {
        until_label(stage, NODE, watch, "false").await?;
    }
    a_silent_exporter(stage).await?;
    backtest(stage, from, Timestamp::now()).await
}

/// Running pods stay, those that are created now go elsewhere.
async fn new_pods(stage: &Stage<'_>) -> Result<()> {
    stage.kubectl(&["delete", "pods", "-l", &format!("app={WATCH}"), "--wait=false"])?;
    until_off(stage, &format!("app={WATCH}"), NODE).await?;
    let nodes = nodes_of(stage, &format!("app={WATCH}"))?;
    stage.claim("new pods stay off a loaded node", true, nodes.join(", "));
    Ok(())
}

/// The original added a node selector term to those of the author: with two, all pods ran on the
/// unfit node.
async fn an_affinity_of_the_authors_own(stage: &Stage<'_>) -> Result<()> {
    let affinity = format!(
        "affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{NODE}]}}]
            - matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{SILENT}]}}]"
    );
    watch(stage, AFFINE, "placement: Required").await?;
    until_label(stage, NODE, AFFINE, "true").await?;
    watch(stage, AFFINE, &deployment(AFFINE, &affinity)).await?;
    let affine = format!("app={AFFINE}");
    let there = async || Ok(nodes_of(stage, &affine)? == [SILENT; 4].map(String::from));
    stage.wait(&format!("four pods on {SILENT}"), there).await?;
    stage.claim(
        "an affinity of the author's own never reaches an unfit node",
        true,
        format!(
            "{NODE} or {SILENT} wanted: 4 of 4 on {SILENT} (the original: 2 of 2 on the other)"
        ),
    );
    Ok(())
}

/// Runs the operator's program like a user, with a kubeconfig and the address of Prometheus.
async fn command(stage: &Stage<'_>, arguments: &[&str]) -> Result<(bool, String)> {
    let output = Command::new(stage.operator)
        .args(arguments)
        .env("KUBECONFIG", stage.cluster.kubeconfig())
        .env("TRAFFIC_OPERATOR_PROMETHEUS_URL", stage.cluster.prometheus_url().await?)
        .output()
        .with_context(|| stage.operator.display().to_string())?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// Writes an object as the cluster has it, for a command.
fn saved(stage: &Stage<'_>, name: &str) -> Result<String> {
    let file = stage.cluster.dir().join(format!("{name}.yaml"));
    std::fs::write(&file, stage.cluster.kubectl(&["get", "trafficwatch", name, "-o", "yaml"])?)?;
    Ok(file.to_string_lossy().into_owned())
}

async fn why(stage: &Stage<'_>) -> Result<()> {
    let of = format!("default/{WATCH}");
    let (done, said) =
        command(stage, &["explain", "node", NODE, "--watch", &of, "--query"]).await?;
    ensure!(done, "{said}");
    let texts = [
        &format!("{NODE} is Unfit for {of}"),
        "% on eth0, above 30 %",
        "fit again with bandwidth at or below 27 % for 2 judgments in a row",
        &format!("{WATCH}.traffic.example.com/unfit=true, as it should be"),
        "node_network_transmit_bytes_total",
        "From the leader",
    ];
    let missing: Vec<&str> = texts.into_iter().filter(|text| !said.contains(text)).collect();
    let figure = if missing.is_empty() {
        said.lines().next().unwrap_or_default().to_owned()
    } else {
        format!("no {missing:?} in:\n{said}")
    };
    stage.claim("one command says why a node is unfit", missing.is_empty(), figure);
    let file = saved(stage, WATCH)?;
    // If a busy node misses a scrape, the next one makes up for it.
    let evaluated = async || {
        let (done, said) = command(stage, &["evaluate", "-f", &file, "--cluster"]).await?;
        let row = said.lines().find(|line| line.contains(NODE)).unwrap_or_default();
        ensure!(done && row.contains("eth0"), "{said}");
        Ok(Some(row.trim().to_owned()))
    };
    let row = stage.until(&format!("{NODE} evaluated"), crate::stage::PATIENCE, evaluated).await?;
    stage.claim("evaluate judges as the operator does, without it", true, row);
    let all = stage.cluster.node_names().len();
    let belong = format!("{all} of {all} belong to a node");
    let diagnosed = async || {
        let (done, said) = command(stage, &["doctor"]).await?;
        ensure!(done && said.contains(&belong), "{said}");
        Ok(true)
    };
    stage.wait("doctor content", diagnosed).await?;
    stage.claim("doctor finds the installation in order", true, belong.clone());
    Ok(())
}

/// This hung the original for 251 s.
async fn a_silent_exporter(stage: &Stage<'_>) -> Result<()> {
    let since = Timestamp::now();
    let signal = |signal: &'static str| {
        move |cluster: &lab::Cluster| {
            cluster.in_node(SILENT, "pkill", &[signal, "-x", "node_exporter"]).map(drop)
        }
    };
    stage.say(&format!("the exporter of {SILENT} accepts connections, and does not answer"));
    stage.finally(signal("-CONT"));
    signal("-STOP")(stage.cluster)?;
    until_state(stage, SILENT, WATCH, "Unknown").await?;
    let (judged, kept) = (status(stage, WATCH)?, label(stage, SILENT, WATCH)?);
    let available = stage.holds(&["trafficwatch", WATCH], "MetricsAvailable")?;
    signal("-CONT")(stage.cluster)?;
    until_state(stage, SILENT, WATCH, "Fit").await?;
    let writes = node_writes(stage, since).await?;
    let reason = &judged["nodes"][SILENT]["reason"];
    let others = stage.cluster.node_names();
    let mut others = others.iter().filter(|node| *node != SILENT);
    stage.claim(
        "a silent exporter makes its node unknown, keeps its label, and harms no other",
        reason == "ExporterDown"
            && kept.as_deref() == Some("false")
            && others.all(|node| judged["nodes"][node]["state"] == "Fit")
            && available
            && writes.is_empty(),
        format!("{reason}, label {kept:?}, {} writes to nodes {writes:?}", writes.len()),
    );
    Ok(())
}

/// The operator's transitions are those that the replay of the same time predicts, in the same
/// order.
async fn backtest(stage: &Stage<'_>, from: Timestamp, to: Timestamp) -> Result<()> {
    let lease = stage.get(&["-n", NAMESPACE, "lease", NAME])?;
    let leader = lease["spec"]["holderIdentity"].as_str().context("a leader")?;
    let path = format!("/api/v1/trafficwatches?namespace=default&name={WATCH}");
    let read = async || {
        let view = stage.cluster.get_in_pod(NAMESPACE, leader, PAGE, &path).await?;
        Ok(Some(serde_json::from_str::<Value>(&view)?))
    };
    let view = stage.until("the leader's view", crate::stage::PATIENCE, read).await?;
    ensure!(view["leader"] == true, "{view}");
    let mut did = transitions(&view["watches"][0]["transitions"], from)?;
    did.reverse();
    let (file, from_text, to_text) = (saved(stage, WATCH)?, from.to_string(), to.to_string());
    let time = ["--from", &from_text, "--to", &to_text, "-o", "json"];
    let arguments = [&["backtest", "-f", &file, "--cluster"], &time[..]].concat();
    let (done, said) = command(stage, &arguments).await?;
    ensure!(done, "{said}");
    let report: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
    let would = transitions(&report["backtests"][0]["run"]["transitions"], from)?;
    let words =
        |all: &[(Timestamp, String)]| all.iter().map(|(_, t)| t.clone()).collect::<Vec<_>>();
    let apart = did.iter().zip(&would).map(|(did, would)| did.0.duration_since(would.0).abs());
    let most = apart.max().unwrap_or_default().as_secs_f64();
    // Both query every 2 s, but at different instants; a sample more or less shifts one tick.
    stage.claim(
        "backtest predicts what the operator did",
        words(&did) == words(&would) && did.len() >= 4 && most <= 6.0,
        format!("{:?}; predicted {:?}, at most {most:.1} s apart (6)", words(&did), words(&would)),
    );
    Ok(())
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
