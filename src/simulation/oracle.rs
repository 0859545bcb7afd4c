//! The judge of every write of the operator.
//!
//! The operator acts on what it saw, which is behind the world. So a write is right if it is right
//! by any view of the time in which the operator may have decided it, over the labels that the
//! nodes have at the moment of the write. Nodes and objects come by watches of their own: a view
//! has the nodes of one scene, and an object of another.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;

use super::{
    faults::FaultWindow,
    scene::{
        NodeScene, Past, Range, Scene, WatchScene, at_least, at_most, labels, marks, without_marks,
    },
    store::Store,
    write::Write,
};

/// The longest time from a view to the last write that follows from it: a pass waits 10 s for
/// Prometheus, a write 10 s for its answer, and it is tried five times.
const BEHIND: Duration = Duration::from_mins(1);

/// The operator's own ceiling over all objects, `--max-unfit`.
const CEILING: &str = "50%";

/// One question to Prometheus.
#[derive(Clone, Debug)]
pub struct Ask {
    pub at: Duration,
    /// The load of each node with evidence, and when it was scraped; `None` without an answer.
    pub values: Option<BTreeMap<String, (f64, u64)>>,
    /// False if the operator may not have waited for the answer.
    pub is_certain: bool,
}

#[derive(Default)]
pub struct Oracle {
    present: Scene,
    past: Vec<Past>,
    asks: Vec<Ask>,
    /// The thresholds of each label key: of all objects that had it.
    ranges: BTreeMap<String, Range>,
    /// The time since which each node exists, by UID.
    born: BTreeMap<String, Duration>,
    /// The last value that the operator wrote, by UID and key.
    own: BTreeMap<(String, String), String>,
    /// The labels that another client changed since.
    foreign: BTreeSet<(String, String)>,
    pub violations: Vec<(Duration, String)>,
}

impl Oracle {
    /// Notes what there is now.
    pub fn look(&mut self, store: &Store, now: Duration) {
        let scene = Scene::of(store);
        if scene == self.present {
            return;
        }
        for watch in scene.watches.values() {
            let now = Range::of(watch);
            let range = self.ranges.entry(watch.key.clone()).or_insert(now);
            *range = range.with(now);
        }
        for node in scene.nodes.values() {
            self.born.entry(node.uid.clone()).or_insert(now);
        }
        let scene = std::mem::replace(&mut self.present, scene);
        self.past.push(Past { until: now, scene });
    }

    pub fn asked(&mut self, ask: Ask) {
        self.asks.push(ask);
    }

    /// Reports whether the operator wrote a label: others make labels of their own.
    pub fn owns(&self, node: &str, key: &str) -> bool {
        let mark = (self.present.nodes[node].uid.clone(), key.to_owned());
        self.own.contains_key(&mark) && !self.foreign.contains(&mark)
    }

    /// Notes that another client changes a label.
    pub fn edited(&mut self, node: &str, key: &str) {
        if let Some(node) = self.present.nodes.get(node) {
            self.foreign.insert((node.uid.clone(), key.to_owned()));
        }
    }

    pub fn violate(&mut self, at: Duration, text: impl Into<String>) {
        self.violations.push((at, text.into()));
    }

    /// Judges a write that changed something; returns the number of labels that it changed.
    pub fn judge(&mut self, write: &Write, store: &Store, windows: &[FaultWindow]) -> u64 {
        let from = since(write.at, windows);
        let wrong = match write.key.plural.as_str() {
            "nodes" => return self.judge_node(write, store, from),
            "trafficwatches" => {
                self.look(store, write.at);
                write.changes_spec().then(|| "changes the spec of an object".to_owned())
            }
            "deployments" => self.judge_deployment(write, from),
            "leases" => None,
            plural => Some(format!("writes {plural}")),
        };
        if let Some(wrong) = wrong {
            self.violate(write.at, format!("{wrong}: {}", write.call.line()));
        }
        0
    }

    fn judge_node(&mut self, write: &Write, store: &Store, from: Duration) -> u64 {
        let (Some(before), Some(after)) = (&write.before, &write.after) else {
            self.violate(write.at, "creates or deletes a node");
            return 0;
        };
        if without_marks(before) != without_marks(after) {
            self.violate(write.at, format!("changes what is not ours: {}", write.call.line()));
        }
        let (old, new) = (marks(before), marks(after));
        let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        let mut changes = 0;
        for key in keys {
            if old.get(key) == new.get(key) {
                continue;
            }
            changes += 1;
            let uid = before["metadata"]["uid"].as_str().unwrap().to_owned();
            let change = Change {
                node: &write.key.name,
                uid: &uid,
                key,
                from: old.get(key).map(String::as_str),
                to: new.get(key).map(String::as_str),
            };
            if let Some(wrong) = self.wrong(&change, store, from) {
                let Change { node, from, to, .. } = change;
                let text = format!("{wrong}: {key} of {node} from {from:?} to {to:?}");
                self.violate(write.at, text);
            }
            let mark = (uid, key.clone());
            self.foreign.remove(&mark);
            if let Some(value) = new.get(key) {
                self.own.insert(mark, value.clone());
                continue;
            }
            self.own.remove(&mark);
        }
        changes
    }

