//! An evaluation as a person reads it.
use std::fmt::Write;

use super::{Evaluation, is_above};
use crate::{
    api::traffic_watch::{Consecutive, NodeState},
    inspect::remedies,
    text::{
        figures::value,
        style::{Tone, printable},
        table::table,
    },
    traffic_watch::overview::{MeasureView, NodeView},
};

/// Returns one row per node and measure, then the conditions.
#[must_use]
pub fn text(evaluation: &Evaluation) -> String {
    let mut text = format!("{}\n", evaluation.watch);
    for warning in &evaluation.warnings {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  warning: {}", printable(warning));
    }
    let mut rows = Vec::new();
    for node in &evaluation.nodes {
        for (i, measure) in evaluation.measures.iter().enumerate() {
            rows.push(row(node, measure, evaluation.consecutive, i == 0));
        }
    }
    let head = ["NODE", "STATE", "MEASURE", "VALUE", "THRESHOLD", "DEVICE", "REMARK"];
    text.push_str(&table(head, &rows));
    let (limit, room) = (evaluation.limit, evaluation.room);
    let _ = writeln!(text, "{limit} of {room} nodes that can take pods may be unfit");
    if let Some(offers) = &evaluation.offers {
        text.push_str(&offers.text());
    }
    for condition in &evaluation.conditions {
        let _ = writeln!(
            text,
            "{}={} {}{}",
            condition.type_,
            condition.status,
            condition.reason,
            if condition.message.is_empty() {
                String::new()
            } else {
                format!(": {}", printable(&condition.message))
            }
        );
    }
    text
}

fn row(
    node: &NodeView,
    measure: &MeasureView,
    consecutive: Consecutive,
    first: bool,
) -> [String; 7] {
    let its = node.values.iter().find(|v| v.measure == measure.name);
    let number = its.and_then(|v| v.value);
    let shown = |x: f64| value(x, &measure.unit);
    let dash = || "-".to_owned();
    [
        if first { node.name.clone() } else { String::new() },
        if first { Tone::of(node.state).paint(node.state.as_str()) } else { String::new() },
        measure.name.clone(),
        number.map_or_else(dash, shown),
        shown(measure.max),
        its.and_then(|v| v.device.clone()).unwrap_or_else(dash),
        remark(node, measure, consecutive),
    ]
}

fn remark(node: &NodeView, measure: &MeasureView, consecutive: Consecutive) -> String {
    let its = node.values.iter().find(|v| v.measure == measure.name);
    let unknown = node.reason.as_deref().filter(|_| node.state == NodeState::Unknown);
    if let Some(reason) = its.and_then(|v| v.reason.as_deref()).or(unknown) {
        return format!("{reason}: {}", remedies::meaning(reason));
    }
    let number = its.and_then(|v| v.value).unwrap_or_default();
    if is_above(measure, node) {
        let remark = "above the threshold";
        match consecutive.unfit {
            _ if node.state == NodeState::Suppressed => {
                format!("{remark}; too many nodes are unfit")
            }
            1 => remark.to_owned(),
            needed => format!("{remark}; marked after {needed} such judgments in a row"),
        }
    } else if number > measure.recover {
        format!(
            "between recovery ({}) and threshold: stays as it is",
            value(measure.recover, &measure.unit)
        )
    } else {
        format!("at or below recovery ({})", value(measure.recover, &measure.unit))
    }
}
