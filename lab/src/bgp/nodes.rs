//! Node objects of the machines, and what happens to them that a kubelet would do.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::machine::Machine;
use super::network;
use super::world::annotation;

/// The label that names a node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// The Nodes of a ground in an API server; there is no kubelet, so nobody else touches them.
#[derive(Debug, Clone)]
pub struct Nodes(Api<Node>);

impl Nodes {
    /// Those behind this client.
    pub fn new(client: Client) -> Self {
        Self(Api::all(client))
    }

    /// Makes the Node of a machine, Ready.
    pub async fn create(&self, machine: &Machine, zone: &str) -> Result<()> {
        let name = &machine.name;
        let pods: Vec<String> =
            machine.families.iter().map(|family| machine.pods(*family)).collect();
        let annotations: BTreeMap<&str, String> = machine
            .families
            .iter()
            .map(|&f| (annotation(f), format!("{}/{}", machine.address(f), network::prefix(f))))
            .collect();
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/hostname": name,
                    ZONE: zone,
                },
                "annotations": annotations,
            },
            "spec": {"podCIDR": pods[0], "podCIDRs": pods},
        });
        let node = serde_json::from_value(node)?;
        self.0
            .create(&PostParams::default(), &node)
            .await
            .with_context(|| format!("creating Node {name}"))?;
        let internal = machine.families.iter().map(|family| machine.address(*family));
        let addresses: Vec<Value> = internal
            .map(|address| json!({"type": "InternalIP", "address": address}))
            .chain([json!({"type": "Hostname", "address": name})])
            .collect();
        self.patch_status(name, &json!({"status": {"addresses": addresses}})).await?;
        self.set_ready(name, true).await
    }

    /// Says that a node's kubelet reports, or that it has been silent for too long.
    pub async fn set_ready(&self, name: &str, ready: bool) -> Result<()> {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let (status, reason) =
            if ready { ("True", "KubeletReady") } else { ("Unknown", "NodeStatusUnknown") };
        let condition = json!({
            "type": "Ready", "status": status, "reason": reason, "message": "set by the lab",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        self.patch_status(name, &json!({"status": {"conditions": [condition]}})).await?;
        // The API server taints every new Node, and the controller manager, which is not here,
        // every silent one.
        let taints = (!ready).then(|| taint("unreachable"));
        self.patch(name, &json!({"spec": {"taints": taints}})).await
    }

    /// Cordons a node, or lifts that.
    pub async fn set_cordoned(&self, name: &str, cordoned: bool) -> Result<()> {
        let taints = cordoned.then(|| taint("unschedulable"));
        self.patch(name, &json!({"spec": {"unschedulable": cordoned, "taints": taints}})).await
    }

    pub async fn delete(&self, name: &str) -> Result<()> {
        let deleted = self.0.delete(name, &DeleteParams::default()).await;
        deleted.with_context(|| format!("deleting Node {name}")).map(drop)
    }

    /// Changes a Node by a JSON merge patch.
    pub async fn patch(&self, name: &str, patch: &Value) -> Result<()> {
        let patched = self.0.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("changing Node {name}")).map(drop)
    }

    async fn patch_status(&self, name: &str, patch: &Value) -> Result<()> {
        let patched =
            self.0.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("changing the status of Node {name}")).map(drop)
    }
}

fn taint(what: &str) -> Value {
    json!([{"key": format!("node.kubernetes.io/{what}"), "effect": "NoSchedule"}])
}
