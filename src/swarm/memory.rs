//! The memory between passes, which is lost with the process. A process without it waits longer,
//! and gives no stream to a second worker.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    acknowledge::Answer,
    evictions::Evictions,
    file::stored::Part,
    handover::{Epoch, Published, Refresh},
    secret::{self, Secret},
    snapshot::Snapshot,
    watches::{PodFacts, WorkloadView},
};
use crate::{
    api::SwarmStatus,
    clock,
    controller::{self, Error, Verdict, contest::Rounds},
};

/// Number of unanswered requests after which a worker counts as silent: a busy or starting worker
/// misses some.
const ASKED: u32 = 3;

/// Longest time between two attempts to write a record that cannot be written.
const PAUSE: Duration = Duration::from_secs(30);

/// A template without a ready pod: its hash, and since when.
pub type Stalled = (Option<Box<str>>, Instant);

/// The last report of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The time of the last request.
    pub asked: Instant,
    /// Number of consecutive requests without an answer.
    pub failures: u32,
    /// The time of the first of them.
    pub failing: Option<Instant>,
    /// Why it did not answer the last time.
    pub error: Option<Arc<str>>,
    /// The version that it has acknowledged last.
    pub loaded: Option<u64>,
    /// The last answer.
    pub answer: Option<Arc<Answer>>,
}

impl Report {
    /// Reports whether the last request was answered.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        self.failures == 0 && self.answer.is_some()
    }

    /// Reports whether the pod has never answered, and need not be expected to.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.answer.is_none() && self.failures >= ASKED
    }
}

/// The memory of one `Swarm`.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// By UID of the pod.
    pub reports: BTreeMap<Arc<str>, Report>,
    /// The highest credible version that any pod ever reported, including pods that are gone.
    pub highest: u64,
    /// By UID of the pod: the version that was published when it was first seen, or last seen
    /// before it was started.
    pub born: BTreeMap<Arc<str>, u64>,
    /// The version that was published when the pods were last listed.
    pub looked: Option<u64>,
    /// By UID: pods that were there before this process, and of which it is not known what they
    /// read.
    pub unreported: BTreeSet<Arc<str>>,
    /// Under a barrier, or while a worker that answers nothing is waited for: the pods that the API
    /// server listed last, and the version that was published then.
    pub listed: Option<(u64, BTreeSet<Arc<str>>)>,
    /// By UID: pods that were created after the API server had listed all of them, with a lower
    /// bound of the version published then.
    pub heirs: BTreeMap<Arc<str>, u64>,
    /// The time at which an eviction of each worker was refused.
    pub refused: BTreeMap<Arc<str>, Instant>,
    /// The last action on the pod of a worker, with its time.
    pub refreshed: BTreeMap<Arc<str>, (&'static str, Instant)>,
    /// The key of signatures.
    pub secret: Secret,
    /// Accepted evictions, and their outcomes.
    pub evictions: Evictions,
    /// The time since which nothing has shown that a worker runs.
    pub away: BTreeMap<Arc<str>, Instant>,
    /// The newest template of a `Deployment`, and since when it has had no ready pod.
    pub stalled: Option<Stalled>,
    /// The time since which a `Deployment` has had another number of pods than it should.
    pub incomplete: Option<Instant>,
    /// The last published file, with the content it was read from or written to.
    pub published: Option<Arc<Published>>,
    /// Set while writes of the file fail.
    pub unwritten: Option<Unwritten>,
    /// How often the file was restored after another client had changed it, and the last time.
    pub restored: Option<(Rounds, Instant)>,
    /// The parts of a divided file as they were read last.
    pub parts: Vec<Option<Part>>,
    /// The time since which no worker has a stream.
    pub free: BTreeMap<Arc<str>, Instant>,
    /// The time since which a worker must release a stream.
    pub releasing: BTreeMap<(Arc<str>, Arc<str>), Instant>,
    /// The time since which there is a barrier.
    pub barrier: Option<Instant>,
    /// The time since which assigned streams have not been acknowledged, and since which no worker
    /// had them.
    pub granted: BTreeMap<Arc<str>, Granted>,
    /// Workers that have not read their list: the pod, the version that it reports, and since when.
    pub unread: BTreeMap<Arc<str>, (Arc<str>, Option<u64>, Instant)>,
    /// The time since which moves wait for workers that should gain streams.
    pub awaiting: Option<Instant>,
    /// The time since which moves wait for workers that prepare streams.
    pub preparing: Option<Instant>,
    /// The immutable file that the template has got, until those before it are removed.
    pub pinned: Option<Pinned>,
    /// The last measured weight of each stream.
    pub weights: Arc<BTreeMap<Arc<str>, f64>>,
    /// The time since which the heaviest worker has had too much weight.
    pub heavy: Option<Instant>,
    /// The desired number of workers, and the time of its last change.
    pub replicas: Option<(u32, Instant)>,
    /// The status that was written last, and when its figures were made.
    pub status: Option<(Instant, SwarmStatus)>,
    /// Stuck workers that were reported.
    pub stuck: Vec<Arc<str>>,
    /// The state shown by metrics and the page.
    pub snapshot: Arc<Snapshot>,
}

