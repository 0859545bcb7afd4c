//! The one task that keeps the watches.
use std::collections::{BTreeSet, HashMap};

use futures::{
    StreamExt,
    stream::{AbortHandle, BoxStream, SelectAll, abortable},
};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::{DeserializeGuard, NamespaceResourceScope},
    runtime::{
        reflector::{self, Store},
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;

use super::{
    Key, Names, Watched, WorkloadCache,
    facts::{MapFacts, PodFacts, WorkloadFacts, fitness_label},
    objects::{Fitness, MapObject, WorkerPod, WorkloadObject},
    query,
};
use crate::{
    api::{Swarm, swarm::WorkloadKind},
    metrics::Metrics,
    runtime::watch,
};

/// Something that a watch has brought.
enum Brought {
    Swarms,
    Workload(Watched, Event<(String, WorkloadFacts)>),
    Map(Watched, Event<(String, MapFacts)>),
    Fitness(Watched, Event<(String, String)>),
    Pods(Watched, Event<(String, PodFacts)>),
    Failed(&'static str, watcher::Error),
}

type Stream = BoxStream<'static, Brought>;

struct Follower {
    cache: WorkloadCache,
    client: Client,
    metrics: Metrics,
    swarms: Store<DeserializeGuard<Swarm>>,
    streams: SelectAll<Stream>,
    stops: HashMap<Watched, AbortHandle>,
}

impl WorkloadCache {
    /// Follows what the `Swarm`s depend on for ever.
    pub async fn follow(self, client: Client, metrics: Metrics) {
        let (swarms, writer) = reflector::store();
        let api = Api::<DeserializeGuard<Swarm>>::all(client.clone());
        let events = reflector::reflector(writer, watch::follow(api, watch::config()));
        let mut streams = SelectAll::new();
        let each = |event: Result<Event<_>, _>| match event {
            Ok(_) => Brought::Swarms,
            Err(error) => Brought::Failed("swarms", error),
        };
        streams.push(events.map(each).boxed());
        let stops = HashMap::new();
        let mut follower = Follower { cache: self, client, metrics, swarms, streams, stops };
        while let Some(brought) = follower.streams.next().await {
            follower.take(brought);
        }
    }
}

impl Follower {
    fn take(&mut self, brought: Brought) {
        let watched = match brought {
            Brought::Failed(resource, error) => {
                tracing::warn!(%error, "watch of {resource} failed, trying again");
                self.metrics.watch_restarted(resource);
                return;
            }
            Brought::Swarms => return self.need(),
            Brought::Workload(watched, event) => {
                let mut state = self.cache.state();
                state.workloads.entry(watched.clone()).or_default().apply(event);
                drop(state);
                // Its selector says which pods are needed.
                self.need();
                watched
            }
            Brought::Map(watched, event) => {
                self.cache.state().maps.entry(watched.clone()).or_default().follow(event);
                watched
            }
            Brought::Fitness(watched, event) => {
                self.cache.state().fitness.entry(watched.clone()).or_default().apply(event);
                watched
            }
            Brought::Pods(watched, event) => {
                let mut state = self.cache.state();
                state.pods.entry(watched.clone()).or_default().apply(event);
                let count = state.pods.values().map(|seen| seen.objects.len()).sum();
                drop(state);
                self.metrics.stored("workers", count);
                watched
            }
        };
        self.cache.changed(&watched);
    }

    /// Watches what is needed, and nothing else.
    fn need(&mut self) {
        let swarms = self.swarms.state();
        let swarms: Vec<_> = swarms.iter().filter_map(|swarm| swarm.0.as_ref().ok()).collect();
        let mut state = self.cache.state();
        let mut needs: HashMap<Key, BTreeSet<Watched>> = HashMap::new();
        for swarm in &swarms {
            let (key, names) = (swarm.key(), Names::of(swarm));
            let mut all: BTreeSet<_> = names.all().collect();
            let known = state.workloads.get(&names.workload);
            if let Some(facts) = known.and_then(|seen| seen.objects.values().next())
                && let Some(selector) = query(facts)
            {
                state.selectors.insert(key.clone(), selector);
            }
            if let Some(selector) = state.selectors.get(&key) {
                all.insert(Watched::Pods(key.0.clone(), selector.clone()));
            }
            needs.insert(key, all);
        }
        state.selectors.retain(|key, _| needs.contains_key(key));
        let wanted: BTreeSet<Watched> = needs.values().flatten().cloned().collect();
        state.needs = needs;
        state.workloads.retain(|watched, _| wanted.contains(watched));
        state.maps.retain(|watched, _| wanted.contains(watched));
        state.fitness.retain(|watched, _| wanted.contains(watched));
        state.pods.retain(|watched, _| wanted.contains(watched));
        drop(state);
        self.stops.retain(|watched, stop| {
            let keep = wanted.contains(watched);
            if !keep {
                stop.abort();
            }
            keep
        });
        for watched in wanted {
            if !self.stops.contains_key(&watched) {
                let (stream, stop) = abortable(self.watch(&watched));
                self.streams.push(stream.boxed());
                self.stops.insert(watched, stop);
            }
        }
    }

    fn watch(&self, watched: &Watched) -> Stream {
        let (client, key) = (&self.client, watched.clone());
        match watched {
            Watched::Workload(kind, namespace, name) => {
                let make = move |event| Brought::Workload(key.clone(), event);
                match kind {
                    WorkloadKind::StatefulSet => {
                        let facts = |object: WorkloadObject<StatefulSet>| {
                            let facts = WorkloadFacts::from(&object);
                            (object.metadata.name.unwrap_or_default(), facts)
                        };
                        named(client, (namespace, name), "statefulsets", facts, make)
                    }
                    WorkloadKind::Deployment => {
                        let facts = |object: WorkloadObject<Deployment>| {
                            let facts = WorkloadFacts::from(&object);
                            (object.metadata.name.unwrap_or_default(), facts)
                        };
                        named(client, (namespace, name), "deployments", facts, make)
                    }
                }
            }
            Watched::Map(namespace, name) => {
                let facts = |object: MapObject| (object.name_any(), MapFacts::from(&object));
                let make = move |event| Brought::Map(key.clone(), event);
                named(client, (namespace, name), "configmaps", facts, make)
            }
            Watched::Fitness(namespace, name) => {
                let facts = |object: Fitness| (object.name_any(), fitness_label(&object));
                let make = move |event| Brought::Fitness(key.clone(), event);
                named(client, (namespace, name), "trafficwatches", facts, make)
            }
            Watched::Pods(namespace, selector) => {
                let facts = |object: WorkerPod| (object.name_any(), PodFacts::from(&object));
                let make = move |event| Brought::Pods(key.clone(), event);
                let config = watch::config().labels(selector);
                stream(client, namespace, config, "workers", facts, make)
            }
        }
    }
}

fn named<K, V: Send + 'static>(
    client: &Client,
    (namespace, name): (&str, &str),
    resource: &'static str,
    facts: impl Fn(K) -> (String, V) + Send + 'static,
    make: impl Fn(Event<(String, V)>) -> Brought + Send + 'static,
) -> Stream
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
{
    let config = watch::config().fields(&format!("metadata.name={name}"));
    stream(client, namespace, config, resource, facts, make)
}

fn stream<K, V: Send + 'static>(
    client: &Client,
    namespace: &str,
    config: watcher::Config,
    resource: &'static str,
    facts: impl Fn(K) -> (String, V) + Send + 'static,
    make: impl Fn(Event<(String, V)>) -> Brought + Send + 'static,
) -> Stream
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
{
    let events = watch::follow(Api::<K>::namespaced(client.clone(), namespace), config);
    let each = move |event| match event {
        Ok(event) => make(map(event, &facts)),
        Err(error) => Brought::Failed(resource, error),
    };
    events.map(each).boxed()
}

fn map<K, V>(event: Event<K>, facts: impl Fn(K) -> V) -> Event<V> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(facts(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(facts(object)),
        Event::Delete(object) => Event::Delete(facts(object)),
    }
}
