//! Names, help texts and buckets of what an agent exports.
use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, NativeHistogramConfig, exponential_buckets},
        info::Info,
    },
};

use super::Inner;
use crate::process::Process;

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

/// Bounds of the buckets of `netprober_rtt_seconds`, in seconds, from two pods of one node (200 µs)
/// to a default timeout that allows for a lost SYN (1 s and 3 s): each is a series of every pair.
/// Limits must be bounds: buckets do not show whether a percentile is above any other value.
pub const RTT_BOUNDS: [f64; 13] =
    [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// Bounds of scheduling delays: from the timer's resolution (1 ms) to the longest delay after which
/// a probe still starts (a timeout of some seconds).
pub(super) const DELAYS: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Why {
    reason: &'static str,
}

/// A resolution of 10 % is finer than the variation of round-trip times; 160 buckets hold six
/// decades of it, and an outlier is forgotten after an hour instead of making all buckets coarser.
pub(super) fn native() -> NativeHistogramConfig {
    NativeHistogramConfig::new(1.1).max_buckets(160).min_reset_duration(Duration::from_hours(1))
}

pub(super) fn rtt_histogram() -> Histogram {
    Histogram::new_classic_and_native(RTT_BOUNDS, native())
}

/// The original's buckets, without native ones: its dashboards query `_bucket`.
pub(super) fn interpod_histogram() -> Histogram {
    Histogram::new(exponential_buckets(1e-5, 2.0, 25))
}

impl Inner {
    /// The library appends `_total` to counters and `_info` to infos.
    pub(super) fn register(&mut self) {
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
