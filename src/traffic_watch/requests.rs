//! The requests of all pods for the resources that some object offers, by a watch that runs only
//! while there is such an object.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt;
use kube::{Client, runtime::watcher::Event};
use tokio::sync::watch as signal;

use crate::{
    controller::Key,
    infra::{
        Api,
        watch::{self, Mirror, Reduced},
    },
    metrics::Metrics,
    pods::RequestingPod,
};

/// Pods that take resources, or wait for them: the API server leaves out those that have ended.
const RUNNING: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Pods per page of the first list: 150,000 pods take 300 requests, each with an answer of some 4
/// MB, which is decoded without what is never read.
const PAGE_SIZE: u32 = 500;

/// Sum of the requests of pods on each node, in units.
pub type Requested = BTreeMap<Arc<str>, u64>;

/// The requests; clones share them.
#[derive(Clone, Default)]
pub struct RequestStore(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The objects that need to know them.
    needs: Mutex<BTreeSet<Key>>,
    /// True if there is any.
    needed: signal::Sender<bool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pods: Mirror<(Box<str>, Box<str>), PodRequests>,
    /// Names of nodes, each stored once.
    nodes: BTreeSet<Arc<str>>,
}

/// One pod with requests for extended resources. All of them are kept, so that an object with
/// another resource interrupts nobody.
#[derive(Debug)]
struct PodRequests {
    /// None if it waits for one.
    node: Option<Arc<str>>,
    amounts: Box<[(Box<str>, u64)]>,
}

impl RequestStore {
    /// Follows the pods while any object needs to know about them; never ends.
    pub async fn follow(self, client: Client, metrics: Metrics) {
        let mut changes = self.0.needed.subscribe();
        loop {
            let needed = *changes.borrow_and_update();
            *self.state() = State::default();
            if !needed {
                metrics.stored("requesting_pods", 0);
                // The sender lives in `self`.
                let _ = changes.changed().await;
                continue;
            }
            let config = watch::config().fields(RUNNING).page_size(PAGE_SIZE);
            let events = watch::follow(Api::<RequestingPod>::all(client.clone()), config);
            let mut events = watch::readable(events, "requesting_pods", &metrics);
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

    /// Sets whether an object needs to know the requests.
    pub fn need(&self, object: &Key, needs_them: bool) {
        let mut needs = self.0.needs.lock().unwrap_or_else(PoisonError::into_inner);
        if !needs_them {
            needs.remove(object);
        } else if !needs.contains(object) {
            needs.insert(object.clone());
        }
        let any = !needs.is_empty();
        self.0.needed.send_if_modified(|needed| std::mem::replace(needed, any) != any);
    }

    /// Returns what running pods request of a resource on each node; `None` while it is not known.
    #[must_use]
    pub fn of(&self, resource: &str) -> Option<Requested> {
        let state = self.state();
        if !state.pods.is_synced() {
            return None;
        }
        let mut requested = Requested::new();
        for (_, pod) in state.pods.iter() {
            if let Some((node, amount)) = pod.node.as_ref().zip(pod.amount(resource)) {
                let sum = requested.entry(Arc::clone(node)).or_default();
                *sum = sum.saturating_add(amount);
            }
        }
        Some(requested)
    }

    /// Returns what each pod without a node requests of a resource; nothing while that is not known.
    #[must_use]
    pub fn waiting(&self, resource: &str) -> Vec<u64> {
        let state = self.state();
        if !state.pods.is_synced() {
            return vec![];
        }
        let waiting = state.pods.iter().filter(|(_, pod)| pod.node.is_none());
        waiting.filter_map(|(_, pod)| pod.amount(resource)).collect()
    }

    /// Takes one event of the watch; returns the number of pods that are kept.
    fn apply(&self, event: Event<RequestingPod>) -> usize {
        let mut state = self.state();
        let listed = matches!(event, Event::InitDone);
        let event = watch::map(event, |pod| state.reduced(&pod));
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

impl PodRequests {
    fn amount(&self, resource: &str) -> Option<u64> {
        self.amounts.iter().find(|(name, _)| **name == *resource).map(|(_, amount)| *amount)
    }
}

impl State {
    fn reduced(&mut self, pod: &RequestingPod) -> Reduced<(Box<str>, Box<str>), PodRequests> {
        let text = |text: Option<&str>| -> Box<str> { text.unwrap_or_default().into() };
        let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
        let key = (text(namespace.as_deref()), text(name.as_deref()));
        let facts = pod.node().and_then(|node| {
            let amounts: Box<[_]> = pod.requests().into_iter().collect();
            let node = || node.map(|node| self.node(node));
            (!amounts.is_empty()).then(node).map(|node| PodRequests { node, amounts })
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
                NAME: amount.to_string(), "example.com/other": amount.min(1).to_string(), "cpu": "1",
            }}}]},
            "status": {"phase": "Running"},
        }))
        .unwrap()
    }

    fn sums(store: &RequestStore) -> Option<Vec<(String, u64)>> {
        let of = store.of(NAME)?;
        Some(of.into_iter().map(|(node, sum)| (node.to_string(), sum)).collect())
    }

    #[test]
    fn requests_are_summed_by_node_once_all_pods_are_listed() {
        let store = RequestStore::default();
        store.apply(Event::Init);
        store.apply(Event::InitApply(pod("a", 1, "node-1", 200)));
        store.apply(Event::InitApply(pod("b", 2, "node-1", 50)));
        assert_eq!(sums(&store), None, "a part of the list is no sum");
        assert_eq!(store.apply(Event::InitDone), 2);
        assert_eq!(sums(&store), Some(vec![("node-1".into(), 250)]));
        store.apply(Event::Apply(pod("c", 3, "node-2", 7)));
        store.apply(Event::Delete(pod("a", 4, "node-1", 200)));
        assert_eq!(sums(&store), Some(vec![("node-1".into(), 50), ("node-2".into(), 7)]));
        // An object that offers it later need not wait until all pods are listed again.
        assert_eq!(store.of("example.com/other").map(|of| of.len()), Some(2));
    }

    #[test]
    fn a_pod_without_a_node_waits_until_it_has_one() {
        let store = RequestStore::default();
        store.apply(Event::Init);
        store.apply(Event::InitApply(pod("a", 1, "", 200)));
        assert!(store.waiting(NAME).is_empty(), "not all pods are listed yet");
        store.apply(Event::InitDone);
        assert_eq!((store.waiting(NAME), sums(&store)), (vec![200], Some(vec![])));
        store.apply(Event::Apply(pod("a", 2, "node-1", 200)));
        assert!(store.waiting(NAME).is_empty());
        assert_eq!(sums(&store), Some(vec![("node-1".into(), 200)]));
    }

    #[test]
    fn a_pod_that_has_ended_takes_nothing_and_pods_without_requests_are_not_kept() {
        let store = RequestStore::default();
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
    fn a_further_object_does_not_begin_the_watch_again_and_it_ends_with_the_last() {
        let store = RequestStore::default();
        let mut changes = store.0.needed.subscribe();
        let key = |name: &str| ("ns".to_owned(), name.to_owned());
        store.need(&key("a"), true);
        assert!(*changes.borrow_and_update());
        store.need(&key("b"), true);
        store.need(&key("a"), true);
        store.need(&key("a"), false);
        assert!(!changes.has_changed().unwrap(), "one of them needs them all the time");
        store.need(&key("b"), false);
        assert!(!*changes.borrow_and_update());
    }
}
