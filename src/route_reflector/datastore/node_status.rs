//! How many sessions a node has, by Calico's own report: CalicoNodeStatus.
//!
//! It costs the node (5 % of a processor at this period), and Calico asks for fewer than ten at a time:
//! reports are made for the nodes in transition, and deleted after.
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{
    ResourceExt,
    api::{DynamicObject, ListParams},
    core::Object,
};
use serde::Deserialize;
use serde_json::json;

use super::{Error, Kubernetes, MANAGED_BY_LABEL, SET_LABEL, Written};
use crate::{controller::MANAGED_BY, placement::hash};

/// At most so many reports at a time.
pub const MAX_NODES: usize = 10;

/// How often Calico writes a report. It is what a gate waits for after the last session is up.
const PERIOD_SECONDS: u32 = 10;

const KIND: &str = "CalicoNodeStatus";

/// What Calico says of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Established BGP sessions, IPv4 and IPv6.
    pub established: u32,
    /// When Calico wrote it, by the node's clock.
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
    #[serde(default, rename = "numberEstablishedV4")]
    v4: Option<u32>,
    #[serde(default, rename = "numberEstablishedV6")]
    v6: Option<u32>,
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
    /// [`Error::Taken`] if the name of an object is somebody else's; otherwise as any write.
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

    /// What Calico has reported so far, by node. A node that is not in it has no report yet.
    ///
    /// # Errors
    /// As any read.
    pub async fn read_reports(&self) -> Result<BTreeMap<String, Report>, Error> {
        let group = self.group().await?;
        let api = self.api::<Object<Spec, Status>>(&group.node_statuses());
        let list = api.list(&ours()).await;
        let list = list.map_err(|source| self.failed("list CalicoNodeStatuses", source))?;
        let report = |status: Status| {
            let bgp = status.bgp?;
            let established = bgp.v4.unwrap_or(0).saturating_add(bgp.v6.unwrap_or(0));
            Some(Report { established, updated: status.last_updated?.0 })
        };
        Ok(list
            .into_iter()
            .filter_map(|object| Some((object.spec.node, report(object.status?)?)))
            .collect())
    }

    /// Deletes our requests, whoever of us made them.
    ///
    /// # Errors
    /// As any write.
    pub async fn stop_reports(&self) -> Result<Written, Error> {
        let group = self.group().await?;
        let api = self.api::<DynamicObject>(&group.node_statuses());
        let mut written = Written::Unchanged;
        for object in self.reports(&api).await? {
            self.delete(&api, &object).await?;
            written = Written::Changed;
        }
        Ok(written)
    }

    async fn reports(&self, api: &kube::Api<DynamicObject>) -> Result<Vec<DynamicObject>, Error> {
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
    fn a_name_is_never_too_long_and_differs() {
        assert_eq!(object_name("node-1"), "traffic-operator-node-1");
        let long = |end| format!("{}{end}", "n".repeat(252));
        assert!(object_name(&long("a")).len() <= 253);
        assert_ne!(object_name(&long("a")), object_name(&long("b")));
    }
}
