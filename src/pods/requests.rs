//! Requests of pods for extended resources. Nothing else of a pod is kept: a cluster has some
//! hundred thousand pods, few of which request any.
use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Deserializer};

use crate::{
    extended_resources::Amounts,
    partial_resource::{nullable, partial_resource},
};

/// A Pod without anything but its place and its requests.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RequestingPod {
    /// Name, namespace and resource version.
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "nullable")]
    spec: Spec,
    #[serde(default, deserialize_with = "nullable")]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<Box<str>>,
    #[serde(default, deserialize_with = "nullable")]
    containers: Vec<Container>,
    #[serde(default, deserialize_with = "nullable")]
    init_containers: Vec<Container>,
    #[serde(default, deserialize_with = "nullable")]
    overhead: Amounts,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    restart_policy: Option<Box<str>>,
    #[serde(default, deserialize_with = "nullable")]
    resources: Resources,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Resources {
    #[serde(default, deserialize_with = "nullable")]
    requests: Amounts,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    phase: Option<Box<str>>,
}

impl Container {
    fn restarts_always(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }

    fn request(&self, resource: &str) -> u64 {
        self.resources.requests.get(resource).unwrap_or_default()
    }
}

impl RequestingPod {
    /// Returns the node on which it takes resources; `Some(None)` if it has no node yet, and
    /// nothing if it has ended.
    #[must_use]
    pub fn node(&self) -> Option<Option<&str>> {
        let ended = matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        (!ended).then(|| self.spec.node_name.as_deref().filter(|node| !node.is_empty()))
    }

    /// Returns its requests for extended resources, as the scheduler adds them up.
    #[must_use]
    pub fn requests(&self) -> BTreeMap<Box<str>, u64> {
        let Spec { containers, init_containers, overhead, .. } = &self.spec;
        let of_containers = containers.iter().chain(init_containers);
        let named = of_containers.flat_map(|container| container.resources.requests.iter());
        let names = named.chain(overhead.iter()).map(|(name, _)| name.into());
        let mut requests: BTreeMap<Box<str>, u64> = names.map(|name| (name, 0)).collect();
        for (name, amount) in &mut requests {
            *amount = self.request(name);
        }
        requests.retain(|_, amount| *amount > 0);
        requests
    }

    /// Init containers run one after the other, beside the earlier ones that always restart; the
    /// containers run together, beside all of those.
    fn request(&self, resource: &str) -> u64 {
        let (mut sidecars, mut most) = (0_u64, 0_u64);
        for container in &self.spec.init_containers {
            let one = container.request(resource);
            most = most.max(sidecars.saturating_add(one));
            if container.restarts_always() {
                sidecars = sidecars.saturating_add(one);
            }
        }
        let containers = self.spec.containers.iter();
        let all = containers.fold(sidecars, |sum, c| sum.saturating_add(c.request(resource)));
        let overhead = self.spec.overhead.get(resource).unwrap_or_default();
        most.max(all).saturating_add(overhead)
    }
}

fn slim_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Slim {
        name: Option<String>,
        namespace: Option<String>,
        resource_version: Option<String>,
    }
    let Slim { name, namespace, resource_version } = nullable(deserializer)?;
    Ok(ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() })
}

partial_resource!(RequestingPod as Pod, NamespaceResourceScope);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NAME: &str = "example.com/mbps";

    fn pod(spec: &Value) -> RequestingPod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn container(amount: u64) -> Value {
        json!({"name": "c", "resources": {
            "requests": {NAME: amount.to_string(), "cpu": "100m"}, "limits": {NAME: "9"}
        }})
    }

    fn sidecar(amount: u64) -> Value {
        let mut sidecar = container(amount);
        sidecar["restartPolicy"] = "Always".into();
        sidecar
    }

    #[test]
    fn a_pod_requests_what_the_scheduler_counts() {
        for (what, spec, expected) in [
            ("containers add up", json!({"containers": [container(100), container(50)]}), 150),
            (
                "the largest init container",
                json!({"initContainers": [container(70), container(300)],
                    "containers": [container(100)]}),
                300,
            ),
            (
                "containers beside sidecars",
                json!({"initContainers": [sidecar(40), sidecar(2)], "containers": [container(100)]}),
                142,
            ),
            (
                "an init container beside the earlier sidecars",
                json!({"initContainers": [sidecar(40), container(200), sidecar(10)],
                    "containers": [container(100)]}),
                240,
            ),
            (
                "overhead in addition",
                json!({"initContainers": [container(90)], "containers": [container(5)],
                    "overhead": {NAME: "7", "memory": "1Gi"}}),
                97,
            ),
        ] {
            let requests = pod(&spec).requests();
            assert_eq!(
                requests.into_iter().collect::<Vec<_>>(),
                [(NAME.into(), expected)],
                "{what}"
            );
        }
    }

    #[test]
    fn a_pod_without_extended_resources_requests_none() {
        for spec in [
            json!({}),
            json!({"containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}),
            json!({"containers": [{"resources": {"requests": {NAME: "0"}}}]}),
            json!({"containers": null, "initContainers": null, "overhead": null}),
            json!({"containers": [{"resources": null}, {"resources": {"requests": null}}]}),
        ] {
            assert!(pod(&spec).requests().is_empty(), "{spec}");
        }
    }

    #[test]
    fn only_a_pod_that_has_a_node_and_has_not_ended_takes_anything() {
        let at = |node: Value, phase: Value| {
            let pod = json!({"spec": {"nodeName": node}, "status": {"phase": phase}});
            let pod: RequestingPod = serde_json::from_value(pod).unwrap();
            pod.node().map(|node| node.map(str::to_owned))
        };
        for (node, phase, expected) in [
            (json!("n"), json!("Running"), Some(Some("n"))),
            (json!("n"), json!("Pending"), Some(Some("n"))),
            (json!("n"), Value::Null, Some(Some("n"))),
            (json!("n"), json!("Succeeded"), None),
            (json!("n"), json!("Failed"), None),
            (json!(""), json!("Failed"), None),
            (json!(""), json!("Pending"), Some(None)),
            (Value::Null, json!("Pending"), Some(None)),
        ] {
            let at = at(node.clone(), phase.clone());
            assert_eq!(at.as_ref().map(Option::as_deref), expected, "{node} {phase}");
        }
    }

    #[test]
    fn metadata_is_the_place_and_nothing_else() {
        let pod: RequestingPod = serde_json::from_value(json!({
            "metadata": {
                "name": "p", "namespace": "n", "resourceVersion": "7", "labels": {"a": "b"},
                "managedFields": [{"manager": "kubelet"}]
            }
        }))
        .unwrap();
        let ObjectMeta { name, namespace, labels, managed_fields, .. } = pod.metadata;
        assert_eq!((name.as_deref(), namespace.as_deref()), (Some("p"), Some("n")));
        assert_eq!((labels, managed_fields), (None, None));
    }
}
