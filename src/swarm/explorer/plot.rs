//! The kinds of worlds: their objects, wishes and faults.
use std::ops::RangeInclusive;

use serde_json::json;

use super::{facts::name, pod::Set};
use crate::{api::Swarm, placement::part};

/// The parts of a divided file: enough that the lists of two workers are in different ones.
const PARTS: usize = 4;

/// The most `ConfigMap`s of a world: a head and its parts.
pub(super) const MAPS: usize = 1 + PARTS;

/// The wish of the user: a number of workers, and this `Swarm`.
pub(super) struct Wish {
    pub replicas: usize,
    pub swarm: Swarm,
}

/// The parameters of a world.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent properties")]
pub(super) struct Plot {
    /// Number of places for pods.
    pub workers: usize,
    /// The workers belong to a Deployment: a new pod has a new name, and a pod that is being
    /// deleted is replaced at once.
    pub deployment: bool,
    pub wishes: Vec<Wish>,
    /// Maximum number of changes by the user, of faults, and of crashes of the operator.
    pub changes: u8,
    pub faults: u8,
    pub crashes: u8,
    /// Workers that answer nothing.
    pub silent: Set,
    /// Workers that prepare streams; and whether they never succeed.
    pub prepares: Set,
    pub in_vain: bool,
    /// Workers with pods that get a node late, or never.
    pub pending: Set,
    /// Workers that never get a pod, for example because of a quota.
    pub absent: Set,
    /// Workers read new files while they run.
    pub reloads: bool,
    /// The operator's watches may be late.
    pub cached: bool,
    /// Passes follow each other in no time: nothing is waited for long enough, as long as anything
    /// happens.
    pub hurried: bool,
    /// Nodes that are cut off stay so.
    pub lasting: bool,
    /// In the end streams may wait, with Ready=False and a text that names the blocking worker.
    pub may_wait: bool,
    /// The possible changes and faults.
    pub hazards: &'static [Hazard],
    /// A wrong rule, to show that the search finds its fault.
    pub old: Option<Old>,
}

/// A fault, or an action of people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hazard {
    /// A container crashes, and its kubelet starts it again.
    Restarts,
    /// A user deletes a pod.
    Deletions,
    /// A node is cut off.
    Cuts,
    /// A user adds a comment to the file, or to its head, or to a part.
    Edits,
    /// A user swaps the lists of two workers in the file.
    Swaps,
    /// A user lists a stream for a second worker, too.
    Gifts,
    /// A user restores the version before the newest, with all its contents.
    Backups,
    /// A user deletes it.
    Losses,
    /// The `Swarm` is deleted with its file, and is applied again.
    Reapplied,
    /// Another process becomes the leader while this one still executes its decision.
    Deposed,
}

/// Rules as they were, or as they must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Old {
    /// A pod that is being deleted has stopped once its containers have ended.
    Stopped,
    /// Under a barrier only workers that release something are read from the API server itself.
    Confirmed,
    /// A worker that answers nothing never passes a barrier.
    Heirs,
    /// A pod that is not ready has stopped.
    Unready,
    /// A pod that is being deleted has stopped.
    Deleted,
    /// What is releasing is not in the file.
    Forgotten,
    /// No pod is made to read a file.
    Unrefreshed,
    /// The head is written after the parts.
    HeadLast,
    /// A part that is older than the head states is trusted.
    NoFence,
    /// Workers start the streams that will come.
    Eager,
    /// What will come to a worker stays in the file when it has come.
    Announced,
}

/// Two workers and two streams; one worker.
pub(super) fn plot(refresh: &str) -> Plot {
    Plot {
        workers: 2,
        wishes: vec![wish(2, &["a", "b"], refresh), wish(1, &["a", "b"], refresh)],
        changes: 1,
        reloads: refresh == "HotReload",
        ..Plot::default()
    }
}

/// This number of workers for these streams.
pub(super) fn wish(replicas: usize, streams: &[&str], refresh: &str) -> Wish {
    let swarm = json!({
        "metadata": {"name": "s", "namespace": "n", "uid": "s"},
        "spec": {"workload": {"name": "w"}, "jobs": streams, "refresh": {"strategy": refresh}},
    });
    Wish { replicas, swarm: serde_json::from_value(swarm).expect("a Swarm") }
}

impl Plot {
    /// The same with another spec in every wish.
    pub(super) fn with(mut self, change: impl Fn(&mut Swarm)) -> Self {
        self.wishes.iter_mut().for_each(|wish| change(&mut wish.swarm));
        self
    }

    /// The same with a Deployment's workers.
    pub(super) fn deployed(self) -> Self {
        let plot = self.with(|swarm| {
            swarm.spec.workload.kind = crate::api::swarm::WorkloadKind::Deployment;
        });
        // A pod is created before the one that it replaces is gone.
        Self { deployment: true, workers: 3, ..plot }
    }

    /// The same with a divided file.
    pub(super) fn divided(self) -> Self {
        self.with(|swarm| swarm.spec.config_map.files = u32::try_from(PARTS).expect("few"))
    }

    fn files(&self) -> u32 {
        self.wishes[0].swarm.spec.config_map.files
    }

    /// The number of `ConfigMap`s.
    pub(super) fn maps(&self) -> usize {
        self.mounted().end() + 1
    }

    /// The places of those that workers mount.
    pub(super) fn mounted(&self) -> RangeInclusive<usize> {
        if self.files() == 1 { 0..=0 } else { 1..=PARTS }
    }

    /// The place of the one with the list of this worker.
    pub(super) fn place(&self, id: u8) -> usize {
        if self.files() == 1 { 0 } else { 1 + part::of(&name(id), self.files()) as usize }
    }

    pub(super) fn immutable(&self) -> bool {
        self.wishes.iter().any(|wish| wish.swarm.spec.config_map.immutable)
    }
}
