//! The world: its state, and what can happen in it.
use super::operator::Operator;

/// As many workers and streams as a state has room for.
pub(super) const WORKERS: usize = 3;
pub(super) const STREAMS: usize = 3;

/// As many epochs as a state remembers.
const HISTORY: usize = 16;

/// A set of streams or of workers, one bit for each.
pub(super) type Set = u8;

pub(super) const fn has(set: Set, element: usize) -> bool {
    set >> element & 1 == 1
}

/// The file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct File {
    pub epoch: u8,
    /// Which workers have an entry.
    pub entries: Set,
    pub lists: [Set; WORKERS],
    pub versions: [u8; WORKERS],
    /// Since when which stream is releasing from which worker; 0: it is not.
    pub releasing: [[u8; STREAMS]; WORKERS],
    /// 0: none.
    pub barrier: u8,
}

/// One pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Pod {
    /// The epoch of the file that it has read last.
    pub read: u8,
    /// The epoch that it answers when asked.
    pub applied: u8,
    /// What it runs.
    pub run: Set,
    pub terminating: bool,
    pub stopped: bool,
    /// Its node is cut off: nothing gets there or comes from there.
    pub cut: bool,
    /// The operator's memory of its answer, and of the epoch at which it came.
    pub told: Option<u8>,
    pub born: Option<u8>,
}

/// What the operator's cache holds of a worker, in worlds with a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Cached {
    pub pod: Option<Pod>,
    /// The file's epoch at that time.
    pub at: u8,
    /// It is still the same pod.
    pub same: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub file: File,
    /// The lists of each epoch.
    pub history: [[Set; WORKERS]; HISTORY],
    /// Which of the world's wishes the spec is now.
    pub wish: u8,
    pub pods: [Option<Pod>; WORKERS],
    /// Of a Deployment: pods whose names are used up.
    pub born: Set,
    pub cache: [Cached; WORKERS],
    /// Immutable `ConfigMap`s: the epoch that the template names, and the one its controller has told it knows.
    pub template: u8,
    pub observed: u8,
    /// The highest epoch that the operator was ever told; only where epochs are absolute, elsewhere it is never
    /// above the file's.
    pub highest: u8,
    /// What the operator has decided and not yet done.
    pub write: Option<File>,
    pub evict: Set,
    /// How often something may still happen: a change of the spec, a fault, a crash of the operator.
    pub changes: u8,
    pub faults: u8,
    pub crashes: u8,
}

/// What the user wants: so many replicas, and each stream on a worker; `-`: unassigned, `x`: removed.
pub(super) type Wish = (usize, &'static str);

/// What kind of world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plot {
    pub workers: usize,
    pub streams: usize,
    pub wishes: &'static [Wish],
    pub changes: u8,
    pub faults: u8,
    pub crashes: u8,
    /// Pods have names of their own and never come back.
    pub deployment: bool,
    /// Pods mount the `ConfigMap` of one epoch.
    pub immutable: bool,
    /// A kubelet may give a new pod any file that there ever was.
    pub stale_births: bool,
    /// The operator sees pods through a cache.
    pub cached: bool,
    /// Workers start and stop streams one by one, and evictions come at any time after the write.
    pub careful: bool,
    /// Numbers are as they are: needed where old epochs are met again.
    pub absolute: bool,
    /// The highest epoch that the status remembers.
    pub remembered: u8,
    /// Two may run a stream, as long as the file says so.
    pub immediate: bool,
    /// Pods run what the file does not know of.
    pub unbooked: bool,
    /// Only what two pods run, or two lists have, is asked for.
    pub only_i8: bool,
}

/// A plot with the operator that plays in it.
pub(super) struct World<'a> {
    pub plot: Plot,
    pub operator: Operator<'a>,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// The user wants something else.
    Wish(u8),
    /// The kubelet delivers the next file, and the worker starts what it lists.
    Read(usize),
    /// The operator asks. Before it answers, the worker stops what its file does not list (or its container is
    /// restarted, which comes to the same).
    Ask(usize),
    /// Careful worlds: it starts or stops one; it has stopped all, and would answer that.
    Start(usize, usize),
    Stop(usize, usize),
    Apply(usize),
    /// The workload, or somebody, deletes the pod.
    Delete(usize),
    /// All containers of a pod that is being deleted are terminated.
    Terminate(usize),
    /// All containers die for good, without anybody deleting the pod.
    Die(usize),
    /// The pod's object vanishes.
    Vanish(usize),
    /// A pod comes: it has read the file of this epoch.
    Come(usize, u8),
    /// Its node is cut off; it comes back; or it is dead and the user says so.
    Cut(usize),
    Heal(usize),
    Fence(usize),
    /// The operator's cache learns of the worker's pod.
    Sync(usize),
    /// The template names the newest file; the controller has seen that.
    Template,
    Observe,
    /// The operator decides; writes; evicts; is killed.
    Decide,
    Write,
    Evict(usize),
    Crash,
}

