//! The nodes: those of the cluster, or those named by series.
use std::{collections::BTreeMap, sync::Arc};

use kube::{Client, api::ListParams, runtime::watcher::Event};

use super::cluster::describe;
use crate::{
    infra::Api,
    nodes::{Identity, NodeFacts, NodeObject, NodeStore, host},
    prometheus::decode::Labels,
    selector::Selector,
    traffic_watch::query::{MEASURE, Measure},
};

/// The nodes.
pub enum Population {
    /// The cluster's, as they are now.
    Cluster(NodeStore),
    /// All nodes named by series so far, each from a moment on, in milliseconds.
    Series(BTreeMap<Arc<str>, i64>),
}

impl Default for Population {
    /// No nodes yet: series will name them.
    fn default() -> Self {
        Self::Series(BTreeMap::new())
    }
}

impl Population {
    /// Reads the nodes of a cluster.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn of_cluster(client: &Client) -> anyhow::Result<Self> {
        let nodes = Api::<NodeObject>::all(client.clone()).list(&ListParams::default()).await;
        let nodes = nodes.map_err(|error| anyhow::anyhow!(describe("list nodes", error)))?;
        let store = NodeStore::default();
        store.apply(Event::Init);
        nodes.into_iter().for_each(|node| store.apply(Event::InitApply(node)));
        store.apply(Event::InitDone);
        Ok(Self::Cluster(store))
    }

    /// Reports whether series may add nodes.
    #[must_use]
    pub fn grows(&self) -> bool {
        matches!(self, Self::Series(_))
    }

    /// Adds the node of a series from a moment on, if series define the nodes.
    pub fn meet(&mut self, labels: &Labels<'_>, node_labels: &[String], since: i64) {
        let Self::Series(names) = self else { return };
        // A target is no node: relabeling may have given its series another name.
        if labels.get(MEASURE) == Some(Measure::Up.name()) {
            return;
        }
        let mut candidates = node_labels.iter().map(String::as_str).chain(["instance"]);
        if let Some(value) = candidates.find_map(|label| labels.get(label)) {
            let name = host(value);
            match names.get_mut(name) {
                Some(first) => *first = since.min(*first),
                None => drop(names.insert(name.into(), since)),
            }
        }
    }

    /// Returns the names of the nodes.
    #[must_use]
    pub fn identity(&self) -> Arc<Identity> {
        match self {
            Self::Cluster(store) => store.identity(),
            Self::Series(names) => {
                let names = names.keys().map(|name| (Arc::clone(name), [].as_slice()));
                Arc::new(Identity::new(names.collect()))
            }
        }
    }

    /// Returns the judged nodes that exist at a moment, by name, with their value of the label
    /// `key`. Series contain no node labels: all of their nodes are judged.
    #[must_use]
    pub fn select(&self, selector: &Selector, key: &str, now: i64) -> Vec<NodeFacts> {
        match self {
            Self::Cluster(store) => store.select(selector, key).nodes.to_vec(),
            Self::Series(names) => names
                .iter()
                .filter(|(_, since)| **since <= now)
                .map(|(name, _)| NodeFacts::named(Arc::clone(name)))
                .collect(),
        }
    }
}
