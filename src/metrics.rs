//! Our own metrics: what is counted, under which names.
//!
//! Counters of one process live here; what belongs to an object (the decisions of a `TrafficWatch`)
//! is read from its state at scrape time by a [`Collector`], so that series vanish with their
//! object.
use std::{
    fmt::Write,
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicI64},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use traffic_operator_agent::process;

mod families;
mod names;
mod page;

pub use names::NAMES;
pub use page::CHUNK;
use page::Chunks;

/// Prefix of every metric but the standard `process_*`.
pub const PREFIX: &str = "traffic_operator";

/// Bounds of what takes a network round trip: 1 ms to 10 s, the deadline of every call.
const SECONDS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0];

/// Bounds of what a pod's creation waits for: 100 µs to the webhook's timeout.
const ADMISSION_SECONDS: [f64; 9] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.025, 0.25, 2.0];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics of this process; clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    parts: Mutex<Vec<Arc<Part>>>,
    reconcile: Family<Outcome, Counter>,
    reconcile_errors: Family<Failure, Counter>,
    reconcile_duration: Histograms<Controller>,
    prometheus_requests: Family<RequestResult, Counter>,
    prometheus_duration: Histograms<Endpoint>,
    samples_rejected: Family<Reason, Counter>,
    api_requests: Family<ApiCall, Counter>,
    watch_restarts: Family<Resource, Counter>,
    events_dropped: Counter,
    store_objects: Family<Resource, Gauge>,
    /// Only of processes that may lead.
    leader: OnceLock<Gauge<i64, AtomicI64>>,
    injections: Family<Injection, Counter>,
    injection_duration: Histogram,
    certificates: Family<Certificate, Gauge>,
    pinglist_agents: Gauge,
    pinglist_requests: Family<Code, Counter>,
    scrapes: Family<Code, Counter>,
    refused_connections: Family<Port, Counter>,
}

