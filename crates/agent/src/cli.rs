//! `agent`: the processes that run in the pods. The webhook writes their environment variables,
//! three of which are the original's.
use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    path::PathBuf,
    time::Duration,
};

use anyhow::Context;
use clap::{
    Args, Parser, Subcommand, ValueEnum, builder::NonEmptyStringValueParser, error::ErrorKind,
};
use http::Uri;
use nix::sys::signal::Signal;
use traffic_operator_core::{acknowledgement::KEY_FILE, placement::part};

use crate::{
    Config, Identity, Pull, Source,
    log::{self, LogArgs},
    reload::{self, Method},
    worker::{
        self, Kind,
        report::Report,
        status::{Place, Signer},
    },
};

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

    /// PEM file of the CA certificates of the cluster, which may sign for targets with TLS in addition to public
    /// CAs; read for every probe.
    #[arg(long, env = "NET_PROBER_CLUSTER_CA_FILE", value_name = "FILE")]
    #[arg(default_value = "/etc/netprober/cluster.crt")]
    cluster_ca_file: PathBuf,

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
            block_on(worker::run(args.config()))
        }
        AgentCommand::Reload(args) => {
            log::init(&args.share.log)?;
            block_on(reload::run(args.config()?))
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
        let (ttl, cluster_ca) = (self.pinglist_ttl, self.cluster_ca_file);
        Ok(Config { who, metrics_port, source, cluster_ca, ttl })
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

/// Flags of `agent worker`.
#[derive(Args, Clone, Debug)]
struct WorkerArgs {
    #[command(flatten)]
    share: ShareArgs,

    /// Report for each stream that it runs, by POST to this URL, instead of running a command.
    #[arg(long, env = "SWARM_REPORT_URL", value_name = "URL", value_parser = http)]
    #[arg(conflicts_with = "command")]
    report: Option<Uri>,

    /// Interval between reports.
    #[arg(long, env = "SWARM_REPORT_INTERVAL", value_name = "DURATION")]
    #[arg(default_value = "200ms", value_parser = duration)]
    report_interval: Duration,

    /// Prepare streams as soon as the file says that they will come: start their processes, which
    /// load, and work only once they read a line, the fencing token, from their standard input.
    #[arg(long, env = "SWARM_PREPARE")]
    prepare: bool,

    /// Time after which a stream has loaded [default: none].
    #[arg(long, env = "SWARM_LOAD_TIME", value_name = "DURATION", value_parser = duration)]
    load_time: Option<Duration>,

    /// Time for a stream's process to end after SIGTERM; then it is killed.
    #[arg(long, env = "SWARM_STOP_TIMEOUT", value_name = "DURATION")]
    #[arg(default_value = "5s", value_parser = duration)]
    stop_timeout: Duration,

    /// Command to run for each stream. `{}` in an argument is replaced by the stream; `STREAM`,
    /// `SWARM_WORKER` and `SWARM_EPOCH` are in the environment.
    #[arg(last = true, value_name = "COMMAND", value_parser = NonEmptyStringValueParser::new())]
    command: Vec<String>,
}

impl WorkerArgs {
    fn config(self) -> worker::Config {
        let place = self.share.place();
        let kind = match self.report {
            _ if !self.command.is_empty() => Kind::Command(self.command),
            Some(url) => Kind::Report(Report {
                url,
                interval: self.report_interval,
                pod: place.signer.uid.clone().unwrap_or_else(some_id),
            }),
            None => Kind::Nothing,
        };
        let load_time = self.load_time.unwrap_or_default();
        let (stop_timeout, prepare) = (self.stop_timeout, self.prepare);
        worker::Config { place, kind, stop_timeout, prepare, load_time }
    }
}

/// A random id, different at each start.
fn some_id() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

/// Flags that `agent worker` and `agent reload` share.
#[derive(Args, Clone, Debug)]
struct ShareArgs {
    /// Directory of the file, where the `ConfigMap` is mounted.
    #[arg(long, env = "CONFIG_PATH", value_name = "DIRECTORY", default_value = "/app/config")]
    config_path: PathBuf,

    /// Name of the file, which is the key in the `ConfigMap`.
    #[arg(long, env = "SWARM_CONFIG_KEY", value_name = "KEY", default_value = "config.yml")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    config_key: String,

    /// Number of `ConfigMap`s over which the file is divided (`configMap.files` of the Swarm).
    /// Above 1, the file is DIRECTORY/part-N/KEY, where N is the CRC-32 of this worker's name
    /// modulo this number.
    #[arg(long, env = "SWARM_CONFIG_FILES", value_name = "NUMBER", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=32))]
    config_files: u32,

    /// Name of this worker in the file, which is the name of the pod.
    #[arg(long, env = "HOSTNAME", value_name = "NAME", default_value = "swarm-worker-0")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    hostname: String,

    /// Port of GET /internal/version, /internal/health, /healthz and /metrics.
    #[arg(long, env = "HTTP_PORT", value_name = "PORT", default_value_t = 9090)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    http_port: u16,

    /// UID of this pod (`metadata.uid`), for which its answers are signed [default: unknown,
    /// answers are not signed].
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pod_uid: Option<String>,

    #[command(flatten)]
    log: LogArgs,
}

impl ShareArgs {
    fn place(self) -> Place {
        let files = self.config_files;
        let part = (files > 1).then(|| (part::of(&self.hostname, files), files));
        let directory = match part {
            None => self.config_path.clone(),
            Some((part, _)) => self.config_path.join(format!("part-{part}")),
        };
        let uid = self.pod_uid.filter(|uid| !uid.is_empty());
        Place {
            file: directory.join(self.config_key),
            worker: self.hostname,
            part,
            port: self.http_port,
            signer: Signer { key: self.config_path.join(KEY_FILE), uid },
        }
    }
}

/// Flags of `agent reload`.
#[derive(Args, Clone, Debug)]
struct ReloadArgs {
    #[command(flatten)]
    share: ShareArgs,

    /// Reload the application by POST to this URL; a 2xx response confirms that it runs the file.
    #[arg(long, env = "SWARM_RELOAD_URL", value_name = "URL", value_parser = http)]
    #[arg(required_unless_present = "signal", conflicts_with = "signal")]
    url: Option<Uri>,

    /// Timeout of that request.
    #[arg(long, env = "SWARM_RELOAD_TIMEOUT", value_name = "DURATION")]
    #[arg(default_value = "30s", value_parser = duration)]
    timeout: Duration,

    /// Reload the application by this signal: HUP, USR1 or USR2.
    #[arg(long, env = "SWARM_RELOAD_SIGNAL", value_name = "SIGNAL", value_parser = signal)]
    #[arg(requires = "process")]
    signal: Option<Signal>,

    /// Name of the application's process, or of its executable.
    #[arg(long, env = "SWARM_RELOAD_PROCESS", value_name = "NAME")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    process: Option<String>,

    /// Time that the application needs to apply the file after a signal, which has no response.
    #[arg(long, env = "SWARM_RELOAD_SETTLE", value_name = "DURATION")]
    #[arg(default_value = "1s", value_parser = duration)]
    settle: Duration,
}

impl ReloadArgs {
    fn config(self) -> Result<reload::Config, clap::Error> {
        let method = match (self.url, self.signal, self.process) {
            (Some(url), None, _) => Method::Url { url, timeout: self.timeout },
            (None, Some(signal), Some(process)) => {
                Method::Signal { signal, process, settle: self.settle }
            }
            _ => {
                let what = "either --url, or --signal and --process";
                return Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, what));
            }
        };
        Ok(reload::Config { place: self.share.place(), method })
    }
}

