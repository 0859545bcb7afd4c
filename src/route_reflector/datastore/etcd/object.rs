//! Calico's objects as they lie in etcd: keys and JSON. Pure.
//!
//! A write is the object as read, with one field changed: unknown fields stay.
use std::{collections::BTreeMap, net::Ipv4Addr};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::route_reflector::{
    datastore::{
        CalicoPeer, Error, IdChange,
        peer::{AsNumber, ConfigurationSpec, InformationSpec, PeerSpec},
        routing::{FelixSpec, Pool},
    },
    families::Addresses,
};

/// The API version in every object of Calico's.
pub(super) const API_VERSION: &str = "projectcalico.org/v3";

pub(super) const PEERS: &str = "bgppeers";
pub(super) const CONFIGURATIONS: &str = "bgpconfigurations";
pub(super) const INFORMATION: &str = "clusterinformations";
pub(super) const NODES: &str = "nodes";
pub(super) const POOLS: &str = "ippools";
pub(super) const FELIX: &str = "felixconfigurations";

/// All objects of a kind.
pub(super) fn prefix(plural: &str) -> String {
    format!("/calico/resources/v3/projectcalico.org/{plural}/")
}

/// One object.
pub(super) fn key(plural: &str, name: &str) -> String {
    prefix(plural) + name
}

/// An object, and the revision at which it was written last.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub name: String,
    pub value: Value,
    pub revision: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

/// The labels of a Node, by which BGPPeers select: Calico's own, not those of Kubernetes' Node.
pub(super) type NodeLabels = BTreeMap<String, String>;

#[derive(Deserialize)]
struct Parts<S> {
    #[serde(default)]
    metadata: Option<Metadata>,
    #[serde(default)]
    spec: Option<S>,
}

/// A Node of Calico's own.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeSpec {
    #[serde(default)]
    bgp: Option<NodeBgp>,
    #[serde(default)]
    orch_refs: Option<Vec<OrchRef>>,
}

#[derive(Default, Deserialize)]
struct NodeBgp {
    #[serde(default, rename = "routeReflectorClusterID")]
    cluster_id: Option<String>,
    #[serde(default, rename = "ipv4Address")]
    v4: Option<String>,
    #[serde(default, rename = "ipv6Address")]
    v6: Option<String>,
    #[serde(default, rename = "asNumber")]
    as_number: Option<AsNumber>,
}

impl NodeBgp {
    /// The addresses it speaks with.
    fn addresses(&self) -> Addresses {
        Addresses::parse(self.v4.as_deref(), self.v6.as_deref())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OrchRef {
    #[serde(default)]
    node_name: Option<String>,
    #[serde(default)]
    orchestrator: Option<String>,
}

impl NodeSpec {
    /// The name of the Kubernetes node that this is.
    fn kubernetes(&self) -> Option<&str> {
        let refs = self.orch_refs.iter().flatten();
        let mut ours = refs.filter(|r| r.orchestrator.as_deref() == Some("k8s"));
        ours.find_map(|r| r.node_name.as_deref()).filter(|name| !name.is_empty())
    }
}

/// The part of a Node that is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CalicoNode {
    /// Its name in Kubernetes.
    pub kubernetes: String,
    pub cluster_id: Option<Ipv4Addr>,
    /// Without any address, it takes no part in BGP.
    pub addresses: Addresses,
    /// Its own, if it is in another than the cluster's.
    pub as_number: Option<u32>,
    pub labels: NodeLabels,
}

impl Entry {
    fn parts<S: for<'de> Deserialize<'de> + Default>(&self) -> Result<Parts<S>, serde_json::Error> {
        Parts::deserialize(&self.value)
    }

    pub fn peer(&self) -> Result<CalicoPeer, serde_json::Error> {
        let parts = self.parts::<PeerSpec>()?;
        let labels = parts.metadata.unwrap_or_default().labels;
        let spec = parts.spec.unwrap_or_default();
        let version = self.revision.to_string();
        Ok(CalicoPeer::new(self.name.clone(), labels.as_ref(), spec, version))
    }

    pub fn configuration(&self) -> Result<ConfigurationSpec, serde_json::Error> {
        Ok(self.parts()?.spec.unwrap_or_default())
    }

    pub fn pool(&self) -> Result<Pool, serde_json::Error> {
        let pool: Pool = self.parts()?.spec.unwrap_or_default();
        Ok(Pool { name: self.name.clone(), ..pool })
    }

    pub fn felix(&self) -> Result<FelixSpec, serde_json::Error> {
        Ok(self.parts()?.spec.unwrap_or_default())
    }

    pub fn information(&self) -> Result<InformationSpec, serde_json::Error> {
        Ok(self.parts()?.spec.unwrap_or_default())
    }

