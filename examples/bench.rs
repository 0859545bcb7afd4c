//! Measures the operator: memory, processor time, requests, writes and latency, at 100 to 5,000
//! nodes.
//!
//! `make bench`. A real API server with real Node objects; the answers of Prometheus are prepared,
//! so that its own work does not count. `/metrics` is scraped all the time. Figures of one run are
//! comparable with each other only: `BENCH_PEER=path` measures another binary alternately with
//! ours, started with the same arguments. Fails above [`LIMITS`].
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use ground::{Operator, binary, install, wait};
use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use lab::{ControlPlane, ControlPlaneOptions};
use labels::{Labels, bare_loop};
use prometheus::Prometheus;
use serde_json::json;
use traffic_operator::api::TrafficWatch;

mod ground;
#[path = "ground/labels.rs"]
mod labels;
#[path = "ground/nodes.rs"]
mod nodes;
#[path = "ground/prometheus.rs"]
mod prometheus;
#[path = "ground/scraper.rs"]
mod scraper;

/// Judgments that one figure is the mean of.
const JUDGMENTS: u32 = 20;

/// Nodes that become unfit one after the other, one with each answer.
const FLIPS: usize = 100;

/// Judgments in a row that mark a node, as is the default.
const CONSECUTIVE: usize = 2;

/// The label of the object that writes labels.
const LABEL: &str = "w0.traffic.example.com/unfit";

/// Limits of a row of 5,000 nodes and one object, by name of the column.
const LIMITS: [(&str, f64); 7] = [
    ("peak MiB", 24.0),
    ("CPU ms/judgment", 10.0),
    ("requests/interval", 1.1),
    ("idle writes/min", 0.0),
    ("flip p50 ms", 10.0),
    ("flip p99 ms", 50.0),
    ("half/bare", 1.3),
];

const HEADER: [&str; 16] = [
    "binary",
    "nodes",
    "TrafficWatches",
    "first labels s",
    "RSS MiB",
    "peak MiB",
    "of the binary MiB",
    "CPU ms/judgment",
    "requests/interval",
    "idle writes/min",
    "flip p50 ms",
    "flip p99 ms",
    "half flip s",
    "bare loop s",
    "half/bare",
    "largest page MB",
];

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let mut binaries = vec![("ours", binary()?)];
    binaries.extend(std::env::var_os("BENCH_PEER").map(|peer| ("peer", PathBuf::from(peer))));
    let options =
        ControlPlaneOptions { scheduler: false, controller_manager: false, ..Default::default() };
    let plane = ControlPlane::start(options).await?;
    let client = plane.client()?;
    install(&client).await?;
    println!("{}", HEADER.join(" | "));
    println!("{}", HEADER.map(|_| "---").join(" | "));
    let mut excesses = vec![];
    for (nodes, watches) in rows() {
        for (name, binary) in &binaries {
            let figures = measure(&plane, &client, (name, binary), nodes, watches).await?;
            let written = figures.map(|figure| figure.map_or("–".into(), |f| format!("{f:.1}")));
            println!("{name} | {nodes} | {watches} | {}", written.join(" | "));
            if (*name, nodes, watches) == ("ours", 5000, 1) {
                excesses.extend(above(&figures));
            }
        }
    }
    plane.stop().await?;
    for (column, figure, limit) in &excesses {
        println!("above the limit: {column} is {figure:.1}, at most {limit}");
    }
    Ok(if excesses.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Nodes and objects of each row; `BENCH_ROWS=5000x1` asks for other ones.
fn rows() -> Vec<(usize, usize)> {
    let asked = std::env::var("BENCH_ROWS").unwrap_or_default();
    let asked: Vec<_> = asked
        .split(',')
        .filter_map(|row| row.split_once('x'))
        .filter_map(|(nodes, watches)| Some((nodes.parse().ok()?, watches.parse().ok()?)))
        .collect();
    if asked.is_empty() {
        vec![(100, 1), (1000, 1), (1000, 100), (5000, 1), (5000, 20)]
    } else {
        asked
    }
}

/// Returns the figures of a row that are above their limits: the column, the figure and the limit.
fn above(figures: &[Option<f64>; 13]) -> Vec<(&'static str, f64, f64)> {
    let columns = || HEADER[3..].iter().zip(figures);
    let exceeded = LIMITS.iter().filter_map(|(name, limit)| {
        let (_, figure) = columns().find(|(column, _)| *column == name)?;
        figure.filter(|figure| figure > limit).map(|figure| (*name, figure, *limit))
    });
    exceeded.collect()
}

/// One row, without its first three columns.
async fn measure(
    plane: &ControlPlane,
    client: &Client,
    (name, binary): (&str, &Path),
    count: usize,
    watches: usize,
) -> anyhow::Result<[Option<f64>; 13]> {
    let nodes = Api::<Node>::all(client.clone());
    clean(client, &nodes).await?;
    nodes::create(client, (0..count).map(nodes::node)).await?;
    let (prometheus, url) = Prometheus::start(count).await?;
    create_watches(client, watches).await?;
    let started = Instant::now();
    // A lease of its own: the killed operator of the row before holds the other one.
    let (lease, any) = (format!("bench-{name}-{count}-{watches}"), "127.0.0.1:0");
    let admin = scraper::free_address()?.to_string();
    let mut args = vec!["--prometheus-url", &url, "--admin-address", &admin];
    args.extend(["--webhook-address", any, "--pinglist-address", any]);
    let operator = Operator::start(binary, plane.kubeconfig(), &lease, &args)?;
    let scraper = scraper::Scraper::start(format!("http://{admin}/metrics"));
    let labels = Labels::follow(client, LABEL);
    wait("all labels", async || (labels.count(false) == count).then_some(())).await?;
    let first = started.elapsed();

    // Wait until the work that follows the first labels is over.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (cpu, requests, since) = (operator.cpu()?, prometheus.requests(), Timestamp::now());
    tokio::time::sleep(Duration::from_secs(2) * JUDGMENTS).await;
    let cpu = (operator.cpu()? - cpu) / f64::from(JUDGMENTS);
    let requests = f64::from(prometheus.requests() - requests) / f64::from(JUDGMENTS);
    let writes = plane
        .audit_since(since)?
        .into_iter()
        .filter(|e| e.is_write() && e.user_agent.starts_with("traffic-operator"))
        .filter(|e| !e.resource.starts_with("leases") && e.subresource != "status")
        .count();
    let writes = f64::from(u32::try_from(writes)?) * 30.0 / f64::from(JUDGMENTS);

    let flips = match watches {
        1 => Some(single_flips(client, &prometheus, &labels).await?),
        _ => None,
    };
    let bare = bare_loop(client, count / 2, "before").await?;
    let half = half_flip(&prometheus, &labels, count / 2).await?;
    let bare = (bare + bare_loop(client, count / 2, "after").await?) / 2;
    let (rss, peak) = operator.memory()?;
    let file = operator.binary_pages()?;
    let page = scraper.end().await?;
    Ok([
        Some(first.as_secs_f64()),
        Some(rss),
        Some(peak),
        Some(file),
        Some(cpu),
        Some(requests),
        Some(writes),
        flips.map(|flips| flips.0),
        flips.map(|flips| flips.1),
        Some(half.as_secs_f64()),
        Some(bare.as_secs_f64()),
        Some(half.as_secs_f64() / bare.as_secs_f64()),
        Some(page),
    ])
}

async fn create_watches(client: &Client, watches: usize) -> anyhow::Result<()> {
    let api = Api::<TrafficWatch>::namespaced(client.clone(), "default");
    for i in 0..watches {
        let watch = json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
            "metadata": {"name": format!("w{i}")},
            // One writes labels, so that flips are counted once; the others read the same answer.
            "spec": {"maxBandwidthPercent": "60", "interval": "2s", "window": "8s",
                     "mode": if i == 0 { "Enforce" } else { "Observe" }}
        });
        api.create(&PostParams::default(), &serde_json::from_value(watch)?).await?;
    }
    Ok(())
}

