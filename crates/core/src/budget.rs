//! The cost of an agent to its scraper and its pod, which limits the number of peers that it
//! probes. The operator and the agent use the same numbers.
use std::time::Duration;

use crate::placement::{hash, ring::Bound};

/// Maximum number of series that an agent exports: a page of some 400 kB, which is generated and
/// scraped in milliseconds and keeps an agent below 20 MiB. A thousand agents are two million
/// series, the size of a large Prometheus.
pub const SERIES: usize = 2000;

/// Buckets of `netprober_rtt_seconds` with +Inf, sum and count.
pub const RTT_SERIES: usize = 16;

/// The other series of each protocol: the counters by result, at most six by reason (TCP five, UDP
/// four), the kernel's figure (TCP); duplicates, reordering, two results of large packets, their size
/// and hops (UDP): twelve at most.
pub const OTHER_SERIES: usize = 12;

/// Buckets of the original's histogram with +Inf, sum and count.
pub const ORIGINAL_SERIES: usize = 28;

/// Number of series of an agent that are independent of its peers: its own process, schedule and
/// list, and its last traces.
pub const AGENT_SERIES: usize = 40;

/// Maximum number of targets of a list besides its peers.
pub const TARGETS: usize = 8;

/// The series of a target: a histogram of ten series for each of the four phases, two counters of results, and at most
/// 22 of failures by phase and reason.
pub const TARGET_SERIES: usize = 64;

/// Maximum number of agents of a `NetworkProber` that probe its targets. With [`TARGET_PERIOD`], one target has ten
/// requests a second at most, whatever the number of pods.
pub const TARGET_AGENTS: usize = 300;

/// Each agent probes each target once in this time.
pub const TARGET_PERIOD: Duration = Duration::from_secs(30);

/// The shortest turn of peers that do not fit into a list at the same time. A rule over five
/// minutes has a result after half of them, and the alerts wait for five more; a turn has room for
/// both, and as much again before it ends.
const TURN: Duration = Duration::from_mins(15);

/// A turn lasts at least this many periods: fewer than ten probes are no evidence for the rules
/// either.
const PERIODS: u32 = 10;

/// Returns the number of series for each probed node.
#[must_use]
pub const fn per_node(protocols: usize) -> usize {
    protocols * (RTT_SERIES + OTHER_SERIES)
}

/// Returns the number of series for each probed address.
#[must_use]
pub const fn per_address(original_metrics: bool) -> usize {
    if original_metrics { ORIGINAL_SERIES } else { 0 }
}

/// Returns the maximum number of peers of an agent with this many targets, each on a separate node and with this many
/// addresses: without targets from 14 (three protocols, two families, the original's metric) to 70.
#[must_use]
pub const fn most_peers(
    protocols: usize,
    addresses: usize,
    original_metrics: bool,
    targets: usize,
) -> usize {
    let each = per_node(protocols) + addresses * per_address(original_metrics);
    match (SERIES - AGENT_SERIES).saturating_sub(targets * TARGET_SERIES).checked_div(each) {
        Some(peers) => peers,
        // Without a protocol, nothing is measured.
        None => 0,
    }
}

/// Returns the greatest hash of the pods whose agents probe targets, of all pods that may, by UID.
#[must_use]
pub fn target_agents<'a>(uids: impl Iterator<Item = &'a str>) -> u64 {
    let mut hashes: Vec<_> = uids.map(hash::of).collect();
    if hashes.len() <= TARGET_AGENTS {
        return u64::MAX;
    }
    *hashes.select_nth_unstable(TARGET_AGENTS - 1).1
}

/// Returns the duration of a turn.
#[must_use]
pub fn turn(period: Duration) -> Duration {
    TURN.max(period.saturating_mul(PERIODS))
}

/// Returns the bound of the lists at a time, counted from the Unix epoch.
#[must_use]
pub fn bound(most: usize, period: Duration, now: Duration) -> Bound {
    // A turn is never shorter than minutes.
    Bound { most, epoch: now.as_secs() / turn(period).as_secs().max(1) }
}
