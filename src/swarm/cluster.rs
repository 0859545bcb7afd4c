//! The cluster of a pass: the real one (`live`), what a command knows of it (`dry_run`), and small
//! ones in the explorer of the tests.
use std::{sync::Arc, time::Instant};

use kube::core::ObjectMeta;

use super::{
    acknowledge::Answer,
    handover::Epoch,
    plan::{Handed, Immutable, Part, Publish, Scale},
    watches::{PodFacts, WorkloadFacts},
};
use crate::{acknowledgement::Key, controller::Error};

/// The parts of the cluster that a pass needs besides the watches. Reads come from the API server
/// itself, not from a cache.
pub(super) trait Cluster: Sync {
    /// The time.
    fn now(&self) -> Instant;

    /// One pod, by the name of its worker.
    fn pod(&self, name: &str) -> impl Future<Output = Result<Option<PodFacts>, Error>> + Send;

    /// All pods of a workload.
    fn pods(
        &self,
        workload: &WorkloadFacts,
    ) -> impl Future<Output = Result<Vec<PodFacts>, Error>> + Send;

    /// Returns the worker's report of its streams, or the reason why there is none. A worker that
    /// signs must use the key, if there is one.
    fn ask(
        &self,
        pod: &PodFacts,
        key: Option<&Key>,
    ) -> impl Future<Output = Result<Answer, String>> + Send;

    /// A new key for workers to sign with.
    fn secret(&self) -> Option<Arc<str>>;

    /// Writes the next file over exactly the one that was read; `None`: another writer was faster.
    fn publish(
        &self,
        publish: &Publish,
    ) -> impl Future<Output = Result<Option<ObjectMeta>, Error>> + Send;

    /// Takes the answer to that write, so that the next pass sees it before the watch delivers it.
    fn published(&self, metadata: &ObjectMeta, publish: &Publish);

    /// Writes a part over exactly the one that was read, and takes the answer; returns false if
    /// another write came first.
    fn part(&self, part: &Part) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Writes the immutable file and points the template at it.
    fn pin(&self, immutable: Immutable) -> impl Future<Output = Result<(), Error>> + Send;

    /// The names of all immutable files of this `Swarm`.
    fn pinned(&self) -> impl Future<Output = Result<Vec<String>, Error>> + Send;

    /// Removes an immutable file.
    fn unpin(&self, name: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Evicts a pod, exactly this one.
    fn evict(
        &self,
        worker: &str,
        uid: &str,
    ) -> impl Future<Output = Result<Eviction, Error>> + Send;

    /// Changes exactly this pod, so that the kubelet syncs its volumes at once; returns false if
    /// the pod is gone.
    fn nudge(
        &self,
        worker: &str,
        uid: &str,
        epoch: Epoch,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Tells a worker that the published file of this version gives it streams that it has prepared: it
    /// need not wait for its kubelet. One that does not hear it reads the file.
    fn grant(
        &self,
        handed: &Handed,
        version: Epoch,
        key: Option<&Key>,
    ) -> impl Future<Output = ()> + Send;

    /// Changes the number of workers, if it is still the one that was read.
    fn scale(&self, scale: Scale) -> impl Future<Output = Result<(), Error>> + Send;
}

/// The result of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    /// The pod is being deleted.
    Done,
    /// It is gone already, or another one has its name.
    Gone,
    /// It stays, for this reason.
    Refused(String),
    /// It stays for now: another object disrupts its zone.
    Deferred,
}
