//! Serves [`RouteReflectorSet`]: chooses and replaces Calico's route reflectors so that no route is
//! lost.
//!
//! Read in this order: [`bgp_model`], the peerings and the routes that arrive (pure, and compared
//! with the behavior of BIRD); [`election`], the choice of reflectors (pure); [`steps`], the
//! single writes from the current state to the target, which of them are possible now, and the
//! next one; [`gate`], the verification of the sessions that a step depends on; `plan`, which
//! combines these; `topology` and [`datastore`], the data read and written; `observe`, `apply` and
//! `cleanup`, one pass.
use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use k8s_openapi::jiff::Timestamp;
use kube::{
    ResourceExt,
    runtime::reflector::{ObjectRef, Store},
};

use crate::{
    api::{Mode, RouteReflectorSet, RouteReflectorSetStatus, route_reflector_set::Gate},
    controller::{
        Error, Key, Notice, Plan, Reconciler,
        disruptions::{Disruptions, holder},
        schedule::Schedule,
    },
    infra::{lease::Fence, watch::DeserializeGuard},
    metrics::Metrics,
    nodes::NodeStore,
    prometheus::{Endpoints, Exporters, QueryError, Shared},
};

mod apply;
mod cleanup;
pub mod datastore;
pub mod dry_run;
pub mod families;
pub mod gate;
pub(crate) mod memory;
mod metrics;
mod names;
mod observe;
mod overlap;
mod plan;
#[cfg(test)]
mod proof;
mod report;
pub mod settings;
pub mod steps;
pub mod stores;
#[cfg(test)]
mod testing;
pub(crate) mod topology;

pub use traffic_operator_core::{bgp_model, election};

use datastore::Datastore;
use gate::Measured;
use memory::{Memories, Memory};
pub use metrics::Gauges;
use plan::{Desired, Observed};
use stores::Stores;

/// The time for which changes of the surroundings are collected: a zone that starts up causes many
/// events at once.
const COLLECT: Duration = Duration::from_millis(100);

/// The kind, as it is named to people.
const KIND: &str = "RouteReflectorSet";

/// The field that names the endpoint.
const ENDPOINT: &str = "spec.transition.prometheus";

/// A query to Prometheus: the endpoint and the text.
type Question = (Arc<str>, Arc<str>);
type Measurement = Result<Arc<Measured>, QueryError>;

/// The dependencies of the controller.
pub struct RouteReflectorReconciler {
    /// Writes.
    pub client: kube::Client,
    /// The cache of all nodes.
    pub nodes: NodeStore,
    /// Calico's objects in the Kubernetes API.
    pub kubernetes: Datastore,
    /// The datastores in use, each with the sets that use it.
    pub stores: Stores,
    /// Namespace of the Secrets of other datastores: the operator's own.
    pub namespace: String,
    /// Nothing is written to another datastore either while the lease is not held.
    pub fence: Fence,
    /// The endpoints, for the gate.
    pub prometheus: Endpoints,
    /// True if custom PromQL is allowed.
    pub own_queries: bool,
    /// The series that the gate accepts, and their labels for nodes.
    pub exporters: Exporters,
    /// The memories of all sets, and their metrics.
    pub memories: Memories,
    /// The ticks.
    pub schedule: Schedule,
    /// Counters.
    pub metrics: Metrics,
    /// The zones that changes of reflectors disrupt.
    pub disruptions: Disruptions,
    /// Shares one request among callers with the same query.
    pub measurements: Shared<Question, Measurement>,
}

type Others = Store<DeserializeGuard<RouteReflectorSet>>;

impl RouteReflectorReconciler {
    /// The objects to reconcile because nodes or Calico's objects changed, and not they themselves.
    pub fn triggers(
        &self,
    ) -> impl Stream<Item = ObjectRef<DeserializeGuard<RouteReflectorSet>>> + Send + 'static + use<>
    {
        let nodes = futures::stream::unfold(self.nodes.changes(), async |mut changes| {
            // The sender lives in the store, and that as long as the process.
            changes.changed().await.ok().map(|()| ((), changes))
        });
        let memories = self.memories.clone();
        let nodes = nodes.map(|()| None);
        let datastores = self.stores.changes().map(Some);
        futures::stream::select(nodes, datastores)
            .ready_chunks(1024)
            .then(move |changes| {
                let memories = memories.clone();
                async move {
                    tokio::time::sleep(COLLECT).await;
                    let mut names = BTreeSet::new();
                    for change in changes {
                        if let Some(sets) = change {
                            names.extend(sets);
                        } else {
                            let all = memories.each(|_, _| Some(()));
                            names.extend(all.map(|((_, name), ())| name));
                        }
                    }
                    futures::stream::iter(names)
                }
            })
            .flatten()
            .map(|name| ObjectRef::new(&name))
    }

