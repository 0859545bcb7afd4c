//! The objects of other owners, and the check that they stay unchanged.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::stage::{Stage, calicos};
use lab::checks::Check;
use lab::cluster::apply::apply;

/// A router outside, as many clusters have one: not one of the nodes.
const PEER: &str = r"
apiVersion: crd.projectcalico.org/v1
kind: BGPPeer
metadata: {name: a-top-of-rack, labels: {team: network}}
spec: {nodeSelector: has(rack), peerIP: 192.0.2.1, asNumber: 64999}
";
/// On each node.
const KEY: &str = "network.example.com/keep";
/// Label and annotation.
type Marks = (BTreeMap<String, String>, BTreeMap<String, String>);

/// The original state.
#[derive(Debug)]
pub(super) struct Foreign {
    peer: Value,
    nodes: BTreeMap<String, Marks>,
}

impl Foreign {
    /// Creates another owner's peer, marks each node, and remembers the state before the operator
    /// has seen it.
    pub async fn place(stage: &Stage<'_>) -> Result<Self> {
        apply(&stage.client, PEER).await?;
        for machine in stage.site.ground.machines() {
            mark(stage, &machine.name).await?;
        }
        Ok(Self { peer: peer(stage).await?, nodes: nodes(stage).await? })
    }

    /// Judges whether everything is as it was.
    pub async fn check(&self, stage: &Stage<'_>) -> Result<Check> {
        let changes = self.changes(stage).await?;
        let figure = changes.first().cloned().unwrap_or_else(|| {
            "a BGPPeer, and all labels and annotations of nodes: byte for byte as before".to_owned()
        });
        Ok(Check::new("what is not ours is as it was", changes.is_empty(), figure))
    }

    /// Returns the changed objects, without nodes that have come or gone.
    async fn changes(&self, stage: &Stage<'_>) -> Result<Vec<String>> {
        let mut changes = Vec::new();
        if peer(stage).await? != self.peer {
            changes.push("the BGPPeer is another one".to_owned());
        }
        let now = nodes(stage).await?;
        for (name, before) in &self.nodes {
            if let Some(after) = now.get(name).filter(|after| *after != before) {
                changes.push(format!("{name}: {before:?} is {after:?}"));
            }
        }
        Ok(changes)
    }
}

/// Gives a node another owner's label and annotation.
pub(super) async fn mark(stage: &Stage<'_>, node: &str) -> Result<()> {
    let marks = json!({KEY: format!("of {node}")});
    let label = json!({KEY: node});
    stage
        .site
        .nodes
        .patch(node, &json!({"metadata": {"labels": label, "annotations": marks}}))
        .await
}

/// All of it, with its version and who wrote what.
async fn peer(stage: &Stage<'_>) -> Result<Value> {
    let peers: Api<DynamicObject> = calicos(&stage.client, "BGPPeer", "bgppeers");
    Ok(serde_json::to_value(peers.get("a-top-of-rack").await?)?)
}

async fn nodes(stage: &Stage<'_>) -> Result<BTreeMap<String, Marks>> {
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let all = nodes.list(&ListParams::default()).await?;
    let marks = |node: &Node| (node.labels().clone(), node.annotations().clone());
    Ok(all.iter().map(|node| (node.name_any(), marks(node))).collect())
}
