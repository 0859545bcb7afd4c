//! A simulated cluster: it begins like the real one, and everything that is done in it succeeds.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;

use super::{
    GATHERED,
    known::{Known, LastReport},
};
use crate::{
    acknowledgement::Key,
    api::{Swarm, swarm::Strategy, swarm::WorkloadKind},
    controller::Error,
    swarm::{
        acknowledge::Answer,
        cluster::{Cluster, Eviction},
        handover::{Epoch, Published},
        live::{file_object, part_object},
        memory::Memory,
        plan::{Immutable, Part, Publish, Scale},
        polls,
        watches::{MapFacts, PodFacts, WorkloadFacts, WorkloadView},
    },
};

/// The process of a pod.
#[derive(Clone, Debug)]
struct Process {
    /// The version that it has read; 0: none.
    read: Epoch,
    /// The reason for its silence.
    silent: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
struct State {
    now: Instant,
    view: WorkloadView,
    published: Arc<Published>,
    /// By UID.
    processes: BTreeMap<Arc<str>, Process>,
    /// Evicted pods, which the next pass does not see: they are recreated on the same node.
    evicted: BTreeMap<Arc<str>, PodFacts>,
    /// Objects and writes so far.
    serial: u64,
    files: u64,
    refreshes: Vec<(Arc<str>, &'static str)>,
    scaled: Option<u32>,
}

/// A cluster in which every pod starts, ends and reads as it should; silent workers stay silent.
pub(super) struct SimulatedCluster<'a> {
    swarm: &'a Swarm,
    known: &'a Known,
    state: Mutex<State>,
}

/// The simulated actions.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    /// Files written.
    pub files: u64,
    /// The simulated actions on workers' pods, in this order.
    pub refreshes: Vec<(Arc<str>, &'static str)>,
    /// Number of workers set by autoscaling.
    pub scaled: Option<u32>,
}

impl<'a> SimulatedCluster<'a> {
    pub(super) fn new(
        swarm: &'a Swarm,
        known: &'a Known,
        view: WorkloadView,
        now: Instant,
    ) -> Self {
        let published = polls::published(swarm, &view, &Memory::default()).unwrap_or_default();
        let each = view.pods.iter().map(|pod| {
            let (read, silent) = match known.last_report(&pod.name) {
                LastReport::Acknowledged(read) => (*read, None),
                LastReport::Silent(why) => (0, Some(Arc::clone(why))),
                LastReport::Unknown => (0, None),
            };
            (Arc::clone(&pod.uid), Process { read, silent })
        });
        let state = State {
            now,
            processes: each.collect(),
            view,
            published,
            evicted: BTreeMap::new(),
            serial: 0,
            files: 0,
            refreshes: vec![],
            scaled: None,
        };
        Self { swarm, known, state: Mutex::new(state) }
    }

    /// Returns the simulated state.
    pub(super) fn view(&self) -> WorkloadView {
        self.state().view.clone()
    }

    /// Returns the simulated actions.
    pub(super) fn done(&self) -> Done {
        let state = self.state();
        let State { files, refreshes, scaled, .. } = &*state;
        Done { files: *files, refreshes: refreshes.clone(), scaled: *scaled }
    }

    /// Lets some time pass: pods end, are created and become ready. Returns whether anything
    /// changed.
    pub(super) fn advance(&self, time: Duration) -> bool {
        let mut state = self.state();
        state.now += time;
        if self.swarm.strategy() != Strategy::DeletePod && time >= GATHERED {
            // Kubelets deliver it by themselves, too.
            state.deliver(|_| true);
        }
        let before = state.view.clone();
        state.end();
        state.start(self.known);
        let Some(workload) = state.view.workload.clone() else { return false };
        match self.swarm.spec.workload.kind {
            WorkloadKind::StatefulSet => state.fill(&workload, self.known),
            WorkloadKind::Deployment => state.replicate(&workload),
        }
        state.view.pods.sort_by(|a, b| a.name.cmp(&b.name));
        state.view != before
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether workers read each file without an action of the operator.
    fn reloads(&self) -> bool {
        self.swarm.strategy() == Strategy::None
    }
}

impl State {
    /// These pods have read the file.
    fn deliver(&mut self, which: impl Fn(&str) -> bool) {
        let epoch = self.published.epoch;
        for (_, process) in self.processes.iter_mut().filter(|(uid, _)| which(uid)) {
            process.read = epoch;
        }
    }

