//! One process: client, lease, controllers, servers, and how they end together.
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Context;
use axum::Router;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Semaphore,
    task::JoinSet,
};

use crate::{
    controller::{self, schedule::Schedule},
    metrics::Metrics,
    network_prober::{Gauges, NetworkProberReconciler, Owned, world::World},
    nodes::NodeStore,
    prometheus::{self, Endpoints, EndpointsConfig, Shared},
    route_reflector::{
        self, RouteReflectorReconciler,
        datastore::{Datastore, Kubernetes},
    },
    swarm::{self, SwarmReconciler, acknowledge::Asker, ground::Ground, memory::Memories},
    traffic_watch::{
        Ceiling, Decisions, DeploymentStore, LABEL_CONCURRENCY, TrafficWatchReconciler,
        limits::Share,
    },
    webhook::certificates::{CertificateKeeper, Certificates},
};

pub mod admin;
pub mod client;
pub mod kinds;
pub mod lease;
pub mod log;
pub mod shutdown;
pub mod status_page;
pub mod watch;
pub mod webhook;

use admin::{AdminConfig, Readiness};
use kinds::{Definition, Definitions, Kinds};
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

/// How long the controller of `NetworkProber`s waits for the webhook's certificate: a deadline of the API
/// server's calls.
const CERTIFICATE: Duration = Duration::from_secs(10);

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
    let certificates = Certificates::default();
    let sources = admin::Sources {
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        page: page(&live, &memories),
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

    let known = prober.clone();
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
fn page(live: &Arc<Live>, memories: &Memories) -> Router {
    let leading = Arc::clone(live);
    let swarms = swarm::router(memories.clone(), move || leading.leads());
    status_page::router(Arc::<Live>::clone(live)).merge(swarms)
}

/// The tasks of a process: any that ends is one too many.
pub(crate) type Tasks = JoinSet<anyhow::Result<&'static str>>;

/// What only the leader runs.
struct Leader {
    client: kube::Client,
    fence: Fence,
    metrics: Metrics,
    live: Arc<Live>,
    decisions: Decisions,
    nodes: NodeStore,
    prober: Prober,
    definitions: Definitions,
    memories: Memories,
    asker: Asker,
    certificates: Certificates,
    webhook: WebhookConfig,
    namespace: String,
    endpoints: Endpoints,
    readiness: Readiness,
    shutdown: Shutdown,
    node_labels: Vec<String>,
    own_queries: bool,
    max_unfit: Share,
}

impl Leader {
    /// Waits for the lease, runs the controllers while it is held; returns only why it ended.
    async fn run(self, candidate: &mut Candidate, readiness: Readiness) -> anyhow::Error {
        tokio::select! {
            () = candidate.acquire(|| readiness.reached("lease")) => {}
            () = self.shutdown.begun() => return anyhow::anyhow!("stopped while following"),
        }
        tracing::info!("leading");
        self.metrics.set_leader(true);
        self.live.lead();
        let metrics = self.metrics.clone();
        let mut tasks = JoinSet::new();
        self.start(&mut tasks);
        readiness.reached("lease");
        let why = tokio::select! {
            lost = candidate.renew() => anyhow::Error::new(lost),
            ended = first_ended(&mut tasks) => ended,
        };
        metrics.set_leader(false);
        why
    }

    /// Starts stores and controllers of the kinds that are asked for; a kind is one more line here.
    fn start(self, tasks: &mut Tasks) {
        let leader = Arc::new(self);
        let definitions = leader.definitions.clone();
        if definitions.network_prober.is_some() {
            leader.probe_networks_once_served(tasks);
        }
        leader.when_served(definitions.swarm, Self::share_streams, tasks);
        leader.when_served(definitions.route_reflector_set, Self::reflect_routes, tasks);
        if definitions.traffic_watch.as_ref().is_some_and(Definition::is_served) {
            for what in ["nodes", "deployments", "trafficwatches"] {
                leader.readiness.expect(what);
            }
        }
        leader.when_served(definitions.traffic_watch, Self::watch_traffic, tasks);
    }

    /// Starts a kind that is asked for: now, or as soon as its definition is served.
    fn when_served(
        self: &Arc<Self>,
        definition: Option<Definition>,
        start: fn(&Self, &mut Tasks),
        tasks: &mut Tasks,
    ) {
        let Some(definition) = definition else { return };
        if definition.is_served() {
            return start(self, tasks);
        }
        let leader = Arc::clone(self);
        tasks.spawn(async move {
            definition.served().await;
            let mut tasks = Tasks::new();
            start(&leader, &mut tasks);
            Err(first_ended(&mut tasks).await)
        });
    }

    /// The same, as soon as this replica serves the webhook.
    fn probe_networks_once_served(self: &Arc<Self>, tasks: &mut Tasks) {
        let known = self.prober.borrow().clone();
        if let Some(known) = known {
            return self.probe_networks(known, tasks);
        }
        let leader = Arc::clone(self);
        let mut prober = self.prober.clone();
        tasks.spawn(async move {
            let known = prober.wait_for(Option::is_some).await.context("webhook")?.clone();
            let mut tasks = Tasks::new();
            if let Some(known) = known {
                leader.probe_networks(known, &mut tasks);
            }
            Err(first_ended(&mut tasks).await)
        });
    }

    fn probe_networks(&self, world: World, tasks: &mut Tasks) {
        let names = self.webhook.names(&self.namespace);
        let keeper = CertificateKeeper::new(
            self.client.clone(),
            &self.namespace,
            self.webhook.lifetimes,
            names,
            &self.certificates,
        );
        tasks.spawn(async move { match keeper.keep().await {} });
        self.metrics.register(Box::new(Gauges(world.clone())));
        let owned = Owned::default();
        let follow = owned.clone().follow(self.client.clone(), self.metrics.clone());
        tasks.spawn(async move {
            follow.await;
            Ok("watch of agents' objects")
        });
        let reconciler = NetworkProberReconciler::new(
            self.client.clone(),
            world.clone(),
            owned.clone(),
            self.certificates.bundle(),
            self.webhook.endpoint(),
        );
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        let stop = self.shutdown.begun();
        let mut bundle = self.certificates.bundle();
        tasks.spawn(async move {
            // Without them everything would look as if it had to be made, or was gone.
            world.synced().await;
            owned.synced().await;
            // An authority that cannot be had is told of each object; one that is about to come is not.
            let _ = tokio::time::timeout(CERTIFICATE, bundle.wait_for(Option::is_some)).await;
            let (triggers, schedule) = (reconciler.triggers(), Schedule::default());
            controller::run(client, reconciler, schedule, metrics, triggers, || (), stop).await;
            Ok("controller of networkprobers")
        });
    }

    fn share_streams(&self, tasks: &mut Tasks) {
        self.metrics.register(Box::new(swarm::Gauges(self.memories.clone())));
        let ground = Ground::default();
        let follow = ground.clone().follow(self.client.clone(), self.metrics.clone());
        tasks.spawn(async move {
            follow.await;
            Ok("watch of workers")
        });
        let schedule = Schedule::default();
        let reconciler = SwarmReconciler {
            client: self.client.clone(),
            ground,
            nodes: self.nodes.clone(),
            prometheus: self.endpoints.clone(),
            own_queries: self.own_queries,
            asker: self.asker.clone(),
            memories: self.memories.clone(),
            schedule,
            metrics: self.metrics.clone(),
            measurements: Shared::default(),
        };
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        let (nodes, stop) = (self.nodes.clone(), self.shutdown.begun());
        tasks.spawn(async move {
            // Without the nodes every node would look fit.
            nodes.synced().await;
            let triggers = reconciler.triggers();
            controller::run(client, reconciler, schedule, metrics, triggers, || (), stop).await;
            Ok("controller of swarms")
        });
    }

    fn reflect_routes(&self, tasks: &mut Tasks) {
        let memories = route_reflector::memory::Memories::default();
        self.metrics.register(Box::new(route_reflector::Gauges(memories.clone())));
        let schedule = Schedule::default();
        let reconciler = RouteReflectorReconciler {
            client: self.client.clone(),
            nodes: self.nodes.clone(),
            kubernetes: Datastore::Kubernetes(Arc::new(Kubernetes::new(self.client.clone()))),
            namespace: self.namespace.clone(),
            fence: self.fence.clone(),
            others: Mutex::default(),
            prometheus: self.endpoints.clone(),
            own_queries: self.own_queries,
            node_labels: self.node_labels.clone(),
            memories,
            schedule,
            metrics: self.metrics.clone(),
            measurements: Shared::default(),
        };
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        let (nodes, stop) = (self.nodes.clone(), self.shutdown.begun());
        tasks.spawn(async move {
            // Without the nodes every reflector would look gone.
            nodes.synced().await;
            let triggers = reconciler.triggers();
            controller::run(client, reconciler, schedule, metrics, triggers, || (), stop).await;
            Ok("controller of routereflectorsets")
        });
    }

    fn watch_traffic(&self, tasks: &mut Tasks) {
        let deployments = DeploymentStore::default();
        self.metrics.register_streaming(Box::new(self.decisions.clone()));
        let ceiling = Ceiling::new(self.nodes.clone(), self.max_unfit);
        self.metrics.register(ceiling.gauges(&self.decisions));
        let follow = deployments.clone().follow(self.client.clone(), self.metrics.clone());
        tasks.spawn(async move {
            follow.await;
            Ok("watch of deployments")
        });
        let schedule = Schedule::default();
        let reconciler = TrafficWatchReconciler {
            client: self.client.clone(),
            nodes: self.nodes.clone(),
            deployments: deployments.clone(),
            prometheus: self.endpoints.clone(),
            own_queries: self.own_queries,
            node_labels: self.node_labels.clone(),
            schedule,
            decisions: self.decisions.clone(),
            metrics: self.metrics.clone(),
            label_writes: Semaphore::new(LABEL_CONCURRENCY),
            ceiling,
            readings: Shared::default(),
        };
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        let (nodes, readiness) = (self.nodes.clone(), self.readiness.clone());
        let stop = self.shutdown.begun();
        tasks.spawn(async move {
            // Without the nodes every node would look deleted.
            nodes.synced().await;
            readiness.reached("nodes");
            deployments.synced().await;
            readiness.reached("deployments");
            let synced = move || readiness.reached("trafficwatches");
            // Everything it looks at comes with its own ticks.
            let none = futures::stream::pending();
            controller::run(client, reconciler, schedule, metrics, none, synced, stop).await;
            Ok("controller of trafficwatches")
        });
    }
}

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
