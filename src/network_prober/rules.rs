//! The rules that each `NetworkProber` owns: recordings and alerts from the agents' measurements.
//!
//! **Pairs.** Everything is measured for pairs of nodes, regardless of the number of pods on them,
//! and for the worst protocol: 30 % loss of UDP is 30 % loss, and not 10 % because TCP, and HTTP
//! with it, retransmits lost packets. A pair with fewer than half of the expected probes has no
//! value, unless it has ten.
//!
//! **Blame.** A bad path shows that one of its two ends is bad, not which. A node is as bad as
//! *more than half* of the paths to it, or of those from it, whichever is worse: the lower median.
//! One bad peer among three spoils a third of the paths of the two others, and all of its own. The
//! usual median is not enough: of two paths, one bad, it takes the mean, and in a cluster of three
//! nodes, one bad node would put the blame on all. Two nodes share the blame, because nothing can
//! distinguish them. Paths from a node to itself leave no node and are no evidence about it.
//!
//! **Absence is never a verdict.** A node that is not probed has no value, neither 0 nor 1. A node
//! that is probed and never answers has a loss of 1, although it has no round-trip time and may not
//! be scraped itself.
//!
//! **Limits are bounds of buckets.** A percentile of a classic histogram is only known to lie
//! between two bounds; the result of `histogram_quantile` between them is an estimate. It is above
//! a bound exactly when more than one answer in a hundred is, so a comparison with a bound is a
//! fact.
//!
//! Everything is recorded twice: over five minutes for people and alerts, over one minute for
//! consumers that must act (criteria of a `TrafficWatch`), which needs scrapes at most 30 seconds
//! apart.
use std::time::Duration;

use serde_json::{Value, json};

use crate::{agent::metrics::RTT_BOUNDS, prometheus::promql::string};

/// The label of everything recorded: which prober measured it, as `<namespace>/<name>`.
pub const PROBER: &str = "prober";

/// The names of the recorded series.
pub const NAMES: &[&str] = &[
    "netprober:pair_loss:ratio5m",
    "netprober:pair_loss:ratio1m",
    "netprober:pair_rtt_seconds:p99_5m",
    "netprober:pair_rtt_seconds:p99_1m",
    "netprober:node_loss:ratio5m",
    "netprober:node_loss:ratio1m",
    "netprober:node_rtt_seconds:p99_5m",
    "netprober:node_rtt_seconds:p99_1m",
    "netprober:pair_large_loss:ratio1m",
    "netprober:target_bad:ratio5m",
];

/// The windows, each also as PromQL writes it; so end the names of what is recorded over it.
const WINDOWS: [(Duration, &str); 2] = [(LONG, "5m"), (Duration::from_mins(1), "1m")];

/// The window for people and alerts: ten scrapes 30 seconds apart, thirty probes 10 seconds apart.
const LONG: Duration = Duration::from_mins(5);

/// Labels of a pair. Clusters that share a Prometheus stay apart, as everywhere here; where series
/// have no such label, it changes nothing.
const PAIR: &str = "cluster, src_node, src_zone, dst_node, dst_zone";

/// A node loses too much: every twentieth probe on more than half of its paths. A healthy network
/// loses one in ten thousand or less (Pingmesh), TCP slows down from one in a hundred; one lost
/// probe of the 30 in the window of one pair must not be enough.
pub(super) const LOSS: f64 = 0.05;

/// A path carries no large packets: a path with ordinary loss carries some of six.
const LARGE_LOSS: f64 = 0.9;

/// A path changes too often: how many times within fifteen minutes. A route that moves once, or to
/// another path and back, is what redundancy is for.
const CHANGES: u32 = 4;

/// A target is bad as seen from a node: every fifth attempt at a phase fails, or takes longer than [`SLOW_PHASE`]. An
/// agent makes ten in five minutes, and one lost packet must not be enough.
pub(super) const TARGET_BAD: f64 = 0.2;

/// Longest time of a good phase, as a regular expression for the bound of a bucket, in seconds: a resolver that
/// waits longer has lost a packet, and TCP has sent a lost one again.
const SLOW_PHASE: &str = "1([.]0)?";

