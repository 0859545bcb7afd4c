//! The possible events.
use super::model::{Cached, HISTORY, Move, Plot, Pod, State, World, has};

impl World<'_> {
    /// Returns the state after this event, if it can happen and changes anything.
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
                pod.reported = Some(pod.applied);
                if plot.absolute {
                    state.highest = state.highest.max(pod.applied);
                }
                if let Some(known) = &mut state.cache[w].pod {
                    known.reported = pod.reported;
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

    /// Applies an event of pods and nodes.
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
            Move::Come(w, late) => {
                let used_up = deployment && has(state.born, w);
                if state.pods[w].is_some() || w >= replicas || used_up {
                    return None;
                }
                // Independent of the caches of kubelets: the name of an immutable file identifies
                // it.
                let immutable = self.plot.immutable;
                let (oldest, newest) = (state.observed, state.template);
                let (oldest, newest) =
                    if immutable { (oldest, newest) } else { (0, state.file.epoch) };
                let late = newest.checked_sub(u8::try_from(late).ok()?);
                let read = late.filter(|read| *read >= oldest)?;
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
        // The operator knows only by asking what the pod has read.
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
                    (pod.reported, pod.born) = (None, None);
                }
                state.cache = Default::default();
            }
            _ => return None,
        }
        Some(())
    }

    /// Plays one round in which everything possible succeeds, and nothing else happens.
    pub(super) fn fair_round(&self, state: &mut State) {
        let Plot { workers, streams, careful, .. } = self.plot;
        // Applies an event if it can happen.
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
            let_happen(Move::Vanish(w));
            let_happen(Move::Come(w, 0));
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
    /// Removes the pod's object. An eviction that names it fails.
    fn go(&mut self, w: usize) {
        self.pods[w] = None;
        self.cache[w].same = false;
        self.evict &= !(1 << w);
    }

    /// Pods that have gone since the decision were already removed from the list.
    fn evict_all(&mut self) {
        let evicted = self.pods.iter_mut().enumerate().filter(|(w, _)| has(self.evict, *w));
        evicted.filter_map(|(_, pod)| pod.as_mut()).for_each(|pod| pod.terminating = true);
        self.evict = 0;
    }
}
