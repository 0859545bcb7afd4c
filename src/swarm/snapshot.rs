//! What metrics and the introspection page tell of one `Swarm`.
use std::{collections::BTreeMap, sync::Arc, time::Instant};

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use super::handover::{Counts, Waiting};

/// What was decided last.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Whether anything was decided yet.
    pub decided: bool,
    /// The version of the file.
    pub epoch: u64,
    /// Streams by state.
    pub counts: Counts,
    /// Of the owned ones, those in the lists of workers that have had no pod on a node for too long.
    pub stranded: usize,
    /// Streams that two pods say they run.
    pub duplicates: Vec<Arc<str>>,
    /// The workers.
    pub workers: Vec<Worker>,
    /// What is being let go of: stream, worker, the version that said so, since when.
    pub releasing: Vec<(Arc<str>, Arc<str>, u64, Instant)>,
    /// What nobody has, and since when.
    pub free: Vec<(Arc<str>, Instant)>,
    /// What has no worker, and why.
    pub unassigned: Vec<(Arc<str>, &'static str)>,
    /// Who is waited for, and what is known of the cause: the first of them.
    pub waiting: Vec<(Waiting, String)>,
    /// How many times the mean the heaviest worker carries.
    pub ratio: f64,
    /// Counted since this process began to look.
    pub counters: Counters,
}

/// One worker.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Its name.
    pub name: Arc<str>,
    /// Its node, if it has a pod there.
    pub node: Option<String>,
    /// The streams in its list.
    pub jobs: Vec<Arc<str>>,
    /// Their total weight.
    pub weight: f64,
    /// When its list last changed.
    pub wanted: u64,
    /// What it has acknowledged.
    pub loaded: Option<u64>,
    /// Whether its pod is ready.
    pub ready: bool,
    /// Whether its pod signs what it answers; one without a pod answers nothing.
    pub signs: bool,
    /// Why it is not known what it runs.
    pub error: Option<Arc<str>>,
    /// What was last done to its pod, and when.
    pub refreshed: Option<(&'static str, Instant)>,
}

impl Worker {
    /// Whether it is not known to run its list.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.wanted > 0 && self.loaded.is_none_or(|loaded| loaded < self.wanted)
    }
}

/// What is counted; clones of the histogram are the same one.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Streams that left a worker, by reason.
    pub moves: BTreeMap<&'static str, u64>,
    /// What was done to workers' pods.
    pub refreshes: BTreeMap<&'static str, u64>,
    /// For how long streams had no worker.
    pub gaps: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        // From a handover on one node to a worker whose pod has to be scheduled: 0.25 s to 8.5 min.
        let gaps = Histogram::new(exponential_buckets(0.25, 2.0, 12));
        Self { moves: BTreeMap::new(), refreshes: BTreeMap::new(), gaps }
    }
}
