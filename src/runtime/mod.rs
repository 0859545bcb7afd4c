//! One process: client, lease, controllers and servers, and their common shutdown.
use std::{sync::Arc, time::Duration};

use anyhow::Context;
use axum::Router;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

use crate::{
    api::NetworkProber,
    controller::disruptions::Disruptions,
    infra::{
        client,
        lease::{Candidate, Fence, LeaseConfig},
        shutdown::Shutdown,
    },
    metrics::Metrics,
    network_prober::overview::LiveProbers,
    nodes::NodeStore,
    prometheus::{self, Endpoints, EndpointsConfig, Exporters},
    swarm::{self, acknowledge::WorkerClient},
    traffic_watch::{self, Quota, limits::Share},
    webhook::certificates::Certificates,
};

pub(crate) mod admin;
pub(crate) mod component;
pub(crate) mod kinds;
mod start;
pub mod status_page;
pub(crate) mod webhook;

use admin::{AdminConfig, Readiness};
use component::Component;
use kinds::{Definition, Definitions, Kinds};
use start::{Leader, Views};
use status_page::Live;
use webhook::{Prober, Serving, WebhookConfig};

/// The lease durations for which a leader may see nothing: five minutes by default.
const VIEW: u32 = 20;

/// The time that running passes may take to end: half of the pod's grace period, which must also
/// include the release of the lease.
const DRAIN: Duration = Duration::from_secs(5);

/// The time for which the webhook and the pinglists are served after SIGTERM: until the changed
/// endpoints of a Service have reached the API server and the nodes. Meanwhile, a new process holds
/// the lease.
const LAME_DUCK: Duration = Duration::from_secs(3);

/// The time after that for which pending answers may be sent.
const FAREWELL: Duration = Duration::from_millis(200);

/// The settings of `run`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The part of the operator that this process runs.
    pub component: Component,
    /// The kinds that run.
    pub kinds: Kinds,
    /// The endpoints of Prometheus; the webhook has none.
    pub endpoints: Option<EndpointsConfig>,
    /// The accepted series of the built-in queries, and their labels for nodes.
    pub exporters: Exporters,
    /// True if the PromQL of custom resources is allowed.
    pub own_queries: bool,
    /// Maximum number of nodes that all `TrafficWatch`es together may mark.
    pub max_unfit: Share,
    /// How many `TrafficWatch`es may write labels.
    pub quota: Quota,
    /// The addresses of probes, metrics and the status page.
    pub admin: AdminConfig,
    /// The lease; its namespace is the operator's own.
    pub lease: LeaseConfig,
    /// Settings of the webhook.
    pub webhook: WebhookConfig,
}

/// Returns an identity for processes without a configured one.
#[must_use]
pub fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", host.trim(), std::process::id())
}

/// The common parts of every process, regardless of the part of the operator that it runs.
struct Base {
    client: kube::Client,
    fence: Fence,
    metrics: Metrics,
    nodes: NodeStore,
    readiness: Readiness,
    certificates: Certificates,
    /// Ends the running passes.
    shutdown: Shutdown,
    /// Ends the servers, shortly after the decisions.
    closing: Shutdown,
}

impl Base {
    async fn new() -> anyhow::Result<Self> {
        let (metrics, fence) = (Metrics::new(), Fence::default());
        Ok(Self {
            client: client::connect(fence.clone(), metrics.clone()).await?,
            fence,
            metrics,
            nodes: NodeStore::default(),
            readiness: Readiness::default(),
            certificates: Certificates::default(),
            shutdown: Shutdown::default(),
            closing: Shutdown::default(),
        })
    }

    /// Starts the servers for the kubelet, for Prometheus and for people, and the watch of nodes.
    async fn start(&self, config: &Config, page: Router, tasks: &mut Tasks) -> anyhow::Result<()> {
        let sources = admin::Sources {
            metrics: self.metrics.clone(),
            readiness: self.readiness.clone(),
            page,
            client: self.client.clone(),
            certificates: self.certificates.clone(),
        };
        admin::start(&config.admin, sources, &self.shutdown, tasks).await?;
        let follow = self.nodes.clone().follow(self.client.clone(), self.metrics.clone());
        tasks.spawn(async move {
            follow.await;
            Ok("watch of nodes")
        });
        Ok(())
    }

    fn serving(&self, config: &Config) -> Serving {
        Serving {
            component: config.component,
            config: config.webhook.clone(),
            namespace: config.lease.namespace.clone(),
            client: self.client.clone(),
            metrics: self.metrics.clone(),
            nodes: self.nodes.clone(),
            readiness: self.readiness.clone(),
            certificates: self.certificates.clone(),
            closing: self.closing.clone(),
        }
    }
}

/// Runs until SIGTERM or SIGINT, or until a task ends that must not.
///
/// # Errors
/// The reason for an unrequested end: the process must be restarted.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let base = Base::new().await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = config.lease.identity,
        component = ?config.component,
        kinds = %config.kinds,
        "starting"
    );
    if config.component.controls() {
        Box::pin(control(config, base)).await
    } else {
        answer(config, base).await
    }
}

