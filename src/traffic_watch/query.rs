//! The PromQL text: everything one judgment needs, in one request.
//!
//! The request asks for facts about each link; `evidence` makes a load of them.
//! Each element carries the label [`MEASURE`]. Thresholds never enter the text, so that every
//! `TrafficWatch` with the same devices, direction and window shares it. Why each part is as it is:
//!
//! - the counter, now and one window before, each with its age: their difference over the time
//!   between them is the load, however many samples are missing in between, and whichever pod the
//!   exporter had then. `rate` is too low while samples cover its window only partly.
//! - `last_over_time`, where a scrape failed at the beginning of the window: it ends a series, and the
//!   counter before is known, but not when it was read.
//! - `rate`, for links without a sample before the window and for counters that started again: there
//!   the load is at least that much.
//! - `up` of the node's exporters, and not of the very target: series with timestamps of their own do
//!   not end with the exporter, and relabeling may have given them another `instance`.
//! - every selector has the matchers of [`Exporters`]: anyone who can have a pod scraped can serve
//!   the same metrics for any node. If no series is accepted, the answer names the jobs that have
//!   some.
//! - `max by`: a second job, a second endpoint, another replica of an HA pair of Prometheus have the
//!   counters of the same links, and the highest is the youngest.
//! - the default of `devices` is widened and narrowed ([`devices`]): a VLAN and a representor carry
//!   bytes that the physical link carries too.
//! - another exporter than the node exporter has other names, and no speeds ([`Links`]).
//! - `> 0`: an unknown link speed is exported as -125000, which would read as "very fit".
use std::{fmt::Write, sync::Arc, time::Duration};

use crate::{
    api::traffic_watch::{DEFAULT_DEVICES, Direction},
    prometheus::{
        Exporters, Payer,
        exporters::Links,
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

/// The label of the link that an element is about.
const DEVICE: &str = "device";

/// Devices that the default of `devices` counts in addition to its text: USB cards named by their
/// address (`enx…`), cards in further PCI domains (`enP5p1s0`), Xen (`enX0`), device trees (`end0`),
/// `InfiniBand` as systemd names it (`ibp65s0`, `ibs22f0`, `ibP257p0s2`) and Proxmox (`nic0`).
///
/// Not `enP53091s1`, without a bus: on Azure that is the virtual function below `eth0`, which
/// counts its bytes as well.
const MORE_DEVICES: &str =
    "enx[0-9a-f]{12}|enP[0-9]+p[0-9]+s[0-9].*|enX[0-9]+|end[0-9]+|ib[psP][0-9].*|nic[0-9]+";

/// Devices that the default of `devices` does not count although its text matches: VLANs and
/// `InfiniBand` partitions (`eth0.100`, `ib0.8001`), representors of virtual functions and similar
/// ones (`enp65s0f0npf0vf3`). Their bytes are on the physical link too.
const NOT_DEVICES: &str = ".*[.].*|.+pf[0-9].*";

/// The matchers of the devices that count.
///
/// The text of the default cannot change: objects store it, and the schema compares with it. RE2
/// has no way to exclude, so that it takes a matcher more.
#[must_use]
pub fn devices(label: &str, regex: &str) -> String {
    if regex == DEFAULT_DEVICES {
        let regex = string(&format!("{regex}|{MORE_DEVICES}"));
        format!("{label}=~{regex},{label}!~{}", string(NOT_DEVICES))
    } else {
        format!("{label}=~{}", string(regex))
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
        /// The time over which the load is measured.
        window: Duration,
    },
    /// PromQL of the author's: one element per node.
    Own(Arc<str>),
}

/// One kind of number in the answer: of a link, if nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes per second sent, by the samples within the window.
    TransmitRate,
    /// Bytes sent since the counter began.
    TransmitTotal,
    /// The same, one window before.
    TransmitTotalBefore,
    /// The same, up to a quarter of a window earlier, if there is none then.
    TransmitTotalEarlier,
    /// Bytes per second received, by the samples within the window.
    ReceiveRate,
    /// Bytes received since the counter began.
    ReceiveTotal,
    /// The same, one window before.
    ReceiveTotalBefore,
    /// The same, up to a quarter of a window earlier, if there is none then.
    ReceiveTotalEarlier,
    /// Bytes per second that the link carries.
    Speed,
    /// Seconds since the youngest sample.
    Age,
    /// Seconds since the youngest sample that was there one window before.
    AgeBefore,
    /// Bytes that the node has sent, where only what it receives is judged.
    Total,
    /// 1 if any exporter of the node answers.
    Up,
    /// The result of a custom query, of a node.
    Own,
    /// Seconds since its sample, where the query selects one.
    OwnAge,
}

impl Measure {
    /// All measures, in the order of [`Self::index`].
    pub const ALL: [Self; 15] = [
        Self::TransmitRate,
        Self::TransmitTotal,
        Self::TransmitTotalBefore,
        Self::TransmitTotalEarlier,
        Self::ReceiveRate,
        Self::ReceiveTotal,
        Self::ReceiveTotalBefore,
        Self::ReceiveTotalEarlier,
        Self::Speed,
        Self::Age,
        Self::AgeBefore,
        Self::Total,
        Self::Up,
        Self::Own,
        Self::OwnAge,
    ];

    /// The value of [`MEASURE`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TransmitRate => "transmit_rate",
            Self::TransmitTotal => "transmit_total",
            Self::TransmitTotalBefore => "transmit_total_before",
            Self::TransmitTotalEarlier => "transmit_total_earlier",
            Self::ReceiveRate => "receive_rate",
            Self::ReceiveTotal => "receive_total",
            Self::ReceiveTotalBefore => "receive_total_before",
            Self::ReceiveTotalEarlier => "receive_total_earlier",
            Self::Speed => "speed",
            Self::Age => "age",
            Self::AgeBefore => "age_before",
            Self::Total => "total",
            Self::Up => "up",
            Self::Own => "own",
            Self::OwnAge => "own_age",
        }
    }

    /// The measure of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|measure| measure.name() == name)
    }

    /// Its place in [`Self::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

