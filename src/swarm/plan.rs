//! The pending writes, decided from the observations.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    handover::{self, Epoch, Published, Refresh, Step, Why},
    history::{self, Evidence, History, Repair},
    limits,
    memory::Memory,
    report::{self, Facts, notice},
    settings::Settings,
    watches::{MapFacts, PodFacts, WorkloadView},
    weights,
    workers::{Confirmed, Known, Workers, epoch_of},
};
use crate::{
    api::{Mode, Swarm, SwarmStatus, swarm::Strategy},
    controller::{Error, Notice, Plan, verdict},
    placement::assignment::Assignment,
    prometheus::QueryError,
};

mod assigning;
mod publishing;
mod status;
mod unread;

pub(super) use publishing::word;

/// Time between two passes of an object without any change: a pass reads the labels of nodes, and
/// asks workers whether they still run what they reported.
const PERIOD: Duration = Duration::from_secs(10);

/// Time between two requests to workers while streams move. Each question is one small request to
/// those that have not acknowledged.
const MOVING: Duration = Duration::from_millis(250);

/// The same while every awaited worker is one that answers, and has been awaited for less than
/// [`SHORTLY`]: nobody runs the streams that it has stopped. A pass takes time for each stream.
const SOON: Duration = Duration::from_millis(20);
const FOR_EACH: Duration = Duration::from_micros(25);
const SHORTLY: Duration = Duration::from_secs(5);

/// Time between two requests if only stuck workers are awaited.
const STUCK: Duration = Duration::from_secs(2);

/// `DeletePod`: how long a free stream waits for others on their way to the same worker, so that it
/// is restarted once and not for each. About one restart of a pod.
const GATHER: Duration = Duration::from_secs(5);

/// After a refused eviction (a disruption budget) the same pod is left alone for this long.
const REFUSED: Duration = Duration::from_secs(5);

/// The observations.
#[derive(Debug)]
pub struct Observed {
    /// The time.
    pub now: Instant,
    /// The objects claimed by this `Swarm` that an older one holds.
    pub held: Option<String>,
    /// The objects that it depends on; `None` before they were listed.
    pub view: Option<WorkloadView>,
    /// The pods that were read from the API server itself.
    pub confirmed: Confirmed,
    /// The memory, with the newest reports and weights.
    pub memory: Memory,
    /// The nodes that streams should leave.
    pub unfit: BTreeSet<String>,
    /// Why weights could not be measured the last time.
    pub measuring: Option<QueryError>,
}

/// The actions to take.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    /// The next file.
    pub publish: Option<Publish>,
    /// The file for an immutable `ConfigMap` and the template.
    pub immutable: Option<Immutable>,
    /// The actions on pods.
    pub refresh: Vec<Refresh>,
    /// The change of the number of workers.
    pub scale: Option<Scale>,
    /// Immutable files that no pod mounts any more.
    pub obsolete: Vec<String>,
    /// For how long streams had no worker that have one now.
    pub gaps: Vec<Duration>,
    /// The new memory.
    pub memory: Option<Memory>,
}

/// A file to write.
#[derive(Clone, Debug)]
pub struct Publish {
    /// Its contents.
    pub published: Arc<Published>,
    /// The data of the `ConfigMap`.
    pub data: BTreeMap<String, String>,
    /// The version on which it is based; `None`: there is no `ConfigMap` yet.
    pub on: Option<String>,
    /// The parts of a divided file that change with it, written after it.
    pub parts: Vec<Part>,
    /// The notices to publish after the write.
    pub notices: Vec<Notice>,
    /// Moves to count once it is written, by reason.
    pub moves: BTreeMap<&'static str, u64>,
    /// The workers to tell once it is written.
    pub grants: Vec<Handed>,
}

/// Streams that a file gives to a worker that has prepared them.
#[derive(Clone, Debug)]
pub struct Handed {
    /// Its pod.
    pub pod: PodFacts,
    /// The streams.
    pub streams: Vec<Arc<str>>,
}

/// A part to write.
#[derive(Clone, Debug)]
pub struct Part {
    /// The name of its `ConfigMap`.
    pub name: String,
    /// Contents of the `ConfigMap`, by key.
    pub data: BTreeMap<String, String>,
    /// The version on which it is based; `None`: there is no such `ConfigMap` yet.
    pub on: Option<String>,
}