    /// Pods that are on their way out are gone.
    fn end(&mut self) {
        let going = |pod: &PodFacts| pod.terminating || pod.stopped || pod.ended;
        self.view.pods.retain(|pod| !going(pod));
        if let Some(workload) = &mut self.view.workload {
            workload.observed_generation = workload.generation;
        }
    }

    /// Starts pods that wait for a node, an image or their file.
    fn start(&mut self, known: &Known) {
        let file = self.published.epoch;
        if self.view.share.is_none() {
            return;
        }
        for pod in &mut self.view.pods {
            pod.node.get_or_insert_with(|| "?".into());
            pod.ip.get_or_insert(IpAddr::V4(Ipv4Addr::LOCALHOST));
            if !pod.started {
                let silent = known.silence(&pod.name);
                self.processes.insert(Arc::clone(&pod.uid), Process { read: file, silent });
            }
            pod.started = true;
            pod.ready = true;
        }
    }

    /// A `StatefulSet` has exactly its ordinals. A pod evicted a pass ago is recreated.
    fn fill(&mut self, workload: &WorkloadFacts, known: &Known) {
        let WorkloadFacts { name, start, replicas, .. } = workload;
        let wanted: BTreeSet<Arc<str>> = (*start..start.saturating_add(*replicas))
            .map(|n| format!("{name}-{n}").into())
            .collect();
        let own = |pod: &PodFacts| {
            let ordinal = pod.name.strip_prefix(&**name).and_then(|rest| rest.strip_prefix('-'));
            ordinal.is_some_and(|ordinal| ordinal.parse::<u32>().is_ok())
        };
        self.view.pods.retain(|pod| !own(pod) || wanted.contains(&pod.name));
        let there: BTreeSet<_> = self.view.pods.iter().map(|pod| Arc::clone(&pod.name)).collect();
        let evicted = std::mem::take(&mut self.evicted);
        for name in wanted.difference(&there) {
            let node = match evicted.get(name) {
                // No pass has seen its deletion yet.
                Some(pod) if pod.terminating => {
                    let gone = PodFacts { terminating: false, ..pod.clone() };
                    self.evicted.insert(Arc::clone(name), gone);
                    continue;
                }
                Some(pod) => pod.node.clone(),
                None => None,
            };
            let silent = known.silence(name);
            self.make(Arc::clone(name), ("StatefulSet", &workload.name), None, (node, silent));
        }
    }

    /// A Deployment has as many pods as it should, of its newest revision.
    fn replicate(&mut self, workload: &WorkloadFacts) {
        let newest = self.view.pods.iter().max_by_key(|pod| (pod.created, &pod.name));
        let template = newest.and_then(|pod| pod.template.clone()).unwrap_or_else(|| "new".into());
        let wanted = usize::try_from(workload.replicas).unwrap_or(usize::MAX);
        let set = format!("{}-{template}", workload.name);
        for n in 1..=wanted.saturating_sub(self.view.pods.len()) {
            let name = format!("{set}-new-{n}").into();
            self.make(name, ("ReplicaSet", &set), Some(template.clone()), (None, None));
        }
    }

    fn make(
        &mut self,
        name: Arc<str>,
        (kind, of): (&str, &str),
        template: Option<Box<str>>,
        (node, silent): (Option<Box<str>>, Option<Arc<str>>),
    ) {
        self.serial += 1;
        let uid: Arc<str> = format!("on-simulated-{}", self.serial).into();
        let mounts = self.view.workload.iter().flat_map(|workload| &workload.mounts);
        // A pod waits until its file exists.
        let up = self.view.share.is_some();
        let read = if up { self.published.epoch } else { 0 };
        self.processes.insert(Arc::clone(&uid), Process { read, silent });
        self.view.pods.push(PodFacts {
            name,
            uid,
            created: Some(Timestamp::now()),
            controller: Some((kind.into(), of.into())),
            template,
            node: Some(node.unwrap_or_else(|| "?".into())),
            ip: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            ready: up,
            terminating: false,
            stopped: false,
            ended: false,
            started: up,
            trouble: None,
            mounts: mounts.map(|(_, map)| map.clone()).collect(),
            nudged: None,
            // The simulation has no forgery.
            signs: true,
        });
    }
}

impl Cluster for SimulatedCluster<'_> {
    fn now(&self) -> Instant {
        self.state().now
    }

