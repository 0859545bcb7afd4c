//! `run`: the operator itself.
use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use clap::Args;
use reqwest::Url;
use traffic_operator_agent::log::LogArgs;

use super::flags::{
    KindsArgs, PrometheusArgs, SeriesArgs, https_url, lease_duration, lifetime, web_url,
};
use crate::{
    infra::{lease::LeaseConfig, log},
    manifests,
    prometheus::{Exporters, exporters::BIRD_EXPORTER, promql::Matchers},
    runtime::{self, component::Component},
    traffic_watch::{Quota, ceiling, limits::Share},
    webhook::certificates::Lifetimes,
};

/// Flags of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Part of the operator that this process runs: controller is the part that writes and elects a
    /// leader, webhook answers the API server and the agents and writes nothing, all is both.
    #[arg(long, env = "TRAFFIC_OPERATOR_COMPONENT", value_name = "COMPONENT")]
    #[arg(value_enum, default_value_t)]
    pub component: Component,

    /// The kinds to run.
    #[command(flatten)]
    pub kinds: KindsArgs,

    /// The Prometheus endpoints.
    #[command(flatten)]
    pub prometheus: PrometheusArgs,

    /// The series that are accepted, and how they name nodes.
    #[command(flatten)]
    pub series: SeriesArgs,

    /// Label matchers of the bird_exporter series that the gate of a RouteReflectorSet accepts;
    /// empty accepts those of every job.
    #[arg(long, env = "TRAFFIC_OPERATOR_BIRD_EXPORTER_SELECTOR", value_name = "MATCHERS")]
    #[arg(default_value = BIRD_EXPORTER)]
    pub bird_exporter_selector: Matchers,

    /// Allow custom resources to contain PromQL queries (spec.query, spec.criteria). Everyone who
    /// may create such an object can then read all data that the endpoint's credentials can read.
    #[arg(long, env = "TRAFFIC_OPERATOR_OWN_QUERIES", value_name = "BOOL")]
    #[arg(default_value_t = true, action = clap::ArgAction::Set)]
    pub own_queries: bool,

    /// Maximum number of nodes that all TrafficWatches together may mark as unfit: a number, or a
    /// percentage of the nodes that can take ordinary pods. Existing marks stay, unless it is 0.
    #[arg(long, env = "TRAFFIC_OPERATOR_MAX_UNFIT", value_name = "NUMBER|PERCENT")]
    #[arg(default_value_t = ceiling::DEFAULT)]
    pub max_unfit: Share,

    /// Maximum number of TrafficWatches of one namespace that write labels to nodes: each writes one
    /// to every node. The oldest ones do; 0 is no limit. Those of the operator's own namespace do not
    /// count.
    #[arg(long, env = "TRAFFIC_OPERATOR_TRAFFICWATCHES_PER_NAMESPACE", value_name = "NUMBER")]
    #[arg(default_value_t = Quota::PER_NAMESPACE)]
    pub trafficwatches_per_namespace: usize,

    /// The same of all namespaces together.
    #[arg(long, env = "TRAFFIC_OPERATOR_TRAFFICWATCHES", value_name = "NUMBER")]
    #[arg(default_value_t = Quota::IN_ALL)]
    pub trafficwatches: usize,

    /// Address of /metrics.
    #[arg(long, env = "TRAFFIC_OPERATOR_ADMIN_ADDRESS", value_name = "ADDRESS:PORT")]
    #[arg(default_value = "0.0.0.0:8080")]
    pub admin_address: SocketAddr,

    /// Serve /metrics over TLS, and only to clients that may get the nonResourceURL /metrics. If
    /// false, --admin-address serves metrics, probes and the status page to everyone in plain HTTP.
    #[arg(long, env = "TRAFFIC_OPERATOR_METRICS_AUTH", value_name = "BOOL")]
    #[arg(default_value_t = true, action = clap::ArgAction::Set)]
    pub metrics_auth: bool,

    /// Address of /livez and /readyz.
    #[arg(long, env = "TRAFFIC_OPERATOR_PROBE_ADDRESS", value_name = "ADDRESS:PORT")]
    #[arg(default_value = "0.0.0.0:8081")]
    pub probe_address: SocketAddr,

    /// Address of the status page, served in plain HTTP to everyone who can reach it. On loopback,
    /// these are the users who may port-forward to the pod.
    #[arg(long, env = "TRAFFIC_OPERATOR_PAGE_ADDRESS", value_name = "ADDRESS:PORT")]
    #[arg(default_value = "127.0.0.1:8082")]
    pub page_address: SocketAddr,

    /// Namespace of the Lease that elects the leader.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    #[arg(default_value = manifests::NAMESPACE)]
    pub lease_namespace: String,

    /// Name of the Lease.
    #[arg(long, env = "TRAFFIC_OPERATOR_LEASE_NAME", value_name = "NAME")]
    #[arg(default_value = manifests::NAME)]
    pub lease_name: String,

    /// Time for which the Lease is valid without renewal, which is the longest time without a
    /// leader after one was killed. At least 5s.
    #[arg(long, env = "TRAFFIC_OPERATOR_LEASE_DURATION", value_name = "DURATION")]
    #[arg(default_value = "15s", value_parser = lease_duration)]
    pub lease_duration: Duration,

    /// Identity of this replica in the Lease; must differ between replicas [default: host name and
    /// process ID].
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,

    /// Address of the webhook, over TLS.
    #[arg(long, env = "TRAFFIC_OPERATOR_WEBHOOK_ADDRESS", value_name = "ADDRESS:PORT")]
    #[arg(default_value = "0.0.0.0:9443")]
    pub webhook_address: SocketAddr,

    /// URL at which the API server reaches the webhook, for an operator outside the cluster
    /// [default: the Service traffic-operator-webhook].
    #[arg(long, env = "TRAFFIC_OPERATOR_WEBHOOK_URL", value_name = "URL", value_parser = https_url)]
    pub webhook_url: Option<Url>,

    /// Address at which agents get their lists of peers, over TLS.
    #[arg(long, env = "TRAFFIC_OPERATOR_PINGLIST_ADDRESS", value_name = "ADDRESS:PORT")]
    #[arg(default_value = "0.0.0.0:9444")]
    pub pinglist_address: SocketAddr,

    /// URL at which agents get their lists, for an operator outside the cluster [default: with
    /// --webhook-url its host and the port of --pinglist-address, else the Service
    /// traffic-operator-pinglists].
    #[arg(long, env = "TRAFFIC_OPERATOR_PINGLIST_URL", value_name = "URL", value_parser = https_url)]
    pub pinglist_url: Option<Url>,

    /// Image of agents if the NetworkProber sets none [default: the image of this operator's pod].
    #[arg(long, env = "TRAFFIC_OPERATOR_AGENT_IMAGE", value_name = "IMAGE")]
    pub agent_image: Option<String>,

    /// URL where you serve the runbooks (docs/runbooks), for the annotation `runbook_url` of the
    /// alerts of each NetworkProber [default: no such annotation].
    #[arg(long, env = "TRAFFIC_OPERATOR_RUNBOOK_URL", value_name = "URL", value_parser = web_url)]
    pub runbook_url: Option<Url>,

    /// Lifetime of the webhook's CA certificate, which is replaced after two thirds of it. At least
    /// 1m, and at least one and a half times the lifetime of the webhook's certificate.
    #[arg(long, env = "TRAFFIC_OPERATOR_AUTHORITY_LIFETIME", value_name = "DURATION")]
    #[arg(default_value = "365d", value_parser = lifetime)]
    pub authority_lifetime: Duration,

    /// Lifetime of the webhook's certificate, which is replaced after two thirds of it. At least
    /// 1m.
    #[arg(long, env = "TRAFFIC_OPERATOR_CERTIFICATE_LIFETIME", value_name = "DURATION")]
    #[arg(default_value = "90d", value_parser = lifetime)]
    pub certificate_lifetime: Duration,

    /// The log lines.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Runs the operator until it receives a signal to stop.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<()> {
    log::init(&args.log)?;
    // Passes wait for the network; two threads serve 5,000 nodes with room to spare, and each
    // further one costs memory.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("async runtime")?;
    // The webhook has no file of credentials, and needs none.
    let controls = args.component.controls();
    let endpoints = controls.then(|| args.prometheus.endpoints()).transpose()?;
    let exporters = args.series.exporters(endpoints.as_ref());
    let config = runtime::Config {
        component: args.component,
        kinds: args.kinds.kinds()?,
        endpoints,
        exporters: Exporters { bird_exporter: args.bird_exporter_selector.clone(), ..exporters },
        own_queries: args.own_queries,
        admin: runtime::admin::AdminConfig {
            address: args.admin_address,
            metrics_auth: args.metrics_auth,
            probe_address: args.probe_address,
            page_address: args.page_address,
        },
        max_unfit: args.max_unfit,
        quota: Quota {
            per_namespace: args.trafficwatches_per_namespace,
            in_all: args.trafficwatches,
            own: args.lease_namespace.clone(),
        },
        lease: LeaseConfig {
            namespace: args.lease_namespace.clone(),
            name: args.lease_name.clone(),
            identity: args.identity.clone().unwrap_or_else(runtime::identity),
            duration: args.lease_duration,
        },
        webhook: runtime::webhook::WebhookConfig {
            address: args.webhook_address,
            url: args.webhook_url.clone(),
            pinglist_address: args.pinglist_address,
            pinglist_url: args.pinglist_url.clone(),
            agent_image: args.agent_image.clone(),
            pod: args.identity.clone(),
            lifetimes: Lifetimes {
                authority: args.authority_lifetime,
                leaf: args.certificate_lifetime,
            },
            runbooks: args.runbook_url.clone(),
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
        let labels = ["node", "nodename", "kubernetes_node", "k8s_node_name", "host_name"];
        assert_eq!(parse(&[]).unwrap().series.node_labels, labels);
        let args = parse(&[]).unwrap();
        assert_eq!(args.series.node_exporter_selector.to_string(), r#"job="node-exporter""#);
        assert_eq!(args.bird_exporter_selector.to_string(), r#"job="bird-exporter""#);
        let every = parse(&["--node-exporter-selector=", "--bird-exporter-selector={}"]).unwrap();
        assert!(every.series.node_exporter_selector.is_empty());
        assert!(every.bird_exporter_selector.is_empty());
        let error = parse(&["--node-exporter-selector", "job=node-exporter"]).unwrap_err();
        assert!(error.to_string().contains("job=\"node-exporter\""), "{error}");
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
            ("--metrics-auth", "perhaps"),
            ("--probe-address", "8081"),
            ("--page-address", "localhost"),
            ("--webhook-url", "http://operator:9443"),
            ("--runbook-url", "docs/runbooks"),
            ("--pinglist-address", "9444"),
            ("--pinglist-url", "http://operator:9444"),
            ("--certificate-lifetime", "30s"),
            ("--log-format", "xml"),
            ("--kinds", "TrafficWatches"),
            ("--component", "server"),
        ] {
            let error = parse(&[flag, value]).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
    }
}
