//! The handover of a stream between workers, without ever running on both: one pure function,
//! [`step`].
//!
//! # The protocol
//!
//! There is one file per Swarm, and each version of it has an *epoch*, one higher than the previous
//! one. It contains the streams of each worker, and the streams that are still *releasing*:
//!
//! ```text
//! owned by a, file 7
//!   -> file 8 does not list the stream at a; it is releasing from a since epoch 8
//!   -> a has released it (see below): file 9 forgets the release, the stream is free
//!   -> the same file 9, or a later one, lists it at b
//! ```
//!
//! A worker *has released* the streams that epoch r removed from it when file r is the newest or an
//! older one, and
//!
//! - its pod has acknowledged an epoch of at least r (and not one above the published one: such a
//!   pod has read an unknown file), or
//! - it has no pod, or its pod can never run anything again; both as read from the API server, not
//!   from a cache, after file r was published ([`Worker::confirmed`]), or
//! - its pod never answers, and was created after file r was published ([`Pod::heir`]): the
//!   previous pod is gone,
//!
//! and if [`Worker::successor`] is known, it is at least r too. Nothing else counts: not time, not
//! `NotReady`, not a lost node. A pod that may have been created before the revocation and has not
//! acknowledged blocks as its predecessor did.
//!
//! # Why that suffices
//!
//! Every stream that a pod runs was listed for its worker in a file that it has read; it never
//! reads an older file than before; and at most one pod of a name exists. A stream is listed for b
//! only when no worker has it and no worker releases it. Take any other worker a that was ever
//! listed with it: file r removed it, and a has released it since:
//!
//! - by an acknowledgement: that pod has stopped the streams that file r does not list, and reads
//!   only newer files; so do its successors;
//! - by having no running pod after file r was published, or a different pod than before: any later
//!   pod reads r or a newer file.
//!
//! The operator's explorer of Swarms checks this in every order of events of small worlds, with the
//! operator's own plan, and finds an overlap if one of these rules is weakened.
//!
//! # What the rules say beyond that
//!
//! - A stream that returns to the worker that is still releasing it is granted at once, without
//!   waiting for that worker (but not while a second one releases it): no second owner can exist,
//!   because no other worker may have it before this worker releases it. The release is forgotten
//!   in the same file, so that a late acknowledgement of it ends nothing; a later revocation has a
//!   later epoch.
//! - A stream leaves a wanted worker only for one that is ready to take it (make before break), and
//!   not while it cannot be granted there: under a barrier, or while a third worker still releases
//!   it.
//! - An epoch above the published one that some pod has loaded (or that the status remembers)
//!   proves that the file was lost or set back: other pods may have read unknown files. Then the
//!   file is published again under a *barrier* ([`Published::distrusted`]): nothing is granted
//!   until every live pod has loaded an epoch from there on. While such a pod lives and a barrier
//!   stands, the next file raises the barrier, but none is written for that alone: a worker that
//!   invents its versions would cost a write at every step.
//! - A stream that two workers have in one file (after an edit by hand, or from the original
//!   operator) stays with the first and is removed from the others, as in any other revocation.
//! - A release, a barrier or a list's version above the file's own epoch (also after an edit by
//!   hand) becomes the next file's.
//! - The file also says which streams will come to a worker ([`Published::next`]): those with that
//!   target that are not in its list. They give it nothing: a worker that prepares them starts them
//!   sooner once they are in its list. While the target says that it prepares streams and has not
//!   prepared all of them ([`Pod::prepared`]), no stream leaves for it that its owner could keep.
//!
//! # What the caller promises
//!
//! - It writes the result only over the very file that it read (resource version), and evicts and
//!   nudges only after that write.
//! - `workers` has an entry for every pod of the workload and for each of [`Published::workers`]: a
//!   missing one was not read, and blocks.
//! - [`Pod::loaded`] belongs to this pod (its UID), and is requested before the first step after a
//!   start: a pod in an unknown state is refreshed, and a pod that is ahead must be known before
//!   anything is granted.
//! - `highest_reported` forgets nothing: it includes the reports of pods that are gone, and the
//!   epoch in the status.
//! - A worker that does not answer releases its streams while it has no pod, which may be too short
//!   to observe, or with its next pod: so all pods are listed while such a worker is awaited.
//! - Where history is unknown from the start (a file of another author, none at all though pods
//!   run, an epoch below the one in the status) it begins with [`Published::distrusted`], or passes
//!   the higher epoch as `highest_reported`.
//! - [`Worker::successor`] is the lowest epoch that any later pod of that name can read, and never
//!   decreases. For a `StatefulSet` with `RollingUpdate`, it is the lower of its two revisions:
//!   pods below the partition, and during a roll-out those that are not yet updated, come back with
//!   the old one.
//! - With a mutable `ConfigMap`, a kubelet may give a new pod a file from its cache that is older
//!   than the API server's. This module cannot detect that: it is the reason for
//!   `configMap.immutable`.
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

