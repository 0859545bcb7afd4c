//! The pods that must load the file, and those to refresh now.
use std::{cmp::Reverse, collections::BTreeMap};

use super::{Epoch, Name, Pod, Published, Refresh, Rules, Strategy, Worker};
use crate::natural_sort;

/// The results of one worker's evictions so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Evictions since it last proved a newer version. Workers with fewer of them come first.
    pub attempts: u32,
    /// True if the operator leaves it alone for now, and reserves no budget for it.
    pub rests: bool,
    /// The version of the file at its last eviction, if it never reports a version: then a newer
    /// list ends the rest period, because nothing else shows that the eviction helped.
    pub silent_since: Option<Epoch>,
}

/// The turns of all workers that were evicted, by name.
pub type Turns = BTreeMap<Name, Turn>;

/// A pod that runs an older list than the file's.
struct Behind<'a> {
    name: &'a Name,
    pod: &'a Pod,
    /// The epoch that it must load.
    needs: Epoch,
    /// True if others wait for it.
    releases: bool,
}

/// Decides the actions that make the pods load this file.
pub(super) fn refresh(
    file: &Published,
    workers: &BTreeMap<Name, Worker>,
    rules: &Rules,
) -> Vec<Refresh> {
    refresh_in_turn(file, workers, rules, &Turns::new())
}

/// Decides the same, with the results of earlier evictions.
#[must_use]
pub fn refresh_in_turn(
    file: &Published,
    workers: &BTreeMap<Name, Worker>,
    rules: &Rules,
    turns: &Turns,
) -> Vec<Refresh> {
    match rules.strategy {
        Strategy::None => Vec::new(),
        // A worker that is no longer wanted is removed by its workload if that is a StatefulSet; a
        // Deployment's pod must release its streams while it lives.
        Strategy::HotReload => behind(file, workers, true)
            .into_iter()
            .filter(|behind| workers[behind.name].wanted || behind.releases)
            .map(|Behind { name, pod, needs, .. }| Refresh::Nudge {
                worker: name.clone(),
                uid: pod.uid.clone(),
                epoch: needs,
            })
            .collect(),
        Strategy::DeletePod => {
            let turn = |behind: &Behind<'_>| turns.get(behind.name).copied().unwrap_or_default();
            let mut due = behind(file, workers, false);
            due.retain(|behind| workers[behind.name].wanted && !turn(behind).rests(behind));
            // The order among those with the same number of attempts stays.
            due.sort_by_key(|behind| turn(behind).attempts);
            evictions(due, workers, rules.max_unavailable)
        }
    }
}

impl Turn {
    fn rests(self, behind: &Behind<'_>) -> bool {
        let news = self.silent_since.is_some_and(|epoch| behind.needs > epoch);
        self.rests && !(news && behind.pod.loaded.is_none())
    }
}

/// Returns the pods that can and must be refreshed: first those that others wait for, then by name.
/// Workers that follow the file also need the streams that will come, if they prepare them.
fn behind<'a>(
    file: &'a Published,
    workers: &'a BTreeMap<Name, Worker>,
    follow: bool,
) -> Vec<Behind<'a>> {
    let mut released: BTreeMap<&str, Epoch> = BTreeMap::new();
    for ((_, worker), since) in &file.releasing {
        let epoch = released.entry(worker).or_default();
        *epoch = (*epoch).max(*since);
    }
    let barrier = file.barrier.unwrap_or(0);
    let behind = workers.iter().filter_map(|(name, worker)| {
        let pod = worker.pod.as_ref().filter(|pod| pod.live() && !pod.terminating)?;
        let listed = file.shares.get(name).map_or(0, |share| share.version);
        let released = released.get(&**name).copied();
        let releases = released.is_some() || barrier > 0;
        let mut needs = listed.max(released.unwrap_or(0)).max(barrier);
        let mut next = file.next.get(name).filter(|_| follow).into_iter().flatten();
        if pod.loaded.is_some() && next.any(|stream| pod.is_preparing(stream)) {
            needs = file.epoch;
        }
        let outdated = match pod.loaded {
            // A pod that is ahead has read an unknown file.
            Some(loaded) => !(needs..=file.epoch).contains(&loaded),
            None => needs > 0 && pod.born.is_none_or(|born| born < needs),
        };
        outdated.then_some(Behind { name, pod, needs, releases })
    });
    let mut behind: Vec<_> = behind.collect();
    behind.sort_by(|a, b| {
        let order = Reverse(a.releases).cmp(&Reverse(b.releases));
        order.then_with(|| natural_sort::compare(a.name, b.name))
    });
    behind
}

/// Returns as many as may be down at a time, including those that are already down.
fn evictions(
    due: Vec<Behind<'_>>,
    workers: &BTreeMap<Name, Worker>,
    max_unavailable: usize,
) -> Vec<Refresh> {
    let mut down = workers.values().filter(|worker| worker.wanted && !worker.serves()).count();
    let mut evictions = Vec::new();
    for Behind { name, pod, .. } in due {
        if pod.ready {
            if down >= max_unavailable {
                continue;
            }
            down += 1;
        } else if pod.loaded.is_none() && down > max_unavailable {
            // It is down and already counts, so restarting it loses nothing; but a pod that has not
            // reported yet may be starting with the right list, so it does not exceed the budget.
            continue;
        }
        evictions.push(Refresh::Evict { worker: name.clone(), uid: pod.uid.clone() });
    }
    evictions
}