/// A change of the number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The number that was read.
    pub from: u32,
    /// The desired number.
    pub to: u32,
}

/// An immutable file.
#[derive(Clone, Debug)]
pub struct Immutable {
    /// The name of its `ConfigMap`.
    pub name: String,
    /// Its version.
    pub epoch: Epoch,
    /// Contents of the `ConfigMap`, by key.
    pub data: BTreeMap<String, String>,
    /// The volumes of the template to point to it.
    pub volumes: Vec<Box<str>>,
}

/// Decides.
///
/// # Errors
/// When the spec, or an object that it names, cannot be served.
pub fn plan(swarm: &Swarm, observed: &Observed) -> Result<Plan<Desired, SwarmStatus>, Error> {
    if let Some(held) = &observed.held {
        return Err(Error::Conflict(held.clone()));
    }
    let Some(view) = &observed.view else {
        let text = "the objects that it depends on are not listed yet";
        return Ok(still(swarm, verdict("Ready", None, "Starting", text)));
    };
    if let Some(share) = &view.share {
        ours(swarm, share, &swarm.config_map())?;
    }
    for (part, name) in view.parts.iter().zip(swarm.parts()) {
        part.iter().try_for_each(|part| ours(swarm, part, &name))?;
    }
    let settings = Settings::of(swarm, view.source.as_ref())?;
    let Some(workload) = &view.workload else {
        let (kind, name) = (settings.kind.as_str(), &settings.workload);
        let text = format!("there is no {kind} {name} in this namespace; the file stays as it is");
        return Ok(still(swarm, verdict("Ready", Some(false), "WorkloadNotFound", text)));
    };
    limits::workers(settings.kind, &settings.workload, workload)?;
    if settings.immutable && !workload.on_delete {
        return Err(Error::Invalid(format!(
            "spec.configMap.immutable: StatefulSet {} needs updateStrategy.type OnDelete: else each \
             new file restarts every worker",
            settings.workload
        )));
    }
    let share = swarm.config_map();
    let points = |(volume, map): &(Box<str>, Box<str>)| {
        workload.plain.contains(volume) && (**map == *share || epoch_of(&share, map).is_some())
    };
    if settings.immutable && !workload.mounts.iter().any(points) {
        return Err(Error::Invalid(format!(
            "spec.configMap.immutable: the template of StatefulSet {} has no volume of type configMap \
             that names {share}, to be pointed at each new file",
            settings.workload
        )));
    }
    Decision::new(swarm, observed, view, settings)?.plan()
}

/// Succeeds if a `ConfigMap` is ours to write.
fn ours(swarm: &Swarm, share: &MapFacts, map: &str) -> Result<(), Error> {
    let (namespace, name) = swarm.key();
    let managed = share.managed_by.as_deref() == Some(crate::controller::MANAGED_BY)
        && share.owner.as_deref() == Some(&*name);
    if managed || share.given.as_deref() == Some(&*name) {
        return Ok(());
    }
    Err(Error::Conflict(format!(
        "spec.configMap: ConfigMap {namespace}/{map} exists and is not of this Swarm; to hand it over: \
         kubectl annotate --overwrite -n {namespace} configmap {map} {}={name}",
        super::watches::GIVEN
    )))
}

/// Nothing is decided: the figures stay.
fn still(swarm: &Swarm, verdict: crate::controller::Verdict) -> Plan<Desired, SwarmStatus> {
    Plan {
        desired: Desired::default(),
        status: swarm.status.clone().unwrap_or_default(),
        conditions: vec![verdict],
        notices: vec![],
        period: PERIOD,
    }
}

/// One pass over one object.
struct Decision<'a> {
    swarm: &'a Swarm,
    observed: &'a Observed,
    view: &'a WorkloadView,
    settings: Settings,
    ids: Vec<Arc<str>>,
    weights: Vec<f64>,
    workers: Workers,
    history: History,
    /// The contents of each part of a divided file, if they are right.
    parts: history::parts::Good,
    /// The highest version that any pod reports.
    highest: Epoch,
    memory: Memory,
}

