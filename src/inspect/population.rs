//! The nodes: those of the cluster, or those named by series.
use std::{collections::BTreeMap, sync::Arc};

use kube::{Api, Client, api::ListParams, runtime::watcher::Event};

use super::cluster::describe;
use crate::{
    nodes::{Identity, NodeFacts, NodeObject, NodeStore, host},
    prometheus::decode::Labels,
    selector::Selector,
};

/// The nodes.
pub enum Population {
    /// The cluster's, as they are now.
    Cluster(NodeStore),
    /// Everything that a series was about so far, each from a moment on, in milliseconds.
    Series(BTreeMap<Arc<str>, i64>),
}

impl Default for Population {
    /// Nobody yet: series will tell.
    fn default() -> Self {
        Self::Series(BTreeMap::new())
    }
}

impl Population {
    /// Reads the nodes of a cluster.
    ///
    /// # Errors
    /// What the API server said.
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

    /// Takes the node that a series is about since a moment, if series say which nodes there are.
    pub fn meet(&mut self, labels: &Labels<'_>, node_labels: &[String], since: i64) {
        let Self::Series(names) = self else { return };
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

    /// The judged nodes that exist at a moment, by name, with their value of the label `key`.
    /// Series tell no labels: all of theirs are judged.
    #[must_use]
    pub fn select(&self, selector: &Selector, key: &str, now: i64) -> Vec<NodeFacts> {
        match self {
            Self::Cluster(store) => store.select(selector, key),
            Self::Series(names) => names
                .iter()
                .filter(|(_, since)| **since <= now)
                .map(|(name, _)| NodeFacts::named(Arc::clone(name)))
                .collect(),
        }
    }
}
