//! A small world: an API server, kubelets, workers, and the operator's process between two passes.
use std::{sync::Arc, time::Duration};

use super::{
    decided::{Decided, Remembered},
    facts::File,
    plot::{MAPS, Plot},
    pod::{Pod, Set, WORKERS, has, packed},
};
use crate::placement::hash::combine;

/// The whole state. Large parts are shared, because a world is copied for each possible event.
#[derive(Clone, Debug)]
pub(super) struct World {
    /// The file, or the head and the parts of one that is divided.
    pub maps: [Option<Arc<File>>; MAPS],
    /// The last file delivered by the operator's watch.
    pub heard: Option<Arc<File>>,
    /// All versions of each that ever existed, by any writer.
    pub history: Arc<Vec<Arc<File>>>,
    /// The version in the status of the `Swarm`, and a fingerprint of the whole status.
    pub reported: (i64, u64),
    /// The reason for Ready=False in the last pass, if any.
    pub complaint: Option<Arc<str>>,
    /// Index of the plot's wish in the spec.
    pub wish: usize,
    pub pods: [Option<Pod>; WORKERS],
    /// Number of pods so far in each place.
    pub serials: [u8; WORKERS],
    /// True if the operator's watches may be late.
    pub cached: bool,
    pub cache: [Option<Pod>; WORKERS],
    /// The version of the immutable file that the template names, and of the one that the
    /// workload's controller has seen there.
    pub template: u8,
    pub observed: u8,
    /// The operator's memory, and the decision that it has not carried out yet.
    pub remembered: Arc<Remembered>,
    pub decided: Option<Arc<Decided>>,
    /// The decision that the previous operator has not carried out yet, and how many writes of it
    /// are made.
    pub deposed: Option<(Arc<Decided>, usize)>,
    /// The time since the start.
    pub clock: Duration,
    /// A pod started a stream by a file of the operator while another ran it.
    pub twice: bool,
    /// Writes of the operator so far, those of the status among them.
    pub writes: u32,
    pub changes: u8,
    pub faults: u8,
    pub crashes: u8,
}

impl World {
    pub(super) fn beginning(plot: &Plot) -> Self {
        Self {
            maps: [const { None }; MAPS],
            heard: None,
            history: Arc::new(vec![Arc::default()]),
            reported: (0, 0),
            complaint: None,
            wish: 0,
            pods: [None; WORKERS],
            serials: [0; WORKERS],
            cached: plot.cached,
            cache: [None; WORKERS],
            template: 0,
            observed: 0,
            remembered: Arc::default(),
            decided: None,
            deposed: None,
            clock: Duration::ZERO,
            twice: false,
            writes: 0,
            changes: plot.changes,
            faults: plot.faults,
            crashes: plot.crashes,
        }
    }

    /// The newest version of any file.
    pub(super) fn newest(&self) -> u8 {
        u8::try_from(self.history.len() - 1).expect("short histories")
    }

    pub(super) fn list(&self, version: u8, pod: &Pod) -> Set {
        self.history[usize::from(version)].list(pod.id)
    }

    /// The streams that will come to it, by the file that it has read.
    pub(super) fn coming(&self, pod: &Pod) -> Set {
        self.history[usize::from(pod.read)].next(pod.id)
    }

    /// The streams that a pod should run: those of its file, and those that a newer one gives it.
    pub(super) fn wanted(&self, pod: &Pod) -> Set {
        let (told, streams) = pod.told;
        let newer = u64::from(told) > self.history[usize::from(pod.read)].epoch;
        let granted = if pod.heard && newer { streams & self.coming(pod) } else { 0 };
        self.list(pod.read, pod) | granted
    }

    /// A worker reads a file, and begins with its streams.
    pub(super) fn read(&mut self, w: usize, version: u8) {
        let Some(pod) = &mut self.pods[w] else { return };
        pod.read = version;
        let pod = *pod;
        let coming = self.coming(&pod);
        let heard = pod.heard && self.wanted(&pod) != self.list(version, &pod);
        self.pods[w] = Some(Pod { prepared: pod.prepared & coming, heard, ..pod });
        self.start(w, version);
    }

    /// A worker hears that a newer file than its own gives it streams.
    pub(super) fn hear(&mut self, w: usize) {
        let Some(pod) = self.pods[w] else { return };
        let others = self.run_by_others(w);
        let before = Pod { heard: true, ..pod };
        let run = self.wanted(&before);
        self.twice |= run & !pod.run & others != 0;
        let heard = run != self.list(pod.read, &pod);
        let told = if heard { pod.told } else { (0, 0) };
        self.pods[w] = Some(Pod { run: pod.run | run, heard, told, ..pod });
    }

    fn run_by_others(&self, w: usize) -> Set {
        let others = self.pods.iter().enumerate().filter(|(other, _)| *other != w);
        others.fold(0, |set, (_, pod)| set | pod.map_or(0, |pod| pod.run))
    }