/// Flips one more node with each answer. Returns the median and the second slowest of a hundred, in
/// milliseconds from the last byte of the deciding answer to the watch event of the label.
async fn single_flips(
    client: &Client,
    prometheus: &Prometheus,
    labels: &Labels,
) -> anyhow::Result<(f64, f64)> {
    let api = Api::<TrafficWatch>::namespaced(client.clone(), "default");
    let every = async |interval: &str| {
        let patch = Patch::Merge(json!({"spec": {"interval": interval}}));
        api.patch("w0", &PatchParams::default(), &patch).await
    };
    every("1s").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = prometheus.answers().len();
    prometheus.set(0, 1);
    let enough = async || (prometheus.answers().len() >= before + FLIPS).then_some(());
    wait("a hundred answers", enough).await?;
    prometheus.set(FLIPS, 0);
    wait("a hundred flips", async || (labels.count(true) == FLIPS).then_some(())).await?;
    let answers = prometheus.answers().split_off(before);
    let mut took = (0..FLIPS)
        .map(|node| {
            let marked = labels.marked(node).context("not marked")?;
            let decided = answers.iter().filter(|(unfit, _)| *unfit > node).nth(CONSECUTIVE - 1);
            let (_, decided) = decided.context("not decided")?;
            Ok(marked.saturating_duration_since(*decided).as_secs_f64() * 1000.0)
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    took.sort_by(f64::total_cmp);
    every("2s").await?;
    prometheus.set(0, 0);
    wait("all to be fit", async || (labels.count(true) == 0).then_some(())).await?;
    Ok((took[FLIPS / 2], took[FLIPS * 99 / 100 - 1]))
}

/// Flips half of the nodes at once: milliseconds from the last byte of the deciding answer to the
/// last watch event.
async fn half_flip(
    prometheus: &Prometheus,
    labels: &Labels,
    half: usize,
) -> anyhow::Result<Duration> {
    let before = prometheus.answers().len();
    prometheus.set(half, 0);
    wait("half to be unfit", async || (labels.count(true) == half).then_some(())).await?;
    let answers = prometheus.answers().split_off(before);
    let decided = answers.iter().filter(|(unfit, _)| *unfit == half).nth(CONSECUTIVE - 1);
    let (_, decided) = decided.context("not decided")?;
    let last = (0..half).filter_map(|node| labels.marked(node)).max().context("not marked")?;
    Ok(last.saturating_duration_since(*decided))
}

async fn clean(client: &Client, nodes: &Api<Node>) -> anyhow::Result<()> {
    let api = Api::<TrafficWatch>::namespaced(client.clone(), "default");
    let strip = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for watch in api.list(&ListParams::default()).await? {
        api.patch(&watch.name_any(), &PatchParams::default(), &strip).await?;
        api.delete(&watch.name_any(), &DeleteParams::default()).await?;
    }
    nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}
