//! The objects that the `Swarm`s depend on: workloads, their pods, `ConfigMap`s, with one watch for
//! each.
//!
//! Only what a `Swarm` names is watched: without one, nothing is.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::Stream;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::{
    Client, Resource,
    api::ListParams,
    core::{NamespaceResourceScope, ObjectMeta},
};
use serde::de::DeserializeOwned;
use tokio::sync::watch as signal;

use crate::{
    api::{Swarm, swarm::WorkloadKind},
    controller::Error,
    infra::{
        Api,
        watch::{self, Changes, Mirror},
    },
    selector::Selector,
};

mod facts;
mod follower;
mod objects;

#[cfg(test)]
pub use facts::ACKNOWLEDGEMENTS;
use facts::fitness_label;
pub use facts::{CONTENT, GIVEN, MapFacts, NUDGE, PodFacts, WorkloadFacts};
use objects::{Fitness, MapObject, WorkloadObject};

pub use crate::controller::Key;

/// One watch. The first text is the namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Watched {
    /// By name.
    Workload(WorkloadKind, String, String),
    /// By name.
    Map(String, String),
    /// By name.
    Fitness(String, String),
    /// By label selector.
    Pods(String, String),
}

/// The objects of one watch, by name.
type Seen<V> = Mirror<String, V>;

#[derive(Default)]
struct State {
    workloads: HashMap<Watched, Seen<WorkloadFacts>>,
    maps: HashMap<Watched, Seen<MapFacts>>,
    fitness: HashMap<Watched, Seen<String>>,
    pods: HashMap<Watched, Seen<PodFacts>>,
    /// The watches that each `Swarm` needs.
    needs: HashMap<Key, BTreeSet<Watched>>,
    /// The last known selector of each `Swarm`'s workload: its pods outlive it.
    selectors: HashMap<Key, String>,
}

impl State {
    fn is_synced(&self, watched: &Watched) -> bool {
        match watched {
            Watched::Workload(..) => self.workloads.get(watched).is_some_and(Mirror::is_synced),
            Watched::Map(..) => self.maps.get(watched).is_some_and(Mirror::is_synced),
            Watched::Fitness(..) => self.fitness.get(watched).is_some_and(Mirror::is_synced),
            Watched::Pods(..) => self.pods.get(watched).is_some_and(Mirror::is_synced),
        }
    }
}

/// The objects that one `Swarm` depends on, in their current state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadView {
    /// Its workload, if it is there.
    pub workload: Option<WorkloadFacts>,
    /// The `ConfigMap` with the shares, if it is there.
    pub share: Option<MapFacts>,
    /// The parts of a divided file, in their order, each if it is there.
    pub parts: Vec<Option<MapFacts>>,
    /// The `ConfigMap` with the streams, if one is named and is there.
    pub source: Option<MapFacts>,
    /// The key of the label that marks nodes unfit, if `fitnessRef` names an existing
    /// `TrafficWatch`.
    pub fitness: Option<String>,
    /// The pods that match the workload's selector, by name.
    pub pods: Vec<PodFacts>,
}

/// The cached objects; clones share them.
#[derive(Clone, Default)]
pub struct WorkloadCache(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changes: Changes<Key>,
    /// Counts the received events, so that callers can wait for them.
    learned: signal::Sender<u64>,
}

