//! Our own metrics and their names.
//!
//! Counters of one process are here; for the metrics of an object (the decisions of a
//! `TrafficWatch`), a [`Collector`] reads its state at scrape time, so that series vanish with
//! their object.
use std::{
    fmt::{self, Write},
    sync::{Arc, PoisonError},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, text},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        gauge::{ConstGauge, Gauge},
    },
    registry::Registry,
};
use traffic_operator_agent::process;

mod families;
mod names;

use families::{
    ApiCall, Certificate, Code, Controller, Endpoint, Failure, Injection, Inner, Outcome, Port,
    Reason, RequestResult, Resource,
};
pub use names::NAMES;

/// Prefix of every metric except the standard `process_*`.
pub const PREFIX: &str = "traffic_operator";

/// The metrics of this process; clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

/// A watch that has not seen all of its objects.
#[derive(Debug)]
pub struct Unlisted(Gauge);

impl Drop for Unlisted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A part of the page.
struct Part {
    registry: Registry,
    /// True if encoding it holds no lock, so that it may wait for a slow reader.
    streams: bool,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Creates all families at zero.
    #[must_use]
    pub fn new() -> Self {
        let inner = Inner::new();
        let mut registry = Registry::default();
        inner.register(registry.sub_registry_with_prefix(PREFIX));
        registry.register_collector(Box::new(process::Process));
        let metrics = Self(Arc::new(inner));
        metrics.add(registry, false);
        metrics
    }

    /// Adds a collector that is read at scrape time; its names include the prefix.
    pub fn register(&self, collector: Box<dyn Collector>) {
        let mut registry = Registry::default();
        registry.register_collector(collector);
        self.add(registry, false);
    }

    /// Does the same for a collector that holds no lock while it encodes: its output goes to the
    /// reader piece by piece, at the reader's pace.
    pub fn register_streaming(&self, collector: Box<dyn Collector>) {
        let mut registry = Registry::default();
        registry.register_collector(collector);
        self.add(registry, true);
    }

    fn add(&self, registry: Registry, streams: bool) {
        self.parts().push(Arc::new(Part { registry, streams }));
    }

    /// Returns the complete page `/metrics` as OpenMetrics text: for tests and small pages.
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

    /// Writes the page `/metrics` in pieces of at most [`CHUNK`] bytes. No lock is held while
    /// `give` runs, so `give` may wait.
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

