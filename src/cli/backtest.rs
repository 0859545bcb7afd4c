//! `backtest`: judges a history.
use std::{path::PathBuf, time::Duration};

use anyhow::{Context, ensure};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{
    documents::DocumentArgs,
    evaluate::NodeArgs,
    output::TableFormat,
    progress,
    prometheus::PrometheusArgs,
    series::SeriesArgs,
    values::{Moment, duration, moment},
};
use crate::{
    api::TrafficWatch,
    inspect::{
        backtest::{self, Range, Variations},
        progress::Progress,
    },
    metrics::Metrics,
    prometheus::Endpoints,
};

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
pub(super) fn run(args: &BacktestArgs) -> anyhow::Result<()> {
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
