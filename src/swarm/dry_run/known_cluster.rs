//! The cluster as it is known to a command, which can neither ask workers nor write; and what the
//! final assignment supposes of the rest.
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Instant,
};

use kube::core::ObjectMeta;
use serde_json::Value;

use super::Surroundings;
use crate::{
    acknowledgement::Key,
    api::{
        Mode, Swarm, SwarmStatus,
        swarm::{Strategy, WorkloadKind},
    },
    controller::Error,
    swarm::{
        acknowledge::Answer,
        cluster::{Cluster, Eviction},
        handover::{Epoch, Published},
        inspection::Page,
        live::{file_object, part_object},
        plan::{Handed, Immutable, Part, Publish, Scale},
        watches::{MapFacts, PodFacts, WorkloadFacts, WorkloadView},
    },
};

/// By worker: the version that it has acknowledged last (0: it runs no file), or why it does not
/// answer. Workers of which neither is known are not in it.
pub type Reports = BTreeMap<String, Result<Epoch, String>>;

#[must_use]
pub fn reports_of_page(page: &Page) -> Reports {
    let each = page.workers.iter().filter_map(|worker| {
        let silent = || worker.error.clone().map(Err);
        Some((worker.name.clone(), worker.loaded.map(Ok).or_else(silent)?))
    });
    each.collect()
}

/// The status has the first hundred workers.
#[must_use]
pub fn reports_of_status(status: &SwarmStatus) -> Reports {
    let each = status.workers.iter().filter_map(|worker| {
        let loaded = worker.loaded.and_then(|loaded| Epoch::try_from(loaded).ok());
        let silent = || "it has acknowledged no version, by the status".to_owned();
        let silent = (worker.wanted > 0).then(|| Err(silent()));
        Some((worker.name.clone(), loaded.map(Ok).or(silent)?))
    });
    each.collect()
}

pub(super) struct KnownCluster<'a> {
    pub view: WorkloadView,
    pub published: Arc<Published>,
    /// `None`: every worker has read the file.
    reports: Option<&'a Reports>,
}

impl<'a> KnownCluster<'a> {
    pub(super) fn new(
        view: WorkloadView,
        published: Arc<Published>,
        reports: Option<&'a Reports>,
    ) -> Self {
        Self { view, published, reports }
    }

    /// The file is there as if it had been written.
    pub(super) fn write(&mut self, swarm: &Swarm, publish: &Publish) -> Result<(), Error> {
        self.view.share = Some(stored(&file_object(swarm, publish), &publish.data)?);
        for part in &publish.parts {
            let map = stored(&part_object(swarm, part), &part.data)?;
            let place = swarm.parts().iter().position(|name| *name == part.name);
            if let Some(there) = place.and_then(|place| self.view.parts.get_mut(place)) {
                *there = Some(map);
            }
        }
        self.published = Arc::clone(&publish.published);
        Ok(())
    }

    /// The template names an immutable file.
    pub(super) fn pin(&mut self, immutable: &Immutable) {
        let mounts = self.view.workload.iter_mut().flat_map(|workload| &mut workload.mounts);
        for (_, map) in mounts.filter(|(volume, _)| immutable.volumes.contains(volume)) {
            *map = immutable.name.as_str().into();
        }
    }