impl World<'_> {
    /// How many replicas there are to be, and where the streams.
    pub(super) fn wish(&self, state: &State) -> Wish {
        self.plot.wishes[usize::from(state.wish)]
    }

    /// The first state: an empty file, and what the user wants.
    pub(super) fn beginning(&self) -> State {
        let Plot { changes, faults, crashes, .. } = self.plot;
        // Epoch 0 is none.
        let file = File { epoch: 1, ..File::default() };
        State {
            file,
            highest: self.plot.remembered,
            template: 1,
            observed: 1,
            changes,
            faults,
            crashes,
            ..State::default()
        }
    }

    /// The state in which the first wish is fulfilled.
    pub(super) fn settled(&self) -> State {
        let mut state = self.beginning();
        loop {
            let before = state;
            self.fair_round(&mut state);
            if state == before {
                return state;
            }
        }
    }

    /// Everything that could happen now; some of it can not.
    pub(super) fn moves(&self, state: &State) -> Vec<Move> {
        let Plot { workers, streams, wishes, .. } = self.plot;
        let mut moves = vec![Move::Decide, Move::Write, Move::Crash, Move::Template, Move::Observe];
        moves.extend((0..wishes.len()).filter_map(|wish| u8::try_from(wish).ok()).map(Move::Wish));
        for w in 0..workers {
            moves.extend([Move::Evict(w), Move::Delete(w), Move::Terminate(w), Move::Die(w)]);
            moves.extend([Move::Vanish(w), Move::Cut(w), Move::Heal(w), Move::Fence(w)]);
            moves.extend([Move::Read(w), Move::Apply(w), Move::Ask(w), Move::Sync(w)]);
            moves.extend(self.epochs_at_birth(state).map(|epoch| Move::Come(w, epoch)));
            if self.plot.careful {
                moves.extend((0..streams).flat_map(|s| [Move::Start(w, s), Move::Stop(w, s)]));
            }
        }
        moves
    }

    fn epochs_at_birth(&self, state: &State) -> std::ops::RangeInclusive<u8> {
        let Plot { immutable, stale_births, .. } = self.plot;
        match (immutable, stale_births) {
            // Whatever kubelets have in their caches: the name says which file it is.
            (true, _) => state.observed..=state.template,
            (false, true) => 0..=state.file.epoch,
            (false, false) => state.file.epoch..=state.file.epoch,
        }
    }

    /// The state after this, if it can happen and changes something.
    pub(super) fn after(&self, state: &State, happens: Move) -> Option<State> {
        let mut next = *state;
        self.happen(&mut next, happens)?;
        if !self.plot.absolute {
            next.forget(self.plot.immutable);
            next.count_from_lowest();
        }
        (next != *state).then_some(next)
    }

    fn happen(&self, state: &mut State, happens: Move) -> Option<()> {
        let plot = &self.plot;
        match happens {
            Move::Wish(wish) if wish == state.wish => return None,
            Move::Wish(wish) => {
                state.changes = state.changes.checked_sub(1)?;
                state.wish = wish;
            }
            Move::Read(w) => {
                let newest = state.file.epoch;
                let pod = state.pods[w].as_mut().filter(|pod| !pod.stopped && !pod.cut)?;
                if pod.read >= newest || plot.immutable {
                    return None;
                }
                pod.read += 1;
                if !plot.careful {
                    pod.run |= state.history[usize::from(pod.read)][w];
                }
            }
            Move::Apply(w) => {
                let list = state.history[usize::from(state.pods[w]?.read)][w];
                let pod = state.pods[w].as_mut().filter(|pod| !pod.stopped && plot.careful)?;
                if pod.run & !list != 0 {
                    return None;
                }
                pod.applied = pod.read;
            }
            Move::Start(w, s) | Move::Stop(w, s) => {
                let history = state.history;
                let pod = state.pods[w].as_mut().filter(|pod| !pod.stopped)?;
                let listed = has(history[usize::from(pod.read)][w], s);
                match happens {
                    Move::Start(..) if listed => pod.run |= 1 << s,
                    Move::Stop(..) if !listed => pod.run &= !(1 << s),
                    _ => return None,
                }
            }
            Move::Ask(w) => {
                let list = state.history[usize::from(state.pods[w]?.read)][w];
                let pod = state.pods[w].as_mut().filter(|pod| !pod.stopped && !pod.cut)?;
                if plot.immutable || (plot.cached && !state.cache[w].same) {
                    return None;
                }
                if !plot.careful {
                    (pod.run, pod.applied) = (list, pod.read);
                }
                pod.told = Some(pod.applied);
                if plot.absolute {
                    state.highest = state.highest.max(pod.applied);
                }
                if let Some(known) = &mut state.cache[w].pod {
                    known.told = pod.told;
                }
            }
            Move::Sync(w) => self.sync(state, w)?,
            Move::Template if plot.immutable && state.write.is_none() => {
                state.template = state.file.epoch;
            }
            Move::Observe if plot.immutable => state.observed = state.template,
            Move::Template | Move::Observe => return None,
            Move::Decide | Move::Write | Move::Evict(_) | Move::Crash => {
                self.operate(state, happens)?;
            }
            _ => self.befall(state, happens)?,
        }
        Some(())
    }

    /// What happens to pods and nodes.
    fn befall(&self, state: &mut State, happens: Move) -> Option<()> {
        let (replicas, _) = self.wish(state);
        let deployment = self.plot.deployment;
        match happens {
            Move::Delete(w) => {
                let pod = state.pods[w].as_mut().filter(|pod| !pod.terminating)?;
                if w < replicas && !pod.stopped {
                    state.faults = state.faults.checked_sub(1)?;
                }
                pod.terminating = true;
            }
            Move::Terminate(w) => {
                let pod = state.pods[w].as_mut();
                let pod = pod.filter(|pod| pod.terminating && !pod.stopped && !pod.cut)?;
                pod.stop();
            }
            Move::Die(w) => {
                let pod = state.pods[w].as_mut().filter(|pod| !pod.stopped && !pod.cut)?;
                state.faults = state.faults.checked_sub(1)?;
                pod.stop();
            }
            Move::Vanish(w) => {
                state.pods[w].filter(|pod| pod.stopped)?;
                state.go(w);
            }
            Move::Come(w, read) => {
                let used_up = deployment && has(state.born, w);
                if state.pods[w].is_some() || w >= replicas || used_up {
                    return None;
                }
                let run = if self.plot.careful { 0 } else { state.history[usize::from(read)][w] };
                let born = Some(state.file.epoch);
                let applied = read;
                state.pods[w] = Some(Pod { read, applied, run, born, ..Pod::default() });
                state.born |= if deployment { 1 << w } else { 0 };
                state.cache[w].same = false;
            }
            Move::Cut(w) => {
                let pod = state.pods[w].as_mut().filter(|pod| !pod.stopped && !pod.cut)?;
                state.faults = state.faults.checked_sub(1)?;
                pod.cut = true;
            }
            Move::Heal(w) => state.pods[w].as_mut().filter(|pod| pod.cut)?.cut = false,
            Move::Fence(w) => {
                state.pods[w].filter(|pod| pod.cut)?;
                state.go(w);
            }
            _ => return None,
        }
        Some(())
    }

    fn sync(&self, state: &mut State, w: usize) -> Option<()> {
        if !self.plot.cached {
            return None;
        }
        // Of what the pod has read the operator knows nothing but by asking.
        let pod = state.pods[w].map(|pod| Pod { read: 0, applied: 0, run: 0, ..pod });
        state.cache[w] = Cached { pod, at: state.file.epoch, same: pod.is_some() };
        Some(())
    }

    fn operate(&self, state: &mut State, happens: Move) -> Option<()> {
        let plot = &self.plot;
        match happens {
            Move::Decide => {
                if state.write.is_some() || state.evict != 0 {
                    return None;
                }
                let decided = self.operator.decide(self, state);
                (state.write, state.evict) = (decided.write, decided.evict);
                if state.write.is_none() && !plot.careful && !plot.immutable {
                    state.evict_all();
                }
            }
            Move::Write => {
                let file = state.write.take()?;
                assert!(file.epoch > state.file.epoch, "I10");
                state.file = file;
                state.history[usize::from(state.file.epoch)] = state.file.lists;
                if !plot.careful && !plot.immutable {
                    state.evict_all();
                }
            }
            Move::Evict(w) => {
                let current = !plot.immutable || state.template == state.file.epoch;
                if state.write.is_some() || !has(state.evict, w) || !current {
                    return None;
                }
                state.evict &= !(1 << w);
                state.pods[w].as_mut()?.terminating = true;
            }
            Move::Crash => {
                state.crashes = state.crashes.checked_sub(1)?;
                (state.write, state.evict, state.highest) = (None, 0, plot.remembered);
                for pod in state.pods.iter_mut().flatten() {
                    (pod.told, pod.born) = (None, None);
                }
                state.cache = Default::default();
            }
            _ => return None,
        }
        Some(())
    }

    /// One round in which everything works that can, and nothing else happens.
    pub(super) fn fair_round(&self, state: &mut State) {
        let Plot { workers, streams, careful, .. } = self.plot;
        // What happens if it can.
        let mut let_happen = |happens: Move| {
            if let Some(next) = self.after(state, happens) {
                *state = next;
            }
            *state
        };
        for happens in [Move::Write, Move::Template, Move::Observe] {
            let_happen(happens);
        }
        for w in 0..workers {
            let now = let_happen(Move::Evict(w));
            let_happen(Move::Heal(w));
            if w >= self.wish(&now).0 {
                let_happen(Move::Delete(w));
            }
            let_happen(Move::Terminate(w));
            let now = let_happen(Move::Vanish(w));
            let_happen(Move::Come(
                w,
                if self.plot.immutable { now.observed } else { now.file.epoch },
            ));
        }
        for w in 0..workers {
            for _ in 0..HISTORY {
                let_happen(Move::Read(w));
            }
            for s in (0..streams).filter(|_| careful) {
                let_happen(Move::Start(w, s));
                let_happen(Move::Stop(w, s));
            }
            let_happen(Move::Apply(w));
            let_happen(Move::Sync(w));
            let_happen(Move::Ask(w));
        }
        let_happen(Move::Decide);
    }
}