    /// Checks the parts of a spec that only the gate needs, also against the operator's
    /// configuration.
    fn check(&self, set: &RouteReflectorSet) -> Result<(), String> {
        let transition = &set.spec.transition;
        if transition.gate != Gate::Prometheus {
            return Ok(());
        }
        self.prometheus.named(ENDPOINT, &transition.prometheus, None)?;
        if transition.query.is_some() && !self.own_queries {
            let text = "spec.transition.query: this operator runs with --own-queries=false: PromQL in a \
                        RouteReflectorSet is switched off";
            return Err(text.into());
        }
        Ok(())
    }

    /// Returns the datastore of this set's Calico. Connections to an etcd are kept as long as its
    /// spec stays.
    fn datastore(&self, set: &RouteReflectorSet) -> Result<Datastore, datastore::Error> {
        let spec = &set.spec.datastore;
        self.stores.of(&set.name_any(), spec, || {
            if spec.etcd.is_none() {
                return Ok(self.kubernetes.clone());
            }
            Datastore::new(self.client.clone(), &self.namespace, spec, &self.fence)
        })
    }
}

/// Simulates the steps on this cluster. Reads only.
///
/// # Errors
/// The error of the spec, or the reason why the cluster cannot be read.
pub async fn simulate(
    client: &kube::Client,
    nodes: &NodeStore,
    namespace: &str,
    set: &RouteReflectorSet,
) -> Result<dry_run::DryRun, Error> {
    // A fence that is shut: nothing is written.
    let fence = Fence::default();
    let datastore = Datastore::new(client.clone(), namespace, &set.spec.datastore, &fence)?;
    let mut snapshot = Arc::unwrap_or_clone(datastore.read().await?);
    // In the dry run, each label is on Kubernetes' Node and on Calico's.
    snapshot.labels = None;
    let mut stage = dry_run::Stage { speakers: nodes.speakers(), snapshot };
    let fitness = observe::read_fitness(client, nodes, set).await?;
    let workloads = Arc::new(observe::count_workloads(client).await?);
    dry_run::simulate(set, &mut stage, fitness, workloads, Timestamp::now())
}

impl Reconciler for RouteReflectorReconciler {
    type Kind = RouteReflectorSet;
    type Observed = Observed;
    type Desired = Desired;
    type Memory = Memory;
    const NAME: &'static str = "routereflectorset";
    const FINALIZER: &'static str = "traffic.example.com/route-reflectors";

    /// Nodes and Calico's objects are not children of a set.
    fn needs_cleanup(&self, set: &RouteReflectorSet) -> bool {
        set.spec.mode == Mode::Enforce
    }

    async fn observe(&self, set: &RouteReflectorSet, others: &Others) -> Result<Observed, Error> {
        observe::observe(self, set, others, false).await
    }

    fn plan(
        set: &RouteReflectorSet,
        observed: &Observed,
    ) -> Result<Plan<Desired, RouteReflectorSetStatus>, Error> {
        plan::plan(set, observed)
    }

    async fn apply(&self, set: &RouteReflectorSet, desired: Desired) -> Result<Vec<Notice>, Error> {
        apply::apply(self, set, desired).await
    }

    async fn cleanup(
        &self,
        set: &RouteReflectorSet,
        others: &Others,
    ) -> Result<Vec<Notice>, Error> {
        cleanup::cleanup(self, set, others).await
    }

    fn memories(&self) -> &Memories {
        &self.memories
    }

    fn forgotten(&self, key: &Key) {
        self.stores.forget(&key.1);
        // The next set goes on where this one ended.
        self.disruptions.release(&holder(KIND, key));
    }
}
