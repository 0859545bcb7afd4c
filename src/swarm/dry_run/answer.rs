//! The result of a dry run, and its text for a person.
use std::{collections::BTreeSet, fmt::Write, sync::Arc};

use serde::Serialize;

use super::known_cluster::names;
use crate::{
    api::swarm::Stream,
    controller::Verdict,
    swarm::{
        handover::{Published, Refresh},
        inspection::{Page, PageUnassigned, PageWaiting, meaning},
    },
    text::{figures::number, table},
};

/// A stream that does not stay where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Move {
    pub stream: String,
    /// The current worker.
    pub from: Option<String>,
    /// The final worker.
    pub to: Option<String>,
    /// The reason as in `traffic_operator_swarm_moves_total`; `added` if no worker had the stream.
    pub reason: &'static str,
    /// The same as a sentence.
    pub why: String,
}

/// The changes of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerPlan {
    pub name: String,
    pub node: Option<String>,
    /// Current number of its streams.
    pub now: usize,
    /// Final number of its streams.
    pub then: usize,
    /// Number of streams that it gains.
    pub gains: usize,
    /// Number of streams that it loses.
    pub loses: usize,
    /// What is done to its pod at once: `evicted`, `reloaded` or `none`.
    pub refresh: &'static str,
}

/// A stream without a worker in the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unplaced {
    pub id: String,
    /// As the status has it.
    pub reason: String,
    /// The same as a sentence.
    pub meaning: &'static str,
}

impl From<PageUnassigned> for Unplaced {
    fn from(PageUnassigned { id, reason }: PageUnassigned) -> Self {
        Self { meaning: meaning(&reason), id, reason }
    }
}

/// A condition of the status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    #[serde(rename = "type")]
    pub type_: &'static str,
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

impl From<&Verdict> for Condition {
    fn from(verdict: &Verdict) -> Self {
        let Verdict { type_, reason, message, .. } = verdict;
        Self { type_, status: verdict.status(), reason, message: message.clone() }
    }
}

/// Figures of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// The version of the file; the last one cannot be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Streams in a worker's list.
    pub owned: usize,
    /// Streams that a worker has still to stop.
    pub releasing: usize,
    /// Streams without a worker that have a worker to go to.
    pub free: usize,
    /// Streams that no worker can take.
    pub unassigned: usize,
    /// Workers that should have streams.
    pub workers: usize,
    /// Weight of the heaviest worker, as a multiple of the mean.
    pub load_ratio: f64,
}

impl Figures {
    pub(super) fn then(page: &Page) -> Self {
        let streams = page.streams;
        Self {
            epoch: None,
            owned: streams.owned,
            releasing: streams.releasing,
            free: streams.free,
            unassigned: streams.unassigned,
            workers: page.workers.len(),
            load_ratio: page.load_ratio,
        }
    }

    /// Before the first pass, which this page describes, writes anything.
    pub(super) fn now(published: &Published, page: &Page) -> Self {
        let owned: BTreeSet<_> = published.owners().map(|(stream, _)| stream).collect();
        let releasing: BTreeSet<_> = published.releasing.keys().map(|(stream, _)| stream).collect();
        Self {
            epoch: Some(published.epoch),
            owned: owned.len(),
            releasing: releasing.len(),
            ..Self::then(page)
        }
    }
}

/// What the operator does before any worker has read a new file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AtOnce {
    /// The version of the file that it writes.
    pub writes: Option<u64>,
    /// The events about it, as `Revoked: version 8: …`.
    pub events: Vec<String>,
    /// The workers that must acknowledge the file, or a part of it, before more streams move.
    pub waiting: Vec<PageWaiting>,
    #[serde(skip)]
    pub refresh: Vec<Refresh>,
}

/// What happens to a `Swarm` at once, and its final assignment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    pub namespace: String,
    pub name: String,
    /// Its workload, as `StatefulSet web`.
    pub workload: String,
    /// True if it is there already.
    pub exists: bool,
    /// The number of streams that are in the spec.
    pub streams: usize,
    /// Number of them that stay where they are.
    pub stay: usize,
    /// The others, in the order of the spec, followed by those that are no longer in it.
    pub moves: Vec<Move>,
    pub workers: Vec<WorkerPlan>,
    pub unassigned: Vec<Unplaced>,
    /// Conditions that the operator sets at once.
    pub conditions: Vec<Condition>,
    pub at_once: AtOnce,
    /// Number of workers after autoscaling.
    pub scaled: Option<u32>,
    /// The assumptions, because these facts cannot be known beforehand or from here.
    pub supposed: Vec<String>,
    pub before: Figures,
    pub after: Figures,
    /// The reason why not every stream has a worker in the end, or why nothing is done at all.
    pub refused: Option<String>,
    /// The streams of the spec, wherever they are listed.
    #[serde(skip)]
    pub spec: Vec<Stream>,
    /// The page of the first pass, for the commands that explain.
    #[serde(skip)]
    pub page: Option<Page>,
    /// The file as it is.
    #[serde(skip)]
    pub published: Arc<Published>,
}

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
