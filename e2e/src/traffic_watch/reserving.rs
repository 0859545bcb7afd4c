//! Bandwidth that the scheduler counts: a real scheduler, real kubelets, and pods that send.
//!
//! Everything is at a fifth of the links of a Gbit/s that one thinks of: the machine carries all of
//! these nodes at once. The ratios are the same.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use jiff::Timestamp;

use super::kubelets::register_again;
use super::pods::{
    admitted_again, allocatable, delete, insufficient, life, only_on, request, running,
};
use super::{nodes_of, until_ready};
use crate::objects;
use crate::stage::Stage;

/// The name of the TrafficWatch.
const WATCH: &str = "reserved";
const RESOURCE: &str = "traffic.example.com/egress-mbps";
/// Mbit/s of each link, a fifth of a Gbit/s.
const LINK: u64 = 200;
/// The share of it above which a node is unfit, and the reserve below that.
const PERCENT: u64 = 95;
/// The same in Mbit/s.
const THRESHOLD: f64 = 190.0;
/// Mbit/s of each of ten pods: three fit on a link at rest, none on the one with traffic; 15 to 30
/// less or more than what is free there change neither.
const EACH: u64 = 50;
const PODS: usize = 10;
const FIT: usize = 9;
/// Mbit/s that nobody declared, on one node. Headers come on top.
const UNDECLARED: u64 = 145;
const LOADED: &str = "node-2";
/// Mbit/s of a single pod: half of a link.
const HALF: u64 = LINK / 2;
/// Mbit/s by which a value changes: 5 % of the link.
const STEP: u64 = 10;
/// Mbit/s for the rest of the cluster, which sends too, and the step by which values change.
const SLACK: u64 = 20;
/// The time over which links are measured: longer than a burst of any pod.
const MEASURED: Duration = Duration::from_secs(15);
/// A time without the operator, or without the API server, that all leases and caches notice.
const AWAY: Duration = Duration::from_secs(20);
/// The time at rest in which nothing may be written.
const REST: Duration = Duration::from_mins(1);

/// Mbit/s that can be promised on a link without other traffic.
const fn limit() -> u64 {
    // 95 % of the link, and 5 % of that are reserved.
    LINK * PERCENT / 100 * 95 / 100
}

/// Applies the TrafficWatch; without a reservation it judges, and publishes nothing.
async fn watch(stage: &Stage<'_>, reservation: bool) -> Result<()> {
    let reservation = if reservation {
        format!("\n  reservation: {{resource: {RESOURCE}, unit: 1M, reserve: 5%, step: 5%}}")
    } else {
        String::new()
    };
    let yaml = format!(
        "apiVersion: traffic.example.com/v1alpha1\nkind: TrafficWatch\n\
         metadata: {{name: {WATCH}, namespace: default}}\n\
         spec:\n  maxBandwidthPercent: \"{PERCENT}\"\n  capacity: {LINK}M\n  interval: 2s\n  \
         window: 20s\n  maxSampleAge: 10s{reservation}\n"
    );
    stage.apply(&yaml).await?;
    until_ready(stage, WATCH).await
}

