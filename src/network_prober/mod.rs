//! Serves [`NetworkProber`]: agents in pods that measure round-trip time and loss between each
//! other.
//!
//! | file | holds |
//! |---|---|
//! | `state`, `snapshot` | the cluster as every replica knows it: objects, namespaces, pods |
//! | `settings`, `scope`, `members`, `pinglists` | the spec; namespaces; pods; peers |
//! | `context` | what a pass needs, and what wakes it |
//! | `observe` | reads the snapshot and the objects that exist; the facts they become |
//! | `plan`, `children`, `rules` | what to write: agents, lists, webhooks, recording rules |
//! | `apply`, `entries` | the writes, those of a deleted object too; the webhooks' entries |
//! | `places`, `constraints`, `watches` | limits of webhooks; of namespaces; of watched pods |
//! | `memory` | what this process has applied, and what was refused |
//! | `failed_creates` | why the API server refuses pods, from events |
//! | `lost_paths` | the traces of lost paths, from Prometheus, as events |
//! | `report`, `reasons`, `metrics`, `overview` | status and events; metrics; status page |
//! | `injector`, `serving` | the answers to the webhook and to the agents |
//! | `measurement` | the measurements of the agents, from Prometheus |
//! | `dry_run` | `plan`: what a spec would do |
use kube::runtime::reflector::Store;

use crate::{
    api::{NetworkProber, NetworkProberStatus},
    controller::{Error, Notice, Plan, Reconciler},
    infra::watch::DeserializeGuard,
};

mod apply;
pub mod children;
pub(crate) mod constraints;
mod context;
pub(crate) mod dry_run;
mod entries;
mod failed_creates;
mod injector;
mod lost_paths;
pub mod measurement;
pub mod members;
mod memory;
mod metrics;
mod observe;
pub mod overview;
pub(crate) mod pinglists;
pub(crate) mod places;
mod plan;
pub(crate) mod reasons;
mod report;
pub mod rules;
pub(crate) mod scope;
mod serving;
pub mod settings;
pub(crate) mod snapshot;
pub(crate) mod state;
pub(crate) mod watches;

pub use context::NetworkProberReconciler;
pub use entries::Entries;
pub(crate) use failed_creates::FailedCreates;
pub use injector::ClusterInjector;
pub(crate) use lost_paths::LostPaths;
use memory::Memory;
pub use memory::Owned;
pub(crate) use memory::{Memories, Refusals};
pub use metrics::Gauges;
use observe::Observed;
use plan::Desired;
pub use serving::{
    AUDIENCE, Agents, LIMITS as PINGLIST_LIMITS, PATH as PINGLIST_PATH, REVIEWS,
    REVIEWS_OF_ONE_SOURCE,
};

type Others = Store<DeserializeGuard<NetworkProber>>;

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
        apply::cleanup(self, prober).await
    }

    fn memories(&self) -> &Memories {
        &self.memories
    }
}

#[cfg(test)]
mod tests;