    /// A user has written the file.
    pub(super) fn wrote(&mut self, file: &Arc<File>) {
        Arc::make_mut(&mut self.history).push(Arc::clone(file));
        self.maps[file.place] = Some(Arc::clone(file));
    }

    /// The version of its file that a new pod finds: its volume needs all of them.
    pub(super) fn first(&self, plot: &Plot, id: u8) -> Option<u8> {
        self.maps[plot.mounted()].iter().all(Option::is_some).then_some(())?;
        let place = plot.place(id);
        u8::try_from(self.history.iter().rposition(|file| file.place == place)?).ok()
    }

    /// The next version of its file that a pod can read.
    pub(super) fn next(&self, plot: &Plot, pod: &Pod) -> Option<u8> {
        if pod.delivered == 0 {
            return self.first(plot, pod.id);
        }
        let place = plot.place(pod.id);
        self.maps[place].as_ref()?;
        let after = pod.delivered + 1;
        (after..=self.newest()).find(|version| self.history[usize::from(*version)].place == place)
    }

    /// The version in the immutable file of this epoch.
    pub(super) fn version_of(&self, epoch: u8) -> Option<u8> {
        let wanted = |file: &Arc<File>| !file.foreign && file.epoch == u64::from(epoch);
        u8::try_from(self.history.iter().rposition(wanted)?).ok()
    }

    /// A worker runs the streams of a version, in addition to its former ones.
    pub(super) fn start(&mut self, w: usize, version: u8) {
        let others = self.run_by_others(w);
        let foreign = self.history[usize::from(version)].foreign;
        let Some(pod) = self.pods[w] else { return };
        let list = self.list(version, &pod);
        self.twice |= !foreign && list & !pod.run & others != 0;
        self.pods[w] = Some(Pod { run: pod.run | list, ..pod });
    }

    /// Returns the number of pods that should stay.
    pub(super) fn staying(&self) -> usize {
        self.pods.iter().flatten().filter(|pod| pod.stays()).count()
    }

    /// The operator's process is new.
    pub(super) fn restarted(&mut self) {
        (self.remembered, self.decided) = (Arc::default(), None);
        if self.cached {
            (self.cache, self.heard) = (self.pods, self.maps[0].clone());
        }
    }

    /// Returns the same number for two states that are equivalent for all future events: not the
    /// clock, nor what was counted, nor versions of the file that no pod can read any more.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut all = u64::from_le_bytes([
            self.serials[0],
            self.serials[1],
            self.serials[2],
            u8::try_from(self.wish).expect("few wishes") << 4 | self.newest() >> 4,
            self.template,
            self.observed,
            self.changes << 4 | self.faults,
            self.crashes << 4 | self.newest() & 15,
        ]);
        let mut add = |part: u64| all = combine(all, part);
        let mut oldest = self.version_of(self.observed).unwrap_or(self.newest());
        for (pod, cached) in self.pods.iter().zip(&self.cache) {
            add(packed(pod.as_ref()));
            add(packed(cached.as_ref()));
            if let Some(pod) = pod.filter(|pod| !pod.ended) {
                oldest = oldest.min(if pod.running { pod.read } else { pod.delivered });
            }
        }
        self.history[usize::from(oldest)..].iter().for_each(|file| add(file.lists_hash));
        let files = self.maps.iter().chain([&self.heard]);
        files.for_each(|file| add(file.as_ref().map_or(0, |file| file.hash)));
        add(self.reported.0.unsigned_abs());
        add(self.remembered.hash);
        add(self.decided.as_ref().map_or(0, |decided| decided.hash));
        add(self.deposed.as_ref().map_or(0, |(decided, made)| {
            combine(decided.hash, u64::try_from(*made).expect("few writes"))
        }));
        all
    }

    /// All that a pass depends on; time apart: whatever began in an earlier one has lasted equally
    /// long.
    pub(super) fn seen(&self, plot: &Plot) -> u64 {
        let mut all = combine(self.reported.0.unsigned_abs(), u64::from(self.reported.1 != 0));
        let mut add = |part: u64| all = combine(all, part);
        add(u64::try_from(self.wish).expect("few wishes"));
        add(u64::from(self.template) << 8 | u64::from(self.observed));
        add(u64::from(self.newest()));
        let files = self.maps.iter().chain([&self.heard]);
        files.for_each(|file| add(file.as_ref().map_or(0, |file| file.hash)));
        for (w, (pod, cached)) in self.pods.iter().zip(&self.cache).enumerate() {
            add(packed(cached.as_ref()));
            let Some(pod) = pod else { continue };
            add(pod.known().packed());
            if pod.running && !pod.cut && !has(plot.silent, w) {
                let prepared = pod.prepared & self.coming(pod);
                let says = u64::from(prepared) << 8 | u64::from(self.wanted(pod));
                add(combine(self.history[usize::from(pod.read)].epoch, says));
            }
        }
        combine(all, self.remembered.hash)
    }
}
