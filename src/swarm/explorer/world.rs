//! A small world: an API server, kubelets, workers, and the operator's process between two passes.
use std::{
    cell::RefCell,
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use serde_json::json;

use crate::{
    api::Swarm,
    swarm::{
        file,
        ground::{self, MapFacts, PodFacts, View, WorkloadFacts},
        memory::Memory,
        plan::Desired,
    },
};

/// The most workers, and streams, that a world has.
pub(super) const WORKERS: usize = 3;

/// The streams.
pub(super) const STREAMS: [&str; 3] = ["a", "b", "c"];

/// A set of streams, a bit for each.
pub(super) type Set = u8;

/// One version of the file, as workers read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Read {
    pub epoch: u64,
    pub lists: [Set; WORKERS],
    /// Not by the operator.
    pub foreign: bool,
}

/// What the API server says of a pod's one container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Reported {
    #[default]
    Nothing,
    Running,
    Terminated,
}

/// A pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "independent properties")]
pub(super) struct Pod {
    /// How many of its name came before it: its UID.
    pub serial: u8,
    /// Whether its container runs.
    pub running: bool,
    /// It has run before.
    pub restarted: bool,
    /// Which version its kubelet has delivered; 0: none.
    pub delivered: u8,
    /// Which version its process has read.
    pub read: u8,
    /// What it runs.
    pub run: Set,
    pub reported: Reported,
    /// Its phase is final: it never runs anything again.
    pub ended: bool,
    pub terminating: bool,
    /// The last nudge.
    pub nudged: u64,
    /// Nothing gets to its node or comes from there.
    pub cut: bool,
}

/// What the operator has decided and not yet done.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    pub desired: Desired,
    /// What the status is to say.
    pub told: (i64, u64),
}

/// Everything.
#[derive(Clone, Debug)]
pub(super) struct World {
    /// The `ConfigMap`.
    pub map: Option<Arc<MapFacts>>,
    /// All versions of the file that there ever were, by anybody.
    pub history: Arc<Vec<Read>>,
    /// The version that the status of the `Swarm` says, and a fingerprint of all of it.
    pub told: (i64, u64),
    /// Whether the last pass said Ready=False.
    pub complained: bool,
    /// Which of the plot's wishes stands in the spec.
    pub wish: usize,
    pub pods: [Option<Pod>; WORKERS],
    /// How many pods of each name there were.
    pub serials: [u8; WORKERS],
    /// What the operator's watch of pods has brought, if it may be late.
    pub cache: [Option<Pod>; WORKERS],
    pub memory: Memory,
    pub decided: Option<Arc<Decided>>,
    /// Passes so far: the clock.
    pub passes: u32,
    /// A pod started a stream by a file of the operator while another ran it.
    pub twice: bool,
    /// Writes of the operator so far, those of the status among them.
    pub writes: u32,
    pub changes: u8,
    pub faults: u8,
    pub crashes: u8,
}

/// What the user wants: so many workers, and this `Swarm`.
pub(super) struct Wish {
    pub replicas: usize,
    pub swarm: Swarm,
}

/// What kind of world.
pub(super) struct Plot {
    pub workers: usize,
    pub wishes: Vec<Wish>,
    /// How often the user changes something, a fault happens, the operator is killed.
    pub changes: u8,
    pub faults: u8,
    pub crashes: u8,
    /// Workers answer nothing.
    pub silent: bool,
    /// Workers read what is delivered while they run.
    pub reloads: bool,
    /// The watch of pods may be late.
    pub cached: bool,
    /// Which changes and faults there are.
    pub hazards: &'static [Hazard],
}

/// What may go wrong, or be done by people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hazard {
    /// A container crashes, and its kubelet starts it again.
    Restarts,
    /// Somebody deletes a pod.
    Deletions,
    /// A node is cut off.
    Cuts,
    /// Somebody edits the file.
    Edits,
    /// Somebody gives each worker the list of the other in the file.
    Swaps,
    /// Somebody deletes the file.
    Losses,
    /// The `Swarm` is deleted, its file goes with it, and it is applied again.
    Reapplied,
}

