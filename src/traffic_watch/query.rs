//! The PromQL text: everything one judgment needs, in one request.
//!
//! Each element carries the label [`MEASURE`]; thresholds never enter the text, so that every
//! `TrafficWatch` with the same devices, direction and window shares it, and because `NaN > 60` is
//! an empty answer to Prometheus: the comparison is ours. Why each part is as it is:
//!
//! - `rate` before any sum: a counter reset is corrected per series.
//! - `and on (job, instance) (up == 1)`: `rate` keeps returning decaying values for a whole window
//!   after an exporter died: a node that is too loaded to be scraped would look fit.
//! - every selector has the matchers of [`Exporters`]: anyone who can have a pod scraped can serve
//!   the same metrics for any node. If no series is accepted, the answer names the jobs that have
//!   some.
//! - the inner `sum` removes only what a replaced exporter pod changes ([`REPLACED`]), so that its
//!   two halves of the window add up. The outer `max` removes the rest: a second job, a second
//!   endpoint, another replica of an HA pair of Prometheus each count the same bytes again.
//! - the default of `devices` is widened and narrowed ([`devices`]): a VLAN and a representor carry
//!   bytes that the physical link carries too.
//! - the rate of links without a speed is queried separately: the busiest link may be one of them.
//! - both sides of the division are aggregated: a second speed series of one node would otherwise
//!   be a many-to-many error for all of them.
//! - `> 0`: an unknown link speed is exported as -125000, which would read as "very fit".
//! - `topk` instead of `max` over the devices: it keeps the device's name.
//! - the speed of the fastest link, and not the sum of all: a pod's traffic leaves by one of them.
use std::{fmt::Write, sync::Arc, time::Duration};

use crate::{
    api::traffic_watch::{DEFAULT_DEVICES, Direction},
    prometheus::{
        Exporters, Payer,
        exporters::other_jobs,
        promql::{duration, is_selector, string},
    },
};

/// The measure that is about the answer and not about a node: the scrapes in the window of the
/// target that has most of them.
pub const SCRAPES: &str = "scrapes";

/// The label, and its value, of how old a sample is that a query of the author's selects. Not
/// [`MEASURE`], which may be a label of the author's series.
pub const OWN_AGE: (&str, &str) = ("traffic_operator_measure", "age");

pub use crate::prometheus::exporters::MEASURE;

/// The counters of the bytes that each link has sent.
const SENT: &str = "node_network_transmit_bytes_total";

/// The counters of the bytes that each link has received.
const RECEIVED: &str = "node_network_receive_bytes_total";

/// The labels that change when an exporter pod is replaced, by the names that the usual scrape
/// configurations give them: prometheus-operator, annotated pods, copied pod labels, OpenTelemetry.
///
/// Not `container`, `endpoint`, `port` or `service`: a new pod has the same ones, and two endpoints
/// of one exporter differ in them. A label that is missing here makes a replaced exporter read low
/// for one window; one that should not be here makes duplicates add up for good.
pub const REPLACED: &[&str] = &[
    "pod",
    "pod_name",
    "kubernetes_pod_name",
    "k8s_pod_name",
    "pod_ip",
    "pod_uid",
    "k8s_pod_uid",
    "uid",
    "container_id",
    "controller_revision_hash",
    "pod_template_generation",
    "pod_template_hash",
];

/// Devices that the default of `devices` counts in addition to its text: USB cards named by their
/// address (`enx…`), cards in further PCI domains (`enP5p1s0`), Xen (`enX0`) and device trees
/// (`end0`).
///
/// Not `enP53091s1`, without a bus: on Azure that is the virtual function below `eth0`, which
/// counts its bytes as well.
const MORE_DEVICES: &str = "enx[0-9a-f]{12}|enP[0-9]+p[0-9]+s[0-9].*|enX[0-9]+|end[0-9]+";

/// Devices that the default of `devices` does not count although its text matches: VLANs and
/// `InfiniBand` partitions (`eth0.100`, `ib0.8001`), representors of virtual functions and similar
/// ones (`enp65s0f0npf0vf3`). Their bytes are on the physical link too.
const NOT_DEVICES: &str = ".*[.].*|.+pf[0-9].*";

