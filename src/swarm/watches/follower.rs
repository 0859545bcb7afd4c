//! The one task that keeps the watches.
use std::collections::{BTreeSet, HashMap};

use futures::{
    StreamExt,
    stream::{AbortHandle, BoxStream, SelectAll, abortable},
};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::{
    Client, Resource,
    core::NamespaceResourceScope,
    runtime::{
        reflector::{self, Store},
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;

use super::{
    Key, Names, Watched, WorkloadCache,
    facts::{MapFacts, PodFacts, WorkloadFacts, fitness_label},
    objects::{MapObject, WorkerPod, WorkloadObject},
    query,
};
use crate::{
    api::{Swarm, swarm::WorkloadKind},
    infra::{
        Api,
        watch::{self, DeserializeGuard, Reduced},
    },
    metrics::Metrics,
};

/// An event about an object with a name.
type Named<V> = Event<Reduced<String, V>>;

/// An event of a watch.
enum WatchEvent {
    Swarms,
    Workload(Watched, Named<WorkloadFacts>),
    Map(Watched, Named<MapFacts>),
    Fitness(Watched, Named<String>),
    Pods(Watched, Named<PodFacts>),
}

type Stream = BoxStream<'static, WatchEvent>;

struct Follower {
    cache: WorkloadCache,
    client: Client,
    metrics: Metrics,
    swarms: Store<DeserializeGuard<Swarm>>,
    streams: SelectAll<Stream>,
    stops: HashMap<Watched, AbortHandle>,
}

impl WorkloadCache {
    /// Follows everything that the `Swarm`s depend on; never ends.
    pub async fn follow(self, client: Client, metrics: Metrics) {
        let (swarms, writer) = reflector::store();
        let api = Api::<Swarm>::all(client.clone());
        let events = reflector::reflector(writer, watch::follow(api, watch::config()));
        let events = watch::reported(events, "swarms", &metrics);
        let mut streams = SelectAll::new();
        streams.push(events.map(|_| WatchEvent::Swarms).boxed());
        let stops = HashMap::new();
        let mut follower = Follower { cache: self, client, metrics, swarms, streams, stops };
        while let Some(received) = follower.streams.next().await {
            follower.take(received);
        }
    }
}

impl Follower {
    fn take(&mut self, received: WatchEvent) {
        let watched = match received {
            WatchEvent::Swarms => return self.need(),
            WatchEvent::Workload(watched, event) => {
                let mut state = self.cache.state();
                state.workloads.entry(watched.clone()).or_default().apply(event);
                drop(state);
                // Its selector determines the pods to watch.
                self.need();
                watched
            }
            WatchEvent::Map(watched, event) => {
                self.cache.state().maps.entry(watched.clone()).or_default().apply(event);
                watched
            }
            WatchEvent::Fitness(watched, event) => {
                self.cache.state().fitness.entry(watched.clone()).or_default().apply(event);
                watched
            }
            WatchEvent::Pods(watched, event) => {
                let mut state = self.cache.state();
                state.pods.entry(watched.clone()).or_default().apply(event);
                let count = state.pods.values().map(|seen| seen.iter().len()).sum();
                drop(state);
                self.metrics.stored("workers", count);
                watched
            }
        };
        self.cache.changed(&watched);
    }

    /// Watches the required objects, and nothing else.
    fn need(&mut self) {
        let swarms = self.swarms.state();
        let swarms: Vec<_> = swarms.iter().filter_map(|swarm| swarm.0.as_ref().ok()).collect();
        let mut state = self.cache.state();
        let mut needs: HashMap<Key, BTreeSet<Watched>> = HashMap::new();
        for swarm in &swarms {
            let (key, names) = (swarm.key(), Names::of(swarm));
            let mut all: BTreeSet<_> = names.all().collect();
            let known = state.workloads.get(&names.workload);
            if let Some((_, facts)) = known.and_then(|seen| seen.iter().next())
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
        let key = watched.clone();
        match watched {
            Watched::Workload(kind, namespace, name) => {
                let config = by_name(name);
                let make = move |event| WatchEvent::Workload(key.clone(), event);
                match kind {
                    WorkloadKind::StatefulSet => {
                        let facts = |set: &WorkloadObject<StatefulSet>| WorkloadFacts::from(set);
                        self.stream(namespace, config, "statefulsets", facts, make)
                    }
                    WorkloadKind::Deployment => {
                        let facts = |one: &WorkloadObject<Deployment>| WorkloadFacts::from(one);
                        self.stream(namespace, config, "deployments", facts, make)
                    }
                }
            }
            Watched::Map(namespace, name) => {
                let facts = |map: &MapObject| MapFacts::from(map);
                let make = move |event| WatchEvent::Map(key.clone(), event);
                self.stream(namespace, by_name(name), "configmaps", facts, make)
            }
            Watched::Fitness(namespace, name) => {
                let make = move |event| WatchEvent::Fitness(key.clone(), event);
                self.stream(namespace, by_name(name), "trafficwatches", fitness_label, make)
            }
            Watched::Pods(namespace, selector) => {
                let facts = |pod: &WorkerPod| PodFacts::from(pod);
                let make = move |event| WatchEvent::Pods(key.clone(), event);
                let config = watch::config().labels(selector);
                self.stream(namespace, config, "workers", facts, make)
            }
        }
    }

    fn stream<K, V: Send + 'static>(
        &self,
        namespace: &str,
        config: watcher::Config,
        resource: &'static str,
        facts: impl Fn(&K) -> V + Send + 'static,
        make: impl Fn(Named<V>) -> WatchEvent + Send + 'static,
    ) -> Stream
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug
            + Send
            + 'static,
    {
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        let events = watch::readable(watch::follow(api, config), resource, &self.metrics);
        let each = move |object: K| {
            let name = object.meta().name.clone().unwrap_or_default();
            Reduced::new(name, object.meta(), Some(facts(&object)))
        };
        events.map(move |event| make(watch::map(event, &each))).boxed()
    }
}

fn by_name(name: &str) -> watcher::Config {
    watch::config().fields(&format!("metadata.name={name}"))
}
