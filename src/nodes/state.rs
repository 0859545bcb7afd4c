//! The stored data of all nodes, and its changes by a watch.
use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, OnceLock},
};

use kube::{core::ObjectMeta, runtime::watcher::Event};

use super::{
    Carrier, Census, Identity, Incarnation, NodeObject, Offer, Readiness, Taint, Texts,
    facts::is_untainted,
};
use crate::{
    api::{
        BGP_ADDRESS_ANNOTATIONS, BGP_AS_ANNOTATION, CAPACITY_ANNOTATION, CLUSTER_ID_ANNOTATION,
        UNFIT_SUFFIX,
    },
    infra::watch::version,
};

/// Minimum number of texts for a sweep: a node has some dozens, and this many take 10 kB.
const FEW_TEXTS: usize = 128;

/// The state of the store. It is not a `watch::Mirror`, because nodes share their texts, and are
/// counted as they change.
#[derive(Default)]
pub(super) struct State {
    /// The nodes by name, so that lists need no sorting.
    nodes: BTreeMap<Arc<str>, Stored>,
    /// Counts changes of the stored data, our own writes included; what nodes offer is none.
    changes: u64,
    /// Counted as nodes change, because each write of a mark needs it.
    census: Census,
    /// Computed on demand, and kept until a name or an address changes.
    identity: OnceLock<Arc<Identity>>,
    /// Label keys and values, each stored once: most are the same on every node.
    texts: HashSet<Arc<str>>,
    /// Number of texts left by the last sweep.
    texts_in_use: usize,
    /// The taints of the last node with any: most others with taints have the same.
    taints: Arc<[Taint]>,
    /// Nodes of a list that is not complete yet. Not a map, because its leaves stay half empty when
    /// it grows in sorted order.
    listing: Option<Vec<(Arc<str>, Stored)>>,
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts of one node")]
pub(super) struct Stored {
    pub labels: Texts,
    pub addresses: Box<[Arc<str>]>,
    pub taints: Arc<[Taint]>,
    pub capacity: Option<Arc<str>>,
    pub calico: Texts,
    pub incarnation: Incarnation,
    /// True if any `TrafficWatch` marks it.
    pub unfit: bool,
    pub readiness: Readiness,
    pub cordoned: bool,
    pub schedulable: bool,
    /// True if it can take pods that tolerate nothing.
    pub open: bool,
    /// Major and minor version of the kubelet.
    pub kubelet: Option<(u32, u32)>,
    /// Its extended resources: most nodes have none.
    pub offers: Box<[(Arc<str>, Offer)]>,
    pub version: u64,
    /// The revision of the store at which this incarnation was first in it.
    pub since: u64,
    /// True until the watch shows this version: an answer to a write of ours brought it.
    ours: bool,
}

impl Stored {
    /// Reports whether its content is the same, regardless of its version. A change of
    /// its offers wakes no pass: passes read them at their own ticks, and our own writes change
    /// them on many nodes.
    fn is_same(&self, other: &Self) -> bool {
        let Self {
            labels,
            addresses,
            taints,
            capacity,
            calico,
            incarnation,
            unfit: _,
            readiness,
            cordoned,
            schedulable,
            open: _,
            kubelet,
            offers: _,
            version: _,
            since: _,
            ours: _,
        } = self;
        *labels == other.labels
            && *addresses == other.addresses
            && *taints == other.taints
            && *capacity == other.capacity
            && *calico == other.calico
            && *incarnation == other.incarnation
            && *readiness == other.readiness
            && *cordoned == other.cordoned
            && *schedulable == other.schedulable
            && *kubelet == other.kubelet
    }

    pub fn offer(&self, resource: &str) -> Option<Offer> {
        self.offers.iter().find(|(name, _)| **name == *resource).map(|(_, offer)| *offer)
    }

    pub fn label(&self, key: &str) -> Option<&Arc<str>> {
        self.labels.get(key)
    }

    /// Returns what it has of a key, if anything.
    pub fn carrier(&self, name: &Arc<str>, key: &Arc<str>) -> Option<Carrier> {
        let (label, taint) = (self.label(key).is_some(), self.taint(key).is_some());
        let (node, key, incarnation) = (Arc::clone(name), Arc::clone(key), self.incarnation);
        (label || taint).then_some(Carrier { node, key, label, taint, incarnation })
    }