/// Waits until a node offers an amount in this range.
async fn until_offers(
    stage: &Stage<'_>,
    node: &str,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64> {
    let mut last = 0;
    let found = stage
        .wait(&format!("{node} offers {range:?}"), async || {
            last = allocatable(stage, node, RESOURCE)?;
            Ok(range.contains(&last))
        })
        .await;
    if let Err(error) = found {
        let rates = stage.rates(Duration::from_secs(5)).await?;
        return Err(error.context(format!("it offers {last}; Mbit/s now: {rates:?}")));
    }
    Ok(last)
}

/// Creates ten pods at once that send to the outside of all nodes.
async fn senders(stage: &Stage<'_>, app: &str, resources: &str) -> Result<()> {
    let (host, port) = stage.cluster.sink_address();
    // Two pieces a second: each starts two processes.
    let piece = EACH * 1_000_000 / 8 / 2;
    let send = format!(
        "while true; do dd if=/dev/zero bs={piece} count=1 2>/dev/null; usleep 500000; done | \
         nc {host} {port}"
    );
    let yaml = format!(
        "apiVersion: apps/v1\nkind: Deployment\n\
         metadata: {{name: {app}, namespace: default, labels: {{app: {app}}}}}\n\
         spec:\n  replicas: {PODS}\n  selector: {{matchLabels: {{app: {app}}}}}\n  \
         template:\n    metadata: {{labels: {{app: {app}}}}}\n    spec:\n      \
         terminationGracePeriodSeconds: 0\n      containers:\n      - name: c\n        \
         image: busybox:1.35\n        command: [sh, -c, '{send}']\n        \
         resources: {resources}\n"
    );
    stage.apply(&yaml).await
}

/// Deletes the senders and waits until they are gone.
async fn no_senders(stage: &Stage<'_>, app: &str) -> Result<()> {
    stage.cluster.kubectl(&["delete", "deployment", app, "--cascade=foreground"])?;
    let gone = async || Ok(nodes_of(stage, &format!("app={app}"))?.is_empty());
    stage.wait("the senders gone", gone).await
}

/// Returns the number of pods on each node; those that wait have no node.
fn places(stage: &Stage<'_>, app: &str) -> Result<BTreeMap<String, u64>> {
    let mut places = BTreeMap::new();
    for node in nodes_of(stage, &format!("app={app}"))? {
        *places.entry(node).or_default() += 1;
    }
    Ok(places)
}

/// without and with a reservation.
pub async fn herd(stage: &Stage<'_>) -> Result<()> {
    let traffic = stage.cluster.traffic(LOADED, UNDECLARED * 1_000_000, Duration::from_mins(20))?;
    watch(stage, false).await?;
    senders(stage, "herd", "{}").await?;
    running_pods(stage, "herd", PODS).await?;
    let herd_places = places(stage, "herd")?;
    let herd = stage.rates(MEASURED).await?;
    // What they may send, not what they manage to on a busy machine.
    let promised = UNDECLARED + EACH * herd_places.get(LOADED).copied().unwrap_or_default();
    ensure!(promised > LINK, "no herd to compare with: {herd:?}, {herd_places:?}");
    no_senders(stage, "herd").await?;

    watch(stage, true).await?;
    let mut published = BTreeMap::new();
    for node in stage.cluster.node_names() {
        let range = if node == LOADED { 0..=EACH - 1 } else { 3 * EACH..=limit() };
        let amount = until_offers(stage, &node, range).await?;
        published.insert(node, amount);
    }
    senders(stage, "counted", &format!("{{limits: {{{RESOURCE}: \"{EACH}\"}}}}")).await?;
    let words = insufficient(stage, "counted", RESOURCE).await?;
    running_pods(stage, "counted", FIT).await?;
    let placed = places(stage, "counted")?;
    let requested = |node: &str| placed.get(node).copied().unwrap_or(0) * EACH;
    let over = published.iter().find(|(node, amount)| requested(node) > **amount);
    stage.claim(
        "ten pods at once promise no link twice",
        over.is_none(),
        format!("{placed:?} pods of {EACH} Mbit/s on {published:?}; one waits: {words}"),
    );
    let counted = stage.rates(MEASURED).await?;
    for node in counted.keys() {
        let (offers, runs) = (allocatable(stage, node, RESOURCE)?, requested(node));
        ensure!(offers >= runs, "{node} offers {offers}, its pods run with {runs}");
    }
    stage.claim(
        "no link is fuller than its threshold, and without a reservation one is",
        counted.values().all(|rate| *rate <= THRESHOLD),
        format!(
            "{counted:.0?} Mbit/s, at most {THRESHOLD:.0}; without: {herd_places:?} pods, which \
             promises {promised} of {LINK} on {LOADED}, and it sends {:.0}",
            herd[LOADED]
        ),
    );
    no_senders(stage, "counted").await?;
    traffic.stop().await.map(drop)
}

/// Waits until this many pods of an app run.
async fn running_pods(stage: &Stage<'_>, app: &str, count: usize) -> Result<()> {
    let run = async || {
        let pods = stage.list(&["pods", "-l", &format!("app={app}")])?;
        Ok(pods.iter().filter(|pod| objects::is_true(pod, "Ready")).count() == count)
    };
    stage.wait(&format!("{count} pods of {app} ready"), run).await
}

/// Everything around the value fails once, and the pod that relies on it runs on.
pub async fn faults(stage: &Stage<'_>) -> Result<()> {
    watch(stage, true).await?;
    let whole = limit() - SLACK..=limit();
    until_offers(stage, LOADED, whole.clone()).await?;
    request(stage, "stays", (RESOURCE, HALF), &only_on(LOADED)).await?;
    let pod = running(stage, "stays").await?;
    let unharmed = |what: &str| -> Result<u64> {
        let now = life(stage, "stays")?;
        ensure!(now == pod, "{what}: {now:?}, and it was {pod:?}");
        let offered = allocatable(stage, LOADED, RESOURCE)?;
        ensure!(offered >= HALF, "{what}: {LOADED} offers {offered}");
        Ok(offered)
    };

    stage.cluster.restart_kubelet(LOADED).await?;
    admitted_again(stage, LOADED).await?;
    unharmed("a restart of the kubelet")?;

    stage.operator_away().await?;
    let before = allocatable(stage, LOADED, RESOURCE)?;
    let away = async {
        stage.cluster.restart_kubelet(LOADED).await?;
        admitted_again(stage, LOADED).await?;
        tokio::time::sleep(AWAY).await;
        let stands = unharmed("without the operator")?;
        ensure!(stands == before, "without the operator: {stands}, and it was {before}");
        anyhow::Ok(())
    }
    .await;
    stage.cluster.scale_operator(2).await?;
    away?;
    unharmed("the operator back")?;

    // Without the operator nobody would put it back; with it, a new Node gets its value.
    register_again(stage, LOADED).await?;
    let back = Instant::now();
    until_offers(stage, LOADED, HALF..=limit()).await?;
    let back = back.elapsed().as_secs();
    // All of it once the measurement shows what the pod there sends.
    until_offers(stage, LOADED, whole.clone()).await?;
    admitted_again(stage, LOADED).await?;
    unharmed("a registration of the node")?;

    stage.finally(|cluster| cluster.resume("kube-apiserver"));
    stage.cluster.pause("kube-apiserver")?;
    tokio::time::sleep(AWAY).await;
    stage.cluster.resume("kube-apiserver")?;
    stage.cluster.nodes_ready(&stage.cluster.node_names()).await?;
    unharmed("without the API server")?;
    stage.cluster.operator_ready().await?;
    until_ready(stage, WATCH).await?;
    until_offers(stage, LOADED, whole).await?;
    unharmed("the API server back")?;
    stage.claim(
        "what is published outlives kubelets, a registration and the API server",
        true,
        format!("a pod of {HALF} runs through all of it; the value is back {back} s after a registration"),
    );
    delete(stage, &["stays"])
}

/// Returns the operator's writes to the status of nodes since then.
async fn writes(stage: &Stage<'_>, since: Timestamp) -> Result<Vec<String>> {
    let ours = stage
        .writes(since)
        .await?
        .into_iter()
        .filter(|event| event.resource == "nodes" && event.subresource == "status");
    Ok(ours.map(|event| format!("{} {} {}", event.time, event.verb, event.name)).collect())
}

pub async fn rest(stage: &Stage<'_>) -> Result<()> {
    watch(stage, true).await?;
    for node in stage.cluster.node_names() {
        until_offers(stage, &node, limit() - SLACK..=limit()).await?;
    }
    // The first values settle with a whole window of what is measured.
    let calm = Duration::from_secs(20);
    stage
        .wait("no write for some time", async || {
            let since = Timestamp::now();
            tokio::time::sleep(calm).await;
            Ok(writes(stage, since).await?.is_empty())
        })
        .await?;
    let since = Timestamp::now();
    tokio::time::sleep(REST).await;
    let idle = writes(stage, since).await?;
    let figure = format!("{} writes in {} s {idle:?}", idle.len(), REST.as_secs());
    stage.claim("reservation: a link at rest costs no write", idle.is_empty(), figure);

    let since = Timestamp::now();
    let end = Instant::now() + REST;
    while Instant::now() < end {
        let time = Duration::from_secs(10);
        let wobble = stage.cluster.traffic("node-3", STEP * 1_000_000 / 3, time)?;
        wobble.wait().await?;
        tokio::time::sleep(time).await;
    }
    let wobbling = writes(stage, since).await?;
    let figure = format!("{} writes in {} s {wobbling:?}", wobbling.len(), REST.as_secs());
    stage.claim("nor does a wobble below a step", wobbling.is_empty(), figure);
    Ok(())
}
