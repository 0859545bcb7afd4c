//! The flags that locate Prometheus, shared by every command that queries it.
use std::{fmt, path::PathBuf, time::Duration};

use clap::Args;

use super::values::duration;
use crate::prometheus::EndpointsConfig;

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
}
