//! Writes what was decided.
use std::{collections::BTreeMap, sync::Arc};

use futures::StreamExt;
use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::{Api, ResourceExt, api::Patch};
use serde_json::{Value, json};

use super::{
    RouteReflectorReconciler,
    datastore::{self, Datastore, WantedPeer},
    plan::{self, Desired},
    steps::{Step, Why},
};
use crate::{
    api::{CLUSTER_ID_ANNOTATION, GROUP_LABEL, RouteReflectorSet, SLOT_LABEL},
    controller::{Error, Notice, merge_params},
};

/// How many nodes are patched at once where clients get their groups.
const CONCURRENCY: usize = 8;

impl From<datastore::Error> for Error {
    fn from(error: datastore::Error) -> Self {
        match error {
            datastore::Error::Kube { action, source } => Self::Kube { action, source },
            datastore::Error::Taken { .. } => Self::Conflict(error.to_string()),
            datastore::Error::Invalid(text) => Self::Invalid(text),
            other => Self::Pending(other.reason(), other.to_string()),
        }
    }
}

impl RouteReflectorReconciler {
    pub(super) async fn write(
        &self,
        set: &RouteReflectorSet,
        datastore: &Datastore,
        desired: Desired,
    ) -> Result<Vec<Notice>, Error> {
        let name = set.name_any();
        let mut memory = desired.memory.unwrap_or_default();
        if let Some(reports) = datastore.node_status() {
            let asked = !memory.asked.is_empty();
            if !desired.statuses.is_empty() && desired.statuses != memory.asked {
                let nodes: Vec<&str> = desired.statuses.iter().map(|node| &**node).collect();
                reports.start_reports(&nodes, &name).await?;
            } else if desired.statuses.is_empty() && asked {
                reports.stop_reports().await?;
            }
            memory.asked = desired.statuses;
        }
        let Some((step, label)) = desired.step else {
            self.memories.put(&name, memory);
            return Ok(vec![]);
        };
        // Before it is tried: a write that failed may have been carried out.
        memory.last_step = Some(plan::whole(Timestamp::now()));
        memory.statuses = super::gate::Measured::default();
        self.memories.put(&name, memory);
        let result = self.take(&name, datastore, &step, (&label.0, &label.1)).await;
        let word = if result.is_ok() { "done" } else { "failed" };
        self.memories.change(&name, |memory| {
            *memory.counters.steps.entry((step.word(), word)).or_default() += 1;
        });
        result.map(|()| told(&step))
    }

    /// Takes one step.
    async fn take(
        &self,
        set: &str,
        datastore: &Datastore,
        step: &Step,
        (key, value): (&str, &str),
    ) -> Result<(), Error> {
        match step {
            Step::LabelClients { nodes, .. } => self.label(nodes).await?,
            Step::WritePeer { peer, .. } => {
                let wanted = WantedPeer {
                    name: &peer.name,
                    node_selector: &peer.node_selector,
                    peer_selector: &peer.peer_selector,
                    set,
                };
                datastore.apply_peer(&wanted).await?;
            }
            Step::DeletePeer { name, version } => {
                datastore.delete_peer(name, version).await?;
            }
            Step::Mark { slots, .. } => {
                for slot in slots {
                    let there = self.nodes.speakers().into_iter();
                    let there = there.filter(|speaker| speaker.name == slot.node);
                    let labelled = there.flat_map(|s| s.labels.iter().cloned().collect::<Vec<_>>());
                    let kept = labelled.into_iter().find(|(k, _)| **k == *key);
                    let value = kept.map_or_else(|| value.to_owned(), |(_, v)| v.to_string());
                    let mut metadata = json!({
                        "labels": {key: value, SLOT_LABEL: slot.id.to_string(), GROUP_LABEL: Value::Null}
                    });
                    if in_kubernetes(datastore) {
                        // One write: a reflector that nobody looks for is cut off, and so is one that is
                        // looked for and reflects nothing.
                        metadata["annotations"] =
                            json!({CLUSTER_ID_ANNOTATION: slot.cluster_id.to_string()});
                    }
                    self.patch(&slot.node, &metadata).await?;
                    // Until it has its id it stays in the mesh, with some sessions more.
                    datastore.set_cluster_id(&slot.node, Some(slot.cluster_id)).await?;
                }
            }
            Step::Demote { nodes } => {
                for leaver in nodes {
                    datastore.set_cluster_id(&leaver.node, None).await?;
                    let group = leaver.group.as_deref();
                    let mut metadata = json!({"labels": {key: Value::Null, SLOT_LABEL: Value::Null, GROUP_LABEL: group}});
                    if in_kubernetes(datastore) {
                        metadata["annotations"] = json!({CLUSTER_ID_ANNOTATION: Value::Null});
                    }
                    self.patch(&leaver.node, &metadata).await?;
                }
            }
            Step::Mesh(on) => {
                datastore.set_mesh(*on).await?;
            }
        }
        Ok(())
    }