    /// Counts one pass over an object of a namespace, which is empty for one of the cluster; `failed`
    /// is the reason of its error.
    pub fn reconciled(
        &self,
        controller: &'static str,
        namespace: &str,
        took: Duration,
        failed: Option<&'static str>,
    ) {
        let result = if failed.is_some() { "error" } else { "success" };
        self.0.reconcile.get_or_create(&Outcome { controller, result }).inc();
        let duration = self.0.reconcile_duration.get_or_create(&Controller { controller });
        duration.observe(took.as_secs_f64());
        if let Some(reason) = failed {
            let failure = Failure { controller, namespace: namespace.to_owned(), reason };
            self.0.reconcile_errors.get_or_create(&failure).inc();
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

    /// Counts a request to an endpoint of Prometheus that was not sent, which has no duration.
    pub fn prometheus_not_asked(&self, endpoint: &str, result: &'static str) {
        let endpoint = endpoint.to_owned();
        self.0.prometheus_requests.get_or_create(&RequestResult { endpoint, result }).inc();
    }

    /// Counts an object of a kind that is written again because another client has changed it.
    pub fn restored(&self, resource: &'static str) {
        self.0.restored_objects.get_or_create(&Resource { resource }).inc();
    }

    /// Counts series of an answer that are no evidence.
    pub fn samples_rejected(&self, reason: &'static str, count: usize) {
        if count > 0 {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            self.0.samples_rejected.get_or_create(&Reason { reason }).inc_by(count);
        }
    }

    /// Counts one call to the API server; `code` 0 means no answer.
    pub fn api_request(&self, verb: &'static str, resource: &str, code: u16) {
        let call = ApiCall { verb, resource: resource.into(), code };
        self.0.api_requests.get_or_create(&call).inc();
    }

    /// Counts a watch that had to begin again.
    pub fn watch_restarted(&self, resource: &'static str) {
        self.0.watch_restarts.get_or_create(&Resource { resource }).inc();
    }

    /// Counts a watch, or a kind, as one that has not seen all of its objects, until the returned
    /// value is dropped.
    #[must_use]
    pub fn unlisted(&self, resource: &'static str) -> Unlisted {
        let gauge = self.0.unlisted_watches.get_or_create(&Resource { resource }).clone();
        gauge.inc();
        Unlisted(gauge)
    }

    /// Counts an object that could not be read.
    pub fn unreadable(&self, resource: &'static str) {
        self.0.unreadable_objects.get_or_create(&Resource { resource }).inc();
    }

    /// Counts an event that could not be written, or not in time.
    pub fn event_dropped(&self) {
        self.0.events_dropped.inc();
    }

    /// Sets the number of objects in memory.
    pub fn stored(&self, resource: &'static str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.0.store_objects.get_or_create(&Resource { resource }).set(count);
    }

    /// Sets whether this process leads; a process that never may has no such series.
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

    /// Sets the time at which the certificate `ca` or `leaf` expires, in Unix seconds.
    pub fn certificate_ends(&self, certificate: &'static str, at: i64) {
        self.0.certificates.get_or_create(&Certificate { certificate }).set(at);
    }

    /// Counts agents that started (or, if negative, stopped) waiting for a change of their
    /// pinglist.
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

    /// Returns the counter of connections that a server closed because it had too many.
    #[must_use]
    pub fn refused_connections(&self, server: &'static str) -> Counter {
        self.0.refused_connections.get_or_create_owned(&Port { server })
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Part>>> {
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One family of metrics that a collector writes at scrape time, in the making.
pub struct Family<'a>(MetricEncoder<'a>);

impl<'a> Family<'a> {
    /// Begins a family of gauges.
    pub fn gauges(
        encoder: &'a mut DescriptorEncoder<'_>,
        name: &'a str,
        help: &str,
    ) -> Result<Self, fmt::Error> {
        Ok(Self(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?))
    }

    /// Begins a family of counters.
    pub fn counters(
        encoder: &'a mut DescriptorEncoder<'_>,
        name: &'a str,
        help: &str,
    ) -> Result<Self, fmt::Error> {
        Ok(Self(encoder.encode_descriptor(name, help, None, MetricType::Counter)?))
    }

    /// Writes a gauge.
    pub fn gauge(&mut self, labels: &impl EncodeLabelSet, value: f64) -> fmt::Result {
        ConstGauge::new(value).encode(self.0.encode_family(labels)?)
    }

    /// Writes a counter.
    pub fn counter(&mut self, labels: &impl EncodeLabelSet, value: u64) -> fmt::Result {
        ConstCounter::new(value).encode(self.0.encode_family(labels)?)
    }
}

/// A count as the value of a gauge.
#[must_use]
pub fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::from(u32::MAX), f64::from)
}

/// Number of bytes of a piece: the largest page has a hundred pieces, and each needs a few system
/// calls.
pub const CHUNK: usize = 32 * 1024;

/// Collects text and passes it on piece by piece, so that no complete page is in memory.
struct Chunks<F> {
    buffer: Vec<u8>,
    give: F,
}

impl<F: FnMut(Vec<u8>) -> fmt::Result> Chunks<F> {
    fn new(give: F) -> Self {
        Self { buffer: Vec::with_capacity(CHUNK), give }
    }

    /// Passes on the rest.
    fn end(mut self) -> fmt::Result {
        self.flush()
    }

    fn flush(&mut self) -> fmt::Result {
        if self.buffer.is_empty() {
            return Ok(());
        }
        (self.give)(std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK)))
    }
}

impl<F: FnMut(Vec<u8>) -> fmt::Result> Write for Chunks<F> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let room = CHUNK - self.buffer.len();
            let (now, later) = rest.split_at(rest.len().min(room));
            self.buffer.extend_from_slice(now);
            rest = later;
            if self.buffer.len() >= CHUNK {
                self.flush()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