/// A node is too far: no two zones of a region are 100 ms apart, and agents time out after one
/// second. In seconds, and a bound of a bucket.
const LATENCY: f64 = 0.1;

/// The longest time from one evaluation to the next. Prometheus forgets a value that is five
/// minutes old, and an alert that is evaluated less often than this is late.
const LONGEST_INTERVAL: Duration = Duration::from_mins(1);

/// An agent does not get the processor time it needs: every twentieth probe is not sent in time.
/// Its measurements then show more about its own node than about the network.
const STARVED: f64 = 0.05;

/// An agent cannot probe: every twentieth probe is not sent because its host refuses it. One in
/// twenty is what makes a node bad ([`LOSS`]), and here it is not measured at all.
const REFUSED: f64 = 0.05;

/// Agents keep the last list of peers for so long, or for as many periods.
const LAST_LIST: (Duration, u32) = (Duration::from_mins(10), 10);

/// The times that the rules depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// From one probe of a peer to the next. Probes that are more than half a window apart leave
    /// that window empty.
    pub period: Duration,
    /// A probe without an answer for this long has failed.
    pub timeout: Duration,
    /// From one scrape to the next.
    pub interval: Duration,
}

/// The `spec` of a `PrometheusRule`, which is also a whole rule file of Prometheus.
///
/// `prober` is `<namespace>/<name>`, which is the job of its agents too; `runbooks` is the address
/// where the runbooks are served.
#[must_use]
pub fn rules(prober: &str, pace: Pace, runbooks: Option<&str>) -> Value {
    let Pace { period, .. } = pace;
    let job = format!("job={}", string(prober));
    let mut recorded = Vec::new();
    for (window, suffix) in WINDOWS {
        let enough = enough(window, period);
        let pairs = [
            (format!("netprober:pair_loss:ratio{suffix}"), loss(&job, suffix, enough)),
            (format!("netprober:pair_rtt_seconds:p99_{suffix}"), latency(&job, suffix, enough)),
        ];
        for (name, expr) in pairs {
            let node = name.replace(":pair_", ":node_");
            // One path between two nodes, regardless of its zone labels: each path counts once.
            let paths = format!(
                "max by (cluster, src_node, dst_node) ({name}{{{PROBER}={}}})",
                string(prober)
            );
            let blame = blame(&paths);
            recorded.push(json!({"record": name, "expr": expr, "labels": {PROBER: prober}}));
            recorded.push(json!({"record": node, "expr": blame, "labels": {PROBER: prober}}));
        }
    }
    recorded.push(json!({
        "record": "netprober:pair_large_loss:ratio1m", "expr": large_loss(&job),
        "labels": {PROBER: prober},
    }));
    recorded.push(json!({
        "record": "netprober:target_bad:ratio5m", "expr": target_bad(&job), "labels": {PROBER: prober},
    }));
    // One group: the rules of a group see what those before them have just recorded.
    let alerts = alerts(prober, &job, pace).into_iter();
    recorded.extend(alerts.map(|alert| alert.rule(prober, runbooks)));
    json!({"groups": [{
        "name": "networkprober",
        // As often as new samples arrive, so that each recorded value is a new measurement.
        "interval": interval(pace.interval.min(LONGEST_INTERVAL)),
        "rules": recorded,
    }]})
}

/// A duration as Prometheus writes it, to the millisecond: `1m30s`.
#[must_use]
pub fn interval(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(millis)).to_string().replace(' ', "")
}

/// The latency that is alerted on, in seconds: a bound of a bucket, and no more than half of the
/// timeout, because a probe that takes longer than that is lost and not slow.
pub(super) fn latency_limit(timeout: Duration) -> f64 {
    let most = LATENCY.min(timeout.as_secs_f64() / 2.0);
    let bound = RTT_BOUNDS.into_iter().rev().find(|bound| *bound <= most);
    bound.unwrap_or(RTT_BOUNDS[0])
}

