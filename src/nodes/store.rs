//! The nodes of the cluster, kept up to date by a watch, small enough for 5,000 of them.
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock},
};

use futures::StreamExt;
use kube::{Api, Client, core::ObjectMeta, runtime::watcher::Event};
use tokio::sync::watch as signal;

use super::{Identity, NodeObject};
use crate::{api::CAPACITY_ANNOTATION, metrics::Metrics, runtime::watch, selector::Selector};

/// How the keys of our labels and taints end.
const KEY_SUFFIX: &str = ".traffic.example.com/unfit";

/// The label that says which zone a node is in.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// What one judgement needs to know of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The node's name.
    pub name: Arc<str>,
    /// The value of the label that was asked for.
    pub label: Option<Arc<str>>,
    /// The effect of the taint of the same key.
    pub taint: Option<Arc<str>>,
    /// The value of the capacity annotation.
    pub capacity: Option<Arc<str>>,
    /// Whether a pod can be started on it.
    pub schedulable: bool,
}

/// A node that carries a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// The node.
    pub node: Arc<str>,
    /// Whether as a label.
    pub label: bool,
    /// Whether as a taint.
    pub taint: bool,
}

/// All nodes; clones share them.
#[derive(Clone, Default)]
pub struct NodeStore(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: RwLock<State>,
    synced: signal::Sender<bool>,
}

#[derive(Default)]
struct State {
    nodes: HashMap<Arc<str>, Stored>,
    /// Label keys and values, each stored once: most are the same on every node.
    texts: HashSet<Arc<str>>,
    /// Nodes of a list that is not complete yet.
    listing: Option<HashMap<Arc<str>, Stored>>,
}

struct Stored {
    labels: Box<[(Arc<str>, Arc<str>)]>,
    addresses: Box<[Arc<str>]>,
    /// Key and effect of the taints that are ours: `<label>.traffic.example.com/unfit`.
    taints: Box<[(Arc<str>, Arc<str>)]>,
    capacity: Option<Arc<str>>,
    schedulable: bool,
    version: u64,
}

impl Stored {
    fn taint(&self, key: &str) -> Option<&Arc<str>> {
        self.taints.iter().find(|(k, _)| **k == *key).map(|(_, effect)| effect)
    }

    fn label(&self, key: &str) -> Option<&Arc<str>> {
        self.labels.iter().find(|(k, _)| **k == *key).map(|(_, value)| value)
    }
}

impl State {
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&new));
        new
    }

    fn labels(&mut self, metadata: &ObjectMeta) -> Box<[(Arc<str>, Arc<str>)]> {
        let labels = metadata.labels.iter().flatten();
        labels.map(|(key, value)| (self.text(key), self.text(value))).collect()
    }

    fn taints(&mut self, node: &NodeObject) -> Box<[(Arc<str>, Arc<str>)]> {
        let ours = node.taints().iter().filter_map(|taint| {
            let key = taint["key"].as_str().filter(|key| key.ends_with(KEY_SUFFIX))?;
            Some((key, taint["effect"].as_str()?))
        });
        ours.map(|(key, effect)| (self.text(key), self.text(effect))).collect()
    }

    fn store(&mut self, node: &NodeObject) -> Option<(Arc<str>, Stored)> {
        let name = self.text(node.metadata.name.as_deref()?);
        let capacity = node.metadata.annotations.as_ref().and_then(|a| a.get(CAPACITY_ANNOTATION));
        let stored = Stored {
            labels: self.labels(&node.metadata),
            addresses: node.addresses().iter().map(|a| self.text(&a.address)).collect(),
            taints: self.taints(node),
            schedulable: node.is_schedulable(),
            capacity: capacity.map(|value| self.text(value)),
            version: version(&node.metadata),
        };
        Some((name, stored))
    }

    fn apply(&mut self, event: Event<NodeObject>) {
        match event {
            Event::Init => self.listing = Some(HashMap::new()),
            Event::InitApply(node) => {
                if let Some((name, stored)) = self.store(&node) {
                    self.listing.get_or_insert_default().insert(name, stored);
                }
            }
            Event::InitDone => {
                let mut listed = self.listing.take().unwrap_or_default();
                // A write of ours may be newer than the list.
                for (name, old) in self.nodes.drain() {
                    if let Some(new) = listed.get_mut(&name)
                        && old.version > new.version
                    {
                        *new = old;
                    }
                }
                self.nodes = listed;
                self.forget_unused_texts();
            }
            Event::Apply(node) => {
                if let Some((name, stored)) = self.store(&node) {
                    let newer =
                        self.nodes.get(&name).is_none_or(|old| old.version <= stored.version);
                    if newer {
                        self.nodes.insert(name, stored);
                    }
                }
            }
            Event::Delete(node) => {
                if let Some(name) = &node.metadata.name {
                    self.nodes.remove(name.as_str());
                }
                self.forget_unused_texts();
            }
        }
    }

    fn forget_unused_texts(&mut self) {
        self.texts.retain(|text| Arc::strong_count(text) > 1);
    }
}

/// Resource versions are compared as numbers, as Kubernetes allows since 1.35; one that is none
/// counts as oldest, so that what comes from the watch wins.
fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or_default()
}

