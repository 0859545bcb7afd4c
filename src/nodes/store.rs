//! The nodes of the cluster, kept up to date by a watch, small enough for 5,000 of them.
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use futures::StreamExt;
use kube::{Client, core::ObjectMeta, runtime::watcher::Event};
use tokio::sync::watch as signal;

use super::{
    Carrier, Census, Identity, Incarnation, NodeFacts, NodeObject, Offer, Readiness, Speaker,
    Texts,
    facts::announces_end,
    state::{State, Stored, marking},
};
use crate::{
    infra::{
        Api,
        watch::{self, Synced},
    },
    metrics::Metrics,
    selector::Selector,
};

/// The label with the zone of a node.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// The label with the operating system of a node.
const OS_LABEL: &str = "kubernetes.io/os";

/// The label that identifies virtual kubelets.
const TYPE_LABEL: &str = "type";

/// All nodes; clones share them.
#[derive(Clone, Default)]
pub struct NodeStore(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: RwLock<State>,
    synced: Synced,
    /// Counts changes of the stored data; a heartbeat changes nothing.
    changed: signal::Sender<u64>,
    selections: Selections,
}

impl NodeStore {
    /// Follows the cluster's nodes for ever.
    pub async fn follow(self, client: Client, metrics: Metrics) {
        let events = watch::follow(Api::<NodeObject>::all(client), watch::config());
        let mut events = watch::readable(events, "nodes", &metrics);
        while let Some(event) = events.next().await {
            self.apply(event);
            metrics.stored("nodes", self.len());
        }
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        self.0.synced.wait().await;
    }

