//! The metrics of an agent. Series of a pair exist exactly as long as a peer of the pair is on the
//! list, all of them from the first moment: a counter that starts at one loses its first failure to
//! `increase()`.
use std::{
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
    incoming::Incoming,
    pinglist::{DEFAULT_PERIOD, Protocol},
    probe::Reason,
    target::{Original, Pair, Stale, Target},
};
use crate::process::Process;

/// Every metric of an agent, as it is queried, without the suffixes of histograms.
pub const NAMES: &[&str] = &[
    "netprober_rtt_seconds",
    "netprober_probes_total",
    "netprober_udp_duplicates_total",
    "netprober_udp_reordered_total",
    "netprober_tcp_srtt_seconds",
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

/// Bounds of the buckets of `netprober_rtt_seconds`, in seconds: 1-2-5 from 50 µs (two pods of one
/// node) to 5 s (the default timeout with a lost SYN, 1 s and 3 s, in mind). Limits must be bounds:
/// buckets do not show whether a percentile is above any other value. 0.25 is one because people
/// write it.
pub const RTT_BOUNDS: [f64; 17] = [
    0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5,
    1.0, 2.0, 5.0,
];

/// Scheduling delays: from what the timer's resolution (1 ms) gives anyway to the longest that is
/// still probed (a timeout of some seconds).
const DELAYS: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// The result of one check for a new list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// There is another list.
    Changed,
    /// The list we have is the right one.
    Unchanged,
    /// Nobody knows.
    Error,
}

/// Why a slot passed without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// This process was not run in time.
    Starved,
    /// The probe before was still under way.
    Busy,
    /// The probe could not be made here.
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
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Why {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Result {
    result: &'static str,
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
    duplicates: Family<Pair, Counter>,
    reordered: Family<Pair, Counter>,
    srtt: Family<Pair, Seconds>,
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
    pair: Pair,
    metrics: Metrics,
    rtt: Histogram,
    successes: Counter,
    failures: Vec<(Reason, Counter)>,
    interpod: Option<Histogram>,
    /// Packets that came twice, and those that came after a later one: UDP only.
    pub strays: Option<(Counter, Counter)>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at zero; the age of the list counts from now.
    #[must_use]
    pub fn new() -> Self {
        let mut inner = Inner {
            registry: Registry::default(),
            rtt: Family::new_with_constructor(rtt_histogram as fn() -> Histogram),
            probes: Family::default(),
            duplicates: Family::default(),
            reordered: Family::default(),
            srtt: Family::default(),
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

    /// The series of one target, all of them from now on.
    #[must_use]
    pub fn series(&self, target: &Target) -> Series {
        let Target { protocol, pair, .. } = target;
        let inner = &self.0;
        let counter = |result, reason| {
            inner.probes.get_or_create_owned(&outcome(*protocol, pair, result, reason))
        };
        let failures = Reason::ALL.into_iter().filter(|reason| reason.possible(*protocol));
        let strays = (*protocol == Protocol::Udp).then(|| {
            (inner.duplicates.get_or_create_owned(pair), inner.reordered.get_or_create_owned(pair))
        });
        let rtt = Rtt { protocol: protocol.label(), pair: pair.clone() };
        Series {
            pair: pair.clone(),
            metrics: self.clone(),
            rtt: inner.rtt.get_or_create_owned(&rtt),
            successes: counter("success", ""),
            failures: failures.map(|reason| (reason, counter("failure", reason.label()))).collect(),
            interpod: target.original.as_ref().map(|of| inner.interpod.get_or_create_owned(of)),
            strays,
        }
    }

    /// Removes the series of label sets that are not in use any more.
    pub fn forget(&self, stale: &Stale) {
        let inner = &self.0;
        for (protocol, pair) in &stale.probes {
            inner.rtt.remove(&Rtt { protocol: protocol.label(), pair: pair.clone() });
            inner.probes.remove(&outcome(*protocol, pair, "success", ""));
            for reason in Reason::ALL {
                inner.probes.remove(&outcome(*protocol, pair, "failure", reason.label()));
            }
            match protocol {
                Protocol::Http => {}
                Protocol::Tcp => {
                    inner.srtt.remove(pair);
                }
                Protocol::Udp => {
                    inner.duplicates.remove(pair);
                    inner.reordered.remove(pair);
                }
            }
        }
        for original in &stale.originals {
            inner.interpod.remove(original);
        }
    }

    /// Records the delay with which a slot could begin.
    pub fn delayed(&self, late: Duration) {
        self.0.delay.observe(late.as_secs_f64());
    }

    /// Slots that passed without a result.
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

    /// Counts one look for a new list.
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

    /// Encodes everything, with what is computed at a scrape brought up to date.
    pub fn encode_with<T>(&self, encode: impl FnOnce(&Registry) -> T) -> T {
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
    /// A peer is heard of once in a period; two of its probes may be lost.
    fn window(&self) -> Duration {
        self.period * 3
    }
}

impl Series {
    /// The probe was answered.
    pub fn success(&self, rtt: Duration, smoothed: Option<Duration>) {
        self.rtt.observe(rtt.as_secs_f64());
        if let Some(interpod) = &self.interpod {
            interpod.observe(rtt.as_secs_f64());
        }
        self.successes.inc();
        if let Some(smoothed) = smoothed {
            // Not there from the beginning: zero would be a measurement.
            self.metrics.0.srtt.get_or_create(&self.pair).set(smoothed.as_secs_f64());
        }
    }

    /// The probe failed.
    pub fn failure(&self, reason: Reason) {
        // A reason that the protocol should not have is counted as what has no name.
        let counted = |reason| self.failures.iter().find(|(of, _)| *of == reason);
        if let Some((_, counter)) = counted(reason).or_else(|| counted(Reason::Other)) {
            counter.inc();
        }
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

fn outcome(protocol: Protocol, pair: &Pair, result: &'static str, reason: &'static str) -> Outcome {
    Outcome { protocol: protocol.label(), pair: pair.clone(), result, reason }
}

/// A resolution of 10 % is finer than round-trip times repeat themselves; 160 buckets hold six
/// decades of it, and an outburst is forgotten after an hour instead of coarsening everything.
fn native() -> NativeHistogramConfig {
    NativeHistogramConfig::new(1.1).max_buckets(160).min_reset_duration(Duration::from_hours(1))
}

fn rtt_histogram() -> Histogram {
    Histogram::new_classic_and_native(RTT_BOUNDS, native())
}

/// The original's buckets, and no others beside them: its dashboards ask for `_bucket`.
fn interpod_histogram() -> Histogram {
    Histogram::new(exponential_buckets(1e-5, 2.0, 25))
}

impl Inner {
    /// The library appends `_total` to counters and `_info` to infos.
    fn register(&mut self) {
        self.registry.register_collector(Box::new(Process));
        let r = self.registry.sub_registry_with_prefix("netprober");
        // Again under the prefix: of what a pod says, the PodMonitor keeps nothing else.
        r.register_collector(Box::new(Process));
        r.register("rtt_seconds", "Round-trip time of answered probes", self.rtt.clone());
        r.register("probes", "Probes by result; each ends in exactly one", self.probes.clone());
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
        let help = "The kernel's smoothed round-trip time of the last answered TCP probe";
        r.register("tcp_srtt_seconds", help, self.srtt.clone());
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