/// Accepts only the signals by which programs read their files again; the others end them.
fn signal(text: &str) -> Result<Signal, String> {
    match text.to_ascii_uppercase().trim_start_matches("SIG") {
        "HUP" => Ok(Signal::SIGHUP),
        "USR1" => Ok(Signal::SIGUSR1),
        "USR2" => Ok(Signal::SIGUSR2),
        _ => Err("must be HUP, USR1 or USR2".into()),
    }
}

/// Parses a duration greater than zero.
///
/// # Errors
/// When it is zero, or no duration.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration.is_zero() { Err("must be more than zero".into()) } else { Ok(duration) }
}

/// Accepts only https, because the token is sent there.
fn https(text: &str) -> Result<Uri, String> {
    address(text, "https")
}

/// Accepts only http: the posted data is not secret, and the server is close.
fn http(text: &str) -> Result<Uri, String> {
    address(text, "http")
}

fn address(text: &str, scheme: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    let host = uri.host().is_some_and(|host| !host.is_empty());
    if uri.scheme_str() != Some(scheme) || !host {
        return Err(format!("must begin with {scheme}://"));
    }
    // A port out of range reads as none, and would be the scheme's own.
    let port = uri.authority().is_some_and(|to| {
        let address = to.as_str().rsplit('@').next().unwrap_or_default();
        address == to.host() || to.port_u16().is_some()
    });
    if port { Ok(uri) } else { Err("invalid port number".into()) }
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

    #[test]
    fn addresses_have_a_scheme_a_host_and_a_port_that_is_one() {
        for good in ["http://a", "http://a:1/x?y=z", "http://[::1]:80/", "http://u:p@a/"] {
            assert!(http(good).is_ok(), "{good}");
            assert!(https(good).is_err(), "{good}");
            assert!(https(&good.replacen("http", "https", 1)).is_ok(), "{good}");
        }
        for bad in ["", "a", "a:80", "/x", "http:///x", "http://a:99999/", "http://a b/"] {
            assert!(http(bad).is_err(), "{bad}");
        }
    }
}