impl<'a> Decision<'a> {
    fn new(
        swarm: &'a Swarm,
        observed: &'a Observed,
        view: &'a WorkloadView,
        settings: Settings,
    ) -> Result<Self, Error> {
        let mut memory = observed.memory.clone();
        let live = view.pods.iter().filter(|pod| !pod.stopped);
        let answer = |uid: &Arc<str>| memory.reports.get(uid)?.answer.as_deref();
        let versions = live.clone().filter_map(|pod| answer(&pod.uid)?.version);
        let highest = versions.map(handover::believed).fold(memory.highest, Epoch::max);
        let mut started = live.filter(|pod| pod.started);
        let unknown_pods = started.any(|pod| !memory.is_idle(pod));
        let reported = swarm.status.as_ref().map_or(0, |status| status.epoch);
        let reported = handover::believed(Epoch::try_from(reported).unwrap_or(0));
        let each = view.pods.iter().filter(|pod| !pod.stopped);
        let running: Vec<_> = each
            .filter_map(|pod| {
                Some((
                    Arc::clone(&pod.name),
                    Arc::clone(memory.reports.get(&pod.uid)?.answer.as_ref()?),
                ))
            })
            .collect();
        let made = history::made(swarm);
        let evidence =
            Evidence { memory: &memory, reported, made, unknown_pods, running: &running };
        let (history, parts) = if swarm.spec.config_map.files > 1 {
            history::parts::of(swarm, view, evidence)?
        } else {
            let key = &swarm.spec.config_map.key;
            (history::of(view.share.as_ref(), key, evidence)?, vec![])
        };
        memory.highest = highest;
        if history.repair.is_none() {
            memory.published = Some(Arc::new(history.published.clone()));
        }
        let share = swarm.config_map();
        let named = history.published.workers();
        let (now, confirmed) = (observed.now, &observed.confirmed);
        let known = Known { now, memory: &memory, confirmed, named: &named };
        let workers = Workers::of(&settings, view, &share, &observed.unfit, &known);
        memory.evictions.learn(&workers.by_name(), history.published.epoch);
        let weights = weights::of(&settings.streams, &memory.weights);
        let ids = super::settings::ids(&settings.streams);
        Ok(Self {
            swarm,
            observed,
            view,
            settings,
            ids,
            weights,
            workers,
            history,
            parts,
            highest,
            memory,
        })
    }

    fn plan(mut self) -> Result<Plan<Desired, SwarmStatus>, Error> {
        let now = self.observed.now;
        let writes = self.writes();
        let assignment = self.assign();
        let step = self.step(&assignment);
        let mut desired = Desired::default();
        let mut notices = Vec::new();
        if writes {
            desired.publish = self.publish(&step)?.or_else(|| self.keyed());
            if desired.publish.is_some() {
                self.restores();
            }
            let current = step.publish.as_ref().unwrap_or(&self.history.published);
            if self.settings.immutable && desired.publish.is_none() {
                desired.immutable = self.immutable(current);
            }
            // A pod is refreshed for an existing file.
            if desired.publish.is_none() && desired.immutable.is_none() {
                desired.refresh = self.refresh(&step);
            }
            desired.scale = self.scale();
            desired.obsolete = self.obsolete();
        }
        desired.gaps = self.remember(&step, writes);
        let snapshot = self.snapshot(&assignment, &step);
        let stuck = self.stuck(&step);
        for (worker, epoch, why) in &stuck {
            if !self.memory.stuck.contains(worker) {
                let note = format!("worker {worker} has not acknowledged version {epoch}: {why}");
                notices.push(notice(true, "RefreshTimeout", note));
            }
        }
        self.memory.stuck = stuck.iter().map(|(worker, ..)| Arc::clone(worker)).collect();
        self.unassigned(&snapshot, &mut notices);
        let facts = Facts {
            measuring: self.observed.measuring.as_ref(),
            no_fitness: self.swarm.spec.fitness_ref.is_some() && self.view.fitness.is_none(),
            not_mounted: self.not_mounted(),
            stuck: &stuck,
            disobedient: self.disobedient(),
            barrier: self.history.published.barrier.is_some(),
            awaiting: self.waits_for(),
            orphaned: self.orphaned(&step, &stuck),
            stranded: self.stranded(&snapshot),
            unresponsive: Self::unresponsive(&snapshot),
            undecided: self.undecided(&snapshot),
        };
        let held = self.held();
        let mut conditions = report::conditions(self.swarm, &self.settings, &snapshot, &facts);
        if let Some((_, verdict)) = &held {
            conditions.retain(|condition| condition.type_ != verdict.type_);
            conditions.push(verdict.clone());
        }
        let (at, status) = report::status(&self.settings, &snapshot, &self.memory, now);
        self.memory.status = Some((at, status.clone()));
        let moving = desired.publish.is_some()
            || desired.immutable.is_some()
            || !snapshot.releasing.is_empty()
            || snapshot.counts.free > 0
            || self.unheard()
            || self.memory.preparing.is_some_and(|at| self.is_recent(at));
        let news = if moving { Some(self.pause(&step)) } else { self.news_of_unread(&snapshot) };
        let period = match (news.filter(|_| writes), stuck.is_empty()) {
            (Some(news), true) => news,
            (Some(_), false) => STUCK,
            (None, _) => self.settings.weights.as_ref().map_or(PERIOD, |w| w.interval.min(PERIOD)),
        };
        let period = held.map_or(period, |(left, _)| period.max(MOVING).min(left));
        self.memory.snapshot = Arc::new(snapshot);
        desired.memory = Some(self.memory);
        Ok(Plan { desired, status, conditions, notices, period })
    }

