//! Handovers of streams between workers on real nodes.
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use lab::streams::{Ledger, Sink, Stretch};
use serde_json::Value;

use crate::{kubelets::mark, monitoring::has_data, prober::compare, stage::Stage};

pub const NAMESPACE: &str = "swarm";
const WORKERS: &str = "swarm-worker";
/// The streams of the original's sample.
const STREAMS: usize = 27;
/// The longest delay of a report, in milliseconds: workers report every 200 ms, and the machine is
/// busy.
const LATEST: u64 = 2000;
/// The node with the cluster's own services, and the route of the tests to all others.
const SERVICES: &str = "node-1";

/// Returns the workers' shares in the file.
fn shares(stage: &Stage) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let map = stage.json(&["configmap", "swarm-worker-config", "-n", NAMESPACE])?;
    let text = map["data"]["config.yml"].as_str().context("no config.yml")?;
    let file: Value = serde_yaml::from_str(text)?;
    let workloads = file["workloads"].as_object().context("no workloads")?;
    let share = |(worker, share): (&String, &Value)| (worker.clone(), jobs(share));
    Ok(workloads.iter().map(share).collect())
}

fn jobs(of: &Value) -> BTreeSet<String> {
    let jobs = of["jobs"].as_array().into_iter().flatten();
    jobs.filter_map(|job| job.as_str().map(str::to_owned)).collect()
}

fn scale(stage: &Stage, replicas: usize) -> Result<()> {
    let (workers, replicas) = (format!("statefulset/{WORKERS}"), format!("--replicas={replicas}"));
    stage.cluster.kubectl(&["scale", "-n", NAMESPACE, &workers, &replicas]).map(drop)
}

/// Creates the original's sample: two workers, and a Swarm in place of its controller.
pub fn create(stage: &Stage) -> Result<()> {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/samples/swarm-original");
    stage.cluster.kubectl(&["apply", "-k", sample]).map(drop)
}

/// Waits until the Swarm has this many workers and each runs exactly its list.
pub async fn converged(stage: &Stage, workers: usize) -> Result<()> {
    let what = format!("{workers} workers, each with exactly its list");
    let holds = async || {
        let status = &stage.json(&["swarm", WORKERS, "-n", NAMESPACE])?["status"];
        let conditions = status["conditions"].as_array().context("no conditions")?;
        let done = conditions.iter().any(|c| c["type"] == "Converged" && c["status"] == "True");
        let summary = &status["summary"];
        Ok(done && summary["workers"] == workers && summary["ready"] == workers)
    };
    stage.until(&what, holds).await
}

/// Returns the streams that a worker reports as running.
fn runs(stage: &Stage, worker: &str) -> Result<BTreeSet<String>> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{worker}:9090/proxy/internal/version");
    Ok(jobs(&serde_json::from_str(&stage.cluster.kubectl(&["get", "--raw", &path])?)?))
}

pub fn delete(stage: &Stage) -> Result<()> {
    stage.cluster.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=80s"]).map(drop)
}

/// Namespace, list, workers and their names are the original's; only the image is ours, and a Swarm
/// in place of its controller.
pub async fn the_original_swarm_s_layout_runs_verbatim(stage: &Stage) -> Result<()> {
    create(stage)?;
    for (workers, sizes) in [(2, vec![13, 14]), (3, vec![9, 9, 9]), (2, vec![13, 14])] {
        if workers != shares(stage).map_or(workers, |shares| shares.len()) {
            scale(stage, workers)?;
        }
        converged(stage, workers).await?;
        let shares = shares(stage)?;
        let mut found: Vec<usize> = shares.values().map(BTreeSet::len).collect();
        found.sort_unstable();
        ensure!(found == sizes, "{workers} workers: {found:?}");
        for (worker, share) in &shares {
            let runs = runs(stage, worker)?;
            ensure!(runs == *share, "{worker} runs {runs:?}, its share is {share:?}");
        }
        let streams: BTreeSet<&String> = shares.values().flatten().collect();
        ensure!(streams.len() == STREAMS, "{} streams", streams.len());
    }
    compare(
        "2 workers: one stream on both and one on neither; 3 -> 2 loses it for good",
        "2, 3 and 2 workers: every stream on exactly one",
    );
    delete(stage)
}

/// An unreachable worker keeps running its streams, so no other worker gets them, not even those
/// that it must give up, until it answers again.
pub async fn no_stream_of_a_swarm_runs_twice_while_a_node_is_cut_off(stage: &Stage) -> Result<()> {
    let sink = three_workers(stage).await?;
    let (node, cut_off) = to_be_cut_off(stage).await?;
    let before = cut_off_in_mid_handover(stage, &node, &cut_off).await?;

    stage.cluster.join(&node)?;
    stage.cluster.nodes_ready(std::slice::from_ref(&node)).await?;
    converged(stage, 4).await?;
    let stay = of_workers(&shares(stage)?, &cut_off);
    let ledger = reported_by_all(stage, &sink).await?;
    // The streams that stayed have run all the time, even while the worker was unreachable.
    let gaps = ledger.gap_times(Stretch::new(0, ledger.end().saturating_sub(LATEST)));
    let known: Vec<_> = before.intersection(&stay).filter_map(|s| gaps.get_key_value(s)).collect();
    ensure!(known.is_empty(), "streams of the node that was cut off did not run: {known:?}");
    let (before, stay) = (before.len(), before.intersection(&stay).count());
    has_data(stage, "swarm", 5, &[]).await?;
    eprintln!("    {node} cut off: {stay} of {before} streams never stopped, the rest moved later");
    delete(stage)
}

