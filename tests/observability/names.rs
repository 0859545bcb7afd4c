//! The names of everything that rules, panels and documents may ask for.
use traffic_operator::{metrics, network_prober::rules};

/// What the agent exports.
pub const AGENT: &[&str] = &[
    "netprober_build_info",
    "netprober_incoming_peers",
    "netprober_interpod_latency_s",
    "netprober_peers",
    "netprober_pinglist_age_seconds",
    "netprober_pinglist_refreshes_total",
    "netprober_probes_total",
    "netprober_rtt_seconds",
    "netprober_scheduling_delay_seconds",
    "netprober_skipped_probes_total",
    "netprober_tcp_srtt_seconds",
    "netprober_udp_duplicates_total",
    "netprober_udp_reordered_total",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
];

/// What the operator exports for probers.
pub const PROBERS: &[&str] = &[
    "traffic_operator_injector_cert_not_after_seconds",
    "traffic_operator_injector_request_duration_seconds",
    "traffic_operator_injector_requests_total",
    "traffic_operator_injector_uncovered_pods",
    "traffic_operator_networkprober_estimated_series",
    "traffic_operator_networkprober_pinglist_agents",
    "traffic_operator_networkprober_pinglist_requests_total",
    "traffic_operator_networkprober_pods",
];

/// Every name, each as it is queried: exported by the operator or by the agent, or recorded.
pub fn all() -> impl Iterator<Item = &'static str> {
    [metrics::NAMES, PROBERS, AGENT, rules::NAMES].into_iter().flatten().copied()
}

/// Whether there is such a series; of a histogram also its parts.
pub fn is_known(name: &str) -> bool {
    let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
    // Units stand at the end of a family's name; the original agent wrote its seconds like this.
    let histogram = family.filter(|f| f.ends_with("_seconds") || f.ends_with("_latency_s"));
    all().any(|known| known == name || histogram == Some(known))
}
