//! The step itself, and the release of streams by workers.
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{
    BELIEVED_EPOCH, Cause, Epoch, Name, Pod, Published, Rules, Share, Step, Strategy, Target,
    Waiting, Why, Worker, refresh::refresh,
};
use crate::natural_sort;

/// Decides the next action: the next file, and the pods to refresh. See the [module](super).
///
/// `highest_reported` is the highest epoch that any worker or the status ever reported; the next
/// file's epoch is above it.
#[must_use]
pub fn step(
    published: &Published,
    target: &Target,
    workers: &BTreeMap<Name, Worker>,
    highest_reported: Epoch,
    rules: &Rules,
) -> Step {
    let history = History::of(published, workers, highest_reported);
    let epoch = published.next_epoch(history.highest);
    let mut step = if history.lost && (published.barrier.is_none() || !history.ahead) {
        let next = published.distrusted(history.highest);
        Step { free: free(&next, target), publish: Some(next), ..Step::default() }
    } else {
        let mut step = Round::new(World { published, target, workers, rules, epoch }).run();
        if let Some(next) = step.publish.as_mut().filter(|_| history.lost) {
            next.bar(epoch);
        }
        step
    };
    let file = step.publish.as_ref().unwrap_or(published);
    step.refresh = refresh(file, workers, rules);
    step.waiting = waiting(file, workers);
    step
}

/// Returns the streams that have a target worker but no owner.
pub(super) fn free(file: &Published, target: &Target) -> Vec<Name> {
    let listed = file.shares.values().flat_map(|share| &share.streams);
    let taken: HashSet<_> = listed.chain(file.releasing.keys().map(|(stream, _)| stream)).collect();
    let assigned = target.iter().filter(|(_, worker)| worker.is_some());
    assigned.map(|(stream, _)| stream).filter(|stream| !taken.contains(stream)).cloned().collect()
}

#[derive(Clone, Copy)]
struct World<'a> {
    published: &'a Published,
    target: &'a Target,
    workers: &'a BTreeMap<Name, Worker>,
    rules: &'a Rules,
    /// The epoch of the next file, if there is one.
    epoch: Epoch,
}

impl World<'_> {
    /// Reports whether all reported epochs are from known files.
    fn passed(self, barrier: Epoch) -> bool {
        let mut everyone = self.published.workers().into_iter().chain(self.workers.keys());
        everyone.all(|worker| {
            in_the_way(self.workers.get(worker), barrier, self.published.epoch).is_none()
        })
    }

    /// Reports whether giving a free stream to this worker costs a restart of its pod, so that all
    /// its streams should be given at once.
    fn restarts(self, worker: &str) -> bool {
        let pod = self.workers.get(worker).and_then(|worker| worker.pod.as_ref());
        pod.is_some_and(|pod| pod.live() && (pod.ready || pod.loaded.is_some()))
    }

    fn gathers(self) -> bool {
        self.rules.exclusive && self.rules.gather && self.rules.strategy == Strategy::DeletePod
    }
}

/// The known facts about one stream.
#[derive(Default)]
struct Known<'a> {
    /// The owner before this round.
    owner: Option<&'a Name>,
    /// The workers that release it, including those of this round.
    holders: Vec<&'a Name>,
    /// True if it is in the spec.
    wanted: bool,
}

/// The list of a worker after the round.
#[derive(Default)]
struct List<'a> {
    /// Streams with their places in the spec.
    streams: Vec<(usize, &'a Name)>,
    /// Number of these that it had before.
    kept: usize,
    /// The streams that will come, with their places.
    next: Vec<(usize, &'a Name)>,
}

/// A stream of the spec without a worker, and its target.
struct Unowned<'a> {
    place: usize,
    stream: &'a Name,
    to: &'a Name,
    /// True if a worker is still releasing it.
    held: bool,
    /// True if another worker is.
    held_by_another: bool,
}

/// One round over all streams.
struct Round<'a> {
    world: World<'a>,
    known: HashMap<&'a Name, Known<'a>>,
    /// The streams that are still being released.
    releasing: BTreeMap<(Name, Name), Epoch>,
    /// The list of each wanted worker.
    lists: BTreeMap<&'a Name, List<'a>>,
    barrier: Option<Epoch>,
    step: Step,
}

impl<'a> Round<'a> {
    fn new(world: World<'a>) -> Self {
        let World { published, target, workers, .. } = world;
        let wanted = workers.iter().filter(|(_, worker)| worker.wanted);
        let barrier = published.barrier.filter(|barrier| !world.passed(*barrier));
        let mut round = Self {
            world,
            known: HashMap::with_capacity(target.len()),
            releasing: BTreeMap::new(),
            lists: wanted.map(|(name, _)| (name, List::default())).collect(),
            barrier: barrier.map(|barrier| barrier.min(world.epoch)),
            step: Step::default(),
        };
        round.let_go();
        round.own();
        round
    }

