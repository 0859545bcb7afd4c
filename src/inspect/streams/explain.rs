//! Explanations of one stream, or of one worker, from the known facts.
use serde::Serialize;

use super::{Facts, reasons};
use crate::{
    api::swarm::Stream,
    inspect::{cluster::name_of, explain::Source, probing::Advice, status::conditions::sentence},
    swarm::{
        dry_run::Move,
        inspection::{Page, PageRefreshed, PageWaiting, PageWorker},
    },
};

/// The state of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// In a worker's list.
    Owned,
    /// A worker still has to stop it.
    Releasing,
    /// No worker has it, and it has a target worker.
    Free,
    /// No worker has it, and none can take it.
    Unassigned,
    /// No worker has it, and it is not in the spec.
    Removed,
}

/// The last action on a worker's pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LastRefresh {
    /// Name of the worker.
    pub worker: String,
    /// `evicted`, `refused` or `reloaded`.
    pub result: String,
    /// The time since then.
    pub seconds: f64,
}

impl LastRefresh {
    fn of(worker: Option<&PageWorker>) -> Option<Self> {
        let worker = worker?;
        let PageRefreshed { result, seconds } = worker.refreshed.clone()?;
        Some(Self { worker: worker.name.clone(), result, seconds })
    }
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamExplanation {
    /// Its id.
    pub stream: String,
    /// `namespace/name` of its `Swarm`.
    pub swarm: String,
    /// Its location.
    pub state: State,
    /// The worker that has it, or still has to stop it.
    pub worker: Option<String>,
    /// The version at which the worker's list last changed, or that removed the stream.
    pub since: Option<u64>,
    /// The version of the file.
    pub epoch: u64,
    /// The version that the worker has proved to run.
    pub loaded: Option<u64>,
    /// The time for which it has been moving.
    pub seconds: Option<f64>,
    /// The reason for its state.
    pub because: String,
    /// The next move.
    pub moves: Option<Move>,
    /// Its weight in the spec.
    pub weight: Option<u32>,
    /// The only worker that may have it.
    pub pin: Option<String>,
    /// True if it has a dedicated worker.
    pub dedicated: bool,
    /// The last action on the worker's pod.
    pub refreshed: Option<LastRefresh>,
    /// Conditions that are not true.
    pub conditions: Vec<String>,
    /// Other `Swarm`s that may have it too, each with the reason why it was not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// The advice.
    pub next: Vec<Advice>,
    /// The source of the answer.
    pub source: Source,
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerExplanation {
    /// Its name.
    pub worker: String,
    /// `namespace/name` of its `Swarm`.
    pub swarm: String,
    /// Node of its pod; none without a pod on a node.
    pub node: Option<String>,
    /// True if its pod is ready; absent if it is not a worker that should have streams.
    pub ready: Option<bool>,
    /// Its list.
    pub streams: Vec<String>,
    /// Their total weight.
    pub weight: Option<f64>,
    /// The version at which its list last changed.
    pub since: u64,
    /// The version of the file.
    pub epoch: u64,
    /// The version that it has proved to run.
    pub loaded: Option<u64>,
    /// The streams that it still has to stop.
    pub releasing: Vec<String>,
    /// The state of its list, and the reason if that is unknown.
    pub because: String,
    /// The streams that are pinned to it.
    pub pinned: Vec<String>,
    /// The stream to which it is dedicated.
    pub dedicated: Option<String>,
    /// The streams that it will gain and lose.
    pub moves: Vec<Move>,
    /// The last action on its pod.
    pub refreshed: Option<LastRefresh>,
    /// Conditions that are not true.
    pub conditions: Vec<String>,
    /// The advice.
    pub next: Vec<Advice>,
    /// The source of the answer.
    pub source: Source,
}

impl Facts {
    /// Returns the newest known state: from the leader, else from the dry run.
    pub(super) fn page(&self) -> Option<&Page> {
        self.live.as_ref().ok().map(|(page, _)| page).or(self.run.page.as_ref())
    }

    fn worker(&self, name: &str) -> Option<&PageWorker> {
        self.page()?.workers.iter().find(|worker| worker.name == name)
    }

    fn waiting(&self, name: &str) -> Option<&PageWaiting> {
        self.page()?.waiting.iter().find(|waiting| waiting.worker == name)
    }

    /// Returns the worker to which a stream will come, and which has not prepared everything that will.
    fn preparing(&self, id: &str) -> Option<&PageWorker> {
        let mut workers = self.page()?.workers.iter().filter(|worker| worker.preparing > 0);
        workers.find(|worker| worker.next.iter().any(|next| next == id))
    }

    fn stream(&self, id: &str) -> Option<Stream> {
        let spec = &self.swarm.spec;
        let listed = spec.streams.iter().flatten().find(|stream| stream.id == id).cloned();
        let plain = || Stream { id: id.to_owned(), weight: 1, pin: None, dedicated: false };
        let job = spec.jobs.iter().flatten().any(|job| job == id);
        // The rest of the list is in a ConfigMap.
        let elsewhere = || self.run.spec.iter().find(|stream| stream.id == id).cloned();
        listed.or_else(|| job.then(plain)).or_else(elsewhere)
    }

    pub(super) fn source(&self) -> Source {
        Source::of(self.live.as_ref().map(|(page, identity)| (identity, &page.version)))
    }

    fn conditions(&self) -> Vec<String> {
        let all = self.swarm.status.iter().flat_map(|status| &status.conditions);
        all.filter(|condition| condition.status != "True").map(sentence).collect()
    }
}

/// Explains one stream.
#[must_use]
pub fn explain_stream(facts: &Facts, id: &str) -> StreamExplanation {
    let file = &facts.run.published;
    let spec = facts.stream(id);
    let holder = file.releasing.iter().find(|((stream, _), _)| **stream == *id);
    let owner = file.owners().find(|(stream, _)| ***stream == *id).map(|(_, worker)| worker);
    let moves = facts.run.moves.iter().find(|one| one.stream == id).cloned();
    let mut made = StreamExplanation {
        stream: id.to_owned(),
        swarm: name_of(&facts.swarm),
        state: State::Removed,
        worker: None,
        since: None,
        epoch: file.epoch,
        loaded: None,
        seconds: None,
        because: "it is in no list, and not in the spec".into(),
        weight: spec.as_ref().map(|stream| stream.weight),
        pin: spec.as_ref().and_then(|stream| stream.pin.clone()),
        dedicated: spec.as_ref().is_some_and(|stream| stream.dedicated),
        moves,
        refreshed: None,
        conditions: facts.conditions(),
        unread: facts.unread.clone(),
        next: vec![],
        source: facts.source(),
    };
    let free = facts.page().and_then(|page| page.free.iter().find(|free| free.id == id));
    let unassigned = facts.run.unassigned.iter().find(|one| one.id == id);
    if let Some(worker) = owner {
        made.state = State::Owned;
        made.since = file.shares.get(worker).map(|share| share.version);
        made.held(facts, worker);
        made.because = proof(facts, worker, made.since.unwrap_or(0));
        if let Some(((_, other), _)) = holder.filter(|((_, other), _)| other != worker) {
            made.because = format!("{}; {other} must still stop it", made.because);
        }
        if let Some(to) = facts.preparing(id) {
            let (name, left) = (&to.name, to.preparing);
            made.because = format!(
                "{}; it stays there until {name} has prepared what will come to it ({left} left), at most \
                 for refresh.timeout",
                made.because
            );
        }
    } else if let Some(((_, worker), since)) = holder {
        made.state = State::Releasing;
        made.since = Some(*since);
        made.held(facts, worker);
        let releasing = facts.page().into_iter().flat_map(|page| &page.releasing);
        made.seconds = releasing.into_iter().find(|one| one.id == id).map(|one| one.seconds);
        let why = facts.waiting(worker).map_or("", |waiting| &*waiting.why);
        made.because = format!("{worker} must still stop it: {}", reasons::sentence(why));
    } else if let Some(one) = unassigned {
        made.state = State::Unassigned;
        made.because = format!("{}: {}", one.reason, one.meaning);
        made.next = vec![Advice::of(made.because.clone(), remedy(&one.reason))];
    } else if spec.is_some() {
        made.state = State::Free;
        made.seconds = free.map(|free| free.seconds);
        made.because = waits(facts, made.moves.as_ref());
    }
    made
}

impl StreamExplanation {
    fn held(&mut self, facts: &Facts, worker: &str) {
        let known = facts.worker(worker);
        self.worker = Some(worker.to_owned());
        self.loaded = known.and_then(|known| known.loaded);
        self.refreshed = LastRefresh::of(known);
        let waiting = facts.waiting(worker);
        self.next.extend(waiting.and_then(|waiting| reasons::advice(&facts.swarm, waiting)));
    }
}

/// Describes whether a worker is known to run its list.
fn proof(facts: &Facts, worker: &str, since: u64) -> String {
    let Some(known) = facts.worker(worker) else {
        return format!("{worker} is not one of the workers that get streams");
    };
    match (known.loaded, &known.error) {
        (Some(loaded), _) if loaded >= since => {
            format!("{worker} has acknowledged version {loaded}: it runs this list")
        }
        (_, Some(error)) => format!("it is not known whether {worker} runs this list: {error}"),
        (Some(loaded), None) => {
            format!("{worker} has acknowledged version {loaded}, but not yet version {since}")
        }
        (None, None) if !known.ready => format!("the pod of {worker} is not ready"),
        (None, None) => format!("{worker} has acknowledged no version"),
    }
}

fn waits(facts: &Facts, moves: Option<&Move>) -> String {
    if facts.run.published.barrier.is_some() {
        return "no stream is assigned to a worker until every worker has acknowledged a new file"
            .into();
    }
    let to = moves.and_then(|one| one.to.as_deref());
    let ready = to.and_then(|to| facts.worker(to)).is_some_and(|worker| worker.ready);
    match to {
        Some(to) if !ready => format!("it waits for {to}, which has no ready pod"),
        Some(to) => {
            format!("it goes to {to} with the next file, or later, together with other streams")
        }
        None => "no worker can take it now".into(),
    }
}

pub(super) fn remedy(reason: &str) -> &'static str {
    match reason {
        "NoWorker" => "kubectl get the workload and its pods: it needs replicas that become ready",
        "PinnedWorkerAbsent" => {
            "correct spec.streams[].pin, or scale the workload up to that worker"
        }
        "NoDedicatedWorker" => "scale the workload up, or take `dedicated` from a stream",
        "NoCapacity" => "scale the workload up, or raise spec.maxStreamsPerWorker",
        _ => "look at the conditions of the Swarm",
    }
}

/// Explains one worker; `None` if the `Swarm` has none of that name.
#[must_use]
pub fn explain_worker(facts: &Facts, name: &str) -> Option<WorkerExplanation> {
    let file = &facts.run.published;
    let known = facts.worker(name);
    let share = file.shares.get(name);
    let releasing = file.releasing.keys().filter(|(_, worker)| **worker == *name);
    let releasing: Vec<_> = releasing.map(|(stream, _)| stream.to_string()).collect();
    if known.is_none() && share.is_none() && releasing.is_empty() {
        return None;
    }
    let since = share.map_or(0, |share| share.version);
    let waiting = facts.waiting(name);
    let mut because = proof(facts, name, since);
    if let Some(waiting) = waiting {
        let (epoch, why) = (waiting.epoch, reasons::sentence(&waiting.why));
        because = format!("{because}; the operator waits for version {epoch}: {why}");
    }
    if let Some(known) = known.filter(|known| known.preparing > 0) {
        let (left, all) = (known.preparing, known.next.len());
        because = format!("{because}; it prepares {left} of {all} streams that will come to it");
    }
    let streams: Vec<_> =
        share.into_iter().flat_map(|share| &share.streams).map(ToString::to_string).collect();
    let spec = || facts.run.spec.iter();
    let own = spec().find(|stream| stream.dedicated && streams.contains(&stream.id));
    let pinned = spec().filter(|stream| stream.pin.as_deref() == Some(name));
    let is_mine = |one: &&Move| [&one.from, &one.to].into_iter().flatten().any(|w| w == name);
    Some(WorkerExplanation {
        worker: name.to_owned(),
        swarm: name_of(&facts.swarm),
        node: known.and_then(|known| known.node.clone()),
        ready: known.map(|known| known.ready),
        weight: known.map(|known| known.weight),
        since,
        epoch: file.epoch,
        loaded: known.and_then(|known| known.loaded),
        releasing,
        because,
        pinned: pinned.map(|stream| stream.id.clone()).collect(),
        dedicated: own.map(|stream| stream.id.clone()),
        moves: facts.run.moves.iter().filter(is_mine).cloned().collect(),
        streams,
        refreshed: LastRefresh::of(known),
        conditions: facts.conditions(),
        next: waiting
            .and_then(|waiting| reasons::advice(&facts.swarm, waiting))
            .into_iter()
            .collect(),
        source: facts.source(),
    })
}

/// Returns the message for a worker that a `Swarm` does not have.
#[must_use]
pub fn no_such_worker(facts: &Facts, name: &str) -> String {
    let known = facts.page().into_iter().flat_map(|page| &page.workers);
    let names: Vec<_> = known.take(10).map(|worker| worker.name.as_str()).collect();
    let names = if names.is_empty() { "none".into() } else { names.join(", ") };
    format!("Swarm {} has no worker {name:?}; it has {names}", name_of(&facts.swarm))
}