impl WorkloadCache {
    /// Returns the objects that a `Swarm` depends on; `None` until all of them were listed.
    #[must_use]
    pub fn view(&self, swarm: &Swarm) -> Option<WorkloadView> {
        let (key, names) = (swarm.key(), Names::of(swarm));
        let state = self.state();
        let synced = |watched: &Watched| state.is_synced(watched);
        if !names.all().all(|watched| synced(&watched)) {
            return None;
        }
        let workload = only(state.workloads.get(&names.workload));
        let selector = state.selectors.get(&key);
        // Without the selector that the workload has now its pods are not known; none would look as
        // if all of them had ended.
        if let Some(workload) = &workload
            && query(workload).as_ref() != selector
        {
            return None;
        }
        let pods = match selector {
            None => vec![],
            Some(selector) => {
                let seen = state.pods.get(&Watched::Pods(key.0.clone(), selector.clone()))?;
                if !seen.is_synced() {
                    return None;
                }
                seen.iter().map(|(_, pod)| pod.clone()).collect()
            }
        };
        let map = |watched: &Watched| only(state.maps.get(watched));
        Some(WorkloadView {
            workload,
            share: map(&names.share),
            parts: names.parts.iter().map(map).collect(),
            source: names.source.as_ref().and_then(map),
            fitness: names.fitness.as_ref().and_then(|name| only(state.fitness.get(name))),
            pods,
        })
    }

    /// Returns a receiver to wait for new facts.
    #[must_use]
    pub fn learned(&self) -> signal::Receiver<u64> {
        self.0.learned.subscribe()
    }

