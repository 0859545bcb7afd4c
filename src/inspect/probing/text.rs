//! A `NetworkProber` explained, as a person reads it.
use std::fmt::Write;

use super::{Explanation, pods};
use crate::{
    inspect::{explain::Source, lines},
    network_prober::measurement::{Measurement, PathFigures},
    text::{figures::number, style::Tone, table::table},
};

/// Maximum number of nodes that are listed with their agents.
const NODES: usize = 10;

/// Returns the explanation as text, with a line break at its end.
#[must_use]
pub fn text(made: &Explanation) -> String {
    let agents = format!("{} of {} selected pods have an agent", made.injected, made.selected);
    let agents = Tone::of_part(made.injected, made.selected).paint(&agents);
    let mut text = format!("{} ({}): {agents}\n", made.prober, made.how);
    for condition in &made.conditions {
        lines::condition(&mut text, condition);
    }
    let mut line = |name: &str, value: &str| lines::line(&mut text, name, value);
    if let Some((count, why)) = &made.failing {
        let cannot = Tone::Bad.paint(&format!("{count} agents cannot start"));
        line("failing", &format!("{cannot}: {why}"));
    }
    for one in &made.not_injected {
        line("without", &format!("{} {}: {}", one.count, one.reason, one.meaning));
    }
    if made.need_restart > 0 {
        line("restart", &format!("{} with an agent of an earlier spec", pods(made.need_restart)));
    }
    if !made.agents.is_empty() {
        let listed = made.agents.iter().take(NODES);
        let mut nodes: Vec<_> = listed.map(|n| format!("{} {}", n.node, n.agents)).collect();
        if made.agents.len() > NODES {
            nodes.push(format!("{} more nodes", made.agents.len() - NODES));
        }
        line("agents", &nodes.join(", "));
    }
    if let Some(figures) = made.measured.as_ref().and_then(|measured| measured.figures.as_ref()) {
        line("scraped", &format!("{} agents, by Prometheus", figures.scraped));
        text.push_str(&in_tables(figures));
    }
    lines::advise(&mut text, &made.next);
    text.push_str(&source(&made.source));
    text
}

/// Describes the source of the answer.
pub(in crate::inspect) fn source(source: &Source) -> String {
    match source {
        Source::Leader { identity, version } => {
            format!("\nFrom the operator, {identity} (version {version}), just now\n")
        }
        Source::Status { because } => {
            format!("\nFrom what the API server has; the operator was not asked: {because}\n")
        }
    }
}

fn in_tables(figures: &Measurement) -> String {
    let mut text = String::new();
    let bad = figures.nodes.iter().filter(|node| node.bad);
    let rows: Vec<_> = bad
        .map(|node| [Tone::Bad.paint(&node.node), zone(&node.zone), loss(node.loss), p99(node.p99)])
        .collect();
    if !rows.is_empty() {
        text.push_str("\nNodes to blame: most of their paths are bad\n");
        text.push_str(&table(["NODE", "ZONE", "LOSS", "P99"], &rows));
    }
    if !figures.worst.is_empty() {
        text.push_str("\nWorst paths, over five minutes\n");
        text.push_str(&paths(figures.worst.iter()));
    }
    if !figures.silent.is_empty() {
        let _ = writeln!(text, "\nSilent agents: {} probe no peer", figures.silent_agents);
        let silent = figures.silent.iter();
        let rows: Vec<_> = silent
            .map(|agent| [format!("{}/{}", agent.namespace, agent.pod), agent.peers.to_string()])
            .collect();
        text.push_str(&table(["POD", "PEERS"], &rows));
    }
    text
}

/// Returns paths in a table, with the end that causes the loss.
pub(super) fn paths<'a>(paths: impl Iterator<Item = &'a PathFigures>) -> String {
    let rows: Vec<_> = paths
        .map(|path| {
            let blame = if path.bad { Tone::Bad.paint(&path.to_blame()) } else { "-".into() };
            [path.from.clone(), path.to.clone(), loss(path.loss), p99(path.p99), blame]
        })
        .collect();
    table(["FROM", "TO", "LOSS", "P99", "TO BLAME"], &rows)
}

fn zone(zone: &str) -> String {
    if zone.is_empty() { "-".into() } else { zone.to_owned() }
}

/// Formats a loss in percent.
pub(super) fn loss(loss: Option<f64>) -> String {
    loss.map_or("-".into(), |loss| format!("{} %", number((loss * 1000.0).round() / 10.0)))
}

/// Formats a time in milliseconds.
pub(super) fn p99(p99: Option<f64>) -> String {
    p99.map_or("-".into(), |p99| format!("{} ms", number((p99 * 10_000.0).round() / 10.0)))
}