impl World {
    pub(super) fn beginning(plot: &Plot) -> Self {
        Self {
            map: None,
            history: Arc::new(vec![Read { epoch: 0, lists: [0; WORKERS], foreign: false }]),
            told: (0, 0),
            complained: false,
            wish: 0,
            pods: [None; WORKERS],
            serials: [0; WORKERS],
            cache: [None; WORKERS],
            memory: Memory::default(),
            decided: None,
            passes: 0,
            twice: false,
            writes: 0,
            changes: plot.changes,
            faults: plot.faults,
            crashes: plot.crashes,
        }
    }

    /// The newest version of the file.
    pub(super) fn newest(&self) -> u8 {
        u8::try_from(self.history.len() - 1).expect("short histories")
    }

    /// What a version lists for a worker.
    pub(super) fn list(&self, version: u8, worker: usize) -> Set {
        self.history[usize::from(version)].lists[worker]
    }

    /// Somebody has written the file.
    pub(super) fn wrote(&mut self, facts: MapFacts, key: &str, foreign: bool) {
        let config = facts.data.get(key).map_or("", String::as_str);
        let parsed = file::parse(config, None).expect("a file").published;
        let lists = std::array::from_fn(|w| {
            let share = parsed.shares.get(&*name(w));
            let listed = share.into_iter().flat_map(|share| &share.streams);
            listed.fold(0, |set, stream| set | 1 << place(stream))
        });
        Arc::make_mut(&mut self.history).push(Read { epoch: parsed.epoch, lists, foreign });
        let facts = MapFacts { resource_version: self.newest().to_string(), ..facts };
        self.map = Some(Arc::new(facts));
    }

    /// A worker runs what a version lists, beside what it ran.
    pub(super) fn start(&mut self, w: usize, version: u8) {
        let list = self.list(version, w);
        let others = self.pods.iter().enumerate().filter(|(other, _)| *other != w);
        let others = others.fold(0, |set, (_, pod)| set | pod.map_or(0, |pod| pod.run));
        let foreign = self.history[usize::from(version)].foreign;
        let Some(pod) = &mut self.pods[w] else { return };
        self.twice |= !foreign && list & !pod.run & others != 0;
        pod.run |= list;
    }

    /// What the operator's watches have brought.
    pub(super) fn view(&self, plot: &Plot) -> View {
        let pods = if plot.cached { &self.cache } else { &self.pods };
        let pods = (0..WORKERS).filter_map(|w| pods[w].map(|pod| facts(w, &pod))).collect();
        View {
            workload: Some(self.workload(plot)),
            share: self.map.as_deref().cloned(),
            source: None,
            fitness: None,
            pods,
        }
    }

    pub(super) fn workload(&self, plot: &Plot) -> WorkloadFacts {
        let replicas = u32::try_from(plot.wishes[self.wish].replicas).expect("few");
        WorkloadFacts {
            name: "w".into(),
            uid: "w".into(),
            replicas,
            mounts: vec![("shares".into(), "w-config".into())],
            ..WorkloadFacts::default()
        }
    }

    /// Whether two states are the same for everything that can come: not the clock, nor what was counted.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        if let Some(map) = &self.map {
            (&map.resource_version, &map.content, &map.data).hash(&mut hasher);
        }
        (&self.history, self.told.0, self.wish, self.pods, self.serials).hash(&mut hasher);
        (self.cache, self.changes, self.faults, self.crashes).hash(&mut hasher);
        remembered(&self.memory, &mut hasher);
        if let Some(decided) = &self.decided {
            let Desired { publish, refresh, memory, .. } = &decided.desired;
            format!("{:?} {refresh:?}", publish.as_ref().map(|p| (&p.data, &p.on)))
                .hash(&mut hasher);
            if let Some(memory) = memory {
                remembered(memory, &mut hasher);
            }
        }
        hasher.finish()
    }
}

