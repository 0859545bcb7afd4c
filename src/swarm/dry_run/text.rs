//! A dry run as a person reads it.
use std::fmt::Write;

use super::{Condition, DryRun, Figures};
use crate::text::{figures::number, table::table};

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
    conditions(&mut text, "at once", &run.conditions);
    moves(&mut text, run);
    workers(&mut text, run);
    if !run.unassigned.is_empty() {
        text.push_str("\nStreams without a worker in the end\n");
        let listed = run.unassigned.iter().take(LISTED);
        let rows: Vec<_> = listed
            .map(|one| [one.id.clone(), one.reason.clone(), one.meaning.to_owned()])
            .collect();
        text.push_str(&table(["STREAM", "REASON", "WHY"], &rows));
        more(&mut text, run.unassigned.len());
    }
    summary(&mut text, run);
    conditions(&mut text, "on the way", &run.hindrances);
    conditions(&mut text, "in the end", &run.outcome);
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

// Writing to a String cannot fail.
fn more(text: &mut String, all: usize) {
    if all > LISTED {
        let _ = writeln!(text, "… and {} more: -o json", all - LISTED);
    }
}

fn conditions(text: &mut String, when: &str, all: &[Condition]) {
    for Condition { type_, status, reason, message } in all {
        let _ = writeln!(text, "  {when:<11}  {type_}={status} {reason}: {message}");
    }
}

fn moves(text: &mut String, run: &DryRun) {
    if run.moves.is_empty() {
        let _ = writeln!(text, "\nNo stream moves; {} stay where they are", run.stay);
        return;
    }
    let _ = writeln!(text, "\n{} streams move, {} stay where they are", run.moves.len(), run.stay);
    let worker = |worker: &Option<String>| worker.clone().unwrap_or_else(|| "-".into());
    let rows: Vec<_> = run
        .moves
        .iter()
        .take(LISTED)
        .map(|one| {
            let (from, to) = (worker(&one.from), worker(&one.to));
            [one.stream.clone(), from, to, one.reason.to_owned(), one.why.clone()]
        })
        .collect();
    text.push_str(&table(["STREAM", "FROM", "TO", "REASON", "WHY"], &rows));
    more(text, run.moves.len());
}

fn workers(text: &mut String, run: &DryRun) {
    if run.workers.is_empty() {
        return;
    }
    let listed = run.workers.iter().take(LISTED);
    let rows: Vec<_> = listed
        .map(|one| {
            let refresh = match one.times {
                0 | 1 => one.refresh.to_owned(),
                times => format!("{} {times} times", one.refresh),
            };
            [
                one.name.clone(),
                one.node.clone().unwrap_or_else(|| "-".into()),
                one.now.to_string(),
                one.then.to_string(),
                format!("+{} -{}", one.gains, one.loses),
                refresh,
            ]
        })
        .collect();
    text.push('\n');
    text.push_str(&table(["WORKER", "NODE", "NOW", "THEN", "CHANGE", "REFRESH"], &rows));
    more(text, run.workers.len());
}

fn summary(text: &mut String, run: &DryRun) {
    let (now, then): (&Figures, &Figures) = (&run.before, &run.after);
    let _ = writeln!(text, "\n                                           now        then");
    for (what, now, then) in [
        ("version of the file", now.epoch, then.epoch),
        ("streams in a worker's list", now.owned as u64, then.owned as u64),
        ("streams that a worker has to stop", now.releasing as u64, then.releasing as u64),
        ("streams that move to a worker", now.free as u64, then.free as u64),
        ("streams that no worker can take", now.unassigned as u64, then.unassigned as u64),
        ("workers", now.workers as u64, then.workers as u64),
    ] {
        let _ = writeln!(text, "{what:<34}  {now:>10}  {then:>10}");
    }
    let ratio = |ratio: f64| number((ratio * 100.0).round() / 100.0);
    let (now, then) = (ratio(now.load_ratio), ratio(then.load_ratio));
    let _ = writeln!(text, "{:<34}  {now:>10}  {then:>10}", "heaviest worker, times the mean");
    let times = |how: &str| -> usize {
        run.workers.iter().filter(|one| one.refresh == how).map(|one| one.times).sum()
    };
    let _ = writeln!(
        text,
        "{} files written, {} pods evicted, {} reloaded",
        run.files,
        times("evicted"),
        times("reloaded")
    );
    if let Some(replicas) = run.scaled {
        let _ = writeln!(text, "{} scaled to {replicas}", run.workload);
    }
}
