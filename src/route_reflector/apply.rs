//! Writes the plan.
use std::sync::Arc;

use futures::StreamExt;
use serde_json::{Value, json};

use super::{
    KIND, RouteReflectorReconciler,
    datastore::{self, Datastore, IdChange, Session, WantedPeer, Written},
    memory::{Blocked, Memory, whole},
    plan::{Desired, Reports},
    steps::{NodeWrite, Step, Why, Write},
};
use crate::{
    api::{CLUSTER_ID_ANNOTATION, RouteReflectorSet},
    clock,
    controller::{
        Error, Key, Notice,
        disruptions::{self, REFLECTOR},
        error::is_refusal,
        key,
    },
};

/// The number of nodes that are patched at once, where clients get their groups.
const CONCURRENCY: usize = 8;

impl From<datastore::Error> for Error {
    fn from(error: datastore::Error) -> Self {
        match error {
            datastore::Error::Kube { action, source } => Self::Kube { action, source },
            datastore::Error::Taken { .. } | datastore::Error::MeshFields { .. } => {
                Self::Taken(error.to_string())
            }
            datastore::Error::Invalid(text) => Self::Invalid(text),
            other => Self::Pending(other.reason(), other.to_string()),
        }
    }
}

/// Carries out a plan.
pub(super) async fn apply(
    reconciler: &RouteReflectorReconciler,
    set: &RouteReflectorSet,
    desired: Desired,
) -> Result<Vec<Notice>, Error> {
    if desired.memory.is_none() {
        reconciler.memories.change(&key(set), |memory| memory.witnessed = None);
        return Ok(vec![]);
    }
    let datastore = reconciler.datastore(set)?;
    reconciler.write(set, &datastore, desired).await
}

impl RouteReflectorReconciler {
    pub(super) async fn write(
        &self,
        set: &RouteReflectorSet,
        datastore: &Datastore,
        desired: Desired,
    ) -> Result<Vec<Notice>, Error> {
        let key = key(set);
        let Desired { step, session, reports, memory } = desired;
        let memory = memory.unwrap_or_else(|| self.memories.get(&key));
        let taken = self.take_step(&key, datastore, step, memory, &session).await;
        // After the step: an object that cannot be deleted keeps no dead reflector in its slot.
        let reported = self.change_reports(&key, datastore, &reports).await;
        let notices = taken?;
        match reported {
            // The status reports the step that was taken.
            Err(error) if !notices.is_empty() => Error::stages(notices, vec![error]),
            reported => reported.map(|()| notices),
        }
    }

    /// Takes a step, if there is one and its zones are free.
    async fn take_step(
        &self,
        key: &Key,
        datastore: &Datastore,
        step: Option<(Step, Vec<Write>)>,
        mut memory: Memory,
        session: &Session,
    ) -> Result<Vec<Notice>, Error> {
        // If another object was faster since this was planned, the next plan sees it.
        let Some((step, writes)) = step.filter(|(step, _)| self.may_disrupt(key, step)) else {
            self.memories.put(key.clone(), memory);
            return Ok(vec![]);
        };
        // Before it is tried: a write that failed may have been carried out.
        let before = (memory.last_step, std::mem::take(&mut memory.statuses));
        let single = writes.len() == 1;
        memory.last_step = Some(whole(clock::timestamp()));
        self.memories.put(key.clone(), memory);
        let (_, name) = key;
        let result = self.write_all(name, datastore, writes, session).await;
        let word = if result.is_ok() { "done" } else { "failed" };
        let refused = result.as_ref().err().filter(|error| is_refused(error)).map(Error::verdict);
        let now = clock::timestamp();
        let again = self.memories.change(key, |memory| {
            let again = result.is_ok() && memory.takes(&step, now);
            *memory.counters.steps.entry((step.word(), word)).or_default() += 1;
            if refused.is_some() && single {
                // Nothing has changed, and what was verified still holds.
                (memory.last_step, memory.statuses) = before;
            }
            let at = Some(now);
            memory.blocked = refused.map(|verdict| Blocked { step: step.clone(), verdict, at });
            again
        });
        if again {
            self.metrics.restored(step.resource());
        }
        result.map(|()| notices(&step))
    }

    /// Changes the `CalicoNodeStatus` objects. The memory notes whether the next pass must try it
    /// again.
    async fn change_reports(
        &self,
        key: &Key,
        datastore: &Datastore,
        reports: &Reports,
    ) -> Result<(), Error> {
        let (_, name) = key;
        let changed = match (reports, datastore.node_status()) {
            (Reports::Keep, _) => return Ok(()),
            (_, None) => Ok(Written::Unchanged),
            (Reports::Start(nodes), Some(statuses)) => {
                let nodes: Vec<&str> = nodes.iter().map(|node| &**node).collect();
                statuses.start_reports(&nodes, name).await
            }
            (Reports::Stop, Some(statuses)) => statuses.stop_reports().await,
        };
        self.memories.change(key, |memory| memory.unsettled = changed.is_err());
        changed?;
        Ok(())
    }

