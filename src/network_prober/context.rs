//! What a pass over a `NetworkProber` needs, and what wakes it.
use std::{collections::BTreeSet, sync::Mutex, time::Instant};

use futures::{Stream, StreamExt, stream::select};
use kube::runtime::reflector::ObjectRef;
use tokio::sync::watch as signal;

use super::{
    children::ChildKind,
    entries::Entries,
    failed_creates::FailedCreates,
    lost_paths::LostPaths,
    memory::{Memories, Owned, Refusals},
    state::ClusterState,
};
use crate::{
    api::NetworkProber,
    infra::watch::DeserializeGuard,
    metrics::Metrics,
    webhook::{certificates::Bundle, configuration::Endpoint},
};

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
    pub(crate) lost_paths: LostPaths,
    pub(crate) metrics: Metrics,
}

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
