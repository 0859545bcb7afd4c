//! Installation of what `make deploy` installs, without the operator's own process.
use std::sync::LazyLock;

use k8s_openapi::{
    api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::Scope,
};
use serde::Deserialize;
use serde_json::{Value, json};
use traffic_operator::{api::KINDS, manifests};

use super::eventually;
use crate::shipped::{answer_from_outside, policies, webhook};

/// Generated once: unoptimized, that takes longer than many a test.
static DEFINITIONS: LazyLock<Vec<CustomResourceDefinition>> =
    LazyLock::new(|| KINDS.iter().map(|kind| (kind.crd)()).collect());

/// Generated once as well.
static RBAC: LazyLock<Vec<String>> = LazyLock::new(|| {
    let files = manifests::files().expect("manifests").into_iter();
    files.filter(|file| file.path.starts_with("rbac/")).map(|file| file.text).collect()
});

/// Installs the definitions, RBAC, policies and webhooks of `make deploy`.
pub async fn install(client: &Client) {
    let apply = PatchParams::apply("test").force();
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": manifests::NAMESPACE}
    });
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces
        .patch(manifests::NAMESPACE, &apply, &Patch::Apply(namespace))
        .await
        .expect("namespace");
    define(client).await;
    let documents: Vec<_> = RBAC.iter().cloned().chain(policies()).chain([webhook()]).collect();
    let documents = documents.iter().flat_map(|text| serde_yaml::Deserializer::from_str(text));
    for document in documents {
        let mut object = Value::deserialize(document).expect("YAML");
        if object.is_null() {
            continue;
        }
        answer_from_outside(&mut object);
        apply_object(client, object).await;
    }
}

/// Applies an object of any kind, in the operator's namespace if it has one.
pub async fn apply_object(client: &Client, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).expect("object");
    let types = object.types.clone().expect("types");
    let kind = GroupVersionKind::try_from(&types).expect("kind");
    let (resource, capabilities) =
        kube::discovery::pinned_kind(client, &kind).await.expect("discovery");
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), manifests::NAMESPACE, &resource),
    };
    let apply = PatchParams::apply("test").force();
    api.patch(&object.name_any(), &apply, &Patch::Apply(&object)).await.expect("applied");
}

/// Reports whether all definitions exist: a test that removes some may have failed before it
/// restored them.
pub async fn is_whole(client: &Client) -> bool {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    let there = crds.list_metadata(&ListParams::default()).await.expect("definitions").items;
    DEFINITIONS.iter().all(|ours| there.iter().any(|crd| crd.name_any() == ours.name_any()))
}

pub async fn define(client: &Client) {
    let apply = PatchParams::apply("test").force();
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    for crd in &*DEFINITIONS {
        crds.patch(&crd.name_any(), &apply, &Patch::Apply(crd)).await.expect("CRD");
    }
    for crd in &*DEFINITIONS {
        let name = crd.name_any();
        let established = async || {
            let crd = crds.get(&name).await.ok()?;
            let conditions = crd.status?.conditions?;
            conditions.iter().any(|c| c.type_ == "Established" && c.status == "True").then_some(())
        };
        eventually("the definition to be established", established).await;
    }
}