/// A part of the page.
struct Part {
    registry: Registry,
    /// True if encoding it holds no lock, so that it may wait for a slow reader.
    streams: bool,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Failure {
    controller: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestResult {
    endpoint: String,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Endpoint {
    endpoint: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Resource {
    resource: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Injection {
    result: &'static str,
    skip_reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Certificate {
    certificate: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Code {
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Port {
    server: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ApiCall {
    verb: &'static str,
    resource: String,
    code: u16,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All families at zero.
    #[must_use]
    pub fn new() -> Self {
        fn seconds() -> Histogram {
            Histogram::new(SECONDS)
        }
        let inner = Inner {
            parts: Mutex::default(),
            reconcile: Family::default(),
            reconcile_errors: Family::default(),
            reconcile_duration: Family::new_with_constructor(seconds as fn() -> Histogram),
            prometheus_requests: Family::default(),
            prometheus_duration: Family::new_with_constructor(seconds as fn() -> Histogram),
            samples_rejected: Family::default(),
            api_requests: Family::default(),
            watch_restarts: Family::default(),
            events_dropped: Counter::default(),
            store_objects: Family::default(),
            leader: OnceLock::default(),
            injections: Family::default(),
            injection_duration: Histogram::new(ADMISSION_SECONDS),
            certificates: Family::default(),
            pinglist_agents: Gauge::default(),
            pinglist_requests: Family::default(),
            scrapes: Family::default(),
            refused_connections: Family::default(),
        };
        let mut registry = Registry::default();
        inner.register(registry.sub_registry_with_prefix(PREFIX));
        registry.register_collector(Box::new(process::Process));
        let metrics = Self(Arc::new(inner));
        metrics.add(registry, false);
        metrics
    }

    /// Adds what is read at scrape time; its names carry the prefix themselves.
    pub fn register(&self, collector: Box<dyn Collector>) {
        let mut registry = Registry::default();
        registry.register_collector(collector);
        self.add(registry, false);
    }

    /// The same of a collector that holds no lock while it encodes: what it writes goes to the
    /// reader piece by piece, at the reader's pace.
    pub fn register_streaming(&self, collector: Box<dyn Collector>) {
        let mut registry = Registry::default();
        registry.register_collector(collector);
        self.add(registry, true);
    }

    fn add(&self, registry: Registry, streams: bool) {
        self.parts().push(Arc::new(Part { registry, streams }));
    }

    /// The page `/metrics`, in OpenMetrics text, as a whole: for tests, and what is small.
    ///
    /// # Errors
    /// When a collector fails.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut page = Vec::new();
        self.stream(|piece| {
            page.extend(piece);
            Ok(())
        })?;
        String::from_utf8(page).map_err(|_| std::fmt::Error)
    }

    /// The page `/metrics` in pieces of at most [`CHUNK`] bytes. No lock is held while `give` runs,
    /// which may therefore wait.
    ///
    /// # Errors
    /// When a collector or `give` fails.
    pub fn stream(
        &self,
        give: impl FnMut(Vec<u8>) -> Result<(), std::fmt::Error>,
    ) -> Result<(), std::fmt::Error> {
        let mut chunks = Chunks::new(give);
        let parts = self.parts().clone();
        for part in parts {
            if part.streams {
                text::encode_registry(&mut chunks, &part.registry)?;
            } else {
                let mut whole = String::new();
                text::encode_registry(&mut whole, &part.registry)?;
                chunks.write_str(&whole)?;
            }
        }
        text::encode_eof(&mut chunks)?;
        chunks.end()
    }

    /// Counts one pass; `failed` is the reason of its error.
    pub fn reconciled(
        &self,
        controller: &'static str,
        took: Duration,
        failed: Option<&'static str>,
    ) {
        let result = if failed.is_some() { "error" } else { "success" };
        self.0.reconcile.get_or_create(&Outcome { controller, result }).inc();
        let duration = self.0.reconcile_duration.get_or_create(&Controller { controller });
        duration.observe(took.as_secs_f64());
        if let Some(reason) = failed {
            self.0.reconcile_errors.get_or_create(&Failure { controller, reason }).inc();
        }
    }

    /// Counts one request to an endpoint of Prometheus; `result` is `success` or the reason of its
    /// failure.
    pub fn prometheus_request(&self, endpoint: &str, result: &'static str, took: Duration) {
        let endpoint = endpoint.to_owned();
        let duration = Endpoint { endpoint: endpoint.clone() };
        self.0.prometheus_requests.get_or_create(&RequestResult { endpoint, result }).inc();
        self.0.prometheus_duration.get_or_create(&duration).observe(took.as_secs_f64());
    }

    /// Counts series of an answer that are no evidence.
    pub fn samples_rejected(&self, reason: &'static str, count: usize) {
        if count > 0 {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            self.0.samples_rejected.get_or_create(&Reason { reason }).inc_by(count);
        }
    }

    /// Counts one call to the API server; `code` 0 is no answer.
    pub fn api_request(&self, verb: &'static str, resource: &str, code: u16) {
        let call = ApiCall { verb, resource: resource.into(), code };
        self.0.api_requests.get_or_create(&call).inc();
    }

    /// Counts a watch that had to begin again.
    pub fn watch_restarted(&self, resource: &'static str) {
        self.0.watch_restarts.get_or_create(&Resource { resource }).inc();
    }

    /// Counts an event that could not be written, or not in time.
    pub fn event_dropped(&self) {
        self.0.events_dropped.inc();
    }

    /// Sets how many objects are kept in memory.
    pub fn stored(&self, resource: &'static str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.0.store_objects.get_or_create(&Resource { resource }).set(count);
    }

    /// Says whether this process leads; of one that never may nothing is said.
    pub fn set_leader(&self, leads: bool) {
        let leader = self.0.leader.get_or_init(|| {
            let (leader, mut registry) = (Gauge::default(), Registry::default());
            let ours = registry.sub_registry_with_prefix(PREFIX);
            ours.register("leader", "1 while this process leads", leader.clone());
            self.add(registry, false);
            leader
        });
        leader.set(i64::from(leads));
    }

    /// Counts one pod that the API server asked about: `injected`, `skipped` for a reason, or
    /// `error`.
    pub fn injection(&self, result: &'static str, skip_reason: &'static str, took: Duration) {
        self.0.injections.get_or_create(&Injection { result, skip_reason }).inc();
        self.0.injection_duration.observe(took.as_secs_f64());
    }

    /// Sets when the certificate `ca` or `leaf` ends, in Unix seconds.
    pub fn certificate_ends(&self, certificate: &'static str, at: i64) {
        self.0.certificates.get_or_create(&Certificate { certificate }).set(at);
    }

    /// Agents that started (or, negative, stopped) waiting for a change of their pinglist.
    pub fn pinglist_agents(&self, change: i64) {
        self.0.pinglist_agents.inc_by(change);
    }

    /// Counts one answer to an agent that requested its pinglist.
    pub fn pinglist_request(&self, code: u16) {
        self.0.pinglist_requests.get_or_create(&Code { code }).inc();
    }

    /// Counts one request for `/metrics`.
    pub fn scraped(&self, code: u16) {
        self.0.scrapes.get_or_create(&Code { code }).inc();
    }

    /// The counter of connections that a server closed because it had too many.
    #[must_use]
    pub fn refused_connections(&self, server: &'static str) -> Counter {
        self.0.refused_connections.get_or_create_owned(&Port { server })
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Part>>> {
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
