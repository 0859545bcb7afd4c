//! `agent`: the processes that run in the pods. The webhook writes their environment variables,
//! three of which are the original's.
use std::{net::IpAddr, path::PathBuf, time::Duration};

use anyhow::Context;
use clap::{Args, Parser, Subcommand, ValueEnum, error::ErrorKind};
use http::Uri;

use self::{
    reload::ReloadArgs,
    values::{duration, https},
    worker::WorkerArgs,
};
use crate::{
    Config, Source,
    log::{self, LogArgs},
    members::Identity,
    source::pull::Pull,
};

mod reload;
mod share;
pub mod values;
mod worker;

/// Runs one of the processes that work in pods.
#[derive(Debug, Parser)]
#[command(name = "traffic-operator-agent", version, max_term_width = 100)]
pub struct Cli {
    /// The process to run.
    #[command(flatten)]
    pub agent: AgentArgs,
}

/// The processes of an agent.
#[derive(Clone, Debug, Subcommand)]
enum AgentCommand {
    /// Probe the other pods of a NetworkProber, answer their probes, and export the results.
    Probe(Box<ProbeArgs>),
    /// Run the streams that a Swarm assigns to this worker, and report the version of the file that
    /// it has applied.
    Worker(Box<WorkerArgs>),
    /// Reload an application when its streams in a Swarm change, and report the version of the file
    /// that it has applied.
    Reload(Box<ReloadArgs>),
}

/// Flags of the agent: of its own program, and of `traffic-operator agent`.
#[derive(Args, Clone, Debug)]
pub struct AgentArgs {
    #[command(subcommand)]
    command: AgentCommand,
}

/// Source of the list of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Delivery {
    /// From the operator, by long polling.
    #[value(name = "Pull")]
    Pull,
    /// From the configuration file.
    #[value(name = "ConfigMap")]
    ConfigMap,
}

/// The addresses of one pod.
#[derive(Clone, Debug, Default)]
struct Addresses(Vec<IpAddr>);

/// Flags of `agent probe`.
#[derive(Args, Clone, Debug)]
pub(super) struct ProbeArgs {
    /// Port of GET /ping (TCP) and of the echo (UDP).
    #[arg(long, env = "HTTP_PORT", value_name = "PORT", default_value_t = 8080)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    http_port: u16,

    /// Port of GET /metrics.
    #[arg(long, env = "HTTP_PROMETHEUS_PORT", value_name = "PORT", default_value_t = 2112)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    http_prometheus_port: u16,

    /// File with the members of the prober, read again when it changes (delivery `ConfigMap`).
    #[arg(long, env = "NET_PROBER_CONFIG_FILE", value_name = "FILE")]
    #[arg(default_value = "/etc/netprober/config.json")]
    config_file: PathBuf,

    /// Source of the list of peers.
    #[arg(long, env = "NET_PROBER_DELIVERY", value_name = "DELIVERY")]
    #[arg(value_enum, default_value_t = Delivery::ConfigMap)]
    delivery: Delivery,

    /// URL at which the operator serves the lists; https only (delivery Pull).
    #[arg(long, env = "NET_PROBER_PINGLIST_URL", value_name = "URL", value_parser = https)]
    #[arg(required_if_eq("delivery", "Pull"))]
    pinglist_url: Option<Uri>,

    /// NetworkProber that this agent belongs to (required for delivery Pull).
    #[arg(long, env = "NET_PROBER_PROBER", value_name = "NAMESPACE/NAME", value_parser = prober)]
    #[arg(required_if_eq("delivery", "Pull"))]
    prober: Option<String>,

    /// PEM file of the CA certificates that verify the operator's certificate, read again when it
    /// changes.
    #[arg(long, env = "NET_PROBER_CA_FILE", value_name = "FILE")]
    #[arg(default_value = "/etc/netprober/ca.crt")]
    ca_file: PathBuf,

    /// File of the token that authenticates this agent to the operator, read again for every
    /// request.
    #[arg(long, env = "NET_PROBER_TOKEN_FILE", value_name = "FILE")]
    #[arg(default_value = "/etc/netprober/token")]
    token_file: PathBuf,

    /// The time for which a list stays valid without confirmation by the operator; then probing
    /// stops. At least ten polling periods.
    #[arg(long, env = "NET_PROBER_PINGLIST_TTL", value_name = "DURATION")]
    #[arg(default_value = "10m", value_parser = duration)]
    pinglist_ttl: Duration,

    /// Namespace of this pod.
    #[arg(long, env = "NET_PROBER_POD_NAMESPACE", value_name = "NAMESPACE", default_value = "")]
    pod_namespace: String,

    /// Name of this pod.
    #[arg(long, env = "NET_PROBER_POD_NAME", value_name = "NAME", default_value = "")]
    pod_name: String,

