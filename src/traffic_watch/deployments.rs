//! The Deployments we own, by a watch, which shows whether anyone else changed one, and its number
//! of replicas.
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, ResourceExt,
    core::{NamespaceResourceScope, ObjectMeta, PartialObjectMeta},
    runtime::watcher::Event,
};
use serde::Deserialize;
use tokio::sync::watch as signal;

use crate::{
    controller::MANAGED_BY, metrics::Metrics, partial_resource::partial_resource, runtime::watch,
};

type Key = (String, String);
type Deployments = HashMap<Key, DeploymentFacts>;

/// The known facts about one Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeploymentFacts {
    /// UID of the Deployment.
    pub uid: String,
    /// Its generation: another one is an edit.
    pub generation: i64,
    /// Desired number of replicas.
    pub wanted: i32,
    /// Number of available replicas.
    pub available: i32,
    /// The UID of its controller.
    pub owner: Option<String>,
}

impl DeploymentFacts {
    /// Returns a value that identifies its version: UID and generation.
    #[must_use]
    pub fn version(&self) -> (String, i64) {
        (self.uid.clone(), self.generation)
    }
}

/// A Deployment without the fields that are never read.
#[derive(Clone, Debug, Default, Deserialize)]
struct DeploymentObject {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Spec {
    replicas: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    available_replicas: Option<i32>,
}

/// By namespace and name. Clones share it.
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
        let api = Api::<DeploymentObject>::all(client);
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

    /// One Deployment.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<DeploymentFacts> {
        let deployments = self.0.deployments.read().unwrap_or_else(PoisonError::into_inner);
        deployments.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Takes the answer to an apply of ours, so that the next pass sees it though the watch may not
    /// have brought it yet.
    pub fn wrote(&self, object: &PartialObjectMeta<Deployment>) {
        let mut deployments = self.0.deployments.write().unwrap_or_else(PoisonError::into_inner);
        let known = deployments.entry(key(&object.metadata)).or_default();
        known.uid = object.uid().unwrap_or_default();
        known.generation = object.metadata.generation.unwrap_or_default();
        known.owner = controller(&object.metadata);
    }

    fn apply(&self, event: Event<DeploymentObject>, listing: &mut Deployments) {
        let mut deployments = self.0.deployments.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => listing.clear(),
            Event::InitApply(object) => {
                listing.insert(key(&object.metadata), facts(&object));
            }
            Event::InitDone => {
                *deployments = std::mem::take(listing);
                self.0.synced.send_replace(true);
            }
            Event::Apply(object) => {
                deployments.insert(key(&object.metadata), facts(&object));
            }
            Event::Delete(object) => {
                deployments.remove(&key(&object.metadata));
            }
        }
    }
}

fn key(metadata: &ObjectMeta) -> Key {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn controller(metadata: &ObjectMeta) -> Option<String> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
}

fn facts(object: &DeploymentObject) -> DeploymentFacts {
    DeploymentFacts {
        uid: object.metadata.uid.clone().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or_default(),
        // The API server's default.
        wanted: object.spec.replicas.unwrap_or(1),
        available: object.status.available_replicas.unwrap_or_default(),
        owner: controller(&object.metadata),
    }
}

partial_resource!(DeploymentObject as Deployment, NamespaceResourceScope);
