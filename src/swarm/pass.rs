//! One pass over one `Swarm`, on whatever cluster it stands: what is read beside the watches, and what is
//! written. The real cluster is in `live`; the explorer of the tests has a small one in memory.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;

use super::{
    acknowledge::Answer,
    handover::{Epoch, Published, Refresh},
    history::parts,
    memory::{Memories, Memory},
    plan::{Desired, Immutable, Part, Publish},
    polls,
    watches::{PodFacts, WorkloadFacts, WorkloadView},
};
use crate::{
    acknowledgement::Key,
    api::Swarm,
    controller::{Error, Notice},
};

/// Pods read at a time.
const CONCURRENCY: usize = 16;

/// What a pass needs of the cluster beside what the watches bring. Reads come from the API server itself,
/// not from a cache.
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

    /// What a worker says it runs, or why that is not known. One that signs has to sign with the key, if there
    /// is one.
    fn ask(
        &self,
        pod: &PodFacts,
        key: Option<&Key>,
    ) -> impl Future<Output = Result<Answer, String>> + Send;

    /// A new key for workers to sign with.
    fn secret(&self) -> Option<Arc<str>>;

    /// Writes the next file over exactly the one that was read; `None`: somebody else was faster.
    fn publish(
        &self,
        publish: &Publish,
    ) -> impl Future<Output = Result<Option<ObjectMeta>, Error>> + Send;

    /// Takes the answer to that write, so that the next pass sees it before the watch brings it.
    fn published(&self, metadata: &ObjectMeta, publish: &Publish);

    /// Writes a part over exactly the one that was read, and takes the answer; whether nobody was faster.
    fn part(&self, part: &Part) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Writes the immutable file and points the template at it.
    fn pin(&self, immutable: Immutable) -> impl Future<Output = Result<(), Error>> + Send;

    /// Evicts a pod, exactly this one.
    fn evict(
        &self,
        worker: &str,
        uid: &str,
    ) -> impl Future<Output = Result<Eviction, Error>> + Send;

    /// Changes a pod, exactly this one, so that the kubelet brings its volumes up to date at once; whether
    /// it was there.
    fn nudge(
        &self,
        worker: &str,
        uid: &str,
        epoch: Epoch,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Sets the number of workers.
    fn scale(&self, replicas: u32) -> impl Future<Output = Result<(), Error>> + Send;
}

/// What came of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    /// The pod goes.
    Done,
    /// It is gone already, or another one has its name.
    Gone,
    /// It stays, for this reason.
    Refused(String),
}

/// Which workers were read from the API server itself, and what was published, at least, when they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirmed {
    /// One by one, by name.
    pub each: BTreeMap<Arc<str>, Epoch>,
    /// All of them: whoever is not among the pods has none.
    pub all: Epoch,
}

impl Confirmed {
    /// What was published, at least, when the pod of this worker was read.
    #[must_use]
    pub fn of(&self, worker: &str) -> Epoch {
        self.each.get(worker).copied().unwrap_or(0).max(self.all)
    }
}

/// Looks at what the decision depends on and no watch brings.
pub(super) async fn look(
    cluster: &impl Cluster,
    swarm: &Swarm,
    view: &mut WorkloadView,
    memory: &mut Memory,
) -> Result<Confirmed, Error> {
    memory.knows(view, || cluster.secret());
    memory.parts = parts::read(swarm, view, &memory.parts);
    let published = polls::published(swarm, view, memory);
    let confirmed = match &published {
        Some(published) => confirm(cluster, view, published, memory).await?,
        None => Confirmed::default(),
    };
    if confirmed.all > 0 {
        memory.listed(view, confirmed.all);
    }
    // After that: a pod that was found in place of one that is gone has just been made, and is not to be
    // restarted because it has not answered yet.
    memory.seen(view, published.as_deref());
    memory.pending(view, cluster.now());
    memory.evictions.seen(&view.pods);
    polls::ask(cluster, view, published.as_deref(), memory).await;
    Ok(confirmed)
}

/// Reads pods from the API server itself where having none frees streams: a watch may not have brought yet
/// a pod that was made, and has read its file, before the last one was published.
async fn confirm(
    cluster: &impl Cluster,
    view: &mut WorkloadView,
    published: &Published,
    memory: &Memory,
) -> Result<Confirmed, Error> {
    let mut confirmed = Confirmed::default();
    if (published.barrier.is_some() || waits_for_silent(view, published, memory))
        && let Some(workload) = &view.workload
    {
        // A barrier ends when all have acknowledged: also those that no watch has brought yet, and those that
        // have no pod yet. A worker that answers nothing lets go with another pod than those of a list.
        view.pods = cluster.pods(workload).await?;
        confirmed.all = published.epoch;
    }
    let releasing: BTreeSet<_> = published.releasing.keys().map(|(_, worker)| worker).collect();
    let runs = |worker: &Arc<str>| {
        let pod = view.pods.iter().find(|pod| pod.name == *worker);
        pod.is_some_and(|pod| !pod.stopped && pod.node.is_some())
    };
    let gone: Vec<Arc<str>> = releasing.into_iter().filter(|w| !runs(w)).cloned().collect();
    let reads = gone.into_iter().map(|worker| async move { (cluster.pod(&worker).await, worker) });
    let reads: Vec<_> = reads.collect();
    let mut reads = futures::stream::iter(reads).buffer_unordered(CONCURRENCY);
    while let Some((read, worker)) = reads.next().await {
        let pod = read?;
        view.pods.retain(|pod| pod.name != worker);
        view.pods.extend(pod);
        confirmed.each.insert(worker, published.epoch);
    }
    view.pods.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(confirmed)
}