/// All of a memory that a decision rests on; times apart: whatever began in an earlier pass has lasted
/// long enough.
fn remembered(memory: &Memory, hasher: &mut DefaultHasher) {
    for (uid, report) in &memory.reports {
        (uid, report.loaded, report.failures.min(3)).hash(hasher);
        let answer = report.answer.as_ref();
        answer.map(|answer| (answer.version, &answer.jobs)).hash(hasher);
    }
    (&memory.born, memory.looked, &memory.untold, &memory.stuck).hash(hasher);
    format!("{:?}", memory.published).hash(hasher);
    memory.free.keys().for_each(|stream| stream.hash(hasher));
    memory.refused.keys().for_each(|worker| worker.hash(hasher));
    memory.absent.keys().for_each(|worker| worker.hash(hasher));
    memory.evictions.fingerprint().hash(hasher);
    (&memory.heirs, &memory.listed).hash(hasher);
    (memory.barrier.is_some(), memory.awaiting.is_some()).hash(hasher);
}

/// The name of a worker.
pub(super) fn name(worker: usize) -> Arc<str> {
    format!("w-{worker}").into()
}

/// Which worker has a name.
pub(super) fn worker(name: &str) -> usize {
    (0..WORKERS).find(|w| *self::name(*w) == *name).expect("a worker")
}

/// Which stream has an id.
pub(super) fn place(stream: &str) -> usize {
    STREAMS.iter().position(|known| *known == stream).expect("a stream")
}

/// A pod as the API server has it, read as the operator reads it.
pub(super) fn facts(worker: usize, pod: &Pod) -> PodFacts {
    // What the API server does not know is nothing to it, and reading the same again takes long.
    let known = Pod { running: false, delivered: 0, read: 0, run: 0, ..*pod };
    FACTS.with_borrow_mut(|all| {
        let facts = all.entry((worker, known)).or_insert_with(|| object(worker, pod));
        facts.clone()
    })
}

thread_local! {
    static FACTS: RefCell<HashMap<(usize, Pod), PodFacts>> = RefCell::default();
}

fn object(worker: usize, pod: &Pod) -> PodFacts {
    let state = match pod.reported {
        Reported::Nothing => json!({"waiting": {}}),
        Reported::Running => json!({"running": {}}),
        Reported::Terminated => json!({"terminated": {"exitCode": 1}}),
    };
    let ready = pod.reported == Reported::Running && !pod.terminating && !pod.cut;
    let phase = match pod.reported {
        _ if pod.ended => "Failed",
        Reported::Nothing => "Pending",
        Reported::Running | Reported::Terminated => "Running",
    };
    let deleted = pod.terminating.then_some("2026-01-01T00:00:00Z");
    ground::read_pod(json!({
        "metadata": {
            "name": *name(worker), "uid": format!("w-{worker}/{}", pod.serial),
            "deletionTimestamp": deleted,
            "annotations": {ground::NUDGE: pod.nudged.to_string()},
        },
        "spec": {
            "nodeName": "n", "containers": [{"name": "worker"}],
            "volumes": [{"name": "shares", "configMap": {"name": "w-config"}}],
        },
        "status": {
            "phase": phase, "podIP": format!("10.0.0.{}", worker + 1),
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            "containerStatuses": [
                {"name": "worker", "restartCount": i32::from(pod.restarted), "state": state}
            ],
        },
    }))
}

/// A `Swarm` of these streams.
pub(super) fn swarm(streams: &[&str], refresh: &str, mode: &str) -> Swarm {
    serde_json::from_value(json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "Swarm",
        "metadata": {"name": "s", "namespace": "n", "uid": "s"},
        "spec": {
            "workload": {"name": "w"}, "jobs": streams, "mode": mode, "refresh": {"strategy": refresh},
        }
    }))
    .expect("a Swarm")
}

/// The streams of a set.
pub(super) fn streams(set: Set) -> Vec<String> {
    let listed = STREAMS.iter().enumerate().filter(|(s, _)| set >> s & 1 == 1);
    listed.map(|(_, stream)| (*stream).to_owned()).collect()
}
