//! The metrics of a worker, and of the sidecar that reloads one.
use std::sync::Arc;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::Registry,
};

use crate::process::Process;

/// Every metric, as it is queried.
pub const NAMES: &[&str] = &[
    "swarm_worker_streams",
    "swarm_worker_prepared_streams",
    "swarm_worker_processes",
    "swarm_worker_loaded_version",
    "swarm_worker_file_version",
    "swarm_worker_file_looks_total",
    "swarm_worker_starts_total",
    "swarm_worker_stops_total",
    "swarm_worker_kills_total",
    "swarm_worker_failures_total",
    "swarm_worker_reports_total",
    "swarm_worker_lost_intervals_total",
    "swarm_worker_reloads_total",
    "swarm_worker_build_info",
];

/// The result of a check of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// The file is newer.
    Changed,
    /// The file is the same.
    Unchanged,
    /// The file differs from the previous one but is not newer: it is not followed.
    Stale,
    /// No file, or a broken one.
    Error,
}

/// The way in which a stream's process failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It could not be started.
    Start,
    /// It ended without being stopped.
    Exit,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// All metrics of one process; clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: Registry,
    looks: Family<Result, Counter>,
    failures: Family<Reason, Counter>,
    reports: Family<Result, Counter>,
    reloads: Family<Result, Counter>,
    file: Gauge,
    loaded: Gauge,
    streams: Gauge,
    prepared: Gauge,
    processes: Gauge,
    starts: Counter,
    stops: Counter,
    kills: Counter,
    lost: Counter,
}

/// The kind of process: each exports its own metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs streams.
    Worker,
    /// Reloads the application that runs them.
    Reload,
}

impl Metrics {
    /// Creates all metrics at zero: `increase()` misses the first failure of a counter that starts
    /// at one.
    #[must_use]
    pub fn new(role: Role) -> Self {
        let mut inner = Inner::default();
        inner.register(role);
        for looked in [Looked::Changed, Looked::Unchanged, Looked::Stale, Looked::Error] {
            drop(inner.looks.get_or_create(&Result { result: looked.label() }));
        }
        for result in ["success", "failure"] {
            drop(inner.reports.get_or_create(&Result { result }));
            drop(inner.reloads.get_or_create(&Result { result }));
        }
        for failure in [Failure::Start, Failure::Exit] {
            drop(inner.failures.get_or_create(&Reason { reason: failure.label() }));
        }
        Self(Arc::new(inner))
    }

    /// The registry of the exported metrics.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Counts a check of the file.
    pub fn looked(&self, looked: Looked) {
        self.0.looks.get_or_create(&Result { result: looked.label() }).inc();
    }

    /// Sets the version of the newest file.
    pub fn file(&self, version: u64) {
        self.0.file.set(i64::try_from(version).unwrap_or(i64::MAX));
    }

    /// Updates the reported values.
    pub fn shows(&self, streams: usize, prepared: usize, version: u64) {
        self.0.streams.set(i64::try_from(streams).unwrap_or(i64::MAX));
        self.0.prepared.set(i64::try_from(prepared).unwrap_or(i64::MAX));
        self.0.loaded.set(i64::try_from(version).unwrap_or(i64::MAX));
    }

    /// Counts a started process.
    pub fn started(&self) {
        self.0.starts.inc();
        self.0.processes.inc();
    }

    /// Counts a process that is gone.
    pub fn gone(&self) {
        self.0.processes.dec();
    }

    /// Counts a stream that the worker stopped.
    pub fn stopped(&self) {
        self.0.stops.inc();
    }

    /// Counts a process that had to be killed.
    pub fn killed(&self) {
        self.0.kills.inc();
    }

    /// Counts a process that could not be started, or that ended by itself.
    pub fn failed(&self, failure: Failure) {
        self.0.failures.get_or_create(&Reason { reason: failure.label() }).inc();
    }

    /// Counts a report, accepted or not.
    pub fn reported(&self, ok: bool) {
        self.0.reports.get_or_create(&outcome(ok)).inc();
    }

    /// Counts intervals that will never be reported.
    pub fn lost(&self, count: u64) {
        self.0.lost.inc_by(count);
    }

    /// Counts a reload of the application, successful or not.
    pub fn reloaded(&self, ok: bool) {
        self.0.reloads.get_or_create(&outcome(ok)).inc();
    }
}

impl Inner {
    /// The library appends `_total` to counters and `_info` to infos.
    fn register(&mut self, role: Role) {
        self.registry.register_collector(Box::new(Process));
        let r = self.registry.sub_registry_with_prefix("swarm_worker");
        r.register(
            "streams",
            "Streams of this worker, including those that have not stopped yet",
            self.streams.clone(),
        );
        r.register(
            "loaded_version",
            "Version of the file that this worker acknowledges",
            self.loaded.clone(),
        );
        r.register("file_version", "Version of the newest file", self.file.clone());
        r.register("file_looks", "Reads of the file", self.looks.clone());
        match role {
            Role::Worker => {
                let help = "Streams that will come to this worker and can start at once";
                r.register("prepared_streams", help, self.prepared.clone());
                r.register("processes", "Running processes of streams", self.processes.clone());
                r.register("starts", "Started processes", self.starts.clone());
                r.register("stops", "Processes that stopped on request", self.stops.clone());
                r.register(
                    "kills",
                    "Processes that were killed because they did not end after SIGTERM",
                    self.kills.clone(),
                );
                let help = "Processes that failed to start, or exited without a request";
                r.register("failures", help, self.failures.clone());
                r.register(
                    "reports",
                    "Reports of the intervals in which streams ran",
                    self.reports.clone(),
                );
                let help = "Intervals that were discarded before they could be reported";
                r.register("lost_intervals", help, self.lost.clone());
            }
            Role::Reload => {
                r.register("reloads", "Reloads of the application", self.reloads.clone());
            }
        }
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        r.register("build", "The version of this process", version);
    }
}

impl Looked {
    const fn label(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Stale => "stale",
            Self::Error => "error",
        }
    }
}

impl Failure {
    const fn label(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Exit => "exit",
        }
    }
}

const fn outcome(ok: bool) -> Result {
    Result { result: if ok { "success" } else { "failure" } }
}
