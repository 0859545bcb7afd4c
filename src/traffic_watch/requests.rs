//! The requests of all pods for the resources that some object offers, by a watch that runs only
//! while there is such an object.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt;
use kube::{Api, Client, runtime::watcher::Event};
use tokio::sync::watch as signal;

use crate::{
    controller::Key,
    metrics::Metrics,
    pods::RequestingPod,
    runtime::watch::{self, Mirror, Reduced},
};

/// Pods that take resources: the API server leaves out those that have ended or have no node.
const RUNNING: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// Pods per page of the first list: 150,000 pods take 300 requests, each with an answer of some 4
/// MB, which is decoded without what is never read.
const PAGE_SIZE: u32 = 500;

/// Names of resources.
type Names = Arc<BTreeSet<Box<str>>>;

/// Sum of the requests of pods on each node, in units.
pub type Requested = BTreeMap<Arc<str>, u64>;

/// The requests; clones share them.
#[derive(Clone, Default)]
pub struct RequestStore(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The resources that each object needs to know about.
    needs: Mutex<BTreeMap<Key, BTreeSet<Box<str>>>>,
    /// All of these together.
    names: signal::Sender<Names>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The resources that the pods were read for.
    names: Names,
    pods: Mirror<(Box<str>, Box<str>), PodRequests>,
    /// Names of nodes, each stored once.
    nodes: BTreeSet<Arc<str>>,
}

/// One pod with requests for resources that are needed.
#[derive(Debug)]
struct PodRequests {
    node: Arc<str>,
    amounts: Box<[(Box<str>, u64)]>,
}

impl RequestStore {
    /// Follows the pods while any object needs to know about them; never ends.
    pub async fn follow(self, client: Client, metrics: Metrics) {
        let mut changes = self.0.names.subscribe();
        loop {
            let names: Names = Arc::clone(&changes.borrow_and_update());
            *self.state() = State { names: Arc::clone(&names), ..State::default() };
            if names.is_empty() {
                metrics.stored("requesting_pods", 0);
                // The sender lives in `self`.
                let _ = changes.changed().await;
                continue;
            }
            let config = watch::config().fields(RUNNING).page_size(PAGE_SIZE);
            let events = watch::follow(Api::<RequestingPod>::all(client.clone()), config);
            let mut events = watch::reported(events, "requesting_pods", &metrics);
            loop {
                let event = tokio::select! {
                    _ = changes.changed() => break,
                    event = events.next() => event,
                };
                let Some(event) = event else { break };
                metrics.stored("requesting_pods", self.apply(event));
            }
        }
    }

    /// Sets the resources that an object needs to know about.
    pub fn need(&self, object: &Key, resources: BTreeSet<Box<str>>) {
        let mut needs = self.0.needs.lock().unwrap_or_else(PoisonError::into_inner);
        if resources.is_empty() {
            needs.remove(object);
        } else if needs.get(object) != Some(&resources) {
            needs.insert(object.clone(), resources);
        }
        let all: BTreeSet<_> = needs.values().flatten().cloned().collect();
        self.0.names.send_if_modified(|names| {
            let changes = **names != all;
            if changes {
                *names = Arc::new(all);
            }
            changes
        });
    }

    /// Returns what running pods request of a resource on each node; `None` while it is not known.
    #[must_use]
    pub fn of(&self, resource: &str) -> Option<Requested> {
        let state = self.state();
        if !state.pods.is_synced() || !state.names.contains(resource) {
            return None;
        }
        let mut requested = Requested::new();
        for (_, pod) in state.pods.iter() {
            if let Some((_, amount)) = pod.amounts.iter().find(|(name, _)| **name == *resource) {
                let sum = requested.entry(Arc::clone(&pod.node)).or_default();
                *sum = sum.saturating_add(*amount);
            }
        }
        Some(requested)
    }

