//! The operator-wide ceiling: how many nodes all `TrafficWatch`es together may mark unfit.
//!
//! A plan sees how much is left of it for its namespace ([`Ceiling::headroom`]). Objects are
//! reconciled at the same time, so each new mark is counted again just before it is written
//! ([`Ceiling::admit`]).
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};
use tokio::sync::Notify;

use super::{
    limits::{Headroom, Owed, Share},
    memory::Memories,
    shares::{Contest, Terms},
};
use crate::{
    api::traffic_watch::Mode,
    controller::Key,
    metrics::{Family, count},
    nodes::{Census, Marked, NodeStore},
};

/// The default of `--max-unfit`: at least half of the nodes take pods, regardless of the objects.
pub const DEFAULT: Share = Share::Percent(50);

/// Counts the marks of all objects. Clones share it.
#[derive(Clone)]
pub struct Ceiling(Arc<Inner>);

struct Inner {
    nodes: NodeStore,
    max: Share,
    memories: Memories,
    /// The operator's own namespace, which is the platform's.
    own: String,
    under_way: Mutex<UnderWay>,
    /// An object waits for a place.
    calls: Notify,
}

/// Least time between two calls for places: whoever waits may do so each second.
const CALLS: Duration = Duration::from_secs(2);

/// What one object has of the ceiling and wants of it.
struct Party {
    key: Key,
    /// Its key on nodes.
    label: String,
    /// Number of nodes that it cannot mark only because of the ceiling: those that can take ordinary
    /// pods, and the others.
    waiting: (usize, usize),
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
    /// A ceiling over the nodes of a store, for objects with these memories. `own` is the operator's
    /// own namespace.
    #[must_use]
    pub fn new(nodes: NodeStore, max: Share, memories: Memories, own: String) -> Self {
        let (under_way, calls) = (Mutex::default(), Notify::new());
        Self(Arc::new(Inner { nodes, max, memories, own, under_way, calls }))
    }

    /// The share of nodes that may be marked.
    #[must_use]
    pub fn max(&self) -> Share {
        self.0.max
    }

    /// Returns the number of further nodes that the objects of a namespace may mark now.
    #[must_use]
    pub fn headroom(&self, namespace: &str) -> Headroom {
        let (census, parties) = (self.0.nodes.census(), self.parties());
        let headroom = self.left(&census);
        let waits = |party: &Party| party.waiting != (0, 0) && party.key.0 != namespace;
        if namespace == self.0.own || !parties.iter().any(waits) {
            return headroom;
        }
        let [open, all] =
            self.contests(&census, &parties).map(|contest| self.terms(&contest, namespace));
        if open.is_none() && all.is_none() {
            return headroom;
        }
        let take = |terms: Option<Terms>, left| terms.map_or(left, |terms| terms.take);
        let owed = |terms: Option<Terms>| terms.map_or(0, |terms| terms.give_back);
        Headroom {
            open: take(open, headroom.open),
            all: take(all, headroom.all),
            owed: Some(Owed { open: owed(open), all: owed(all) }),
            ..headroom
        }
    }

    /// Returns the number of further nodes that all objects together may mark now.
    fn left(&self, census: &Census) -> Headroom {
        let left = |marked: Marked| self.places(marked).saturating_sub(marked.unfit);
        let none = self.0.max.is_none();
        Headroom { open: left(census.open), all: left(census.all), none, owed: None }
    }

    fn places(&self, marked: Marked) -> usize {
        self.0.max.at_most(marked.nodes)
    }

    fn terms(&self, contest: &Contest<'_>, namespace: &str) -> Option<Terms> {
        contest.terms(namespace, &self.0.own)
    }

    fn parties(&self) -> Vec<Party> {
        let parties = self.0.memories.each(|_, entry| {
            let (facts, memory) = (&entry.facts, &entry.memory);
            let waiting = (memory.above_ceiling_open, memory.above_ceiling);
            (facts.mode == Mode::Enforce).then(|| (facts.label.clone(), waiting))
        });
        parties
            .map(|(key, (label, (open, all)))| Party { key, label, waiting: (open, all - open) })
            .collect()
    }

