//! Agents over time on real nodes: peers that hang or die, open files, and writes.
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::{
    prober::{compare, create, delete, deploy, metrics, name_of, pod, ready, sum},
    stage::{ACCOUNT, Stage},
};

fn node_of(pod: &Value) -> String {
    pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()
}

/// Waits until each of the agents has measured this many peers.
async fn measuring(stage: &Stage, pods: &[Value], peers: f64) -> Result<()> {
    stage
        .until("agents that measure their peers", async || {
            for pod in pods {
                let page = metrics(stage, &name_of(pod))?;
                let enough = sum(&page, "netprober_peers", &[]) >= peers
                    && sum(&page, "netprober_probes_total", &[("result", "success")]) > 0.0;
                if !enough {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
}

pub async fn agents_open_no_more_files_however_long_they_probe(stage: &Stage) -> Result<()> {
    create(stage, "files", "pollingPeriod: 100ms\nprobes: [HTTP, TCP, UDP]").await?;
    deploy(stage, "files", 3).await?;
    let (pods, _) = ready(stage, "files", 3).await?;
    measuring(stage, &pods, 2.0).await?;
    // Descriptors, and probes so far, of all three agents.
    let look = || -> Result<(f64, f64)> {
        let pages = pods.iter().map(|pod| metrics(stage, &name_of(pod)));
        let pages = pages.collect::<Result<Vec<_>>>()?;
        let total = |name: &str| pages.iter().map(|page| sum(page, name, &[])).sum();
        Ok((total("process_open_fds"), total("netprober_probes_total")))
    };
    // The highest of a few samples each: a probe in flight holds a descriptor or two.
    let highest = async || -> Result<(f64, f64)> {
        let mut highest = (0.0_f64, 0.0_f64);
        for _ in 0..5 {
            let now = look()?;
            highest = (highest.0.max(now.0), highest.1.max(now.1));
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        Ok(highest)
    };
    let (before, probes_before) = highest().await?;
    let began = Instant::now();
    tokio::time::sleep(Duration::from_mins(2)).await;
    let (after, probes) = highest().await?;
    let probes = probes - probes_before;
    compare(
        "1 descriptor for each probe: 12 a minute with 2 peers every 10 s",
        &format!(
            "{before:.0} -> {after:.0} descriptors of 3 agents in {probes:.0} probes ({:.0} s)",
            began.elapsed().as_secs_f64()
        ),
    );
    ensure!(before > 0.0 && probes > 3000.0, "{before} descriptors, {probes} probes");
    // Six probes of three agents may be in flight, with two ends each.
    ensure!(after <= before + 36.0, "{before} -> {after}");
    delete(stage, "files").await
}

pub async fn a_peer_that_does_not_answer_costs_the_others_nothing(stage: &Stage) -> Result<()> {
    create(stage, "hung", "pollingPeriod: 500ms\ntimeout: 400ms").await?;
    deploy(stage, "hung", 3).await?;
    let (pods, _) = ready(stage, "hung", 3).await?;
    measuring(stage, &pods, 2.0).await?;
    let (hung, one, two) = (&pods[0], &pods[1], &pods[2]);
    let nodes = [hung, one, two].map(node_of);
    // Probes that a healthy agent has counted of the other one, and of the hung one.
    let look = || -> Result<(f64, f64)> {
        let page = metrics(stage, &name_of(one))?;
        let count = |to: &str, kind: (&str, &str)| {
            sum(&page, "netprober_probes_total", &[("dst_node", to), kind])
        };
        let failed = count(&nodes[0], ("reason", "timeout"));
        Ok((count(&nodes[2], ("result", "success")), failed))
    };
    let signal = |signal: &str| {
        // The operator on the same node has another command line.
        // The image replaces the command by the program of the agents: a dash where the blank is.
        stage.cluster.in_node(&nodes[0], "pkill", &[signal, "-f", "traffic-operator.agent probe"])
    };
    signal("-STOP")?;
    let outcome = async {
        let (before, began) = (look()?, Instant::now());
        tokio::time::sleep(Duration::from_secs(20)).await;
        let (after, seconds) = (look()?, began.elapsed().as_secs_f64());
        Ok::<_, anyhow::Error>((after.0 - before.0, after.1 - before.1, seconds))
    }
    .await;
    signal("-CONT")?;
    let (healthy, timeouts, seconds) = outcome?;
    compare(
        "98 s: the healthy pair probed once more, then not at all (9 polls lost)",
        &format!(
            "{seconds:.0} s: the healthy pair probed {healthy:.0} times (every 0.5 s: {:.0}), \
             {timeouts:.0} timeouts counted",
            seconds * 2.0
        ),
    );
    ensure!(healthy >= seconds * 2.0 * 0.9, "{healthy} probes of the healthy pair");
    ensure!(timeouts >= seconds * 2.0 * 0.8, "{timeouts} timeouts counted");
    delete(stage, "hung").await
}

pub async fn series_of_a_dead_peer_vanish(stage: &Stage) -> Result<()> {
    create(stage, "dead", "pollingPeriod: 500ms").await?;
    // Pods without a controller, so that dead ones are not replaced.
    let names = ["dead-1", "dead-2", "dead-3"];
    let pinned = |number: usize| format!("nodeName: node-{number}");
    try_join_all((1..=3).map(|number| {
        let more = pinned(number);
        async move { pod(stage, "default", names[number - 1], "dead", &more).await }
    }))
    .await?;
    let (pods, _) = ready(stage, "dead", 3).await?;
    measuring(stage, &pods, 2.0).await?;
    let series = r#"dest_pod_name="dead-3""#;
    stage
        .until("series of the third", async || Ok(metrics(stage, "dead-1")?.contains(series)))
        .await?;
    stage.cluster.kubectl(&["delete", "pod", "dead-3", "--grace-period=0", "--force"])?;
    let began = Instant::now();
    stage
        .until("no series of the third", async || {
            for name in &names[..2] {
                if metrics(stage, name)?.contains(series) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await?;
    let seconds = began.elapsed().as_secs_f64();
    let page = metrics(stage, "dead-1")?;
    let node = sum(&page, "netprober_probes_total", &[("dst_node", "node-3")]);
    ensure!(node == 0.0, "probes of the dead one's node are still exported: {node}");
    compare(
        "its series were still exported 96 s later; the period for all others 10 s -> 40 s",
        &format!("its series were gone {seconds:.1} s after its deletion"),
    );
    delete(stage, "dead").await
}

pub async fn a_prober_at_rest_writes_nothing(stage: &Stage) -> Result<()> {
    create(stage, "rest", "pollingPeriod: 1s").await?;
    deploy(stage, "rest", 3).await?;
    let (pods, _) = ready(stage, "rest", 3).await?;
    measuring(stage, &pods, 2.0).await?;
    // The writes that the last pod's start caused follow within seconds.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let since = Timestamp::now();
    tokio::time::sleep(Duration::from_secs(40)).await;
    let events = stage.cluster.whole_audit_since(since).await?;
    let leases = |resource: &str| resource.starts_with("leases.");
    // Reviews of tokens and of scrapers' rights change nothing.
    let asks = |resource: &str| resource.contains("reviews.");
    // The controller's account, and the webhook's, whose name has the same prefix.
    let ours = |user: &str| user.starts_with(ACCOUNT);
    let writes: Vec<String> = events
        .iter()
        .filter(|event| ours(&event.user) && event.is_write())
        .filter(|event| !leases(&event.resource) && !asks(&event.resource))
        .map(|event| format!("{} {} {}", event.verb, event.resource, event.name))
        .collect();
    let reviews = events.iter().filter(|event| ours(&event.user) && asks(&event.resource)).count();
    compare(
        "0 writes in 40 s",
        &format!("{} writes in 40 s (3 agents waiting; {reviews} reviews)", writes.len()),
    );
    ensure!(writes.is_empty(), "{writes:?}");
    // No agent may write at all, whatever the account of its pod.
    let agents =
        events.iter().filter(|event| event.user.starts_with("system:serviceaccount:default:"));
    ensure!(agents.count() == 0, "agents speak with the API server");
    delete(stage, "rest").await
}