    /// Returns the effect of a taint.
    pub fn taint(&self, key: &str) -> Option<&Arc<str>> {
        self.taints.iter().find(|taint| *taint.key == *key).map(|taint| &taint.effect)
    }
}

impl State {
    /// Returns the nodes, by name.
    pub fn nodes(&self) -> &BTreeMap<Arc<str>, Stored> {
        &self.nodes
    }

    /// Returns the number of changes so far: while it stays, selections stay.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the number of nodes, and of those with a mark.
    pub fn census(&self) -> Census {
        self.census
    }

    /// Returns the index of the names and addresses of nodes.
    pub fn identity(&self) -> Arc<Identity> {
        let identity = self.identity.get_or_init(|| {
            let nodes = self.nodes.iter().map(|(name, node)| (Arc::clone(name), &*node.addresses));
            Arc::new(Identity::new(nodes.collect()))
        });
        Arc::clone(identity)
    }

    /// Takes the answer to a write of a whole node, unless a newer version is known. A node that
    /// was deleted in the meantime does not come back.
    pub fn wrote_node(&mut self, node: &NodeObject) {
        let Some(name) = node.metadata.name.as_deref() else { return };
        let Some(known) = self.nodes.get(name).map(|known| known.version) else { return };
        self.apply(Event::Apply(node.clone()));
        if known < version(&node.metadata)
            && let Some(node) = self.nodes.get_mut(name)
        {
            node.ours = true;
        }
    }

    /// Takes the answer to a write of labels or annotations, unless a newer version is known.
    pub fn wrote(&mut self, metadata: &ObjectMeta) {
        let (labels, calico) = (self.labels(metadata), self.calico(metadata));
        let version = version(metadata);
        let node = metadata.name.as_deref().and_then(|name| self.nodes.get_mut(name));
        if let Some(node) = node
            && node.version <= version
        {
            count(&mut self.census, node, usize::wrapping_sub);
            node.ours |= node.version < version;
            self.changes = self.changes.wrapping_add(1);
            node.unfit = is_unfit(&labels);
            node.labels = labels;
            node.calico = calico;
            node.version = version;
            count(&mut self.census, node, usize::wrapping_add);
        }
    }

