//! Objects as `kubectl get -o json` shows them, without a process for each look.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use tokio::time::timeout;

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The kinds that acts look at all the time: group, version, kind, plural.
const KINDS: [(&str, &str, &str, &str); 9] = [
    ("", "v1", "Node", "nodes"),
    ("", "v1", "Pod", "pods"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("", "v1", "Event", "events"),
    ("apps", "v1", "Deployment", "deployments"),
    ("coordination.k8s.io", "v1", "Lease", "leases"),
    ("traffic.example.com", "v1alpha1", "TrafficWatch", "trafficwatches"),
    ("traffic.example.com", "v1alpha1", "Swarm", "swarms"),
    ("probes.bigmikes.io", "v1alpha1", "NetworkProber", "networkprobers"),
];

/// Arguments of `kubectl get`.
struct Query<'a> {
    resource: ApiResource,
    name: Option<&'a str>,
    /// Of all namespaces if there is none.
    namespace: Option<&'a str>,
    list: ListParams,
}

impl<'a> Query<'a> {
    /// Returns nothing if only kubectl knows what is meant.
    fn of(arguments: &[&'a str]) -> Option<Self> {
        let (mut words, mut namespace, mut list) = (vec![], Some("default"), ListParams::default());
        let mut rest = arguments.iter().copied();
        while let Some(argument) = rest.next() {
            match argument {
                "-n" => namespace = Some(rest.next()?),
                "-A" => namespace = None,
                "-l" => list = list.labels(rest.next()?),
                flag if flag.starts_with('-') => {
                    list = list.fields(flag.strip_prefix("--field-selector=")?);
                }
                word => words.push(word),
            }
        }
        let (kind, name) = match words.as_slice() {
            [kind] => (*kind, None),
            [kind, name] => (*kind, Some(*name)),
            _ => return None,
        };
        let known = |(_, _, of, plural): &&(&str, &str, &str, &str)| {
            kind == *plural || kind == of.to_ascii_lowercase()
        };
        let (group, version, of, plural) = KINDS.iter().find(known)?;
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, of), plural);
        let namespace = namespace.filter(|_| *of != "Node");
        Some(Self { resource, name, namespace, list })
    }

    async fn send(self, client: Client) -> Result<Value> {
        let api = match self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::<DynamicObject>::all_with(client, &self.resource),
        };
        let plain = |mut object: DynamicObject| {
            // As kubectl, which shows them only if it is asked to.
            object.metadata.managed_fields = None;
            object
        };
        if let Some(name) = self.name {
            return Ok(serde_json::to_value(plain(api.get(name).await?))?);
        }
        let items = api.list(&self.list).await?.items.into_iter().map(plain);
        Ok(json!({"items": items.collect::<Vec<_>>()}))
    }
}

/// Returns what `kubectl get` prints with these arguments; `None` if only kubectl knows what they
/// mean.
pub fn get(client: &Client, arguments: &[&str]) -> Option<Result<Value>> {
    let answer = timeout(PATIENCE, Query::of(arguments)?.send(client.clone()));
    let answer = block_in_place(|| Handle::current().block_on(answer));
    Some(answer.context("the API server does not answer").flatten())
}

/// One of the product's own kinds.
pub fn ours(kind: &str, plural: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk("traffic.example.com", "v1alpha1", kind);
    ApiResource::from_gvk_with_plural(&kind, plural)
}

/// Returns a text field, empty without one.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub fn name(object: &Value) -> String {
    text(&object["metadata"]["name"])
}

/// Returns the node of a pod, empty without one.
pub fn node(pod: &Value) -> String {
    text(&pod["spec"]["nodeName"])
}

pub fn is_true(object: &Value, condition: &str) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|found| found["type"] == condition && found["status"] == "True")
}

/// Returns the number of restarts of a pod's containers.
pub fn restarts(pod: &Value) -> i64 {
    let lists = ["initContainerStatuses", "containerStatuses"].into_iter();
    let statuses = lists.flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    statuses.filter_map(|status| status["restartCount"].as_i64()).sum()
}

/// Reads a file of the repository.
pub fn manifest(file: &str) -> Result<String> {
    lab::workspace::read(&lab::workspace::root().join(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_true_only_if_its_status_is() {
        let with =
            |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        assert!(is_true(&with("True"), "Ready"));
        assert!(!is_true(&with("False"), "Ready") && !is_true(&with("True"), "Converged"));
        assert!(!is_true(&json!({}), "Ready"));
    }
}
