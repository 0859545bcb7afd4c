//! Agents over time: open files, writes, and peers that hang or die.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use jiff::Timestamp;
use lab::AuditEvent;

use super::objects::{create, metrics, namespace, pod, ready};
use crate::exposition::{sum, sum_of};
use crate::judge::OPERATOR;
use crate::objects;
use crate::stage::{PATIENCE, Stage};

const NAMESPACE: &str = "agents";
/// The pods: without a controller, so that dead ones are not replaced; each on a node.
const PODS: [&str; 3] = ["hangs", "lives", "dies"];
/// Three agents, two peers each, three protocols, four times a second.
const SETTINGS: &str =
    "pollingPeriod: 250ms\ntimeout: 200ms\nprobes: [HTTP, TCP, UDP]\noriginalMetrics: true";
/// The time for which probes are counted with and without a peer that hangs.
const COUNTED: Duration = Duration::from_secs(20);
/// The time for which nothing may be written, after as long without a write.
const REST: Duration = Duration::from_secs(30);
/// Probes in flight hold descriptors at both ends: six of three agents, in three protocols.
const IN_FLIGHT: f64 = 36.0;

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    stage.apply(&namespace(NAMESPACE)).await?;
    create(stage, NAMESPACE, "agents", SETTINGS).await?;
    let nodes = stage.cluster.node_names();
    for (name, node) in PODS.iter().zip(&nodes) {
        let on = format!("nodeName: {node}");
        stage.apply(&pod(NAMESPACE, name, "agents", &on)).await?;
    }
    ready(stage, NAMESPACE, "agents", PODS.len()).await?;
    stage
        .wait("agents that measure their peers", async || {
            let mut enough = true;
            for name in PODS {
                let page = metrics(stage, NAMESPACE, name).await?;
                let succeeded = sum_of(&page, PROBES, &[("result", "success")]);
                enough &= sum(&page, "netprober_peers") >= 2.0 && succeeded > 0.0;
            }
            Ok(enough)
        })
        .await?;
    let (before, probes_before) = open_files(stage).await?;
    at_rest(stage).await?;
    a_peer_hangs(stage, &nodes).await?;
    stage
        .wait("three thousand probes", async || {
            Ok(open_files(stage).await?.1 - probes_before > 3000.0)
        })
        .await?;
    let (after, probes) = open_files(stage).await?;
    let probes = probes - probes_before;
    stage.claim(
        "agents open no more files however long they probe",
        before > 0.0 && after <= before + IN_FLIGHT,
        format!(
            "{before:.0} -> {after:.0} descriptors in {probes:.0} probes (the original: one for each)"
        ),
    );
    a_peer_dies(stage, &nodes).await
}

const PROBES: &str = "netprober_probes_total";

/// Descriptors, the most of a few samples, and probes so far, of all agents.
async fn open_files(stage: &Stage<'_>) -> Result<(f64, f64)> {
    let (mut most, mut probes) = (0.0_f64, 0.0_f64);
    for _ in 0..4 {
        let (mut files, mut all) = (0.0, 0.0);
        for name in PODS {
            let page = metrics(stage, NAMESPACE, name).await?;
            files += sum(&page, "process_open_fds");
            all += sum(&page, PROBES);
        }
        (most, probes) = (most.max(files), probes.max(all));
    }
    Ok((most, probes))
}

