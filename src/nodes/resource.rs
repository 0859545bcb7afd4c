//! `Node` as it comes from the API server, reduced while it is being read.
use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::core::ClusterResourceScope;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::Offer;
use crate::{
    api::{BGP_ADDRESS_ANNOTATIONS, BGP_AS_ANNOTATION, CAPACITY_ANNOTATION, CLUSTER_ID_ANNOTATION},
    extended_resources::Amounts,
    partial_resource::partial_resource,
};

/// A Node without the fields that the operator never uses.
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
    /// Unchanged: taints of others are written back with all their fields.
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
    #[serde(default)]
    capacity: Option<Amounts>,
    #[serde(default)]
    allocatable: Option<Amounts>,
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

/// The readiness of a node, as reported by the kubelet, or by the controller if the kubelet is
/// silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It is Ready.
    Ready,
    /// It is not Ready, since this time (in seconds since 1970), if reported.
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
    /// Returns the node's addresses.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        self.status.addresses.as_deref().unwrap_or_default()
    }

    /// Returns the node's taints, each with all its fields.
    #[must_use]
    pub fn taints(&self) -> &[Value] {
        self.spec.taints.as_deref().unwrap_or_default()
    }

    /// Returns the readiness of the node; a node without the condition is not Ready.
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

    /// Returns the major and minor version of its kubelet, e.g. of `v1.34.1-eks-113cf36`; `None` if
    /// they are not reported.
    #[must_use]
    pub fn kubelet(&self) -> Option<(u32, u32)> {
        let version = self.status.info.as_ref()?.kubelet.as_deref()?.strip_prefix('v')?;
        let mut parts = version.splitn(3, ['.', '+', '-']).map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    }

    /// Returns the extended resources that the node offers.
    pub fn offers(&self) -> impl Iterator<Item = (&str, Offer)> {
        let (capacity, allocatable) =
            (self.status.capacity.as_ref(), self.status.allocatable.as_ref());
        let with_capacity = capacity.into_iter().flat_map(Amounts::iter);
        let with_capacity = with_capacity.map(move |(name, amount)| {
            let allocatable = allocatable.and_then(|amounts| amounts.get(name));
            (name, Offer { capacity: Some(amount), allocatable })
        });
        let others = allocatable.into_iter().flat_map(Amounts::iter);
        let others = others
            .filter(move |(name, _)| capacity.is_none_or(|amounts| amounts.get(name).is_none()))
            .map(|(name, amount)| (name, Offer { capacity: None, allocatable: Some(amount) }));
        with_capacity.chain(others)
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
    use proptest::prelude::*;

    use super::*;
    use crate::any_json;

    /// Any JSON of the words of a Node.
    fn anything() -> impl Strategy<Value = Value> {
        let names = "annotations labels name taints unschedulable addresses address conditions \
                     capacity allocatable example.com/a nodeInfo kubeletVersion type status \
                     lastTransitionTime other";
        let ours = [CAPACITY_ANNOTATION, CLUSTER_ID_ANNOTATION, BGP_AS_ANNOTATION].join(" ");
        let texts = ["Ready", "True", "v1.34.1", "v1.", "2026-01-01T00:00:00Z"];
        any_json::of(&format!("{names} {ours}"), &texts)
    }

    proptest! {
        /// A node is read as it stands or refused, and nothing else of it is kept.
        #[test]
        fn any_node_is_read_or_refused(
            metadata in anything(), spec in anything(), status in anything(), whole in anything(),
        ) {
            let node = serde_json::json!({"metadata": metadata, "spec": spec, "status": status});
            for value in [node, whole] {
                let node = serde_json::from_value::<NodeObject>(value.clone());
                let Ok(node) = node else { continue };
                let _ = (node.readiness(), node.kubelet(), node.is_schedulable());
                let _ = (node.addresses(), node.is_cordoned(), node.offers().count());
                // Fields in a list are taken in their order; no API server sends them so.
                if value["spec"].is_object() {
                    let taints = value["spec"]["taints"].as_array();
                    prop_assert_eq!(node.taints(), taints.map_or(&[][..], Vec::as_slice));
                }
                if !value["metadata"]["annotations"].is_object() {
                    continue;
                }
                for (key, text) in node.metadata.annotations.iter().flatten() {
                    let [v4, v6] = BGP_ADDRESS_ANNOTATIONS;
                    let known =
                        [CAPACITY_ANNOTATION, CLUSTER_ID_ANNOTATION, BGP_AS_ANNOTATION, v4, v6];
                    prop_assert!(known.contains(&key.as_str()), "{key}");
                    prop_assert_eq!(&value["metadata"]["annotations"][key], text.as_str());
                }
            }
        }
    }

    #[test]
    fn an_extended_resource_is_met_once_with_both_amounts() {
        let node: NodeObject = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "n"},
            "status": {
                "capacity": {"cpu": "4", "example.com/a": "1k", "example.com/b": "7"},
                "allocatable": {"cpu": "4", "example.com/a": "900", "example.com/c": "3"},
            }
        }))
        .unwrap();
        let offers: Vec<_> = node.offers().collect();
        let offer = |capacity, allocatable| Offer { capacity, allocatable };
        let expected = [
            ("example.com/a", offer(Some(1000), Some(900))),
            ("example.com/b", offer(Some(7), None)),
            ("example.com/c", offer(None, Some(3))),
        ];
        assert_eq!(offers, expected);
    }

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
