//! Serves [`Swarm`]: `observe` reads, `plan` decides, `apply` writes.
//!
//! Read in this order: [`handover`], the protocol (pure, and explored state by state in its tests);
//! [`mod@file`], the written files; `history`, the trusted part of them; `workers`, the
//! workers; `plan`, which combines these and [`crate::placement::assignment`]; `watches`, the
//! watched objects; [`acknowledge`], the requests to workers; `cluster`, the cluster of a pass: the
//! real one (`live`), or what a command knows of it (`dry_run`).
use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use kube::runtime::reflector::{ObjectRef, Store};

use crate::{
    api::{Swarm, SwarmStatus},
    controller::{Error, Notice, Plan, Reconciler, disruptions::Disruptions, schedule::Schedule},
    infra::watch::DeserializeGuard,
    metrics::Metrics,
    nodes::NodeStore,
    prometheus::{Endpoints, QueryError, Shared},
};

pub mod acknowledge;
mod apply;
mod cluster;
pub(crate) mod conflict;
pub(crate) mod dry_run;
pub(crate) mod evictions;
#[cfg(test)]
mod explorer;
pub mod file;
pub(crate) mod history;
pub(crate) mod inspection;
pub(crate) mod limits;
mod live;
pub(crate) mod memory;
mod metrics;
mod observe;
mod plan;
mod polls;
mod report;
pub(crate) mod secret;
pub(crate) mod settings;
pub(crate) mod snapshot;
pub(crate) mod watches;
pub(crate) mod weights;
pub(crate) mod workers;

use acknowledge::WorkerClient;
pub use inspection::router;
use live::Live;
use memory::{Memories, Memory};
pub use metrics::Gauges;
use plan::{Desired, Observed};
pub use traffic_operator_core::{handover, natural_sort};
use watches::WorkloadCache;
use weights::Measured;

/// The time for which changes of the surroundings are collected: a scaled workload causes many
/// events at once.
const COLLECT: Duration = Duration::from_millis(50);

/// The field that names the endpoint.
const ENDPOINT: &str = "spec.weights.prometheus";

/// A query to Prometheus: the endpoint and the text.
type Question = (Arc<str>, Arc<str>);
type Measurement = Result<Arc<Measured>, QueryError>;

/// The dependencies of the controller.
pub struct SwarmReconciler {
    /// Writes.
    pub client: kube::Client,
    /// The objects that `Swarm`s depend on.
    pub cache: WorkloadCache,
    /// The nodes, for `fitnessRef`.
    pub nodes: NodeStore,
    /// The endpoints, for `weights`.
    pub prometheus: Endpoints,
    /// True if custom PromQL is allowed.
    pub own_queries: bool,
    /// The client for reports of workers.
    pub workers: WorkerClient,
    /// The memories of all `Swarm`s, and their metrics.
    pub memories: Memories,
    /// The ticks.
    pub schedule: Schedule,
    /// Counters.
    pub metrics: Metrics,
    /// The zones that evictions disrupt.
    pub disruptions: Disruptions,
    /// Shares one request among callers with the same query.
    pub measurements: Shared<Question, Measurement>,
}

type Others = Store<DeserializeGuard<Swarm>>;

impl SwarmReconciler {
    /// The objects to reconcile because their surroundings changed, and not they themselves.
    pub fn triggers(
        &self,
    ) -> impl Stream<Item = ObjectRef<DeserializeGuard<Swarm>>> + Send + 'static + use<> {
        self.cache
            .changes()
            .ready_chunks(1024)
            .then(async |keys| {
                tokio::time::sleep(COLLECT).await;
                let keys: BTreeSet<_> = keys.into_iter().collect();
                futures::stream::iter(keys)
            })
            .flatten()
            .map(|(namespace, name)| ObjectRef::new(&name).within(&namespace))
    }

    fn live<'a>(&'a self, swarm: &'a Swarm) -> Live<'a> {
        Live {
            client: &self.client,
            workers: &self.workers,
            cache: &self.cache,
            disruptions: &self.disruptions,
            swarm,
        }
    }
}

impl Reconciler for SwarmReconciler {
    type Kind = Swarm;
    type Observed = Observed;
    type Desired = Desired;
    type Memory = Memory;
    const NAME: &'static str = "swarm";
    const FINALIZER: &'static str = "traffic.example.com/swarm";

    async fn observe(&self, swarm: &Swarm, others: &Others) -> Result<Observed, Error> {
        observe::observe(self, swarm, others).await
    }

    fn plan(swarm: &Swarm, observed: &Observed) -> Result<Plan<Desired, SwarmStatus>, Error> {
        plan::plan(swarm, observed)
    }

    async fn apply(&self, swarm: &Swarm, desired: Desired) -> Result<Vec<Notice>, Error> {
        apply::apply(&self.live(swarm), swarm, &self.memories, desired).await
    }

    fn memories(&self) -> &Memories {
        &self.memories
    }
}