/// Writes of the file, or of a part of it, that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritten {
    /// The number of failures in a row.
    pub count: u32,
    /// The time of the last one.
    pub at: Instant,
    /// The reason, for the condition.
    pub verdict: Verdict,
}

impl Unwritten {
    /// Returns the time until the next attempt, if it is not due.
    #[must_use]
    pub fn rests(&self, now: Instant) -> Option<Duration> {
        let pause = Duration::from_secs(1 << self.count.min(5)).min(PAUSE);
        let left = pause.saturating_sub(now.saturating_duration_since(self.at));
        Some(left).filter(|left| !left.is_zero())
    }
}

/// A stream on its last step.
#[derive(Clone, Debug, PartialEq)]
pub struct Granted {
    /// The worker that gets it.
    pub worker: Arc<str>,
    /// The version of the file that removed it.
    pub epoch: u64,
    /// The time since which no worker had it.
    pub since: Instant,
}

/// An immutable file that the template has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// Its version.
    pub epoch: Epoch,
    /// The names of all immutable files, as the API server listed them after that.
    pub maps: Vec<String>,
}

/// The memories of all `Swarm`s.
pub type Memories = controller::Memories<Memory>;

impl Memory {
    /// The last decision.
    #[must_use]
    pub fn decision(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.decided.then(|| Arc::clone(&self.snapshot))
    }

    /// Reports whether a pod has not answered yet and may still do so.
    #[must_use]
    pub fn may_answer(&self, pod: &PodFacts) -> bool {
        let report = self.reports.get(&pod.uid);
        let asked = report.is_some_and(|report| report.answer.is_some() || report.is_silent());
        !pod.started || pod.ip.is_some() && !asked
    }

    /// The version of the file when a pod was made, at least, if its worker is one that answers
    /// nothing. One that answers says by itself what it has read, which proves more: its kubelet
    /// may have given it an older file from a cache.
    #[must_use]
    pub fn heir(&self, pod: &PodFacts) -> Option<Epoch> {
        let answers = self.evictions.has_proved(&pod.name) || self.may_answer(pod);
        self.heirs.get(&pod.uid).copied().filter(|_| !answers)
    }
}

impl Memory {
    /// Keeps the key in the `ConfigMap`: an author who may write it may choose the key as well as
    /// the lists.
    pub(super) fn knows(&mut self, view: &WorkloadView, new: impl FnOnce() -> Option<Arc<str>>) {
        if let Some(text) = secret::standing(view) {
            if self.secret.known.as_deref() != Some(text) {
                self.secret.known = Some(text.into());
            }
        } else if self.secret.text().is_none() {
            self.secret.next = new();
        }
    }

    /// Reports whether a pod itself has verifiably reported that it runs nothing. Until there is a
    /// key, anyone can report that for pods that sign later.
    pub(super) fn is_idle(&self, pod: &PodFacts) -> bool {
        let answer = self.reports.get(&pod.uid).and_then(|report| report.answer.as_ref());
        let proven = !pod.signs || self.secret.known.is_some();
        proven && answer.is_some_and(|said| said.version.is_none() && said.jobs().is_empty())
    }

    /// Notes the pods that the API server listed when the file was at this version. One that was
    /// not in an earlier list was made after it.
    pub(super) fn listed(&mut self, view: &WorkloadView, epoch: Epoch) {
        let uids: BTreeSet<_> = view.pods.iter().map(|pod| Arc::clone(&pod.uid)).collect();
        if let Some((earlier, known)) = self.listed.replace((epoch, uids.clone())) {
            for uid in uids.difference(&known) {
                self.heirs.entry(Arc::clone(uid)).or_insert(earlier);
            }
        }
        self.heirs.retain(|uid, _| uids.contains(uid));
    }

