//! `evaluate`: judges once, with current data.
use std::num::NonZeroU64;

use clap::Args;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{
    cluster::ClusterArgs,
    documents::DocumentArgs,
    output::{ColorArgs, TableFormat},
    progress,
    prometheus::PrometheusArgs,
    series::SeriesArgs,
};
use crate::{
    api::TrafficWatch,
    inspect::{
        cluster::{describe, list, name_of},
        evaluate,
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
    pub(super) pod_request: Option<NonZeroU64>,
}

impl NodeArgs {
    pub(super) async fn population(&self) -> anyhow::Result<Population> {
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

/// Judges once.
pub(super) fn run(args: &EvaluateArgs) -> anyhow::Result<()> {
    args.color.choose();
    let watches = args.documents.read()?;
    let config = args.prometheus.endpoints()?;
    let endpoints = Endpoints::new(&config, Metrics::new())?;
    let progress = Progress::default();
    let evaluations = progress::block_on(&progress, async {
        let mut evaluations = Vec::new();
        let others = args.nodes.others().await?;
        for (done, watch) in watches.iter().enumerate() {
            let name = name_of(watch);
            progress.enter(format!("{name}: {} of {} TrafficWatches", done + 1, watches.len()));
            let population = args.nodes.population().await?;
            let exporters = args.series.exporters(Some(&config));
            let pod_request = args.nodes.pod_request;
            let evaluation =
                evaluate::evaluate(watch, &endpoints, &exporters, population, pod_request);
            let mut evaluation = evaluation.await?;
            evaluation.warnings.extend(match &others {
                Some(Ok(all)) => evaluate::in_excess(watch, all, Timestamp::now()),
                Some(Err(unread)) => Some(unread.clone()),
                None => None,
            });
            evaluations.push(evaluation);
        }
        Ok(evaluations)
    })?;
    args.output.print(&json!({ "evaluations": evaluations }), |_| {
        evaluations.iter().map(evaluate::text).collect::<Vec<_>>().join("\n")
    })?;
    // The user requested a judgment, and there is none.
    let failed = evaluations.iter().find_map(evaluate::Evaluation::failure);
    failed.map_or(Ok(()), |why| Err(anyhow::anyhow!("no measurement: {why}")))
}
