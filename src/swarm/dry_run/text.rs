//! A dry run as a person reads it.
use std::fmt::Write;

use super::{Condition, DryRun, supposed::names};
use crate::text::{figures::number, table};

/// Maximum number of streams and workers in the text; the JSON has all of them.
const LISTED: usize = 50;

/// The dry run as text, with a line break at its end.
#[must_use]
pub fn text(run: &DryRun) -> String {
    let there = if run.exists { "" } else { " (new)" };
    let mut text = format!(
        "Swarm {}/{}{there}: {} streams, {}\n",
        run.namespace, run.name, run.streams, run.workload
    );
    if run.page.is_some() {
        assignment(&mut text, run);
    }
    at_once(&mut text, run);
    // Writing to a String cannot fail.
    if let Some(refused) = &run.refused {
        let _ = writeln!(text, "\nand no further: {refused}");
    }
    if !run.supposed.is_empty() {
        text.push_str("\nThis supposes\n");
        for one in &run.supposed {
            let _ = writeln!(text, "  {one}");
        }
    }
    text
}

fn listed<T, const N: usize>(
    text: &mut String,
    head: [&'static str; N],
    all: &[T],
    row: impl Fn(&T) -> [String; N],
) {
    if !all.is_empty() {
        let rows: Vec<_> = all.iter().take(LISTED).map(row).collect();
        text.push_str(&table(head, &rows));
    }
    if all.len() > LISTED {
        let _ = writeln!(text, "… and {} more: -o json", all.len() - LISTED);
    }
}

fn assignment(text: &mut String, run: &DryRun) {
    let _ = match run.moves.len() {
        0 => writeln!(text, "\nNo stream moves; {} stay where they are", run.stay),
        moves => writeln!(text, "\n{moves} streams move, {} stay where they are", run.stay),
    };
    let worker = |worker: &Option<String>| worker.clone().unwrap_or_else(|| "-".into());
    listed(text, ["STREAM", "FROM", "TO", "REASON", "WHY"], &run.moves, |one| {
        let (from, to) = (worker(&one.from), worker(&one.to));
        [one.stream.clone(), from, to, one.reason.to_owned(), one.why.clone()]
    });
    text.push('\n');
    let head = ["WORKER", "NODE", "NOW", "THEN", "CHANGE", "REFRESH"];
    listed(text, head, &run.workers, |one| {
        let (now, then) = (one.now.to_string(), one.then.to_string());
        let change = format!("+{} -{}", one.gains, one.loses);
        [one.name.clone(), worker(&one.node), now, then, change, one.refresh.to_owned()]
    });
    if !run.unassigned.is_empty() {
        text.push_str("\nStreams without a worker in the end\n");
        listed(text, ["STREAM", "REASON", "WHY"], &run.unassigned, |one| {
            [one.id.clone(), one.reason.clone(), one.meaning.to_owned()]
        });
    }
    let (now, then) = (&run.before, &run.after);
    let ratio = |ratio: f64| number((ratio * 100.0).round() / 100.0);
    let _ = writeln!(text, "\n                                           now        then");
    for (what, now, then) in [
        ("streams in a worker's list", now.owned.to_string(), then.owned.to_string()),
        (
            "streams that no worker can take",
            now.unassigned.to_string(),
            then.unassigned.to_string(),
        ),
        ("workers", now.workers.to_string(), then.workers.to_string()),
        ("heaviest worker, times the mean", ratio(now.load_ratio), ratio(then.load_ratio)),
    ] {
        let _ = writeln!(text, "{what:<34}  {now:>10}  {then:>10}");
    }
    if let Some(replicas) = run.scaled {
        let _ = writeln!(text, "{} scaled to {replicas}", run.workload);
    }
}

fn at_once(text: &mut String, run: &DryRun) {
    text.push_str("\nAt once\n");
    for Condition { type_, status, reason, message } in &run.conditions {
        let _ = writeln!(text, "  {type_}={status} {reason}: {message}");
    }
    if let Some(version) = run.at_once.writes {
        let _ = writeln!(text, "  version {version} of the file is written");
    }
    for event in &run.at_once.events {
        let _ = writeln!(text, "  {event}");
    }
    for how in ["evicted", "reloaded"] {
        let pods = run.workers.iter().filter(|one| one.refresh == how);
        let pods: Vec<_> = pods.map(|one| one.name.as_str()).collect();
        if !pods.is_empty() {
            let _ = writeln!(text, "  {how}: {}", names(&pods));
        }
    }
    for one in run.at_once.waiting.iter().take(LISTED) {
        let _ = writeln!(text, "  waits for {}: {}", one.worker, one.text);
    }
}