    /// `None` if it is no node of Kubernetes.
    pub fn node(&self) -> Result<Option<CalicoNode>, String> {
        let parts = self.parts::<NodeSpec>().map_err(|error| error.to_string())?;
        let labels = parts.metadata.unwrap_or_default().labels.unwrap_or_default();
        let spec = parts.spec.unwrap_or_default();
        let Some(kubernetes) = spec.kubernetes().map(str::to_owned) else { return Ok(None) };
        let bgp = spec.bgp.unwrap_or_default();
        let addresses = bgp.addresses();
        let as_number = bgp.as_number.map(|AsNumber(number)| number);
        let id = bgp.cluster_id.filter(|id| !id.is_empty());
        let cluster_id = id.map(|id| id.parse().map_err(|_| id)).transpose();
        let cluster_id =
            cluster_id.map_err(|id| format!("cluster id {id:?} is not an IPv4 address"))?;
        Ok(Some(CalicoNode { kubernetes, cluster_id, addresses, as_number, labels }))
    }

    pub fn is_kubernetes_node(&self, name: &str) -> bool {
        self.parts::<NodeSpec>()
            .is_ok_and(|parts| parts.spec.is_some_and(|spec| spec.kubernetes() == Some(name)))
    }

    /// The Node with a merge patch of its labels and another cluster id; `None` if it has both.
    ///
    /// # Errors
    /// [`Error::NoSpeaker`] if the node gets an id and takes no part in BGP.
    pub fn marked(&self, labels: &Value, id: IdChange) -> Result<Option<Value>, Error> {
        let mut value = self.value.clone();
        for (key, wanted) in labels.as_object().into_iter().flatten() {
            if value["metadata"]["labels"][key] != *wanted {
                merge(&mut value, json!({"metadata": {"labels": {key: wanted}}}));
            }
        }
        match id {
            IdChange::Keep => {}
            IdChange::Remove => self.identify(&mut value, None)?,
            IdChange::Set(id) => self.identify(&mut value, Some(id))?,
        }
        Ok((value != self.value).then_some(value))
    }

