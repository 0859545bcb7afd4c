//! The parts of the world that decide about labels, read by the simulation's own simple rules.
use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::store::Store;

/// The suffix of the labels of all `TrafficWatch`es.
const SUFFIX: &str = ".traffic.example.com/unfit";

/// The nodes and objects of a moment, labels of ours apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    pub nodes: BTreeMap<String, NodeScene>,
    /// By namespace and name.
    pub watches: BTreeMap<(String, String), WatchScene>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NodeScene {
    pub uid: String,
    pub zone: String,
    /// It can take ordinary pods.
    pub open: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WatchScene {
    pub uid: String,
    pub created: String,
    pub key: String,
    pub zone: Option<String>,
    pub max: f64,
    pub recover: f64,
    pub max_unfit: Value,
    pub min_fit: Value,
    pub unfit_after: usize,
    pub fit_after: usize,
    pub enforces: bool,
    pub paused: bool,
    pub leaving: bool,
}

/// Returns the labels of a node that are ours by their names.
pub fn marks(node: &Value) -> BTreeMap<String, String> {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let ours = labels.filter(|(key, _)| key.ends_with(SUFFIX));
    ours.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect()
}

/// Returns the labels of all nodes that are ours by their names.
pub fn labels(store: &Store) -> BTreeMap<String, BTreeMap<String, String>> {
    store.all("nodes").map(|(key, node)| (key.name.clone(), marks(node))).collect()
}

/// Returns a node without these labels and without its version.
pub fn without_marks(node: &Value) -> Value {
    let mut node = node.clone();
    let ours = marks(&node);
    node["metadata"]["resourceVersion"].take();
    if let Some(labels) = node["metadata"]["labels"].as_object_mut() {
        labels.retain(|key, _| !ours.contains_key(key));
    }
    node
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn count(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap_or(2)).unwrap()
}

impl Scene {
    pub fn of(store: &Store) -> Self {
        let nodes = store.all("nodes").map(|(key, node)| {
            let ready = node["status"]["conditions"][0]["status"] == "True";
            let free = node["spec"]["taints"].as_array().is_none_or(Vec::is_empty);
            let scene = NodeScene {
                uid: text(&node["metadata"]["uid"]),
                zone: text(&node["metadata"]["labels"]["zone"]),
                open: ready && free && node["spec"]["unschedulable"] != true,
            };
            (key.name.clone(), scene)
        });
        let watches = store.all("trafficwatches").map(|(key, watch)| {
            let spec = &watch["spec"];
            let prefix = spec["label"].as_str().unwrap_or(&key.name);
            let max: f64 = spec["maxBandwidthPercent"].as_str().unwrap().parse().unwrap();
            let scene = WatchScene {
                uid: text(&watch["metadata"]["uid"]),
                created: text(&watch["metadata"]["creationTimestamp"]),
                key: format!("{prefix}{SUFFIX}"),
                zone: spec["nodeSelector"]["matchLabels"]["zone"].as_str().map(str::to_owned),
                max,
                recover: max * 0.9,
                max_unfit: spec["maxUnfit"].clone(),
                min_fit: spec["minFit"].clone(),
                unfit_after: count(&spec["consecutive"]["unfit"]),
                fit_after: count(&spec["consecutive"]["fit"]),
                enforces: spec["mode"] != "Observe",
                paused: spec["paused"] == true,
                leaving: !watch["metadata"]["deletionTimestamp"].is_null(),
            };
            ((key.namespace.clone(), key.name.clone()), scene)
        });
        Self { nodes: nodes.collect(), watches: watches.collect() }
    }

    /// Returns the object that may write a label key: the oldest that enforces.
    pub fn holder(&self, key: &str) -> Option<&WatchScene> {
        let claims = self.watches.iter().filter(|(_, watch)| watch.enforces && watch.key == key);
        claims.min_by_key(|(name, watch)| (watch.created.clone(), *name)).map(|(_, watch)| watch)
    }

    /// Returns the nodes that an object judges.
    pub fn selected<'a>(&'a self, watch: &'a WatchScene) -> impl Iterator<Item = &'a str> {
        let nodes = self.nodes.iter();
        let nodes = nodes.filter(|(_, n)| watch.zone.as_ref().is_none_or(|zone| n.zone == *zone));
        nodes.map(|(name, _)| name.as_str())
    }
}

/// The thresholds that an object had, the lowest and the highest.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub max: (f64, f64),
    pub recover: (f64, f64),
    pub unfit_after: usize,
    pub fit_after: usize,
}

impl Range {
    /// The range of the present thresholds.
    pub fn of(watch: &WatchScene) -> Self {
        Self {
            max: (watch.max, watch.max),
            recover: (watch.recover, watch.recover),
            unfit_after: watch.unfit_after,
            fit_after: watch.fit_after,
        }
    }

    /// Returns the range that has both.
    pub fn with(self, other: Self) -> Self {
        let both = |a: (f64, f64), b: (f64, f64)| (a.0.min(b.0), a.1.max(b.1));
        Self {
            max: both(self.max, other.max),
            recover: both(self.recover, other.recover),
            unfit_after: self.unfit_after.min(other.unfit_after),
            fit_after: self.fit_after.min(other.fit_after),
        }
    }
}

/// Returns the share as a ceiling: rounded down, but one node at least of a percentage.
pub fn at_most(share: &Value, nodes: usize) -> usize {
    match share.as_str() {
        None => count(share),
        Some("0%") => 0,
        Some(percent) => (nodes * parsed(percent) / 100).max(1),
    }
}

/// Returns the share as a floor: rounded up.
pub fn at_least(share: &Value, nodes: usize) -> usize {
    match share.as_str() {
        None => count(share),
        Some(percent) => (nodes * parsed(percent)).div_ceil(100),
    }
}

fn parsed(percent: &str) -> usize {
    percent.trim_end_matches('%').parse().unwrap()
}

/// One moment of the past, and the time until which it lasted.
#[derive(Clone, Debug)]
pub struct Past {
    pub until: Duration,
    pub scene: Scene,
}
