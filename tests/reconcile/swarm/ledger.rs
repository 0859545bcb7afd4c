//! A record of which pod really ran which stream, in the order of events.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// Starts and stops of every worker of a test. Written under one lock, so its order is the real
/// one.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The pods that run a stream now.
    running: BTreeMap<String, BTreeSet<String>>,
    /// Streams that ran before and do not run now, with the time since then.
    idle: BTreeMap<String, Instant>,
    overlaps: Vec<String>,
    gaps: BTreeMap<String, Vec<Duration>>,
}

impl Ledger {
    pub fn start(&mut self, stream: &str, pod: &str) {
        let pods = self.running.entry(stream.to_owned()).or_default();
        if !pods.is_empty() && !pods.contains(pod) {
            self.overlaps.push(format!("{stream}: {pod} began while {pods:?} ran it"));
        }
        pods.insert(pod.to_owned());
        if let Some(since) = self.idle.remove(stream) {
            self.gaps.entry(stream.to_owned()).or_default().push(since.elapsed());
        }
    }

    pub fn stop(&mut self, stream: &str, pod: &str) {
        let pods = self.running.entry(stream.to_owned()).or_default();
        if pods.remove(pod) && pods.is_empty() {
            self.running.remove(stream);
            self.idle.insert(stream.to_owned(), Instant::now());
        }
    }

    /// Times at which a pod began a stream that another one ran.
    pub fn overlaps(&self) -> &[String] {
        &self.overlaps
    }

    /// Durations for which no pod ran a stream, by stream.
    pub fn gaps(&self) -> &BTreeMap<String, Vec<Duration>> {
        &self.gaps
    }

    /// Returns the pods that run each stream.
    pub fn running(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.running
    }
}