    /// Returns the `Swarm`s whose surroundings changed; never ends.
    pub fn changes(&self) -> impl Stream<Item = Key> + Send + 'static + use<> {
        self.0.changes.stream()
    }

    /// Takes the answer to a write of ours to a `ConfigMap` with shares, so that the next pass sees
    /// it before the watch delivers it.
    pub fn wrote(&self, swarm: &Swarm, metadata: &ObjectMeta, data: Arc<BTreeMap<String, String>>) {
        let name = metadata.name.as_deref().unwrap_or_default();
        let watched = Watched::Map(swarm.key().0, name.to_owned());
        if let Some(seen) = self.state().maps.get_mut(&watched) {
            let facts = MapFacts::new(metadata, data);
            seen.wrote(name.to_owned(), watch::version(metadata), facts);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that something about `watched` changed.
    fn changed(&self, watched: &Watched) {
        let state = self.state();
        let who = state.needs.iter().filter(|(_, needs)| needs.contains(watched));
        self.0.changes.add(who.map(|(key, _)| key.clone()));
        drop(state);
        self.0.learned.send_modify(|count| *count = count.wrapping_add(1));
    }
}

fn only<V: Clone>(seen: Option<&Seen<V>>) -> Option<V> {
    seen.and_then(|seen| seen.iter().next()).map(|(_, facts)| facts.clone())
}

/// The names in a spec.
struct Names {
    workload: Watched,
    share: Watched,
    parts: Vec<Watched>,
    source: Option<Watched>,
    fitness: Option<Watched>,
}

impl Names {
    fn of(swarm: &Swarm) -> Self {
        let (namespace, _) = swarm.key();
        let spec = &swarm.spec;
        let map = |name: String| Watched::Map(namespace.clone(), name);
        let source = spec.streams_from.as_ref().map(|from| &from.config_map_key_ref.name);
        let fitness = spec.fitness_ref.as_ref().map(|watch| watch.name.clone());
        let workload = &spec.workload;
        Self {
            workload: Watched::Workload(workload.kind, namespace.clone(), workload.name.clone()),
            share: map(swarm.config_map()),
            parts: swarm.parts().into_iter().map(map).collect(),
            source: source.cloned().map(map),
            fitness: fitness.map(|name| Watched::Fitness(namespace.clone(), name)),
        }
    }

    fn all(&self) -> impl Iterator<Item = Watched> {
        let named = [Some(&self.workload), Some(&self.share), self.source.as_ref()];
        let parts = self.parts.iter().map(Some);
        named.into_iter().chain([self.fitness.as_ref()]).chain(parts).flatten().cloned()
    }
}

/// One pod, read from the API server itself and not from a cache.
pub(super) async fn pod(
    client: &kube::Client,
    namespace: &str,
    name: &str,
) -> kube::Result<Option<PodFacts>> {
    let api = Api::<objects::WorkerPod>::namespaced(client.clone(), namespace);
    Ok(api.get_opt(name).await?.map(|pod| PodFacts::from(&pod)))
}

/// The pods of a workload, read from the API server itself and not from a cache.
pub(super) async fn pods(
    client: &kube::Client,
    namespace: &str,
    workload: &WorkloadFacts,
) -> kube::Result<Vec<PodFacts>> {
    let Some(selector) = query(workload) else { return Ok(vec![]) };
    let api = Api::<objects::WorkerPod>::namespaced(client.clone(), namespace);
    let pods = api.list(&kube::api::ListParams::default().labels(&selector)).await?;
    Ok(pods.iter().map(PodFacts::from).collect())
}

/// The selector of a workload as a query.
fn query(facts: &WorkloadFacts) -> Option<String> {
    // An unreadable selector selects nothing; the API server refuses those of workloads anyway.
    Selector::new(&facts.selector).ok().map(|selector| selector.to_string())
}

/// A pod as the API server has it.
#[cfg(test)]
pub(super) fn read_pod(pod: serde_json::Value) -> PodFacts {
    PodFacts::from(&serde_json::from_value::<objects::WorkerPod>(pod).expect("a pod"))
}

/// Reads everything that a `Swarm` depends on without a watch, as [`WorkloadCache::view`] has it from
/// the watches: one list for each object that it names. Lists by name, as they do, so that an account
/// with their rights may do this.
///
/// # Errors
/// The API server's error, with the request that it refused.
pub(super) async fn read(client: &Client, swarm: &Swarm) -> Result<WorkloadView, Error> {
    let names = Names::of(swarm);
    let workload = match &names.workload {
        Watched::Workload(WorkloadKind::StatefulSet, namespace, name) => {
            one::<WorkloadObject<StatefulSet>>(client, (namespace, name), "list StatefulSets")
                .await?
                .map(|object| WorkloadFacts::from(&object))
        }
        Watched::Workload(WorkloadKind::Deployment, namespace, name) => {
            one::<WorkloadObject<Deployment>>(client, (namespace, name), "list Deployments")
                .await?
                .map(|object| WorkloadFacts::from(&object))
        }
        _ => None,
    };
    let pods = match &workload {
        Some(workload) => {
            let (namespace, _) = swarm.key();
            let mut pods =
                pods(client, &namespace, workload).await.map_err(Error::kube("list Pods"))?;
            pods.sort_by(|a, b| a.name.cmp(&b.name));
            pods
        }
        None => vec![],
    };
    let fitness = match &names.fitness {
        Some(Watched::Fitness(namespace, name)) => {
            let watch = one::<Fitness>(client, (namespace, name), "list TrafficWatches").await?;
            watch.as_ref().map(fitness_label)
        }
        _ => None,
    };
    Ok(WorkloadView { workload, fitness, pods, ..maps(client, swarm).await? })
}

/// The `ConfigMap`s alone: those with the shares and that with the streams.
///
/// # Errors
/// As [`read`].
pub(super) async fn maps(client: &Client, swarm: &Swarm) -> Result<WorkloadView, Error> {
    let names = Names::of(swarm);
    let mut parts = Vec::with_capacity(names.parts.len());
    for part in &names.parts {
        parts.push(map(client, Some(part)).await?);
    }
    let share = map(client, Some(&names.share)).await?;
    let source = map(client, names.source.as_ref()).await?;
    Ok(WorkloadView { share, parts, source, ..WorkloadView::default() })
}

async fn map(client: &Client, watched: Option<&Watched>) -> Result<Option<MapFacts>, Error> {
    let Some(Watched::Map(namespace, name)) = watched else { return Ok(None) };
    let map = one::<MapObject>(client, (namespace, name), "list ConfigMaps").await?;
    Ok(map.map(|map| MapFacts::from(&map)))
}

async fn one<K>(
    client: &Client,
    (namespace, name): (&str, &str),
    action: &'static str,
) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = Api::<K>::namespaced(client.clone(), namespace).list(&params).await;
    Ok(found.map_err(Error::kube(action))?.into_iter().next())
}

#[cfg(test)]
mod tests;