    /// Ends the releases of the workers that have confirmed them.
    fn let_go(&mut self) {
        let World { published, workers, epoch, .. } = self.world;
        for (key, &since) in &published.releasing {
            let (stream, worker) = key;
            if in_the_way(workers.get(worker), since, published.epoch).is_none() {
                self.step.freed.push(key.clone());
            } else {
                self.releasing.insert(key.clone(), since.min(epoch));
                self.known.entry(stream).or_default().holders.push(worker);
            }
        }
    }

    /// Assigns the streams to their owners. If two have the same stream, the first keeps it.
    fn own(&mut self) {
        for (worker, share) in &self.world.published.shares {
            for stream in &share.streams {
                let owner = *self.known.entry(stream).or_default().owner.get_or_insert(worker);
                if owner != worker {
                    self.revoke(stream, worker, Cause::Duplicate);
                }
            }
        }
    }

    fn run(mut self) -> Step {
        // First all streams that leave: a stream waits for others that are on their way to the same
        // worker.
        let mut awaiting = None;
        let preparing = self.preparing();
        let mut unowned = Vec::new();
        for (place, (stream, to)) in self.world.target.iter().enumerate() {
            let known = self.known.entry(stream).or_default();
            if std::mem::replace(&mut known.wanted, true) {
                continue;
            }
            let owner = known.owner;
            let held_by_another =
                to.as_ref().is_some_and(|to| known.holders.iter().any(|holder| *holder != to));
            let mut held = !known.holders.is_empty();
            if let Some(owner) = owner {
                let blocked =
                    held_by_another || to.as_ref().is_some_and(|to| preparing.contains(to));
                let cause = self.leaves(owner, to.as_ref(), blocked, &mut awaiting);
                let Some(cause) = cause else {
                    self.list(owner, place, stream, 1);
                    if let Some(to) = to.as_ref().filter(|to| *to != owner) {
                        self.announce(to, place, stream);
                    }
                    continue;
                };
                self.revoke(stream, owner, cause);
                held = true;
            }
            let Some(to) = to else { continue };
            let held_by_another = held_by_another || owner.is_some_and(|owner| owner != to);
            unowned.push(Unowned { place, stream, to, held, held_by_another });
        }
        self.remove();
        let coming: HashSet<_> = if self.world.gathers() {
            unowned.iter().filter(|unowned| unowned.held_by_another).map(|u| u.to).collect()
        } else {
            HashSet::new()
        };
        for unowned in unowned {
            let Unowned { place, stream, to, held, .. } = unowned;
            if self.grants(&unowned, &coming) {
                self.releasing.remove(&(stream.clone(), to.clone()));
                self.step.granted.push((stream.clone(), to.clone()));
                self.list(to, place, stream, 0);
                continue;
            }
            self.announce(to, place, stream);
            if !held {
                self.step.free.push(stream.clone());
            }
        }
        self.finish()
    }

    /// Returns the reason why a stream leaves its worker, if it does.
    fn leaves(
        &self,
        owner: &Name,
        to: Option<&Name>,
        blocked: bool,
        awaiting: &mut Option<bool>,
    ) -> Option<Cause> {
        let Some(to) = to else { return Some(Cause::Unassigned) };
        if !self.lists.contains_key(owner) {
            return Some(Cause::Unwanted);
        }
        let World { workers, rules, .. } = self.world;
        // It leaves a worker that could keep it only for one that can take it.
        let blocked = rules.exclusive && (self.barrier.is_some() || blocked);
        let moves = owner != to
            && !blocked
            && workers.get(to).is_some_and(|worker| worker.wanted && worker.serves())
            && !*awaiting.get_or_insert_with(|| self.awaits());
        moves.then_some(Cause::Moved)
    }

    /// Reports whether a worker that should gain from another is not ready, and streams that would
    /// move for balance wait for it.
    fn awaits(&self) -> bool {
        let World { target, workers, rules, .. } = self.world;
        rules.await_targets
            && rules.strategy == Strategy::DeletePod
            && target.iter().any(|(stream, to)| {
                let owner = self.known.get(stream).and_then(|known| known.owner);
                let (Some(owner), Some(to)) = (owner, to) else { return false };
                owner != to
                    && self.lists.contains_key(owner)
                    && workers.get(to).is_some_and(|worker| worker.wanted && !worker.serves())
            })
    }