    /// Takes one event of the watch.
    pub fn apply(&self, event: Event<NodeObject>) {
        let done = matches!(event, Event::InitDone);
        let changed = self.0.state.write().unwrap_or_else(PoisonError::into_inner).apply(event);
        if done {
            self.0.synced.reached();
        }
        if changed {
            self.0.changed.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Returns a receiver that is notified of each change of the stored data.
    #[must_use]
    pub fn changes(&self) -> signal::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Returns the number of changes so far: a node is of the revision that brought it, and of
    /// every later one.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.read().changes()
    }

    /// Takes the answer to a write of ours, so that the next pass sees it even if the watch has not
    /// delivered it yet.
    pub fn wrote(&self, metadata: &ObjectMeta) {
        self.0.state.write().unwrap_or_else(PoisonError::into_inner).wrote(metadata);
    }

    /// Takes the answer including the taints.
    pub fn wrote_node(&self, node: &NodeObject) {
        self.0.state.write().unwrap_or_else(PoisonError::into_inner).wrote_node(node);
    }

    /// Returns the known incarnation of a node and its last known version.
    #[must_use]
    pub fn known(&self, name: &str) -> Option<(Incarnation, u64)> {
        self.read().nodes().get(name).map(|node| (node.incarnation, node.version))
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().nodes().len()
    }

    /// Reports whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reports whether a selection has any node.
    #[must_use]
    pub fn any(&self, selector: &Selector) -> bool {
        let state = self.read();
        state.nodes().values().any(|node| selector.matches(|key| node.label(key).map(|v| &**v)))
    }

    /// Returns the nodes of a selection, by name, with their value of the label `key`, and the
    /// other nodes that have this key.
    #[must_use]
    pub fn select(&self, selector: &Selector, key: &str) -> Selection {
        self.selected(selector, key, true)
    }

    /// Returns the same without their other labels, which few decisions need.
    #[must_use]
    pub fn select_unlabeled(&self, selector: &Selector, key: &str) -> Selection {
        self.selected(selector, key, false)
    }

    fn selected(&self, selector: &Selector, key: &str, labels: bool) -> Selection {
        let choice = Choice { selector: selector.clone(), key: key.to_owned(), labels };
        let state = self.read();
        if let Some(selection) = self.0.selections.get(&choice, state.changes()) {
            return selection;
        }
        // Chosen first, so that their facts are in memory once: as many as there are.
        let is_selected = |(_, node): &(&Arc<str>, &Stored)| {
            selector.matches(|key| node.label(key).map(|value| &**value))
        };
        let (selected, others): (Vec<_>, Vec<_>) = state.nodes().iter().partition(is_selected);
        let facts = |(name, node): (&Arc<str>, &Stored)| NodeFacts {
            name: Arc::clone(name),
            label: node.label(key).cloned(),
            taint: node.taint(key).cloned(),
            schedulable: node.schedulable,
            open: node.open,
            capacity: node.capacity.clone(),
            incarnation: node.incarnation,
            since: node.since,
            labels: if labels { node.labels.clone() } else { Texts::default() },
            taints: Arc::clone(&node.taints),
            unfit: node.unfit,
        };
        let nodes = selected.into_iter().map(facts).collect();
        let key = key.into();
        let strays = others.into_iter().filter_map(|(name, node)| node.carrier(name, &key));
        let selection = Selection { nodes, strays: strays.collect() };
        self.0.selections.put(choice, state.changes(), &selection);
        selection
    }

    /// Returns the number of nodes, and of those that any `TrafficWatch` marks.
    #[must_use]
    pub fn census(&self) -> Census {
        self.read().census()
    }

    /// Returns the keys that mark each marked node, and whether the node can take ordinary pods.
    #[must_use]
    pub fn marks(&self) -> Vec<(bool, Vec<Arc<str>>)> {
        let state = self.read();
        let marked = state.nodes().values().filter(|node| node.unfit);
        marked.map(|node| (node.open, marking(&node.labels).cloned().collect())).collect()
    }

    /// Returns whether any `TrafficWatch` marks a node, and whether it can take ordinary pods.
    #[must_use]
    pub fn standing(&self, node: &str) -> Option<(bool, bool)> {
        let state = self.read();
        state.nodes().get(node).map(|node| (node.unfit, node.open))
    }

    /// Returns all nodes as BGP speakers, by name.
    #[must_use]
    pub fn speakers(&self) -> Vec<Speaker> {
        let state = self.read();
        let nodes = state.nodes().iter();
        nodes
            .map(|(name, node)| Speaker {
                name: Arc::clone(name),
                incarnation: node.incarnation,
                labels: node.labels.clone(),
                taints: Arc::clone(&node.taints),
                readiness: node.readiness,
                cordoned: node.cordoned,
                calico: node.calico.clone(),
            })
            .collect()
    }

    /// Returns the zone of a node; "" if it has none or is unknown.
    #[must_use]
    pub fn zone(&self, node: &str) -> String {
        let state = self.read();
        let zone = state.nodes().get(node).and_then(|node| node.label(ZONE_LABEL));
        zone.map(ToString::to_string).unwrap_or_default()
    }

    /// Returns the readiness of a node; `None` if there is no such node.
    #[must_use]
    pub fn readiness(&self, node: &str) -> Option<Readiness> {
        self.read().nodes().get(node).map(|node| node.readiness)
    }

    /// Reports whether the end of a node is announced: by a taint, or because it is cordoned and
    /// gone.
    #[must_use]
    pub fn is_ending(&self, node: &str) -> bool {
        self.read().nodes().get(node).is_some_and(|node| {
            let gone = matches!(node.readiness, Readiness::NotReady(_));
            announces_end(&node.taints) || node.cordoned && gone
        })
    }

    /// Returns the oldest version among the kubelets that may run an agent: neither those of
    /// Windows nor virtual ones, which run containers elsewhere and have different versions.
    #[must_use]
    pub fn oldest_kubelet(&self) -> Option<(u32, u32)> {
        let state = self.read();
        let is = |node: &Stored, key: &str, value: &str| {
            node.label(key).is_some_and(|carried| **carried == *value)
        };
        let real = state.nodes().values().filter(|node| {
            !is(node, OS_LABEL, "windows") && !is(node, TYPE_LABEL, "virtual-kubelet")
        });
        real.filter_map(|node| node.kubelet).min()
    }

    /// Returns the nodes that have `key` as a label or taint, by name.
    #[must_use]
    pub fn carriers(&self, key: &str) -> Vec<Carrier> {
        let (state, key) = (self.read(), key.into());
        state.nodes().iter().filter_map(|(name, node)| node.carrier(name, &key)).collect()
    }

    /// Returns the nodes that offer an extended resource, by name.
    #[must_use]
    pub fn offering(&self, resource: &str) -> Vec<(Arc<str>, Offer)> {
        let state = self.read();
        let offer = |(name, node): (&Arc<str>, &Stored)| {
            node.offer(resource).map(|offer| (Arc::clone(name), offer))
        };
        state.nodes().iter().filter_map(offer).collect()
    }

    /// Returns the nodes with this value of the label `key`, by name.
    #[must_use]
    pub fn carriers_of(&self, key: &str, value: &str) -> Vec<Arc<str>> {
        let state = self.read();
        let carries = |node: &Stored| node.label(key).is_some_and(|carried| **carried == *value);
        let nodes = state.nodes().iter().filter(|(_, node)| carries(node));
        nodes.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Reports whether a node has this value of the label `key`.
    #[must_use]
    pub fn has(&self, name: &str, key: &str, value: &str) -> bool {
        let state = self.read();
        let carried = state.nodes().get(name).and_then(|node| node.label(key));
        carried.is_some_and(|carried| **carried == *value)
    }

    /// Returns the index of the names and addresses of nodes.
    #[must_use]
    pub fn identity(&self) -> Arc<Identity> {
        self.read().identity()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.0.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Number of selections that are kept. Each takes up to 150 bytes a node, so that many objects,
/// each with its own label, share the places; those without one select again.
const KEPT: usize = 2;

/// The nodes of a selector, and which others carry its key.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The selected nodes, by name.
    pub nodes: Arc<[NodeFacts]>,
    /// The nodes that are not selected and have the key as a label or taint, by name.
    pub strays: Arc<[Carrier]>,
}

/// The request for a selection.
#[derive(Clone, Debug, PartialEq)]
struct Choice {
    selector: Selector,
    /// The key whose label and taint are read.
    key: String,
    /// True if the other labels are read too.
    labels: bool,
}

/// The last selections, the latest last, kept while no node changes: most judgments select what the
/// last one did.
#[derive(Debug, Default)]
struct Selections(Mutex<Vec<(Choice, u64, Selection)>>);

impl Selections {
    /// Returns the selection of this state of the nodes, if it is kept; forgets older states.
    fn get(&self, choice: &Choice, state: u64) -> Option<Selection> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, of, _)| *of == state);
        let place = kept.iter().position(|(known, ..)| known == choice)?;
        Some(kept[place].2.clone())
    }

    /// Keeps a selection, if there is a place: one that is in use is not replaced, so that objects
    /// that take turns do not drive each other out.
    fn put(&self, choice: Choice, state: u64, selection: &Selection) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT && kept.iter().all(|(known, ..)| *known != choice) {
            kept.push((choice, state, selection.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
