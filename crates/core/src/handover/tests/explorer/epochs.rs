//! Counts epochs from the lowest one that matters: only their order is ever compared.
use super::model::{HISTORY, State, WORKERS};

impl State {
    /// Shifts all epochs so that the lowest referenced one is 1. The versions of lists below it are
    /// lower than any that a pod can have, and only this matters; 0 stays unchanged.
    pub(super) fn count_from_lowest(&mut self) {
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

    /// Drops files that no pod can read any more, and everything else that no longer matters.
    pub(super) fn forget(&mut self, immutable: bool) {
        for pod in self.pods.iter_mut().flatten().filter(|pod| pod.reported.is_some()) {
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

    /// Visits all epochs except those of files and the versions of lists.
    fn each_epoch(&mut self, visit: &mut dyn FnMut(&mut u8)) {
        for pod in self.pods.iter_mut().flatten() {
            visit_nonzero(&mut pod.read, visit);
            visit_nonzero(&mut pod.applied, visit);
            pod.reported.iter_mut().chain(&mut pod.born).for_each(&mut *visit);
        }
        for cached in &mut self.cache {
            visit_nonzero(&mut cached.at, visit);
            if let Some(pod) = &mut cached.pod {
                pod.reported.iter_mut().chain(&mut pod.born).for_each(&mut *visit);
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