/// Runs only the webhook. It never requests the Lease, so the fence stays closed, and its client
/// can send no write.
async fn answer(config: Config, base: Base) -> anyhow::Result<()> {
    anyhow::ensure!(
        config.kinds.has("NetworkProber"),
        "--component=webhook serves NetworkProbers, which --kinds leaves out"
    );
    let mut tasks = JoinSet::new();
    // No request arrives before it answers, even if the definition is not installed yet.
    Serving::expect(config.component, &base.readiness);
    base.start(&config, Router::new(), &mut tasks).await?;
    let serving = base.serving(&config);
    let prober = tokio::select! {
        signal = terminated() => {
            tracing::info!(signal = signal?, "stopped before it began");
            return Ok(());
        }
        started = async {
            let definition = Definition::find::<NetworkProber>(&base.client, &config.kinds).await;
            serving.begin(definition, &mut tasks).await
        } => started?,
    };
    tokio::select! {
        signal = terminated() => tracing::info!(signal = signal?, "stopping"),
        ended = first_ended(&mut tasks) => return Err(ended),
    }
    base.shutdown.begin();
    farewell(&prober, &base.closing).await;
    Ok(())
}

/// Runs the controllers, and the webhook unless it is a separate process.
async fn control(config: Config, base: Base) -> anyhow::Result<()> {
    let endpoints = config.endpoints.as_ref().context("no endpoint of Prometheus")?;
    let endpoints = Endpoints::new(endpoints, base.metrics.clone())?;
    tracing::info!(
        prometheus = endpoints.get(prometheus::DEFAULT).map(prometheus::Client::url),
        endpoints = endpoints.names().collect::<Vec<_>>().join(","),
        "asking"
    );
    base.readiness.expect("lease");
    base.metrics.set_leader(false);
    let mut tasks = JoinSet::new();
    let watches = traffic_watch::Memories::default();
    let swarms = swarm::memory::Memories::default();
    let (identity, exporters) = (config.lease.identity.clone(), config.exporters.clone());
    let live = Arc::new(Live::new(identity, exporters, watches.clone()));
    let probers = Arc::new(LiveProbers::new(&config.lease.identity, &endpoints));
    base.start(&config, page(&live, &swarms, &probers), &mut tasks).await?;

    let serving = base.serving(&config);
    let (definitions, prober) = tokio::select! {
        signal = terminated() => {
            tracing::info!(signal = signal?, "stopped before it began");
            return Ok(());
        }
        started = async {
            let definitions = Definitions::find(&base.client, &config.kinds).await;
            let prober = serving.begin(definitions.of::<NetworkProber>(), &mut tasks).await?;
            anyhow::Ok((definitions, prober))
        } => started?,
    };

    let known = probers.follow(&prober);
    let Base { client, fence, metrics, nodes, readiness, certificates, shutdown, closing } = base;
    let mut candidate = Candidate::new(client.clone(), config.lease.clone(), fence.clone());
    let disruptions = Disruptions::new(nodes.clone());
    let leader = Leader {
        client,
        fence,
        metrics,
        live,
        watches,
        nodes,
        prober,
        definitions,
        swarms,
        workers: WorkerClient::new()?,
        certificates,
        webhook: config.webhook,
        namespace: config.lease.namespace,
        endpoints,
        readiness: readiness.clone(),
        shutdown: shutdown.clone(),
        exporters: config.exporters,
        own_queries: config.own_queries,
        max_unfit: config.max_unfit,
        quota: config.quota,
        disruptions,
        views: Views::default(),
        patience: VIEW * config.lease.duration,
    };
    let result = {
        let mut leading = std::pin::pin!(leader.run(&mut candidate, readiness));
        tokio::select! {
            signal = terminated() => {
                tracing::info!(signal = signal?, "stopping");
                shutdown.begin();
                // Running passes end while we still hold the lease; then it is released.
                if tokio::time::timeout(DRAIN, &mut leading).await.is_err() {
                    tracing::warn!("passes did not end in time");
                }
                Ok(())
            }
            ended = first_ended(&mut tasks) => Err(ended),
            lost = &mut leading => Err(lost),
        }
    };
    shutdown.begin();
    candidate.release().await;
    if result.is_ok() && config.component.answers() {
        farewell(&known, &closing).await;
    }
    result
}

/// Keeps serving `NetworkProber`s for a while: clients take some time to notice that this replica
/// is going away.
async fn farewell(prober: &Prober, closing: &Shutdown) {
    let serves =
        prober.borrow().as_ref().is_some_and(|cluster| !cluster.snapshot().views.is_empty());
    if serves {
        tokio::time::sleep(LAME_DUCK).await;
        closing.begin();
        tokio::time::sleep(FAREWELL).await;
    }
}

/// Builds the pages with this replica's decisions, for people.
fn page(live: &Arc<Live>, swarms: &swarm::memory::Memories, probers: &Arc<LiveProbers>) -> Router {
    let leading = Arc::clone(live);
    let swarms = swarm::router(swarms.clone(), move || leading.leads());
    let probers = status_page::probers_router(Arc::<LiveProbers>::clone(probers));
    status_page::router(Arc::<Live>::clone(live)).merge(swarms).merge(probers)
}

/// The tasks of a process, none of which may end.
pub(crate) type Tasks = JoinSet<anyhow::Result<&'static str>>;

/// Waits for the first task that ends, which none may: the process ends with it, and is restarted.
async fn first_ended(tasks: &mut JoinSet<anyhow::Result<&'static str>>) -> anyhow::Error {
    match tasks.join_next().await {
        Some(Ok(Ok(name))) => anyhow::anyhow!("{name} ended"),
        Some(Ok(Err(error))) => error,
        Some(Err(error)) => anyhow::Error::new(error).context("a task ended"),
        None => anyhow::anyhow!("there are no tasks"),
    }
}

/// As process 1 of a container, a process without handlers ignores these signals.
async fn terminated() -> anyhow::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM handler")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT handler")?;
    tokio::select! {
        _ = terminate.recv() => Ok("SIGTERM"),
        _ = interrupt.recv() => Ok("SIGINT"),
    }
}
