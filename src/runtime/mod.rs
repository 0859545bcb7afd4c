//! One process: client, lease, controllers, servers, and how they end together.
use std::{sync::Arc, time::Duration};

use anyhow::Context;
use axum::Router;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

use crate::{
    metrics::Metrics,
    network_prober::live::LiveProbers,
    nodes::NodeStore,
    prometheus::{self, Endpoints, EndpointsConfig},
    swarm::{self, acknowledge::Asker, memory::Memories},
    traffic_watch::{Decisions, limits::Share},
    webhook::certificates::Certificates,
};

pub mod admin;
pub mod client;
pub mod kinds;
mod leader;
pub mod lease;
pub mod log;
pub mod shutdown;
pub mod status_page;
pub mod watch;
pub mod webhook;

use admin::{AdminConfig, Readiness};
use kinds::{Definitions, Kinds};
use leader::Leader;
use lease::{Candidate, Fence, LeaseConfig};
use shutdown::Shutdown;
use status_page::Live;
use webhook::{Prober, Serving, WebhookConfig};

/// How long passes under way may take to end: half of the pod's grace period, which also has to hold
/// the release of the lease.
const DRAIN: Duration = Duration::from_secs(5);

/// For how long the webhook and the pinglists are served after SIGTERM: the time that a Service's
/// endpoints take to reach the API server and the nodes. A new process holds the lease meanwhile.
const LAME_DUCK: Duration = Duration::from_secs(3);

/// For how long answers under way may leave after that.
const FAREWELL: Duration = Duration::from_millis(200);

/// What `run` needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The kinds that run.
    pub kinds: Kinds,
    /// The endpoints of Prometheus.
    pub endpoints: EndpointsConfig,
    /// Labels that may name a node, beside `instance`.
    pub node_labels: Vec<String>,
    /// Whether the PromQL of custom resources is asked.
    pub own_queries: bool,
    /// How many nodes all `TrafficWatch`es together may mark.
    pub max_unfit: Share,
    /// Where probes, metrics and the status page are served.
    pub admin: AdminConfig,
    /// The lease; its namespace is the operator's own.
    pub lease: LeaseConfig,
    /// The webhook.
    pub webhook: WebhookConfig,
}

/// An identity for processes that are told none.
#[must_use]
pub fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", host.trim(), std::process::id())
}

/// Runs until SIGTERM or SIGINT, or until something ends that must not.
///
/// # Errors
/// Why it ended, if nobody asked for it: the process is to be restarted.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let metrics = Metrics::new();
    let fence = Fence::default();
    let endpoints = Endpoints::new(&config.endpoints, metrics.clone())?;
    let client = client::connect(fence.clone(), metrics.clone()).await?;
    let readiness = Readiness::default();
    readiness.expect("lease");
    let shutdown = Shutdown::default();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = config.lease.identity,
        prometheus = endpoints.get(prometheus::DEFAULT).map(prometheus::Client::url),
        endpoints = endpoints.names().collect::<Vec<_>>().join(","),
        kinds = %config.kinds,
        "starting"
    );

    let mut tasks = JoinSet::new();
    let decisions = Decisions::default();
    let (identity, labels) = (config.lease.identity.clone(), config.node_labels.clone());
    let live = Arc::new(Live::new(identity, labels, decisions.clone()));
    let memories = Memories::default();
    let probers = Arc::new(LiveProbers::new(&config.lease.identity, &endpoints));
    let certificates = Certificates::default();
    let sources = admin::Sources {
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        page: page(&live, &memories, &probers),
        client: client.clone(),
        certificates: certificates.clone(),
    };
    admin::start(&config.admin, sources, &shutdown, &mut tasks).await?;

    let closing = Shutdown::default();
    let nodes = follow_nodes(&client, &metrics, &mut tasks);
    let namespace = config.lease.namespace.clone();
    let serving = Serving {
        config: config.webhook.clone(),
        namespace: namespace.clone(),
        client: client.clone(),
        metrics: metrics.clone(),
        nodes: nodes.clone(),
        readiness: readiness.clone(),
        certificates: certificates.clone(),
        closing: closing.clone(),
    };
    let (definitions, prober) = tokio::select! {
        signal = terminated() => {
            tracing::info!(signal = signal?, "stopped before it began");
            return Ok(());
        }
        started = async {
            let definitions = Definitions::find(&client, &config.kinds).await;
            let prober = serving.begin(definitions.network_prober.clone(), &mut tasks).await?;
            anyhow::Ok((definitions, prober))
        } => started?,
    };

    let known = probers.follow(&prober);
    let mut candidate = Candidate::new(client.clone(), config.lease.clone(), fence.clone());
    let leader = Leader {
        client,
        fence,
        metrics,
        live,
        decisions,
        nodes,
        prober,
        definitions,
        memories,
        asker: Asker::new()?,
        certificates,
        webhook: config.webhook,
        namespace,
        endpoints,
        readiness: readiness.clone(),
        shutdown: shutdown.clone(),
        node_labels: config.node_labels,
        own_queries: config.own_queries,
        max_unfit: config.max_unfit,
    };
    let result = {
        let mut leading = std::pin::pin!(leader.run(&mut candidate, readiness));
        tokio::select! {
            signal = terminated() => {
                tracing::info!(signal = signal?, "stopping");
                shutdown.begin();
                // Passes under way end while the lease still is ours; then it is given back.
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
    if result.is_ok() {
        farewell(&known, &closing).await;
    }
    result
}

/// The nodes, which every kind looks at.
fn follow_nodes(client: &kube::Client, metrics: &Metrics, tasks: &mut Tasks) -> NodeStore {
    let nodes = NodeStore::default();
    let follow = nodes.clone().follow(client.clone(), metrics.clone());
    tasks.spawn(async move {
        follow.await;
        Ok("watch of nodes")
    });
    nodes
}

/// Others take some time to learn that a replica that serves `NetworkProber`s goes: until then they are
/// answered.
async fn farewell(prober: &Prober, closing: &Shutdown) {
    let serves = prober.borrow().as_ref().is_some_and(|world| !world.snapshot().views.is_empty());
    if serves {
        tokio::time::sleep(LAME_DUCK).await;
        closing.begin();
        tokio::time::sleep(FAREWELL).await;
    }
}

/// What this replica decides, for people.
fn page(live: &Arc<Live>, memories: &Memories, probers: &Arc<LiveProbers>) -> Router {
    let leading = Arc::clone(live);
    let swarms = swarm::router(memories.clone(), move || leading.leads());
    let probers = status_page::probers_router(Arc::<LiveProbers>::clone(probers));
    status_page::router(Arc::<Live>::clone(live)).merge(swarms).merge(probers)
}

/// The tasks of a process: any that ends is one too many.
pub(crate) type Tasks = JoinSet<anyhow::Result<&'static str>>;

/// Any task that ends is one too many: the process ends with it, and is started again.
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