impl Pod {
    fn stop(&mut self) {
        *self = Self { stopped: true, terminating: self.terminating, ..Self::default() };
    }
}

impl State {
    /// The pod's object is gone. An eviction that names it fails.
    fn go(&mut self, w: usize) {
        self.pods[w] = None;
        self.cache[w].same = false;
        self.evict &= !(1 << w);
    }

    /// Shifts all epochs so that the lowest one that is referred to is 1. The versions of lists below it are
    /// below all that a pod can have, and that is all that matters of them; 0 stays what it is.
    fn count_from_lowest(&mut self) {
        let mut lowest = self.file.epoch;
        self.each_epoch(&mut |epoch| lowest = lowest.min(*epoch));
        if lowest == 1 {
            return;
        }
        let shift = |epoch: &mut u8| *epoch = *epoch + 1 - lowest;
        self.each_epoch(&mut |epoch| shift(epoch));
        for file in [Some(&mut self.file), self.write.as_mut()].into_iter().flatten() {
            shift(&mut file.epoch);
            let listed = file.versions.iter_mut().filter(|version| **version > 0);
            listed.for_each(|version| *version = (*version).max(lowest) + 1 - lowest);
        }
        if lowest == 0 {
            self.history.copy_within(..HISTORY - 1, 1);
        } else {
            self.history.copy_within(usize::from(lowest) - 1.., 0);
            self.history[HISTORY + 1 - usize::from(lowest)..].fill([0; WORKERS]);
        }
    }

