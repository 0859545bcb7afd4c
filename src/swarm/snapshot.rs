//! The metrics and the introspection page of one `Swarm`.
use std::{collections::BTreeMap, sync::Arc, time::Instant};

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use super::handover::{Counts, Waiting};

/// The last decision.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// True if anything was decided yet.
    pub decided: bool,
    /// The version of the file.
    pub epoch: u64,
    /// Streams by state.
    pub counts: Counts,
    /// Of the owned ones, those in the lists of workers of which nothing has shown for too long that
    /// they run.
    pub stranded: usize,
    /// Streams in no list and in no other state: what running pods work on is not known yet.
    pub undecided: usize,
    /// Streams that two pods report as running.
    pub duplicates: Vec<Arc<str>>,
    /// All workers with their state.
    pub workers: Vec<Worker>,
    /// The streams that are being released: stream, worker, the version that removed it, and the
    /// time.
    pub releasing: Vec<(Arc<str>, Arc<str>, u64, Instant)>,
    /// The streams without a worker, with the time.
    pub free: Vec<(Arc<str>, Instant)>,
    /// The streams that no worker can take, with the reason.
    pub unassigned: Vec<(Arc<str>, &'static str)>,
    /// The first awaited workers, with the known cause.
    pub waiting: Vec<(Waiting, String)>,
    /// Weight of the heaviest worker, as a multiple of the mean.
    pub ratio: f64,
    /// Counted since this process started.
    pub counters: Counters,
}

/// One worker.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Name of the worker.
    pub name: Arc<str>,
    /// Its node, if it has a pod there.
    pub node: Option<String>,
    /// The streams in its list.
    pub jobs: Vec<Arc<str>>,
    /// The streams that will come to it.
    pub next: Vec<Arc<str>>,
    /// Of these, the number that it has not prepared, if it prepares any.
    pub preparing: usize,
    /// Their total weight.
    pub weight: f64,
    /// The version at which its list last changed.
    pub wanted: u64,
    /// The version that it has acknowledged.
    pub loaded: Option<u64>,
    /// True if its pod is ready.
    pub ready: bool,
    /// True if it has answered before, and has not for too long.
    pub unresponsive: bool,
    /// True if its pod signs its answers; a worker without a pod does not answer.
    pub signs: bool,
    /// The reason why it is unknown what it runs.
    pub error: Option<Arc<str>>,
    /// The last action on its pod, with its time.
    pub refreshed: Option<(&'static str, Instant)>,
}

impl Worker {
    /// Reports whether it is not known to run its list.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.wanted > 0 && self.loaded.is_none_or(|loaded| loaded < self.wanted)
    }
}

/// The counters; clones of the histogram are the same one.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Streams that left a worker, by reason.
    pub moves: BTreeMap<&'static str, u64>,
    /// The actions on workers' pods.
    pub refreshes: BTreeMap<&'static str, u64>,
    /// For how long streams had no worker.
    pub gaps: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        // From a worker that has prepared a stream to one with a pod that must be scheduled: 16 ms to
        // 8.5 min.
        let gaps = Histogram::new(exponential_buckets(0.015_625, 2.0, 16));
        Self { moves: BTreeMap::new(), refreshes: BTreeMap::new(), gaps }
    }
}
