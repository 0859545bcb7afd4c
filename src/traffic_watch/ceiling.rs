//! The operator-wide ceiling: how many nodes all `TrafficWatch`es together may mark unfit.
//!
//! A plan sees how much is left of it ([`Ceiling::headroom`]). Objects are reconciled at the same
//! time, so each new mark is counted again just before it is written ([`Ceiling::admit`]).
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};

use super::{
    limits::{Headroom, Share},
    memory::Memories,
};
use crate::nodes::{Marked, NodeStore};

/// The default of `--max-unfit`: at least half of the nodes take pods, regardless of the objects.
pub const DEFAULT: Share = Share::Percent(50);

/// Counts the marks of all objects. Clones share it.
#[derive(Clone)]
pub struct Ceiling(Arc<Inner>);

struct Inner {
    nodes: NodeStore,
    max: Share,
    under_way: Mutex<UnderWay>,
}

/// Marks that the store does not show yet; of each node also whether it takes ordinary pods.
#[derive(Default)]
struct UnderWay {
    /// Nodes that are being marked now, each by how many writes.
    writes: BTreeMap<Arc<str>, (usize, bool)>,
    /// Nodes whose write has no answer, each with its last known version.
    lost: BTreeMap<Arc<str>, (u64, bool)>,
}

/// A mark that may be written; its place is held until this is dropped.
pub struct Place<'a> {
    ceiling: &'a Ceiling,
    node: Option<Arc<str>>,
}

impl Ceiling {
    /// A ceiling over the nodes of a store.
    #[must_use]
    pub fn new(nodes: NodeStore, max: Share) -> Self {
        Self(Arc::new(Inner { nodes, max, under_way: Mutex::default() }))
    }

    /// The share of nodes that may be marked.
    #[must_use]
    pub fn max(&self) -> Share {
        self.0.max
    }

    /// Returns the number of further nodes that may be marked now.
    #[must_use]
    pub fn headroom(&self) -> Headroom {
        let census = self.0.nodes.census();
        let left = |marked: Marked| self.0.max.at_most(marked.nodes).saturating_sub(marked.unfit);
        Headroom { open: left(census.open), all: left(census.all), none: self.0.max.is_none() }
    }

    /// Reserves a place for the mark of a node; returns `None` if that would be one too many.
    #[must_use]
    pub fn admit(&self, node: &Arc<str>) -> Option<Place<'_>> {
        let place = |node| Some(Place { ceiling: self, node });
        let mut under_way = self.under_way();
        // The API server answers for a node that is not known.
        let Some((unfit, open)) = self.0.nodes.standing(node) else { return place(None) };
        if let Some((writes, _)) = under_way.writes.get_mut(node) {
            *writes += 1;
            return place(Some(Arc::clone(node)));
        }
        // A node with the mark of another object is none more. Its place is held as well: the other
        // object may remove its mark before this one is there.
        if !unfit && !self.has_place(&mut under_way, node, open) {
            return None;
        }
        under_way.writes.insert(Arc::clone(node), (1, open));
        place(Some(Arc::clone(node)))
    }

    /// Reports whether one more node may be marked, besides those that are being marked now.
    fn has_place(&self, under_way: &mut UnderWay, node: &Arc<str>, open: bool) -> bool {
        let (nodes, UnderWay { writes, lost }) = (&self.0.nodes, under_way);
        lost.retain(|node, (version, _)| nodes.known(node).is_some_and(|(_, now)| now == *version));
        let writes = writes.iter().map(|(node, (_, open))| (node, *open));
        let lost = lost.iter().map(|(node, (_, open))| (node, *open));
        let pending: BTreeMap<_, _> = writes.chain(lost).collect();
        // The headroom already counts marks that are written and known.
        let pending = pending.iter().filter(|(other, takes_pods)| {
            **other != node
                && (!open || **takes_pods)
                && nodes.standing(other).is_some_and(|(unfit, _)| !unfit)
        });
        let headroom = self.headroom();
        pending.count() < if open { headroom.open } else { headroom.all }
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.0.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The gauges of the ceiling, read at scrape time.
    #[must_use]
    pub fn gauges(&self, memories: &Memories) -> Box<dyn Collector> {
        Box::new(Gauges { ceiling: self.clone(), memories: memories.clone() })
    }
}