    /// Addresses of this pod, separated by commas [default: those of the interfaces].
    #[arg(long, env = "NET_PROBER_POD_IPS", value_name = "ADDRESSES", default_value = "")]
    #[arg(value_parser = addresses, hide_default_value = true)]
    pod_ips: Addresses,

    /// Node that this pod runs on.
    #[arg(long, env = "NET_PROBER_NODE", value_name = "NODE", default_value = "")]
    node: String,

    #[command(flatten)]
    log: LogArgs,
}

/// Runs an agent until it receives a signal to stop.
///
/// # Errors
/// When its flags contradict each other, or it cannot continue.
pub fn run(args: AgentArgs) -> anyhow::Result<()> {
    match args.command {
        AgentCommand::Probe(args) => {
            log::init(&args.log)?;
            block_on(crate::run(args.config()?))
        }
        AgentCommand::Worker(args) => {
            log::init(&args.share.log)?;
            block_on(crate::worker::run(args.config()))
        }
        AgentCommand::Reload(args) => {
            log::init(&args.share.log)?;
            block_on(crate::reload::run(args.config()?))
        }
    }
}

/// Runs in one thread: agents mostly wait, and each thread costs memory in every pod. At most two
/// more threads read files.
fn block_on(agent: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .context("async runtime")?;
    let ended = runtime.block_on(agent);
    // A read that hangs does not delay the exit.
    runtime.shutdown_background();
    ended
}

impl ProbeArgs {
    fn config(self) -> Result<Config, clap::Error> {
        let source = match (self.delivery, self.pinglist_url, self.prober) {
            (Delivery::ConfigMap, _, prober) => {
                Source::File { path: self.config_file, prober: prober.unwrap_or_default() }
            }
            (Delivery::Pull, Some(url), Some(prober)) => Source::Pull(Pull {
                url,
                prober,
                ca_file: self.ca_file,
                token_file: self.token_file,
            }),
            (Delivery::Pull, ..) => {
                let what = "delivery Pull needs --pinglist-url and --prober";
                return Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, what));
            }
        };
        let who = Identity {
            namespace: self.pod_namespace,
            name: self.pod_name,
            node: self.node,
            ips: self.pod_ips.0,
            port: self.http_port,
        };
        let metrics_port = self.http_prometheus_port;
        Ok(Config { who, metrics_port, source, ttl: self.pinglist_ttl })
    }
}

fn prober(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((namespace, name))
            if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
        {
            Ok(text.to_owned())
        }
        _ => Err("must be <namespace>/<name>".into()),
    }
}

/// An empty list is allowed: a pod may start before it has addresses.
fn addresses(text: &str) -> Result<Addresses, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parse = |part: &str| part.parse().map_err(|_| format!("{part:?} is no IP address"));
    parts.map(parse).collect::<Result<_, _>>().map(Addresses)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(args: &[&str]) -> Result<ProbeArgs, clap::Error> {
        let all = ["traffic-operator-agent", "probe"].iter().chain(args);
        match Cli::try_parse_from(all)?.agent.command {
            AgentCommand::Probe(args) => Ok(*args),
            other => unreachable!("probe was asked for, not {other:?}"),
        }
    }

    #[test]
    fn the_defaults_are_the_originals() {
        let args = parse(&[]).unwrap();
        assert_eq!((args.http_port, args.http_prometheus_port), (8080, 2112));
        let Source::File { path, .. } = args.config().unwrap().source else {
            unreachable!("not pulled");
        };
        assert_eq!(path, PathBuf::from("/etc/netprober/config.json"));
    }

    #[test]
    fn every_flag_is_an_environment_variable() {
        let cli = Cli::command();
        let probe = cli.find_subcommand("probe").unwrap();
        for flag in probe.get_arguments().filter(|flag| flag.get_id() != "help") {
            assert!(flag.get_env().is_some(), "--{} has no variable", flag.get_id());
            assert!(flag.get_help().is_some(), "--{} has no help", flag.get_id());
        }
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        for (flag, value) in [
            ("--http-port", "0"),
            ("--http-port", "65536"),
            ("--http-port", "http"),
            ("--http-prometheus-port", ""),
            ("--delivery", "pull"),
            ("--pinglist-url", "http://operator/pinglist"),
            ("--pinglist-url", "operator"),
            ("--prober", "name"),
            ("--prober", "a/b/c"),
            ("--pod-ips", "10.0.0.1,host"),
            ("--pinglist-ttl", "0s"),
            ("--pinglist-ttl", "10"),
        ] {
            let error = parse(&[flag, value]).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
        let error = parse(&["--delivery", "Pull"]).unwrap_err().to_string();
        assert!(error.contains("--pinglist-url") && error.contains("--prober"), "{error}");
    }

    #[test]
    fn addresses_may_be_missing() {
        assert!(parse(&["--pod-ips", ""]).unwrap().pod_ips.0.is_empty());
        assert_eq!(parse(&["--pod-ips", "10.0.0.1, fd00::1"]).unwrap().pod_ips.0.len(), 2);
    }
}