/// Whether a pod that has never answered is to let go of something.
fn waits_for_silent(view: &WorkloadView, published: &Published, memory: &Memory) -> bool {
    let silent = view.pods.iter().filter(|pod| {
        let loaded = memory.reports.get(&pod.uid).and_then(|report| report.loaded);
        !pod.stopped && pod.node.is_some() && loaded.is_none()
    });
    let silent: BTreeSet<_> = silent.map(|pod| &pod.name).collect();
    published.releasing.keys().any(|(_, worker)| silent.contains(worker))
}

/// Writes what was decided: the file first, and what is done to pods only once it is there.
pub(super) async fn write(
    cluster: &impl Cluster,
    swarm: &Swarm,
    memories: &Memories,
    desired: Desired,
) -> Result<Vec<Notice>, Error> {
    let key = swarm.key();
    if let Some(memory) = desired.memory {
        memories.put(key.clone(), memory);
    }
    let mut notices = Vec::new();
    if let Some(publish) = desired.publish {
        // Of two writers the slower decides anew on what is there then.
        let Some(metadata) = cluster.publish(&publish).await? else { return Ok(notices) };
        cluster.published(&metadata, &publish);
        memories.change(&key, |memory| {
            memory.published = Some(Arc::clone(&publish.published));
            let snapshot = Arc::make_mut(&mut memory.snapshot);
            for (reason, count) in publish.moves {
                *snapshot.counters.moves.entry(reason).or_default() += count;
            }
        });
        notices.extend(publish.notices);
        for part in &publish.parts {
            // What is not written now is behind its head, and put right before anything else is decided.
            if !cluster.part(part).await? {
                return Ok(notices);
            }
        }
    }
    if let Some(immutable) = desired.immutable {
        cluster.pin(immutable).await?;
    }
    for refresh in desired.refresh {
        let (notice, counted) = match &refresh {
            Refresh::Evict { worker, uid } => match cluster.evict(worker, uid).await? {
                Eviction::Done => {
                    let note = format!("evicted pod {worker} so that it reads its new list");
                    (Some((false, "WorkerRefreshed", note)), Some("evicted"))
                }
                // Another pod of that name, or none: this one is gone already.
                Eviction::Gone => (None, None),
                Eviction::Refused(why) => {
                    let note = format!("pod {worker} stays: {why}");
                    (Some((true, "EvictionRefused", note)), Some("refused"))
                }
            },
            Refresh::Nudge { worker, uid, epoch } => {
                let nudged = cluster.nudge(worker, uid, *epoch).await?;
                (None, nudged.then_some("reloaded"))
            }
        };
        memories.change(&key, |memory| memory.refreshed(&refresh, counted, cluster.now()));
        notices.extend(notice.map(|(warning, reason, note)| Notice {
            warning,
            reason,
            note,
            node: None,
        }));
    }
    if let Some(replicas) = desired.scale {
        cluster.scale(replicas).await?;
        let workload = &swarm.spec.workload;
        let note = format!("{} {} scaled to {replicas}", workload.kind.as_str(), workload.name);
        notices.push(Notice { warning: false, reason: "Scaled", note, node: None });
    }
    Ok(notices)
}

impl Memory {
    /// Notes the pods that the API server listed when the file was at this version. One that was not in an
    /// earlier list was made after it.
    fn listed(&mut self, view: &WorkloadView, epoch: Epoch) {
        let uids: BTreeSet<_> = view.pods.iter().map(|pod| Arc::clone(&pod.uid)).collect();
        if let Some((earlier, known)) = self.listed.replace((epoch, uids.clone())) {
            for uid in uids.difference(&known) {
                self.heirs.entry(Arc::clone(uid)).or_insert(earlier);
            }
        }
        self.heirs.retain(|uid, _| uids.contains(uid));
    }

    /// Notes since when pods have waited for a node: by their creation, which a restart of the operator
    /// does not change.
    fn pending(&mut self, view: &WorkloadView, now: Instant) {
        for pod in view.pods.iter().filter(|pod| pod.node.is_none()) {
            let age = pod.created.map(|created| Timestamp::now().duration_since(created));
            let age = age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default();
            let since = now.checked_sub(age).unwrap_or(now);
            self.absent.entry(Arc::clone(&pod.name)).or_insert(since);
        }
    }

    /// Counts what was done to a pod, and remembers whose eviction was refused.
    fn refreshed(&mut self, refresh: &Refresh, counted: Option<&'static str>, now: Instant) {
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
}
