//! The part that only the leader runs: the stores and controllers of the configured kinds.
use std::sync::Arc;

use tokio::task::JoinSet;

use super::{
    Tasks,
    admin::Readiness,
    first_ended,
    kinds::Definitions,
    lease::{Candidate, Fence},
    shutdown::Shutdown,
    start::{Controller, Needs, Start},
    status_page::Live,
    webhook::{Prober, WebhookConfig},
};
use crate::{
    controller::{self, disruptions::Disruptions},
    metrics::Metrics,
    network_prober::NetworkProberReconciler,
    nodes::NodeStore,
    prometheus::{Endpoints, Exporters},
    route_reflector::RouteReflectorReconciler,
    swarm::{self, SwarmReconciler, acknowledge::WorkerClient},
    traffic_watch::{self, TrafficWatchReconciler, limits::Share},
    webhook::certificates::Certificates,
};

/// The part that only the leader runs.
pub(super) struct Leader {
    pub(super) client: kube::Client,
    pub(super) fence: Fence,
    pub(super) metrics: Metrics,
    pub(super) live: Arc<Live>,
    pub(super) watches: traffic_watch::Memories,
    pub(super) nodes: NodeStore,
    pub(super) prober: Prober,
    pub(super) definitions: Definitions,
    pub(super) swarms: swarm::memory::Memories,
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
    pub(super) disruptions: Disruptions,
}

impl Leader {
    /// Waits for the lease, and runs the controllers while it is held; returns the reason for its
    /// end.
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

    /// Starts the configured kinds; a kind is one more line here.
    fn start(self, tasks: &mut Tasks) {
        self.metrics.register(self.disruptions.gauges());
        let leader = Arc::new(self);
        leader.spawn::<NetworkProberReconciler>(tasks);
        leader.spawn::<SwarmReconciler>(tasks);
        leader.spawn::<RouteReflectorReconciler>(tasks);
        leader.spawn::<TrafficWatchReconciler>(tasks);
    }

    /// Starts a configured kind: now, or as soon as its dependencies exist.
    fn spawn<R: Start>(self: &Arc<Self>, tasks: &mut Tasks) {
        let Some(definition) = self.definitions.of::<R::Kind>() else { return };
        if let Some(needs) = R::Needs::now(self, &definition) {
            R::expect(&self.readiness);
            return self.control(R::build(self, needs, tasks), tasks);
        }
        let leader = Arc::clone(self);
        tasks.spawn(async move {
            let needs = R::Needs::later(&leader, &definition).await?;
            let mut tasks = Tasks::new();
            let controller = R::build(&leader, needs, &mut tasks);
            leader.control(controller, &mut tasks);
            Err(first_ended(&mut tasks).await)
        });
    }

    /// Runs the controller of one kind, once the objects that it follows have been listed.
    fn control<R: Start>(&self, controller: Controller<R>, tasks: &mut Tasks) {
        let Controller { reconciler, schedule, listed, synced } = controller;
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        let stop = self.shutdown.begun();
        tasks.spawn(async move {
            listed.await;
            let triggers = reconciler.changes();
            controller::run(client, reconciler, schedule, metrics, triggers, synced, stop).await;
            Ok(R::TASK)
        });
    }
}