/// Minimum number of probes of a pair and protocol in a window: half of those that one pair of pods
/// should make, so that an agent that just came, just went or is starved does not count; but ten
/// are always enough, and one is always needed.
fn enough(window: Duration, period: Duration) -> u64 {
    // A period of no length is refused elsewhere; here it must not divide.
    let probes = window.as_millis() / period.as_millis().max(1);
    u64::try_from(probes / 2).unwrap_or(u64::MAX).clamp(1, 10)
}

/// A pair's loss in its worst protocol.
///
/// A series of failures exists only after the first failure, hence the zeros beside it.
fn loss(job: &str, range: &str, enough: u64) -> String {
    let probes = |selector: &str| {
        format!(
            "sum by (protocol, {PAIR}) (increase(netprober_probes_total{{{selector}}}[{range}]))"
        )
    };
    let (all, failed) = (probes(job), probes(&format!("{job}, result=\"failure\"")));
    format!("max by ({PAIR}) (({failed} or 0 * {all}) / ({all} >= {enough}))")
}

/// A pair's loss of large packets while short ones arrive. A path that drops them drops all: one
/// minute is enough, of which agents have six rounds and a scrape sees at least two.
fn large_loss(job: &str) -> String {
    let sent = |more: &str| {
        format!("sum by ({PAIR}) (increase(netprober_udp_large_packets_total{{{job}{more}}}[1m]))")
    };
    format!("{} / ({} >= 2)", sent(", result=\"failure\""), sent(""))
}

/// The share of attempts at a phase of a target that fail or are slow, by the node that probes. The durations are those
/// of the attempts that succeeded.
fn target_bad(job: &str) -> String {
    let of = |series: &str, more: &str| {
        format!(
            "sum by (cluster, src_node, target, phase) (increase(netprober_target_{series}{{{job}{more}}}[5m]))"
        )
    };
    let all = of("phase_seconds_count", "");
    let fast = of("phase_seconds_bucket", &format!(", le=~{}", string(SLOW_PHASE)));
    let failed = of("failures_total", "");
    // A series of failures exists only after the first one.
    format!("({all} - {fast} + {failed} or {all} - {fast}) / (({all} + {failed} or {all}) >= 3)")
}

/// A pair's 99th percentile in its slowest protocol. Only answers have a round-trip time, so that
/// enough of them are needed, and not only enough probes.
///
/// Of the classic buckets: every Prometheus has them, if it also keeps native histograms then by
/// `scrapeClassicHistograms`.
fn latency(job: &str, range: &str, enough: u64) -> String {
    let by = format!("protocol, {PAIR}");
    format!(
        "max by ({PAIR}) (histogram_quantile(0.99, sum by (le, {by}) \
         (rate(netprober_rtt_seconds_bucket{{{job}}}[{range}]))) \
         and on ({by}) sum by ({by}) (increase(netprober_rtt_seconds_count{{{job}}}[{range}])) >= {enough})"
    )
}

/// Returns the value for which a node is to blame, from a series of pairs.
fn blame(pairs: &str) -> String {
    let of = |end: &str| {
        // Between two nodes, not from a node to itself: dst_node is set to src_node, and what
        // matches is left out.
        let between = format!(
            "({pairs} unless on (cluster, src_node, dst_node) \
             label_replace(group by (cluster, src_node) ({pairs}), \"dst_node\", \"$1\", \"src_node\", \"(.*)\"))"
        );
        // The greatest value that is not above the median: the median itself, or the lower of the
        // two.
        let median = format!(
            "max by (cluster, {end}) ({between} <= on (cluster, {end}) group_left () \
             quantile by (cluster, {end}) (0.5, {between}))"
        );
        format!("label_replace({median}, \"node\", \"$1\", \"{end}\", \"(.*)\")")
    };
    format!("max by (cluster, node) ({} or {})", of("dst_node"), of("src_node"))
}

