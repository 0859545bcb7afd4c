//! Writes to nodes and pods.
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::{Node, Pod},
    },
    jiff::Timestamp,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, Preconditions},
    core::PartialObjectMeta,
};
use serde_json::{Value, json};

use super::{
    LABEL_CONCURRENCY, TrafficWatchReconciler,
    children::{self, Child},
    deployments::DeploymentFacts,
    evictions::PodFacts,
    plan::{Edit, NodeWrite},
};
use crate::{
    api::{TrafficWatch, traffic_watch::TaintEffect},
    controller::{Error, Notice, merge_params},
    nodes::NodeObject,
};

/// How often a taint is tried while others write to the same node: taints are one list, so each try
/// stands on what was read before it.
const TAINT_TRIES: usize = 5;

impl TrafficWatchReconciler {
    /// Writes to nodes, each tried whatever became of the one before.
    pub(super) async fn write_nodes(
        &self,
        writes: Vec<NodeWrite>,
    ) -> Vec<(Arc<str>, Result<(), Error>)> {
        let results = futures::stream::iter(writes).map(|write| async move {
            // Never closed, so there is always a permit to wait for.
            let _permit = self.label_writes.acquire().await;
            let place = match write.label {
                Edit::Set(true) => self.ceiling.admit(&write.node),
                _ => None,
            };
            if write.label == Edit::Set(true) && place.is_none() {
                // Another object took the last place since this was planned: the next plan sees it.
                return (write.node, Ok(()));
            }
            let result = match write.taint {
                Edit::Keep => self.write_label(&write).await,
                _ => self.write_taint(&write).await,
            };
            drop(place);
            let result = match result {
                // The node went away in the meantime, and what it carried with it.
                Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
                result => result.map_err(Error::kube("patch node")),
            };
            (write.node, result)
        });
        results.buffer_unordered(LABEL_CONCURRENCY).collect().await
    }

    async fn write_label(&self, write: &NodeWrite) -> kube::Result<()> {
        let nodes = Api::<Node>::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": labels(write)}}));
        let written = nodes.patch_metadata(&write.node, &merge_params(), &patch).await?;
        self.nodes.wrote(&written.metadata);
        Ok(())
    }

    /// Label and taint in one write. The list of taints is replaced as a whole, so the write is
    /// refused if anybody changed the node since it was read, and tried again.
    async fn write_taint(&self, write: &NodeWrite) -> kube::Result<()> {
        let nodes = Api::<NodeObject>::all(self.client.clone());
        let mut tries = 0;
        loop {
            let node = nodes.get(&write.node).await?;
            let patch = Patch::Merge(json!({
                "metadata": {
                    "resourceVersion": node.metadata.resource_version, "labels": labels(write),
                },
                "spec": {"taints": taints(node.taints(), &write.key, write.taint)},
            }));
            tries += 1;
            match nodes.patch(&write.node, &merge_params(), &patch).await {
                Ok(written) => {
                    self.nodes.wrote_node(&written);
                    return Ok(());
                }
                Err(kube::Error::Api(s)) if s.is_conflict() && tries < TAINT_TRIES => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Keeps the number of replicas when the author no longer sets one (an autoscaler is to): server-side
    /// apply would set a field that nobody owns any more to its default, one.
    pub(super) async fn hand_over_replicas(
        &self,
        api: &Api<PartialObjectMeta<Deployment>>,
        there: &PartialObjectMeta<Deployment>,
        child: &Child,
    ) -> Result<(), Error> {
        if child.object.pointer("/spec/replicas").is_some() || !children::owns_replicas(there) {
            return Ok(());
        }
        let (namespace, name) = (there.namespace().unwrap_or_default(), there.name_any());
        let Some(facts) = self.deployments.get(&namespace, &name) else { return Ok(()) };
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"replicas": facts.wanted},
        });
        // A field that two managers own stays when one of them lets go of it. Not forced: a conflict
        // means that the number is known too late, and the next pass knows it.
        let params = PatchParams::apply(children::REPLICAS_MANAGER);
        let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
        applied.map(drop).map_err(Error::kube("apply replicas"))
    }

    /// The pods that belong to the Deployment: through a `ReplicaSet` that it owns, not by labels
    /// alone, which any other pod may carry.
    pub(super) async fn pods(
        &self,
        watch: &TrafficWatch,
        deployment: &DeploymentFacts,
    ) -> Result<Vec<PodFacts>, Error> {
        let namespace = watch.namespace().unwrap_or_default();
        let Some(selector) = children::selector(watch) else { return Ok(vec![]) };
        let params = ListParams::default().labels(&selector.to_string()).limit(PAGE_SIZE);
        let sets =
            Api::<PartialObjectMeta<ReplicaSet>>::namespaced(self.client.clone(), &namespace);
        let sets = pages(&sets, params.clone(), "list ReplicaSets").await?;
        let ours: Vec<String> = sets
            .iter()
            .filter(|set| controllers(*set).contains(&deployment.uid))
            .filter_map(ResourceExt::uid)
            .collect();
        let pods = Api::<Pod>::namespaced(self.client.clone(), &namespace);
        let pods = pages(&pods, params, "list Pods").await?;
        let ours = pods
            .iter()
            .filter(|pod| controllers(*pod).iter().any(|uid| ours.contains(uid)))
            // What has ended stays listed; it is neither to be moved nor to be waited for.
            .filter(|pod| !has_ended(pod));
        Ok(ours.map(pod_facts).collect())
    }