    /// Returns the reason why a change of a label is wrong.
    fn wrong(&self, change: &Change<'_>, store: &Store, from: Duration) -> Option<String> {
        let Some(to) = change.to else {
            let is_left = |watch: &WatchScene| {
                self.scenes(from).any(|scene| scene.selected(watch).all(|node| node != change.node))
            };
            let may = self.scenes(from).any(|scene| {
                let holder = scene.holder(change.key);
                holder.is_none_or(|watch| watch.leaving || is_left(watch))
            });
            return (!may).then(|| "removes the label of a judged node".to_owned());
        };
        let reverts = self.own.get(&(change.uid.to_owned(), change.key.to_owned()));
        if reverts.is_some_and(|own| own == to) {
            return None;
        }
        let mut why = "the label of nobody".to_owned();
        let holders = self.scenes(from).filter_map(|scene| scene.holder(change.key));
        let mut holders: Vec<_> = holders.filter(|watch| !watch.paused).collect();
        holders.dedup();
        for (watch, scene) in holders.iter().flat_map(|w| self.scenes(from).map(move |s| (*w, s))) {
            let Some(node) = scene.nodes.get(change.node).filter(|n| n.uid == change.uid) else {
                continue;
            };
            if scene.selected(watch).all(|node| node != change.node) {
                "a node that is not selected".clone_into(&mut why);
                continue;
            }
            let wrong = if to == "true" {
                self.wrong_mark(change, store, (scene, watch, node), from)
            } else if self.took_over(change.key, watch, from) {
                None
            } else {
                self.wrong_unmark(change, store, (scene, watch))
            };
            match wrong {
                None => return None,
                Some(wrong) => why = wrong,
            }
        }
        Some(why)
    }

    /// Returns the scenes since then, and the present one.
    fn scenes(&self, from: Duration) -> impl Iterator<Item = &Scene> {
        let past = self.past.iter().filter(move |past| past.until >= from);
        past.map(|past| &past.scene).chain([&self.present])
    }

    /// Reports whether an object became the holder of a key: it brings the states along that it
    /// found without it, and nodes that it suppressed lose the mark of its predecessor.
    fn took_over(&self, key: &str, watch: &WatchScene, from: Duration) -> bool {
        let mut holders = self.scenes(from).map(|scene| scene.holder(key));
        holders.any(|holder| holder.is_none_or(|holder| holder.uid != watch.uid))
    }

    fn wrong_mark(
        &self,
        change: &Change<'_>,
        store: &Store,
        (scene, watch, node): (&Scene, &WatchScene, &NodeScene),
        from: Duration,
    ) -> Option<String> {
        let range = self.ranges[change.key];
        let values = self.values(change);
        let above = values.iter().filter(|value| **value > range.max.0).count();
        if above < range.unfit_after {
            return Some(format!("{above} samples are above the threshold"));
        }
        let recent = values.iter().rev().take(range.fit_after + 3);
        if recent.clone().all(|value| *value <= range.recover.0) {
            return Some("the last samples are low".into());
        }
        let labels = labels(store);
        let marked = |name: &str| {
            labels
                .get(name)
                .is_some_and(|marks| marks.get(change.key).is_some_and(|value| value == "true"))
        };
        let selected: Vec<_> = scene.selected(watch).collect();
        if !node.open {
            // It may have been the first of its plan: only nodes of its kind count.
            let closed = scene.nodes.iter().filter(|(name, node)| !node.open && marked(name));
            let (held, closed): (Vec<_>, Vec<_>) =
                closed.partition(|(name, _)| self.may_be_blind(change, name, &selected, from));
            let (count, most) =
                (closed.len(), at_most(&watch.max_unfit, selected.len() - held.len()));
            return (count > most).then(|| format!("{count} closed ones marked, at most {most}"));
        }
        let nodes: Vec<_> = selected.iter().filter(|name| scene.nodes[**name].open).collect();
        let all = nodes.iter().filter(|name| marked(name)).count();
        let blind = |name: &str| self.may_be_blind(change, name, &selected, from);
        let held = nodes.iter().filter(|name| marked(name) && blind(name)).count();
        let most = at_most(&watch.max_unfit, nodes.len() - held);
        if all - held > most {
            return Some(format!("{} of {} marked, at most {most}", all - held, nodes.len()));
        }
        let floor = at_least(&watch.min_fit, nodes.len());
        if nodes.len() - all < floor {
            return Some(format!("{} of {} unmarked, not {floor}", nodes.len() - all, nodes.len()));
        }
        // The ceiling over all objects.
        let any = |name: &str, but: &str| {
            let marks = labels.get(name).into_iter().flatten();
            marks.filter(|(key, _)| *key != but).any(|(_, value)| value == "true")
        };
        if any(change.node, change.key) {
            return None;
        }
        let counted = scene.nodes.iter().filter(|(_, other)| other.open);
        let counted: Vec<_> = counted.map(|(name, _)| name).collect();
        let unfit = counted.iter().filter(|name| any(name, "")).count();
        let most = at_most(&Value::from(CEILING), counted.len());
        (unfit > most).then(|| format!("{unfit} of {} marked by all objects", counted.len()))
    }