/// The matchers of the devices that count.
///
/// The text of the default cannot change: objects store it, and the schema compares with it. RE2
/// has no way to exclude, so that it takes a matcher more.
#[must_use]
pub fn devices(regex: &str) -> String {
    if regex == DEFAULT_DEVICES {
        let regex = string(&format!("{regex}|{MORE_DEVICES}"));
        format!("device=~{regex},device!~{}", string(NOT_DEVICES))
    } else {
        format!("device=~{}", string(regex))
    }
}

/// Identifies the answer: two measures with equal requests share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The name of the queried endpoint.
    pub endpoint: Arc<str>,
    /// The query.
    pub question: Question,
}

impl Request {
    /// Returns the owner of the request, if an object in this namespace asks.
    #[must_use]
    pub fn payer(&self, namespace: &str) -> Payer {
        match self.question {
            Question::BuiltIn { .. } => Payer::BuiltIn(namespace.into()),
            Question::Own(_) => Payer::Own(namespace.into()),
        }
    }
}

/// The kind of query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// The load of the nodes' links.
    BuiltIn {
        /// RE2 of the devices that count.
        devices: Arc<str>,
        /// The direction of traffic.
        direction: Direction,
        /// The window of `rate`.
        window: Duration,
        /// True if the link speed itself is queried too: only what nodes offer depends on it.
        speed: bool,
    },
    /// PromQL of the author's: one element per node.
    Own(Arc<str>),
}

/// One kind of number in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Percent of link speed sent, of the busiest link.
    TransmitPercent,
    /// Percent of link speed received, of the busiest link.
    ReceivePercent,
    /// Bytes per second sent, over all links.
    TransmitBytes,
    /// Bytes per second received, over all links.
    ReceiveBytes,
    /// Bytes per second sent, of the busiest link with an unknown speed.
    TransmitWithoutSpeed,
    /// Bytes per second received, of the busiest link with an unknown speed.
    ReceiveWithoutSpeed,
    /// Bytes per second that the fastest link carries.
    Speed,
    /// Bytes sent since the counters began.
    Total,
    /// Seconds since the youngest sample.
    Age,
    /// The result of a custom query.
    Own,
    /// Seconds since its sample, where the query selects one.
    OwnAge,
}

impl Measure {
    /// All measures, in the order of [`Self::index`].
    pub const ALL: [Self; 11] = [
        Self::TransmitPercent,
        Self::ReceivePercent,
        Self::TransmitBytes,
        Self::ReceiveBytes,
        Self::TransmitWithoutSpeed,
        Self::ReceiveWithoutSpeed,
        Self::Speed,
        Self::Total,
        Self::Age,
        Self::Own,
        Self::OwnAge,
    ];

    /// The value of [`MEASURE`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TransmitPercent => "transmit_percent",
            Self::ReceivePercent => "receive_percent",
            Self::TransmitBytes => "transmit_bytes",
            Self::ReceiveBytes => "receive_bytes",
            Self::TransmitWithoutSpeed => "transmit_without_speed",
            Self::ReceiveWithoutSpeed => "receive_without_speed",
            Self::Speed => "speed",
            Self::Total => "total",
            Self::Age => "age",
            Self::Own => "own",
            Self::OwnAge => "own_age",
        }
    }

    /// The measure of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        // Compared by length first: every series of an answer comes here.
        Some(match name {
            "transmit_percent" => Self::TransmitPercent,
            "receive_percent" => Self::ReceivePercent,
            "transmit_bytes" => Self::TransmitBytes,
            "receive_bytes" => Self::ReceiveBytes,
            "transmit_without_speed" => Self::TransmitWithoutSpeed,
            "receive_without_speed" => Self::ReceiveWithoutSpeed,
            "speed" => Self::Speed,
            "total" => Self::Total,
            "age" => Self::Age,
            "own" => Self::Own,
            "own_age" => Self::OwnAge,
            _ => return None,
        })
    }

    /// Its place in [`Self::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

