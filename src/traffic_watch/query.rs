//! The PromQL text: everything one judgement needs, in one request.
//!
//! Each element carries the label [`MEASURE`]; thresholds never enter the text, so that every
//! `TrafficWatch` with the same devices, direction and window shares it, and because `NaN > 60` is
//! an empty answer to Prometheus: the comparison is ours. Why each part is as it is:
//!
//! - `rate` before any sum: a counter reset is corrected per series.
//! - `and on (job, instance) (up == 1)`: `rate` goes on answering for a whole window after an
//!   exporter died, and decays: a node that is too loaded to be scraped would look fit.
//! - the inner `sum` keeps `job`, the `max` drops it: an exporter scraped by two jobs counts once,
//!   while a replaced exporter pod (another `pod` label) does not lose its first half.
//! - both sides of the division are aggregated: a second speed series of one node would otherwise
//!   be a many-to-many error for all of them.
//! - `> 0`: an unknown link speed is exported as -125000, which would read as "very fit".
//! - `topk` instead of `max` over the devices: it keeps the device's name.
use std::{fmt::Write, sync::Arc, time::Duration};

use crate::{
    api::traffic_watch::Direction,
    prometheus::promql::{duration, string},
};

/// The measure that is about the answer and not about a node: the scrapes in the window of the target
/// that has most of them.
pub const SCRAPES: &str = "scrapes";

/// The label that tells the measures of one answer apart.
pub const MEASURE: &str = "measure";

/// What makes two measures need the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The name of the endpoint that is asked.
    pub endpoint: Arc<str>,
    /// What it is asked.
    pub question: Question,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// The load of the nodes' links.
    BuiltIn {
        /// RE2 of the devices that count.
        devices: Arc<str>,
        /// Which direction.
        direction: Direction,
        /// The window of `rate`.
        window: Duration,
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
    /// Bytes sent since the counters began.
    Total,
    /// Seconds since the youngest sample.
    Age,
    /// What a query of the author's says.
    Own,
}

impl Measure {
    /// All of them, in the order of [`Self::index`].
    pub const ALL: [Self; 7] = [
        Self::TransmitPercent,
        Self::ReceivePercent,
        Self::TransmitBytes,
        Self::ReceiveBytes,
        Self::Total,
        Self::Age,
        Self::Own,
    ];

    /// The value of [`MEASURE`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TransmitPercent => "transmit_percent",
            Self::ReceivePercent => "receive_percent",
            Self::TransmitBytes => "transmit_bytes",
            Self::ReceiveBytes => "receive_bytes",
            Self::Total => "total",
            Self::Age => "age",
            Self::Own => "own",
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

impl Question {
    /// The whole request. `node_labels` are the labels that may name a node, beside `instance`.
    #[must_use]
    pub fn promql(&self, node_labels: &[String]) -> String {
        match self {
            Self::Own(text) => text.as_ref().to_owned(),
            Self::BuiltIn { devices, direction, window } => {
                built_in(devices, *direction, *window, node_labels)
            }
        }
    }
}

fn built_in(
    devices: &str,
    direction: Direction,
    window: Duration,
    node_labels: &[String],
) -> String {
    let node = node_labels.iter().fold("instance".to_owned(), |mut list, label| {
        // Writing to a String cannot fail.
        let _ = write!(list, ", {label}");
        list
    });
    let devices = string(devices);
    let window = duration(window);
    let speed =
        format!("max by ({node}, device) (node_network_speed_bytes{{device=~{devices}}} > 0)");
    let mut parts = Vec::new();
    let mut add = |measure: Measure, expression: &str| {
        let name = measure.name();
        parts.push(format!("label_replace({expression}, \"{MEASURE}\", \"{name}\", \"\", \"\")"));
    };
    let sent = "node_network_transmit_bytes_total";
    let received = "node_network_receive_bytes_total";
    for (counter, percent, bytes) in counters(direction, sent, received) {
        let rate = format!(
            "max by ({node}, device) (sum by (job, {node}, device) (\
                 rate({counter}{{device=~{devices}}}[{window}]) \
                 and on (job, instance) (up == 1)))"
        );
        add(percent, &format!("topk by ({node}) (1, {rate} / {speed}) * 100"));
        add(bytes, &format!("sum by ({node}) ({rate})"));
    }
    add(
        Measure::Total,
        &format!(
            "sum by ({node}) (max by ({node}, device) (\
                 sum by (job, {node}, device) ({sent}{{device=~{devices}}})))"
        ),
    );
    let judged = if direction == Direction::Receive { received } else { sent };
    add(
        Measure::Age,
        &format!("time() - max by ({node}) (timestamp({judged}{{device=~{devices}}}))"),
    );
    // The most, because a target that has just come has few.
    parts.push(format!(
        "label_replace(max(count_over_time({judged}{{device=~{devices}}}[{window}])), \
             \"{MEASURE}\", \"{SCRAPES}\", \"\", \"\")"
    ));
    parts.join("\nor ")
}

fn counters(
    direction: Direction,
    sent: &'static str,
    received: &'static str,
) -> Vec<(&'static str, Measure, Measure)> {
    let transmit = (sent, Measure::TransmitPercent, Measure::TransmitBytes);
    let receive = (received, Measure::ReceivePercent, Measure::ReceiveBytes);
    match direction {
        Direction::Transmit => vec![transmit],
        Direction::Receive => vec![receive],
        Direction::Busiest => vec![transmit, receive],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_and_names_agree() {
        for (i, measure) in Measure::ALL.into_iter().enumerate() {
            assert_eq!(measure.index(), i);
            assert_eq!(Measure::from_name(measure.name()), Some(measure));
        }
        assert_eq!(Measure::from_name("other"), None);
    }

    #[test]
    fn a_regex_cannot_leave_its_literal() {
        let question = Question::BuiltIn {
            devices: r#"eth0"} or vector(1) #"#.into(),
            direction: Direction::Transmit,
            window: Duration::from_mins(2),
        };
        let text = question.promql(&["node".into()]);
        assert!(!text.contains(r#"eth0"}"#), "{text}");
        assert!(text.contains(r#"device=~"eth0\"} or vector(1) #""#), "{text}");
    }

    #[test]
    fn the_busiest_direction_is_never_a_sum_of_both() {
        let question = |direction| Question::BuiltIn {
            devices: "eth0".into(),
            direction,
            window: Duration::from_secs(20),
        };
        let text = question(Direction::Busiest).promql(&[]);
        for name in ["transmit_percent", "receive_percent", "transmit_bytes", "receive_bytes"] {
            assert_eq!(text.matches(&format!("\"{name}\"")).count(), 1, "{text}");
        }
        assert!(!text.contains('+'), "{text}");
        let receive = question(Direction::Receive).promql(&[]);
        assert!(!receive.contains("transmit_percent"), "{receive}");
    }
}