    /// Returns the workers that have not prepared all streams that should leave another for them.
    fn preparing(&self) -> HashSet<&'a Name> {
        let World { target, workers, .. } = self.world;
        let preparing = target.iter().filter_map(|(stream, to)| {
            let (owner, to) = (self.known.get(stream)?.owner?, to.as_ref()?);
            let pod = workers.get(to)?.pod.as_ref()?;
            let leaves = owner != to && self.lists.contains_key(owner);
            (leaves && pod.is_preparing(stream)).then_some(to)
        });
        preparing.collect()
    }

    /// Removes the streams that are not in the spec.
    fn remove(&mut self) {
        let gone = self.known.iter().filter(|(_, known)| !known.wanted);
        let mut gone: Vec<_> =
            gone.filter_map(|(stream, known)| Some((*stream, known.owner?))).collect();
        gone.sort_unstable();
        for (stream, owner) in gone {
            self.revoke(stream, owner, Cause::Removed);
        }
    }

    /// Reports whether a stream without an owner goes to its worker now.
    fn grants(&self, unowned: &Unowned<'_>, coming: &HashSet<&Name>) -> bool {
        let Unowned { to, held, held_by_another, .. } = *unowned;
        if !self.lists.contains_key(to) {
            return false;
        }
        if !self.world.rules.exclusive {
            return true;
        }
        // The worker to which it returns restarts anyway, and runs it until then.
        let gathered = held || !coming.contains(to) || !self.world.restarts(to);
        self.barrier.is_none() && !held_by_another && gathered
    }

    fn revoke(&mut self, stream: &'a Name, from: &'a Name, cause: Cause) {
        self.releasing.insert((stream.clone(), from.clone()), self.world.epoch);
        self.known.entry(stream).or_default().holders.push(from);
        self.step.revoked.push((stream.clone(), from.clone(), cause));
    }

    fn list(&mut self, worker: &Name, place: usize, stream: &'a Name, kept: usize) {
        if let Some(list) = self.lists.get_mut(worker) {
            list.streams.push((place, stream));
            list.kept += kept;
        }
    }

    /// Notes that a stream will come to a worker.
    fn announce(&mut self, worker: &Name, place: usize, stream: &'a Name) {
        if let Some(list) = self.lists.get_mut(worker).filter(|_| self.world.rules.announce) {
            list.next.push((place, stream));
        }
    }

    /// Returns the next file, if it differs.
    fn finish(self) -> Step {
        let World { published, epoch, .. } = self.world;
        let mut same = self.barrier == published.barrier
            && self.releasing == published.releasing
            && self.lists.len() == published.shares.len();
        let (mut shares, mut next) = (BTreeMap::new(), BTreeMap::new());
        for (worker, mut list) in self.lists {
            let coming = std::mem::take(&mut list.next);
            if !coming.is_empty() {
                next.insert(worker.clone(), next_coming(published.next.get(worker), coming));
            }
            let old = published.shares.get(worker);
            let share = next_share(old, list, epoch);
            same &= share.is_none() && old.is_some();
            shares.insert(worker, share);
        }
        let mut step = self.step;
        if !same || next != published.next {
            let unchanged = |worker| published.shares.get(worker).cloned().unwrap_or_default();
            let shares = shares.into_iter().map(|(worker, share)| {
                (worker.clone(), share.unwrap_or_else(|| unchanged(worker)))
            });
            let (releasing, barrier) = (self.releasing, self.barrier);
            let shares = shares.collect();
            let outdated = published.outdated.clone();
            step.publish = Some(Published { epoch, shares, next, releasing, barrier, outdated });
        }
        step
    }
}

/// Returns the streams that will come to a worker. Another order is no change.
fn next_coming(old: Option<&Vec<Name>>, mut coming: Vec<(usize, &Name)>) -> Vec<Name> {
    coming.sort_unstable();
    let coming: Vec<_> = coming.into_iter().map(|(_, stream)| stream.clone()).collect();
    let set = |list: &[Name]| list.iter().cloned().collect::<BTreeSet<_>>();
    let same = |old: &&Vec<Name>| old.len() == coming.len() && set(old) == set(&coming);
    old.filter(same).cloned().unwrap_or(coming)
}

/// Returns the next list of a worker. A missing entry counts as an empty list: a new empty entry is
/// no change that a pod must read.
fn next_share(old: Option<&Share>, mut list: List<'_>, epoch: Epoch) -> Option<Share> {
    let (had, version) = old.map_or((0, 0), |old| (old.streams.len(), old.version));
    if list.kept == had && list.kept == list.streams.len() && version <= epoch {
        return None;
    }
    list.streams.sort_unstable();
    let streams = list.streams.into_iter().map(|(_, stream)| stream.clone()).collect();
    Some(Share { streams, version: epoch })
}

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
