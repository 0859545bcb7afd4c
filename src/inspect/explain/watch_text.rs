//! A `TrafficWatch` explained, as a person reads it.
use std::fmt::Write;

use super::{
    text::source,
    watch::{JudgedNode, NodeValue, WatchExplanation},
};
use crate::{
    api::traffic_watch::NodeState,
    inspect::lines,
    text::{
        figures::{number, span, value},
        style::Tone,
        table::table,
    },
    traffic_watch::overview::MeasureView,
};

/// Maximum number of listed nodes; the JSON has them all.
const LISTED: usize = 20;

/// Returns the explanation as text, with a line break at its end.
#[must_use]
pub fn text(made: &WatchExplanation) -> String {
    let summary = made.summary;
    let paused = if made.paused { ", paused" } else { "" };
    let mut text = format!(
        "{} (mode {:?}{paused}): {} nodes: {} fit, {} unfit, {} unknown, {} suppressed\n",
        made.watch,
        made.mode,
        summary.nodes,
        summary.fit,
        summary.unfit,
        summary.unknown,
        summary.suppressed
    );
    let mut line = |name: &str, value: &str| lines::line(&mut text, name, value);
    for measure in &made.measures {
        let MeasureView { name, unit, max, recover, problem, .. } = measure;
        let (max, recover) = (value(*max, unit), value(*recover, unit));
        let problem = problem.as_ref().map(|problem| format!("; {problem}")).unwrap_or_default();
        line(name, &format!("unfit above {max}, fit again at or below {recover}{problem}"));
    }
    line("label", &made.label);
    let limit = made.limit.map_or("a limited number".to_owned(), |limit| limit.to_string());
    line("limit", &format!("{limit} of {} nodes that can take pods may be unfit", made.room));
    for condition in &made.conditions {
        lines::condition(&mut text, condition);
    }
    for measure in made.measures.iter().filter(|measure| !measure.query.is_empty()) {
        let query = measure.query.split_whitespace().collect::<Vec<_>>().join(" ");
        let query = format!("{} (asked of {}): {query}", measure.name, measure.endpoint);
        lines::line(&mut text, "query", &query);
    }
    text.push_str(&nodes(made));
    lines::advise(&mut text, &made.next);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\n{}", source(&made.source));
    text
}

/// Returns the nodes that are not fit, in a table.
fn nodes(made: &WatchExplanation) -> String {
    let unfit: Vec<_> = made.nodes.iter().filter(|node| node.state != NodeState::Fit).collect();
    if unfit.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = unfit.iter().take(LISTED).map(|node| row(node, &made.measures)).collect();
    let mut text = format!("\n{}", table(["NODE", "STATE", "FOR", "VALUE", "REASON"], &rows));
    if unfit.len() > LISTED {
        let _ = writeln!(text, "{} more: -o json lists them", unfit.len() - LISTED);
    }
    if made.truncated {
        text.push_str("There are more nodes than are known here\n");
    }
    text
}

fn row(node: &JudgedNode, measures: &[MeasureView]) -> [String; 5] {
    let dash = || "-".to_owned();
    let values: Vec<_> = node.values.iter().filter_map(|value| shown(value, measures)).collect();
    [
        node.node.clone(),
        Tone::of(node.state).paint(node.state.as_str()),
        node.seconds.map_or_else(dash, span),
        if values.is_empty() { dash() } else { values.join(", ") },
        node.reason.clone().unwrap_or_else(dash),
    ]
}

/// Formats one value with its unit, and with its measure if there are several.
fn shown(of: &NodeValue, measures: &[MeasureView]) -> Option<String> {
    let x = of.value?;
    let unit = measures.iter().find(|measure| measure.name == of.measure).map(|m| &*m.unit);
    let text = unit.map_or_else(|| number(x), |unit| value(x, unit));
    let device = of.device.as_ref().map(|device| format!(" on {device}")).unwrap_or_default();
    let name = if measures.len() > 1 { format!("{} ", of.measure) } else { String::new() };
    Some(format!("{name}{text}{device}"))
}