    /// Takes the zones of the nodes that a step changes; returns false if the step must wait. A
    /// repair never waits.
    fn may_disrupt(&self, key: &Key, step: &Step) -> bool {
        let (holder, changed) = (disruptions::holder(KIND, key), step.changed());
        let nodes = changed.iter().map(|node| &**node);
        if step.needs_gate() {
            return self.disruptions.claim(&holder, nodes, REFLECTOR).is_ok();
        }
        self.disruptions.take(&holder, nodes, REFLECTOR);
        true
    }

    /// Writes to nodes at once where there are many, everything else in its order.
    async fn write_all(
        &self,
        set: &str,
        datastore: &Datastore,
        writes: Vec<Write>,
        session: &Session,
    ) -> Result<(), Error> {
        let (nodes, others): (Vec<_>, Vec<_>) =
            writes.into_iter().partition(|write| matches!(write, Write::Node(_)));
        let results = futures::stream::iter(nodes)
            .map(|write| async move { self.write_one(set, datastore, write, session).await });
        // Every node is tried, even if the previous one failed.
        let results: Vec<_> = results.buffer_unordered(CONCURRENCY).collect().await;
        results.into_iter().collect::<Result<(), Error>>()?;
        for write in others {
            self.write_one(set, datastore, write, session).await?;
        }
        Ok(())
    }

    async fn write_one(
        &self,
        set: &str,
        datastore: &Datastore,
        write: Write,
        session: &Session,
    ) -> Result<(), Error> {
        match write {
            Write::Node(write) => self.write_node(datastore, &write).await?,
            Write::Peer(peer) => {
                let wanted = WantedPeer {
                    name: &peer.name,
                    node_selector: &peer.node_selector,
                    peer_selector: &peer.peer_selector,
                    set,
                    session: Some(session),
                };
                datastore.apply_peer(&wanted).await?;
            }
            Write::DeletePeer { name, version } => {
                datastore.delete_peer(&name, &version).await?;
            }
            Write::Mesh(on) => {
                datastore.set_mesh(on).await?;
            }
        }
        Ok(())
    }

    /// Labels and cluster id. First the object that Calico uses: an etcd that does not answer
    /// leaves nothing half done.
    async fn write_node(&self, datastore: &Datastore, write: &NodeWrite) -> Result<(), Error> {
        let is_replaced = |decided| self.nodes.is_replaced(&write.node, decided);
        if write.decided.is_some_and(is_replaced) {
            return Ok(());
        }
        let labels: serde_json::Map<String, Value> = write
            .labels
            .iter()
            .map(|(key, value)| (key.to_string(), json!(value.as_deref())))
            .collect();
        let mut metadata = json!({"labels": labels});
        let id = match write.cluster_id {
            None => IdChange::Keep,
            Some(None) => IdChange::Remove,
            Some(Some(id)) => IdChange::Set(id),
        };
        datastore.mark(&write.node, &metadata["labels"], id).await?;
        if let (Some(id), true) = (write.cluster_id, in_kubernetes(datastore)) {
            // One write: a reflector that no peer selects is cut off, and so is a selected node
            // that does not reflect.
            metadata["annotations"] = json!({CLUSTER_ID_ANNOTATION: id.map(|id| id.to_string())});
        }
        let NodeWrite { node, decided, .. } = write;
        match self.nodes.patch(&self.client, node, *decided, &metadata, || true).await {
            // The node was deleted in the meantime, with everything on it. If another one has its
            // name, the next pass plans what that one gets.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            result => result.map_err(Error::kube("patch node")),
        }
    }
}

/// Reports whether the API server refused a write, and would refuse it again.
fn is_refused(error: &Error) -> bool {
    match error {
        Error::Kube { source: kube::Error::Api(status), .. } => {
            status.is_forbidden() || is_refusal(status)
        }
        Error::Taken(_) | Error::Refused(_) => true,
        _ => false,
    }
}

/// Reports whether cluster ids are annotations of Nodes.
fn in_kubernetes(datastore: &Datastore) -> bool {
    matches!(datastore, Datastore::Kubernetes(_))
}

/// The events of a step that was taken.
fn notices(step: &Step) -> Vec<Notice> {
    let notice = |reason, note: String, node: Option<&Arc<str>>| Notice {
        warning: false,
        reason,
        note,
        node: node.map(ToString::to_string),
    };
    match step {
        Step::LabelClients { nodes, .. } => {
            vec![notice("ClientsLabeled", format!("{} nodes have their group", nodes.len()), None)]
        }
        Step::Peers { write, delete, .. } => {
            let written = names(write.iter().map(|peer| &*peer.name));
            let written =
                written.map(|names| notice("PeerWritten", format!("wrote {names}"), None));
            let gone = names(delete.iter().map(|(name, _)| &**name));
            let gone = gone.map(|names| notice("PeerDeleted", format!("deleted {names}"), None));
            written.into_iter().chain(gone).collect()
        }
        Step::Promote { why, slots } => slots
            .iter()
            .map(|slot| {
                let (reason, verb) = match why {
                    Why::Adopt => ("Adopted", "has"),
                    Why::Repair | Why::Promote => ("Promoted", "takes"),
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

/// BGPPeers in one line; none of nothing.
fn names<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<_> = names.collect();
    match &*names {
        [] => None,
        [one] => Some(format!("BGPPeer {one}")),
        [first, .., last] => Some(format!("{} BGPPeers, {first} to {last}", names.len())),
    }
}

#[cfg(test)]
mod tests;
