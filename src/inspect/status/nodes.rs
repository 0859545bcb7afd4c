//! The judged nodes: each once, over all TrafficWatches, the worst first.
use std::{collections::BTreeMap, fmt::Write};

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::{
    api::traffic_watch::{NodeState, NodeStatus, TrafficWatchStatus},
    text::{
        Tone,
        figures::{number, span},
        table,
    },
};

/// Nodes in the text; the others are counted.
const SHOWN: usize = 20;

/// Seconds after which a measurement is old: the text has its age.
const OLD: i64 = 300;

/// A judged node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// The worst of its states.
    pub state: NodeState,
    /// What each TrafficWatch says, the worst first.
    pub judged: Vec<Judgment>,
}

/// What one TrafficWatch says of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Judgment {
    /// The state.
    pub state: NodeState,
    /// `namespace/name` of the TrafficWatch.
    pub trafficwatch: String,
    /// The reason for the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Percent of the link's capacity in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    /// The busiest link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// When it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Timestamp>,
    /// When the node entered the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Returns the nodes of a status, with their names.
pub(super) fn judged(trafficwatch: &str, status: &TrafficWatchStatus) -> Vec<(String, Judgment)> {
    let judged = |(name, node): (&String, &NodeStatus)| {
        let state =
            node.state.unwrap_or(if node.unfit { NodeState::Unfit } else { NodeState::Fit });
        let percent = node.current_bandwidth_percent.parse::<f64>().ok();
        let judgment = Judgment {
            state,
            trafficwatch: trafficwatch.to_owned(),
            reason: node.reason.clone(),
            percent: percent.filter(|percent| percent.is_finite()),
            device: node.device.clone(),
            measured: Timestamp::from_second(node.time).ok().filter(|_| node.time > 0),
            since: node.since.as_ref().map(|since| since.0),
        };
        (name.clone(), judgment)
    };
    status.nodes.iter().map(judged).collect()
}

/// Brings what all TrafficWatches say together.
pub(super) fn by_node(all: impl IntoIterator<Item = (String, Judgment)>) -> Vec<NodeReport> {
    let mut nodes = BTreeMap::<String, Vec<Judgment>>::new();
    for (name, judgment) in all {
        nodes.entry(name).or_default().push(judgment);
    }
    let mut nodes: Vec<_> = nodes
        .into_iter()
        .filter_map(|(name, mut judged)| {
            judged.sort_by(|a, b| (a.state, &a.trafficwatch).cmp(&(b.state, &b.trafficwatch)));
            Some(NodeReport { name, state: judged.first()?.state, judged })
        })
        .collect();
    let load = |node: &NodeReport| node.judged.first().and_then(|worst| worst.percent);
    nodes.sort_by(|a, b| {
        let worst = a.state.cmp(&b.state);
        worst.then_with(|| load(b).unwrap_or(-1.0).total_cmp(&load(a).unwrap_or(-1.0)))
    });
    nodes
}

/// Returns the worst of the nodes that are not fit as a table, each in one line, with a line break at
/// its end.
pub(super) fn text(nodes: &[NodeReport], now: Timestamp) -> String {
    let worst = |node: &NodeReport| {
        let mut row = row(node, node.judged.first()?, now);
        if let others @ 1.. = node.judged.len() - 1 {
            // Writing to a String cannot fail.
            let _ = write!(row[5], " and {others} more");
        }
        Some(row)
    };
    let rows: Vec<_> = nodes.iter().take(SHOWN).filter_map(worst).collect();
    let mut text = format!("Nodes that are not fit: {}\n{}", nodes.len(), table(HEAD, &rows));
    if let more @ 1.. = nodes.len().saturating_sub(SHOWN) {
        let _ = writeln!(text, "and {more} more: explain nodes");
    }
    text
}

/// Returns what each TrafficWatch says of these nodes as a table, with a line break at its end.
#[must_use]
pub fn all(nodes: &[NodeReport], now: Timestamp) -> String {
    let judged = nodes.iter().flat_map(|node| node.judged.iter().map(move |one| (node, one)));
    let rows: Vec<_> = judged.map(|(node, one)| row(node, one, now)).collect();
    table(HEAD, &rows)
}

const HEAD: [&str; 6] = ["NODE", "STATE", "REASON", "LOAD", "SINCE", "TRAFFICWATCH"];

fn row(node: &NodeReport, judgment: &Judgment, now: Timestamp) -> [String; 6] {
    let tone = match judgment.state {
        NodeState::Unfit => Tone::Bad,
        NodeState::Suppressed | NodeState::Unknown => Tone::Notable,
        NodeState::Fit => Tone::Good,
    };
    let since = judgment.since.map(|since| span(now.as_second() - since.as_second()));
    [
        node.name.clone(),
        tone.paint(judgment.state.as_str()),
        judgment.reason.clone().unwrap_or_else(|| "-".into()),
        load(judgment, now),
        since.unwrap_or_else(|| "-".into()),
        judgment.trafficwatch.clone(),
    ]
}

/// The load of the busiest link, with its age if it is old.
fn load(judgment: &Judgment, now: Timestamp) -> String {
    let Some(percent) = judgment.percent else { return "-".into() };
    let mut text = format!("{} %", number((percent * 10.0).round() / 10.0));
    if let Some(device) = &judgment.device {
        // Writing to a String cannot fail.
        let _ = write!(text, " of {device}");
    }
    let age = judgment.measured.map(|measured| now.as_second() - measured.as_second());
    if let Some(age) = age.filter(|age| *age > OLD) {
        let _ = write!(text, ", {} ago", span(age));
    }
    text
}