    /// Who has and wants places among the nodes that can take ordinary pods, and among all.
    fn contests<'a>(&self, census: &Census, parties: &'a [Party]) -> [Contest<'a>; 2] {
        let namespaces: BTreeMap<&str, &str> =
            parties.iter().map(|party| (&*party.label, &*party.key.0)).collect();
        let headroom = self.left(census);
        let [mut open, mut all] =
            [(census.open, headroom.open), (census.all, headroom.all)].map(|(marked, free)| {
                Contest { places: self.places(marked), free, ..Contest::default() }
            });
        for (takes_pods, keys) in self.0.nodes.marks() {
            let marks: BTreeSet<_> =
                keys.iter().filter_map(|key| namespaces.get(&**key).copied()).collect();
            if takes_pods {
                open.marks.push(marks.clone());
            }
            all.marks.push(marks);
        }
        for party in parties {
            let (waits_open, waits_closed) = party.waiting;
            for (contest, waits) in [(&mut open, waits_open), (&mut all, waits_closed)] {
                if waits > 0 {
                    *contest.waiting.entry(&party.key.0).or_default() += waits;
                }
            }
        }
        [open, all]
    }

    /// Has those that owe places judged soon, however long their intervals are.
    pub(super) fn call(&self) {
        self.0.calls.notify_one();
    }

    /// The objects that owe places, each time that one which waits calls.
    pub fn debtors(&self) -> impl Stream<Item = Key> + Send + 'static + use<> {
        let calls = stream::unfold(self.clone(), |ceiling| async move {
            ceiling.0.calls.notified().await;
            let debtors = ceiling.owing();
            tokio::time::sleep(CALLS).await;
            Some((stream::iter(debtors), ceiling))
        });
        calls.flatten()
    }

    fn owing(&self) -> Vec<Key> {
        let (census, parties) = (self.0.nodes.census(), self.parties());
        let contests = self.contests(&census, &parties);
        let owes = |namespace: &str| {
            let mut terms = contests.iter().filter_map(|contest| self.terms(contest, namespace));
            terms.any(|terms| terms.give_back > 0)
        };
        let namespaces: BTreeSet<_> = parties.iter().map(|party| &*party.key.0).collect();
        let namespaces: BTreeSet<_> = namespaces.into_iter().filter(|name| owes(name)).collect();
        let debtors = parties.iter().filter(|party| namespaces.contains(&*party.key.0));
        debtors.map(|party| party.key.clone()).collect()
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
        let headroom = self.left(&nodes.census());
        pending.count() < if open { headroom.open } else { headroom.all }
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.0.under_way.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Its gauges, read at scrape time.
impl Collector for Ceiling {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let open = self.0.nodes.census().open;
        for (name, help, value) in [
            (
                "traffic_operator_unfit_nodes",
                "Nodes that can take ordinary pods and carry the mark of any TrafficWatch",
                open.unfit,
            ),
            (
                "traffic_operator_unfit_nodes_limit",
                "Maximum number of marked nodes among those that can take ordinary pods: --max-unfit",
                self.0.max.at_most(open.nodes),
            ),
        ] {
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(count(value)).encode(encoder)?;
        }
        let judged = self.0.memories.each(|_, entry| {
            let memory = &entry.memory;
            memory.tick.is_some().then_some((memory.above_ceiling, memory.unmarked_room))
        });
        let judged: Vec<_> = judged.collect();
        let mut family = |name: &str, help: &str, value: fn(&(usize, usize)) -> usize| {
            let mut family = Family::gauges(&mut encoder, name, help)?;
            for ((namespace, name), figures) in &judged {
                let labels = [("namespace", namespace.as_str()), ("name", name.as_str())];
                family.gauge(&labels, count(value(figures)))?;
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

    use super::{super::memory::Memory, *};

    fn node(name: &str, key: &str, tainted: bool) -> Event<crate::nodes::NodeObject> {
        let taints = json!([{"key": "reserved", "effect": "NoSchedule"}]);
        let object = json!({
            "metadata": {"name": name, "labels": {key: "true"}, "resourceVersion": "1"},
            "spec": {"taints": if tainted { taints } else { json!([]) }},
        });
        Event::Apply(serde_json::from_value(object).unwrap())
    }

    fn over(nodes: NodeStore, max: Share) -> Ceiling {
        Ceiling::new(nodes, max, Memories::default(), "ops".into())
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
        let ceiling = over(store.clone(), DEFAULT);
        let left = |open, all| Headroom { open, all, ..ceiling.headroom("ns") };
        assert_eq!(ceiling.headroom("ns"), left(2, 2));
        store.apply(node("a", "one.traffic.example.com/unfit", false));
        store.apply(node("closed", "two.traffic.example.com/unfit", true));
        assert_eq!(ceiling.headroom("ns"), left(1, 0));
        assert!(over(store, Share::Nodes(0)).headroom("ns").none);
    }

    #[test]
    fn marks_that_are_being_written_at_the_same_time_count_too() {
        let store = cluster();
        let ceiling = over(store.clone(), DEFAULT);
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
        let ceiling = over(store, DEFAULT);
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
        let ceiling = over(store, Share::Nodes(1));
        assert!(ceiling.admit(&"b".into()).is_none());
        for name in ["a", "unknown"] {
            assert!(ceiling.admit(&name.into()).unwrap().is_free(), "{name}");
        }
    }

    /// A second mark of a node takes no further place, as long as the first one is there.
    #[test]
    fn the_place_of_a_node_is_held_if_the_other_object_removes_its_mark_meanwhile() {
        let store = cluster();
        let ceiling = over(store.clone(), DEFAULT);
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
        let ceiling = over(store.clone(), Share::Nodes(1));
        let [a, b] = ["a", "b"].map(Arc::<str>::from);
        ceiling.admit(&a).unwrap().lose();
        assert!(ceiling.admit(&b).is_none(), "a may be marked");
        assert!(ceiling.admit(&a).is_some(), "the same write again");
        let seen = json!({"metadata": {"name": "a", "resourceVersion": "2"}});
        store.apply(Event::Apply(serde_json::from_value(seen).unwrap()));
        assert!(ceiling.admit(&b).is_some());
    }

    /// Remembers what an object wants, as its last pass did.
    fn judged(memories: &Memories, namespace: &str, waiting: usize) {
        memories.change(&(namespace.into(), "web".into()), |entry| {
            entry.facts.label = format!("web.{namespace}.traffic.example.com/unfit");
            let memory =
                Memory { above_ceiling: waiting, above_ceiling_open: waiting, ..Memory::default() };
            entry.memory = Arc::new(memory);
        });
    }

    #[test]
    fn a_tenant_gives_places_back_as_soon_as_the_platform_waits() {
        let store = NodeStore::default();
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            store.apply(node(name, "other", false));
        }
        let memories = Memories::default();
        let ceiling = Ceiling::new(store.clone(), DEFAULT, memories.clone(), "ops".into());
        for name in ["a", "b", "c", "d"] {
            store.apply(node(name, "web.greedy.traffic.example.com/unfit", false));
        }
        judged(&memories, "greedy", 4);
        judged(&memories, "ops", 0);
        let free = ceiling.headroom("greedy");
        assert_eq!((free.open, free.owed), (0, None), "nobody else waits");
        assert!(ceiling.owing().is_empty());
        judged(&memories, "ops", 2);
        assert_eq!(ceiling.headroom("greedy").owed, Some(Owed { open: 2, all: 0 }));
        assert_eq!(ceiling.headroom("ops").owed, None);
        assert_eq!(ceiling.owing(), [("greedy".to_owned(), "web".to_owned())]);
        // What is free now is the platform's.
        for name in ["a", "b"] {
            store.apply(node(name, "other", false));
        }
        let greedy = ceiling.headroom("greedy");
        assert_eq!((greedy.open, greedy.owed), (0, Some(Owed { open: 0, all: 0 })));
        assert_eq!(ceiling.headroom("ops").open, 2);
        for name in ["a", "b"] {
            store.apply(node(name, "web.ops.traffic.example.com/unfit", false));
        }
        judged(&memories, "ops", 0);
        assert_eq!(ceiling.headroom("greedy").owed, None);
    }
}
