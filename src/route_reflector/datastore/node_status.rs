//! The sessions of a node, by Calico's own report: CalicoNodeStatus.
//!
//! It costs the node (5 % of a processor at this period), and Calico asks for fewer than ten at a
//! time: reports are made for the nodes in transition, and deleted after.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{
    ResourceExt,
    api::{DynamicObject, ListParams},
    core::Object,
};
use serde::Deserialize;
use serde_json::json;

use super::{Error, Kubernetes, MANAGED_BY_LABEL, SET_LABEL, Written};
use crate::{
    controller::MANAGED_BY, infra::Api, placement::hash, route_reflector::bgp_model::Kind,
};

/// Maximum number of reports at a time.
pub const MAX_NODES: usize = 10;

/// Time between two of Calico's reports. It is what a gate waits for after the last session is up.
const PERIOD_SECONDS: u32 = 10;

const KIND: &str = "CalicoNodeStatus";

/// Calico's report about one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The established sessions between nodes, IPv4 and IPv6.
    pub established: BTreeSet<(Kind, IpAddr)>,
    /// The time at which Calico wrote it, by the node's clock: it distinguishes two reports, and is
    /// not comparable with our clock.
    pub updated: Timestamp,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    node: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    bgp: Option<Bgp>,
    #[serde(default)]
    last_updated: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Bgp {
    #[serde(default, rename = "peersV4")]
    v4: Option<Vec<Peer>>,
    #[serde(default, rename = "peersV6")]
    v6: Option<Vec<Peer>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Peer {
    #[serde(default, rename = "peerIP")]
    address: String,
    #[serde(default, rename = "type")]
    type_: String,
    #[serde(default)]
    state: String,
}

impl Peer {
    /// The session, if it is established and is between nodes. Its address is the one that BIRD
    /// reports; before Calico 3.24 it was made of the session's name, with its port.
    fn established(&self) -> Option<(Kind, IpAddr)> {
        let kind = match self.type_.as_str() {
            "NodeMesh" => Kind::Mesh,
            "NodePeer" => Kind::Node,
            "GlobalPeer" => Kind::Global,
            _ => return None,
        };
        let address = self.address.split(".port.").next()?.split(":port:").next()?;
        let address = address.parse().ok()?;
        (self.state == "Established").then_some((kind, address))
    }
}

/// The name of the object for a node. A node's name may be as long as any.
fn object_name(node: &str) -> String {
    let name = format!("traffic-operator-{node}");
    if name.len() <= 253 { name } else { format!("traffic-operator-{:016x}", hash::of(node)) }
}

impl Kubernetes {
    /// Has Calico report about these nodes, the first [`MAX_NODES`] of them, and about no others.
    ///
    /// # Errors
    /// [`Error::Taken`] if the name of an object belongs to another owner; otherwise as for any
    /// write.
    pub async fn start_reports(&self, nodes: &[&str], set: &str) -> Result<Written, Error> {
        let nodes: BTreeSet<&str> = nodes.iter().take(MAX_NODES).copied().collect();
        let group = self.writable().await?;
        let mut missing = nodes.clone();
        let mut written = Written::Unchanged;
        let api = self.api::<DynamicObject>(&group.node_statuses());
        for object in self.reports(&api).await? {
            let node = object.data["spec"]["node"].as_str().unwrap_or_default();
            if !missing.remove(node) {
                self.delete(&api, &object).await?;
                written = Written::Changed;
            }
        }
        for node in missing {
            let name = object_name(node);
            let object = json!({
                "apiVersion": group.api_version(), "kind": KIND,
                "metadata": {
                    "name": name, "labels": {MANAGED_BY_LABEL: MANAGED_BY, SET_LABEL: set},
                },
                "spec": {"node": node, "classes": ["BGP"], "updatePeriodSeconds": PERIOD_SECONDS},
            });
            match self.create(&group.node_statuses(), object).await {
                Ok(_) => written = Written::Changed,
                Err(Error::Changed(_)) => {
                    let taken = api.get_opt(&name).await;
                    let taken = taken.map_err(Error::kube("get CalicoNodeStatus"))?;
                    let taken = taken.is_some_and(|object| !is_ours(&object));
                    return Err(if taken {
                        Error::Taken { kind: KIND, name }
                    } else {
                        Error::Changed(format!("{KIND} {name}"))
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Returns Calico's reports so far, by node. A node that is not in it has no report yet.
    ///
    /// # Errors
    /// The same as for any read.
    pub async fn read_reports(&self) -> Result<BTreeMap<String, Report>, Error> {
        let group = self.group().await?;
        let api = self.api::<Object<Spec, Status>>(&group.node_statuses());
        let list = api.list(&ours()).await;
        let list = list.map_err(|source| self.failed("list CalicoNodeStatuses", source))?;
        let report = |status: Status| {
            let bgp = status.bgp?;
            let peers = bgp.v4.iter().chain(&bgp.v6).flatten();
            let established = peers.filter_map(Peer::established).collect();
            Some(Report { established, updated: status.last_updated?.0 })
        };
        Ok(list
            .into_iter()
            .filter_map(|object| Some((object.spec.node, report(object.status?)?)))
            .collect())
    }

    /// Deletes our requests, whichever replica made them. Without the kind there are none.
    ///
    /// # Errors
    /// The same as for any write.
    pub async fn stop_reports(&self) -> Result<Written, Error> {
        let group = match self.group().await {
            Err(Error::NotInstalled) => return Ok(Written::Unchanged),
            group => group?,
        };
        let api = self.api::<DynamicObject>(&group.node_statuses());
        let reports = match self.reports(&api).await {
            Err(Error::Changed(_)) => return Ok(Written::Unchanged),
            reports => reports?,
        };
        let mut written = Written::Unchanged;
        for object in reports {
            self.delete(&api, &object).await?;
            written = Written::Changed;
        }
        Ok(written)
    }

    async fn reports(&self, api: &Api<DynamicObject>) -> Result<Vec<DynamicObject>, Error> {
        let list = api.list(&ours()).await;
        Ok(list.map_err(|source| self.failed("list CalicoNodeStatuses", source))?.items)
    }
}

fn ours() -> ListParams {
    ListParams::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGED_BY}"))
}

fn is_ours(object: &DynamicObject) -> bool {
    object.labels().get(MANAGED_BY_LABEL).is_some_and(|value| value == MANAGED_BY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_which_sessions_are_established_and_not_how_many() {
        let bgp: Bgp = serde_json::from_value(json!({
            "numberEstablishedV4": 4, "numberNotEstablishedV4": 1, "numberEstablishedV6": 1,
            "peersV4": [
                {"peerIP": "10.0.0.1", "type": "NodePeer", "state": "Established"},
                {"peerIP": "10.0.0.2", "type": "NodeMesh", "state": "Established"},
                {"peerIP": "10.0.0.3", "type": "GlobalPeer", "state": "Established"},
                {"peerIP": "10.0.0.4.port.1790", "type": "NodePeer", "state": "Established"},
                {"peerIP": "10.0.0.5", "type": "NodePeer", "state": "Active"},
                {"peerIP": "10.65.0.1", "type": "LocalWorkload", "state": "Established"},
            ],
            "peersV6": [
                {"peerIP": "FD00:0::1", "type": "NodePeer", "state": "Established"},
                {"peerIP": "fd00::2:port:1790", "type": "NodePeer", "state": "Established"},
            ],
        }))
        .unwrap();
        let peers = bgp.v4.iter().chain(&bgp.v6).flatten();
        let sessions: Vec<_> = peers.filter_map(Peer::established).collect();
        let expected = [
            (Kind::Node, "10.0.0.1"),
            (Kind::Mesh, "10.0.0.2"),
            (Kind::Global, "10.0.0.3"),
            (Kind::Node, "10.0.0.4"),
            (Kind::Node, "fd00::1"),
            (Kind::Node, "fd00::2"),
        ];
        assert_eq!(sessions, expected.map(|(kind, address)| (kind, address.parse().unwrap())));
    }

    #[test]
    fn a_name_is_never_too_long_and_differs() {
        assert_eq!(object_name("node-1"), "traffic-operator-node-1");
        let long = |end| format!("{}{end}", "n".repeat(252));
        assert!(object_name(&long("a")).len() <= 253);
        assert_ne!(object_name(&long("a")), object_name(&long("b")));
    }
}
