//! The kinds: their text fields, the rules that connect fields, and how generated specs keep them.
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use traffic_operator::api::KINDS;

use super::forms::Dice;
use crate::bench::{Bench, STRICT};

mod network_prober;
mod route_reflector_set;
mod swarm;
mod traffic_watch;

/// All kinds.
pub static ALL: [&Kind; 4] =
    [&traffic_watch::KIND, &network_prober::KIND, &swarm::KIND, &route_reflector_set::KIND];
pub static TRAFFIC_WATCH: &Kind = ALL[0];

/// A rule that connects fields: the beginning of its message, and a list of merge patches, each of
/// which breaks it in a good spec.
pub type Rule = (&'static str, fn() -> Value);

pub struct Kind {
    pub name: &'static str,
    pub rules: &'static [Rule],
    /// The length of the longest name that a rule admits.
    pub longest_name: Option<usize>,
    /// Makes the fields of a spec consistent, as the rules demand.
    pub repair: fn(&mut Map<String, Value>, &mut Dice),
    /// Reads an object as the operator does; the error, if it cannot.
    pub read: fn(Value) -> Option<String>,
    /// A small good spec.
    pub plain: fn() -> Value,
    /// Sets the fields that cannot change as they are in the small spec.
    pub keep: fn(&mut Map<String, Value>),
    /// Fields that cannot be deleted.
    pub kept: &'static [&'static str],
}

/// Reads an object; the error, if it cannot be read.
fn read<T: DeserializeOwned>(object: Value) -> Option<String> {
    serde_json::from_value::<T>(object).err().map(|error| error.to_string())
}

/// Reports whether a field is set.
fn has(spec: &Map<String, Value>, name: &str) -> bool {
    spec.get(name).is_some_and(|value| !value.is_null())
}

/// Removes the fields that are null or not there: to the rules both are the same.
fn drop_nulls(spec: &mut Map<String, Value>) {
    spec.retain(|_, value| !value.is_null());
}

/// An object within a spec, if it is set.
fn within<'s>(spec: &'s mut Map<String, Value>, name: &str) -> Option<&'s mut Map<String, Value>> {
    spec.get_mut(name).and_then(Value::as_object_mut)
}

impl Kind {
    /// The schema of the object, as it is installed.
    pub fn installed(&self) -> Value {
        let schema = self.definition().spec.versions[0].schema.as_ref();
        serde_json::to_value(schema.map(|schema| &schema.open_api_v3_schema)).expect("JSON")
    }

    fn resource(&self) -> (ApiResource, bool) {
        let spec = &self.definition().spec;
        let gvk = GroupVersionKind::gvk(&spec.group, &spec.versions[0].name, &spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, &spec.names.plural);
        (resource, spec.scope == "Namespaced")
    }

    /// Made once: that of a `TrafficWatch` takes long.
    fn definition(&self) -> &'static CustomResourceDefinition {
        static ALL: LazyLock<Vec<CustomResourceDefinition>> =
            LazyLock::new(|| KINDS.iter().map(|kind| (kind.crd)()).collect());
        ALL.iter().find(|kind| kind.spec.names.kind == self.name).expect("a kind")
    }

    /// The objects of this kind, those in `default` if they have namespaces.
    pub fn api(&self, bench: &Bench) -> Api<DynamicObject> {
        match self.resource() {
            (resource, true) => Api::namespaced_with(bench.client.clone(), "default", &resource),
            (resource, false) => Api::all_with(bench.client.clone(), &resource),
        }
    }

    /// Creates an object as kubectl does: fields that the definition does not know are refused.
    pub async fn create(
        &self,
        bench: &Bench,
        name: &str,
        spec: &Value,
        dry_run: bool,
    ) -> kube::Result<DynamicObject> {
        let (resource, namespaced) = self.resource();
        let mut object = json!({
            "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {"name": name}, "spec": spec,
        });
        let mut place = "";
        if namespaced {
            object["metadata"]["namespace"] = json!("default");
            place = "namespaces/default/";
        }
        let (version, plural) = (&resource.api_version, &resource.plural);
        let further = if dry_run { "&dryRun=All" } else { "" };
        bench.post(&format!("/apis/{version}/{place}{plural}{STRICT}{further}"), &object).await
    }
}
