//! `evaluate` and `backtest`: judge once with current data, and judge a history.
use std::{num::NonZeroU64, path::PathBuf, time::Duration};

use anyhow::{Context, ensure};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{
    cluster::ClusterArgs,
    documents::DocumentArgs,
    flags::{Moment, PrometheusArgs, SeriesArgs, duration, moment},
    output::{ColorArgs, TableFormat},
    progress,
};
use crate::{
    api::TrafficWatch,
    inspect::{
        backtest::{self, Range, Variations},
        cluster::{describe, list, name_of},
        evaluate::{self, Evaluation},
        population::Population,
        progress::Progress,
    },
    metrics::Metrics,
    prometheus::Endpoints,
};

/// Flags of `evaluate`.
#[derive(Args, Clone, Debug)]
pub struct EvaluateArgs {
    #[command(flatten)]
    documents: DocumentArgs,

    #[command(flatten)]
    nodes: NodeArgs,

    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = TableFormat::Table)]
    output: TableFormat,

    #[command(flatten)]
    color: ColorArgs,

    #[command(flatten)]
    prometheus: PrometheusArgs,

    #[command(flatten)]
    series: SeriesArgs,
}

/// The nodes to judge.
#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// Read the nodes (names, addresses, labels, capacities) from the API server, instead of taking
    /// those that appear in the series. Changes nothing.
    #[arg(long)]
    cluster: bool,

    #[command(flatten)]
    access: ClusterArgs,

    /// Also print how many pods fit on what the nodes offer, if each requests this many units of
    /// the resource of spec.reservation.
    #[arg(long, value_name = "UNITS")]
    pod_request: Option<NonZeroU64>,
}

impl NodeArgs {
    /// The nodes of a cluster.
    pub(super) fn of_cluster(access: ClusterArgs) -> Self {
        Self { cluster: true, access, pod_request: None }
    }

    async fn population(&self) -> anyhow::Result<Population> {
        if !self.cluster {
            return Ok(Population::default());
        }
        Population::of_cluster(&self.access.access().reading().await?).await
    }

    /// Returns the TrafficWatches of the cluster, or why they are not known.
    async fn others(&self) -> anyhow::Result<Option<Result<Vec<TrafficWatch>, String>>> {
        if !self.cluster {
            return Ok(None);
        }
        let listed = list::<TrafficWatch>(&self.access.access().reading().await?).await;
        Ok(Some(listed.map(|listed| listed.read).map_err(|error| {
            let why = describe("listing TrafficWatches", error);
            format!("{why}: whether an older one has the label or the place is not known")
        })))
    }
}

/// Judges each once.
pub(super) async fn judged(
    watches: &[TrafficWatch],
    nodes: &NodeArgs,
    prometheus: &PrometheusArgs,
    series: &SeriesArgs,
    progress: &Progress,
) -> anyhow::Result<Vec<Evaluation>> {
    let config = prometheus.endpoints()?;
    let endpoints = Endpoints::new(&config, Metrics::new())?;
    let exporters = series.exporters(Some(&config));
    let mut evaluations = Vec::new();
    let others = nodes.others().await?;
    for (done, watch) in watches.iter().enumerate() {
        let name = name_of(watch);
        progress.enter(format!("{name}: {} of {} TrafficWatches", done + 1, watches.len()));
        let (population, pod_request) = (nodes.population().await?, nodes.pod_request);
        let evaluation = evaluate::evaluate(watch, &endpoints, &exporters, population, pod_request);
        let mut evaluation = evaluation.await?;
        evaluation.warnings.extend(match &others {
            Some(Ok(all)) => evaluate::in_excess(watch, all, Timestamp::now()),
            Some(Err(unread)) => Some(unread.clone()),
            None => None,
        });
        evaluations.push(evaluation);
    }
    Ok(evaluations)
}

/// Judges once.
pub(super) fn evaluate(args: &EvaluateArgs) -> anyhow::Result<()> {
    args.color.choose();
    let watches = args.documents.read()?;
    let progress = Progress::default();
    let evaluations = progress::block_on(
        &progress,
        judged(&watches, &args.nodes, &args.prometheus, &args.series, &progress),
    )?;
    args.output.print(&json!({ "evaluations": evaluations }), |_| {
        evaluations.iter().map(evaluate::text).collect::<Vec<_>>().join("\n")
    })?;
    // The user requested a judgment, and there is none.
    let failed = evaluations.iter().find_map(Evaluation::failure);
    failed.map_or(Ok(()), |why| Err(anyhow::anyhow!("no measurement: {why}")))
}

/// Flags of `backtest`.
#[derive(Args, Clone, Debug)]
pub struct BacktestArgs {
    #[command(flatten)]
    documents: DocumentArgs,

    /// Start of the history: a time before now (-24h), a timestamp (2026-01-31T12:00:00Z) or Unix
    /// seconds.
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    #[arg(default_value = "-24h")]
    from: Moment,

    /// End of the history.
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    #[arg(default_value = "now")]
    to: Moment,

    /// Time between two judgments [default: spec.interval].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    step: Option<Duration>,

    /// Other thresholds to try, in the unit of the spec's threshold; comma-separated [default: 50,
    /// 75, 90, 110 and 125 percent of the spec's threshold].
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    thresholds: Vec<f64>,

    /// Also write a timeline to this HTML file; for one document only.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    nodes: NodeArgs,

    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = TableFormat::Table)]
    output: TableFormat,

    #[command(flatten)]
    prometheus: PrometheusArgs,

    #[command(flatten)]
    series: SeriesArgs,
}

impl BacktestArgs {
    fn range(&self, watch: &TrafficWatch, now: i64) -> anyhow::Result<Range> {
        let step = self.step.unwrap_or_else(|| watch.spec.interval.into());
        Ok(Range {
            from: self.from.at(now),
            to: self.to.at(now),
            step: i64::try_from(step.as_millis()).context("--step")?,
        })
    }
}

/// Judges a history.
pub(super) fn backtest(args: &BacktestArgs) -> anyhow::Result<()> {
    let watches = args.documents.read()?;
    ensure!(
        args.html.is_none() || watches.len() == 1,
        "--html: the file has {} documents; one is drawn",
        watches.len()
    );
    let config = args.prometheus.endpoints()?;
    let endpoints = Endpoints::new(&config, Metrics::new())?;
    // Whole seconds: the query can be repeated by hand.
    let now = Timestamp::now().as_second() * 1000;
    let progress = Progress::default();
    let backtests = progress::block_on(&progress, async {
        let mut backtests = Vec::new();
        for watch in &watches {
            let (range, population) = (args.range(watch, now)?, args.nodes.population().await?);
            let exporters = args.series.exporters(Some(&config));
            let variations =
                Variations { thresholds: &args.thresholds, pod_request: args.nodes.pod_request };
            let run = backtest::run(
                watch, &endpoints, &exporters, population, range, variations, &progress,
            );
            backtests.push(run.await?);
        }
        Ok(backtests)
    })?;
    if let (Some(path), [backtest]) = (&args.html, backtests.as_slice()) {
        std::fs::write(path, backtest::html(backtest))
            .with_context(|| format!("--html {}", path.display()))?;
    }
    args.output.print(&json!({ "backtests": backtests }), |_| {
        backtests.iter().map(backtest::text).collect::<Vec<_>>().join("\n")
    })
}
