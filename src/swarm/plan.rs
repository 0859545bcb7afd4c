//! What there is to write, decided from what was observed.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    file::{self, STATE_KEY},
    ground::{MapFacts, View},
    handover::{self, Cause, Epoch, Published, Refresh, Step, Why},
    history::{self, Evidence, History, Repair},
    memory::{Granted, Memory},
    report::{self, Facts, notice, verdict},
    settings::{LARGEST_MAP, Settings},
    told::{Counts, Told, Worker as ToldWorker},
    weights,
    workers::{Known, Workers, immutable_name},
};
use crate::{
    api::{
        Mode, Swarm, SwarmStatus,
        swarm::{Policy, Strategy},
    },
    controller::{Error, Notice, Plan},
    placement::assignment::{self, Assignment, Item, Rules},
    prometheus::QueryError,
};

/// How often an object is looked at though nothing changed: labels of nodes are looked at, and workers
/// are asked whether they still run what they said.
const PERIOD: Duration = Duration::from_secs(10);

/// How often workers are asked while something is on its way. Each question is one small request to
/// those that have not acknowledged.
const MOVING: Duration = Duration::from_millis(250);

/// How often when nothing but stuck workers is waited for.
const STUCK: Duration = Duration::from_secs(2);

/// `DeletePod`: how long a free stream waits for others on their way to the same worker, so that it is
/// restarted once and not for each. About one restart of a pod.
const GATHER: Duration = Duration::from_secs(5);

/// After a refused eviction (a disruption budget) the same pod is left alone for this long.
const REFUSED: Duration = Duration::from_secs(5);

/// What was read from the world.
#[derive(Debug)]
pub struct Observed {
    /// The time.
    pub now: Instant,
    /// What an older `Swarm` holds of what this one claims.
    pub held: Option<String>,
    /// What it depends on; `None` before that was listed.
    pub view: Option<View>,
    /// For workers whose pod was read from the API server itself: what was published then.
    pub confirmed: BTreeMap<Arc<str>, Epoch>,
    /// What was remembered, with the newest reports and weights.
    pub memory: Memory,
    /// The nodes that streams are to leave.
    pub unfit: BTreeSet<String>,
    /// Why weights could not be measured the last time.
    pub measuring: Option<QueryError>,
}

/// What there is to do.
#[derive(Debug, Default)]
pub struct Desired {
    /// The next file.
    pub publish: Option<Publish>,
    /// The file that an immutable `ConfigMap` and the template are to have.
    pub immutable: Option<Immutable>,
    /// What is to be done to pods.
    pub refresh: Vec<Refresh>,
    /// How many workers there are to be.
    pub scale: Option<u32>,
    /// What is remembered.
    pub memory: Option<Memory>,
}

/// A file to write.
#[derive(Debug)]
pub struct Publish {
    /// What it says.
    pub published: Arc<Published>,
    /// The data of the `ConfigMap`.
    pub data: BTreeMap<String, String>,
    /// The version it stands on; `None`: there is no `ConfigMap` yet.
    pub on: Option<String>,
    /// What to tell once it is written.
    pub notices: Vec<Notice>,
    /// Moves to count once it is written, by reason.
    pub moves: BTreeMap<&'static str, u64>,
}

/// An immutable file.
#[derive(Debug)]
pub struct Immutable {
    /// The name of its `ConfigMap`.
    pub name: String,
    /// The data.
    pub data: BTreeMap<String, String>,
    /// The volumes of the template that are to point at it.
    pub volumes: Vec<Box<str>>,
}

