//! The result of a dry run.
use std::{collections::BTreeSet, sync::Arc};

use serde::Serialize;

use crate::{
    api::swarm::Stream,
    controller::Verdict,
    swarm::{handover::Published, inspection::Page},
};

/// A stream that does not stay where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Move {
    /// Its id.
    pub stream: String,
    /// The current worker.
    pub from: Option<String>,
    /// The final worker.
    pub to: Option<String>,
    /// The reason as in `traffic_operator_swarm_moves_total`; `added` if no worker had the stream.
    pub reason: &'static str,
    /// The same in words.
    pub why: String,
}

/// The changes of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerPlan {
    /// Name of the worker.
    pub name: String,
    /// The node of its pod.
    pub node: Option<String>,
    /// Current number of its streams.
    pub now: usize,
    /// Final number of its streams.
    pub then: usize,
    /// Number of streams that it gains.
    pub gains: usize,
    /// Number of streams that it loses.
    pub loses: usize,
    /// The action on its pod: `evicted`, `reloaded` or `none`.
    pub refresh: &'static str,
    /// Number of times.
    pub times: usize,
}

/// A stream without a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unplaced {
    /// Id of the stream.
    pub id: String,
    /// As the status has it.
    pub reason: String,
    /// In words.
    pub meaning: &'static str,
}

/// A condition of the status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// `PascalCase`.
    pub reason: &'static str,
    /// In words.
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
    /// The version of the file.
    pub epoch: u64,
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

/// The whole way.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    /// Namespace of the `Swarm`.
    pub namespace: String,
    /// Name of the `Swarm`.
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
    /// The changes of all workers.
    pub workers: Vec<WorkerPlan>,
    /// Streams without a worker in the end.
    pub unassigned: Vec<Unplaced>,
    /// Conditions that the operator sets at once.
    pub conditions: Vec<Condition>,
    /// The obstacles on the way: conditions that are not true, other than those of any move.
    pub hindrances: Vec<Condition>,
    /// Conditions in the end.
    pub outcome: Vec<Condition>,
    /// Files to be written.
    pub files: u64,
    /// Number of workers after autoscaling.
    pub scaled: Option<u32>,
    /// The assumptions, because these facts cannot be known beforehand or from here.
    pub supposed: Vec<String>,
    /// Now.
    pub before: Figures,
    /// In the end.
    pub after: Figures,
    /// The reason why not every stream has a worker in the end, or why nothing is done at all.
    pub refused: Option<String>,
    /// The streams of the spec, wherever they are listed.
    #[serde(skip)]
    pub spec: Vec<Stream>,
    /// The page of the first pass, for the commands that explain.
    #[serde(skip)]
    pub first: Option<Page>,
    /// The file as it is.
    #[serde(skip)]
    pub published: Arc<Published>,
}

impl Figures {
    pub(super) fn of(page: &Page) -> Self {
        let streams = page.streams;
        Self {
            epoch: page.epoch,
            owned: streams.owned,
            releasing: streams.releasing,
            free: streams.free,
            unassigned: streams.unassigned,
            workers: page.workers.len(),
            load_ratio: page.load_ratio,
        }
    }

    /// The content of the file before anything is written.
    pub(super) fn now(published: &Published, first: Option<&Page>) -> Self {
        let owned: BTreeSet<_> = published.owners().map(|(stream, _)| stream).collect();
        let releasing: BTreeSet<_> = published.releasing.keys().map(|(stream, _)| stream).collect();
        Self {
            epoch: published.epoch,
            owned: owned.len(),
            releasing: releasing.len(),
            free: first.map_or(0, |page| page.streams.free),
            unassigned: first.map_or(0, |page| page.streams.unassigned),
            workers: first.map_or(0, |page| page.workers.len()),
            load_ratio: first.map_or(1.0, |page| page.load_ratio),
        }
    }
}
