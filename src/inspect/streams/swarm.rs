//! `explain swarm`: the workers of one object with their lists, and the streams on their way.
use serde::Serialize;

use super::{Facts, explain::remedy, reasons};
use crate::{
    inspect::{
        cluster::name_of,
        explain::Source,
        lines::{self, or_dash},
        probing::{Advice, source},
        remedies,
        status::conditions::{sentence, unsettled},
    },
    swarm::{
        dry_run::{Move, Unplaced},
        inspection::{PageCounts, PageWaiting, PageWorker},
    },
    text::{Tone, figures::number, table},
};

/// Maximum number of listed workers, moves and streams; the JSON has them all.
const LISTED: usize = 20;

/// One `Swarm`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SwarmExplanation {
    /// `namespace/name`.
    pub swarm: String,
    /// Its workload, as `StatefulSet web`.
    pub workload: String,
    /// True if `spec.paused` keeps it from moving streams.
    pub paused: bool,
    /// The version of the file.
    pub epoch: u64,
    /// The number of streams in the spec.
    pub streams: usize,
    /// Streams by state.
    pub counts: PageCounts,
    /// Its workers.
    pub workers: Vec<PageWorker>,
    /// Workers that other workers or streams wait for.
    pub waiting: Vec<PageWaiting>,
    /// The streams that will move.
    pub moves: Vec<Move>,
    /// The streams that no worker can take.
    pub unassigned: Vec<Unplaced>,
    /// Conditions that indicate a problem.
    pub conditions: Vec<String>,
    /// The advice.
    pub next: Vec<Advice>,
    /// The source of the answer.
    pub source: Source,
}

/// Explains one `Swarm`.
#[must_use]
pub fn explain_swarm(facts: &Facts) -> SwarmExplanation {
    let run = &facts.run;
    let page = facts.page().cloned().unwrap_or_default();
    let status = facts.swarm.status.clone().unwrap_or_default();
    let conditions = unsettled(&status.conditions);
    let mut next: Vec<_> =
        page.waiting.iter().filter_map(|one| reasons::advice(&facts.swarm, one)).collect();
    let mut seen: Vec<&str> = Vec::new();
    for one in &run.unassigned {
        if !seen.contains(&one.reason.as_str()) {
            seen.push(&one.reason);
            let what = format!("stream {:?}: {}: {}", one.id, one.reason, one.meaning);
            next.push(Advice::of(what, remedy(&one.reason)));
        }
    }
    next.extend(conditions.iter().copied().filter_map(remedies::of));
    SwarmExplanation {
        swarm: name_of(&facts.swarm),
        workload: run.workload.clone(),
        paused: facts.swarm.spec.paused,
        epoch: run.published.epoch,
        streams: run.streams,
        counts: page.streams,
        workers: page.workers,
        waiting: page.waiting,
        moves: run.moves.clone(),
        unassigned: run.unassigned.clone(),
        conditions: conditions.into_iter().map(sentence).collect(),
        next,
        source: facts.source(),
    }
}

/// Returns the explanation as text, with a line break at its end.
#[must_use]
pub fn text(made: &SwarmExplanation) -> String {
    let paused = if made.paused { ", paused" } else { "" };
    let PageCounts { owned, releasing, free, unassigned } = made.counts;
    let mut text = format!(
        "{} ({}{paused}): {} streams: {owned} owned, {releasing} releasing, {free} free, \
         {unassigned} unassigned\n",
        made.swarm, made.workload, made.streams
    );
    lines::line(&mut text, "file", &format!("version {}", made.epoch));
    for condition in &made.conditions {
        lines::condition(&mut text, condition);
    }
    text.push_str(&workers(&made.workers));
    text.push_str(&moves(&made.moves));
    lines::advise(&mut text, &made.next);
    text.push_str(&source(&made.source));
    text
}

fn workers(workers: &[PageWorker]) -> String {
    if workers.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = workers
        .iter()
        .take(LISTED)
        .map(|worker| {
            [
                worker.name.clone(),
                or_dash(worker.node.clone()),
                if worker.ready { Tone::Good.paint("True") } else { Tone::Bad.paint("False") },
                worker.jobs.len().to_string(),
                number(worker.weight),
                worker.wanted.to_string(),
                or_dash(worker.loaded.map(|loaded| loaded.to_string())),
            ]
        })
        .collect();
    let head = ["WORKER", "NODE", "READY", "STREAMS", "WEIGHT", "WANTED", "LOADED"];
    format!("\n{}{}", table(head, &rows), more(workers.len()))
}

fn moves(moves: &[Move]) -> String {
    if moves.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = moves
        .iter()
        .take(LISTED)
        .map(|one| {
            [
                one.stream.clone(),
                or_dash(one.from.clone()),
                or_dash(one.to.clone()),
                one.reason.to_owned(),
                one.why.clone(),
            ]
        })
        .collect();
    let head = ["STREAM", "FROM", "TO", "REASON", "WHY"];
    format!("\n{}{}", table(head, &rows), more(moves.len()))
}

fn more(all: usize) -> String {
    match all.saturating_sub(LISTED) {
        0 => String::new(),
        more => format!("{more} more: -o json lists them\n"),
    }
}