    /// Returns the number of stored texts.
    #[cfg(test)]
    pub fn texts_kept(&self) -> usize {
        self.texts.len()
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&new));
        new
    }

    pub fn labels(&mut self, metadata: &ObjectMeta) -> Texts {
        self.by_key(metadata.labels.iter().flatten())
    }

    pub fn calico(&mut self, metadata: &ObjectMeta) -> Texts {
        let [v4, v6] = BGP_ADDRESS_ANNOTATIONS;
        let keys = [BGP_AS_ANNOTATION, v4, v6, CLUSTER_ID_ANNOTATION];
        let annotations = metadata.annotations.iter().flatten();
        self.by_key(annotations.filter(|(key, _)| keys.contains(&key.as_str())))
    }

    fn by_key<'a>(&mut self, texts: impl Iterator<Item = (&'a String, &'a String)>) -> Texts {
        texts.map(|(key, value)| (self.text(key), self.text(value))).collect()
    }

    fn taints(&mut self, node: &NodeObject) -> Arc<[Taint]> {
        let taints = node.taints().iter().filter_map(|taint| {
            Some(Taint {
                key: self.text(taint["key"].as_str()?),
                value: self.text(taint["value"].as_str().unwrap_or_default()),
                effect: self.text(taint["effect"].as_str()?),
            })
        });
        let taints: Vec<_> = taints.collect();
        if taints.is_empty() {
            return Arc::default();
        }
        if *self.taints != *taints {
            self.taints = taints.into();
        }
        Arc::clone(&self.taints)
    }

    pub fn store(&mut self, node: &NodeObject) -> Option<(Arc<str>, Stored)> {
        let name = self.text(node.metadata.name.as_deref()?);
        let capacity = node.metadata.annotations.as_ref().and_then(|a| a.get(CAPACITY_ANNOTATION));
        let (labels, taints) = (self.labels(&node.metadata), self.taints(node));
        let stored = Stored {
            unfit: is_unfit(&labels),
            labels,
            addresses: node.addresses().iter().map(|a| self.text(&a.address)).collect(),
            open: node.is_schedulable() && is_untainted(&taints),
            taints,
            calico: self.calico(&node.metadata),
            incarnation: Incarnation::of(&node.metadata),
            readiness: node.readiness(),
            cordoned: node.is_cordoned(),
            schedulable: node.is_schedulable(),
            kubelet: node.kubelet(),
            offers: node.offers().map(|(name, offer)| (self.text(name), offer)).collect(),
            capacity: capacity.map(|value| self.text(value)),
            version: version(&node.metadata),
            since: self.changes.wrapping_add(1),
            ours: false,
        };
        Some((name, stored))
    }

    /// Applies an event; returns true if the stored data changed.
    pub fn apply(&mut self, event: Event<NodeObject>) -> bool {
        let changed = self.take(event);
        self.changes = self.changes.wrapping_add(u64::from(changed));
        changed
    }

    fn take(&mut self, event: Event<NodeObject>) -> bool {
        match event {
            Event::Init => {
                self.listing = Some(Vec::new());
                false
            }
            Event::InitApply(node) => {
                if let Some((name, stored)) = self.store(&node) {
                    self.listing.get_or_insert_default().push((name, stored));
                }
                false
            }
            Event::InitDone => {
                let listed = self.listing.take().unwrap_or_default();
                let mut listed: BTreeMap<_, _> = listed.into_iter().collect();
                for node in listed.values_mut() {
                    node.since = self.changes.wrapping_add(1);
                }
                // The list replaces what was known, regardless of versions: those of a restored
                // etcd are older. Only a write of ours may be newer than the list.
                for (name, old) in std::mem::take(&mut self.nodes) {
                    let Some(new) = listed.get_mut(&name) else { continue };
                    if old.ours && old.version > new.version {
                        *new = old;
                    } else if old.incarnation == new.incarnation {
                        new.since = old.since;
                    }
                }
                self.census = Census::default();
                for node in listed.values() {
                    count(&mut self.census, node, usize::wrapping_add);
                }
                self.nodes = listed;
                self.identity = OnceLock::new();
                self.forget_unused_texts();
                true
            }
            Event::Apply(node) => {
                let Some((name, mut stored)) = self.store(&node) else { return false };
                let old = self.nodes.get(&name);
                if let Some(old) = old.filter(|old| old.incarnation == stored.incarnation) {
                    stored.since = old.since;
                }
                if old.is_some_and(|old| old.version > stored.version) {
                    return false;
                }
                let changed = old.is_none_or(|old| !old.is_same(&stored));
                if old.is_none_or(|old| old.addresses != stored.addresses) {
                    self.identity = OnceLock::new();
                }
                count(&mut self.census, &stored, usize::wrapping_add);
                if let Some(old) = self.nodes.insert(name, stored) {
                    count(&mut self.census, &old, usize::wrapping_sub);
                }
                self.forget_some_texts();
                changed
            }
            Event::Delete(node) => {
                let removed = node.metadata.name.and_then(|name| self.nodes.remove(name.as_str()));
                let changed = removed.is_some();
                if let Some(node) = removed {
                    count(&mut self.census, &node, usize::wrapping_sub);
                    self.identity = OnceLock::new();
                }
                self.forget_unused_texts();
                changed
            }
        }
    }

    fn forget_unused_texts(&mut self) {
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        self.texts_in_use = self.texts.len();
    }

    /// Sweeps unused texts each time their number has doubled, so that a sweep costs no more than
    /// the additions: labels with changing values would otherwise fill the store.
    fn forget_some_texts(&mut self) {
        if self.texts.len() > 2 * self.texts_in_use.max(FEW_TEXTS) {
            self.forget_unused_texts();
        }
    }
}

/// Adds a node to a census, or removes it.
fn count(census: &mut Census, node: &Stored, step: fn(usize, usize) -> usize) {
    let open = node.open.then_some(&mut census.open);
    for marked in [Some(&mut census.all), open].into_iter().flatten() {
        marked.nodes = step(marked.nodes, 1);
        marked.unfit = step(marked.unfit, usize::from(node.unfit));
    }
}

/// Reports whether any `TrafficWatch` marks a node with these labels.
pub(super) fn is_unfit(labels: &Texts) -> bool {
    marking(labels).next().is_some()
}

/// The labels by which `TrafficWatch`es mark a node.
pub(super) fn marking(labels: &Texts) -> impl Iterator<Item = &Arc<str>> {
    let marks =
        labels.iter().filter(|(key, value)| &***value == "true" && key.ends_with(UNFIT_SUFFIX));
    marks.map(|(key, _)| key)
}