    async fn pod(&self, name: &str) -> Result<Option<PodFacts>, Error> {
        Ok(self.state().view.pods.iter().find(|pod| *pod.name == *name).cloned())
    }

    async fn pods(&self, _: &WorkloadFacts) -> Result<Vec<PodFacts>, Error> {
        Ok(self.state().view.pods.clone())
    }

    async fn ask(&self, pod: &PodFacts, _: Option<&Key>) -> Result<Answer, String> {
        let mut state = self.state();
        let (epoch, listed) =
            (state.published.epoch, state.published.shares.get(&pod.name).cloned());
        let Some(process) = state.processes.get_mut(&pod.uid) else {
            return Err("there is no such pod".into());
        };
        if let Some(why) = &process.silent {
            return Err(why.to_string());
        }
        if self.reloads() {
            process.read = epoch;
        }
        let version = Some(process.read).filter(|version| *version > 0);
        let list = listed.filter(|share| version.is_some_and(|version| version >= share.version));
        let jobs = list.map(|share| share.streams.iter().map(ToString::to_string).collect());
        Ok(Answer { version, jobs: Some(jobs.unwrap_or_default()) })
    }

    fn secret(&self) -> Option<Arc<str>> {
        None
    }

    async fn publish(&self, publish: &Publish) -> Result<Option<ObjectMeta>, Error> {
        let mut state = self.state();
        state.serial += 1;
        state.files += 1;
        let object = file_object(self.swarm, publish);
        let read = serde_json::from_value::<ObjectMeta>(object["metadata"].clone());
        let mut metadata = read.map_err(|error| Error::Invalid(error.to_string()))?;
        metadata.resource_version = Some(format!("on-simulated-{}", state.serial));
        state.view.share = Some(MapFacts::new(&metadata, Arc::new(publish.data.clone())));
        state.published = Arc::clone(&publish.published);
        Ok(Some(metadata))
    }

    fn published(&self, _: &ObjectMeta, _: &Publish) {}

    async fn part(&self, part: &Part) -> Result<bool, Error> {
        let mut state = self.state();
        state.serial += 1;
        let object = part_object(self.swarm, part);
        let read = serde_json::from_value::<ObjectMeta>(object["metadata"].clone());
        let mut metadata = read.map_err(|error| Error::Invalid(error.to_string()))?;
        metadata.resource_version = Some(format!("on-simulated-{}", state.serial));
        let place = self.swarm.parts().iter().position(|name| *name == part.name);
        if let Some(there) = place.and_then(|place| state.view.parts.get_mut(place)) {
            *there = Some(MapFacts::new(&metadata, Arc::new(part.data.clone())));
        }
        Ok(true)
    }

    async fn pin(&self, immutable: Immutable) -> Result<(), Error> {
        if let Some(workload) = &mut self.state().view.workload {
            for (volume, map) in &mut workload.mounts {
                if immutable.volumes.contains(volume) {
                    *map = immutable.name.as_str().into();
                }
            }
        }
        Ok(())
    }

    async fn pinned(&self) -> Result<Vec<String>, Error> {
        Ok(vec![])
    }

    async fn unpin(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    async fn evict(&self, worker: &str, uid: &str) -> Result<Eviction, Error> {
        let mut state = self.state();
        let place = state.view.pods.iter().position(|pod| *pod.uid == *uid);
        let Some(place) = place else { return Ok(Eviction::Gone) };
        let pod = state.view.pods.remove(place);
        let gone = PodFacts { terminating: true, ..pod };
        state.evicted.insert(Arc::clone(&gone.name), gone);
        state.refreshes.push((worker.into(), "evicted"));
        Ok(Eviction::Done)
    }

    async fn nudge(&self, worker: &str, uid: &str, epoch: Epoch) -> Result<bool, Error> {
        let mut state = self.state();
        let Some(pod) = state.view.pods.iter_mut().find(|pod| *pod.uid == *uid) else {
            return Ok(false);
        };
        pod.nudged = Some(epoch);
        state.deliver(|known| *known == *uid);
        state.refreshes.push((worker.into(), "reloaded"));
        Ok(true)
    }

    async fn scale(&self, scale: Scale) -> Result<(), Error> {
        let mut state = self.state();
        state.scaled = Some(scale.to);
        if let Some(workload) = &mut state.view.workload {
            workload.replicas = scale.to;
        }
        Ok(())
    }
}
