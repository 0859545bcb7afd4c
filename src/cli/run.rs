//! `run`: the operator itself.
use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use clap::Args;

use super::{prometheus::PrometheusArgs, series::SeriesArgs, values::lease_duration};
use crate::{
    manifests,
    runtime::{self, log::LogFormat},
};

/// Flags of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Where Prometheus is.
    #[command(flatten)]
    pub prometheus: PrometheusArgs,

    /// How series name nodes.
    #[command(flatten)]
    pub series: SeriesArgs,

    /// Whether custom resources may bring PromQL of their own (spec.query, spec.criteria). Whoever may
    /// create them can then read everything that the endpoint's credentials can.
    #[arg(long, env = "TRAFFIC_OPERATOR_OWN_QUERIES", value_name = "BOOL")]
    #[arg(default_value_t = true, action = clap::ArgAction::Set)]
    pub own_queries: bool,

    /// Where /metrics, /livez and /readyz are served.
    #[arg(long, env = "TRAFFIC_OPERATOR_ADMIN_ADDRESS", value_name = "ADDRESS:PORT")]
    #[arg(default_value = "0.0.0.0:8080")]
    pub admin_address: SocketAddr,

    /// Namespace of the Lease that elects the writing replica.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    #[arg(default_value = manifests::NAMESPACE)]
    pub lease_namespace: String,

    /// Name of the Lease.
    #[arg(long, env = "TRAFFIC_OPERATOR_LEASE_NAME", value_name = "NAME")]
    #[arg(default_value = manifests::NAME)]
    pub lease_name: String,

    /// How long the Lease stands without renewal: the longest time without a writer after one was
    /// killed; at least 5s.
    #[arg(long, env = "TRAFFIC_OPERATOR_LEASE_DURATION", value_name = "DURATION")]
    #[arg(default_value = "15s", value_parser = lease_duration)]
    pub lease_duration: Duration,

    /// Who this replica is in the Lease; must differ between replicas [default: host name and
    /// process ID].
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,

    /// How log lines are written.
    #[arg(long, env = "TRAFFIC_OPERATOR_LOG_FORMAT", value_name = "FORMAT")]
    #[arg(value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Which log lines are written: a level, or a filter such as `info,traffic_operator=debug`.
    #[arg(long, env = "TRAFFIC_OPERATOR_LOG", value_name = "FILTER", default_value = "info")]
    pub log: String,
}

/// Runs the operator until it is told to stop.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<()> {
    runtime::log::init(args.log_format, &args.log)?;
    // Passes wait for the network; two threads serve 5,000 nodes with room to spare, and each
    // further one costs memory.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("async runtime")?;
    let config = runtime::Config {
        endpoints: args.prometheus.endpoints()?,
        node_labels: args.series.node_labels.clone(),
        own_queries: args.own_queries,
        admin_address: args.admin_address,
        lease: runtime::lease::LeaseConfig {
            namespace: args.lease_namespace.clone(),
            name: args.lease_name.clone(),
            identity: args.identity.clone().unwrap_or_else(runtime::identity),
            duration: args.lease_duration,
        },
    };
    runtime.block_on(runtime::run(config))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(args: &[&str]) -> Result<RunArgs, clap::Error> {
        let all = ["traffic-operator", "run"].iter().chain(args);
        match Cli::try_parse_from(all)?.command {
            Command::Run(args) => Ok(*args),
            other => unreachable!("run was asked for, not {other:?}"),
        }
    }

    #[test]
    fn the_defaults_are_good_values() {
        assert_eq!(parse(&[]).unwrap().series.node_labels, ["node", "nodename", "kubernetes_node"]);
    }

    #[test]
    fn every_flag_of_run_is_an_environment_variable() {
        let cli = Cli::command();
        let run = cli.find_subcommand("run").unwrap();
        for flag in run.get_arguments().filter(|flag| flag.get_id() != "help") {
            assert!(flag.get_env().is_some(), "--{} has no variable", flag.get_id());
            assert!(flag.get_help().is_some(), "--{} has no help", flag.get_id());
        }
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        for (flag, value) in [
            ("--prometheus-timeout", "10"),
            ("--prometheus-timeout", "0s"),
            ("--node-label", "node\"} or vector(1)"),
            ("--lease-duration", "4s"),
            ("--lease-duration", "15500ms"),
            ("--admin-address", "8080"),
            ("--log-format", "xml"),
        ] {
            let error = parse(&[flag, value]).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
    }
}
