//! `status`: everything on one screen.
use std::process::ExitCode;

use clap::Args;

use super::{
    cluster::{ClusterArgs, LeaseArgs},
    output::{ColorArgs, TableFormat},
    progress,
};
use crate::inspect::{progress::Progress, status};

/// Flags of `status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// Show only the objects of this namespace, and cluster-scoped ones [default: all namespaces].
    #[arg(short, long, value_name = "NAMESPACE", value_parser = super::explain::name)]
    namespace: Option<String>,

    /// Show the objects of all namespaces, which is the default.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,

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
}

/// Prints the report; fails if anything needs attention.
pub(super) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    args.color.choose();
    let progress = Progress::default();
    progress.enter("reading the objects of every kind and the operator's Lease");
    let report = progress::block_on(&progress, async {
        let client = args.cluster.access().reading().await?;
        let facts = status::gather(&client, args.lease.key(), args.scope()).await;
        Ok(status::report(&facts))
    })?;
    args.output.print(&report, status::text)?;
    Ok(if report.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
