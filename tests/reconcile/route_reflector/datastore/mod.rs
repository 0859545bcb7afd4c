//! Calico's datastores alone: a real API server with its kinds, and a real etcd.
#[cfg(feature = "etcd")]
mod etcd;
mod objects;
mod rights;
mod watching;

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use lab::calico::{self, Group};
use serde_json::Value;
use traffic_operator::{
    api::route_reflector_set,
    infra::lease::Fence,
    route_reflector::datastore::{Datastore, WantedPeer},
};

use crate::bench::Bench;

/// The peer of clients that a set with the name `main` needs.
pub const CLIENTS: WantedPeer<'_> = WantedPeer {
    name: "peer-to-rrs-1",
    node_selector: "!has(calico-route-reflector)",
    peer_selector: "has(calico-route-reflector)",
    set: "main",
    session: None,
};

/// Calico's kinds in exactly these groups, without objects.
pub async fn installed(bench: &Bench, groups: &[Group]) {
    for group in [Group::V1, Group::V3] {
        calico::remove(&bench.client, group).await.expect("remove");
    }
    for group in groups {
        calico::install(&bench.client, *group).await.expect("install");
    }
}

/// The datastore in the Kubernetes API, with the rights of the operator.
pub async fn store(bench: &Bench) -> Datastore {
    let spec = route_reflector_set::Datastore::default();
    Datastore::new(bench.operators_code().await, "", &spec, &Fence::open()).expect("datastore")
}

/// One of Calico's kinds as its users see it.
pub struct Kind(pub Api<DynamicObject>, pub Group);

pub fn kind(client: &Client, group: Group, kind: &str, plural: &str) -> Kind {
    let (name, version) = group.api_version().split_once('/').expect("group/version");
    let gvk = GroupVersionKind::gvk(name, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    Kind(Api::all_with(client.clone(), &resource), group)
}

pub fn peers(bench: &Bench, group: Group) -> Kind {
    kind(&bench.client, group, "BGPPeer", "bgppeers")
}

impl Kind {
    pub async fn create(&self, kind: &str, metadata: Value, spec: Value) {
        let object = serde_json::json!({
            "apiVersion": self.1.api_version(), "kind": kind, "metadata": metadata, "spec": spec,
        });
        let object = serde_json::from_value(object).expect("object");
        self.0.create(&PostParams::default(), &object).await.expect("create");
    }

    pub async fn patch(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.0.patch(name, &PatchParams::default(), &patch).await.expect("patch");
    }

    /// Returns all fields of an object, bookkeeping included.
    pub async fn get(&self, name: &str) -> Option<Value> {
        let object = match self.0.get_opt(name).await {
            // The API server does not serve a new kind at once.
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            found => found.expect("get"),
        };
        Some(serde_json::to_value(object?).expect("JSON"))
    }

    /// Patches it; it may be gone.
    pub async fn try_patch(&self, name: &str, patch: Value) {
        let _ = self.0.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    }

    pub async fn delete(&self, name: &str) {
        self.0.delete(name, &DeleteParams::default()).await.expect("delete");
    }

    /// Deletes all of them.
    pub async fn clear(&self) {
        let (now, all) = (DeleteParams::default(), kube::api::ListParams::default());
        self.0.delete_collection(&now, &all).await.expect("delete");
    }

    pub async fn names(&self) -> Vec<String> {
        let list = match self.0.list(&kube::api::ListParams::default()).await {
            // The kind is not installed: there are none.
            Err(kube::Error::Api(status)) if status.code == 404 => return vec![],
            list => list.expect("list"),
        };
        list.into_iter().filter_map(|object| object.metadata.name).collect()
    }
}