async fn at_rest(stage: &Stage<'_>) -> Result<()> {
    // Reviews of tokens and of scrapers' rights change nothing; other acts have namespaces of their
    // own. The webhook's account begins with the name of the controllers'.
    let writes = |events: &[AuditEvent]| -> Vec<String> {
        let ours = events.iter().filter(|event| event.user.starts_with(OPERATOR));
        let written = ours.filter(|event| event.is_write() && event.namespace == NAMESPACE);
        written.map(|event| format!("{} {} {}", event.verb, event.resource, event.name)).collect()
    };
    stage
        .wait("nothing written for a while", async || {
            let since = Timestamp::now();
            tokio::time::sleep(REST / 3).await;
            Ok(writes(&stage.cluster.whole_audit_since(since).await?).is_empty())
        })
        .await?;
    let since = Timestamp::now();
    tokio::time::sleep(REST).await;
    let events = stage.cluster.whole_audit_since(since).await?;
    let (written, pods) = (writes(&events), format!("system:serviceaccount:{NAMESPACE}:"));
    let by_agents = events.iter().filter(|event| event.user.starts_with(&pods)).count();
    stage.claim(
        "a prober at rest writes nothing, and its agents do not speak with the API server",
        written.is_empty() && by_agents == 0,
        format!(
            "{} writes in {} s {written:?}, {by_agents} requests of agents",
            written.len(),
            REST.as_secs()
        ),
    );
    Ok(())
}

/// The agent of one node is stopped without ending.
async fn a_peer_hangs(stage: &Stage<'_>, nodes: &[String]) -> Result<()> {
    // Probes that a healthy agent has counted of the other one, and of the one that hangs.
    let counts = async || -> Result<(f64, f64)> {
        let page = metrics(stage, NAMESPACE, PODS[1]).await?;
        let of = |metric, node: &str, kind| sum_of(&page, metric, &[("dst_node", node), kind]);
        let lost = of("netprober_failures_total", &nodes[0], ("reason", "timeout"));
        Ok((of(PROBES, &nodes[2], ("result", "success")), lost))
    };
    let counted = async || -> Result<(f64, f64)> {
        let before = counts().await?;
        tokio::time::sleep(COUNTED).await;
        let after = counts().await?;
        Ok((after.0 - before.0, after.1 - before.1))
    };
    let usual = counted().await?.0;
    // The image replaces the command by the program of the agents: a dash where the blank is.
    let signal = |signal: &'static str| {
        let node = nodes[0].clone();
        move |cluster: &lab::Cluster| {
            let agent = ["-f", "traffic-operator.agent probe"];
            cluster.in_node(&node, "pkill", &[&[signal], &agent[..]].concat()).map(drop)
        }
    };
    stage.finally(signal("-CONT"));
    signal("-STOP")(stage.cluster)?;
    let (healthy, timeouts) = counted().await?;
    signal("-CONT")(stage.cluster)?;
    stage.claim(
        "a peer that does not answer costs the others nothing",
        usual > 0.0 && healthy >= usual / 2.0 && timeouts >= usual / 2.0,
        format!(
            "the healthy pair probed {healthy:.0} times (before: {usual:.0}), {timeouts:.0} timeouts \
             counted (the original: once more, then not at all)"
        ),
    );
    Ok(())
}

async fn a_peer_dies(stage: &Stage<'_>, nodes: &[String]) -> Result<()> {
    let [_, lives, dies] = PODS;
    let series = format!(r#"dest_pod_name="{dies}""#);
    let page = metrics(stage, NAMESPACE, lives).await?;
    ensure!(page.contains(&series), "no series of {dies}:\n{page}");
    let away = ["delete", "pod", "-n", NAMESPACE, dies, "--grace-period=0", "--force"];
    stage.kubectl(&away)?;
    let began = Instant::now();
    let gone = async || {
        let page = metrics(stage, NAMESPACE, lives).await?;
        let probes = sum_of(&page, PROBES, &[("dst_node", &nodes[2])]);
        Ok((!page.contains(&series) && probes == 0.0).then_some(()))
    };
    stage.until("no series of the dead one, nor of its node", PATIENCE, gone).await?;
    let seconds = began.elapsed().as_secs_f64();
    let figure = format!("gone after {seconds:.1} s (the original: still there after 96 s)");
    stage.claim("series of a dead peer vanish", true, figure);
    let left = stage.list(&["pods", "-n", NAMESPACE])?;
    let restarts: i64 = left.iter().map(objects::restarts).sum();
    stage.claim("no agent was restarted", restarts == 0, format!("{restarts} restarts"));
    Ok(())
}