impl Request {
    /// The PromQL.
    #[must_use]
    pub fn promql(&self, exporters: &Exporters) -> String {
        match &self.question {
            Question::Own(text) => own(text),
            Question::BuiltIn { devices, direction, window } => {
                let links = exporters.links(&self.endpoint);
                built_in(devices, *direction, *window, &links, &exporters.node_labels)
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
    links: &Links,
    node_labels: &[String],
) -> String {
    let node = node_labels.iter().fold("instance".to_owned(), |mut list, label| {
        // Writing to a String cannot fail.
        let _ = write!(list, ", {label}");
        list
    });
    let label = links.exporter.device();
    let devices = self::devices(label, devices);
    // The highest of each link.
    let by_link = |expression: String| match label {
        DEVICE => format!("max by ({node}, {DEVICE}) ({expression})"),
        label => format!(
            "label_replace(max by ({node}, {label}) ({expression}), \
             \"{DEVICE}\", \"$1\", \"{label}\", \"(.*)\")"
        ),
    };
    let (quarter, window) = (duration(window / 4), duration(window));
    let mut parts = Vec::new();
    let mut add = |measure: Measure, expression: &str| {
        let name = measure.name();
        parts.push(format!("label_replace({expression}, \"{MEASURE}\", \"{name}\", \"\", \"\")"));
    };
    for Counter { sent, rate, total, before, earlier } in counters(direction) {
        let series = links.select(*sent, &devices);
        add(*rate, &by_link(format!("rate({series}[{window}])")));
        add(*total, &by_link(series.clone()));
        add(*before, &by_link(format!("{series} offset {window}")));
        let past = format!("last_over_time({series}[{quarter}] offset {window})");
        add(*earlier, &by_link(format!("{past} unless {series} offset {window}")));
    }
    add(Measure::Up, &format!("max by ({node}) ({})", links.believed.select("up", "")));
    if let Some(speed) = links.speed(&devices) {
        add(Measure::Speed, &by_link(format!("{speed} > 0")));
    }
    let judged = direction != Direction::Receive;
    let series = links.select(judged, &devices);
    for (measure, series) in
        [(Measure::Age, series.clone()), (Measure::AgeBefore, format!("{series} offset {window}"))]
    {
        add(measure, &format!("time() - {}", by_link(format!("timestamp({series})"))));
    }
    if direction == Direction::Receive {
        let sent = by_link(links.select(true, &devices));
        add(Measure::Total, &format!("sum by ({node}) ({sent})"));
    }
    // The most, because a target that has just come has few.
    parts.push(format!(
        "label_replace(max(count_over_time({series}[{window}])), \
             \"{MEASURE}\", \"{SCRAPES}\", \"\", \"\")"
    ));
    parts.extend(links.other_jobs(judged, &devices));
    joined(&parts)
}

/// Joins expressions by `or`. It hashes all elements on both of its sides: in pairs of pairs each
/// element is hashed four times, one after the other ten times, a fifth of the server's time.
fn joined(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        parts => {
            let (left, right) = parts.split_at(parts.len() / 2);
            format!("({}\nor {})", joined(left), joined(right))
        }
    }
}

/// A counter of each link, and what is asked about it.
pub(super) struct Counter {
    /// True for sent bytes, false for received ones.
    sent: bool,
    /// Its rate.
    pub rate: Measure,
    /// Its value.
    pub total: Measure,
    /// Its value one window before.
    pub before: Measure,
    /// The same where a scrape failed then.
    pub earlier: Measure,
}

/// The counters of each direction that counts.
pub(super) fn counters(direction: Direction) -> &'static [Counter] {
    use Measure as M;
    const BOTH: &[Counter] = &[
        Counter {
            sent: true,
            rate: M::TransmitRate,
            total: M::TransmitTotal,
            before: M::TransmitTotalBefore,
            earlier: M::TransmitTotalEarlier,
        },
        Counter {
            sent: false,
            rate: M::ReceiveRate,
            total: M::ReceiveTotal,
            before: M::ReceiveTotalBefore,
            earlier: M::ReceiveTotalEarlier,
        },
    ];
    match direction {
        Direction::Transmit => &BOTH[..1],
        Direction::Receive => &BOTH[1..],
        Direction::Busiest => BOTH,
    }
}

#[cfg(test)]
mod tests;
