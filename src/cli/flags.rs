//! Flags that several commands share: which Prometheus, which series, which kinds; and the parsers of
//! flag values, whose errors describe a valid value.
use std::{fmt, path::PathBuf, time::Duration};

use clap::Args;
use k8s_openapi::jiff::Timestamp;
pub(super) use traffic_operator_agent::cli::duration;

use crate::{
    prometheus::{EndpointsConfig, Exporters, exporters::NODE_EXPORTER, promql::Matchers},
    runtime::kinds::{Choice, Kinds},
};

/// Help text of `--prometheus-url`. A doc comment would turn the URL into a link, and a default of
/// clap would hide whether the flag was given.
const URL_HELP: &str = "Base URL of Prometheus, or of a server with the same HTTP API: the endpoint \
    `default`, unless --prometheus-config contains one of that name \
    [default: http://prometheus-k8s.monitoring.svc:9090]";

/// The Prometheus endpoints.
#[derive(Args, Clone)]
pub struct PrometheusArgs {
    /// Base URL of Prometheus: the endpoint `default`, unless the file has one.
    #[arg(long, env = "TRAFFIC_OPERATOR_PROMETHEUS_URL", value_name = "URL", help = URL_HELP)]
    // It may hold a password.
    #[arg(hide_env_values = true)]
    pub prometheus_url: Option<String>,

    /// YAML file of named endpoints with their credentials, TLS settings, headers and parameters;
    /// docs/reference/prometheus.md describes it.
    #[arg(long, env = "TRAFFIC_OPERATOR_PROMETHEUS_CONFIG", value_name = "FILE")]
    pub prometheus_config: Option<PathBuf>,

    /// Timeout of one request to Prometheus, unless the file sets another.
    #[arg(long, env = "TRAFFIC_OPERATOR_PROMETHEUS_TIMEOUT", value_name = "DURATION")]
    #[arg(default_value = "10s", value_parser = duration)]
    pub prometheus_timeout: Duration,
}

impl PrometheusArgs {
    /// Reads and checks the endpoints.
    ///
    /// # Errors
    /// When a flag or the file contains an invalid value.
    pub fn endpoints(&self) -> anyhow::Result<EndpointsConfig> {
        let url = self.prometheus_url.as_deref();
        EndpointsConfig::load(self.prometheus_config.as_deref(), url, self.prometheus_timeout)
    }
}

impl fmt::Debug for PrometheusArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrometheusArgs")
            // It may hold a password.
            .field("prometheus_url", &self.prometheus_url.as_ref().map(|_| ".."))
            .field("prometheus_config", &self.prometheus_config)
            .field("prometheus_timeout", &self.prometheus_timeout)
            .finish()
    }
}

/// The mapping of series to nodes.
#[derive(Args, Clone, Debug)]
pub struct SeriesArgs {
    /// Labels of the series about links that may contain the node's name, tried in this order
    /// before `instance`; comma-separated.
    #[arg(long = "node-label", env = "TRAFFIC_OPERATOR_NODE_LABEL", value_name = "LABELS")]
    #[arg(
        value_delimiter = ',',
        default_value = "node,nodename,kubernetes_node,k8s_node_name,host_name"
    )]
    #[arg(value_parser = label_name)]
    pub node_labels: Vec<String>,

    /// Label matchers of the node exporter series that the built-in measurement accepts; empty
    /// accepts those of every job.
    #[arg(long, env = "TRAFFIC_OPERATOR_NODE_EXPORTER_SELECTOR", value_name = "MATCHERS")]
    #[arg(default_value = NODE_EXPORTER)]
    pub node_exporter_selector: Matchers,
}

impl SeriesArgs {
    /// The exporters that are accepted, at the endpoints of a process that has some.
    #[must_use]
    pub fn exporters(&self, endpoints: Option<&EndpointsConfig>) -> Exporters {
        Exporters {
            links: endpoints.map(EndpointsConfig::links).unwrap_or_default(),
            node_labels: self.node_labels.clone(),
            node_exporter: self.node_exporter_selector.clone(),
            bird_exporter: Matchers::default(),
        }
    }
}

/// The kinds that an operator runs.
#[derive(Args, Clone, Debug)]
pub struct KindsArgs {
    /// Kinds to run: `TrafficWatch,Swarm` runs only these, `-Swarm` runs all but this one. May be
    /// repeated. Controllers of other kinds do not start, and their permissions are not required
    /// [default: all].
    #[arg(
        long = "kinds",
        env = "TRAFFIC_OPERATOR_KINDS",
        value_name = "KIND",
        value_delimiter = ','
    )]
    #[arg(allow_hyphen_values = true)]
    kinds: Vec<Choice>,
}