    /// Those that are gone since it was decided were crossed out.
    fn evict_all(&mut self) {
        let evicted = self.pods.iter_mut().enumerate().filter(|(w, _)| has(self.evict, *w));
        evicted.filter_map(|(_, pod)| pod.as_mut()).for_each(|pod| pod.terminating = true);
        self.evict = 0;
    }

    /// Drops what nobody can read any more, and what does not matter any more.
    fn forget(&mut self, immutable: bool) {
        for pod in self.pods.iter_mut().flatten().filter(|pod| pod.told.is_some()) {
            pod.born = None;
        }
        if !immutable {
            (self.template, self.observed) = (0, 0);
        }
        for w in 0..WORKERS {
            let pod = self.pods[w].filter(|pod| !pod.stopped);
            let came = if immutable { self.observed } else { self.file.epoch };
            let oldest = pod.map_or(came, |pod| pod.read.min(came));
            self.history[..oldest.into()].iter_mut().for_each(|lists| lists[w] = 0);
        }
    }

    /// All epochs but those of files and the versions of lists.
    fn each_epoch(&mut self, visit: &mut dyn FnMut(&mut u8)) {
        for pod in self.pods.iter_mut().flatten() {
            visit_nonzero(&mut pod.read, visit);
            visit_nonzero(&mut pod.applied, visit);
            pod.told.iter_mut().chain(&mut pod.born).for_each(&mut *visit);
        }
        for cached in &mut self.cache {
            visit_nonzero(&mut cached.at, visit);
            if let Some(pod) = &mut cached.pod {
                pod.told.iter_mut().chain(&mut pod.born).for_each(&mut *visit);
            }
        }
        visit_nonzero(&mut self.template, visit);
        visit_nonzero(&mut self.observed, visit);
        for file in [Some(&mut self.file), self.write.as_mut()].into_iter().flatten() {
            file.releasing
                .as_flattened_mut()
                .iter_mut()
                .for_each(|since| visit_nonzero(since, visit));
            visit_nonzero(&mut file.barrier, visit);
        }
    }
}

fn visit_nonzero(epoch: &mut u8, visit: &mut dyn FnMut(&mut u8)) {
    if *epoch > 0 {
        visit(epoch);
    }
}