    /// Takes one event of the watch; returns the number of pods that are kept.
    fn apply(&self, event: Event<RequestingPod>) -> usize {
        let mut state = self.state();
        let listed = matches!(event, Event::InitDone);
        let event = watch::map(event, |pod| state.reduced(&pod));
        let event = match event {
            // It was kept, and has ended since: the watch reports that as a deletion too.
            Event::Apply(pod) if pod.facts.is_none() && state.pods.get(&pod.key).is_some() => {
                Event::Delete(pod)
            }
            event => event,
        };
        state.pods.apply(event);
        if listed {
            state.nodes.retain(|node| Arc::strong_count(node) > 1);
        }
        state.pods.iter().len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn reduced(&mut self, pod: &RequestingPod) -> Reduced<(Box<str>, Box<str>), PodRequests> {
        let text = |text: Option<&str>| -> Box<str> { text.unwrap_or_default().into() };
        let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
        let key = (text(namespace.as_deref()), text(name.as_deref()));
        let facts = pod.node().and_then(|node| {
            let needed = pod.requests().into_iter().filter(|(name, _)| self.names.contains(name));
            let amounts: Box<[_]> = needed.collect();
            (!amounts.is_empty()).then(|| PodRequests { node: self.node(node), amounts })
        });
        Reduced::new(key, &pod.metadata, facts)
    }

    fn node(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.nodes.get(name) {
            return Arc::clone(known);
        }
        let new: Arc<str> = name.into();
        self.nodes.insert(Arc::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NAME: &str = "example.com/mbps";

    fn pod(name: &str, version: u64, node: &str, amount: u64) -> RequestingPod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "resourceVersion": version.to_string()},
            "spec": {"nodeName": node, "containers": [{"resources": {"requests": {
                NAME: amount.to_string(), "example.com/other": "1", "cpu": "1",
            }}}]},
            "status": {"phase": "Running"},
        }))
        .unwrap()
    }

    /// A store that has listed no pods yet.
    fn store(names: &[&str]) -> RequestStore {
        let store = RequestStore::default();
        store.state().names = Arc::new(names.iter().map(|name| Box::from(*name)).collect());
        store
    }

    fn sums(store: &RequestStore) -> Option<Vec<(String, u64)>> {
        let of = store.of(NAME)?;
        Some(of.into_iter().map(|(node, sum)| (node.to_string(), sum)).collect())
    }

    #[test]
    fn requests_are_summed_by_node_once_all_pods_are_listed() {
        let store = store(&[NAME]);
        store.apply(Event::Init);
        store.apply(Event::InitApply(pod("a", 1, "node-1", 200)));
        store.apply(Event::InitApply(pod("b", 2, "node-1", 50)));
        assert_eq!(sums(&store), None, "a part of the list is no sum");
        assert_eq!(store.apply(Event::InitDone), 2);
        assert_eq!(sums(&store), Some(vec![("node-1".into(), 250)]));
        store.apply(Event::Apply(pod("c", 3, "node-2", 7)));
        store.apply(Event::Delete(pod("a", 4, "node-1", 200)));
        assert_eq!(sums(&store), Some(vec![("node-1".into(), 50), ("node-2".into(), 7)]));
        assert_eq!(store.of("example.com/other"), None, "nobody needs it");
    }

    #[test]
    fn a_pod_that_has_ended_takes_nothing_and_pods_without_requests_are_not_kept() {
        let store = store(&[NAME]);
        store.apply(Event::Init);
        store.apply(Event::InitDone);
        assert_eq!(store.apply(Event::Apply(pod("a", 5, "node-1", 200))), 1);
        assert_eq!(store.apply(Event::Apply(pod("b", 6, "node-1", 0))), 1);
        let mut ended = serde_json::json!({
            "metadata": {"name": "a", "namespace": "n", "resourceVersion": "7"},
        });
        ended["status"]["phase"] = "Succeeded".into();
        assert_eq!(store.apply(Event::Apply(serde_json::from_value(ended).unwrap())), 0);
        assert_eq!(sums(&store), Some(vec![]));
    }

    #[test]
    fn what_objects_need_is_united_and_ends_with_the_last() {
        let store = RequestStore::default();
        let mut changes = store.0.names.subscribe();
        let key = |name: &str| ("ns".to_owned(), name.to_owned());
        let names = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect();
        store.need(&key("a"), names(&["x/1"]));
        store.need(&key("b"), names(&["x/1", "x/2"]));
        assert_eq!(**changes.borrow_and_update(), names(&["x/1", "x/2"]));
        store.need(&key("a"), names(&["x/1"]));
        assert!(!changes.has_changed().unwrap(), "nothing new starts no other watch");
        store.need(&key("b"), names(&[]));
        assert_eq!(**changes.borrow_and_update(), names(&["x/1"]));
        store.need(&key("a"), names(&[]));
        assert!(changes.borrow_and_update().is_empty());
    }
}