    /// The workload has exactly the pods that it should, and all of them run.
    pub(super) fn complete(&mut self, kind: WorkloadKind) {
        let WorkloadView { workload: Some(workload), pods, .. } = &mut self.view else { return };
        workload.observed_generation = workload.generation;
        workload.mounts.clear();
        pods.retain(|pod| !pod.terminating && !pod.stopped && !pod.ended);
        match kind {
            WorkloadKind::StatefulSet => {
                let there = pods.drain(..).map(|pod| (Arc::clone(&pod.name), pod));
                let mut there: BTreeMap<_, _> = there.collect();
                let WorkloadFacts { name, start, replicas, .. } = workload;
                pods.extend((*start..start.saturating_add(*replicas)).map(|ordinal| {
                    let name: Arc<str> = format!("{name}-{ordinal}").into();
                    there.remove(&name).unwrap_or_else(|| PodFacts {
                        uid: Arc::clone(&name),
                        name,
                        ..PodFacts::default()
                    })
                }));
            }
            WorkloadKind::Deployment => {
                let newest = pods.iter().max_by_key(|pod| (pod.created, &pod.name));
                let template =
                    newest.and_then(|pod| pod.template.clone()).unwrap_or_else(|| "new".into());
                let set = format!("{}-{template}", workload.name);
                let wanted = usize::try_from(workload.replicas).unwrap_or(usize::MAX);
                pods.extend((pods.len()..wanted).map(|n| {
                    let name: Arc<str> = format!("{set}-new-{}", n + 1).into();
                    PodFacts {
                        uid: Arc::clone(&name),
                        name,
                        controller: Some(("ReplicaSet".into(), set.as_str().into())),
                        template: Some(template.clone()),
                        ..PodFacts::default()
                    }
                }));
            }
        }
        for pod in &mut *pods {
            pod.node.get_or_insert_with(|| "?".into());
            pod.ip.get_or_insert(IpAddr::V4(Ipv4Addr::LOCALHOST));
            (pod.started, pod.ready) = (true, true);
            pod.mounts.clear();
        }
        pods.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

/// A `ConfigMap` as the API server would return it.
fn stored(object: &Value, data: &BTreeMap<String, String>) -> Result<MapFacts, Error> {
    let metadata = serde_json::from_value::<ObjectMeta>(object["metadata"].clone());
    let metadata = metadata.map_err(|error| Error::Invalid(error.to_string()))?;
    Ok(MapFacts::new(&metadata, Arc::new(data.clone())))
}

fn no_writes<T>() -> Result<T, Error> {
    Err(Error::Refused("this command writes nothing".into()))
}

impl Cluster for KnownCluster<'_> {
    fn now(&self) -> Instant {
        Instant::now()
    }

    async fn pod(&self, name: &str) -> Result<Option<PodFacts>, Error> {
        Ok(self.view.pods.iter().find(|pod| *pod.name == *name).cloned())
    }

    async fn pods(&self, _: &WorkloadFacts) -> Result<Vec<PodFacts>, Error> {
        Ok(self.view.pods.clone())
    }

    async fn ask(&self, pod: &PodFacts, _: Option<&Key>) -> Result<Answer, String> {
        let version = match self.reports.map(|reports| reports.get(&*pod.name)) {
            None => self.published.epoch,
            Some(Some(report)) => report.clone()?,
            Some(None) => 0,
        };
        let share = self.published.shares.get(&pod.name).filter(|share| version >= share.version);
        let streams = share.filter(|_| version > 0).map(|share| &share.streams);
        let jobs = streams.into_iter().flatten().map(ToString::to_string).collect();
        let version = Some(version).filter(|version| *version > 0);
        Ok(Answer { version, jobs: Some(jobs), prepared: None })
    }

    fn secret(&self) -> Option<Arc<str>> {
        None
    }

    async fn pinned(&self) -> Result<Vec<String>, Error> {
        Ok(vec![])
    }

    async fn publish(&self, _: &Publish) -> Result<Option<ObjectMeta>, Error> {
        no_writes()
    }

    fn published(&self, _: &ObjectMeta, _: &Publish) {}

    async fn part(&self, _: &Part) -> Result<bool, Error> {
        no_writes()
    }

    async fn pin(&self, _: Immutable) -> Result<(), Error> {
        no_writes()
    }

    async fn unpin(&self, _: &str) -> Result<(), Error> {
        no_writes()
    }

    async fn evict(&self, _: &str, _: &str) -> Result<Eviction, Error> {
        no_writes()
    }

    async fn nudge(&self, _: &str, _: &str, _: Epoch) -> Result<bool, Error> {
        no_writes()
    }

    async fn grant(&self, _: &Handed, _: Epoch, _: Option<&Key>) {}

    async fn scale(&self, _: Scale) -> Result<(), Error> {
        no_writes()
    }
}

/// The number of workers that are named in one line.
const NAMED: usize = 5;

/// What the final assignment supposes: facts that cannot be known beforehand, or not from where a
/// command runs.
pub(super) fn supposed(swarm: &Swarm, around: &Surroundings) -> Vec<String> {
    let mut all = Vec::new();
    let spec = &swarm.spec;
    if spec.paused {
        all.push("spec.paused is false: while it is true, nothing is decided or written".into());
    }
    if spec.mode == Mode::Observe {
        all.push("spec.mode is Enforce: with Observe, none of this is written".into());
    }
    let mut pods = |which: &dyn Fn(&PodFacts) -> bool, text: &str| {
        let pods = around.view.pods.iter().filter(|pod| !pod.stopped && which(pod));
        let pods: Vec<_> = pods.map(|pod| &*pod.name).collect();
        if !pods.is_empty() {
            all.push(format!("{}: {text}", names(&pods)));
        }
    };
    let going = |pod: &PodFacts| pod.terminating || pod.ended;
    pods(
        &going,
        "the containers end. If the node is gone for good, confirm it: \
         docs/reference/swarm.md#unreachable-nodes",
    );
    pods(&|pod| !going(pod) && !pod.ready, "not ready, and becomes ready");
    let report = |pod: &PodFacts| around.reports.get(&*pod.name);
    pods(
        &|pod| report(pod).is_some_and(Result::is_err),
        "does not answer, and keeps its streams until it does or its pod is gone",
    );
    let refresh = &spec.refresh;
    let unknown = format!(
        "what they run is unknown here. They run no stream of another file, and answer the operator \
         at port {}, path {}",
        refresh.port, refresh.path
    );
    pods(&|pod| pod.started && !pod.terminating && report(pod).is_none(), &unknown);
    if spec.weights.is_some() {
        all.push(
            "spec.weights: this command does not ask Prometheus; streams weigh what spec.streams says, 1 \
             each if it says nothing, and the operator's endpoint is configured"
                .into(),
        );
    }
    if refresh.strategy == Some(Strategy::None) {
        all.push("spec.refresh.strategy None: someone makes each worker load its new list".into());
    }
    let workload = around.view.workload.as_ref();
    if spec.workload.kind == WorkloadKind::Deployment
        && workload.is_some_and(|workload| workload.observed_generation < workload.generation)
    {
        all.push("the Deployment is rolling out: run this again once it has ended".into());
    }
    all
}

/// The first of them, and the number of the others.
pub(super) fn names(all: &[&str]) -> String {
    let first = all[..all.len().min(NAMED)].join(", ");
    if all.len() > NAMED { format!("{first} and {} more", all.len() - NAMED) } else { first }
}