/// Decides.
///
/// # Errors
/// When the spec, or what it names, cannot be served.
pub fn plan(swarm: &Swarm, observed: &Observed) -> Result<Plan<Desired, SwarmStatus>, Error> {
    if let Some(held) = &observed.held {
        return Err(Error::Conflict(held.clone()));
    }
    let Some(view) = &observed.view else {
        let text = "what it depends on is not listed yet";
        return Ok(still(swarm, verdict("Ready", None, "Starting", text.into())));
    };
    if let Some(share) = &view.share {
        ours(swarm, share)?;
    }
    let settings = Settings::of(swarm, view.source.as_ref())?;
    let Some(workload) = &view.workload else {
        let (kind, name) = (settings.kind.as_str(), &settings.workload);
        let text = format!("there is no {kind} {name} in this namespace; the file stays as it is");
        return Ok(still(swarm, verdict("Ready", Some(false), "WorkloadNotFound", text)));
    };
    if settings.immutable && !workload.on_delete {
        return Err(Error::Invalid(format!(
            "spec.configMap.immutable: StatefulSet {} needs updateStrategy.type OnDelete: else each \
             new file restarts every worker",
            settings.workload
        )));
    }
    Decision::new(swarm, observed, view, settings)?.plan()
}

/// Whether a `ConfigMap` is ours to write.
fn ours(swarm: &Swarm, share: &MapFacts) -> Result<(), Error> {
    let (namespace, name) = swarm.key();
    let managed = share.managed_by.as_deref() == Some(crate::controller::MANAGED_BY)
        && share.owner.as_deref() == Some(&*name);
    if managed || share.given.as_deref() == Some(&*name) {
        return Ok(());
    }
    let map = swarm.config_map();
    Err(Error::Conflict(format!(
        "spec.configMap: ConfigMap {namespace}/{map} exists and is not of this Swarm; to hand it over: \
         kubectl annotate --overwrite -n {namespace} configmap {map} {}={name}",
        super::ground::GIVEN
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
    view: &'a View,
    settings: Settings,
    ids: Vec<Arc<str>>,
    weights: Vec<f64>,
    workers: Workers,
    history: History,
    /// The highest version that any pod says it runs.
    highest: Epoch,
    memory: Memory,
}

impl<'a> Decision<'a> {
    fn new(
        swarm: &'a Swarm,
        observed: &'a Observed,
        view: &'a View,
        settings: Settings,
    ) -> Result<Self, Error> {
        let mut memory = observed.memory.clone();
        let live = view.pods.iter().filter(|pod| !pod.stopped);
        let answer = |uid: &Arc<str>| memory.reports.get(uid)?.answer.as_deref();
        let highest = live.clone().filter_map(|pod| answer(&pod.uid)?.version).max().unwrap_or(0);
        let mut started = live.filter(|pod| pod.started);
        let unknown_pods = started
            .any(|pod| answer(&pod.uid).is_none_or(|a| a.version.is_some() || !a.jobs.is_empty()));
        let told = swarm.status.as_ref().map_or(0, |status| status.epoch);
        let told = Epoch::try_from(told).unwrap_or(0);
        let evidence = Evidence { memory: &memory, told, unknown_pods };
        let history = history::of(view.share.as_ref(), &swarm.spec.config_map.key, evidence)?;
        if history.repair.is_none() {
            memory.published = Some(Arc::new(history.published.clone()));
        }
        let share = swarm.config_map();
        let named = history.published.workers();
        let known = Known { memory: &memory, confirmed: &observed.confirmed, named: &named };
        let workers = Workers::of(&settings, view, &share, &observed.unfit, &known);
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
            highest,
            memory,
        })
    }

    fn plan(mut self) -> Result<Plan<Desired, SwarmStatus>, Error> {
        let now = self.observed.now;
        let writes = self.swarm.spec.mode == Mode::Enforce && !self.swarm.spec.paused;
        let assignment = self.assign();
        let step = self.step(&assignment);
        let mut desired = Desired::default();
        let mut notices = Vec::new();
        if writes {
            desired.publish = self.publish(&step)?;
            let current = step.publish.as_ref().unwrap_or(&self.history.published);
            if self.settings.immutable && desired.publish.is_none() {
                desired.immutable = self.immutable(current);
            }
            // A pod is refreshed for a file that is there.
            if desired.publish.is_none() && desired.immutable.is_none() {
                desired.refresh = self.refresh(&step);
            }
            desired.scale = self.scale();
        }
        self.remember(&step, writes);
        let told = self.tell(&assignment, &step);
        let stuck = self.stuck(&step);
        for (worker, epoch, why) in &stuck {
            if !self.memory.stuck.contains(worker) {
                let note = format!("worker {worker} has not acknowledged version {epoch}: {why}");
                notices.push(notice(true, "RefreshTimeout", note));
            }
        }
        self.memory.stuck = stuck.iter().map(|(worker, ..)| Arc::clone(worker)).collect();
        self.unassigned(&told, &mut notices);
        let disobedient = self.disobedient();
        let facts = Facts {
            measuring: self.observed.measuring.as_ref(),
            no_fitness: self.swarm.spec.fitness_ref.is_some() && self.view.fitness.is_none(),
            not_mounted: self.not_mounted(),
            stuck: &stuck,
            disobedient: disobedient.as_ref(),
            barrier: self.history.published.barrier.is_some(),
        };
        let conditions = report::conditions(self.swarm, &self.settings, &told, &facts);
        let (at, status) = report::status(&self.settings, &told, &self.memory, now);
        self.memory.status = Some((at, status.clone()));
        let moving = desired.publish.is_some()
            || desired.immutable.is_some()
            || told.counts.releasing + told.counts.free > 0
            || told.workers.iter().any(ToldWorker::is_behind);
        let period = match (moving && writes, stuck.is_empty()) {
            (true, true) => MOVING,
            (true, false) => STUCK,
            (false, _) => self.settings.weights.as_ref().map_or(PERIOD, |w| w.interval.min(PERIOD)),
        };
        self.memory.told = Arc::new(told);
        desired.memory = Some(self.memory);
        Ok(Plan { desired, status, conditions, notices, period })
    }

    /// Where every stream is to be in the end.
    fn assign(&mut self) -> Assignment {
        let scaled = weights::scaled(&self.weights);
        let items: Vec<_> = self
            .settings
            .streams
            .iter()
            .zip(scaled)
            .map(|(stream, weight)| Item {
                id: &stream.id,
                weight,
                pin: stream.pin.as_deref(),
                dedicated: stream.dedicated,
            })
            .collect();
        let wanted: Vec<_> = self.workers.wanted().collect();
        let index: BTreeMap<&str, usize> =
            wanted.iter().enumerate().map(|(i, worker)| (&*worker.name, i)).collect();
        let owners: BTreeMap<&Arc<str>, &Arc<str>> = self.history.published.owners().collect();
        let previous: Vec<_> = self
            .ids
            .iter()
            .map(|id| owners.get(id).and_then(|worker| index.get(&***worker).copied()))
            .collect();
        let mut balance = !self.workers.rolling;
        if let Some(rules) = &self.settings.weights {
            let (loads, counts) = loads(&previous, &self.weights, wanted.len());
            let (moves, heavy) =
                weights::rebalances(rules, &loads, &counts, self.memory.heavy, self.observed.now);
            self.memory.heavy = heavy;
            balance &= moves;
        }
        let rules = Rules {
            policy: match self.settings.policy {
                Policy::Sticky => assignment::Policy::Sticky,
                Policy::Stateless => assignment::Policy::Stateless,
                Policy::Contiguous => assignment::Policy::Contiguous,
            },
            max_per_worker: self.settings.max_per_worker,
            max_moves: self.settings.max_moves.map(|most| {
                // Those on their way already are part of what may move at once.
                let on_their_way = self.history.published.releasing.len() + self.memory.free.len();
                most.saturating_sub(on_their_way)
            }),
            balance,
        };
        let workers: Vec<_> = wanted
            .iter()
            .map(|worker| assignment::Worker { id: &worker.name, standing: worker.standing })
            .collect();
        assignment::assign(&items, &workers, &previous, &rules)
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
        let rules = handover::Rules {
            exclusive: self.settings.exclusive,
            strategy,
            max_unavailable: self.settings.max_unavailable,
            gather: longest(self.memory.free.values().min().copied(), GATHER),
            await_targets: longest(self.memory.awaiting, self.settings.timeout),
        };
        let workers = self.workers.by_name();
        if self.history.repair.is_some() {
            let repaired = self.history.repaired(self.highest);
            if self.history.repair == Some(Repair::First) {
                // Nobody has read anything: the first file has it all.
                let empty = Published { epoch: repaired.epoch - 1, ..Published::default() };
                let from =
                    if repaired.shares.is_empty() { &empty } else { &self.history.published };
                let mut step = handover::step(from, &owner, &workers, self.highest, &rules);
                step.publish.get_or_insert(repaired);
                return step;
            }
            return Step { publish: Some(repaired), ..Step::default() };
        }
        handover::step(&self.history.published, &owner, &workers, self.highest, &rules)
    }

    /// Whether a stream waits for a worker that is to have it and has no ready pod.
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

    fn data(&self, published: &Published) -> BTreeMap<String, String> {
        let file::Files { config, state } = file::render(published);
        [(self.swarm.spec.config_map.key.clone(), config), (STATE_KEY.to_owned(), state)].into()
    }

    fn publish(&self, step: &Step) -> Result<Option<Publish>, Error> {
        let Some(next) = &step.publish else { return Ok(None) };
        let data = self.data(next);
        let size: usize = data.iter().map(|(key, value)| key.len() + value.len()).sum();
        if size > LARGEST_MAP {
            return Err(Error::Invalid(format!(
                "spec: the file of {} streams would have {size} bytes, and a ConfigMap holds \
                 {LARGEST_MAP}: divide the streams among several Swarms, each with a workload of its \
                 own; workers keep what they have",
                self.ids.len()
            )));
        }
        let mut notices = Vec::new();
        match self.history.repair {
            Some(Repair::Undo) => {
                let note = "somebody else wrote to the ConfigMap with the shares; it was put back";
                notices.push(notice(true, "ForeignEdit", note.into()));
            }
            Some(Repair::Restore) => {
                let note = "the ConfigMap with the shares was deleted; it was put back";
                notices.push(notice(true, "ConfigMapRestored", note.into()));
            }
            Some(Repair::Barrier) => {
                let note = "it is not known what workers have read: all of them are to acknowledge a \
                            new file before anything is given to another";
                notices.push(notice(true, "HistoryUnknown", note.into()));
            }
            Some(Repair::First) | None => {}
        }
        let mut moves: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (_, _, cause) in &step.revoked {
            *moves.entry(word(*cause)).or_default() += 1;
        }
        if !moves.is_empty() {
            let by: Vec<_> = moves.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
            let note =
                format!("version {}: streams that leave a worker: {}", next.epoch, by.join(", "));
            notices.push(notice(false, "Revoked", note));
        }
        if !step.granted.is_empty() {
            let note =
                format!("version {}: {} streams given to a worker", next.epoch, step.granted.len());
            notices.push(notice(false, "Granted", note));
        }
        Ok(Some(Publish {
            published: Arc::new(next.clone()),
            data,
            on: self.view.share.as_ref().map(|share| share.resource_version.clone()),
            notices,
            moves,
        }))
    }

    /// The immutable file of the current version, unless the template has it.
    fn immutable(&self, current: &Published) -> Option<Immutable> {
        let (share, workload) = (self.swarm.config_map(), self.view.workload.as_ref()?);
        let name = immutable_name(&share, current.epoch);
        let ours = |map: &str| map == share || super::workers::epoch_of(&share, map).is_some();
        let volumes: Vec<_> = workload
            .mounts
            .iter()
            .filter(|(_, map)| ours(map) && **map != *name)
            .map(|(volume, _)| volume.clone())
            .collect();
        let data = self.data(current);
        (!volumes.is_empty()).then_some(Immutable { name, data, volumes })
    }

    /// What is done to pods; a refused eviction is not tried at every pass.
    fn refresh(&self, step: &Step) -> Vec<Refresh> {
        let now = self.observed.now;
        let rests = |worker: &Arc<str>| {
            let at = self.memory.refused.get(worker);
            at.is_some_and(|at| now.saturating_duration_since(*at) < REFUSED)
        };
        let nudged = |worker: &Arc<str>, epoch: Epoch| {
            let known = self.workers.all.iter().find(|known| known.name == *worker);
            let nudged = known.and_then(|known| known.pod.as_ref()?.nudged);
            nudged.is_some_and(|nudged| nudged >= epoch)
        };
        let due = step.refresh.iter().filter(|refresh| match refresh {
            Refresh::Evict { worker, .. } => !rests(worker),
            Refresh::Nudge { worker, epoch, .. } => !nudged(worker, *epoch),
        });
        due.cloned().collect()
    }

    /// How many workers there are to be, if that is ours to say and not so.
    fn scale(&mut self) -> Option<u32> {
        let now = self.observed.now;
        let replicas = self.view.workload.as_ref()?.replicas;
        let changed = self.memory.replicas.is_none_or(|(known, _)| known != replicas);
        if changed {
            // After a start nothing is known of the last change: it may have been a moment ago.
            self.memory.replicas = Some((replicas, now));
        }
        let rules = self.settings.autoscale.as_ref()?;
        // Scaled to nothing is switched off, as for the horizontal pod autoscaler.
        if replicas == 0 {
            return None;
        }
        let total: f64 = self.weights.iter().sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped, and the cast saturates"
        )]
        let workers = (total / rules.per_worker).ceil().max(0.0) as u32;
        let wanted = workers.clamp(rules.min, rules.max.max(rules.min));
        let (_, since) = self.memory.replicas?;
        let rests = now.saturating_duration_since(since) < rules.cooldown;
        // Weights that could not be measured are no reason.
        let blind = self.settings.weights.is_some()
            && (self.memory.weights.is_empty() || self.observed.measuring.is_some());
        (wanted != replicas && !rests && !blind).then_some(wanted)
    }

    /// Keeps what the next pass needs.
    fn remember(&mut self, step: &Step, writes: bool) {
        let now = self.observed.now;
        let current = self.current(step).clone();
        let memory = &mut self.memory;
        let since = std::mem::take(&mut memory.releasing);
        let key =
            |key: &(Arc<str>, Arc<str>)| (key.clone(), since.get(key).copied().unwrap_or(now));
        memory.releasing = current.releasing.keys().map(key).collect();
        let free = std::mem::take(&mut memory.free);
        memory.free = step
            .free
            .iter()
            .map(|stream| (Arc::clone(stream), free.get(stream).copied().unwrap_or(now)))
            .collect();
        if writes && let Some(next) = &step.publish {
            for (stream, worker) in &step.granted {
                let since = free.get(stream).copied().unwrap_or(now);
                let granted = Granted { worker: Arc::clone(worker), epoch: next.epoch, since };
                memory.granted.insert(Arc::clone(stream), granted);
            }
        }
        let workers = self.workers.by_name();
        let gaps = memory.told.counters.gaps.clone();
        memory.granted.retain(|stream, granted| {
            let owned = current.shares.get(&granted.worker);
            if !owned.is_some_and(|share| share.streams.contains(stream)) {
                return false;
            }
            let loaded = workers.get(&granted.worker).and_then(|w| w.pod.as_ref()?.loaded);
            let arrived = loaded.is_some_and(|loaded| loaded >= granted.epoch);
            if arrived {
                gaps.observe(now.saturating_duration_since(granted.since).as_secs_f64());
            }
            !arrived
        });
        let live: BTreeSet<_> = self.view.pods.iter().map(|pod| &pod.uid).collect();
        memory.reports.retain(|uid, _| live.contains(uid));
        memory.born.retain(|uid, _| live.contains(uid));
        memory.refused.retain(|worker, _| workers.contains_key(worker));
    }

    /// The file as it is told: the next one, also where it is only computed.
    fn current<'b>(&'b self, step: &'b Step) -> &'b Published {
        let next = step.publish.as_ref().filter(|_| !self.swarm.spec.paused);
        next.unwrap_or(&self.history.published)
    }

    fn tell(&self, assignment: &Assignment, step: &Step) -> Told {
        let current = self.current(step);
        let weight: BTreeMap<&Arc<str>, f64> =
            self.ids.iter().zip(self.weights.iter().copied()).collect();
        let empty = handover::Share::default();
        let worker = |worker: &super::workers::Worker| {
            let share = current.shares.get(&worker.name).unwrap_or(&empty);
            let report = worker.pod.as_ref().and_then(|pod| self.memory.reports.get(&pod.uid));
            ToldWorker {
                name: Arc::clone(&worker.name),
                node: worker.pod.as_ref().and_then(|pod| pod.node.as_deref()).map(str::to_owned),
                jobs: share.streams.clone(),
                weight: share.streams.iter().filter_map(|stream| weight.get(stream)).sum(),
                wanted: share.version,
                loaded: worker.handover.pod.as_ref().and_then(|pod| pod.loaded),
                ready: worker.pod.as_ref().is_some_and(|pod| pod.ready),
                error: report.and_then(|report| report.error.clone()),
            }
        };
        let workers: Vec<_> = self.workers.wanted().map(worker).collect();
        let loads: Vec<_> = workers.iter().map(|worker| worker.weight).collect();
        let releasing: Vec<_> = current
            .releasing
            .iter()
            .map(|(key, epoch)| {
                let since = self.memory.releasing.get(key).copied().unwrap_or(self.observed.now);
                (Arc::clone(&key.0), Arc::clone(&key.1), *epoch, since)
            })
            .collect();
        let free: Vec<_> = self.memory.free.iter().map(|(s, at)| (Arc::clone(s), *at)).collect();
        let owned: BTreeSet<_> = current.owners().map(|(stream, _)| stream).collect();
        let let_go: BTreeSet<_> = releasing.iter().map(|(stream, ..)| stream).collect();
        let unassigned: Vec<_> = assignment
            .unassigned
            .iter()
            .filter(|(place, _)| !owned.contains(&self.ids[*place]))
            .map(|(place, reason)| (Arc::clone(&self.ids[*place]), reason.as_str()))
            .collect();
        let counts = Counts {
            owned: self.ids.iter().filter(|id| owned.contains(id)).count(),
            releasing: let_go.len(),
            free: free.len(),
            unassigned: unassigned.len(),
        };
        Told {
            decided: true,
            epoch: current.epoch,
            counts,
            duplicates: self.duplicates(),
            ratio: weights::ratio(&loads),
            workers,
            releasing,
            free,
            unassigned,
            counters: self.memory.told.counters.clone(),
        }
    }

    /// Streams that two pods say they run.
    fn duplicates(&self) -> Vec<Arc<str>> {
        let mut seen = BTreeSet::new();
        let mut twice = BTreeSet::new();
        for worker in &self.workers.all {
            let Some(pod) = worker.pod.as_ref().filter(|pod| !pod.stopped) else { continue };
            let report = self.memory.reports.get(&pod.uid);
            let Some(answer) = report.and_then(|report| report.answer.as_ref()) else { continue };
            for job in &answer.jobs {
                if !seen.insert(job.as_str()) {
                    twice.insert(job.as_str());
                }
            }
        }
        twice.into_iter().map(Arc::from).collect()
    }

    /// A worker that says it has read its list, and runs another.
    fn disobedient(&self) -> Option<Arc<str>> {
        let worker = self.workers.wanted().find(|worker| {
            let Some(share) = self.history.published.shares.get(&worker.name) else { return false };
            let report = worker.pod.as_ref().and_then(|pod| self.memory.reports.get(&pod.uid));
            let Some(answer) = report.and_then(|report| report.answer.as_ref()) else {
                return false;
            };
            let read = answer.version.is_some_and(|version| {
                version >= share.version && version <= self.history.published.epoch
            });
            // One that lists nothing may have no such list.
            let told: BTreeSet<_> = answer.jobs.iter().map(String::as_str).collect();
            let list: BTreeSet<_> = share.streams.iter().map(|stream| &**stream).collect();
            read && !told.is_empty() && told != list
        });
        worker.map(|worker| Arc::clone(&worker.name))
    }

    /// Workers that are waited for longer than the timeout: name, version, why.
    fn stuck(&self, step: &Step) -> Vec<(Arc<str>, Epoch, String)> {
        let now = self.observed.now;
        let old = |since: Instant| now.saturating_duration_since(since) >= self.settings.timeout;
        let mut stuck: BTreeMap<Arc<str>, Epoch> = BTreeMap::new();
        for ((_, worker), since) in &self.memory.releasing {
            let waiting = step.waiting.iter().find(|waiting| waiting.worker == *worker);
            if let Some(waiting) = waiting.filter(|_| old(*since)) {
                stuck.insert(Arc::clone(worker), waiting.epoch);
            }
        }
        for granted in self.memory.granted.values().filter(|granted| old(granted.since)) {
            stuck.entry(Arc::clone(&granted.worker)).or_insert(granted.epoch);
        }
        let why = |worker: &Arc<str>| {
            let waiting = step.waiting.iter().find(|waiting| waiting.worker == *worker);
            self.why(worker, waiting.map(|waiting| waiting.why))
        };
        stuck
            .into_iter()
            .map(|(worker, epoch)| (Arc::clone(&worker), epoch, why(&worker)))
            .collect()
    }

    fn why(&self, name: &Arc<str>, why: Option<Why>) -> String {
        let worker = self.workers.all.iter().find(|worker| worker.name == *name);
        let Some(pod) = worker.and_then(|worker| worker.pod.as_ref()) else {
            return "it has no pod".into();
        };
        if why == Some(Why::Template) {
            return "the StatefulSet's controller has not seen the new template yet".into();
        }
        if pod.terminating {
            return format!(
                "pod {} is being deleted and its containers have not ended; if its node is gone for \
                 good, delete the Node or give it the taint node.kubernetes.io/out-of-service",
                pod.name
            );
        }
        let report = self.memory.reports.get(&pod.uid);
        if let Some(error) = report.and_then(|report| report.error.as_deref()) {
            return error.to_owned();
        }
        if !pod.ready {
            return format!("pod {} is not ready", pod.name);
        }
        let away: Vec<_> = self
            .workers
            .wanted()
            .filter(|worker| !worker.pod.as_ref().is_some_and(|pod| pod.ready))
            .map(|worker| &*worker.name)
            .collect();
        if self.settings.strategy == Strategy::DeletePod
            && away.len() >= self.settings.max_unavailable
        {
            return format!(
                "pod {} is not evicted while {} is not ready (spec.refresh.maxUnavailable)",
                pod.name, away[0]
            );
        }
        format!("pod {} says that it runs an older version", pod.name)
    }

    fn unassigned(&self, told: &Told, notices: &mut Vec<Notice>) {
        let before = self.memory.told.unassigned.len();
        if told.unassigned.len() > before
            && let Some((stream, reason)) = told.unassigned.first()
        {
            let note = format!(
                "{} streams have no worker, e.g. {stream:?}: {reason}",
                told.unassigned.len()
            );
            notices.push(notice(true, "Unassigned", note));
        }
    }

    /// A template without the file is a mistake most of the time.
    fn not_mounted(&self) -> Option<String> {
        let (share, workload) = (self.swarm.config_map(), self.view.workload.as_ref()?);
        let mounts = |map: &str| {
            map == share
                || (self.settings.immutable && super::workers::epoch_of(&share, map).is_some())
        };
        let mounted = workload.mounts.iter().any(|(_, map)| mounts(map));
        (!mounted).then(|| {
            format!(
                "every stream has a worker; but the template of {} {} has no volume of ConfigMap {share}",
                self.settings.kind.as_str(),
                workload.name
            )
        })
    }
}

/// Why a stream left its worker, as the metric says it.
fn word(cause: Cause) -> &'static str {
    match cause {
        Cause::Moved => "moved",
        Cause::Unwanted => "unwanted",
        Cause::Unassigned => "unassigned",
        Cause::Removed => "removed",
        Cause::Duplicate => "duplicate",
    }
}

fn loads(previous: &[Option<usize>], weights: &[f64], workers: usize) -> (Vec<f64>, Vec<usize>) {
    let (mut loads, mut counts) = (vec![0.0; workers], vec![0; workers]);
    for (place, weight) in previous.iter().zip(weights) {
        if let Some(place) = place {
            loads[*place] += weight;
            counts[*place] += 1;
        }
    }
    (loads, counts)
}
