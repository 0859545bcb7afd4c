//! The memory and the status of a decision.
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::Decision;
use crate::{
    api::swarm::Strategy,
    controller::Notice,
    placement::assignment::Assignment,
    swarm::{
        handover::{Counts, Epoch, Share, Step, Waiting, Why},
        memory::Granted,
        report::{and_more, notice},
        snapshot::{Snapshot, Worker},
        weights,
        workers::{self, epoch_of, immutable_name},
    },
};

/// Maximum number of workers for which the page gives the reason for waiting: each costs a pass
/// over all workers.
const WAITING: usize = 100;

impl Decision<'_> {
    /// Keeps what the next pass needs. Returns for how long streams had no worker that have one
    /// now.
    pub(super) fn remember(&mut self, step: &Step, writes: bool) -> Vec<Duration> {
        let now = self.observed.now;
        let current = self.current(step).clone();
        let unread = self.unread();
        let memory = &mut self.memory;
        memory.unread = unread;
        // A file that is not written asks nobody for anything.
        let asking = if writes { &current } else { &self.history.published };
        memory.barrier = asking.barrier.map(|_| memory.barrier.unwrap_or(now));
        let since = std::mem::take(&mut memory.releasing);
        let key =
            |key: &(Arc<str>, Arc<str>)| (key.clone(), since.get(key).copied().unwrap_or(now));
        memory.releasing = asking.releasing.keys().map(key).collect();
        let free = std::mem::take(&mut memory.free);
        memory.free = step
            .free
            .iter()
            .map(|stream| (Arc::clone(stream), free.get(stream).copied().unwrap_or(now)))
            .collect();
        if writes && let Some(next) = &step.publish {
            for (stream, worker) in &step.granted {
                let since = free.get(stream).copied().unwrap_or(now);
                let granted = Granted { worker: Arc::clone(worker), epoch: next.epoch, since };
                memory.granted.insert(Arc::clone(stream), granted);
            }
        }
        let workers = self.workers.by_name();
        let mut gaps = Vec::new();
        // One worker may have all streams of a large Swarm: its list is not searched for each.
        let mut listed = HashSet::new();
        if !memory.granted.is_empty() {
            listed.extend(current.owners());
        }
        let mut runs = HashSet::new();
        for worker in self.workers.all.iter().filter(|_| !memory.granted.is_empty()) {
            let report = worker.pod.as_ref().and_then(|pod| memory.reports.get(&pod.uid));
            let answer = report.and_then(|report| report.answer.as_ref());
            let jobs = answer.into_iter().flat_map(|answer| answer.jobs());
            runs.extend(jobs.map(|job| (&*worker.name, job.as_str())));
        }
        memory.granted.retain(|stream, granted| {
            if !listed.contains(&(stream, &granted.worker)) {
                return false;
            }
            let loaded = workers.get(&granted.worker).and_then(|w| w.pod.as_ref()?.loaded);
            // A worker that got the word starts it before it has the file.
            let arrived = loaded.is_some_and(|loaded| loaded >= granted.epoch)
                || runs.contains(&(&*granted.worker, &**stream));
            if arrived {
                gaps.push(now.saturating_duration_since(granted.since));
            }
            !arrived
        });
        let live: BTreeSet<_> = self.view.pods.iter().map(|pod| &pod.uid).collect();
        memory.reports.retain(|uid, _| live.contains(uid));
        memory.born.retain(|uid, _| live.contains(uid));
        memory.unreported.retain(|uid| live.contains(uid));
        memory.refused.retain(|worker, _| workers.contains_key(worker));
        memory.refreshed.retain(|worker, _| workers.contains_key(worker));
        let away = self.workers.all.iter();
        let away = away.filter_map(|w| Some((Arc::clone(&w.name), w.away?)));
        memory.away = away.collect();
        memory.stalled.clone_from(&self.workers.stalled);
        memory.incomplete = self.workers.incomplete;
        gaps
    }

    pub(super) fn snapshot(&self, assignment: &Assignment, step: &Step) -> Snapshot {
        let current = self.current(step);
        let weight: BTreeMap<&Arc<str>, f64> =
            self.ids.iter().zip(self.weights.iter().copied()).collect();
        let empty = Share::default();
        let worker = |worker: &workers::Worker| {
            let share = current.shares.get(&worker.name).unwrap_or(&empty);
            let report = worker.pod.as_ref().and_then(|pod| self.memory.reports.get(&pod.uid));
            let next = current.next.get(&worker.name).cloned().unwrap_or_default();
            let pod = worker.handover.pod.as_ref();
            let preparing = |stream: &&Arc<str>| pod.is_some_and(|pod| pod.is_preparing(stream));
            Worker {
                name: Arc::clone(&worker.name),
                node: worker.pod.as_ref().and_then(|pod| pod.node.as_deref()).map(str::to_owned),
                jobs: share.streams.clone(),
                preparing: next.iter().filter(preparing).count(),
                next,
                weight: share.streams.iter().filter_map(|stream| weight.get(stream)).sum(),
                wanted: share.version,
                loaded: worker.handover.pod.as_ref().and_then(|pod| pod.loaded),
                ready: worker.pod.as_ref().is_some_and(|pod| pod.ready),
                unresponsive: self.is_unresponsive(worker),
                signs: worker.pod.as_ref().is_none_or(|pod| pod.signs),
                error: report.and_then(|report| report.error.clone()),
                refreshed: self.memory.refreshed.get(&worker.name).copied(),
            }
        };
        let workers: Vec<_> = self.workers.wanted().map(worker).collect();
        let (loads, _) = self.loads(&self.places(current));
        let releasing: Vec<_> = current
            .releasing
            .iter()
            .map(|(key, epoch)| {
                let since = self.memory.releasing.get(key).copied().unwrap_or(self.observed.now);
                (Arc::clone(&key.0), Arc::clone(&key.1), *epoch, since)
            })
            .collect();
        let free: Vec<_> = self.memory.free.iter().map(|(s, at)| (Arc::clone(s), *at)).collect();
        let owned: BTreeSet<_> = current.owners().map(|(stream, _)| stream).collect();
        // One that has its next worker already is that worker's.
        let let_go = releasing.iter().map(|(stream, ..)| stream);
        let let_go: BTreeSet<_> = let_go.filter(|stream| !owned.contains(stream)).collect();
        let unassigned: Vec<_> = assignment
            .unassigned
            .iter()
            .filter(|(place, _)| {
                // Each is in one state.
                let id = &self.ids[*place];
                !owned.contains(id) && !let_go.contains(id)
            })
            .map(|(place, reason)| (Arc::clone(&self.ids[*place]), reason.as_str()))
            .collect();
        let counts = Counts {
            owned: self.ids.iter().filter(|id| owned.contains(id)).count(),
            releasing: let_go.len(),
            free: free.len(),
            unassigned: unassigned.len(),
        };
        let known = counts.owned + counts.unassigned;
        let others: BTreeSet<_> = let_go.iter().copied().chain(self.memory.free.keys()).collect();
        let others = self.ids.iter().filter(|id| others.contains(id)).count();
        let lost = self.workers.wanted().filter(|worker| worker.is_lost);
        Snapshot {
            decided: true,
            // The version in the status is trusted: only this operator writes it.
            epoch: if self.writes() { current.epoch } else { self.history.published.epoch },
            counts,
            stranded: lost.filter_map(|w| Some(current.shares.get(&w.name)?.streams.len())).sum(),
            undecided: self.ids.len().saturating_sub(known + others),
            duplicates: self.duplicates(),
            ratio: weights::ratio(&loads),
            workers,
            releasing,
            free,
            unassigned,
            waiting: self.waiting(step),
            counters: self.memory.snapshot.counters.clone(),
        }
    }

    /// Returns the awaited workers with the reasons.
    fn waiting(&self, step: &Step) -> Vec<(Waiting, String)> {
        let first = step.waiting.iter().take(WAITING);
        first.map(|one| (one.clone(), self.why(&one.worker, Some(one.why)))).collect()
    }

    /// Streams that two pods report as running.
    fn duplicates(&self) -> Vec<Arc<str>> {
        let mut seen = BTreeSet::new();
        let mut twice = BTreeSet::new();
        for worker in &self.workers.all {
            let Some(pod) = worker.pod.as_ref().filter(|pod| !pod.stopped) else { continue };
            let report = self.memory.reports.get(&pod.uid);
            let Some(answer) = report.and_then(|report| report.answer.as_ref()) else { continue };
            for job in answer.jobs() {
                if !seen.insert(job.as_str()) {
                    twice.insert(job.as_str());
                }
            }
        }
        twice.into_iter().map(Arc::from).collect()
    }

    /// A worker that reports having read its list, and runs another one: its name, and how.
    pub(super) fn disobedient(&self) -> Option<String> {
        self.workers.wanted().find_map(|worker| {
            let share = self.history.published.shares.get(&worker.name)?;
            let pod = worker.pod.as_ref()?;
            let answer = self.memory.reports.get(&pod.uid)?.answer.as_ref()?;
            let read = answer.version.is_some_and(|version| {
                version >= share.version && version <= self.history.published.epoch
            });
            let reported: BTreeSet<_> = answer.jobs.as_ref()?.iter().map(String::as_str).collect();
            let list: BTreeSet<_> = share.streams.iter().map(|stream| &**stream).collect();
            if !read || reported == list {
                return None;
            }
            let name = &worker.name;
            Some(if reported.is_empty() {
                format!(
                    "worker {name} has read the file, and says that it runs none of the {} streams \
                     of its list: does it look for the name of its pod? A hostname differs from it \
                     with hostNetwork, hostname, setHostnameAsFQDN or hostnameOverride",
                    list.len()
                )
            } else {
                format!("worker {name} runs other streams than those of its list")
            })
        })
    }

    /// Workers that are waited for longer than the timeout: name, version, why.
    pub(super) fn stuck(&self, step: &Step) -> Vec<(Arc<str>, Epoch, String)> {
        let now = self.observed.now;
        let old = |since: Instant| now.saturating_duration_since(since) >= self.settings.timeout;
        let mut stuck: BTreeMap<Arc<str>, Epoch> = BTreeMap::new();
        for ((_, worker), since) in &self.memory.releasing {
            let waiting = step.waiting.iter().find(|waiting| waiting.worker == *worker);
            if let Some(waiting) = waiting.filter(|_| old(*since)) {
                stuck.insert(Arc::clone(worker), waiting.epoch);
            }
        }
        for granted in self.memory.granted.values().filter(|granted| old(granted.since)) {
            stuck.entry(Arc::clone(&granted.worker)).or_insert(granted.epoch);
        }
        if self.memory.barrier.is_some_and(old) {
            for waiting in &step.waiting {
                stuck.entry(Arc::clone(&waiting.worker)).or_insert(waiting.epoch);
            }
        }
        let why = |worker: &Arc<str>| {
            let waiting = step.waiting.iter().find(|waiting| waiting.worker == *worker);
            self.why(worker, waiting.map(|waiting| waiting.why))
        };
        stuck
            .into_iter()
            .map(|(worker, epoch)| (Arc::clone(&worker), epoch, why(&worker)))
            .collect()
    }

    /// Streams that for too long have had no worker, or a worker that does not report.
    pub(super) fn orphaned(
        &self,
        step: &Step,
        stuck: &[(Arc<str>, Epoch, String)],
    ) -> Option<String> {
        let now = self.observed.now;
        let old = |since: &Instant| now.saturating_duration_since(*since) >= self.settings.timeout;
        let free = self.memory.free.values().filter(|since| old(since)).count();
        // One that is listed runs there; one that is no stream any more need not run.
        let listed: BTreeSet<_> = self.current(step).owners().map(|(stream, _)| stream).collect();
        let ids: BTreeSet<_> = self.ids.iter().collect();
        let waits = |id: &Arc<str>| ids.contains(id) && !listed.contains(id);
        let releasing = self.memory.releasing.iter().filter(|(_, since)| old(since));
        let releasing: BTreeSet<_> =
            releasing.map(|((stream, _), _)| stream).filter(|stream| waits(stream)).collect();
        let releasing = releasing.len();
        let waits = |name: &Arc<str>| step.waiting.iter().any(|waiting| waiting.worker == *name);
        let by = stuck.iter().find(|(worker, ..)| waits(worker));
        if free + releasing == 0 {
            return self.unread_for_long();
        }
        Some(match by {
            Some((worker, epoch, why)) => format!(
                "{} streams wait for worker {worker}, which has not acknowledged version {epoch} within \
                 spec.refresh.timeout: {why}; if it does not answer, delete its pod",
                free + releasing
            ),
            None => format!("{} streams wait for a worker that can take them", free + releasing),
        })
    }

    /// Streams in the lists of workers of which nothing has shown for too long that they run.
    pub(super) fn stranded(&self, snapshot: &Snapshot) -> Option<(&'static str, String)> {
        let lists = |worker: &&workers::Worker| {
            let mut lists = snapshot.workers.iter().filter(|one| !one.jobs.is_empty());
            worker.is_lost && lists.any(|one| one.name == worker.name)
        };
        let lost: Vec<_> = self.workers.wanted().filter(lists).collect();
        let (worker, streams) = (lost.first()?, snapshot.stranded);
        let list = format!("list of worker {}{}", worker.name, and_more(lost.len() - 1));
        let long = "for longer than spec.refresh.timeout";
        let absent = |why: &str| {
            let text = format!(
                "no worker runs {streams} streams: they are in the {list}, which has had no running \
                 pod {long}: {why}"
            );
            ("WorkerAbsent", text)
        };
        Some(match &worker.pod {
            None => absent("it has no pod; see the events of the workload"),
            Some(pod) if pod.node.is_none() => {
                absent("its pod has no node; see the events of the pod")
            }
            Some(pod) if pod.stopped || pod.ended => absent("its pod has ended"),
            Some(pod) => {
                let report = self.memory.reports.get(&pod.uid);
                let error = report.and_then(|report| report.error.as_deref());
                let why = pod.trouble.as_deref().or(error).unwrap_or("see the events of the pod");
                let text = format!(
                    "nothing shows that {streams} streams run: they are in the {list}, whose pod \
                     has neither been ready nor answered {long}: {why}; they stay there, because \
                     the pod may run them: mend it or delete it, or delete its Node if that is gone \
                     for good"
                );
                ("WorkerNotReady", text)
            }
        })
    }

    /// Reports whether a worker that has answered before has stopped doing so for too long.
    fn is_unresponsive(&self, worker: &workers::Worker) -> bool {
        let report = worker.pod.as_ref().and_then(|pod| self.memory.reports.get(&pod.uid));
        report.filter(|report| report.answer.is_some()).is_some_and(|report| {
            let now = self.observed.now;
            let old = |at: Instant| now.saturating_duration_since(at) >= self.settings.timeout;
            report.failing.is_some_and(old)
        })
    }

    /// Ready workers whose acknowledgement is too old: what they have answered before is evidence
    /// for a while only.
    pub(super) fn unresponsive(snapshot: &Snapshot) -> Option<String> {
        let mut all =
            snapshot.workers.iter().filter(|one| one.unresponsive && !one.jobs.is_empty());
        let worker = all.next()?;
        Some(format!(
            "worker {}{} has answered before and has not for longer than spec.refresh.timeout, so \
             that it is unknown whether it still runs its list: {}",
            worker.name,
            and_more(all.count()),
            worker.error.as_deref().unwrap_or("no answer")
        ))
    }

    /// Streams in no list because it is unknown what running workers work on.
    pub(super) fn undecided(&self, snapshot: &Snapshot) -> Option<String> {
        if snapshot.undecided == 0 {
            return None;
        }
        let mut unheard = self
            .view
            .pods
            .iter()
            .filter(|pod| pod.started && !pod.stopped && self.memory.may_answer(pod));
        // Where all have answered, the next file is written in this very pass.
        let pod = unheard.next()?;
        let report = self.memory.reports.get(&pod.uid);
        let error = report.and_then(|report| report.error.as_deref());
        Some(format!(
            "{} streams are in no list: there is no record of what runs, and pod {}{} has not said \
             yet: {}",
            snapshot.undecided,
            pod.name,
            and_more(unheard.count()),
            error.unwrap_or("it has not been asked")
        ))
    }

    pub(super) fn why(&self, name: &Arc<str>, why: Option<Why>) -> String {
        let worker = self.workers.all.iter().find(|worker| worker.name == *name);
        let Some(pod) = worker.and_then(|worker| worker.pod.as_ref()) else {
            return "it has no pod".into();
        };
        if why == Some(Why::Template) {
            return if self.settings.immutable {
                "the StatefulSet's controller has not seen the new template yet".into()
            } else if let Some(map) = self.pinned() {
                format!(
                    "the template still names ConfigMap {map}, which never changes, though \
                     spec.configMap.immutable is off: each new pod reads that file, until the \
                     template names {}",
                    self.swarm.config_map()
                )
            } else {
                "its template and some of its pods mount different ConfigMaps: a pod that comes back \
                 may read the former one, until the rollout is complete"
                    .into()
            };
        }
        if why == Some(Why::Ahead) {
            return format!("pod {} reports a version that was not published", pod.name);
        }
        if pod.terminating {
            return format!(
                "pod {} is being deleted and its containers have not ended; if its node is gone for \
                 good, delete the Node or give it the taint node.kubernetes.io/out-of-service",
                pod.name
            );
        }
        let report = self.memory.reports.get(&pod.uid);
        if let Some(error) = report.and_then(|report| report.error.as_deref()) {
            return error.to_owned();
        }
        if !pod.ready {
            return format!("pod {} is not ready", pod.name);
        }
        let away: Vec<_> = self
            .workers
            .wanted()
            .filter(|worker| !worker.pod.as_ref().is_some_and(|pod| pod.ready))
            .map(|worker| &*worker.name)
            .collect();
        if self.settings.strategy == Strategy::DeletePod
            && away.len() >= self.settings.max_unavailable
        {
            return format!(
                "pod {} is not evicted while {} is not ready (spec.refresh.maxUnavailable)",
                pod.name, away[0]
            );
        }
        match self.memory.evictions.without_progress(name) {
            0 => format!("pod {} reports an older version", pod.name),
            times => format!(
                "pod {} reports an older version, even after {times} evictions: the next \
                 ones follow at increasing intervals",
                pod.name
            ),
        }
    }

    pub(super) fn unassigned(&self, snapshot: &Snapshot, notices: &mut Vec<Notice>) {
        let before = self.memory.snapshot.unassigned.len();
        if snapshot.unassigned.len() > before
            && let Some((stream, reason)) = snapshot.unassigned.first()
        {
            let note = format!(
                "{} streams have no worker, e.g. {stream:?}: {reason}",
                snapshot.unassigned.len()
            );
            notices.push(notice(true, "Unassigned", note));
        }
    }

    /// The immutable file in the template, after `spec.configMap.immutable` was switched off.
    fn pinned(&self) -> Option<String> {
        let (share, workload) = (self.swarm.config_map(), self.view.workload.as_ref()?);
        let maps = workload.mounts.iter().map(|(_, map)| &**map);
        let epoch = workers::pinned(&share, maps).filter(|_| !self.settings.immutable)?;
        Some(immutable_name(&share, epoch))
    }

    /// A template without the file is a mistake most of the time.
    pub(super) fn not_mounted(&self) -> Option<String> {
        let (share, workload) = (self.swarm.config_map(), self.view.workload.as_ref()?);
        let mounts = |map: &str| {
            map == share || (self.settings.immutable && epoch_of(&share, map).is_some())
        };
        let mut missing = self.swarm.parts();
        if missing.is_empty() && !workload.mounts.iter().any(|(_, map)| mounts(map)) {
            missing.push(share.clone());
        }
        missing.retain(|part| !workload.mounts.iter().any(|(_, map)| **map == **part));
        missing.first().map(|map| {
            let instead = self.pinned().map_or_else(String::new, |pinned| {
                format!(", but one of {pinned}, which never changes")
            });
            format!(
                "the template of {} {} has no volume of ConfigMap {map}{instead}",
                self.settings.kind.as_str(),
                workload.name
            )
        })
    }
}