    fn wrong_unmark(
        &self,
        change: &Change<'_>,
        store: &Store,
        (scene, watch): (&Scene, &WatchScene),
    ) -> Option<String> {
        let range = self.ranges[change.key];
        let values = self.values(change);
        if change.from.is_none() {
            // It counts as fit until it was judged, or is above the threshold and left unmarked.
            let fit = values.iter().any(|value| *value <= range.max.1);
            let few = !fit && values.len() < range.unfit_after;
            return few.then(|| format!("{} samples, none of them fit", values.len()));
        }
        // The limits release marks as well, and those without evidence last.
        let labels = labels(store);
        let others = scene.selected(watch).filter(|name| scene.nodes[*name].open);
        let others: Vec<_> = others.collect();
        let unmarked = others.iter().filter(|name| {
            let value = labels.get(**name).and_then(|marks| marks.get(change.key));
            value.is_none_or(|value| value != "true")
        });
        let released = at_most(&watch.max_unfit, 100) == 0
            || unmarked.count() <= at_least(&watch.min_fit, others.len());
        if released {
            return None;
        }
        // Another client's mark is no verdict: without one, a node is fit at the threshold.
        let mark = (change.uid.to_owned(), change.key.to_owned());
        let is_ours = self.own.get(&mark).is_some_and(|own| own == "true");
        let low = if is_ours { range.recover.1 } else { range.max.1 };
        let below = values.iter().filter(|value| **value <= low).count();
        if below < range.fit_after {
            return Some(format!("{below} samples are low"));
        }
        let mut recent = values.iter().rev().take(range.unfit_after + 3);
        let high = recent.all(|value| *value > range.max.1);
        high.then(|| "the last samples are above the threshold".into())
    }

    /// Returns the samples of a node since it exists, each scrape once.
    fn values(&self, change: &Change<'_>) -> Vec<f64> {
        let born = self.born.get(change.uid).copied().unwrap_or_default();
        let asks = self.asks.iter().filter(|ask| ask.at >= born);
        let mut last = None;
        let values = asks.filter_map(|ask| ask.values.as_ref()?.get(change.node));
        let new = values.filter(|(_, scraped)| last.replace(*scraped) != Some(*scraped));
        new.map(|(value, _)| *value).collect()
    }

    /// Reports whether another node may have been without evidence when a write was decided.
    fn may_be_blind(
        &self,
        change: &Change<'_>,
        node: &str,
        selected: &[&str],
        from: Duration,
    ) -> bool {
        if node == change.node {
            return false;
        }
        let mut asks = self.asks.iter().filter(|ask| ask.at >= from);
        asks.any(|ask| {
            let Some(values) = &ask.values else { return true };
            let covered = selected.iter().filter(|name| values.contains_key(**name)).count();
            !ask.is_certain || covered * 2 <= selected.len() || !values.contains_key(node)
        })
    }

    fn judge_deployment(&self, write: &Write, from: Duration) -> Option<String> {
        let name = (write.key.namespace.clone(), write.key.name.clone());
        let uids: Vec<_> =
            self.scenes(from).filter_map(|s| s.watches.get(&name)).map(|w| w.uid.clone()).collect();
        let owned = |object: &Option<Value>| {
            let owner = object.as_ref().map(|o| &o["metadata"]["ownerReferences"][0]["uid"]);
            owner.is_none_or(|owner| uids.iter().any(|uid| *owner == uid.as_str()))
        };
        let ours = owned(&write.before) && owned(&write.after);
        (!ours).then(|| "writes the Deployment of another owner".to_owned())
    }
}

struct Change<'a> {
    node: &'a str,
    uid: &'a str,
    key: &'a str,
    from: Option<&'a str>,
    to: Option<&'a str>,
}

/// Returns the earliest time of a view that may have led to a write: faults of the API server
/// keep the operator from seeing the present.
fn since(now: Duration, windows: &[FaultWindow]) -> Duration {
    let mut from = now.saturating_sub(BEHIND);
    for window in windows.iter().rev().filter(|window| window.fault.is_of_the_server()) {
        if window.from <= now && window.until >= from {
            from = from.min(window.from.saturating_sub(BEHIND));
        }
    }
    from
}
