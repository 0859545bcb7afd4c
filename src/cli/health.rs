//! `status` and `doctor`: is anything wrong, and is everything available that the operator needs? Both
//! exit with 1 on a finding.
use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use kube::Client;
use serde_json::json;
use tokio::time::sleep;

use super::{
    cluster::{ClusterArgs, LeaseArgs, OperatorArgs},
    flags::{KindsArgs, PrometheusArgs, SeriesArgs, duration},
    output::{self, ColorArgs, TableFormat},
    progress,
};
use crate::{
    inspect::{
        doctor::{self, CheckResult},
        progress::Progress,
        status,
    },
    metrics::Metrics,
    prometheus::{DEFAULT, Endpoints},
};

/// Flags of `status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// Show only the objects of this namespace, and cluster-scoped ones [default: all namespaces].
    #[arg(short, long, value_name = "NAMESPACE", value_parser = super::explain::name)]
    namespace: Option<String>,

    /// Show the objects of all namespaces, which is the default.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,

    /// Show the report again as it changes, until you press Ctrl-C.
    #[arg(short, long)]
    watch: bool,

    /// Wait until nothing needs attention, at most this long, for example 5m.
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "watch")]
    wait: Option<Duration>,

    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = TableFormat::Table)]
    output: TableFormat,

    #[command(flatten)]
    color: ColorArgs,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    lease: LeaseArgs,
}

impl StatusArgs {
    /// The namespace to show; none for all.
    fn scope(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|_| !self.all_namespaces)
    }

    async fn report(&self, client: &Client) -> status::Report {
        status::report(&status::gather(client, self.lease.key(), self.scope()).await)
    }

    /// The report, as soon as nothing needs attention or the time to wait is over.
    async fn settled(&self, progress: &Progress) -> anyhow::Result<status::Report> {
        let client = self.cluster.access().reading().await?;
        let ends = Instant::now() + self.wait.unwrap_or_default();
        loop {
            let report = self.report(&client).await;
            let Some(first) = report.attention.first() else { return Ok(report) };
            if Instant::now() >= ends {
                return Ok(report);
            }
            progress.enter(format!("waiting for {}: {}", first.what, first.problems.join("; ")));
            sleep(POLL).await;
        }
    }

    /// Shows the report again and again: on a terminal in place of the one before, elsewhere each one
    /// that differs.
    async fn follow(&self) -> anyhow::Result<ExitCode> {
        let client = self.cluster.access().reading().await?;
        let is_terminal = io::stdout().is_terminal();
        let mut shown = None;
        loop {
            let report = self.report(&client).await;
            if is_terminal {
                output::clear()?;
            }
            if is_terminal || shown.as_ref().is_none_or(|shown| !report.says_the_same(shown)) {
                self.output.print(&report, status::text)?;
            }
            shown = Some(report);
            sleep(POLL).await;
        }
    }
}

/// Time from one reading of the cluster to the next, when `status` waits or watches.
const POLL: Duration = Duration::from_secs(2);

/// Prints the report; fails if anything needs attention.
pub(super) fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    args.color.choose();
    if args.watch {
        return output::block_on(args.follow());
    }
    let progress = Progress::default();
    progress.enter("reading the objects of every kind and the operator's Lease");
    let report = progress::block_on(&progress, args.settled(&progress))?;
    args.output.print(&report, status::text)?;
    Ok(if report.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Flags of `doctor`.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Account whose permissions to check, for example
    /// system:serviceaccount:traffic-operator-system:traffic-operator [default: your own].
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,

    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = TableFormat::Table)]
    output: TableFormat,

    #[command(flatten)]
    color: ColorArgs,

    #[command(flatten)]
    kinds: KindsArgs,

    #[command(flatten)]
    prometheus: PrometheusArgs,

    #[command(flatten)]
    series: SeriesArgs,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    operator: OperatorArgs,
}

/// Runs all checks; fails if any of them fails.
pub(super) fn doctor(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    args.color.choose();
    let progress = Progress::default();
    let checks = progress::block_on(&progress, async {
        let kinds = args.kinds.kinds()?;
        let (access, user) = (args.cluster.access(), args.user.as_deref());
        let config = args.prometheus.endpoints()?;
        let endpoints = Endpoints::new(&config, Metrics::new())?;
        let (place, exporters) = (args.operator.place(), args.series.exporters(Some(&config)));
        let mut facts = doctor::gather(&access, user, &place, &exporters, &kinds, &progress).await;
        for client in endpoints.names().filter_map(|name| endpoints.get(name)) {
            progress.enter(format!("asking Prometheus {}", client.name()));
            let watches = facts.watches.as_ref().map(|watches| watches.read.as_slice());
            let watches = watches.unwrap_or_default();
            if let Some(probing) = facts.probing.as_mut().filter(|_| client.name() == DEFAULT) {
                doctor::gather_figures(probing, client).await;
            }
            facts.routes.ask(client, &exporters).await;
            facts.endpoints.push(doctor::gather_endpoint(client, &exporters, watches).await);
        }
        anyhow::Ok(doctor::checks(&facts))
    })?;
    args.output.print(&json!({ "checks": checks }), |_| doctor::text(&checks))?;
    let failed = checks.iter().any(|check| check.verdict == CheckResult::Fail);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
