//! The Deployments we own, by a watch, which shows whether anyone else changed one, and its number
//! of replicas.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Client, ResourceExt,
    core::{NamespaceResourceScope, ObjectMeta, PartialObjectMeta},
};
use serde::Deserialize;

use crate::{
    controller::MANAGED_BY,
    infra::{
        Api,
        watch::{self, Mirror, Reduced, Synced},
    },
    metrics::Metrics,
    partial_resource::{self, partial_resource},
};

type Key = (String, String);

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
    #[serde(default, deserialize_with = "partial_resource::metadata")]
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
    known: Mutex<Mirror<Key, DeploymentFacts>>,
    synced: Synced,
}

impl DeploymentStore {
    /// Follows our Deployments; never ends.
    pub async fn follow(self, client: Client, metrics: Metrics) {
        let config = watch::config().labels(&format!("app.kubernetes.io/managed-by={MANAGED_BY}"));
        let events = watch::follow(Api::<DeploymentObject>::all(client), config);
        let mut events = watch::readable(events, "deployments", &metrics);
        while let Some(event) = events.next().await {
            let mut known = self.known();
            known.apply(watch::map(event, |object| {
                let metadata = &object.metadata;
                Reduced::new(key(metadata), metadata, Some(facts(&object)))
            }));
            metrics.stored("deployments", known.iter().len());
            if known.is_synced() {
                self.0.synced.reached();
            }
        }
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        self.0.synced.wait().await;
    }

    /// One Deployment.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<DeploymentFacts> {
        self.known().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Takes the answer to our own apply, so that the next pass sees it before the watch delivers
    /// it.
    pub fn wrote(&self, object: &PartialObjectMeta<Deployment>) {
        let (metadata, mut known) = (&object.metadata, self.known());
        let key = key(metadata);
        let facts = DeploymentFacts {
            uid: object.uid().unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
            owner: controller(metadata),
            // The answer does not say how many there are.
            ..known.get(&key).cloned().unwrap_or_default()
        };
        known.wrote(key, watch::version(metadata), facts);
    }

    fn known(&self) -> MutexGuard<'_, Mirror<Key, DeploymentFacts>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
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
