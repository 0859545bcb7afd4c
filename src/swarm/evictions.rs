//! Evictions that did not help: which worker rests, and for how long.
//!
//! A worker whose version does not rise is evicted again and again: its application ignores the
//! file, or its template mounts another one. Each eviction doubles the pause before the next one of
//! that worker, and meanwhile the budget of `spec.refresh.maxUnavailable` is for the others.
//!
//! Only this process remembers that. After a restart of the operator the pauses of such a worker
//! begin at 5 s again, which costs it at most seven evictions within five minutes. Nothing here
//! decides which worker has a stream.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    handover::{Epoch, Name, Turn, Turns, Worker},
    watches::PodFacts,
};

/// The pause after the first eviction: about one restart of a pod.
const FIRST: Duration = Duration::from_secs(5);

/// The longest pause, as long as that of a kubelet before a container that crashes: 17 evictions in
/// the first hour, and 12 in each one after it.
const LONGEST: Duration = Duration::from_mins(5);

/// The memory of one `Swarm`'s evictions.
#[derive(Clone, Debug, Default)]
pub struct Evictions {
    attempts: BTreeMap<Name, Attempts>,
    /// The highest version that each worker has reported, if it ever reported one.
    proved: BTreeMap<Name, Epoch>,
    /// The UIDs of evicted pods that no watch has shown as terminating yet.
    leaving: BTreeSet<Arc<str>>,
}

#[derive(Clone, Copy, Debug)]
struct Attempts {
    /// Since the version last rose.
    count: u32,
    /// The time of the last eviction.
    at: Instant,
    /// The version of the file at the last one.
    epoch: Epoch,
}

impl Attempts {
    fn pause(self) -> Duration {
        let doubled = 2_u32.saturating_pow(self.count.saturating_sub(1));
        FIRST.saturating_mul(doubled).min(LONGEST)
    }
}

impl Evictions {
    /// Notes an eviction that the API server accepted while the file had this version.
    pub fn evicted(&mut self, worker: &Name, uid: &Arc<str>, epoch: Epoch, now: Instant) {
        self.leaving.insert(Arc::clone(uid));
        let before = self.attempts.get(worker).copied();
        // A worker that never reports a version is evicted again for a newer list only.
        let news = |before: &Attempts| !self.proved.contains_key(worker) && epoch > before.epoch;
        let count = before.filter(|before| !news(before)).map_or(0, |before| before.count);
        let attempts = Attempts { count: count.saturating_add(1), at: now, epoch };
        self.attempts.insert(Arc::clone(worker), attempts);
    }

    /// Reports whether a pod of this worker has ever reported a version.
    #[must_use]
    pub fn has_proved(&self, worker: &str) -> bool {
        self.proved.contains_key(worker)
    }

    /// Forgets the pods that a watch shows as terminating or no longer shows.
    pub fn seen(&mut self, pods: &[PodFacts]) {
        self.leaving.retain(|uid| pods.iter().any(|pod| pod.uid == *uid && !pod.terminating));
    }

    /// Reports whether a pod was evicted and no watch has shown it as terminating yet.
    #[must_use]
    pub fn is_leaving(&self, uid: &str) -> bool {
        self.leaving.contains(uid)
    }

    /// Forgets the evictions of workers whose version rises, and of workers that no longer exist. A
    /// version above that of the file proves nothing.
    pub fn learn(&mut self, workers: &BTreeMap<Name, Worker>, epoch: Epoch) {
        for (name, worker) in workers {
            let Some(loaded) = worker.pod.as_ref().and_then(|pod| pod.loaded) else { continue };
            let loaded = if loaded > epoch { 0 } else { loaded };
            if self.proved.get(name).is_none_or(|before| loaded > *before) {
                self.proved.insert(Arc::clone(name), loaded);
                self.attempts.remove(name);
            }
        }
        self.proved.retain(|name, _| workers.contains_key(name));
        self.attempts.retain(|name, _| workers.contains_key(name));
    }

    /// The turn of each worker that was evicted.
    #[must_use]
    pub fn turns(&self, now: Instant) -> Turns {
        let turn = |(name, attempts): (&Name, &Attempts)| {
            let turn = Turn {
                attempts: attempts.count,
                rests: now.saturating_duration_since(attempts.at) < attempts.pause(),
                silent_since: (!self.proved.contains_key(name)).then_some(attempts.epoch),
            };
            (Arc::clone(name), turn)
        };
        self.attempts.iter().map(turn).collect()
    }

    /// Returns the number of evictions of a worker since its version last rose.
    #[must_use]
    pub fn without_progress(&self, worker: &str) -> u32 {
        self.attempts.get(worker).map_or(0, |attempts| attempts.count)
    }

    /// Returns a fingerprint of the inputs of a decision, without times.
    #[cfg(test)]
    pub(super) fn fingerprint(&self) -> impl std::hash::Hash {
        // More of them only prolong the same order.
        let order = self.attempts.iter().map(|(name, a)| (Arc::clone(name), a.count.min(2)));
        let order: Vec<_> = order.collect();
        let proved: Vec<_> = self.proved.keys().cloned().collect();
        (order, self.leaving.clone(), proved)
    }
}

#[cfg(test)]
mod tests;
