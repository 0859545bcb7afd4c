//! The workers, and the limits of each.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use super::{
    handover::{self, Epoch},
    memory::{Memory, Report, Stalled},
    settings::Settings,
    watches::{PodFacts, WorkloadFacts, WorkloadView},
};
use crate::{
    api::swarm::{Strategy, WorkloadKind},
    placement::assignment::Standing,
};

/// One worker.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Its name: that of its pod.
    pub name: Arc<str>,
    /// The limits on its gains and losses.
    pub standing: Standing,
    /// Its pod, if there is one.
    pub pod: Option<PodFacts>,
    /// The time since which nothing has shown that it runs: it has no pod on a node, or one that is
    /// not ready and does not answer. What it acknowledged before is no evidence.
    pub away: Option<Instant>,
    /// True if that has lasted longer than `spec.refresh.timeout`: the streams in its list count as
    /// not running, and it gets no more while another worker has room.
    pub is_lost: bool,
    /// The same, as the protocol sees it.
    pub handover: handover::Worker,
}

/// The workers that were read from the API server itself, with a lower bound of the published
/// version at that time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirmed {
    /// One by one, by name.
    pub each: BTreeMap<Arc<str>, Epoch>,
    /// All of them: a worker that is not among the pods has none.
    pub all: Epoch,
}

impl Confirmed {
    /// Returns a lower bound of the published version when the pod of this worker was read.
    #[must_use]
    pub fn of(&self, worker: &str) -> Epoch {
        self.each.get(worker).copied().unwrap_or(0).max(self.all)
    }
}

/// The known facts besides the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The time.
    pub now: Instant,
    /// The memory of earlier passes.
    pub memory: &'a Memory,
    /// The pods that were read from the API server itself.
    pub confirmed: &'a Confirmed,
    /// The workers that the file names.
    pub named: &'a BTreeSet<&'a Arc<str>>,
}

/// The workers of a `Swarm`.
#[derive(Clone, Debug, Default)]
pub struct Workers {
    /// Those that should have streams, in their order, followed by those that still have pods.
    pub all: Vec<Worker>,
    /// True if the workload is being replaced by another version of itself: nothing is moved for
    /// balance meanwhile.
    pub rolling: bool,
    /// The newest template of a `Deployment`, and since when it has had no ready pod while older
    /// ones have pods.
    pub stalled: Option<Stalled>,
    /// The time since which a `Deployment` has had another number of pods than it should: a quota or
    /// a webhook may refuse the rest for ever.
    pub incomplete: Option<Instant>,
}

impl Workers {
    /// Finds them. `unfit` are the nodes that streams should leave.
    #[must_use]
    pub fn of(
        settings: &Settings,
        view: &WorkloadView,
        share: &str,
        unfit: &BTreeSet<String>,
        known: &Known<'_>,
    ) -> Self {
        let Some(workload) = &view.workload else { return Self::default() };
        let Known { now, memory, confirmed, named } = *known;
        let mut finder =
            Finder { settings, workload, share, unfit, memory, confirmed, now, successor: None };
        finder.successor = finder.successor(&view.pods);
        let mut workers = match settings.kind {
            WorkloadKind::StatefulSet => finder.stateful(&view.pods),
            WorkloadKind::Deployment => finder.deployed(&view.pods),
        };
        let there: BTreeSet<_> = workers.all.iter().map(|worker| &worker.name).collect();
        let rest: Vec<_> = named.iter().filter(|name| !there.contains(**name)).collect();
        // One without a pod that is in the file all the same.
        for name in rest {
            let pod = view.pods.iter().find(|pod| pod.name == **name);
            workers.all.push(finder.worker(Arc::clone(name), pod, Standing::Keeps, false));
        }
        workers
    }

    /// Those that should have streams.
    pub fn wanted(&self) -> impl Iterator<Item = &Worker> {
        self.all.iter().filter(|worker| worker.handover.wanted)
    }

    /// Returns the workers by their names.
    #[must_use]
    pub fn by_name(&self) -> BTreeMap<Arc<str>, handover::Worker> {
        let each = |worker: &Worker| (Arc::clone(&worker.name), worker.handover.clone());
        self.all.iter().map(each).collect()
    }
}

struct Finder<'a> {
    settings: &'a Settings,
    workload: &'a WorkloadFacts,
    /// The name of the `ConfigMap` with the shares.
    share: &'a str,
    unfit: &'a BTreeSet<String>,
    memory: &'a Memory,
    confirmed: &'a Confirmed,
    now: Instant,
    /// The oldest file that later pods can read; `None`: the one that is current then.
    successor: Option<u64>,
}