impl Question {
    /// The whole request.
    #[must_use]
    pub fn promql(&self, exporters: &Exporters) -> String {
        self.text(exporters, true)
    }

    /// The request for the numbers that decide, without those that are only shown.
    #[must_use]
    pub fn deciding(&self, exporters: &Exporters) -> String {
        self.text(exporters, false)
    }

    fn text(&self, exporters: &Exporters, with_totals: bool) -> String {
        match self {
            Self::Own(text) => own(text),
            Self::BuiltIn { devices, direction, window, speed } => {
                built_in(devices, *direction, *window, (*speed, with_totals), exporters)
            }
        }
    }
}

/// A selector reads a stored sample, which is the same one until the next scrape or evaluation: its
/// age is queried in the same request. A computed value has no age that could be queried.
fn own(text: &str) -> String {
    if !is_selector(text) {
        return text.to_owned();
    }
    let (label, value) = OWN_AGE;
    // The lines end comments.
    format!(
        "{text}\nor label_replace(time() - timestamp({text}\n), \"{label}\", \"{value}\", \"\", \"\")"
    )
}

fn built_in(
    devices: &str,
    direction: Direction,
    window: Duration,
    (with_speed, with_totals): (bool, bool),
    exporters: &Exporters,
) -> String {
    let Exporters { node_labels, node_exporter: believed, .. } = exporters;
    let node = node_labels.iter().fold("instance".to_owned(), |mut list, label| {
        // Writing to a String cannot fail.
        let _ = write!(list, ", {label}");
        list
    });
    let devices = self::devices(devices);
    let window = duration(window);
    // A label that names nodes must be kept.
    let replaced = REPLACED.iter().copied().filter(|label| !node_labels.iter().any(|n| n == label));
    let replaced = replaced.collect::<Vec<_>>().join(", ");
    let speed = format!(
        "max by ({node}, device) ({} > 0)",
        believed.select("node_network_speed_bytes", &devices)
    );
    let mut parts = Vec::new();
    let mut add = |measure: Measure, expression: &str| {
        let name = measure.name();
        parts.push(format!("label_replace({expression}, \"{MEASURE}\", \"{name}\", \"\", \"\")"));
    };
    for (counter, percent, bytes, without_speed) in counters(direction) {
        let rate = format!(
            "max by ({node}, device) (sum without ({replaced}) (\
                 rate({}[{window}]) \
                 and on (job, instance) ({} == 1)))",
            believed.select(counter, &devices),
            believed.select("up", ""),
        );
        add(percent, &format!("topk by ({node}) (1, {rate} / {speed}) * 100"));
        add(bytes, &format!("sum by ({node}) ({rate})"));
        add(without_speed, &format!("max by ({node}) ({rate} unless {speed})"));
    }
    if with_speed {
        add(Measure::Speed, &format!("max by ({node}) ({speed})"));
    }
    if with_totals {
        let series = believed.select(SENT, &devices);
        add(Measure::Total, &format!("sum by ({node}) (max by ({node}, device) ({series}))"));
    }
    let judged = if direction == Direction::Receive { RECEIVED } else { SENT };
    let series = believed.select(judged, &devices);
    add(Measure::Age, &format!("time() - max by ({node}) (timestamp({series}))"));
    // The most, because a target that has just come has few.
    parts.push(format!(
        "label_replace(max(count_over_time({series}[{window}])), \
             \"{MEASURE}\", \"{SCRAPES}\", \"\", \"\")"
    ));
    parts.extend(other_jobs(judged, &devices, believed));
    parts.join("\nor ")
}

fn counters(direction: Direction) -> Vec<(&'static str, Measure, Measure, Measure)> {
    use Measure as M;
    let transmit = (SENT, M::TransmitPercent, M::TransmitBytes, M::TransmitWithoutSpeed);
    let receive = (RECEIVED, M::ReceivePercent, M::ReceiveBytes, M::ReceiveWithoutSpeed);
    match direction {
        Direction::Transmit => vec![transmit],
        Direction::Receive => vec![receive],
        Direction::Busiest => vec![transmit, receive],
    }
}

#[cfg(test)]
mod tests;
