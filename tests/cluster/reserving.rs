//! Bandwidth that the scheduler counts: a real scheduler, real kubelets, and pods that send.
//!
//! Everything is at a fifth of the links of a Gbit/s that one thinks of: the machine carries all of
//! these nodes at once. The ratios are the same.
use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;

use crate::{
    kubelets::register_again,
    pods::{admitted_again, allocatable, delete, life, only_on, rates, request, running},
    prober::{compare, ready},
    stage::{ACCOUNT, Stage},
};

/// The name of the TrafficWatch.
const WATCH: &str = "reserved";
const RESOURCE: &str = "traffic.example.com/egress-mbps";
/// Mbit/s of each link, a fifth of a Gbit/s.
const LINK: u64 = 200;
/// The share of it above which a node is unfit, and the reserve below that.
const PERCENT: u64 = 95;
/// The same in Mbit/s.
const THRESHOLD: f64 = 190.0;
/// Mbit/s of each of ten pods, a fifth of 200.
const EACH: u64 = 40;
const PODS: usize = 10;
/// Mbit/s that nobody declared, on one node: a fifth of 600. Headers come on top.
const UNDECLARED: u64 = 120;
const LOADED: &str = "node-2";
/// Mbit/s of a single pod: half of a link.
const HALF: u64 = LINK / 2;
/// The most that is enough for one of the ten pods and not for two.
const FOR_ONE: u64 = 2 * EACH - 1;
/// The most that is not enough for that single pod.
const TOO_LITTLE: u64 = HALF - 1;
/// Mbit/s by which a value changes: 5 % of the link.
const STEP: u64 = 10;
/// Mbit/s for the rest of the cluster, which sends too, and the step by which values change.
const SLACK: u64 = 20;
/// The time over which links are measured: longer than a burst of any pod.
const MEASURED: Duration = Duration::from_secs(15);
/// A time without the operator, or without the API server, that all leases and caches notice.
const AWAY: Duration = Duration::from_secs(20);
/// The time without the operator: as [`AWAY`], or the seconds that `OPERATOR_AWAY` names.
fn operator_away() -> Duration {
    let seconds = std::env::var("OPERATOR_AWAY").ok().and_then(|seconds| seconds.parse().ok());
    seconds.map_or(AWAY, Duration::from_secs)
}
/// The time at rest in which nothing may be written.
const REST: Duration = Duration::from_mins(1);

/// Mbit/s that can be promised on a link without other traffic.
const fn limit() -> u64 {
    // 95 % of the link, and 5 % of that are reserved.
    LINK * PERCENT / 100 * 95 / 100
}

/// Applies the TrafficWatch; without a reservation it judges, and publishes nothing.
async fn watch(stage: &Stage, reservation: bool) -> Result<()> {
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
    stage.cluster.apply(&yaml).await?;
    stage.until_ready(WATCH).await
}