    /// Evicts pods; what became of each is counted and told. That one could not be evicted is no
    /// reason to leave anything else undone.
    pub(super) async fn evict(
        &self,
        namespace: &str,
        name: &str,
        pods: Vec<PodFacts>,
    ) -> Vec<Notice> {
        let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let mut notices = Vec::new();
        for pod in pods {
            let preconditions =
                Preconditions { uid: Some(pod.uid.clone()), resource_version: None };
            let options =
                DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            let params = EvictParams { delete_options: Some(options), ..EvictParams::default() };
            let node = pod.node.as_deref().unwrap_or_default();
            let (result, told) = match api.evict(&pod.name, &params).await {
                Ok(_) => {
                    let note =
                        format!("evicted pod {} from node {node}, which stays unfit", pod.name);
                    ("evicted", Some((false, "PodEvicted", note)))
                }
                // Another pod of that name, or none: this one is gone already.
                Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => continue,
                Err(kube::Error::Api(s)) if s.code == 429 => {
                    let note = format!("pod {} on node {node} stays: {}", pod.name, s.message);
                    ("refused", Some((true, "EvictionRefused", note)))
                }
                Err(error) => {
                    let error = Error::kube("evict Pod")(error);
                    let note =
                        format!("pod {} on node {node} stays: {}", pod.name, error.to_text());
                    ("failed", Some((true, "EvictionFailed", note)))
                }
            };
            let refused = (result != "evicted").then(Timestamp::now);
            self.decisions.evicted(namespace, name, result, refused);
            notices.extend(told.map(|(warning, reason, note)| Notice {
                warning,
                reason,
                note,
                node: pod.node.as_ref().map(ToString::to_string),
            }));
        }
        notices
    }
}

/// Objects per page: a Pod is some 8 kB.
const PAGE_SIZE: u32 = 100;

async fn pages<K>(
    api: &Api<K>,
    mut params: ListParams,
    action: &'static str,
) -> Result<Vec<K>, Error>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await.map_err(Error::kube(action))?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}

/// The UIDs of an object's controllers; there is one at most.
fn controllers<K: Resource>(object: &K) -> Vec<String> {
    let owners = object.owner_references().iter();
    owners.filter(|o| o.controller == Some(true)).map(|o| o.uid.clone()).collect()
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

fn pod_facts(pod: &Pod) -> PodFacts {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    PodFacts {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        created: pod.creation_timestamp().map_or(0, |time| time.0.as_second()),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).map(Into::into),
        ready: conditions.filter(|c| c.type_ == "Ready").any(|c| c.status == "True"),
        terminating: pod.metadata.deletion_timestamp.is_some(),
    }
}

/// The part of a patch that is about the label.
fn labels(write: &NodeWrite) -> Value {
    match write.label {
        Edit::Keep => json!({}),
        Edit::Set(unfit) => json!({&write.key: if unfit { "true" } else { "false" }}),
        Edit::Remove => json!({&write.key: null}),
    }
}

/// The taints of a node with ours as it is to be, and all others as they are.
fn taints(there: &[Value], key: &str, edit: Edit<TaintEffect>) -> Vec<Value> {
    let mut taints: Vec<_> = there.iter().filter(|taint| taint["key"] != key).cloned().collect();
    if let Edit::Set(effect) = edit {
        taints.push(json!({"key": key, "value": "true", "effect": effect.as_str()}));
    }
    taints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_of_others_are_written_back_with_every_field() {
        let foreign =
            json!({"key": "node.kubernetes.io/x", "effect": "NoExecute", "timeAdded": "t"});
        let ours = |effect: &str| json!({"key": "k", "value": "true", "effect": effect});
        let set = Edit::Set(TaintEffect::NoSchedule);
        assert_eq!(taints(&[], "k", set), [ours("NoSchedule")]);
        let there = [ours("PreferNoSchedule"), foreign.clone()];
        assert_eq!(taints(&there, "k", set), [foreign.clone(), ours("NoSchedule")]);
        assert_eq!(taints(&there, "k", Edit::Remove), [foreign]);
    }

    #[test]
    fn a_pod_that_has_ended_is_none() {
        for (phase, ended) in
            [("Failed", true), ("Succeeded", true), ("Running", false), ("Pending", false)]
        {
            let pod = json!({"metadata": {"name": "a"}, "status": {"phase": phase}});
            assert_eq!(has_ended(&serde_json::from_value(pod).expect("pod")), ended, "{phase}");
        }
    }

    #[test]
    fn a_pod_that_is_not_known_to_be_ready_is_not() {
        let pod = |value: Value| pod_facts(&serde_json::from_value(value).expect("pod"));
        let bare = pod(json!({"metadata": {"name": "a", "uid": "u"}}));
        assert_eq!((bare.ready, bare.node.as_deref(), bare.terminating), (false, None, false));
        let ready = pod(json!({
            "metadata": {"name": "a"}, "spec": {"nodeName": "n", "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}
        }));
        assert_eq!((ready.ready, ready.node.as_deref()), (true, Some("n")));
    }
}