/// Only the deletion of a Node says that nothing runs there any more: then its streams go to other
/// workers.
pub async fn w18_streams_of_a_node_that_is_deleted_in_mid_handover_run_once(
    stage: &Stage,
) -> Result<()> {
    let sink = three_workers(stage).await?;
    let (node, cut_off) = to_be_cut_off(stage).await?;
    let before = cut_off_in_mid_handover(stage, &node, &cut_off).await?;

    stage.cluster.kill_node(&node)?;
    let dead = sink.ledger().end();
    stage.cluster.kubectl(&["delete", "node", &node])?;
    let moved = converged(stage, 4).await;
    stage.cluster.join(&node)?;
    stage.cluster.start_node(&node)?;
    stage.cluster.nodes_ready(std::slice::from_ref(&node)).await?;
    mark(stage, &node)?;
    moved?;
    let ledger = reported_by_all(stage, &sink).await?;
    let back = before.iter().filter_map(|stream| {
        let first = ledger.latest(stream)?.time.from;
        Some(first.saturating_sub(dead))
    });
    let last = back.max().context("no stream of the dead node")?;
    eprintln!(
        "    {node} died and was deleted: {} streams run elsewhere, the last after {last} ms",
        before.len()
    );
    stage.cluster.operator_ready().await?;
    delete(stage)
}

/// Starts three workers that report to the sink.
async fn three_workers(stage: &Stage) -> Result<Sink> {
    let sink = stage.cluster.stream_sink().await?;
    let layout = concat!(env!("CARGO_MANIFEST_DIR"), "/lab/demo/swarm");
    let layout = stage.cluster.kubectl(&["kustomize", layout])?.replace("SINK", &sink.url());
    stage.cluster.apply(&layout).await?;
    scale(stage, 3)?;
    converged(stage, 3).await?;
    Ok(sink)
}

fn of_workers(
    shares: &BTreeMap<String, BTreeSet<String>>,
    workers: &BTreeSet<String>,
) -> BTreeSet<String> {
    let shares = shares.iter().filter(|(worker, _)| workers.contains(*worker));
    shares.flat_map(|(_, share)| share.clone()).collect()
}

/// Cuts a node off and adds a fourth worker, which gets what the others can give, and nothing that
/// the workers of that node had. Returns the streams that they had.
async fn cut_off_in_mid_handover(
    stage: &Stage,
    node: &str,
    cut_off: &BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let before = of_workers(&shares(stage)?, cut_off);
    stage.cluster.cut(node)?;
    let ready = async || {
        let node = stage.json(&["node", node])?;
        let conditions = node["status"]["conditions"].as_array().context("no conditions")?;
        Ok(conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
    };
    stage.until("the node not Ready", async || ready().await.map(|ready| !ready)).await?;
    scale(stage, 4)?;
    let fourth = format!("{WORKERS}-3");
    let given = async || Ok(shares(stage)?.get(&fourth).is_some_and(|share| !share.is_empty()));
    stage.until("the fourth worker has what the others can give", given).await?;
    let shares = shares(stage)?;
    let others = shares.keys().filter(|worker| !cut_off.contains(*worker)).cloned().collect();
    let others = of_workers(&shares, &others);
    let taken: Vec<&String> = before.intersection(&others).collect();
    ensure!(taken.is_empty(), "taken from a worker that nobody reaches: {taken:?}");
    Ok(before)
}

/// Waits until every stream reports, and checks that none ran twice or under an older token.
async fn reported_by_all(stage: &Stage, sink: &Sink) -> Result<Ledger> {
    let reported = async || {
        let ledger = sink.ledger();
        let late = ledger.end().saturating_sub(LATEST);
        let known = |stream: &&str| ledger.latest(stream).is_some_and(|run| run.time.to > late);
        Ok(ledger.streams().filter(known).count() == STREAMS)
    };
    stage.until("reports of every stream", reported).await?;
    let ledger = sink.ledger().clone();
    let overlaps = ledger.overlaps(Stretch::ALWAYS);
    ensure!(overlaps.is_empty(), "{overlaps:?}");
    ensure!(ledger.regressions().is_empty(), "{:?}", ledger.regressions());
    Ok(ledger)
}

/// Returns a node with workers, and these workers; the operator's leader is elsewhere.
async fn to_be_cut_off(stage: &Stage) -> Result<(String, BTreeSet<String>)> {
    let leader = stage.cluster.operator_leader().await?;
    let leader = stage.json(&["pod", &leader, "-n", "traffic-operator-system"])?;
    let pods = stage.json(&["pods", "-n", NAMESPACE, "-l", &format!("app={WORKERS}")])?;
    let mut nodes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pod in pods["items"].as_array().context("no pods")? {
        let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        let pods = nodes.entry(text(&pod["spec"]["nodeName"])).or_default();
        pods.insert(text(&pod["metadata"]["name"]));
    }
    nodes.remove(SERVICES);
    nodes.retain(|node, _| leader["spec"]["nodeName"] != **node);
    nodes.pop_first().context("every node with workers has the leader or the cluster's services")
}
