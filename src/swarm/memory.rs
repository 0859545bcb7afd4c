//! What is remembered between passes and lost with the process. Who loses it waits longer, and gives no
//! stream to a second worker.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use super::{
    acknowledge::Answer,
    evictions::Evictions,
    handover::{Epoch, Published},
    history::parts::Part,
    secret::Secret,
    snapshot::Snapshot,
    watches::{Key, PodFacts},
};
use crate::api::SwarmStatus;

/// How often a worker is asked in vain before it counts as one that answers nothing: one that is busy or just
/// starting misses a question.
const ASKED: u32 = 3;

/// The last that a pod said.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// When it was asked last.
    pub asked: Instant,
    /// How often in a row it did not answer.
    pub failures: u32,
    /// Why it did not answer the last time.
    pub error: Option<Arc<str>>,
    /// The version that it has acknowledged last.
    pub loaded: Option<u64>,
    /// What it answered last.
    pub answer: Option<Arc<Answer>>,
}

/// What is remembered of one `Swarm`.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// By UID of the pod.
    pub reports: BTreeMap<Arc<str>, Report>,
    /// The highest version that any pod ever told, if it can be believed: also that of pods that are gone.
    pub highest: u64,
    /// By UID of the pod: the version that was published when it was first seen, or last seen before it
    /// was started.
    pub born: BTreeMap<Arc<str>, u64>,
    /// The version that was published when the pods were looked at last.
    pub looked: Option<u64>,
    /// By UID: pods that were there before this process, and of which it is not known what they read.
    pub untold: BTreeSet<Arc<str>>,
    /// Under a barrier, or while a worker that answers nothing is waited for: the pods that the API server
    /// listed last, and the version that was published then.
    pub listed: Option<(u64, BTreeSet<Arc<str>>)>,
    /// By UID: pods that were made after the API server was asked for all of them, and the version that was
    /// published then, at least.
    pub heirs: BTreeMap<Arc<str>, u64>,
    /// When an eviction of a worker was refused.
    pub refused: BTreeMap<Arc<str>, Instant>,
    /// What was last done to the pod of a worker, and when.
    pub refreshed: BTreeMap<Arc<str>, (&'static str, Instant)>,
    /// What answers are signed with.
    pub secret: Secret,
    /// Evictions that were accepted, and what came of them.
    pub evictions: Evictions,
    /// Since when a worker has had no pod on a node.
    pub absent: BTreeMap<Arc<str>, Instant>,
    /// What was published last, and the content it was read from or written to.
    pub published: Option<Arc<Published>>,
    /// The parts of a divided file as they were read last.
    pub parts: Vec<Option<Part>>,
    /// Since when nobody has a stream.
    pub free: BTreeMap<Arc<str>, Instant>,
    /// Since when a stream is to be let go of by a worker.
    pub releasing: BTreeMap<(Arc<str>, Arc<str>), Instant>,
    /// Since when there is a barrier.
    pub barrier: Option<Instant>,
    /// Since when streams that were given have not been acknowledged, and since when nobody had them.
    pub granted: BTreeMap<Arc<str>, Granted>,
    /// Workers that have a list and have not read it: the pod, the version that it says, and since when.
    pub unread: BTreeMap<Arc<str>, (Arc<str>, Option<u64>, Instant)>,
    /// Since when moves wait for workers that are to get something.
    pub awaiting: Option<Instant>,
    /// The last measured weight of each stream.
    pub weights: Arc<BTreeMap<Arc<str>, f64>>,
    /// Since when the heaviest worker has carried too much.
    pub heavy: Option<Instant>,
    /// How many workers there were to be, and when that changed last.
    pub replicas: Option<(u32, Instant)>,
    /// The status that was written last, and when its figures were made.
    pub status: Option<(Instant, SwarmStatus)>,
    /// Stuck workers that were told of.
    pub stuck: Vec<Arc<str>>,
    /// What metrics and the page show.
    pub snapshot: Arc<Snapshot>,
}

/// A stream on its last step.
#[derive(Clone, Debug, PartialEq)]
pub struct Granted {
    /// The worker that gets it.
    pub worker: Arc<str>,
    /// The version of the file that says so.
    pub epoch: u64,
    /// Since when nobody had it.
    pub since: Instant,
}

/// All of them; clones share them.
#[derive(Clone, Default)]
pub struct Memories(Arc<Mutex<HashMap<Key, Memory>>>);

impl Memory {
    /// Whether a pod has said nothing yet and may still do so.
    #[must_use]
    pub fn may_answer(&self, pod: &PodFacts) -> bool {
        let report = self.reports.get(&pod.uid);
        let asked =
            || report.is_some_and(|report| report.answer.is_some() || report.failures >= ASKED);
        !pod.started || pod.ip.is_some() && !asked()
    }

    /// The version of the file when a pod was made, at least, if its worker is one that answers nothing. One
    /// that answers says by itself what it has read, which proves more: its kubelet may have given it an
    /// older file from a cache.
    #[must_use]
    pub fn heir(&self, pod: &PodFacts) -> Option<Epoch> {
        let answers = self.evictions.has_proved(&pod.name) || self.may_answer(pod);
        self.heirs.get(&pod.uid).copied().filter(|_| !answers)
    }
}

impl Memories {
    /// What is remembered of one.
    #[must_use]
    pub fn get(&self, key: &Key) -> Memory {
        self.all().get(key).cloned().unwrap_or_default()
    }

    /// Remembers.
    pub fn put(&self, key: Key, memory: Memory) {
        self.all().insert(key, memory);
    }

    /// Changes what is remembered.
    pub fn change<T>(&self, key: &Key, change: impl FnOnce(&mut Memory) -> T) -> T {
        change(self.all().entry(key.clone()).or_default())
    }

    /// Drops what is remembered.
    pub fn forget(&self, key: &Key) {
        self.all().remove(key);
    }

    /// The last decision on each, by namespace and name.
    #[must_use]
    pub fn snapshots(&self) -> BTreeMap<Key, Arc<Snapshot>> {
        let all = self.all();
        let snapshots = all.iter().filter(|(_, memory)| memory.snapshot.decided);
        snapshots.map(|(key, memory)| (key.clone(), Arc::clone(&memory.snapshot))).collect()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
