//! The handover of a stream between workers, without ever running on both: one pure function,
//! [`step`].
//!
//! # The protocol
//!
//! There is one file per Swarm, and each version of it has an *epoch*, one higher than the one
//! before. It says which worker has which streams, and beside that which streams are still
//! *releasing*:
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
//! - its pod has acknowledged an epoch of at least r (and not one above the published: such a pod
//!   has read a file of which we know nothing), or
//! - it has no pod, or its pod can never run anything again; both as read from the API server, not
//!   from a cache, after file r was there ([`Worker::confirmed`]), or
//! - its pod answers nothing, and was made after file r was there ([`Pod::heir`]): the one before
//!   is gone,
//!
//! and if [`Worker::successor`] is known, it is at least r too. Nothing else: not time, not
//! `NotReady`, not a node that is gone from sight. A pod that may have come before the revocation
//! and has not acknowledged blocks as its predecessor did.
//!
//! # Why that suffices
//!
//! What a pod runs was listed for its worker in a file that it has read, it never reads an older
//! file than it has read, and at most one pod of a name exists. A stream is listed for b only when
//! nobody has it and nobody releases it. Take any other worker a that was ever listed with it: file
//! r removed it, and a has released it since:
//!
//! - by an acknowledgement: that pod has stopped what file r does not list, and reads only newer
//!   ones; so do its successors;
//! - by having nothing that runs, after file r was there, or another pod than before: whatever
//!   comes later reads r or newer.
//!
//! The explorer in the tests of this module takes that apart in every order of events of small
//! worlds, and finds an overlap for each of these rules that is weakened.
//!
//! # What the rules say beyond that
//!
//! - A stream that returns to the worker that is still releasing it is granted at once, without
//!   waiting for that worker (but not while a second one releases it): no second owner can exist,
//!   since no other worker may have it before this worker releases it. The release is forgotten in
//!   the same file, so that a late acknowledgement of it ends nothing; a later revocation has a
//!   later epoch.
//! - A stream leaves a worker that is wanted only for one that is ready to take it (make before
//!   break), and not while it could not be granted there: under a barrier, or while a third worker
//!   still releases it.
//! - An epoch above the published one that some pod has loaded (or that the status remembers)
//!   proves that the file was lost or set back: other pods may have read files of which we know
//!   nothing. Then the file is published again under a *barrier* ([`Published::distrusted`]):
//!   nothing is granted until every live pod has loaded an epoch from there on. While such a pod
//!   lives and a barrier stands, the next file raises the barrier, but none is written for that
//!   alone: a worker that makes its versions up would cost a write at every step.
//! - A stream that two workers have in one file (an edit by hand; the original operator did it)
//!   stays with the first and is removed from the others, as in any other revocation.
//! - A release, a barrier or a list's version above the file's own epoch (again: an edit by hand)
//!   becomes the next file's.
//!
//! # What the caller promises
//!
//! - It writes the result only over the very file that it read (resource version), and evicts and
//!   nudges only after that write.
//! - `workers` has an entry for every pod of the workload and for each of [`Published::workers`]: a
//!   missing one was not read, and blocks.
//! - [`Pod::loaded`] belongs to this pod (its UID), and is requested before the first step after a
//!   start: a pod in an unknown state is refreshed, and one that is ahead must be known before
//!   anything is granted.
//! - `highest_reported` forgets nothing: what a pod told that is gone counts, as does the epoch in
//!   the status.
//! - A worker that does not answer releases its streams while it has no pod, which may be too short
//!   to be observed, or with its next pod: so all pods are listed while such a worker is awaited.
//! - Where history is unknown from the start (a file of another author, none at all though pods
//!   run, an epoch below the one in the status) it begins with [`Published::distrusted`], or passes
//!   the higher epoch as `highest_reported`.
//! - [`Worker::successor`] is the least that any later pod of that name can read, and does not
//!   fall. For a `StatefulSet` with `RollingUpdate` the lower of its two revisions: pods below the
//!   partition, and during a roll-out those that are not yet updated, come back with the old one.
//! - With a mutable `ConfigMap` a kubelet may give a new pod a file from its cache, older than the
//!   API server's. Nothing here can see that: it is the reason for `configMap.immutable`.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

mod counts;
mod decide;
mod refresh;
mod release;

pub use counts::Counts;
pub use decide::step;
pub use refresh::{Turn, Turns, refresh_in_turn};

/// The version of a file: what workers report as loaded, and the fencing token.
pub type Epoch = u64;

/// The id of a stream, or the name of a worker (of its pod).
pub type Name = Arc<str>;

/// Every stream of the spec, in its order, with its target worker; `None`: unassigned. Ids are
/// distinct; of one that is not, the first place counts.
pub type Target = [(Name, Option<Name>)];

/// The highest epoch that a file may have: JSON's readers keep numbers up to here exactly.
pub const LARGEST_EPOCH: Epoch = 1 << 53;

/// The highest epoch that is accepted from a worker or from the status. At one file a second it is
/// reached after 142 million years, and as many are left then: a report of more (a time in
/// nanoseconds, say, or a number right below the largest) must not use up the numbers.
pub const BELIEVED_EPOCH: Epoch = LARGEST_EPOCH / 2;

/// Returns the reported epoch if it is credible; otherwise 0.
#[must_use]
pub const fn believed(told: Epoch) -> Epoch {
    if told > BELIEVED_EPOCH { 0 } else { told }
}

