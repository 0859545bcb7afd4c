//! Workers that have a list and have not read it.
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Decision, MOVING, STUCK};
use crate::{
    api::swarm::Strategy,
    swarm::{report::and_more, snapshot::Snapshot, workers::Worker},
};

type Unread = BTreeMap<Arc<str>, (Arc<str>, Option<u64>, Instant)>;

impl Decision<'_> {
    /// All of them, with the time: a new pod, or one that reads another version, gets time again.
    pub(super) fn unread(&self) -> Unread {
        if !self.writes() || self.history.repair.is_some() {
            return Unread::new();
        }
        let unread = self.workers.wanted().filter(|worker| self.missing(worker) > 0);
        let unread = unread.filter_map(|worker| {
            let pod = worker.handover.pod.as_ref()?;
            let known = self.memory.unread.get(&worker.name);
            let known = known.filter(|(uid, loaded, _)| (uid, loaded) == (&pod.uid, &pod.loaded));
            let since = known.map_or(self.observed.now, |(.., since)| *since);
            Some((Arc::clone(&worker.name), (Arc::clone(&pod.uid), pod.loaded, since)))
        });
        unread.collect()
    }

    /// Returns the number of streams in a worker's list that it is known not to run: its pod has
    /// not started, or reports an older version, or reports nothing and reads the file only at
    /// startup, which was earlier.
    fn missing(&self, worker: &Worker) -> usize {
        let published = &self.history.published;
        let Some(share) = published.shares.get(&worker.name) else { return 0 };
        let Some(pod) = worker.handover.pod.as_ref().filter(|pod| !pod.stopped) else { return 0 };
        let started = worker.pod.as_ref().is_some_and(|pod| pod.started);
        let unread = match pod.loaded {
            _ if !started => true,
            Some(loaded) => !(share.version..=published.epoch).contains(&loaded),
            None => {
                let restarts = self.settings.strategy != Strategy::HotReload;
                restarts && pod.born.is_none_or(|born| born < share.version)
            }
        };
        let report = self.memory.reports.get(&pod.uid);
        let answer = report.and_then(|report| report.answer.as_ref());
        if !unread {
            return 0;
        }
        let jobs = answer.into_iter().flat_map(|answer| answer.jobs());
        let jobs: HashSet<&str> = jobs.map(String::as_str).collect();
        share.streams.iter().filter(|stream| !jobs.contains(&***stream)).count()
    }

    /// Returns how soon one of the workers that have not read their lists may report that it has;
    /// none if there is none. A worker without a pod reports nothing, and its next pod is an event;
    /// one that did not answer is asked less often.
    pub(super) fn news_of_unread(&self, snapshot: &Snapshot) -> Option<Duration> {
        let each = self.workers.wanted().zip(&snapshot.workers);
        let behind = each.filter(|(worker, shown)| shown.is_behind() && !worker.is_lost);
        let news = behind.map(|(worker, shown)| {
            let pod = worker.pod.as_ref();
            let may_answer = pod.is_none_or(|pod| self.memory.may_answer(pod));
            if may_answer || shown.loaded.is_some() { MOVING } else { STUCK }
        });
        news.min()
    }

    /// Streams that no worker runs because theirs has not read its list for too long.
    pub(super) fn unread_for_long(&self) -> Option<String> {
        let now = self.observed.now;
        let old = |since: &Instant| now.saturating_duration_since(*since) >= self.settings.timeout;
        let mut unread = self.workers.wanted().filter(|worker| {
            self.memory.unread.get(&worker.name).is_some_and(|(.., since)| old(since))
        });
        let worker = unread.next()?;
        let name = &worker.name;
        let more = and_more(unread.count());
        let version = self.history.published.shares.get(name)?.version;
        Some(format!(
            "{} streams are in the list of worker {name}{more}, which has not read version {version} \
             within spec.refresh.timeout: {}; if it does not read it by itself, delete its pod",
            self.missing(worker),
            self.why(name, None)
        ))
    }
}
