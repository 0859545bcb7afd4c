//! The loop that every kind shares: observe, plan, apply, report.
use std::{
    collections::BTreeMap,
    fmt,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{Stream, StreamExt};
use kube::{
    Client, Resource, ResourceExt,
    api::{DynamicObject, PatchParams},
    runtime::{
        Config, Controller, WatchStreamExt, controller,
        reflector::{self, ObjectRef, Store},
    },
};
use tokio::sync::Semaphore;

use pass::{error_policy, reconcile};

use crate::{
    api::Kind,
    infra::{
        Api,
        watch::{self, DeserializeGuard},
    },
    metrics::Metrics,
};

pub(crate) mod conditions;
pub(crate) mod contest;
pub mod disruptions;
pub(crate) mod error;
mod events;
mod pass;
pub(crate) mod schedule;
pub use conditions::{Verdict, count, verdict};
pub use error::Error;

/// Statuses and finalizers of one kind that are written at the same time. When hundreds of objects
/// are new, or are read by a new leader, an API server that is slow must still answer for the Lease
/// in time.
const WRITES: usize = 16;

/// The field manager of every write this operator makes.
pub const FIELD_MANAGER: &str = "traffic-operator";

/// The value of `app.kubernetes.io/managed-by` on every object this operator owns.
pub const MANAGED_BY: &str = "traffic-operator";

/// The outcome of `plan`: everything to write, and nothing written yet.
#[derive(Debug, PartialEq)]
pub struct Plan<D, S> {
    /// The state that `apply` must establish.
    pub desired: D,
    /// The status to publish, conditions apart.
    pub status: S,
    /// The conditions: `Ready` and at most two more.
    pub conditions: Vec<Verdict>,
    /// The notices to publish as events of the owner.
    pub notices: Vec<Notice>,
    /// Time until the next pass if nothing changes.
    pub period: Duration,
}

/// Something that happened, for the object's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A warning, or just news.
    pub warning: bool,
    /// `PascalCase`, stable.
    pub reason: &'static str,
    /// For a person.
    pub note: String,
    /// The node this is about, if any. Events whose reason begins with `Node` form one series per
    /// reason and node, with the text of the first; of all others, only those of one text do.
    pub node: Option<String>,
}

/// One kind and the logic that serves it.
pub trait Reconciler: Send + Sync + 'static {
    /// The custom resource.
    type Kind: Kind;
    /// Facts read from the cluster and from Prometheus.
    type Observed: Send + Sync;
    /// The desired state.
    type Desired: Send + Sync;
    /// The state of an object that is kept between two passes; it may be lost at any time.
    type Memory: Default + Send;
    /// The controller's name: metric label, span.
    const NAME: &'static str;
    /// The finalizer of objects that [`Self::needs_cleanup`].
    const FINALIZER: &'static str;

    /// Reports whether changes outside the owner tree must be undone: by default, there are none.
    fn needs_cleanup(&self, _: &Self::Kind) -> bool {
        false
    }
    /// Reads; never writes.
    fn observe(
        &self,
        object: &Self::Kind,
        others: &Store<DeserializeGuard<Self::Kind>>,
    ) -> impl Future<Output = Result<Self::Observed, Error>> + Send;
    /// Decides; no client, no clock, no randomness.
    ///
    /// # Errors
    /// Only [`Error::Invalid`] and [`Error::Conflict`]; any other problem is an observation.
    fn plan(
        object: &Self::Kind,
        observed: &Self::Observed,
    ) -> Result<Plan<Self::Desired, <Self::Kind as Kind>::Status>, Error>;
    /// Writes; decides nothing. Returns the notices about the writes themselves.
    fn apply(
        &self,
        object: &Self::Kind,
        desired: Self::Desired,
    ) -> impl Future<Output = Result<Vec<Notice>, Error>> + Send;
    /// Cleans up what is outside the owner tree; the object is removed once this succeeds.
    fn cleanup(
        &self,
        _: &Self::Kind,
        _: &Store<DeserializeGuard<Self::Kind>>,
    ) -> impl Future<Output = Result<Vec<Notice>, Error>> + Send {
        std::future::ready(Ok(vec![]))
    }
    /// The memories of all objects. The driver drops the memory of an object that is gone, or whose
    /// spec cannot be served.
    fn memories(&self) -> &Memories<Self::Memory>;
    /// Drops the state kept elsewhere for an object when the driver drops its memory.
    fn forgotten(&self, _: &Key) {}
}

/// The state of a running loop.
pub struct Context<R: Reconciler> {
    client: Client,
    events: events::Events,
    reconciler: R,
    schedule: schedule::Schedule,
    metrics: Metrics,
    objects: Store<DeserializeGuard<R::Kind>>,
    /// Failed passes in a row.
    failures: Memories<u32>,
    /// The reports about objects that cannot be read.
    unreadable: pass::Reports,
    /// Permits to write a status or a finalizer.
    writes: Semaphore,
}

/// Namespace and name; the namespace of a cluster-scoped object is empty.
pub type Key = (String, String);

/// The key of an object.
#[must_use]
pub fn key<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// The memory of each object; clones share them.
pub struct Memories<M>(Arc<Mutex<BTreeMap<Key, M>>>);