    async fn label(&self, nodes: &BTreeMap<Arc<str>, Option<Arc<str>>>) -> Result<(), Error> {
        let patches: Vec<_> = nodes
            .iter()
            .map(|(node, group)| {
                (Arc::clone(node), json!({"labels": {GROUP_LABEL: group.as_deref()}}))
            })
            .collect();
        let results = futures::stream::iter(patches)
            .map(|(node, metadata)| async move { self.patch(&node, &metadata).await });
        // Every node is tried, whatever became of the one before.
        let results: Vec<_> = results.buffer_unordered(CONCURRENCY).collect().await;
        results.into_iter().collect()
    }

    async fn patch(&self, node: &str, metadata: &Value) -> Result<(), Error> {
        let api = Api::<Node>::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match api.patch_metadata(node, &merge_params(), &patch).await {
            Ok(written) => {
                self.nodes.wrote(&written.metadata);
                Ok(())
            }
            // The node went away in the meantime, and what it carried with it.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(source) => Err(Error::Kube { action: "patch node", source }),
        }
    }
}

/// Whether cluster ids are annotations of Nodes.
fn in_kubernetes(datastore: &Datastore) -> bool {
    matches!(datastore, Datastore::Kubernetes(_))
}

/// What there is to tell of a step that was taken.
fn told(step: &Step) -> Vec<Notice> {
    let notice = |reason, note: String, node: Option<&Arc<str>>| Notice {
        warning: false,
        reason,
        note,
        node: node.map(ToString::to_string),
    };
    match step {
        Step::LabelClients { nodes, .. } => {
            vec![notice("ClientsLabelled", format!("{} nodes have their group", nodes.len()), None)]
        }
        Step::WritePeer { peer, .. } => {
            vec![notice("PeerWritten", format!("wrote BGPPeer {}", peer.name), None)]
        }
        Step::DeletePeer { name, .. } => {
            vec![notice("PeerDeleted", format!("deleted BGPPeer {name}"), None)]
        }
        Step::Mark { why, slots } => slots
            .iter()
            .map(|slot| {
                let (reason, verb) = match why {
                    Why::Adopt => ("Adopted", "has"),
                    Why::Promote => ("Promoted", "takes"),
                    Why::Renumber => ("Renumbered", "keeps"),
                };
                let note = format!(
                    "{} {verb} slot {} with cluster id {}",
                    slot.node, slot.id, slot.cluster_id
                );
                notice(reason, note, Some(&slot.node))
            })
            .collect(),
        Step::Demote { nodes } => nodes
            .iter()
            .map(|leaver| {
                let note = format!("{} reflects no more", leaver.node);
                notice("Demoted", note, Some(&leaver.node))
            })
            .collect(),
        Step::Mesh(on) => {
            let word = if *on { "on" } else { "off" };
            vec![notice("MeshSwitched", format!("the node-to-node mesh is {word}"), None)]
        }
    }
}
