//! Runs the operator for 20,000 evaluations, and measures what it keeps of them: memory and
//! descriptors.
//!
//! `make soak-memory`, about 19 minutes; `SOAK_EVALUATIONS=500` runs shorter. A real API server
//! with 1,000 nodes; 20 `TrafficWatches`, each with its own query, are judged every second from
//! prepared answers; some nodes change sides every few seconds, and `/metrics` is scraped. Fails
//! above [`MAX_SLOPE`] and above [`MAX_LEAKED`].
use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use lab::{
    exposition,
    fit::{Fit, fit},
};

use crate::{
    ground::{Operator, free_address, start, wait_for},
    nodes,
    prometheus::Prometheus,
    scraper, watches,
};

const NODES: usize = 1000;

/// Number of objects, each with its own query: an evaluation is one request.
const WATCHES: u32 = 20;

/// Number of objects that write labels. The others observe: each more would write to every node in
/// its first pass.
const WRITERS: u32 = 2;

/// Number of evaluations: two days of one object with an interval of about nine seconds.
const EVALUATIONS: u32 = 20_000;

/// Number of evaluations before those that count: caches, connections and the allocator reach their
/// size within them.
const WARM_UP: u32 = 2000;

/// Nodes that change sides together, so that labels, statuses and events are written too.
const CHANGING: usize = 10;

/// Number of samples between two such changes, at one sample a second: more than the judgments in a
/// row that decide.
const CHANGE_EVERY: usize = 10;

/// The largest growth of resident memory, in bytes for each evaluation.
const MAX_SLOPE: f64 = 1000.0;

/// The largest number of descriptors that are never closed.
const MAX_LEAKED: i64 = 0;

/// The longest wait for the first evaluations and for the pages.
const PATIENCE: Duration = Duration::from_mins(3);

/// One look at the process.
struct Sample {
    evaluations: f64,
    /// Resident memory, in bytes.
    resident: f64,
    descriptors: i64,
}

pub async fn run(binary: &Path) -> anyhow::Result<()> {
    let wanted = match std::env::var("SOAK_EVALUATIONS") {
        Ok(number) => number.parse().context("SOAK_EVALUATIONS is no number")?,
        Err(_) => EVALUATIONS,
    };
    let (plane, client) = start().await?;
    nodes::create(&client, (0..NODES).map(nodes::node)).await?;
    // Objects whose windows, and so whose queries, differ.
    let window = |i: u32| format!("{}s", 4 + i);
    watches::create(&client, WATCHES, WRITERS, "1s", window).await?;
    let (prometheus, url) = Prometheus::start(NODES).await?;
    let admin = free_address()?.to_string();
    let args = ["--prometheus-url", &url, "--admin-address", &admin];
    let operator = Operator::start(binary, plane.kubeconfig(), "soak", &args)?;
    let page = format!("http://{admin}/metrics");
    let scraper = scraper::Scraper::start(page.clone());
    let began = Instant::now();
    let samples = sample(&operator, &prometheus, WARM_UP + wanted).await?;
    let took = began.elapsed().as_secs();
    let largest = scraper.end().await?;
    let (good, failed) = counted(&page, &prometheus).await?;
    drop(operator);
    plane.stop().await?;
    println!(
        "{NODES} nodes, {WATCHES} queries: {good} evaluations in {took} s, by the operator's \
         own metric and by the server of the answers, and {failed} that failed; largest page \
         {largest:.1} MB"
    );
    verdict(&samples)
}

/// Samples the process every second, until this many evaluations have been answered.
async fn sample(
    operator: &Operator,
    prometheus: &Prometheus,
    wanted: u32,
) -> anyhow::Result<Vec<Sample>> {
    let began = async || (prometheus.requests() >= WATCHES).then_some(());
    wait_for("the first evaluations", PATIENCE, began).await?;
    let mut samples = vec![];
    let (mut last, mut seen) = (0, Instant::now());
    while last < wanted {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = prometheus.requests();
        if now > last {
            (last, seen) = (now, Instant::now());
        }
        ensure!(seen.elapsed() < PATIENCE, "no evaluation for {PATIENCE:?}, after {last}");
        let (resident, _) = operator.memory()?;
        samples.push(Sample {
            evaluations: f64::from(now),
            resident: resident * 1024.0 * 1024.0,
            descriptors: operator.descriptors()?,
        });
        let unfit = samples.len() / CHANGE_EVERY % 2 * CHANGING;
        prometheus.set(unfit, 0);
        if samples.len().is_multiple_of(30) {
            let fds = samples.last().map_or(0, |sample| sample.descriptors);
            eprintln!("{now} evaluations, {resident:.2} MiB, {fds} descriptors");
        }
    }
    Ok(samples)
}

/// Returns the number of good and of failed evaluations by the operator's own metric. The good ones
/// must be as many as the server has answered, but for those under way.
async fn counted(page: &str, prometheus: &Prometheus) -> anyhow::Result<(f64, f64)> {
    let before = prometheus.requests();
    let text = scraper::page(page).await?;
    let after = prometheus.requests();
    let name = "traffic_operator_trafficwatch_evaluations_total";
    let (mut good, mut failed) = (0.0, 0.0);
    for (labels, count) in exposition::samples(&text, name) {
        *(if labels["result"] == "ok" { &mut good } else { &mut failed }) += count;
    }
    let range = f64::from(before) - f64::from(WATCHES)..=f64::from(after);
    ensure!(
        range.contains(&good),
        "the operator counts {good} good evaluations, the server {before} to {after} answers"
    );
    Ok((good, failed))
}

/// Returns how many of the descriptors of a row of samples are never closed: the fewest in its last
/// third less the fewest in its first. Connections come and go, so that the most say nothing.
fn leaked(counts: &[i64]) -> Option<i64> {
    let third = counts.len() / 3;
    let first = counts[..third].iter().min()?;
    let last = counts[counts.len() - third..].iter().min()?;
    Some(last - first)
}

/// Prints the growth, and compares it with the limits.
fn verdict(samples: &[Sample]) -> anyhow::Result<()> {
    let counts = |sample: &&Sample| sample.evaluations >= f64::from(WARM_UP);
    let samples: Vec<_> = samples.iter().filter(counts).collect();
    let resident: Vec<_> = samples.iter().map(|s| (s.evaluations, s.resident)).collect();
    let Fit { slope, error } = fit(&resident).context("too few samples for a slope")?;
    let descriptors: Vec<_> = samples.iter().map(|sample| sample.descriptors).collect();
    let leaked = leaked(&descriptors).context("too few samples of descriptors")?;
    let (first, last) = (resident[0].1 / 1e6, resident[resident.len() - 1].1 / 1e6);
    println!(
        "resident {first:.2} to {last:.2} MB over {} samples: {slope:.0} bytes for each \
         evaluation (standard error {error:.0}), at most {MAX_SLOPE}",
        resident.len()
    );
    println!(
        "descriptors {:?} to {:?}: {leaked} leaked, at most {MAX_LEAKED}",
        descriptors.iter().min().unwrap_or(&0),
        descriptors.iter().max().unwrap_or(&0)
    );
    ensure!(slope <= MAX_SLOPE && leaked <= MAX_LEAKED, "FAIL: above the limits");
    println!("PASS");
    Ok(())
}