impl NodeStore {
    /// Follows the cluster's nodes for ever.
    pub async fn follow(self, client: Client, metrics: Metrics) {
        let mut events = watch::follow(Api::<NodeObject>::all(client), watch::config());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    self.apply(event);
                    metrics.stored("nodes", self.len());
                }
                Err(error) => {
                    tracing::warn!(%error, "watch of nodes failed, trying again");
                    metrics.watch_restarted("nodes");
                }
            }
        }
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        let mut synced = self.0.synced.subscribe();
        // The sender lives in `self`.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Takes one event of the watch.
    pub fn apply(&self, event: Event<NodeObject>) {
        let done = matches!(event, Event::InitDone);
        self.0.state.write().unwrap_or_else(PoisonError::into_inner).apply(event);
        if done {
            self.0.synced.send_replace(true);
        }
    }

    /// Takes the answer to a write of ours, so that the next pass sees it though the watch may not
    /// have brought it yet.
    pub fn wrote(&self, metadata: &ObjectMeta) {
        let mut state = self.0.state.write().unwrap_or_else(PoisonError::into_inner);
        let labels = state.labels(metadata);
        let version = version(metadata);
        let node = metadata.name.as_deref().and_then(|name| state.nodes.get_mut(name));
        if let Some(node) = node
            && node.version <= version
        {
            node.labels = labels;
            node.version = version;
        }
    }

    /// The same, with the taints.
    pub fn wrote_node(&self, node: &NodeObject) {
        let mut state = self.0.state.write().unwrap_or_else(PoisonError::into_inner);
        // One that was deleted in the meantime must not come back.
        let known =
            node.metadata.name.as_deref().is_some_and(|name| state.nodes.contains_key(name));
        if known {
            state.apply(Event::Apply(node.clone()));
        }
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().nodes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a selection has any node.
    #[must_use]
    pub fn any(&self, selector: &Selector) -> bool {
        let state = self.read();
        state.nodes.values().any(|node| selector.matches(|key| node.label(key).map(|v| &**v)))
    }

    /// The nodes of a selection, by name, with their value of the label `key`.
    #[must_use]
    pub fn select(&self, selector: &Selector, key: &str) -> Vec<NodeFacts> {
        let state = self.read();
        let mut nodes: Vec<_> = state
            .nodes
            .iter()
            .filter(|(_, node)| selector.matches(|key| node.label(key).map(|v| &**v)))
            .map(|(name, node)| NodeFacts {
                name: Arc::clone(name),
                label: node.label(key).cloned(),
                taint: node.taint(key).cloned(),
                schedulable: node.schedulable,
                capacity: node.capacity.clone(),
            })
            .collect();
        nodes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        nodes
    }

    /// The zone of a node; "" if it has none or is not known.
    #[must_use]
    pub fn zone(&self, node: &str) -> String {
        let state = self.read();
        let zone = state.nodes.get(node).and_then(|node| node.label(ZONE_LABEL));
        zone.map(ToString::to_string).unwrap_or_default()
    }

    /// The nodes that carry `key` as a label or taint, by name.
    #[must_use]
    pub fn carriers(&self, key: &str) -> Vec<Carrier> {
        let state = self.read();
        let carrier = |(name, node): (&Arc<str>, &Stored)| Carrier {
            node: Arc::clone(name),
            label: node.label(key).is_some(),
            taint: node.taint(key).is_some(),
        };
        let all = state.nodes.iter().map(carrier);
        let mut carriers: Vec<_> = all.filter(|c| c.label || c.taint).collect();
        carriers.sort_unstable_by(|a, b| a.node.cmp(&b.node));
        carriers
    }

    /// The index of what the nodes are called.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let state = self.read();
        let nodes = state.nodes.iter().map(|(name, node)| (Arc::clone(name), &*node.addresses));
        Identity::new(nodes.collect())
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.0.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, version: u64, label: Option<&str>) -> NodeObject {
        let mut labels = serde_json::json!({"kubernetes.io/os": "linux"});
        if let Some(label) = label {
            labels["key"] = label.into();
        }
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "resourceVersion": version.to_string(), "labels": labels},
            "status": {"addresses": [{"type": "InternalIP", "address": format!("ip-{name}")}]}
        }))
        .unwrap()
    }

    fn labels(store: &NodeStore) -> Vec<(String, Option<String>)> {
        let nodes = store.select(&Selector::linux(), "key");
        nodes
            .iter()
            .map(|n| (n.name.to_string(), n.label.as_ref().map(ToString::to_string)))
            .collect()
    }

    #[test]
    fn a_list_replaces_and_events_change() {
        let store = NodeStore::default();
        for event in [
            Event::Init,
            Event::InitApply(node("b", 1, None)),
            Event::InitApply(node("a", 2, Some("true"))),
            Event::InitDone,
            Event::Apply(node("c", 3, None)),
            Event::Delete(node("b", 4, None)),
        ] {
            store.apply(event);
        }
        assert_eq!(labels(&store), [("a".into(), Some("true".into())), ("c".into(), None)]);
        let carrier = Carrier { node: "a".into(), label: true, taint: false };
        assert_eq!(store.carriers("key"), [carrier]);
        let by_ip = store.identity().resolve(&[], |_| Some("ip-c:9100"));
        assert_eq!(by_ip, crate::nodes::Resolution::Node(1));
        store.apply(Event::Init);
        store.apply(Event::InitDone);
        assert!(store.is_empty());
    }

    #[test]
    fn our_own_write_is_seen_before_the_watch_brings_it() {
        let store = NodeStore::default();
        store.apply(Event::Apply(node("a", 5, None)));
        store.wrote(&node("a", 7, Some("true")).metadata);
        assert_eq!(labels(&store), [("a".into(), Some("true".into()))]);
        // A node that is gone does not come back with the answer to a write.
        store.wrote_node(&node("gone", 9, Some("true")));
        assert_eq!(store.len(), 1);
        // An older event (a heartbeat that was under way) does not undo it, a newer one does.
        store.apply(Event::Apply(node("a", 6, None)));
        assert_eq!(labels(&store), [("a".into(), Some("true".into()))]);
        store.apply(Event::Apply(node("a", 8, Some("false"))));
        assert_eq!(labels(&store), [("a".into(), Some("false".into()))]);
    }
}