/// Waits until a node offers an amount in this range.
async fn until_offers(
    stage: &Stage,
    node: &str,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64> {
    let mut last = 0;
    let found = stage
        .until(&format!("{node} offers {range:?}"), async || {
            last = allocatable(stage, node, RESOURCE)?;
            Ok(range.contains(&last))
        })
        .await;
    if let Err(error) = found {
        let rates = rates(stage, Duration::from_secs(5)).await?;
        return Err(error.context(format!("it offers {last}; Mbit/s now: {rates:?}")));
    }
    Ok(last)
}

/// Creates ten pods at once that send to the outside of all nodes.
async fn senders(stage: &Stage, app: &str, resources: &str) -> Result<()> {
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
    stage.cluster.apply(&yaml).await
}

/// Deletes the senders and waits until they are gone.
async fn no_senders(stage: &Stage, app: &str) -> Result<()> {
    stage.cluster.kubectl(&["delete", "deployment", app, "--cascade=foreground"])?;
    let gone = async || Ok(stage.nodes_of(&format!("app={app}"))?.is_empty());
    stage.until("the senders gone", gone).await
}

/// Returns the number of pods on each node; those that wait have no node.
fn places(stage: &Stage, app: &str) -> Result<BTreeMap<String, u64>> {
    let mut places = BTreeMap::new();
    for node in stage.nodes_of(&format!("app={app}"))? {
        *places.entry(node).or_default() += 1;
    }
    Ok(places)
}

/// Waits until the scheduler itself says that a resource is missing; returns its words.
async fn insufficient(stage: &Stage) -> Result<String> {
    let mut words = String::new();
    stage
        .until("the scheduler's reason", async || {
            let events = stage.json(&["events", "--field-selector=reason=FailedScheduling"])?;
            let mut messages = events["items"].as_array().context("events")?.iter();
            let reason = format!("Insufficient {RESOURCE}");
            let found = messages.find_map(|event| {
                event["message"].as_str().filter(|message| message.contains(&reason))
            });
            found.unwrap_or_default().clone_into(&mut words);
            Ok(!words.is_empty())
        })
        .await?;
    Ok(words)
}

/// Forgets earlier reasons of the scheduler.
fn forget_reasons(stage: &Stage) -> Result<()> {
    stage.cluster.kubectl(&["delete", "events", "-n", "default", "--all"]).map(drop)
}

/// Ten pods arrive at the same moment, and one of the links carries traffic that nobody declared:
/// without and with a reservation.
pub async fn ten_pods_at_once_promise_no_link_twice(stage: &Stage) -> Result<()> {
    let traffic = stage.cluster.traffic(LOADED, UNDECLARED * 1_000_000, Duration::from_mins(20))?;
    watch(stage, false).await?;
    senders(stage, "herd", "{}").await?;
    ready(stage, "herd", PODS).await?;
    let herd_places = places(stage, "herd")?;
    let herd = rates(stage, MEASURED).await?;
    // What they may send, not what they manage to on a busy machine.
    let promised = UNDECLARED + EACH * herd_places.get(LOADED).copied().unwrap_or_default();
    ensure!(promised > LINK, "no herd to compare with: {herd:?}, {herd_places:?}");
    no_senders(stage, "herd").await?;

    watch(stage, true).await?;
    let mut published = BTreeMap::new();
    for node in stage.cluster.node_names() {
        let range = if node == LOADED { EACH..=FOR_ONE } else { limit() - SLACK..=limit() };
        let amount = until_offers(stage, &node, range).await?;
        published.insert(node, amount);
    }
    forget_reasons(stage)?;
    senders(stage, "counted", &format!("{{limits: {{{RESOURCE}: \"{EACH}\"}}}}")).await?;
    let words = insufficient(stage).await?;
    ready(stage, "counted", PODS - 1).await?;
    let placed = places(stage, "counted")?;
    for (node, amount) in &published {
        let requested = placed.get(node).copied().unwrap_or(0) * EACH;
        ensure!(requested <= *amount, "{node}: {requested} promised of {amount}; {placed:?}");
    }
    let counted = rates(stage, MEASURED).await?;
    for (node, rate) in &counted {
        ensure!(*rate <= THRESHOLD, "{node} sends {rate:.0} Mbit/s: {counted:?}, {placed:?}");
        let offered = allocatable(stage, node, RESOURCE)?;
        let requested = placed.get(node).copied().unwrap_or(0) * EACH;
        ensure!(offered >= requested, "{node} offers {offered}, its pods run with {requested}");
    }
    compare(
        &format!(
            "(without a reservation) {} of {PODS} pods on {LOADED}, which then sends {:.0} of {LINK} Mbit/s",
            herd_places.get(LOADED).copied().unwrap_or(0),
            herd[LOADED]
        ),
        &format!(
            "{placed:?} of {published:?}, {LOADED} sends {:.0} Mbit/s; {words}",
            counted[LOADED]
        ),
    );
    no_senders(stage, "counted").await?;
    traffic.stop().await?;
    stage.delete(WATCH)
}

/// A pod asks for half of a link that already carries more than half.
pub async fn undeclared_traffic_counts_and_a_pod_waits_with_the_scheduler_s_reason(
    stage: &Stage,
) -> Result<()> {
    watch(stage, true).await?;
    for node in stage.cluster.node_names() {
        until_offers(stage, &node, limit() - SLACK..=limit()).await?;
    }
    let traffic = stage.cluster.traffic(LOADED, UNDECLARED * 1_000_000, Duration::from_mins(5))?;
    let left = until_offers(stage, LOADED, 1..=TOO_LITTLE).await?;
    forget_reasons(stage)?;
    request(stage, "elsewhere", (RESOURCE, HALF), "").await?;
    let elsewhere = running(stage, "elsewhere").await?;
    ensure!(elsewhere.node != LOADED, "{elsewhere:?}");
    request(stage, "waits", (RESOURCE, HALF), &only_on(LOADED)).await?;
    let words = insufficient(stage).await?;
    ensure!(life(stage, "waits")?.phase == "Pending", "{:?}", life(stage, "waits")?);
    traffic.stop().await?;
    let waited = running(stage, "waits").await?;
    ensure!(waited.node == LOADED, "{waited:?}");
    compare(
        "(without a reservation) the scheduler sees no traffic",
        &format!(
            "{LOADED} offers {left} while {UNDECLARED} Mbit/s are sent: one pod of {HALF} on {}, the \
             other waits until it ends ({words})",
            elsewhere.node
        ),
    );
    delete(stage, &["elsewhere", "waits"])?;
    stage.delete(WATCH)
}

/// Everything around the value fails once, and the pod that relies on it runs on.
pub async fn what_is_published_outlives_kubelets_nodes_and_the_api_server(
    stage: &Stage,
) -> Result<()> {
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

    stage.cluster.scale_operator(0).await?;
    let before = allocatable(stage, LOADED, RESOURCE)?;
    let away = async {
        stage.cluster.restart_kubelet(LOADED).await?;
        admitted_again(stage, LOADED).await?;
        tokio::time::sleep(operator_away()).await;
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
    let back = std::time::Instant::now();
    until_offers(stage, LOADED, HALF..=limit()).await?;
    let back = back.elapsed().as_secs();
    // All of it once the measurement shows what the pod there sends.
    until_offers(stage, LOADED, whole.clone()).await?;
    admitted_again(stage, LOADED).await?;
    unharmed("a registration of the node")?;

    stage.cluster.pause("kube-apiserver")?;
    tokio::time::sleep(AWAY).await;
    stage.cluster.resume("kube-apiserver")?;
    stage.cluster.nodes_ready(&stage.cluster.node_names()).await?;
    unharmed("without the API server")?;
    stage.cluster.operator_ready().await?;
    stage.until_ready(WATCH).await?;
    until_offers(stage, LOADED, whole).await?;
    unharmed("the API server back")?;
    compare(
        "(a value that is written once) a registration loses it for good",
        &format!("a pod of {HALF} runs through all of it; the value is back after {back} s"),
    );
    delete(stage, &["stays"])?;
    stage.delete(WATCH)
}

/// Returns the operator's writes to the status of nodes since then.
async fn writes(stage: &Stage, since: Timestamp) -> Result<Vec<String>> {
    let events = stage.cluster.whole_audit_since(since).await?;
    let ours = events.into_iter().filter(|event| {
        let of_status = event.resource == "nodes" && event.subresource == "status";
        event.user == ACCOUNT && event.is_write() && of_status
    });
    Ok(ours.map(|event| format!("{} {} {}", event.time, event.verb, event.name)).collect())
}

pub async fn a_link_at_rest_and_a_wobble_below_a_step_cost_no_write(stage: &Stage) -> Result<()> {
    watch(stage, true).await?;
    for node in stage.cluster.node_names() {
        until_offers(stage, &node, limit() - SLACK..=limit()).await?;
    }
    // The first values settle with a whole window of what is measured.
    let calm = Duration::from_secs(20);
    stage
        .until("no write for some time", async || {
            let since = Timestamp::now();
            tokio::time::sleep(calm).await;
            Ok(writes(stage, since).await?.is_empty())
        })
        .await?;
    let since = Timestamp::now();
    tokio::time::sleep(REST).await;
    let idle = writes(stage, since).await?;
    ensure!(idle.is_empty(), "at rest: {idle:#?}");

    let since = Timestamp::now();
    let end = std::time::Instant::now() + REST;
    while std::time::Instant::now() < end {
        let time = Duration::from_secs(10);
        let wobble = stage.cluster.traffic("node-3", STEP * 1_000_000 / 3, time)?;
        wobble.wait().await?;
        tokio::time::sleep(time).await;
    }
    let wobbling = writes(stage, since).await?;
    ensure!(wobbling.is_empty(), "a third of a step more, and less again: {wobbling:#?}");
    stage.delete(WATCH)
}