    /// The next step there.
    fn step(&mut self, assignment: &Assignment) -> Step {
        let now = self.observed.now;
        let wanted: Vec<_> = self.workers.wanted().map(|worker| Arc::clone(&worker.name)).collect();
        let owner = |place: &Option<usize>| place.map(|place| Arc::clone(&wanted[place]));
        let owner: Vec<_> =
            self.ids.iter().cloned().zip(assignment.owners.iter().map(owner)).collect();
        let strategy = match self.settings.strategy {
            Strategy::DeletePod => handover::Strategy::DeletePod,
            Strategy::HotReload => handover::Strategy::HotReload,
            Strategy::None => handover::Strategy::None,
        };
        let longest = |since: Option<Instant>, limit: Duration| {
            since.is_none_or(|at| now.saturating_duration_since(at) < limit)
        };
        let awaiting = self.awaits(&owner);
        self.memory.awaiting = awaiting.then(|| self.memory.awaiting.unwrap_or(now));
        let preparing = self.prepares(&owner);
        self.memory.preparing = preparing.then(|| self.memory.preparing.unwrap_or(now));
        let mut rules = handover::Rules {
            exclusive: self.settings.exclusive,
            strategy,
            max_unavailable: self.settings.max_unavailable,
            gather: longest(self.memory.free.values().min().copied(), GATHER),
            await_targets: longest(self.memory.awaiting, self.settings.timeout),
            announce: self.settings.strategy == Strategy::HotReload,
        };
        let mut workers = self.workers.by_name();
        if self.memory.preparing.is_some_and(|at| !self.is_recent(at)) {
            let pods = workers.values_mut().filter_map(|worker| worker.pod.as_mut());
            pods.for_each(|pod| pod.prepared = None);
        }
        if self.held().is_some() {
            return Step::default();
        }
        if self.history.repair.is_some() {
            let repaired = self.history.repaired(self.highest);
            if self.history.repair == Some(Repair::First) {
                // No worker has read anything: the first file contains it all.
                let empty = Published { epoch: repaired.epoch - 1, ..Published::default() };
                let from =
                    if repaired.shares.is_empty() { &empty } else { &self.history.published };
                let mut step = handover::step(from, &owner, &workers, self.highest, &rules);
                step.publish.get_or_insert(repaired);
                return step;
            }
            // The first file would take streams from a running worker that has not answered yet.
            let publish = (!self.unheard()).then_some(repaired);
            return Step { publish, ..Step::default() };
        }
        let published = &self.history.published;
        let mut step = handover::step(published, &owner, &workers, self.highest, &rules);
        let larger = step.publish.as_ref().filter(|next| !next.next.is_empty());
        if larger.is_some_and(|next| self.texts(&self.complete(next)).is_err()) {
            rules.announce = false;
            workers.values_mut().filter_map(|w| w.pod.as_mut()).for_each(|pod| pod.prepared = None);
            step = handover::step(published, &owner, &workers, self.highest, &rules);
        }
        let file = step.publish.as_ref().unwrap_or(published);
        step.refresh = handover::refresh_in_turn(file, &workers, &rules, &self.turns());
        step
    }

