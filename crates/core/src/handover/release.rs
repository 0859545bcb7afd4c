//! Release of streams by workers.
use std::collections::BTreeMap;

use super::{BELIEVED_EPOCH, Epoch, Name, Pod, Published, Waiting, Why, Worker};
use crate::natural_sort;

/// Returns the obstacle to the release of all streams that the file of epoch `since` does not list
/// for the worker; `None` if it has released them.
pub(super) fn in_the_way(worker: Option<&Worker>, since: Epoch, published: Epoch) -> Option<Why> {
    let Some(worker) = worker else { return Some(Why::Unseen) };
    if since > published {
        return Some(Why::Unpublished);
    }
    if worker.successor.is_some_and(|least| least < since) {
        return Some(Why::Template);
    }
    let loaded = worker.pod.as_ref().and_then(|pod| pod.loaded);
    if loaded.is_some_and(|loaded| (since..=published).contains(&loaded)) {
        return None;
    }
    match worker.pod.as_ref().filter(|pod| pod.live()) {
        None => (worker.confirmed < since).then_some(Why::Unconfirmed),
        Some(Pod { loaded: Some(loaded), .. }) if *loaded > published => Some(Why::Ahead),
        Some(Pod { terminating: true, .. }) => Some(Why::Terminating),
        Some(Pod { loaded: Some(_), .. }) => Some(Why::Behind),
        // It never answers, but it is a different pod than the earlier ones, and has not read the
        // earlier files.
        Some(Pod { heir: Some(heir), .. }) if *heir >= since => None,
        Some(Pod { loaded: None, .. }) => Some(Why::Silent),
    }
}

/// Facts about earlier files, from the workers' reports.
pub(super) struct History {
    /// True if pods have read files that are unknown to the published one.
    pub(super) lost: bool,
    /// True if a live pod has read such a file and has not loaded a known one since.
    pub(super) ahead: bool,
    /// The highest epoch that is accepted.
    pub(super) highest: Epoch,
}

impl History {
    pub(super) fn of(
        published: &Published,
        workers: &BTreeMap<Name, Worker>,
        highest_reported: Epoch,
    ) -> Self {
        let unknown = |epoch: &Epoch| *epoch > published.epoch && *epoch <= BELIEVED_EPOCH;
        let pods = || workers.values().filter_map(|worker| worker.pod.as_ref());
        // A stopped pod runs nothing, but its report is still a proof.
        let reported = pods().filter_map(|pod| pod.loaded).chain([highest_reported]);
        let highest = reported.filter(unknown).max();
        let ahead = pods().any(|pod| pod.live() && pod.loaded.as_ref().is_some_and(unknown));
        Self { lost: highest.is_some(), ahead, highest: highest.unwrap_or(0) }
    }
}

/// Returns the workers to wait for with this file.
pub(super) fn waiting(file: &Published, workers: &BTreeMap<Name, Worker>) -> Vec<Waiting> {
    let mut demands: BTreeMap<&Name, (usize, Epoch)> = BTreeMap::new();
    let mut barred = BTreeMap::new();
    for ((_, worker), since) in &file.releasing {
        let (streams, epoch) = demands.entry(worker).or_default();
        *streams += 1;
        *epoch = (*epoch).max(*since);
    }
    if let Some(barrier) = file.barrier {
        for worker in workers.keys().chain(file.workers()) {
            if let Some(why) = in_the_way(workers.get(worker), barrier, file.epoch) {
                barred.insert(worker, (barrier, why));
                demands.entry(worker).or_default();
            }
        }
    }
    let waiting = demands.into_iter().filter_map(|(worker, (streams, since))| {
        let releases = in_the_way(workers.get(worker), since, file.epoch).filter(|_| streams > 0);
        let barred = barred.remove(worker);
        let why = releases.or(barred.map(|(_, why)| why))?;
        let epoch = since.max(barred.map_or(0, |(barrier, _)| barrier));
        Some(Waiting { worker: worker.clone(), streams, epoch, why })
    });
    let mut waiting: Vec<_> = waiting.collect();
    waiting.sort_by(|a, b| natural_sort::compare(&a.worker, &b.worker));
    waiting
}