impl fmt::Debug for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ceiling").field(&self.0.max).finish()
    }
}

impl Place<'_> {
    /// Reports whether its mark is still none too many, before it is tried again: the node may have
    /// lost another mark, with which it was counted.
    #[must_use]
    pub fn is_free(&self) -> bool {
        let Some(node) = &self.node else { return true };
        let mut under_way = self.ceiling.under_way();
        match self.ceiling.0.nodes.standing(node) {
            Some((false, open)) => self.ceiling.has_place(&mut under_way, node, open),
            _ => true,
        }
    }

    /// Holds the place of a write without an answer until the watch shows another version of the
    /// node: it may have been carried out.
    pub fn lose(&self) {
        let Some(node) = &self.node else { return };
        let mut under_way = self.ceiling.under_way();
        let nodes = &self.ceiling.0.nodes;
        if let (Some((_, open)), Some((_, version))) = (nodes.standing(node), nodes.known(node)) {
            under_way.lost.insert(Arc::clone(node), (version, open));
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(node) = &self.node else { return };
        let mut under_way = self.ceiling.under_way();
        if let Some((writes, _)) = under_way.writes.get_mut(node) {
            *writes -= 1;
            if *writes == 0 {
                under_way.writes.remove(node);
            }
        }
    }
}

#[derive(Debug)]
struct Gauges {
    ceiling: Ceiling,
    memories: Memories,
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let open = self.ceiling.0.nodes.census().open;
        let count = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        for (name, help, value) in [
            (
                "traffic_operator_unfit_nodes",
                "Nodes that can take ordinary pods and carry the mark of any TrafficWatch",
                open.unfit,
            ),
            (
                "traffic_operator_unfit_nodes_limit",
                "Maximum number of marked nodes among those that can take ordinary pods: --max-unfit",
                self.ceiling.0.max.at_most(open.nodes),
            ),
        ] {
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(count(value)).encode(encoder)?;
        }
        let judged = self.memories.each(|_, entry| {
            let memory = &entry.memory;
            memory.tick.is_some().then_some((memory.above_ceiling, memory.unmarked_room))
        });
        let judged: Vec<_> = judged.collect();
        let mut family = |name: &str, help: &str, value: fn(&(usize, usize)) -> usize| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for ((namespace, name), figures) in &judged {
                let labels = [("namespace", namespace.as_str()), ("name", name.as_str())];
                let gauge = ConstGauge::new(count(value(figures)));
                gauge.encode(family.encode_family(&labels)?)?;
            }
            Ok(())
        };
        family(
            "traffic_operator_trafficwatch_above_ceiling",
            "Nodes above the threshold that only --max-unfit keeps from being marked",
            |(above_ceiling, _)| *above_ceiling,
        )?;
        family(
            "traffic_operator_trafficwatch_room",
            "Nodes that can take the pods in question and carry no mark",
            |(_, room)| *room,
        )
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    fn node(name: &str, key: &str, tainted: bool) -> Event<crate::nodes::NodeObject> {
        let taints = json!([{"key": "reserved", "effect": "NoSchedule"}]);
        let object = json!({
            "metadata": {"name": name, "labels": {key: "true"}, "resourceVersion": "1"},
            "spec": {"taints": if tainted { taints } else { json!([]) }},
        });
        Event::Apply(serde_json::from_value(object).unwrap())
    }

    fn cluster() -> NodeStore {
        let store = NodeStore::default();
        for name in ["a", "b", "c", "d"] {
            store.apply(node(name, "other", false));
        }
        store.apply(node("closed", "other", true));
        store
    }

    #[test]
    fn marks_of_all_objects_count_and_each_node_once() {
        let store = cluster();
        let ceiling = Ceiling::new(store.clone(), DEFAULT);
        assert_eq!(ceiling.headroom(), Headroom { open: 2, all: 2, none: false });
        store.apply(node("a", "one.traffic.example.com/unfit", false));
        store.apply(node("closed", "two.traffic.example.com/unfit", true));
        assert_eq!(ceiling.headroom(), Headroom { open: 1, all: 0, none: false });
        assert!(Ceiling::new(store, Share::Nodes(0)).headroom().none);
    }

    #[test]
    fn marks_that_are_being_written_at_the_same_time_count_too() {
        let store = cluster();
        let ceiling = Ceiling::new(store.clone(), DEFAULT);
        let [a, b, c] = ["a", "b", "c"].map(Arc::<str>::from);
        let first = ceiling.admit(&a).unwrap();
        let again = ceiling.admit(&a).unwrap();
        let second = ceiling.admit(&b).unwrap();
        assert!(ceiling.admit(&c).is_none(), "two of four");
        // A failed write releases its place; a successful one is counted by its label.
        drop(second);
        store.apply(node("a", "one.traffic.example.com/unfit", false));
        let third = ceiling.admit(&c).unwrap();
        assert!(ceiling.admit(&b).is_none());
        drop((first, again, third));
        assert!(ceiling.admit(&a).is_some(), "another mark of the same node");
        assert!(ceiling.admit(&b).is_some());
        assert!(ceiling.under_way().writes.is_empty());
    }

    #[test]
    fn closed_nodes_that_are_being_marked_take_places_of_all_and_none_of_the_open_ones() {
        let store = cluster();
        store.apply(node("closed too", "other", true));
        store.apply(node("the third", "other", true));
        let ceiling = Ceiling::new(store, DEFAULT);
        let admit = |name: &str| ceiling.admit(&name.into());
        let _closed = ["closed", "closed too"].map(|name| admit(name).unwrap());
        let _open = admit("a").expect("none of four that are open");
        assert!(admit("the third").is_none(), "three of seven");
    }

    /// Only a further node takes a place, and whether there is an unknown one the API server knows.
    #[test]
    fn above_the_ceiling_a_marked_node_gets_another_mark_and_an_unknown_one_is_tried_again() {
        let store = cluster();
        store.apply(node("a", "one.traffic.example.com/unfit", false));
        let ceiling = Ceiling::new(store, Share::Nodes(1));
        assert!(ceiling.admit(&"b".into()).is_none());
        for name in ["a", "unknown"] {
            assert!(ceiling.admit(&name.into()).unwrap().is_free(), "{name}");
        }
    }

    /// A second mark of a node takes no further place, as long as the first one is there.
    #[test]
    fn the_place_of_a_node_is_held_if_the_other_object_removes_its_mark_meanwhile() {
        let store = cluster();
        let ceiling = Ceiling::new(store.clone(), DEFAULT);
        for name in ["a", "b"] {
            store.apply(node(name, "one.traffic.example.com/unfit", false));
        }
        let [a, c] = ["a", "c"].map(Arc::<str>::from);
        let second = ceiling.admit(&a).unwrap();
        store.apply(node("a", "other", false));
        assert!(ceiling.admit(&c).is_none(), "a is about to be marked again");
        assert!(second.is_free());
        // Another client takes the place.
        store.apply(node("d", "one.traffic.example.com/unfit", false));
        assert!(!second.is_free());
        store.apply(node("d", "other", false));
        drop(second);
        assert!(ceiling.admit(&c).is_some());
    }

    #[test]
    fn a_mark_without_an_answer_counts_until_its_node_is_seen_again() {
        let store = cluster();
        let ceiling = Ceiling::new(store.clone(), Share::Nodes(1));
        let [a, b] = ["a", "b"].map(Arc::<str>::from);
        ceiling.admit(&a).unwrap().lose();
        assert!(ceiling.admit(&b).is_none(), "a may be marked");
        assert!(ceiling.admit(&a).is_some(), "the same write again");
        let seen = json!({"metadata": {"name": "a", "resourceVersion": "2"}});
        store.apply(Event::Apply(serde_json::from_value(seen).unwrap()));
        assert!(ceiling.admit(&b).is_some());
    }
}
