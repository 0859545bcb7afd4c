//! The operator in the simulation: the driver, the reconciler of `TrafficWatch`es with its stores,
//! and the lease, as the process runs them.
use std::time::Duration;

use futures::stream;
use tokio::{
    sync::Semaphore,
    task::{AbortHandle, JoinSet},
};

use super::world::World;
use crate::{
    controller::{self, disruptions::Disruptions, schedule::Schedule},
    infra::{
        client,
        lease::{Candidate, Fence, LeaseConfig},
        shutdown::Shutdown,
    },
    metrics::Metrics,
    nodes::NodeStore,
    prometheus::{Endpoints, EndpointsConfig, Exporters, Shared},
    traffic_watch::{
        Ceiling, DeploymentStore, DeviceClasses, LABEL_CONCURRENCY, Memories, Pace, Quota,
        RequestStore, TrafficWatchReconciler, ceiling,
    },
};

/// The time after which a process that has ended is started again.
const RESTART: Duration = Duration::from_secs(3);

/// The address of Prometheus, to which nothing is sent.
const URL: &str = "http://prometheus:9090";

/// A replica that is started again whenever it ends.
pub struct Replica {
    world: World,
    name: String,
    life: Option<AbortHandle>,
}

impl Replica {
    pub fn start(world: &World, name: &str) -> Self {
        let mut replica = Self { world: world.clone(), name: name.into(), life: None };
        replica.revive(Duration::ZERO);
        replica
    }

    /// Ends the process at once; it is started again after a while.
    pub fn kill(&mut self, pause: Duration) {
        self.stop();
        self.revive(pause);
    }

    /// Ends the process for good.
    pub fn stop(&mut self) {
        if let Some(life) = self.life.take() {
            life.abort();
        }
    }

    fn revive(&mut self, pause: Duration) {
        let (world, name) = (self.world.clone(), self.name.clone());
        let life = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            loop {
                let mut life = JoinSet::new();
                life.spawn(process(world.clone(), name.clone()));
                let end = life.join_next().await.unwrap();
                let wrong = end.unwrap_or_else(|error| Some(error.to_string()));
                let now = world.now();
                if let Some(wrong) = wrong {
                    world.state().oracle.violate(now, format!("the operator ended: {wrong}"));
                }
                world.state().log.push((now, format!("{name} ended")));
                tokio::time::sleep(RESTART).await;
            }
        });
        self.life = Some(life.abort_handle());
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs one process; returns the reason for its end, unless it lost the lease.
async fn process(world: World, name: String) -> Option<String> {
    let (metrics, fence) = (Metrics::new(), Fence::default());
    let client = client::simulated(world.connect(&name), fence.clone(), metrics.clone());
    let nodes = NodeStore::default();
    let mut tasks = JoinSet::new();
    tasks.spawn(nodes.clone().follow(client.clone(), metrics.clone()));
    let lease = LeaseConfig {
        namespace: "traffic-operator-system".into(),
        name: "traffic-operator".into(),
        identity: name.clone(),
        duration: Duration::from_secs(15),
    };
    let mut candidate = Candidate::new(client.clone(), lease, fence);
    candidate.acquire(|| {}).await;
    world.state().log.push((world.now(), format!("{name} leads")));
    tasks.spawn(lead(client, nodes, metrics));
    tokio::select! {
        biased;
        _ = candidate.renew() => None,
        ended = tasks.join_next() => Some(format!("a task ended: {ended:?}")),
    }
}

/// Runs the controller, as the composition root of the process builds it.
async fn lead(client: kube::Client, nodes: NodeStore, metrics: Metrics) {
    let endpoints = EndpointsConfig::load(None, Some(URL), Duration::from_secs(10)).unwrap();
    let (deployments, schedule) = (DeploymentStore::default(), Schedule::default());
    let memories = Memories::default();
    let quota = Quota { per_namespace: 0, in_all: 0, own: String::new() };
    let reconciler = TrafficWatchReconciler {
        client: client.clone(),
        nodes: nodes.clone(),
        deployments: deployments.clone(),
        requests: RequestStore::default(),
        device_classes: DeviceClasses::default(),
        prometheus: Endpoints::new(&endpoints, metrics.clone()).unwrap(),
        own_queries: false,
        exporters: Exporters::default(),
        schedule,
        memories: memories.clone(),
        metrics: metrics.clone(),
        disruptions: Disruptions::new(nodes.clone()),
        label_writes: Semaphore::new(LABEL_CONCURRENCY),
        pace: Pace::new(quota.clone()),
        quota,
        ceiling: Ceiling::new(nodes.clone(), ceiling::DEFAULT, memories, String::new()),
        readings: Shared::default(),
    };
    let mut watch = JoinSet::new();
    watch.spawn(deployments.clone().follow(client.clone(), metrics.clone()));
    nodes.synced().await;
    deployments.synced().await;
    let (triggers, shutdown) = (stream::pending(), Shutdown::default());
    controller::run(client, reconciler, schedule, metrics, triggers, || {}, shutdown.begun()).await;
}
