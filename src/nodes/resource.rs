//! `Node` as it comes from the API server, reduced while it is being read.
use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::core::ClusterResourceScope;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{
    api::{BGP_ADDRESS_ANNOTATIONS, BGP_AS_ANNOTATION, CAPACITY_ANNOTATION, CLUSTER_ID_ANNOTATION},
    partial_resource::partial_resource,
};

/// A Node without what the operator never looks at.
///
/// A Node of a real cluster is 16 to 50 kB, most of it images, conditions and managed fields; 5,000
/// of them in full take 320 MiB. Skipped text is never allocated.
#[derive(Clone, Debug, Deserialize)]
pub struct NodeObject {
    /// Name, age, labels, resource version, and the annotations in use.
    #[serde(deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    unschedulable: bool,
    /// As they came: what others wrote is written back with every field it had.
    #[serde(default)]
    taints: Option<Vec<Value>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    addresses: Option<Vec<Address>>,
    #[serde(default)]
    conditions: Option<Vec<NodeCondition>>,
    #[serde(default, rename = "nodeInfo")]
    info: Option<NodeInfo>,
}

#[derive(Clone, Debug, Deserialize)]
struct NodeInfo {
    #[serde(default, rename = "kubeletVersion")]
    kubelet: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default)]
    last_transition_time: Option<Time>,
}

/// The readiness of a node, as reported by the kubelet or by the controller that misses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It is Ready.
    Ready,
    /// It is not, since then (in seconds since 1970), if that is said.
    NotReady(Option<i64>),
}

/// One address of a node.
#[derive(Clone, Debug, Deserialize)]
pub struct Address {
    /// `InternalIP`, `Hostname`, `InternalDNS`, …
    #[serde(rename = "type")]
    pub type_: String,
    /// The address itself.
    pub address: String,
}

impl NodeObject {
    /// The node's addresses.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        self.status.addresses.as_deref().unwrap_or_default()
    }

    /// The node's taints, each with all its fields.
    #[must_use]
    pub fn taints(&self) -> &[Value] {
        self.spec.taints.as_deref().unwrap_or_default()
    }

    /// Returns the readiness of the node; a node without the condition is not.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let mut conditions = self.status.conditions.iter().flatten();
        let Some(ready) = conditions.find(|condition| condition.type_ == "Ready") else {
            return Readiness::NotReady(None);
        };
        if ready.status == "True" {
            return Readiness::Ready;
        }
        Readiness::NotReady(ready.last_transition_time.as_ref().map(|time| time.0.as_second()))
    }

    /// Major and minor version of its kubelet, e.g. of `v1.34.1-eks-113cf36`; `None` where they are
    /// not said.
    #[must_use]
    pub fn kubelet(&self) -> Option<(u32, u32)> {
        let version = self.status.info.as_ref()?.kubelet.as_deref()?.strip_prefix('v')?;
        let mut parts = version.splitn(3, ['.', '+', '-']).map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    }

    /// Reports whether the node is cordoned.
    #[must_use]
    pub fn is_cordoned(&self) -> bool {
        self.spec.unschedulable
    }

    /// Reports whether a pod can be started on the node: it is Ready and not cordoned.
    #[must_use]
    pub fn is_schedulable(&self) -> bool {
        let conditions = self.status.conditions.iter().flatten();
        let ready = conditions.filter(|c| c.type_ == "Ready").all(|c| c.status == "True");
        ready && !self.spec.unschedulable
    }
}

fn slim_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Slim {
        name: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        creation_timestamp: Option<Time>,
        labels: Option<std::collections::BTreeMap<String, String>>,
        annotations: Option<Annotations>,
    }
    #[derive(Deserialize)]
    struct Annotations {
        #[serde(rename = "traffic.example.com/capacity")]
        capacity: Option<String>,
        #[serde(rename = "projectcalico.org/RouteReflectorClusterID")]
        cluster_id: Option<String>,
        #[serde(rename = "projectcalico.org/IPv4Address")]
        v4: Option<String>,
        #[serde(rename = "projectcalico.org/IPv6Address")]
        v6: Option<String>,
        #[serde(rename = "projectcalico.org/ASNumber")]
        as_number: Option<String>,
    }
    let slim = Slim::deserialize(deserializer)?;
    let annotations = slim.annotations.map(|annotations| {
        let [v4, v6] = BGP_ADDRESS_ANNOTATIONS;
        let kept = [
            (CAPACITY_ANNOTATION, annotations.capacity),
            (CLUSTER_ID_ANNOTATION, annotations.cluster_id),
            (v4, annotations.v4),
            (v6, annotations.v6),
            (BGP_AS_ANNOTATION, annotations.as_number),
        ];
        let kept = kept.into_iter();
        kept.filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    });
    Ok(ObjectMeta {
        name: slim.name,
        uid: slim.uid,
        resource_version: slim.resource_version,
        creation_timestamp: slim.creation_timestamp,
        labels: slim.labels,
        annotations,
        ..ObjectMeta::default()
    })
}

partial_resource!(NodeObject as Node, ClusterResourceScope);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_what_is_looked_at() {
        let node: NodeObject = serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"},
                "annotations": {CAPACITY_ANNOTATION: "1G", "other": "x"},
                "managedFields": [{"manager": "kubelet"}]
            },
            "spec": {"podCIDR": "10.0.0.0/24"},
            "status": {"images": [], "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}
        }))
        .unwrap();
        assert_eq!(node.metadata.annotations.as_ref().unwrap().len(), 1);
        assert_eq!(node.metadata.managed_fields, None);
        assert_eq!(node.addresses()[0].address, "10.0.0.1");
        let schedulable = |spec: serde_json::Value, ready: &str| {
            let node = serde_json::json!({
                "metadata": {"name": "n"}, "spec": spec,
                "status": {"conditions": [{"type": "Ready", "status": ready}]}
            });
            serde_json::from_value::<NodeObject>(node).unwrap().is_schedulable()
        };
        assert!(schedulable(serde_json::json!({}), "True"));
        assert!(!schedulable(serde_json::json!({}), "Unknown"));
        assert!(!schedulable(serde_json::json!({"unschedulable": true}), "True"));
        let bare: NodeObject =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "n"}})).unwrap();
        assert_eq!(bare.readiness(), Readiness::NotReady(None));
        assert!(bare.addresses().is_empty() && bare.taints().is_empty());
    }
}