    /// Reports whether a stream waits for its next worker, which has no ready pod.
    fn awaits(&self, target: &[(Arc<str>, Option<Arc<str>>)]) -> bool {
        let owners: BTreeMap<_, _> = self.history.published.owners().collect();
        let ready: BTreeSet<_> = self
            .workers
            .wanted()
            .filter(|worker| worker.pod.as_ref().is_some_and(|pod| pod.ready))
            .map(|worker| &worker.name)
            .collect();
        target.iter().any(|(stream, to)| {
            let (Some(from), Some(to)) = (owners.get(stream), to) else { return false };
            *from != to && !ready.contains(to)
        })
    }

    /// Returns what streams wait for before they leave their worker.
    fn waits_for(&self) -> Option<&'static str> {
        let ready = "streams wait for their new worker, which has no ready pod";
        let prepared = "streams stay with their worker until the next one has prepared them";
        let preparing = self.memory.preparing.map(|_| prepared);
        self.memory.awaiting.map(|_| ready).or(preparing)
    }

    /// Reports whether a stream stays with its worker until the next one, which is ready, has prepared
    /// it.
    fn prepares(&self, target: &[(Arc<str>, Option<Arc<str>>)]) -> bool {
        let wanted = self.workers.wanted().filter_map(|worker| {
            let pod = worker.handover.pod.as_ref().filter(|pod| pod.ready && !pod.terminating)?;
            Some((&worker.name, pod)).filter(|(_, pod)| pod.prepared.is_some())
        });
        let prepare: BTreeMap<_, _> = wanted.collect();
        if prepare.is_empty() || !self.settings.exclusive {
            return false;
        }
        let owners: BTreeMap<_, _> = self.history.published.owners().collect();
        target.iter().any(|(stream, to)| {
            let (Some(from), Some(to)) = (owners.get(stream), to) else { return false };
            *from != to && prepare.get(to).is_some_and(|pod| pod.is_preparing(stream))
        })
    }

    /// Returns the time until the next pass while streams move.
    fn pause(&self, step: &Step) -> Duration {
        let now = self.observed.now;
        let answers = step.waiting.iter().all(|waiting| waiting.why == Why::Behind);
        let latest = self.memory.releasing.values().max();
        let recent = latest
            .map_or(step.publish.is_some(), |at| now.saturating_duration_since(*at) < SHORTLY);
        let follow = self.settings.strategy == Strategy::HotReload;
        let streams = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        let soon = SOON.saturating_add(FOR_EACH.saturating_mul(streams)).min(MOVING);
        if answers && recent && follow { soon } else { MOVING }
    }

    /// Reports whether less than `spec.refresh.timeout` has passed since then.
    fn is_recent(&self, at: Instant) -> bool {
        self.observed.now.saturating_duration_since(at) < self.settings.timeout
    }

    /// The file for the reports: the next one, even if it is only computed.
    fn current<'b>(&'b self, step: &'b Step) -> &'b Published {
        let next = step.publish.as_ref().filter(|_| !self.swarm.spec.paused);
        next.unwrap_or(&self.history.published)
    }

    /// Reports whether there is no record of what workers run, and some may still report it.
    fn unheard(&self) -> bool {
        let unknown =
            self.history.repair == Some(Repair::Barrier) && self.memory.published.is_none();
        let mut asked = self.view.pods.iter().filter(|pod| pod.started && !pod.stopped);
        unknown && asked.any(|pod| self.memory.may_answer(pod))
    }

    /// Reports whether this pass writes.
    fn writes(&self) -> bool {
        self.swarm.spec.mode == Mode::Enforce && !self.swarm.spec.paused
    }
}

#[cfg(test)]
mod tests;
