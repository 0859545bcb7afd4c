//! What only the leader runs: the stores and controllers of the kinds that are asked for.
use std::{sync::Arc, time::Duration};

use anyhow::Context;
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    controller::{self, schedule::Schedule},
    metrics::Metrics,
    network_prober::{Entries, Gauges, NetworkProberReconciler, Owned, state::ClusterState},
    nodes::NodeStore,
    prometheus::{Endpoints, Exporters, Shared},
    route_reflector::{
        self, RouteReflectorReconciler,
        datastore::{Datastore, Kubernetes},
    },
    swarm::{
        self, SwarmReconciler, acknowledge::WorkerClient, memory::Memories, watches::WorkloadCache,
    },
    traffic_watch::{
        Ceiling, Decisions, DeploymentStore, LABEL_CONCURRENCY, TrafficWatchReconciler,
        limits::Share,
    },
    webhook::certificates::{CertificateKeeper, Certificates},
};

use super::{
    Tasks,
    admin::Readiness,
    first_ended,
    kinds::{Definition, Definitions},
    lease::{Candidate, Fence},
    shutdown::Shutdown,
    status_page::Live,
    webhook::{Prober, WebhookConfig},
};

/// How long the controller of `NetworkProber`s waits for the webhook's certificate: a deadline of the API
/// server's calls.
const CERTIFICATE: Duration = Duration::from_secs(10);

/// What only the leader runs.
pub(super) struct Leader {
    pub(super) client: kube::Client,
    pub(super) fence: Fence,
    pub(super) metrics: Metrics,
    pub(super) live: Arc<Live>,
    pub(super) decisions: Decisions,
    pub(super) nodes: NodeStore,
    pub(super) prober: Prober,
    pub(super) definitions: Definitions,
    pub(super) memories: Memories,
    pub(super) workers: WorkerClient,
    pub(super) certificates: Certificates,
    pub(super) webhook: WebhookConfig,
    pub(super) namespace: String,
    pub(super) endpoints: Endpoints,
    pub(super) readiness: Readiness,
    pub(super) shutdown: Shutdown,
    pub(super) exporters: Exporters,
    pub(super) own_queries: bool,
    pub(super) max_unfit: Share,
}

impl Leader {
    /// Waits for the lease, runs the controllers while it is held; returns only why it ended.
    pub(super) async fn run(
        self,
        candidate: &mut Candidate,
        readiness: Readiness,
    ) -> anyhow::Error {
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

    fn probe_networks(&self, world: ClusterState, tasks: &mut Tasks) {
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
        let entries = Entries::default();
        let follow = entries.clone().follow(self.client.clone(), self.metrics.clone());
        tasks.spawn(async move {
            follow.await;
            Ok("watch of webhooks")
        });
        let (known, sweep) =
            (world.clone(), entries.clone().sweep(self.client.clone(), world.clone()));
        let listed = entries.clone();
        tasks.spawn(async move {
            // Without them every entry would look as if nobody had it.
            known.synced().await;
            listed.synced().await;
            sweep.await;
            Ok("sweep of webhooks")
        });
        let reconciler = NetworkProberReconciler::new(
            self.client.clone(),
            world.clone(),
            owned.clone(),
            entries.clone(),
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
            entries.synced().await;
            // Reports a missing CA on every object; a CA that is still being issued is not an error.
            let _ = tokio::time::timeout(CERTIFICATE, bundle.wait_for(Option::is_some)).await;
            let (triggers, schedule) = (reconciler.triggers(), Schedule::default());
            controller::run(client, reconciler, schedule, metrics, triggers, || (), stop).await;
            Ok("controller of networkprobers")
        });
    }

    fn share_streams(&self, tasks: &mut Tasks) {
        self.metrics.register(Box::new(swarm::Gauges(self.memories.clone())));
        let cache = WorkloadCache::default();
        let follow = cache.clone().follow(self.client.clone(), self.metrics.clone());
        tasks.spawn(async move {
            follow.await;
            Ok("watch of workers")
        });
        let schedule = Schedule::default();
        let reconciler = SwarmReconciler {
            client: self.client.clone(),
            cache,
            nodes: self.nodes.clone(),
            prometheus: self.endpoints.clone(),
            own_queries: self.own_queries,
            workers: self.workers.clone(),
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
            stores: route_reflector::stores::Stores::default(),
            prometheus: self.endpoints.clone(),
            own_queries: self.own_queries,
            exporters: self.exporters.clone(),
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
            exporters: self.exporters.clone(),
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
