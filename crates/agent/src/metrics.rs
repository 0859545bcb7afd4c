//! The metrics of an agent. Series of a pair exist exactly as long as a peer of the pair is on the
//! list, those that rules count from the first moment: a counter that starts at one loses its first
//! failure to `increase()`.
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, NativeHistogramConfig, exponential_buckets},
        info::Info,
    },
    registry::Registry,
};
use tokio::time::Instant;

use super::{
    destination::Phase,
    pinglist::{DEFAULT_PERIOD, Destination, Protocol},
    reason::Reason,
    target::{Original, Pair, Stale, Target},
    trace::Traces,
};
use crate::process::Process;

/// The result of one check for a new list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The list changed.
    Changed,
    /// The current list is still valid.
    Unchanged,
    /// The check failed: it is unknown whether the list is still valid.
    Error,
}

/// The reason why a slot passed without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// This process was not scheduled in time.
    Starved,
    /// The previous probe was still running.
    Busy,
    /// The probe could not be sent, for a local reason.
    Local,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Rtt {
    protocol: &'static str,
    #[prometheus(flatten)]
    pair: Pair,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    protocol: &'static str,
    #[prometheus(flatten)]
    pair: Pair,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Failure {
    protocol: &'static str,
    #[prometheus(flatten)]
    pair: Pair,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Sent {
    #[prometheus(flatten)]
    pair: Pair,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TargetPhase {
    target: String,
    phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TargetOutcome {
    target: String,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TargetFailure {
    target: String,
    phase: &'static str,
    reason: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;
type Seconds = Gauge<f64, AtomicU64>;

/// All metrics of one agent; clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    rtt: Histograms<Rtt>,
    probes: Family<Outcome, Counter>,
    failures: Family<Failure, Counter>,
    duplicates: Family<Pair, Counter>,
    reordered: Family<Pair, Counter>,
    srtt: Family<Pair, Seconds>,
    large: Family<Sent, Counter>,
    packet: Family<Pair, Gauge>,
    hops: Family<Pair, Gauge>,
    traces: Traces,
    target_phases: Histograms<TargetPhase>,
    target_probes: Family<TargetOutcome, Counter>,
    target_failures: Family<TargetFailure, Counter>,
    delay: Histogram,
    starved: Counter,
    busy: Counter,
    local: Counter,
    peers: Gauge,
    incoming: Gauge,
    age: Seconds,
    refreshes: Family<Result, Counter>,
    interpod: Histograms<Original>,
    changing: Mutex<Changing>,
}

/// The inputs of the gauges that are computed at a scrape.
struct Changing {
    confirmed: Instant,
    period: Duration,
    heard: Incoming,
}

/// The metrics of one target.
pub struct Series {
    protocol: &'static str,
    pair: Pair,
    metrics: Metrics,
    rtt: Histogram,
    successes: Counter,
    failures: Counter,
    interpod: Option<Histogram>,
    /// Packets that arrived twice, and those that arrived after a later one: UDP only.
    pub strays: Option<(Counter, Counter)>,
}

/// The metrics of one target of `spec.targets`.
pub struct TargetSeries {
    target: String,
    metrics: Metrics,
    successes: Counter,
    failures: Counter,
}

/// The metrics of large packets to one node.
#[derive(Clone, Debug)]
pub struct LargeSeries {
    pair: Pair,
    packet: Family<Pair, Gauge>,
    hops: Family<Pair, Gauge>,
    /// Those that arrived.
    pub successes: Counter,
    /// Those that did not, although a short one did.
    pub failures: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Creates all metrics at zero; the age of the list counts from now.
    #[must_use]
    pub fn new() -> Self {
        let mut inner = Inner {
            registry: Registry::default(),
            rtt: Family::new_with_constructor(rtt_histogram as fn() -> Histogram),
            probes: Family::default(),
            failures: Family::default(),
            duplicates: Family::default(),
            reordered: Family::default(),
            srtt: Family::default(),
            large: Family::default(),
            packet: Family::default(),
            hops: Family::default(),
            traces: Traces::default(),
            target_phases: Family::new_with_constructor(phase_histogram as fn() -> Histogram),
            target_probes: Family::default(),
            target_failures: Family::default(),
            delay: Histogram::new_classic_and_native(DELAYS, native()),
            starved: Counter::default(),
            busy: Counter::default(),
            local: Counter::default(),
            peers: Gauge::default(),
            incoming: Gauge::default(),
            age: Seconds::default(),
            refreshes: Family::default(),
            interpod: Family::new_with_constructor(interpod_histogram as fn() -> Histogram),
            changing: Mutex::new(Changing {
                confirmed: Instant::now(),
                period: DEFAULT_PERIOD,
                heard: Incoming::default(),
            }),
        };
        for result in [Refreshed::Changed, Refreshed::Unchanged, Refreshed::Error] {
            drop(inner.refreshes.get_or_create(&Result { result: result.label() }));
        }
        inner.register();
        Self(Arc::new(inner))
    }

    /// Returns the series of one target, all of which exist from now on.
    #[must_use]
    pub fn series(&self, target: &Target) -> Series {
        let Target { protocol, pair, .. } = target;
        let inner = &self.0;
        let counter = |result| inner.probes.get_or_create_owned(&outcome(*protocol, pair, result));
        let strays = (*protocol == Protocol::Udp).then(|| {
            (inner.duplicates.get_or_create_owned(pair), inner.reordered.get_or_create_owned(pair))
        });
        let rtt = Rtt { protocol: protocol.label(), pair: pair.clone() };
        Series {
            protocol: protocol.label(),
            pair: pair.clone(),
            metrics: self.clone(),
            rtt: inner.rtt.get_or_create_owned(&rtt),
            successes: counter("success"),
            failures: counter("failure"),
            interpod: target.original.as_ref().map(|of| inner.interpod.get_or_create_owned(of)),
            strays,
        }
    }

    /// Returns the series of large packets to a node.
    #[must_use]
    pub fn large(&self, pair: &Pair) -> LargeSeries {
        let inner = &self.0;
        let sent = |result| inner.large.get_or_create_owned(&Sent { pair: pair.clone(), result });
        LargeSeries {
            pair: pair.clone(),
            packet: inner.packet.clone(),
            hops: inner.hops.clone(),
            successes: sent("success"),
            failures: sent("failure"),
        }
    }

    /// Returns the series of a target, which exist from now on except those of failures by reason.
    #[must_use]
    pub fn target(&self, to: &Destination) -> TargetSeries {
        let target = &to.name;
        for phase in Phase::of(to) {
            drop(self.0.target_phases.get_or_create(&target_phase(target, phase)));
        }
        let counter = |result| {
            self.0
                .target_probes
                .get_or_create_owned(&TargetOutcome { target: target.clone(), result })
        };
        TargetSeries {
            target: target.clone(),
            metrics: self.clone(),
            successes: counter("success"),
            failures: counter("failure"),
        }
    }

    /// Removes the series of a target.
    pub fn forget_target(&self, target: &str) {
        let inner = &self.0;
        for result in ["success", "failure"] {
            inner.target_probes.remove(&TargetOutcome { target: target.to_owned(), result });
        }
        for phase in Phase::ALL {
            inner.target_phases.remove(&target_phase(target, phase));
            for reason in Reason::ALL {
                inner.target_failures.remove(&target_failure(target, phase, reason));
            }
        }
    }

    /// Removes the series of label sets that are no longer in use.
    pub fn forget(&self, stale: &Stale) {
        let inner = &self.0;
        for (protocol, pair) in &stale.probes {
            inner.rtt.remove(&Rtt { protocol: protocol.label(), pair: pair.clone() });
            for result in ["success", "failure"] {
                inner.probes.remove(&outcome(*protocol, pair, result));
            }
            for reason in Reason::ALL {
                inner.failures.remove(&failure(protocol.label(), pair, reason));
            }
            match protocol {
                Protocol::Http => {}
                Protocol::Tcp => {
                    inner.srtt.remove(pair);
                }
                Protocol::Udp => {
                    inner.duplicates.remove(pair);
                    inner.reordered.remove(pair);
                    inner.packet.remove(pair);
                    inner.hops.remove(pair);
                    inner.traces.forget(pair);
                    for result in ["success", "failure"] {
                        inner.large.remove(&Sent { pair: pair.clone(), result });
                    }
                }
            }
        }
        for original in &stale.originals {
            inner.interpod.remove(original);
        }
    }

    /// Records how late a slot began.
    pub fn delayed(&self, late: Duration) {
        self.0.delay.observe(late.as_secs_f64());
    }

    /// Counts slots that passed without a result.
    pub fn skipped(&self, why: Skipped, count: u64) {
        match why {
            Skipped::Starved => self.0.starved.inc_by(count),
            Skipped::Busy => self.0.busy.inc_by(count),
            Skipped::Local => self.0.local.inc_by(count),
        };
    }

    /// Sets the number of probed peers, and the period.
    pub fn set_list(&self, peers: usize, period: Duration) {
        self.0.peers.set(i64::try_from(peers).unwrap_or(i64::MAX));
        self.changing().period = period;
    }

    /// Counts one check for a new list.
    pub fn refreshed(&self, result: Refreshed) {
        self.0.refreshes.get_or_create(&Result { result: result.label() }).inc();
        if result != Refreshed::Error {
            self.changing().confirmed = Instant::now();
        }
    }

    /// Records a probe from this address.
    pub fn heard(&self, from: IpAddr) {
        let now = Instant::now();
        let mut changing = self.changing();
        let since = changing.window();
        changing.heard.note(from.to_canonical(), now, since);
    }

    /// Encodes all metrics, after it updates those that are computed at a scrape.
    pub fn encode_with<T>(&self, encode: impl FnOnce(&Registry) -> T) -> T {
        self.0.traces.expire(Instant::now());
        {
            let mut changing = self.changing();
            self.0.age.set(changing.confirmed.elapsed().as_secs_f64());
            let window = changing.window();
            let heard = changing.heard.count(Instant::now(), window);
            self.0.incoming.set(i64::try_from(heard).unwrap_or(i64::MAX));
        }
        encode(&self.0.registry)
    }

    fn changing(&self) -> std::sync::MutexGuard<'_, Changing> {
        self.0.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changing {
    /// The time for which a probe from a peer counts: a peer probes once per period, and two of its
    /// probes may be lost.
    fn window(&self) -> Duration {
        self.period * 3
    }
}

impl TargetSeries {
    /// A phase has succeeded after this time.
    pub fn observe(&self, phase: Phase, took: Duration) {
        let of = target_phase(&self.target, phase);
        self.metrics.0.target_phases.get_or_create(&of).observe(took.as_secs_f64());
    }

    /// All phases have succeeded.
    pub fn success(&self) {
        self.successes.inc();
    }

    /// A phase has failed.
    pub fn failure(&self, phase: Phase, reason: Reason) {
        self.failures.inc();
        let of = target_failure(&self.target, phase, reason);
        self.metrics.0.target_failures.get_or_create(&of).inc();
    }
}

impl LargeSeries {
    /// Counts a large packet: its length, if it has arrived.
    pub fn count(&self, arrived: Option<usize>) {
        let Some(length) = arrived else {
            self.failures.inc();
            return;
        };
        self.successes.inc();
        // Does not exist from the beginning, because zero would be a measurement.
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        self.packet.get_or_create(&self.pair).set(length);
    }

    /// Sets the number of routers on the way back.
    pub fn set_hops(&self, hops: u8) {
        // Does not exist from the beginning, because zero would be a measurement.
        self.hops.get_or_create(&self.pair).set(hops.into());
    }
}

impl Series {
    /// The series of large packets to the same node.
    #[must_use]
    pub fn large(&self) -> LargeSeries {
        self.metrics.large(&self.pair)
    }

    /// The traces of this agent.
    #[must_use]
    pub fn traces(&self) -> Traces {
        self.metrics.0.traces.clone()
    }

    /// The probe was answered.
    pub fn success(&self, rtt: Duration, smoothed: Option<Duration>) {
        self.rtt.observe(rtt.as_secs_f64());
        if let Some(interpod) = &self.interpod {
            interpod.observe(rtt.as_secs_f64());
        }
        self.successes.inc();
        if let Some(smoothed) = smoothed {
            // Does not exist from the beginning, because zero would be a measurement.
            self.metrics.0.srtt.get_or_create(&self.pair).set(smoothed.as_secs_f64());
        }
    }

    /// The probe failed.
    pub fn failure(&self, reason: Reason) {
        self.failures.inc();
        // Most never occur, and each would be a series of every pair.
        let of = failure(self.protocol, &self.pair, reason);
        self.metrics.0.failures.get_or_create(&of).inc();
    }
}

impl Refreshed {
    const fn label(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Error => "error",
        }
    }
}

fn outcome(protocol: Protocol, pair: &Pair, result: &'static str) -> Outcome {
    Outcome { protocol: protocol.label(), pair: pair.clone(), result }
}

fn target_phase(target: &str, phase: Phase) -> TargetPhase {
    TargetPhase { target: target.to_owned(), phase: phase.label() }
}

fn target_failure(target: &str, phase: Phase, reason: Reason) -> TargetFailure {
    TargetFailure { target: target.to_owned(), phase: phase.label(), reason: reason.label() }
}

fn failure(protocol: &'static str, pair: &Pair, reason: Reason) -> Failure {
    Failure { protocol, pair: pair.clone(), reason: reason.label() }
}

/// The metric of traces, which has no series before the first.
pub const TRACE: &str = "netprober_trace_timestamp_seconds";

/// Every metric of an agent, as it is queried, without the suffixes of histograms.
pub const NAMES: &[&str] = &[
    "netprober_rtt_seconds",
    "netprober_probes_total",
    "netprober_failures_total",
    "netprober_udp_duplicates_total",
    "netprober_udp_reordered_total",
    "netprober_udp_large_packets_total",
    "netprober_udp_packet_bytes",
    "netprober_udp_hops",
    TRACE,
    "netprober_tcp_srtt_seconds",
    "netprober_target_phase_seconds",
    "netprober_target_probes_total",
    "netprober_target_failures_total",
    "netprober_scheduling_delay_seconds",
    "netprober_skipped_probes_total",
    "netprober_peers",
    "netprober_incoming_peers",
    "netprober_pinglist_age_seconds",
    "netprober_pinglist_refreshes_total",
    "netprober_build_info",
    "netprober_interpod_latency_s",
    "netprober_process_cpu_seconds_total",
    "netprober_process_open_fds",
    "netprober_process_resident_memory_bytes",
    "netprober_process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
];

/// Bounds of the buckets of `netprober_rtt_seconds`, in seconds, from two pods of one node (200 µs)
/// to a default timeout that allows for a lost SYN (1 s and 3 s): each is a series of every pair.
/// Limits must be bounds: buckets do not show whether a percentile is above any other value.
pub const RTT_BOUNDS: [f64; 13] =
    [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// Bounds of the buckets of `netprober_target_phase_seconds`, in seconds: from a name in a cache to the wait for a
/// DNS server's second chance.
pub const PHASE_BOUNDS: [f64; 7] = [0.002, 0.01, 0.05, 0.2, 1.0, 2.5, 5.0];

/// Bounds of scheduling delays: from the timer's resolution (1 ms) to the longest delay after which
/// a probe still starts (a timeout of some seconds).
const DELAYS: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Why {
    reason: &'static str,
}

/// A resolution of 10 % is finer than the variation of round-trip times; 160 buckets hold six
/// decades of it, and an outlier is forgotten after an hour instead of making all buckets coarser.
fn native() -> NativeHistogramConfig {
    NativeHistogramConfig::new(1.1).max_buckets(160).min_reset_duration(Duration::from_hours(1))
}

fn rtt_histogram() -> Histogram {
    Histogram::new_classic_and_native(RTT_BOUNDS, native())
}

/// Without native ones: there are few buckets, and nobody compares the tails of phases.
fn phase_histogram() -> Histogram {
    Histogram::new(PHASE_BOUNDS)
}

/// The original's buckets, without native ones: its dashboards query `_bucket`.
fn interpod_histogram() -> Histogram {
    Histogram::new(exponential_buckets(1e-5, 2.0, 25))
}

impl Inner {
    /// The library appends `_total` to counters and `_info` to infos.
    fn register(&mut self) {
        self.registry.register_collector(Box::new(Process));
        let r = self.registry.sub_registry_with_prefix("netprober");
        // Again under the prefix: the PodMonitor drops every other series of a pod.
        r.register_collector(Box::new(Process));
        r.register("rtt_seconds", "Round-trip time of answered probes", self.rtt.clone());
        r.register("probes", "Probes by result; each ends in exactly one", self.probes.clone());
        r.register("failures", "Failed probes by reason", self.failures.clone());
        r.register(
            "udp_duplicates",
            "UDP echoes that arrived more than once",
            self.duplicates.clone(),
        );
        r.register(
            "udp_reordered",
            "UDP echoes that arrived after a later one",
            self.reordered.clone(),
        );
        let help =
            "Packets as large as the path should carry, by result; only while short ones arrive";
        r.register("udp_large_packets", help, self.large.clone());
        let help = "Length of the last large packet that arrived";
        r.register("udp_packet_bytes", help, self.packet.clone());
        let help = "Routers that the last reply to a large packet has passed, by its TTL";
        r.register("udp_hops", help, self.hops.clone());
        let help =
            "When a path that had lost most of its probes for a minute was traced, in Unix seconds";
        r.register("trace_timestamp_seconds", help, self.traces.family());
        let help = "The kernel's smoothed round-trip time of the last answered TCP probe";
        r.register("tcp_srtt_seconds", help, self.srtt.clone());
        let help = "Duration of a phase of a probe of a target, if it succeeded";
        r.register("target_phase_seconds", help, self.target_phases.clone());
        let help = "Probes of a target by result";
        r.register("target_probes", help, self.target_probes.clone());
        let help = "Failed probes of a target by the phase that failed and the reason";
        r.register("target_failures", help, self.target_failures.clone());
        let help = "Delay between the scheduled and the actual start of a probe";
        r.register("scheduling_delay_seconds", help, self.delay.clone());
        let skipped = Family::<Why, Counter>::default();
        self.starved = skipped.get_or_create_owned(&Why { reason: "starved" });
        self.busy = skipped.get_or_create_owned(&Why { reason: "busy" });
        self.local = skipped.get_or_create_owned(&Why { reason: "local" });
        r.register("skipped_probes", "Scheduled probes that were skipped, by reason", skipped);
        r.register("peers", "Peers that are probed", self.peers.clone());
        let help = "Addresses that probed this agent within the last three periods";
        r.register("incoming_peers", help, self.incoming.clone());
        let help = "Time since the list of peers was last confirmed";
        r.register("pinglist_age_seconds", help, self.age.clone());
        r.register(
            "pinglist_refreshes",
            "Refreshes of the list of peers by result",
            self.refreshes.clone(),
        );
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        r.register("build", "The version of this agent", version);
        let help = "Histogram of inter-Pod HTTP probe latencies";
        r.register("interpod_latency_s", help, self.interpod.clone());
    }
}

/// Maximum number of remembered addresses: four times the members of the largest cluster in which a
/// full mesh is practical, and a bound on the memory that strangers can occupy (some 100 kB).
const MOST: usize = 4096;

/// The time of the last probe from each address.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    last: HashMap<IpAddr, Instant>,
    pruned: Option<Instant>,
}

/// Time between two clean-ups of strangers: searching all addresses for each packet with a forged
/// one would help a flood.
const PRUNE: Duration = Duration::from_secs(1);

impl Incoming {
    /// Records a probe from an address; `window` is the time for which it counts.
    pub fn note(&mut self, from: IpAddr, now: Instant, window: Duration) {
        if self.last.len() >= MOST && !self.last.contains_key(&from) {
            if self.pruned.is_some_and(|last| now.saturating_duration_since(last) < PRUNE) {
                return;
            }
            self.prune(now, window);
            if self.last.len() >= MOST {
                return;
            }
        }
        self.last.insert(from, now);
    }

    /// Counts the addresses that probed within the window; the others are forgotten.
    pub fn count(&mut self, now: Instant, window: Duration) -> usize {
        self.prune(now, window);
        self.last.len()
    }

    fn prune(&mut self, now: Instant, window: Duration) {
        self.pruned = Some(now);
        self.last.retain(|_, last| now.saturating_duration_since(*last) <= window);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn only_the_window_counts_and_memory_is_bounded() {
        let (window, start) = (Duration::from_secs(3), Instant::now());
        let mut incoming = Incoming::default();
        for i in 0..10_000_u32 {
            incoming.note(Ipv4Addr::from(i).into(), start, window);
        }
        assert_eq!(incoming.count(start, window), MOST);
        // Known addresses stay; a stranger gets no place until the window has passed.
        incoming.note(Ipv4Addr::from(0).into(), start + window, window);
        incoming.note(Ipv4Addr::from(77_777).into(), start + window * 2, window);
        assert_eq!(incoming.count(start + window * 2, window), 2);
    }
}