    /// Notes since when pods have waited for a node: by their creation, which a restart of the
    /// operator does not change.
    pub(super) fn pending(&mut self, view: &WorkloadView, now: Instant) {
        for pod in view.pods.iter().filter(|pod| pod.node.is_none()) {
            let age = pod.created.map(|created| clock::timestamp().duration_since(created));
            let age = age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default();
            let since = now.checked_sub(age).unwrap_or(now);
            self.away.entry(Arc::clone(&pod.name)).or_insert(since);
        }
    }

    /// Notes the outcome of a write of the file with all its parts. Where another writer was
    /// faster, nothing has failed.
    pub(super) fn written(&mut self, outcome: &Result<bool, Error>, now: Instant) {
        match outcome {
            Ok(true) => self.unwritten = None,
            Ok(false) | Err(Error::Outpaced) => {}
            Err(error) => {
                let before = self.unwritten.as_ref().map_or(0, |before| before.count);
                let count = before.saturating_add(1);
                self.unwritten = Some(Unwritten { count, at: now, verdict: error.verdict() });
            }
        }
    }

    /// Counts the actions on a pod, and remembers refused evictions.
    pub(super) fn refreshed(
        &mut self,
        refresh: &Refresh,
        counted: Option<&'static str>,
        now: Instant,
    ) {
        if let Some(action) = counted {
            let snapshot = Arc::make_mut(&mut self.snapshot);
            *snapshot.counters.refreshes.entry(action).or_default() += 1;
            let (Refresh::Evict { worker, .. } | Refresh::Nudge { worker, .. }) = refresh;
            self.refreshed.insert(Arc::clone(worker), (action, now));
        }
        if let Refresh::Evict { worker, uid } = refresh {
            match counted {
                Some("refused") => self.refused.insert(Arc::clone(worker), now),
                Some(_) => {
                    let epoch = self.published.as_ref().map_or(0, |published| published.epoch);
                    self.evictions.evicted(worker, uid, epoch, now);
                    self.refused.remove(worker)
                }
                None => None,
            };
        }
    }

    /// Records the existing pods. A pod without a node reads the file that is published now, or a
    /// later one; so does one that waits for the first file. A pod that did not exist before has
    /// read the file that was published then, or a later one: its kubelet mounts the file before it
    /// starts the pod. For pods that exist when this process starts, the newest file is assumed, so
    /// that the start restarts no worker, unless workers must release something, or the file
    /// records that they existed before their list: they may never have read it.
    pub(super) fn seen(&mut self, view: &WorkloadView, published: Option<&Published>) {
        let epoch = published.map_or(0, |published| published.epoch);
        let before = self.looked.replace(epoch);
        let first = before.is_none();
        for pod in &view.pods {
            let unreported = first
                && published.is_some_and(|published| {
                    published.barrier.is_some()
                        || published.releasing.keys().any(|(_, worker)| *worker == pod.name)
                        || published.outdated.get(&pod.name) == Some(&pod.uid)
                });
            let new = !self.born.contains_key(&pod.uid) && !unreported;
            let waits = !pod.started && self.born.get(&pod.uid) == Some(&0);
            if pod.node.is_none() || waits {
                self.born.insert(Arc::clone(&pod.uid), epoch);
            } else if new && (first || !self.unreported.contains(&pod.uid)) {
                // It may have been created before the last file.
                let least = before.map_or(epoch, |before| before.min(epoch));
                self.born.insert(Arc::clone(&pod.uid), least);
            } else if unreported {
                self.unreported.insert(Arc::clone(&pod.uid));
            }
        }
    }

    /// Stores a worker's report.
    pub(super) fn reported(&mut self, uid: Arc<str>, answer: Result<Answer, String>, at: Instant) {
        let known = self.reports.remove(&uid);
        let loaded = known.as_ref().and_then(|known| known.loaded);
        let report = match answer {
            Ok(answer) => Report {
                asked: at,
                failures: 0,
                failing: None,
                error: None,
                // After a restart it may not know it yet. But a worker that reports a lower version
                // than before has read something else since: a file that someone else wrote, or
                // that existed before the `Swarm` was deleted.
                loaded: answer.version.or(loaded),
                answer: Some(Arc::new(answer)),
            },
            Err(text) => Report {
                asked: at,
                failures: known.as_ref().map_or(1, |known| known.failures.saturating_add(1)),
                failing: known.as_ref().and_then(|known| known.failing).or(Some(at)),
                error: Some(text.into()),
                loaded,
                answer: known.and_then(|known| known.answer),
            },
        };
        self.reports.insert(uid, report);
    }
}

#[cfg(test)]
mod tests;
