//! The network is measured, judged, and relied on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;

use super::figures;
use super::stage::{STEPS, Stage, WORKERS};
use crate::objects;
use crate::stage::PATIENCE;
use lab::Cluster;
use lab::calico::{self, Group};
use lab::checks::Check;
use lab::cluster::addresses::{node_address, node_number};
use lab::streams::now;

/// Streams of the demo's Swarm.
pub(super) const STREAMS: usize = 12;
/// Reflectors of its `RouteReflectorSet`.
pub(super) const REFLECTORS: usize = 2;
/// The series of the `NetworkProber`.
const PROBER: &str = r#"prober="default/networkprober-sample""#;
/// The criterion of the `TrafficWatch`, in seconds.
pub(super) const MOST_P99: f64 = 0.5;
/// The time over which links are counted: as long as the window of the `TrafficWatch`.
pub(super) const COUNTED: Duration = Duration::from_secs(20);

/// Installs Calico's kinds and the annotations of its nodes; no BGP daemon runs here.
pub async fn calico(cluster: &Cluster) -> Result<()> {
    calico::install(&cluster.client()?, Group::V1).await?;
    for node in cluster.node_names() {
        let number = node_number(&node).unwrap_or_default();
        let address = format!("projectcalico.org/IPv4Address={}/24", node_address(number));
        cluster.kubectl(&["annotate", "node", &node, &address])?;
    }
    Ok(())
}

/// Returns the p99 of the round trips of each node, as Prometheus has it.
pub(super) async fn p99(stage: &Stage<'_>) -> Result<BTreeMap<String, f64>> {
    stage.by(&["node"], &format!("netprober:node_rtt_seconds:p99_1m{{{PROBER}}}")).await
}

/// Agents in pods measure every node.
pub(super) async fn measured(stage: &Stage<'_>) -> Result<()> {
    stage.say("a NetworkProber measures between the pods of four nodes");
    stage.apply_file("e2e/manifests/prober/prober.yaml").await?;
    let prober = ["networkprober", "networkprober-sample"];
    stage.wait("the NetworkProber ready", async || stage.holds(&prober, "Ready")).await?;
    // The webhook's configuration follows the object: pods that come before it have no agent.
    stage.apply_file("e2e/manifests/prober/pods.yaml").await?;
    stage.cluster.kubectl(&["scale", "deployment/web", "--replicas=4"])?;
    let nodes = stage.cluster.node_names();
    let found = stage
        .until("round trips of every node", PATIENCE, async || {
            let found = p99(stage).await?;
            Ok(nodes.iter().all(|node| found.contains_key(node)).then_some(found))
        })
        .await?;
    let worst = found.values().copied().fold(0.0, f64::max);
    let figure =
        format!("{} of {} nodes, p99 at most {:.1} ms", found.len(), nodes.len(), worst * 1e3);
    stage.say(&format!("==> {figure}"));
    stage.check(Check::new(
        "NetworkProber: Prometheus has the round trips of every node",
        found.len() == nodes.len() && worst < MOST_P99,
        figure,
    ));
    Ok(())
}

/// Nodes are judged, and offer what is free.
pub(super) async fn judged(stage: &Stage<'_>) -> Result<()> {
    stage.say("a TrafficWatch judges by bandwidth and p99, and publishes what is free");
    stage.apply_file("e2e/manifests/all/watch.yaml").await?;
    let nodes = stage.cluster.node_names();
    let labeled = async || {
        let labels = stage.nodes()?.into_iter().map(|node| node["metadata"]["labels"].clone());
        Ok(labels.filter(|labels| labels[figures::UNFIT] == "false").count() == nodes.len())
    };
    stage.wait("every node labeled", labeled).await?;
    let offered =
        stage.until("every node offers bandwidth", PATIENCE, async || offered(stage)).await?;
    let sent = stage.rates(COUNTED).await?;
    stage.say(&format!("==> {}", line(&offered)));
    let name = "TrafficWatch: nodes offer what is free, by the counters of their links";
    stage.check(figures::free(name, &offered, &sent));
    Ok(())
}

