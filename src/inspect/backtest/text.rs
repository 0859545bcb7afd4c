//! A backtest as a person reads it.
use std::fmt::Write;

use super::{Backtest, Change, NodeRun, Summary};
use crate::text::{
    figures::{span, value},
    table::table,
};

/// The number of transitions and nodes that are printed; the JSON has them all.
const LISTED: usize = 50;

/// Prints the judged history, node by node, and with other thresholds.
#[must_use]
pub fn text(backtest: &Backtest) -> String {
    let Backtest { watch, from, to, run, .. } = backtest;
    let evaluations = &run.evaluations;
    let mut text = format!("{watch} from {from:.0} to {to:.0}\n");
    for warning in &backtest.warnings {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  warning: {warning}");
    }
    let _ = writeln!(
        text,
        "{} judgments, one every {}: {} ok, {} with low coverage, {} failed",
        evaluations.ok + evaluations.low_coverage + evaluations.failed,
        seconds(backtest.step_seconds),
        evaluations.ok,
        evaluations.low_coverage,
        evaluations.failed
    );
    for measure in &backtest.measures {
        let shown = |x| value(x, &measure.unit);
        let _ = writeln!(
            text,
            "{}: unfit above {}, fit again at or below {}",
            measure.name,
            shown(measure.max),
            shown(measure.recover)
        );
    }
    let unit = unit(backtest);
    let _ = writeln!(text, "\nTransitions: {}", run.transitions.len());
    listed(&mut text, &run.transitions, |some| {
        let rows: Vec<_> = some.iter().map(|change| transition(change, unit)).collect();
        table(["TIME", "NODE", "FROM", "TO", "REASON", "VALUE"], &rows)
    });
    let mut nodes: Vec<_> = run.nodes.iter().collect();
    nodes.sort_by(|a, b| b.unfit_seconds.total_cmp(&a.unfit_seconds));
    let _ = writeln!(text, "\nNodes: {}", nodes.len());
    listed(&mut text, &nodes, |some| {
        let rows: Vec<_> = some.iter().map(|node| row(node)).collect();
        table(["NODE", "UNFIT", "SUPPRESSED", "UNKNOWN", "TIMES UNFIT", "FLAPS"], &rows)
    });
    let _ = writeln!(
        text,
        "\nThe limit held nodes back in {} judgments, for {} of node time.",
        run.breaker.judgments,
        seconds(run.breaker.node_seconds)
    );
    if let Some(offers) = &run.offers {
        let _ = write!(text, "\n{}", offers.text());
    }
    text.push_str("\nOther thresholds:\n");
    let rows: Vec<_> = backtest.thresholds.iter().map(|s| summary(s, unit)).collect();
    let head = ["THRESHOLD", "NODES UNFIT", "TIME UNFIT", "TRANSITIONS", "FLAPS", "HELD BACK", ""];
    text.push_str(&table(head, &rows));
    text
}

/// The unit of the first measure.
pub(super) fn unit(backtest: &Backtest) -> &str {
    backtest.measures.first().map(|measure| measure.unit.as_str()).unwrap_or_default()
}

fn listed<T>(text: &mut String, all: &[T], table: impl Fn(&[T]) -> String) {
    if all.is_empty() {
        return;
    }
    let some = &all[..all.len().min(LISTED)];
    text.push_str(&table(some));
    if all.len() > LISTED {
        let _ = writeln!(text, "{} more: -o json lists them", all.len() - LISTED);
    }
}

fn transition(change: &Change, unit: &str) -> [String; 6] {
    let it = &change.transition;
    [
        format!("{:.0}", it.at),
        it.node.clone(),
        it.from.as_str().into(),
        it.to.as_str().into(),
        it.reason.clone(),
        change.value.map_or("-".into(), |x| value(x, unit)),
    ]
}

fn row(node: &NodeRun) -> [String; 6] {
    [
        node.name.clone(),
        seconds(node.unfit_seconds),
        seconds(node.suppressed_seconds),
        seconds(node.unknown_seconds),
        node.times_unfit.to_string(),
        node.flaps.to_string(),
    ]
}

fn summary(s: &Summary, unit: &str) -> [String; 7] {
    [
        value(s.threshold, unit),
        s.nodes_unfit.to_string(),
        seconds(s.unfit_seconds),
        s.transitions.to_string(),
        s.flaps.to_string(),
        seconds(s.breaker.node_seconds),
        if s.configured { "as configured" } else { "" }.into(),
    ]
}

/// Formats a time that is a sum of steps.
pub(super) fn seconds(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a history has far fewer seconds; `as` saturates"
    )]
    let whole = seconds.round() as i64;
    if seconds > 0.0 && whole == 0 { format!("{seconds}s") } else { span(whole) }
}