mod decide;
mod refresh;

pub use decide::step;
pub use refresh::{Turn, Turns, refresh_in_turn};

/// The version of a file: what workers report as loaded, and the fencing token.
pub type Epoch = u64;

/// The id of a stream, or the name of a worker (of its pod).
pub type Name = Arc<str>;

/// Every stream of the spec, in its order, with its target worker; `None`: unassigned. Ids are
/// distinct; if one is not, its first place counts.
pub type Target = [(Name, Option<Name>)];

/// The highest epoch that a file may have: JSON's readers keep numbers up to here exactly.
pub const LARGEST_EPOCH: Epoch = 1 << 53;

/// The highest epoch that is accepted from a worker or from the status. At one file a second it is
/// reached after 142 million years, and then as many are left: a higher report (for example a time
/// in nanoseconds, or a number right below the largest) must not use up the numbers.
pub const BELIEVED_EPOCH: Epoch = LARGEST_EPOCH / 2;

/// Returns the reported epoch if it is credible; otherwise 0.
#[must_use]
pub const fn believed(reported: Epoch) -> Epoch {
    if reported > BELIEVED_EPOCH { 0 } else { reported }
}

/// The contents of the `ConfigMap`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Version of the file; 0 if there is no file yet.
    pub epoch: Epoch,
    /// The share of each worker.
    pub shares: BTreeMap<Name, Share>,
    /// The streams that will come to a worker, in the order of the spec. None of them is in its
    /// share, and each has one such worker. No rule of the protocol uses it.
    pub next: BTreeMap<Name, Vec<Name>>,
    /// Streams removed from a worker that may still run there, and the epoch of the
    /// file that took it.
    pub releasing: BTreeMap<(Name, Name), Epoch>,
    /// Lists before this epoch are unknown: nothing is granted until every live pod has loaded it.
    pub barrier: Option<Epoch>,
    /// Silent workers, with the UID of the pod that existed before the list last changed: it must
    /// be refreshed by any leader that reads this file. No rule of the protocol uses it.
    pub outdated: BTreeMap<Name, Name>,
}

/// The share of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The streams in the order of the spec. A different order is no change: they are a set.
    pub streams: Vec<Name>,
    /// The epoch at which the set last changed; 0: it was always empty.
    pub version: Epoch,
}

impl Published {
    /// Iterates over all streams with the worker that lists them.
    pub fn owners(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.shares
            .iter()
            .flat_map(|(worker, share)| share.streams.iter().map(move |stream| (stream, worker)))
    }

    /// Returns every worker that has or releases a stream: each needs an entry among the workers of
    /// a step.
    #[must_use]
    pub fn workers(&self) -> BTreeSet<&Name> {
        self.shares.keys().chain(self.releasing.keys().map(|(_, worker)| worker)).collect()
    }