impl KindsArgs {
    /// The selected kinds.
    pub(super) fn kinds(&self) -> anyhow::Result<Kinds> {
        Kinds::of(&self.kinds).map_err(anyhow::Error::msg)
    }
}

/// Parses the lifetime of a certificate: a minute is long enough for every replica to read the next
/// one.
pub(super) fn lifetime(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration < Duration::from_mins(1) { Err("must be at least 1m".into()) } else { Ok(duration) }
}

/// Accepts only https, because the API server calls webhooks only over TLS.
pub(super) fn https_url(text: &str) -> Result<reqwest::Url, String> {
    let url = reqwest::Url::parse(text).map_err(|error| error.to_string())?;
    if url.scheme() == "https" && url.host_str().is_some() && url.path() == "/" {
        Ok(url)
    } else {
        Err("must be https://host or https://host:port".into())
    }
}

/// Accepts an address that a browser opens.
pub(super) fn web_url(text: &str) -> Result<reqwest::Url, String> {
    let url = reqwest::Url::parse(text).map_err(|error| error.to_string())?;
    if ["http", "https"].contains(&url.scheme()) && url.host_str().is_some() {
        Ok(url)
    } else {
        Err("must be an http or https URL".into())
    }
}

/// Parses a lease duration: whole seconds, the unit of a Lease; at least five, because a renewal
/// must be answered within a third of it.
pub(super) fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration < Duration::from_secs(5) || duration.subsec_nanos() != 0 {
        return Err("must be at least 5s, in whole seconds".into());
    }
    Ok(duration)
}

/// Accepts a valid label name, because it becomes part of the text of a query.
fn label_name(text: &str) -> Result<String, String> {
    let ok = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if ok { Ok(text.to_owned()) } else { Err("must match [a-zA-Z_][a-zA-Z0-9_]*".into()) }
}

/// A point in time as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A time before now; zero is now.
    Before(Duration),
    /// A time in milliseconds since the Unix epoch.
    At(i64),
}

impl Moment {
    /// Milliseconds since the Unix epoch.
    pub(super) fn at(self, now: i64) -> i64 {
        match self {
            Self::Before(ago) => {
                now.saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX))
            }
            Self::At(at) => at,
        }
    }
}

/// Parses `now`, `-24h`, a date with a time, or Unix seconds.
pub(super) fn moment(text: &str) -> Result<Moment, String> {
    if text == "now" {
        return Ok(Moment::Before(Duration::ZERO));
    }
    if let Some(ago) = text.strip_prefix('-') {
        return duration(ago).map(Moment::Before);
    }
    if let Ok(seconds) = text.parse::<i64>() {
        return seconds.checked_mul(1000).map(Moment::At).ok_or_else(|| "is too late".into());
    }
    text.parse::<Timestamp>().map(|at| Moment::At(at.as_millisecond())).map_err(|_| {
        "must be `now`, a time before now (-24h), a moment (2026-01-31T12:00:00Z) or Unix seconds"
            .into()
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::prometheus::{DEFAULT_URL, EndpointConfig};

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        prometheus: PrometheusArgs,
    }

    #[test]
    fn the_help_names_the_default() {
        let help = Command::command().term_width(1000).render_help().to_string();
        assert!(help.contains(&format!("[default: {DEFAULT_URL}]")), "{help}");
    }

    #[test]
    fn a_password_in_the_url_is_not_shown() {
        let flags = ["x", "--prometheus-url", "http://u:hunter2@a", "--prometheus-timeout", "3s"];
        let command = Command::parse_from(flags);
        assert!(!format!("{command:?}").contains("hunter2"));
        let endpoints = command.prometheus.endpoints().unwrap();
        assert_eq!(endpoints.iter().map(EndpointConfig::name).collect::<Vec<_>>(), ["default"]);
    }

    #[test]
    fn moments_are_relative_or_absolute() {
        let at = |text: &str| moment(text).map(|moment| moment.at(1_000_000));
        assert_eq!(at("now"), Ok(1_000_000));
        assert_eq!(at("-10s"), Ok(990_000));
        assert_eq!(at("1790000000"), Ok(1_790_000_000_000));
        assert_eq!(at("2026-09-21T14:13:20Z"), Ok(1_790_000_000_000));
        assert_eq!(at("2026-09-21T16:13:20+02:00"), Ok(1_790_000_000_000));
        for wrong in ["yesterday", "24h", "-", "-0s", "2026-09-21"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }
}
