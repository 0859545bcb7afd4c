//! The step itself.
use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    Cause, Epoch, Name, Published, Rules, Share, Step, Strategy, Target, Worker,
    refresh::refresh,
    release::{History, in_the_way, waiting},
};

/// What to do now: the next file, and who is to be made to read it. See the [module](super).
///
/// `highest_reported` is the highest epoch that any worker or the status was ever seen with; the next file's is above it.
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
        Step { publish: Some(published.distrusted(history.highest)), ..Step::default() }
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
    step.free = free(file, target);
    step
}

/// Streams that have a worker to be on and are with nobody.
fn free(file: &Published, target: &Target) -> Vec<Name> {
    let listed = file.shares.values().flat_map(|share| &share.streams);
    let taken: HashSet<&str> =
        listed.chain(file.releasing.keys().map(|(stream, _)| stream)).map(|s| &**s).collect();
    let assigned = target.iter().filter(|(_, worker)| worker.is_some());
    assigned.map(|(stream, _)| stream).filter(|s| !taken.contains(&***s)).cloned().collect()
}

#[derive(Clone, Copy)]
struct World<'a> {
    published: &'a Published,
    target: &'a Target,
    workers: &'a BTreeMap<Name, Worker>,
    rules: &'a Rules,
    /// Of the next file, should there be one.
    epoch: Epoch,
}

impl<'a> World<'a> {
    fn wanted(self, worker: &str) -> Option<&'a Worker> {
        self.workers.get(worker).filter(|worker| worker.wanted)
    }

    /// Whether all that was ever told is from files that are known.
    fn passed(self, barrier: Epoch) -> bool {
        let mut everyone = self.published.workers().into_iter().chain(self.workers.keys());
        everyone.all(|worker| {
            in_the_way(self.workers.get(worker), barrier, self.published.epoch).is_none()
        })
    }

    /// Whether giving a free stream to this worker costs a restart of its pod, so that it is better given
    /// all at once.
    fn restarts(self, worker: &str) -> bool {
        let pod = self.workers.get(worker).and_then(|worker| worker.pod.as_ref());
        pod.is_some_and(|pod| pod.live() && (pod.ready || pod.loaded.is_some()))
    }

    fn gathers(self) -> bool {
        self.rules.exclusive && self.rules.gather && self.rules.strategy == Strategy::DeletePod
    }
}

/// One round over all streams.
struct Round<'a> {
    world: World<'a>,
    /// Who has each stream before this round.
    owners: HashMap<&'a Name, &'a Name>,
    /// Who releases each stream, those of this round among them.
    holders: HashMap<&'a Name, Vec<&'a Name>>,
    /// What is still releasing.
    releasing: BTreeMap<(Name, Name), Epoch>,
    /// What each wanted worker has after it, with the place in the spec.
    lists: BTreeMap<&'a Name, Vec<(usize, Name)>>,
    barrier: Option<Epoch>,
    /// The wait for workers that are not ready holds back what would leave for the balance.
    awaiting: bool,
    step: Step,
}

impl<'a> Round<'a> {
    fn new(world: World<'a>) -> Self {
        let World { published, workers, .. } = world;
        let wanted = workers.iter().filter(|(_, worker)| worker.wanted);
        let mut round = Self {
            world,
            owners: HashMap::new(),
            holders: HashMap::new(),
            releasing: BTreeMap::new(),
            lists: wanted.map(|(name, _)| (name, Vec::new())).collect(),
            barrier: published.barrier.map(|barrier| barrier.min(world.epoch)),
            awaiting: false,
            step: Step::default(),
        };
        if published.barrier.is_some_and(|barrier| world.passed(barrier)) {
            round.barrier = None;
        }
        round.let_go();
        round.own();
        round.awaiting = round.awaits();
        round
    }

    /// Ends the releases of those who have let go.
    fn let_go(&mut self) {
        let World { published, workers, epoch, .. } = self.world;
        for (key, &since) in &published.releasing {
            let (stream, worker) = key;
            if in_the_way(workers.get(worker), since, published.epoch).is_none() {
                self.step.freed.push(key.clone());
            } else {
                self.releasing.insert(key.clone(), since.min(epoch));
                self.holders.entry(stream).or_default().push(worker);
            }
        }
    }

    /// Who has what. Of two that have the same, the first keeps it.
    fn own(&mut self) {
        for (worker, share) in &self.world.published.shares {
            for stream in &share.streams {
                let owner = *self.owners.entry(stream).or_insert(worker);
                if owner != worker {
                    self.revoke(stream, worker, Cause::Duplicate);
                }
            }
        }
    }

    /// Whether a worker that is to gain from another is not ready.
    fn awaits(&self) -> bool {
        let World { target, rules, .. } = self.world;
        rules.await_targets
            && rules.strategy == Strategy::DeletePod
            && target.iter().any(|(stream, to)| {
                let (Some(owner), Some(to)) = (self.owners.get(stream), to) else { return false };
                *owner != to
                    && self.world.wanted(owner).is_some()
                    && self.world.wanted(to).is_some_and(|worker| !worker.serves())
            })
    }