    /// Returns the same shares for the case that unknown files may have been read: with a new epoch
    /// above all reported ones, under a barrier, and every release starts again.
    #[must_use]
    pub fn distrusted(&self, highest_reported: Epoch) -> Self {
        let epoch = self.next_epoch(highest_reported);
        // Another author may have said to several workers that a stream will come.
        let mut next = Self { epoch, next: BTreeMap::new(), ..self.clone() };
        next.bar(epoch);
        for share in next.shares.values_mut() {
            share.version = epoch;
        }
        next
    }

    /// Returns the epoch of the next file.
    #[must_use]
    pub fn next_epoch(&self, highest_reported: Epoch) -> Epoch {
        self.epoch.max(believed(highest_reported)).saturating_add(1)
    }

    /// Sets a barrier: reports before this epoch no longer count.
    fn bar(&mut self, epoch: Epoch) {
        self.barrier = Some(epoch);
        self.releasing.values_mut().for_each(|since| *since = epoch);
    }
}

/// The known state of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent facts, each as the API server tells it"
)]
pub struct Pod {
    /// UID of the pod: a refresh names it, so that its successor is not affected.
    pub uid: Name,
    /// True if its condition Ready is True.
    pub ready: bool,
    /// True if it has a deletion timestamp.
    pub terminating: bool,
    /// True if it can never run anything again: its phase is final and every container is
    /// terminated; or it is terminating and was never bound to a node.
    pub stopped: bool,
    /// The highest epoch that this pod itself has acknowledged.
    pub loaded: Option<Epoch>,
    /// The epoch of the file when the API server listed all pods, before this one was created. So
    /// it has read that file or a later one, unless its kubelet gave it an older one from a cache.
    /// Known only for a worker that never answers.
    pub heir: Option<Epoch>,
    /// The minimum epoch of the file at its creation. Decides only whether it needs a refresh: it
    /// may still have read an older file.
    pub born: Option<Epoch>,
    /// The coming streams that it is ready to start at once. `None`: it does not prepare any, or is
    /// not waited for.
    pub prepared: Option<BTreeSet<Name>>,
}

impl Pod {
    /// Reports whether it may run a stream.
    fn live(&self) -> bool {
        !self.stopped
    }

    fn serves(&self) -> bool {
        self.ready && !self.terminating && !self.stopped
    }

    /// Reports whether it prepares streams, and has not prepared this one.
    #[must_use]
    pub fn is_preparing(&self, stream: &Name) -> bool {
        self.prepared.as_ref().is_some_and(|prepared| !prepared.contains(stream))
    }
}

/// One worker, whether or not it has a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worker {
    /// True if it should have streams: its ordinal is in range, or it is a live pod of the
    /// Deployment.
    pub wanted: bool,
    /// The pod of this name.
    pub pod: Option<Pod>,
    /// Lower bound of the published epoch when `pod` was read from the API server itself (a get, or
    /// a list without a resource version). A cache may not yet contain a pod that was created
    /// before the last file and has read the previous one. Matters only when there is no pod or it
    /// is stopped.
    pub confirmed: Epoch,
    /// The minimum epoch that any later pod of this name reads (with immutable `ConfigMap`s: the
    /// one in the template that the workload's controller has observed). `None`: it reads the file
    /// that the API server has when it starts.
    pub successor: Option<Epoch>,
}

impl Worker {
    fn serves(&self) -> bool {
        self.pod.as_ref().is_some_and(Pod::serves)
    }
}

/// The way in which pods load a new list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// They are evicted, and their successors read the file.
    DeletePod,
    /// They read the file themselves; a nudge makes the kubelet deliver it at once.
    HotReload,
    /// Another component makes them load it.
    None,
}