/// Returns what each node offers, once all do.
pub(super) fn offered(stage: &Stage<'_>) -> Result<Option<BTreeMap<String, u64>>> {
    let nodes = stage.nodes()?;
    let each = nodes.iter().map(|node| Some((objects::name(node), figures::offered(node)?)));
    Ok(each.collect())
}

/// Renders what each node offers.
pub(super) fn line(offered: &BTreeMap<String, u64>) -> String {
    let each = offered.iter().map(|(node, amount)| format!("{node} offers {amount} Mbit/s"));
    each.collect::<Vec<_>>().join(", ")
}

/// Streams and reflectors on these nodes.
pub(super) async fn relied_on(stage: &Stage<'_>) -> Result<()> {
    stage.say("a Swarm gives 12 streams to workers, a RouteReflectorSet elects two reflectors");
    // The default deletion policy retains what carries the routes.
    stage.finally(|cluster| {
        let labels = ["calico-route-reflector-", "route-reflectors.traffic.example.com/slot-"];
        cluster.kubectl(&[&["label", "nodes", "--all"], &labels[..]].concat())?;
        let ours = "app.kubernetes.io/managed-by=traffic-operator";
        cluster.kubectl(&["delete", "bgppeers", "-l", ours]).map(drop)
    });
    stage.apply_with_sink("e2e/manifests/all/reflectors.yaml").await?;
    stage.apply_with_sink("e2e/manifests/all/workers.yaml").await?;
    let spread = stage
        .until("every stream on one worker", PATIENCE, async || {
            let workers = stage.workers()?;
            let running = figures::running(&stage.sink.ledger(), &workers, now());
            let settled = stage.holds(&["swarm", WORKERS], "Converged")?;
            Ok((settled && running.len() == STREAMS).then_some(running))
        })
        .await?;
    let mut each: BTreeMap<&str, usize> = BTreeMap::new();
    for node in spread.values() {
        *each.entry(node).or_default() += 1;
    }
    stage.say(&format!("==> streams: {each:?}"));
    stage.check(Check::new(
        "Swarm: every stream runs, evenly, by the workers' reports",
        each.values().all(|count| *count == STREAMS / 4),
        format!("{} of {STREAMS} streams: {each:?}", spread.len()),
    ));
    stage
        .say("    waiting for the reflectors: without BGP each step waits a minute after the last");
    let reflectors = stage
        .until("two reflectors", STEPS, async || {
            let there = stage.holds(&["routereflectorset", "route-reflectors"], "Converged")?;
            let reflectors = stage.reflectors()?;
            Ok((there && reflectors.len() == REFLECTORS).then_some(reflectors))
        })
        .await?;
    let peers = stage.list(&["bgppeers", "-l", "app.kubernetes.io/managed-by=traffic-operator"])?;
    let zones = zones(stage, &reflectors)?;
    stage.say(&format!("==> reflectors: {reflectors:?}, {} BGPPeers", peers.len()));
    stage.check(Check::new(
        "RouteReflectorSet: two reflectors in two zones, and their BGPPeers",
        zones == 2 && !peers.is_empty(),
        format!("{reflectors:?} in {zones} zones, {} BGPPeers", peers.len()),
    ));
    Ok(())
}

/// Returns the number of zones of some nodes.
fn zones(stage: &Stage<'_>, of: &BTreeSet<String>) -> Result<usize> {
    let nodes = stage.nodes()?;
    let mut zones: Vec<String> = nodes
        .iter()
        .filter(|node| of.contains(&objects::name(node)))
        .map(|node| objects::text(&node["metadata"]["labels"]["topology.kubernetes.io/zone"]))
        .collect();
    zones.sort();
    zones.dedup();
    Ok(zones.len())
}
