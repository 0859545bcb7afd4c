//! Server-side apply of manifests, many at a time.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::discovery::{ApiCapabilities, ApiResource, Scope, oneshot::pinned_kind};
use kube::{Client, core::GroupVersionKind};
use serde::Deserialize;
use serde_json::Value;

const MANAGER: &str = "lab";
/// Enough to keep the API server busy, few enough to leave room for others.
const AT_ONCE: usize = 8;

/// Applies the objects of a YAML text: namespaces first, then the others concurrently. Unknown
/// fields are refused.
pub async fn apply(client: &Client, yaml: &str) -> Result<()> {
    let objects = parse(yaml)?;
    let mut kinds = Kinds::default();
    let (first, rest): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| object["kind"] == "Namespace");
    for objects in [first, rest] {
        let mut ready = Vec::new();
        for object in objects {
            ready.push((kinds.api(client, &object).await?, object));
        }
        stream::iter(ready.into_iter().map(|(api, object)| apply_one(api, object)))
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<()>>()
            .await?;
    }
    Ok(())
}

async fn apply_one(api: Api<DynamicObject>, object: Value) -> Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let params = PatchParams::apply(MANAGER).force().validation_strict();
    api.patch(&name, &params, &Patch::Apply(&object)).await.with_context(|| {
        format!("applying {} {name}", object["kind"].as_str().unwrap_or_default())
    })?;
    Ok(())
}

/// Reads the documents of a YAML text; a list counts as the objects in it.
fn parse(yaml: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(yaml) {
        let mut value = Value::deserialize(document).context("a manifest is no YAML")?;
        if value.is_null() {
            continue;
        }
        match value.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => objects.extend(items),
            _ => objects.push(value),
        }
    }
    for object in &objects {
        let named = ["apiVersion", "kind"].iter().all(|field| object[*field].is_string());
        ensure!(named && object["metadata"]["name"].is_string(), "no Kubernetes object: {object}");
    }
    Ok(objects)
}

/// The discovered resources of the kinds requested so far.
#[derive(Default)]
struct Kinds(HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)>);

impl Kinds {
    async fn api(&mut self, client: &Client, object: &Value) -> Result<Api<DynamicObject>> {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let version = text("apiVersion");
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let kind = GroupVersionKind::gvk(group, version, &text("kind"));
        if !self.0.contains_key(&kind) {
            let found = pinned_kind(client, &kind).await.with_context(|| {
                format!("the API server knows no {} {}", kind.api_version(), kind.kind)
            })?;
            self.0.insert(kind.clone(), found);
        }
        let (resource, capabilities) = &self.0[&kind];
        Ok(match (&capabilities.scope, object["metadata"]["namespace"].as_str()) {
            (Scope::Cluster, _) => Api::all_with(client.clone(), resource),
            (Scope::Namespaced, namespace) => {
                Api::namespaced_with(client.clone(), namespace.unwrap_or("default"), resource)
            }
        })
    }
}