impl Finder<'_> {
    fn stateful(&self, pods: &[PodFacts]) -> Workers {
        let mut pods: BTreeMap<&str, &PodFacts> =
            self.own(pods).map(|pod| (&*pod.name, pod)).collect();
        let WorkloadFacts { name, start, replicas, .. } = self.workload;
        let mut all = Vec::new();
        for ordinal in *start..start.saturating_add(*replicas) {
            let name: Arc<str> = format!("{name}-{ordinal}").into();
            let pod = pods.remove(&*name);
            let standing = if self.is_unfit(pod) { Standing::Leaving } else { Standing::Full };
            let mut worker = self.worker(name, pod, standing, true);
            if worker.is_lost && standing == Standing::Full {
                worker.standing = Standing::Keeps;
            }
            all.push(worker);
        }
        // Those that were scaled away, until they are gone.
        let prefix = format!("{name}-");
        let mut rest: Vec<_> = pods
            .into_values()
            .filter_map(|pod| Some((pod.name.strip_prefix(&prefix)?.parse::<u32>().ok()?, pod)))
            .collect();
        rest.sort_by_key(|(ordinal, _)| *ordinal);
        for (_, pod) in rest {
            all.push(self.worker(Arc::clone(&pod.name), Some(pod), Standing::Keeps, false));
        }
        Workers { all, ..Workers::default() }
    }

    fn deployed(&self, pods: &[PodFacts]) -> Workers {
        // A ReplicaSet is called after its Deployment and the hash of its template.
        let own = |pod: &&PodFacts| {
            let hash = pod.template.as_deref().unwrap_or_default();
            pod.controller.as_ref().is_some_and(|(kind, name)| {
                **kind == *"ReplicaSet" && **name == *format!("{}-{hash}", self.workload.name)
            })
        };
        let (live, rest): (Vec<_>, Vec<_>) =
            pods.iter().filter(own).partition(|pod| !pod.terminating && !pod.stopped && !pod.ended);
        let newest = live.iter().max_by_key(|pod| (pod.created, &pod.name));
        let newest = newest.and_then(|pod| pod.template.clone());
        let is_old = |at: Instant| self.now.saturating_duration_since(at) >= self.settings.timeout;
        let complete = u32::try_from(live.len()) == Ok(self.workload.replicas);
        let incomplete = (!complete).then(|| self.memory.incomplete.unwrap_or(self.now));
        let rolling = live.iter().any(|pod| pod.template != newest)
            || incomplete.is_some_and(|since| !is_old(since))
            || self.workload.observed_generation < self.workload.generation;
        let stalled = self.stalled(&live, newest.as_deref());
        let is_stuck = stalled.as_ref().is_some_and(|(_, since)| is_old(*since));
        let mut all = Vec::new();
        for pod in live {
            // The workers that run longest get what can be assigned; one that is not ready loses
            // nothing. Where no pod of the newest template becomes ready, those that run get what
            // has no worker.
            let standing = if !pod.ready {
                Standing::Keeps
            } else if pod.template != newest {
                let takes = is_stuck && !self.is_unfit(Some(pod));
                if takes { Standing::Full } else { Standing::Keeps }
            } else if self.is_unfit(Some(pod)) {
                Standing::Leaving
            } else {
                Standing::Full
            };
            all.push(self.worker(Arc::clone(&pod.name), Some(pod), standing, true));
        }
        for pod in rest {
            all.push(self.worker(Arc::clone(&pod.name), Some(pod), Standing::Keeps, false));
        }
        Workers { all, rolling, stalled, incomplete }
    }

    /// Returns the newest template if only older ones have ready pods.
    fn stalled(&self, live: &[&PodFacts], newest: Option<&str>) -> Option<Stalled> {
        let is_newest = |pod: &&&PodFacts| pod.template.as_deref() == newest;
        let runs = live.iter().filter(is_newest).any(|pod| pod.ready);
        let older = live.iter().any(|pod| !is_newest(&pod));
        let known = self.memory.stalled.as_ref().filter(|(of, _)| of.as_deref() == newest);
        let since = known.map_or(self.now, |(_, since)| *since);
        (older && !runs).then(|| (newest.map(Into::into), since))
    }

    fn is_unfit(&self, pod: Option<&PodFacts>) -> bool {
        pod.and_then(|pod| pod.node.as_deref()).is_some_and(|node| self.unfit.contains(node))
    }

    fn worker(
        &self,
        name: Arc<str>,
        pod: Option<&PodFacts>,
        standing: Standing,
        wanted: bool,
    ) -> Worker {
        let seen = pod.and_then(|pod| self.pod(pod));
        let confirmed = self.confirmed.of(&name);
        let successor = self.successor;
        let handover = handover::Worker { wanted, pod: seen, confirmed, successor };
        let answers =
            |pod: &PodFacts| self.memory.reports.get(&pod.uid).is_some_and(Report::is_answer);
        let runs = pod.is_some_and(|pod| {
            let placed = pod.node.is_some() && !pod.stopped && !pod.ended;
            placed && (pod.ready || answers(pod))
        });
        let since = || self.memory.away.get(&name).copied().unwrap_or(self.now);
        let away = (wanted && !runs).then(since);
        let is_lost =
            away.is_some_and(|at| self.now.saturating_duration_since(at) >= self.settings.timeout);
        Worker { name, standing, pod: pod.cloned(), away, is_lost, handover }
    }

    /// A pod without a node has read nothing, and reads what is current once it gets one; one that
    /// mounts an immutable file reads that, also after `configMap.immutable` was switched off.
    fn pod(&self, pod: &PodFacts) -> Option<handover::Pod> {
        let maps = || pod.mounts.iter().map(|map| &**map);
        let mounted = if self.settings.immutable {
            maps().find_map(|map| epoch_of(self.share, map))
        } else {
            pinned(self.share, maps())
        };
        if pod.node.is_none() && !self.settings.immutable && mounted.is_none() {
            return None;
        }
        let report = self.memory.reports.get(&pod.uid);
        let loaded = report.and_then(|report| report.loaded);
        // With DeletePod, a worker that gets a stream is restarted: it cannot have prepared it.
        let follows = self.settings.strategy == Strategy::HotReload;
        let answer = report.filter(|_| follows).and_then(|report| report.answer.as_ref());
        let prepared = answer.and_then(|answer| answer.prepared.as_ref());
        Some(handover::Pod {
            uid: Arc::clone(&pod.uid),
            ready: pod.ready,
            // The watch delivers the deletion of an evicted pod a moment later.
            terminating: pod.terminating || self.memory.evictions.is_leaving(&pod.uid),
            stopped: pod.stopped,
            loaded: mounted.or(loaded),
            heir: self.memory.heir(pod),
            // A pod that mounts none of the immutable files, and does not report what it runs,
            // proves it only once it is restarted.
            born: if self.settings.immutable || mounted.is_some() {
                mounted
            } else {
                self.memory.born.get(&pod.uid).copied()
            },
            prepared: prepared.map(|ids| ids.iter().map(|id| id.as_str().into()).collect()),
        })
    }

    /// The oldest file that a pod which the `StatefulSet` makes from now on can read. With
    /// immutable files the one of the template, once its controller has seen that template.
    ///
    /// With a mutable file none, unless the template and the pods differ in whether they mount it:
    /// then the name of the file was changed, and a pod that comes back with the older revision
    /// during the rollout reads the former file, which is no longer updated.
    fn successor(&self, pods: &[PodFacts]) -> Option<u64> {
        let unseen = self.workload.observed_generation < self.workload.generation;
        if !self.settings.immutable {
            return match self.settings.kind {
                WorkloadKind::StatefulSet => self.mutable_successor(pods, unseen),
                WorkloadKind::Deployment => None,
            };
        }
        if unseen {
            return Some(0);
        }
        let mounts = self.workload.mounts.iter();
        Some(mounts.filter_map(|(_, map)| epoch_of(self.share, map)).max().unwrap_or(0))
    }

    /// The same while `configMap.immutable` is off. After it was on, the template still names an
    /// immutable file, which every later pod reads, whatever the current one lists.
    fn mutable_successor(&self, pods: &[PodFacts], unseen: bool) -> Option<u64> {
        let template = || self.workload.mounts.iter().map(|(_, map)| &**map);
        let is_mounted = template().any(|map| map == self.share);
        let its = pinned(self.share, template());
        let differs = |pod: &PodFacts| {
            let maps = || pod.mounts.iter().map(|map| &**map);
            maps().any(|map| map == self.share) != is_mounted || pinned(self.share, maps()) != its
        };
        let differ = self.own(pods).any(differs);
        match its {
            Some(_) if unseen => Some(0),
            // Without OnDelete, a pod may come back with the older revision.
            Some(epoch) if self.workload.on_delete || !differ => Some(epoch),
            _ => differ.then_some(0),
        }
    }

    /// The pods of the `StatefulSet`.
    fn own<'a>(&'a self, pods: &'a [PodFacts]) -> impl Iterator<Item = &'a PodFacts> {
        pods.iter().filter(|pod| {
            pod.controller.as_ref().is_none_or(|(kind, name)| {
                **kind == *"StatefulSet" && **name == *self.workload.name
            })
        })
    }
}

/// The name of the immutable `ConfigMap` of one version.
#[must_use]
pub fn immutable_name(share: &str, epoch: u64) -> String {
    format!("{share}-{epoch}")
}

/// The version of an immutable `ConfigMap` by its name.
#[must_use]
pub fn epoch_of(share: &str, name: &str) -> Option<u64> {
    name.strip_prefix(share)?.strip_prefix('-')?.parse().ok()
}

/// Returns the version of the immutable file that pods with these `ConfigMap`s read; `None` if they
/// mount the file that changes in place, or a part of it.
#[must_use]
pub fn pinned<'m>(share: &str, maps: impl Iterator<Item = &'m str> + Clone) -> Option<u64> {
    let changes = |map: &str| {
        map.strip_prefix(share).is_some_and(|rest| rest.is_empty() || rest.starts_with("-part-"))
    };
    if maps.clone().any(changes) {
        return None;
    }
    maps.filter_map(|map| epoch_of(share, map)).min()
}

#[cfg(test)]
mod tests;