/// The handover rules of the spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Rules {
    /// No worker gets a stream before all others have released it. Otherwise it goes straight to
    /// its new worker; the workers that still release it are recorded all the same.
    pub exclusive: bool,
    /// The way in which pods load a new list.
    pub strategy: Strategy,
    /// `DeletePod`: the number of wanted workers that may be not ready at a time.
    pub max_unavailable: usize,
    /// `DeletePod`: a free stream waits for the others that are on their way to the same worker, so
    /// that it restarts once and not once per stream. The caller lifts this when a stream has
    /// waited long enough.
    pub gather: bool,
    /// `DeletePod`: no stream leaves its worker for balance before every worker that gains streams
    /// is ready, so that each restarts once. The caller lifts this after a while.
    pub await_targets: bool,
    /// Files say which streams will come to a worker.
    pub announce: bool,
}

/// The reason why a stream was taken from its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Its target is another worker, and that one is ready.
    Moved,
    /// Its worker should have no streams.
    Unwanted,
    /// No worker may have it.
    Unassigned,
    /// It is no longer in the spec.
    Removed,
    /// The file listed it at two workers.
    Duplicate,
}

/// An action that makes a pod load the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refresh {
    /// Evict it, if it still is this pod.
    Evict {
        /// Its name.
        worker: Name,
        /// UID of the pod to refresh.
        uid: Name,
    },
    /// Touch it, so that its kubelet delivers the file at once. Repeated at every step until it has
    /// loaded the file.
    Nudge {
        /// Its name.
        worker: Name,
        /// UID of the pod to refresh.
        uid: Name,
        /// The epoch that it must load at least.
        epoch: Epoch,
    },
}

/// The reason why a worker has not released its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Its pod has acknowledged an older epoch.
    Behind,
    /// Its pod has acknowledged nothing.
    Silent,
    /// Its pod is being deleted, and its containers may still run.
    Terminating,
    /// Its pod has loaded an epoch that was never published.
    Ahead,
    /// There is no pod, or a stopped one: it must be read from the API server itself.
    Unconfirmed,
    /// A successor may still read an older file.
    Template,
    /// It was not among the workers.
    Unseen,
    /// The file that takes it away is not published yet.
    Unpublished,
}

/// A worker that is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its name.
    pub worker: Name,
    /// Number of streams that it must release; 0 if only the barrier waits for it.
    pub streams: usize,
    /// The epoch that it must acknowledge.
    pub epoch: Epoch,
    /// The obstacle.
    pub why: Why,
}

/// The decided actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The next file, if it differs from the published one.
    pub publish: Option<Published>,
    /// Streams and the workers that have released them: (stream, from).
    pub freed: Vec<(Name, Name)>,
    /// Streams that leave their workers: (stream, from, why).
    pub revoked: Vec<(Name, Name, Cause)>,
    /// Streams and the workers that get them: (stream, to).
    pub granted: Vec<(Name, Name)>,
    /// Actions after `publish` is written, or at once if there is none.
    pub refresh: Vec<Refresh>,
    /// Streams with a target worker that no worker has or releases after this step.
    pub free: Vec<Name>,
    /// The awaited workers, in natural order.
    pub waiting: Vec<Waiting>,
}

/// Every stream of the spec and of the file is in exactly one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Listed for a worker (though another may still release it, if the handover is not exclusive).
    pub owned: usize,
    /// Removed from a worker that has not released it.
    pub releasing: usize,
    /// With no worker yet, on its way to one.
    pub free: usize,
    /// With no worker, and none may have it.
    pub unassigned: usize,
}

impl Counts {
    /// Counts the streams of this file.
    #[must_use]
    pub fn of(published: &Published, target: &Target) -> Self {
        let mut counted: HashSet<&str> = HashSet::new();
        let mut new = |stream| usize::from(counted.insert(stream));
        let listed = published.shares.values().flat_map(|share| &share.streams);
        let owned = listed.map(|stream| new(stream)).sum();
        let releasing = published.releasing.keys().map(|(stream, _)| new(stream)).sum();
        let mut counts = Self { owned, releasing, free: 0, unassigned: 0 };
        for (stream, worker) in target {
            let place = if worker.is_some() { &mut counts.free } else { &mut counts.unassigned };
            *place += new(stream);
        }
        counts
    }
}

#[cfg(test)]
mod tests;