/// The contents of the `ConfigMap`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Version of the file; 0: there is no file yet.
    pub epoch: Epoch,
    /// The share of each worker.
    pub shares: BTreeMap<Name, Share>,
    /// Streams removed from a worker that may still run there, and the epoch of the
    /// file that took it.
    pub releasing: BTreeMap<(Name, Name), Epoch>,
    /// Lists before this epoch are unknown: until every live pod has loaded it, nothing is granted.
    pub barrier: Option<Epoch>,
    /// Silent workers, with the UID of the pod that existed before the list last changed: it must
    /// be refreshed, whichever leader finds this file. No rule of the protocol looks at it.
    pub outdated: BTreeMap<Name, Name>,
}

/// The share of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// In the order of the spec. Another order is no change: it is a set.
    pub streams: Vec<Name>,
    /// The epoch at which the set last changed; 0: it was always empty.
    pub version: Epoch,
}

impl Published {
    /// The worker in whose list a stream stands, for all of them.
    pub fn owners(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.shares
            .iter()
            .flat_map(|(worker, share)| share.streams.iter().map(move |stream| (stream, worker)))
    }

    /// Every worker that has or releases something: each needs its entry among the workers of a
    /// step.
    #[must_use]
    pub fn workers(&self) -> BTreeSet<&Name> {
        self.shares.keys().chain(self.releasing.keys().map(|(_, worker)| worker)).collect()
    }

    /// The same shares, after files that this one does not contain may have been read: a new epoch
    /// above all reported ones, under a barrier, and every release starts again.
    #[must_use]
    pub fn distrusted(&self, highest_reported: Epoch) -> Self {
        let epoch = self.next_epoch(highest_reported);
        let mut next = Self { epoch, ..self.clone() };
        next.bar(epoch);
        for share in next.shares.values_mut() {
            share.version = epoch;
        }
        next
    }

    /// The epoch of the next file.
    #[must_use]
    pub fn next_epoch(&self, highest_reported: Epoch) -> Epoch {
        self.epoch.max(believed(highest_reported)).saturating_add(1)
    }

    /// Earlier reports no longer count from here on.
    fn bar(&mut self, epoch: Epoch) {
        self.barrier = Some(epoch);
        self.releasing.values_mut().for_each(|since| *since = epoch);
    }
}

/// One pod as it is known now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent facts, each as the API server tells it"
)]
pub struct Pod {
    /// Of the pod: a refresh names it, so that its successor is not hit.
    pub uid: Name,
    /// Its condition Ready.
    pub ready: bool,
    /// It has a deletion timestamp.
    pub terminating: bool,
    /// It can never run anything again: its phase is final and every container is terminated; or it
    /// is terminating and was never bound to a node.
    pub stopped: bool,
    /// The highest epoch that this very pod has acknowledged.
    pub loaded: Option<Epoch>,
    /// It was created after the API server had listed all pods, when the file was at this epoch. So
    /// it has read that one or a later one, unless its kubelet gave it an older one from a cache.
    /// Known only of a worker that answers nothing.
    pub heir: Option<Epoch>,
    /// It was created when the file was at least at this epoch. Decides only whether it needs a
    /// refresh: it may have read an older file all the same.
    pub born: Option<Epoch>,
}

impl Pod {
    /// It may run something.
    fn live(&self) -> bool {
        !self.stopped
    }

    fn serves(&self) -> bool {
        self.ready && !self.terminating && !self.stopped
    }
}

/// One worker: the name, whether or not there is a pod of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worker {
    /// It should have streams: its ordinal is in range, or it is a live pod of the Deployment.
    pub wanted: bool,
    /// The pod of this name.
    pub pod: Option<Pod>,
    /// Lower bound of the published epoch when `pod` was read from the API server itself (a get, or
    /// a list without a resource version). A cache may not know yet of a pod that was born before
    /// the last file and has read the one before it. Matters only when there is no pod or it is
    /// stopped.
    pub confirmed: Epoch,
    /// Any later pod of this name reads at least this epoch (immutable `ConfigMap`s: what the
    /// template names that the workload's controller has observed). `None`: it reads the file that
    /// the API server has when it starts.
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
    /// They read it themselves; a nudge makes the kubelet deliver it at once.
    HotReload,
    /// Another component does that.
    None,
}

/// The handover rules of the spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Rules {
    /// No worker gets a stream before all others have released it. Otherwise it goes straight to
    /// its new worker; who still releases it is recorded all the same.
    pub exclusive: bool,
    /// The way in which pods load a new list.
    pub strategy: Strategy,
    /// `DeletePod`: how many wanted workers may be not ready at a time.
    pub max_unavailable: usize,
    /// `DeletePod`: a free stream waits for the others that are on their way to the same worker, so
    /// that it is restarted once and not once per stream. Lifted by the caller when one has waited
    /// long enough.
    pub gather: bool,
    /// `DeletePod`: nothing leaves its worker for the balance before every worker that gains by it
    /// is ready, so that each restarts once. Lifted by the caller after a while.
    pub await_targets: bool,
}

/// Why a stream was taken from its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Its target is another worker, and that one is ready.
    Moved,
    /// Its worker is not to have any.
    Unwanted,
    /// No worker may have it.
    Unassigned,
    /// It is not in the spec any more.
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
    /// Touch it, so that its kubelet delivers the file at once. The same at every step until it has
    /// loaded it.
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
    /// There is no pod, or a stopped one: to be read from the API server itself.
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
    /// Streams and who gets them: (stream, to).
    pub granted: Vec<(Name, Name)>,
    /// Actions after `publish` is written, or at once if there is none.
    pub refresh: Vec<Refresh>,
    /// Streams that nobody has or releases after this step, though they have a worker to be on.
    pub free: Vec<Name>,
    /// The awaited workers, in natural order.
    pub waiting: Vec<Waiting>,
}

#[cfg(test)]
mod tests;