    fn run(mut self) -> Step {
        let target = self.world.target;
        let mut known: HashSet<&Name> = HashSet::with_capacity(target.len());
        let places: Vec<_> =
            target.iter().enumerate().filter(|(_, (stream, _))| known.insert(stream)).collect();
        // First all that leaves: a stream waits for those that are on their way to the same worker.
        let mut unowned = Vec::new();
        for (place, (stream, to)) in places {
            match self.stays_or_leaves(stream, to.as_ref()) {
                Some(owner) => self.list(owner, place, stream),
                None => unowned.extend(to.as_ref().map(|to| (place, stream, to))),
            }
        }
        let removed = self.owners.iter().filter(|(stream, _)| !known.contains(*stream));
        let mut removed: Vec<_> = removed.map(|(stream, owner)| (*stream, *owner)).collect();
        removed.sort_unstable();
        for (stream, owner) in removed {
            self.revoke(stream, owner, Cause::Removed);
        }
        let coming: HashSet<&str> = if self.world.gathers() {
            let coming = unowned.iter().filter(|(_, stream, to)| self.held_by_another(stream, to));
            coming.map(|(_, _, to)| &***to).collect()
        } else {
            HashSet::new()
        };
        for (place, stream, to) in unowned {
            if self.grants(stream, to, &coming) {
                self.releasing.remove(&(stream.clone(), to.clone()));
                self.step.granted.push((stream.clone(), to.clone()));
                self.list(to, place, stream);
            }
        }
        self.finish()
    }

    /// Whoever keeps the stream; `None` if nobody has it after this.
    fn stays_or_leaves(&mut self, stream: &'a Name, to: Option<&'a Name>) -> Option<&'a Name> {
        let owner = *self.owners.get(stream)?;
        let cause = match to {
            None => Cause::Unassigned,
            Some(_) if self.world.wanted(owner).is_none() => Cause::Unwanted,
            Some(to) if owner != to && self.may_move(stream, to) => Cause::Moved,
            Some(_) => return Some(owner),
        };
        self.revoke(stream, owner, cause);
        None
    }

    /// Whether a stream may leave a worker that could keep it: only if the other one can take it.
    fn may_move(&self, stream: &Name, to: &Name) -> bool {
        let World { rules, .. } = self.world;
        let blocked = self.barrier.is_some() || self.held_by_another(stream, to);
        self.world.wanted(to).is_some_and(Worker::serves)
            && !self.awaiting
            && !(rules.exclusive && blocked)
    }

    fn held_by_another(&self, stream: &Name, worker: &Name) -> bool {
        let holders = self.holders.get(stream).map_or(&[][..], Vec::as_slice);
        holders.iter().any(|holder| *holder != worker)
    }

    /// Whether a stream that nobody has goes to this worker now.
    fn grants(&self, stream: &Name, to: &Name, coming: &HashSet<&str>) -> bool {
        if self.world.wanted(to).is_none() {
            return false;
        }
        if !self.world.rules.exclusive {
            return true;
        }
        // Whom it returns to restarts anyway, and runs it until then.
        let returns = self.holders.contains_key(stream);
        let gathered = returns || !coming.contains(&**to) || !self.world.restarts(to);
        self.barrier.is_none() && !self.held_by_another(stream, to) && gathered
    }

    fn revoke(&mut self, stream: &'a Name, from: &'a Name, cause: Cause) {
        self.releasing.insert((stream.clone(), from.clone()), self.world.epoch);
        self.holders.entry(stream).or_default().push(from);
        self.step.revoked.push((stream.clone(), from.clone(), cause));
    }

    fn list(&mut self, worker: &Name, place: usize, stream: &Name) {
        if let Some(list) = self.lists.get_mut(worker) {
            list.push((place, stream.clone()));
        }
    }

    /// The next file, if it differs.
    fn finish(mut self) -> Step {
        let World { published, epoch, .. } = self.world;
        let lists = std::mem::take(&mut self.lists).into_iter();
        let shares =
            lists.map(|(worker, list)| (worker.clone(), self.share(worker, list))).collect();
        let next = Published {
            epoch: published.epoch,
            shares,
            releasing: self.releasing,
            barrier: self.barrier,
        };
        if next != *published {
            self.step.publish = Some(Published { epoch, ..next });
        }
        self.step
    }

    /// A share of these streams: the published one if they are the same.
    fn share(&self, worker: &Name, mut list: Vec<(usize, Name)>) -> Share {
        let World { published, epoch, .. } = self.world;
        list.sort_unstable();
        let list: Vec<_> = list.into_iter().map(|(_, stream)| stream).collect();
        let Some(old) = published.shares.get(worker) else {
            // No entry was an empty list: adding one is no change that a pod would have to read.
            let version = if list.is_empty() { 0 } else { epoch };
            return Share { streams: list, version };
        };
        let kept = list.iter().filter(|stream| self.owners.get(*stream) == Some(&worker)).count();
        if kept == old.streams.len() && kept == list.len() {
            return Share { streams: old.streams.clone(), version: old.version.min(epoch) };
        }
        Share { streams: list, version: epoch }
    }
}
