//! Measures the operator: memory, processor time, requests, writes and latency, at 100 to 5,000
//! nodes.
//!
//! A real API server with real Node objects; the answers of Prometheus are prepared,
//! so that its own work does not count. `/metrics` is scraped all the time. Figures of one run are
//! comparable with each other only: `BENCH_PEER="path,path -flag"` measures other programs
//! alternately with ours, started with the same arguments. Fails above [`LIMITS`] and [`RATIOS`].
use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use lab::ControlPlane;
use serde_json::json;
use traffic_operator::api::TrafficWatch;

use crate::{
    ground::{Figure, above, free_address, print, start, wait_for},
    labels::{Labels, bare_loop},
    nodes,
    programs::{self, OURS, Program, programs, rows},
    prometheus::Prometheus,
    scraper,
    watches::{self, LABEL},
};

/// Number of judgments of which a figure is the mean.
const JUDGMENTS: u32 = 20;

/// Number of nodes that become unfit one after the other, one with each answer.
const FLIPS: usize = 100;

/// Number of judgments in a row that mark a node: the default.
const CONSECUTIVE: usize = 2;

/// The longest wait for any condition: a peer that updates whole nodes, one by one, takes minutes.
const PATIENCE: Duration = Duration::from_mins(10);

/// Nodes and objects of each row.
const ROWS: [(usize, usize); 5] = [(100, 1), (1000, 1), (1000, 100), (5000, 1), (5000, 20)];

/// Limits of a row of 5,000 nodes and one object, by name of the column: none depends on the speed of
/// the machine.
const LIMITS: [(&str, f64); 4] =
    [("peak MiB", 32.0), ("requests/interval", 1.1), ("idle writes/min", 0.0), ("half/bare", 1.3)];

/// The same as a part of the figure of the peer with these flags, in the same run.
const TUNED: &str = "-tuned";
const RATIOS: [(&str, f64); 3] =
    [("CPU ms/judgment", 0.25), ("flip p50 ms", 1.0), ("flip p99 ms", 1.0)];

pub async fn run(ours: &Path) -> anyhow::Result<()> {
    let programs = programs(ours);
    let (plane, client) = start().await?;
    let mut first = true;
    let mut excess = false;
    for (nodes, watches) in rows(&ROWS) {
        let mut ours_here = None;
        for program in &programs {
            let figures = measure(&plane, &client, program, nodes, watches).await?;
            let (of, by) = (nodes.to_string(), watches.to_string());
            let row = [("program", program.name.clone()), ("nodes", of), ("TrafficWatches", by)];
            let figures_of_it = figures.map(|(name, figure)| (name, format!("{figure:.1}")));
            print(&[&row[..], &figures_of_it].concat(), &mut first);
            if (nodes, watches) != (5000, 1) {
                continue;
            }
            if program.name == OURS {
                excess |= above(&figures, &LIMITS);
                ours_here = Some(figures);
            } else if let Some(ours) = ours_here.filter(|_| program.name.ends_with(TUNED)) {
                let limits = RATIOS.map(|(name, part)| {
                    let theirs = figures.iter().find(|(column, _)| *column == name);
                    (name, theirs.map_or(0.0, |(_, figure)| figure * part))
                });
                excess |= above(&ours, &limits);
            }
        }
    }
    plane.stop().await?;
    ensure!(!excess, "above the limits");
    Ok(())
}

/// Measures one row, without its first three columns.
async fn measure(
    plane: &ControlPlane,
    client: &Client,
    program: &Program,
    count: usize,
    watches: usize,
) -> anyhow::Result<[Figure; 14]> {
    watches::clean(client).await?;
    nodes::create(client, (0..count).map(nodes::node)).await?;
    let (prometheus, url) = Prometheus::start(count).await?;
    watches::create(client, u32::try_from(watches)?, 1, "2s", |_| "8s".to_owned()).await?;
    let started = Instant::now();
    let admin = free_address()?.to_string();
    let args = ["--prometheus-url", &url, "--admin-address", &admin];
    let operator = program.start(plane, &format!("{count}-{watches}"), &args)?;
    let scraper = scraper::Scraper::start(format!("http://{admin}/metrics"));
    let labels = Labels::follow(client, LABEL);
    wait_for("all labels", PATIENCE, async || (labels.count(false) == count).then_some(())).await?;
    let first = started.elapsed();

    // Wait until the work that follows the first labels is over.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (cpu, requests, since) = (operator.cpu()?, prometheus.requests(), Timestamp::now());
    tokio::time::sleep(Duration::from_secs(2) * JUDGMENTS).await;
    let cpu = (operator.cpu()? - cpu) / f64::from(JUDGMENTS);
    let requests = f64::from(prometheus.requests() - requests) / f64::from(JUDGMENTS);
    let idle = program.requests(plane, since)?;
    let per_minute = |count: u32| f64::from(count) * 30.0 / f64::from(JUDGMENTS);
    let writes = per_minute(programs::writes(&idle, |event| event.subresource != "status"));
    let asked = per_minute(u32::try_from(idle.len())?);

    let flips = match watches {
        1 => single_flips(client, &prometheus, &labels).await?,
        _ => (f64::NAN, f64::NAN),
    };
    let bare = bare_loop(client, count / 2, "before").await?;
    let half = half_flip(&prometheus, &labels, count / 2).await?;
    let bare = (bare + bare_loop(client, count / 2, "after").await?) / 2;
    let (rss, peak) = operator.memory()?;
    let file = operator.binary_pages()?;
    let page = scraper.end().await?;
    Ok([
        ("first labels s", first.as_secs_f64()),
        ("RSS MiB", rss),
        ("peak MiB", peak),
        ("of the binary MiB", file),
        ("CPU ms/judgment", cpu),
        ("requests/interval", requests),
        ("idle writes/min", writes),
        ("idle API requests/min", asked),
        ("flip p50 ms", flips.0),
        ("flip p99 ms", flips.1),
        ("half flip s", half.as_secs_f64()),
        ("bare loop s", bare.as_secs_f64()),
        ("half/bare", half.as_secs_f64() / bare.as_secs_f64()),
        ("largest page MB", page),
    ])
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
    wait_for("a hundred answers", PATIENCE, enough).await?;
    prometheus.set(FLIPS, 0);
    wait_for("a hundred flips", PATIENCE, async || (labels.count(true) == FLIPS).then_some(()))
        .await?;
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
    wait_for("all to be fit", PATIENCE, async || (labels.count(true) == 0).then_some(())).await?;
    Ok((took[FLIPS / 2], took[FLIPS * 99 / 100 - 1]))
}

/// Flips half of the nodes at once: milliseconds from the last byte of the deciding answer to the
/// last watch event.
async fn half_flip(
    prometheus: &Prometheus,
    labels: &Labels,
    half: usize,
) -> anyhow::Result<Duration> {
    prometheus.set(half, 0);
    wait_for("half to be unfit", PATIENCE, async || (labels.count(true) == half).then_some(()))
        .await?;
    let marked: Vec<_> = (0..half).filter_map(|node| labels.marked(node)).collect();
    let (first, last) = marked.iter().min().zip(marked.iter().max()).context("not marked")?;
    // The latest before the first label: a program that asks for each object receives several.
    let answers = prometheus.answers();
    let decided = answers.iter().rev().find(|(unfit, at)| *unfit == half && at <= first);
    let (_, decided) = decided.context("not decided")?;
    Ok(last.saturating_duration_since(*decided))
}