impl<M> Memories<M> {
    /// Returns the memory of one object.
    #[must_use]
    pub fn get(&self, key: &Key) -> M
    where
        M: Clone + Default,
    {
        self.read(key, M::clone)
    }

    /// Reads from the memory of one object; the default if it has none.
    pub fn read<T: Default>(&self, key: &Key, read: impl FnOnce(&M) -> T) -> T {
        self.all().get(key).map(read).unwrap_or_default()
    }

    /// Replaces the memory of one object.
    pub fn put(&self, key: Key, memory: M) {
        self.all().insert(key, memory);
    }

    /// Changes the memory of one object.
    pub fn change<T>(&self, key: &Key, change: impl FnOnce(&mut M) -> T) -> T
    where
        M: Default,
    {
        change(self.all().entry(key.clone()).or_default())
    }

    /// Drops the memory of one object.
    pub fn forget(&self, key: &Key) {
        self.all().remove(key);
    }

    /// Visits one object after the other, by namespace and name, and returns the results of `view`.
    /// No lock is held between two objects: one that appears or vanishes meanwhile may be missing.
    pub fn each<V>(
        &self,
        mut view: impl FnMut(&Key, &M) -> Option<V>,
    ) -> impl Iterator<Item = (Key, V)> {
        let mut last: Option<Key> = None;
        std::iter::from_fn(move || {
            let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let (key, seen) = self
                .all()
                .range::<Key, _>((from, Bound::Unbounded))
                .find_map(|(key, memory)| view(key, memory).map(|seen| (key.clone(), seen)))?;
            last = Some(key.clone());
            Some((key, seen))
        })
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> Clone for Memories<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> Default for Memories<M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<M> fmt::Debug for Memories<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memories").finish_non_exhaustive()
    }
}

/// Runs one kind's loop until `shutdown`; `triggers` name objects to reconcile although they did
/// not change.
pub async fn run<R: Reconciler>(
    client: Client,
    reconciler: R,
    schedule: schedule::Schedule,
    metrics: Metrics,
    triggers: impl Stream<Item = ObjectRef<DeserializeGuard<R::Kind>>> + Send + 'static,
    synced: impl FnOnce() + Send,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let (objects, writer) = reflector::store();
    let events = watch::follow(Api::<R::Kind>::all(client.clone()), watch::config());
    let events = reflector::reflector(writer, events).touched_objects();
    let controller = Controller::for_stream(events, objects.clone())
        .trigger_backoff(watch::AtOnce)
        // Unbounded: a pass waits for Prometheus most of the time, and when Prometheus hangs, every
        // object must report it within its own interval, instead of waiting in a queue.
        .with_config(Config::default())
        .reconcile_on(triggers)
        .graceful_shutdown_on(shutdown);
    let (events, publishing) = events::channel(client.clone(), metrics.clone());
    let ctx = Arc::new(Context {
        events,
        client,
        reconciler,
        schedule,
        metrics,
        objects: objects.clone(),
        failures: Memories::default(),
        unreadable: pass::Reports::default(),
        writes: Semaphore::new(WRITES),
    });
    let ready = async {
        if objects.wait_until_ready().await.is_ok() {
            synced();
        }
        // Only the controller's stream may end this function.
        std::future::pending::<()>().await;
    };
    let passes =
        controller.run(reconcile::<R>, error_policy::<R>, Arc::clone(&ctx)).for_each(|result| {
            match result {
                Ok((object, _)) => {
                    tracing::debug!(controller = R::NAME, %object, "reconciled");
                }
                Err(controller::Error::ObjectNotFound(object)) => {
                    let key = (object.namespace.unwrap_or_default(), object.name);
                    ctx.failures.forget(&key);
                    ctx.unreadable.forget(&key);
                    ctx.forget(&key);
                }
                Err(controller::Error::ReconcilerFailed(error, object))
                    if error.is_pending() || error.is_by_another() && ctx.has_failed(&object) =>
                {
                    tracing::debug!(controller = R::NAME, %object, text = error.to_text(), "not yet");
                }
                Err(controller::Error::ReconcilerFailed(error, object)) => {
                    tracing::warn!(
                        controller = R::NAME, %object, reason = error.reason(),
                        error = error.to_text(), "reconcile failed"
                    );
                }
                Err(error) => {
                    tracing::warn!(controller = R::NAME, %error, "watch failed, trying again");
                    ctx.metrics.watch_restarted(R::NAME);
                }
            }
            std::future::ready(())
        });
    // In a fixed order, so that the simulation repeats itself.
    tokio::select! {
        biased;
        () = passes => {}
        () = ready => {}
        // The context holds the other end of its queue, so that it never ends by itself.
        () = publishing => {}
    }
}

impl<R: Reconciler> Context<R> {
    /// Reports whether more than one pass in a row has failed.
    fn has_failed(&self, object: &ObjectRef<DynamicObject>) -> bool {
        let key = (object.namespace.clone().unwrap_or_default(), object.name.clone());
        self.failures.read(&key, |count| *count > 1)
    }

    /// Drops everything that a kind keeps for an object.
    fn forget(&self, key: &Key) {
        self.reconciler.memories().forget(key);
        self.reconciler.forgotten(key);
    }
}

/// Parameters of a merge patch under our own name; without one the API server calls it `unknown`.
#[must_use]
pub fn merge_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}

#[cfg(test)]
mod tests;
