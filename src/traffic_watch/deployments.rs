//! The Deployments we own, by a watch: only what tells whether somebody else changed one.
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client, ResourceExt, core::PartialObjectMeta, runtime::watcher::Event};
use tokio::sync::watch as signal;

use crate::{controller::MANAGED_BY, metrics::Metrics, runtime::watch};

type Key = (String, String);
type Deployments = HashMap<Key, (String, i64)>;

/// By namespace and name: UID and generation. Clones share it.
#[derive(Clone, Default)]
pub struct DeploymentStore(Arc<Inner>);

#[derive(Default)]
struct Inner {
    deployments: RwLock<Deployments>,
    synced: signal::Sender<bool>,
}

impl DeploymentStore {
    /// Follows our Deployments for ever.
    pub async fn follow(self, client: Client, metrics: Metrics) {
        let config = watch::config().labels(&format!("app.kubernetes.io/managed-by={MANAGED_BY}"));
        let api = Api::<PartialObjectMeta<Deployment>>::all(client);
        let mut events = watch::follow(api, config);
        let mut listing = Deployments::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.apply(event, &mut listing),
                Err(error) => {
                    tracing::warn!(%error, "watch of Deployments failed, trying again");
                    metrics.watch_restarted("deployments");
                }
            }
            let count = self.0.deployments.read().unwrap_or_else(PoisonError::into_inner).len();
            metrics.stored("deployments", count);
        }
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        let mut synced = self.0.synced.subscribe();
        // The sender lives in `self`.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// UID and generation of one Deployment.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<(String, i64)> {
        let deployments = self.0.deployments.read().unwrap_or_else(PoisonError::into_inner);
        deployments.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Takes the answer to an apply of ours, so that the next pass sees it though the watch may not
    /// have brought it yet.
    pub fn wrote(&self, object: &PartialObjectMeta<Deployment>) {
        let mut deployments = self.0.deployments.write().unwrap_or_else(PoisonError::into_inner);
        deployments.insert(key(object), facts(object));
    }

    fn apply(&self, event: Event<PartialObjectMeta<Deployment>>, listing: &mut Deployments) {
        let mut deployments = self.0.deployments.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => listing.clear(),
            Event::InitApply(object) => {
                listing.insert(key(&object), facts(&object));
            }
            Event::InitDone => {
                *deployments = std::mem::take(listing);
                self.0.synced.send_replace(true);
            }
            Event::Apply(object) => {
                deployments.insert(key(&object), facts(&object));
            }
            Event::Delete(object) => {
                deployments.remove(&key(&object));
            }
        }
    }
}

fn key(object: &PartialObjectMeta<Deployment>) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn facts(object: &PartialObjectMeta<Deployment>) -> (String, i64) {
    (object.uid().unwrap_or_default(), object.metadata.generation.unwrap_or_default())
}