fn alerts(prober: &str, job: &str, pace: Pace) -> Vec<Alert> {
    let of = format!("{{{PROBER}={}}}", string(prober));
    let latency = latency_limit(pace.timeout);
    vec![
        Alert {
            name: "NetworkProberLossHigh",
            expr: format!("netprober:node_loss:ratio5m{of} > {LOSS}"),
            // With the window it is longer than a node needs to restart.
            wait: "5m",
            summary: "Probes to or from node {{ $labels.node }} are lost.".into(),
            description: format!(
                "For 5 minutes more than {}% of the probes of NetworkProber {prober} have failed on more than half \
                 of the paths to or from node {{{{ $labels.node }}}}; now {{{{ $value | humanizePercentage }}}}.",
                LOSS * 100.0
            ),
        },
        Alert {
            name: "NetworkProberLatencyHigh",
            expr: format!("netprober:node_rtt_seconds:p99_5m{of} > {latency}"),
            wait: "5m",
            summary: "Node {{ $labels.node }} answers slowly.".into(),
            description: format!(
                "For 5 minutes the 99th percentile of the round-trip times of NetworkProber {prober} has been above \
                 {latency}s on more than half of the paths to or from node {{{{ $labels.node }}}}; now \
                 {{{{ $value | humanizeDuration }}}}."
            ),
        },
        Alert {
            name: "NetworkProberLargePacketsLost",
            expr: format!(
                "count by (cluster) (netprober:pair_large_loss:ratio1m{of} > {LARGE_LOSS}) > 0"
            ),
            // A path that loses everything for a moment may lose only large packets in a round.
            wait: "2m",
            summary: format!("Paths of NetworkProber {prober} carry no large packets."),
            description: format!(
                "For 2 minutes paths of NetworkProber {prober} have lost packets as large as their interfaces allow, \
                 and no short ones (paths now: {{{{ $value }}}}). Connections over them open and then stall."
            ),
        },
        Alert {
            name: "NetworkProberPathUnstable",
            expr: format!(
                "count by (cluster) (max by ({PAIR}) (changes(netprober_udp_hops{{{job}}}[15m])) >= {CHANGES}) > 0"
            ),
            wait: "5m",
            summary: format!("Paths of NetworkProber {prober} keep changing."),
            description: format!(
                "Paths of NetworkProber {prober} have changed their number of routers {CHANGES} times or more within \
                 15 minutes (paths now: {{{{ $value }}}}). Each change may lose or reorder packets."
            ),
        },
        target_failing(prober, &of),
        Alert {
            name: "NetworkProberStarved",
            expr: starved(job),
            // Longer than a node needs when many pods start at once.
            wait: "10m",
            summary: format!("Agents of NetworkProber {prober} lack CPU time."),
            description: format!(
                "For 10 minutes agents of NetworkProber {prober} have skipped more than every twentieth probe, \
                 because they were not scheduled in time (agents now: {{{{ $value }}}}). Their measurements include \
                 their own scheduling delays."
            ),
        },
        Alert {
            name: "NetworkProberSkipsProbes",
            expr: refused(job),
            // Longer than a node that is out of ports or memory for a moment.
            wait: "10m",
            summary: format!("Agents of NetworkProber {prober} cannot send probes."),
            description: format!(
                "For 10 minutes agents of NetworkProber {prober} have skipped more than every twentieth probe, \
                 because their own host has no descriptors, ports or memory left, or blocks them (agents now: \
                 {{{{ $value }}}}). Skipped probes do not count as loss: the paths from these nodes are measured \
                 less, or not at all."
            ),
        },
        Alert {
            name: "NetworkProberSilent",
            expr: silent(job, pace.period),
            wait: "10m",
            summary: format!("Agents of NetworkProber {prober} probe no peer."),
            description: format!(
                "For 10 minutes agents of NetworkProber {prober} have been scraped and have probed no peer, although \
                 they should (agents now: {{{{ $value }}}}). Their nodes are measured less, or not at all."
            ),
        },
    ]
}

