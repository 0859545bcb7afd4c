//! Serves [`NetworkProber`]: agents in pods that measure round-trip time and loss between each
//! other.
//!
//! | file | holds |
//! |---|---|
//! | `state`, `snapshot` | the cluster as every replica knows it: objects, namespaces, pods |
//! | `settings`, `tenancy`, `scope`, `members`, `pinglists` | the spec; namespaces; pods; peers |
//! | `observe`, `observed` | reads the snapshot and the objects that exist; the facts they become |
//! | `plan`, `children`, `rules` | what to write: agents, lists, webhooks, recording rules |
//! | `apply`, `entries`, `cleanup` | the writes |
//! | `conflict`, `constraints`, `watches` | other objects; demands of namespaces; budget of pods |
//! | `memory`, `refusals` | what this process has applied, and what was refused |
//! | `failed_creates` | why the API server refuses pods, from events |
//! | `report`, `reasons`, `metrics`, `overview`, `live` | status and events; metrics; status page |
//! | `injector`, `unseen`, `serving` | the answers to the webhook and to the agents |
//! | `measurement` | the measurements of the agents, from Prometheus |
use std::{collections::BTreeSet, sync::Mutex, time::Instant};

use futures::{Stream, StreamExt, stream::select};
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::watch as signal;

use crate::{
    api::{NetworkProber, NetworkProberStatus},
    controller::{Error, Notice, Plan, Reconciler},
    infra::watch::DeserializeGuard,
    metrics::Metrics,
    webhook::{certificates::Bundle, configuration::Endpoint},
};

mod apply;
pub mod children;
mod cleanup;
pub(crate) mod conflict;
pub(crate) mod constraints;
mod entries;
mod failed_creates;
mod injector;
pub mod live;
pub mod measurement;
pub mod members;
mod memory;
mod metrics;
mod observe;
mod observed;
pub mod overview;
pub(crate) mod pinglists;
pub(crate) mod places;
mod plan;
mod queue;
pub(crate) mod reasons;
mod refusals;
mod report;
pub mod rules;
pub(crate) mod scope;
mod serving;
pub mod settings;
pub(crate) mod snapshot;
pub(crate) mod state;
pub mod tenancy;
mod unseen;
pub(crate) mod watches;

use children::ChildKind;
pub use entries::Entries;
pub(crate) use failed_creates::FailedCreates;
pub use injector::ClusterInjector;
pub(crate) use memory::Memories;
use memory::Memory;
pub use memory::Owned;
pub use metrics::Gauges;
use observed::Observed;
use plan::Desired;
pub(crate) use refusals::Refusals;
pub use serving::{
    AUDIENCE, Agents, LIMITS as PINGLIST_LIMITS, PATH as PINGLIST_PATH, REVIEWS,
    REVIEWS_OF_ONE_SOURCE,
};
use state::ClusterState;

/// The kinds of prometheus-operator in the API server, and the time of that discovery.
type Discovered = Option<(Instant, BTreeSet<ChildKind>)>;

/// The dependencies of the controller.
pub struct NetworkProberReconciler {
    pub(crate) client: kube::Client,
    pub(crate) cluster: ClusterState,
    pub(crate) memories: Memories,
    pub(crate) owned: Owned,
    pub(crate) entries: Entries,
    pub(crate) bundle: signal::Receiver<Option<Bundle>>,
    pub(crate) endpoint: Endpoint,
    pub(crate) discovered: Mutex<Discovered>,
    pub(crate) refusals: Refusals,
    pub(crate) failed_creates: FailedCreates,
    pub(crate) metrics: Metrics,
}

type Others = Store<DeserializeGuard<NetworkProber>>;

impl NetworkProberReconciler {
    /// The objects to reconcile because their pods, their children or the certificates changed, and
    /// not they themselves.
    pub fn triggers(
        &self,
    ) -> impl Stream<Item = ObjectRef<DeserializeGuard<NetworkProber>>> + Send + 'static + use<>
    {
        let cluster = self.cluster.clone();
        let all = select(happens(self.bundle.clone()), happens(self.entries.presence()));
        let all = all.flat_map(move |()| {
            let keys: Vec<_> = cluster.snapshot().views.keys().cloned().collect();
            futures::stream::iter(keys)
        });
        let changes = select(self.owned.changes(), self.entries.changes());
        select(select(self.cluster.changes(), changes), all)
            .map(|(namespace, name)| ObjectRef::new(&name).within(&namespace))
    }
}

/// Each time that a value changes.
fn happens<T: Send + Sync + 'static>(
    value: signal::Receiver<T>,
) -> impl Stream<Item = ()> + Send + 'static {
    futures::stream::unfold(value, |mut value| async move {
        value.changed().await.ok()?;
        Some(((), value))
    })
}

impl Reconciler for NetworkProberReconciler {
    type Kind = NetworkProber;
    type Observed = Observed;
    type Desired = Desired;
    type Memory = Memory;
    const NAME: &'static str = "networkprober";
    const FINALIZER: &'static str = "probes.bigmikes.io/agents";

    /// Its webhook is an entry of an object that stays, and other namespaces have `ConfigMap`s:
    /// neither goes with its owner.
    fn needs_cleanup(&self, _: &NetworkProber) -> bool {
        true
    }

    async fn observe(&self, prober: &NetworkProber, _: &Others) -> Result<Observed, Error> {
        observe::observe(self, prober).await
    }

    fn plan(
        prober: &NetworkProber,
        observed: &Observed,
    ) -> Result<Plan<Desired, NetworkProberStatus>, Error> {
        plan::plan(prober, observed)
    }

    async fn apply(&self, prober: &NetworkProber, desired: Desired) -> Result<Vec<Notice>, Error> {
        apply::apply(self, prober, desired).await
    }

    async fn cleanup(&self, prober: &NetworkProber, _: &Others) -> Result<Vec<Notice>, Error> {
        cleanup::cleanup(self, prober).await
    }

    fn memories(&self) -> &Memories {
        &self.memories
    }
}

#[cfg(test)]
mod tests;