    fn identify(&self, value: &mut Value, id: Option<Ipv4Addr>) -> Result<(), Error> {
        const FIELD: &str = "routeReflectorClusterID";
        let bgp = value.pointer_mut("/spec/bgp").and_then(Value::as_object_mut);
        let Some(bgp) = bgp else {
            return match id {
                None => Ok(()),
                Some(_) => Err(Error::NoSpeaker(format!(
                    "node {} cannot be a reflector: Calico's Node has no spec.bgp, so it takes no part in BGP",
                    self.name
                ))),
            };
        };
        let wanted = id.map(|id| id.to_string());
        let found = bgp.get(FIELD).and_then(Value::as_str).filter(|id| !id.is_empty());
        if found == wanted.as_deref() {
            return Ok(());
        }
        match wanted {
            Some(id) => bgp.insert(FIELD.into(), id.into()),
            None => bgp.remove(FIELD),
        };
        Ok(())
    }
}

/// Adds the fields that Calico's own client sets on a new object, and requires on an edited one.
pub(super) fn born(mut object: Value, uid: &str, now: &str) -> Value {
    object["metadata"]["uid"] = json!(uid);
    object["metadata"]["creationTimestamp"] = json!(now);
    object
}

/// Applies a merge patch (RFC 7386).
pub(super) fn merge(value: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *value = patch;
        return;
    };
    if !value.is_object() {
        *value = Map::new().into();
    }
    let Some(object) = value.as_object_mut() else { return };
    for (key, patch) in patch {
        if patch.is_null() {
            object.remove(&key);
        } else {
            merge(object.entry(key).or_insert(Value::Null), patch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    mod properties;

    fn node(spec: &Value) -> Entry {
        let value = json!({"kind": "Node", "metadata": {"name": "c1"}, "spec": spec});
        Entry { name: "c1".into(), value, revision: 7 }
    }

    #[test]
    fn a_key_is_where_calico_looks_for_it() {
        assert_eq!(
            key(PEERS, "rrs-to-rrs"),
            "/calico/resources/v3/projectcalico.org/bgppeers/rrs-to-rrs"
        );
    }

    #[test]
    fn a_node_is_found_by_its_name_in_kubernetes() {
        let k8s = json!([{"orchestrator": "cni"}, {"orchestrator": "k8s", "nodeName": "n1"}]);
        let found = |cluster_id| {
            let kubernetes = "n1".into();
            Some(CalicoNode {
                kubernetes,
                cluster_id,
                addresses: Addresses::default(),
                as_number: None,
                labels: NodeLabels::new(),
            })
        };
        for (spec, expected) in [
            (json!({"orchRefs": k8s}), Ok(found(None))),
            (json!({"orchRefs": k8s, "bgp": null}), Ok(found(None))),
            (json!({"orchRefs": k8s, "bgp": {"routeReflectorClusterID": ""}}), Ok(found(None))),
            (
                json!({"orchRefs": k8s, "bgp": {"routeReflectorClusterID": "224.0.0.1"}}),
                Ok(found(Some(Ipv4Addr::new(224, 0, 0, 1)))),
            ),
            (json!({"orchRefs": [{"orchestrator": "openstack", "nodeName": "n1"}]}), Ok(None)),
            (json!({}), Ok(None)),
            (json!(null), Ok(None)),
            (
                json!({"orchRefs": k8s, "bgp": {"routeReflectorClusterID": "x"}}),
                Err("cluster id \"x\" is not an IPv4 address".to_owned()),
            ),
        ] {
            assert_eq!(node(&spec).node(), expected, "{spec}");
        }
        let bgp = json!({"ipv4Address": "10.0.0.1/24", "asNumber": "65000"});
        let speaker = node(&json!({"orchRefs": k8s, "bgp": bgp})).node().unwrap().unwrap();
        assert_eq!(speaker.addresses.v4, "10.0.0.1".parse().ok());
        assert_eq!(speaker.as_number, Some(65_000));
        let bgp = json!({"ipv4Address": "", "ipv6Address": "fd00::1/64"});
        let speaker = node(&json!({"orchRefs": k8s, "bgp": bgp})).node().unwrap().unwrap();
        assert_eq!(speaker.addresses.v6, "fd00::1".parse().ok());
        assert!(node(&json!({"orchRefs": k8s})).is_kubernetes_node("n1"));
        assert!(!node(&json!({"orchRefs": k8s})).is_kubernetes_node("c1"));
    }

    #[test]
    fn a_node_without_bgp_is_refused_and_does_not_end_the_process() {
        let id = IdChange::Set(Ipv4Addr::new(224, 0, 0, 1));
        let none = json!({});
        for spec in [json!({}), json!({"bgp": null}), json!(null), json!({"bgp": "x"})] {
            let error = node(&spec).marked(&none, id).unwrap_err().to_string();
            assert!(error.contains("node c1") && error.contains("no spec.bgp"), "{error}");
            assert_eq!(node(&spec).marked(&none, IdChange::Remove).unwrap(), None);
        }
    }

    #[test]
    fn only_the_cluster_id_of_a_node_changes() {
        let spec = json!({"bgp": {"ipv4Address": "10.0.0.1/24", "new": [1, {"a": 2}]}, "x": 1.5});
        let before = node(&spec);
        let (id, none) = (IdChange::Set(Ipv4Addr::new(224, 0, 0, 1)), json!({}));
        let mut after = before.marked(&none, id).unwrap().unwrap();
        let set = Entry { value: after.clone(), ..before.clone() };
        assert_eq!(set.marked(&none, id).unwrap(), None, "it is so already");
        let field = after["spec"]["bgp"].as_object_mut().unwrap().remove("routeReflectorClusterID");
        assert_eq!((field, &after), (Some(json!("224.0.0.1")), &before.value));
        assert_eq!(set.marked(&none, IdChange::Remove).unwrap().unwrap(), before.value);
    }

    #[test]
    fn labels_and_cluster_id_are_one_change_and_the_labels_of_others_stay() {
        let mut before = node(&json!({"bgp": {}}));
        let labels = json!({"rr": "", "slot": "0", "group": null});
        let id = IdChange::Set(Ipv4Addr::new(224, 0, 0, 1));
        let after = before.marked(&labels, id).unwrap().unwrap();
        assert_eq!(after["metadata"]["labels"], json!({"rr": "", "slot": "0"}));
        assert_eq!(after["spec"]["bgp"]["routeReflectorClusterID"], "224.0.0.1");
        before.value["metadata"]["labels"] = json!({"zone": "a", "rr": "", "slot": "0"});
        assert_eq!(before.marked(&labels, IdChange::Keep).unwrap(), None, "it is so already");
        let gone = json!({"rr": null, "slot": null, "group": "a"});
        let after = before.marked(&gone, IdChange::Remove).unwrap().unwrap();
        assert_eq!(after["metadata"]["labels"], json!({"zone": "a", "group": "a"}));
        let untouched = node(&json!({}));
        assert_eq!(untouched.marked(&json!({"rr": null}), IdChange::Remove).unwrap(), None);
    }

    #[test]
    fn patches_merge_as_the_api_server_merges_them() {
        for (mut value, patch, expected) in [
            (
                json!({"a": 1, "b": {"c": 2, "d": 3}}),
                json!({"b": {"c": null, "e": 4}}),
                json!({"a": 1, "b": {"d": 3, "e": 4}}),
            ),
            (json!({"a": 1}), json!({"a": {"b": 2}}), json!({"a": {"b": 2}})),
            (json!({}), json!({"a": {"b": null}}), json!({"a": {}})),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
        ] {
            merge(&mut value, patch);
            assert_eq!(value, expected);
        }
    }
}