fn target_failing(prober: &str, of: &str) -> Alert {
    Alert {
        name: "NetworkProberTargetFailing",
        expr: format!(
            "count by (cluster, target, phase) (netprober:target_bad:ratio5m{of} > {TARGET_BAD}) > 0"
        ),
        // With the window it is longer than a Service needs for new endpoints.
        wait: "5m",
        summary: format!(
            "Target {{{{ $labels.target }}}} of NetworkProber {prober} fails or is slow."
        ),
        description: format!(
            "For 5 minutes more than {}% of the probes of target {{{{ $labels.target }}}} of NetworkProber {prober} \
             have failed in phase {{{{ $labels.phase }}}} or have taken longer than 1s there (nodes now: \
             {{{{ $value }}}}).",
            TARGET_BAD * 100.0
        ),
    }
}

/// Counts the starved agents.
fn starved(job: &str) -> String {
    skipping(job, "starved", STARVED)
}

/// Counts the agents that cannot send their probes.
fn refused(job: &str) -> String {
    skipping(job, "local", REFUSED)
}

/// Counts the agents that skip more than this share of their probes for this reason.
fn skipping(job: &str, reason: &str, share: f64) -> String {
    let rate = |metric: &str, more: &str| {
        format!("sum by (cluster, namespace, pod) (rate({metric}{{{job}{more}}}[5m]))")
    };
    let skipped = rate("netprober_skipped_probes_total", &format!(", reason={}", string(reason)));
    let sent = rate("netprober_probes_total", "");
    // An agent that sends nothing at all any more may have no series of probes.
    format!(
        "count by (cluster) ({skipped} / ({skipped} + ({sent} or 0 * {skipped})) > {share}) > 0"
    )
}

/// Counts the agents that should probe but do not.
///
/// - Only our own agents count their probes and have `netprober_build_info`.
/// - An agent that just started has no rate yet; in a long rollout there is always one.
/// - A list without peers is right for an agent that is alone, or on no circle of the ring. When
///   none of several agents has a peer, no list is right. When the list is too old, there are no
///   peers either: that is the silence that is meant.
fn silent(job: &str, period: Duration) -> String {
    format!("count by (cluster) ({}) > 0", silent_agents(job, period))
}

/// Selects these agents.
pub(super) fn silent_agents(job: &str, period: Duration) -> String {
    let quiet = LONG.max(period.saturating_mul(3));
    let quiet = quiet.as_secs();
    let list = LAST_LIST.0.max(period.saturating_mul(LAST_LIST.1)).as_secs();
    let by = "cluster, namespace, pod";
    let agents = format!(
        "(group by ({by}) (netprober_build_info{{{job}}}) \
         and on ({by}) (time() - netprober_process_start_time_seconds{{{job}}} > {quiet}))"
    );
    format!(
        "{agents} \
         unless on ({by}) sum by ({by}) (increase(netprober_probes_total{{{job}}}[{quiet}s])) > 0 \
         unless on ({by}) (netprober_peers{{{job}}} == 0 \
         and on ({by}) netprober_pinglist_age_seconds{{{job}}} < {list} \
         and on (cluster) (count by (cluster) ({agents}) < 2 \
         or sum by (cluster) (netprober_peers{{{job}}}) > 0))"
    )
}

struct Alert {
    name: &'static str,
    expr: String,
    wait: &'static str,
    summary: String,
    description: String,
}

impl Alert {
    fn rule(self, prober: &str, runbooks: Option<&str>) -> Value {
        let mut labels = json!({"severity": "warning", PROBER: prober});
        // The prometheus-operator routes the alerts of a namespace by this label.
        if let Some((namespace, _)) = prober.split_once('/') {
            labels["namespace"] = namespace.into();
        }
        let mut annotations = json!({"summary": self.summary, "description": self.description});
        // Without an address there is no link: one that leads nowhere would be worse than none.
        if let Some(url) = runbooks {
            annotations["runbook_url"] = runbook(url, self.name).into();
        }
        json!({
            "alert": self.name,
            "expr": self.expr,
            "for": self.wait,
            "labels": labels,
            "annotations": annotations,
        })
    }
}

/// Returns the address of an alert's page below the address of all runbooks.
fn runbook(runbooks: &str, alert: &str) -> String {
    format!("{}/{alert}.md", runbooks.trim_end_matches('/'))
}

#[cfg(test)]
mod tests;
