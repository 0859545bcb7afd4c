//! The command line. Every flag is an environment variable too.
use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};

use crate::{
    manifests,
    runtime::{self, log::LogFormat},
};

mod prometheus;

pub use prometheus::PrometheusArgs;

/// Kubernetes that acts on how its network really behaves.
///
/// Judges nodes by their measured network load in Prometheus, marks them fit or unfit by a label,
/// and keeps Deployments on the fit ones.
#[derive(Debug, Parser)]
#[command(name = "traffic-operator", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the operator.
    Run(Box<RunArgs>),
    /// Print the custom resource definitions and the RBAC rules, as YAML.
    Manifests(ManifestsArgs),
}

/// Flags of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Where Prometheus is.
    #[command(flatten)]
    pub prometheus: PrometheusArgs,

    /// Labels of the node exporter's series that may name the node, tried in this order before
    /// `instance`; comma-separated.
    #[arg(long = "node-label", env = "TRAFFIC_OPERATOR_NODE_LABEL", value_name = "LABELS")]
    #[arg(value_delimiter = ',', default_value = "node,nodename,kubernetes_node")]
    #[arg(value_parser = label_name)]
    pub node_labels: Vec<String>,

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

#[derive(Args, Clone, Debug)]
struct ManifestsArgs {
    /// Write the files into this directory instead (`crds/` and `rbac/` below it).
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

impl Cli {
    /// Does what was asked; errors are printed, with their causes.
    #[must_use]
    pub fn execute(self) -> ExitCode {
        let result = match self.command {
            Command::Run(args) => run(&args),
            Command::Manifests(args) => print(args),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

fn run(args: &RunArgs) -> anyhow::Result<()> {
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
        node_labels: args.node_labels.clone(),
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

fn print(args: ManifestsArgs) -> anyhow::Result<()> {
    let files = manifests::files()?;
    let Some(dir) = args.output_dir else {
        for file in files {
            print!("{}", file.text);
        }
        return Ok(());
    };
    for file in files {
        let path = dir.join(&file.path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("{}", parent.display()))?;
        }
        std::fs::write(&path, file.text).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration.is_zero() { Err("must be more than zero".into()) } else { Ok(duration) }
}

/// Whole seconds, because that is what a Lease can say; five, because a renewal may take one.
fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration < Duration::from_secs(5) || duration.subsec_nanos() != 0 {
        return Err("must be at least 5s, in whole seconds".into());
    }
    Ok(duration)
}

/// A label name enters the text of a query, so it must be one.
fn label_name(text: &str) -> Result<String, String> {
    let ok = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if ok { Ok(text.to_owned()) } else { Err("must match [a-zA-Z_][a-zA-Z0-9_]*".into()) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(args: &[&str]) -> Result<RunArgs, clap::Error> {
        let all = ["traffic-operator", "run"].iter().chain(args);
        match Cli::try_parse_from(all)?.command {
            Command::Run(args) => Ok(*args),
            Command::Manifests(_) => unreachable!("run was asked for"),
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        assert_eq!(parse(&[]).unwrap().node_labels, ["node", "nodename", "kubernetes_node"]);
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
