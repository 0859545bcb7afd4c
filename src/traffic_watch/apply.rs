//! Writes the plan: nodes, the Deployment, evictions. Decides nothing. `cleanup` takes away from nodes
//! what an object that is deleted has on them.
use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, EvictParams, Patch, PatchParams, Preconditions},
    core::PartialObjectMeta,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    LABEL_CONCURRENCY, Others, TrafficWatchReconciler,
    ceiling::Place,
    children::{self, Applied, Child, Outcome},
    conflict,
    deployments::DeploymentFacts,
    evictions::PodFacts,
    memory::Decided,
    plan::{Desired, Edit, NodeWrite},
    reservation::{self, OfferWrite},
};
use crate::{
    api::{TrafficWatch, traffic_watch::TaintEffect},
    clock,
    controller::{
        Error, FIELD_MANAGER, Key, Notice,
        contest::Rounds,
        disruptions::{EVICTION, holder},
        error::is_refusal,
        key, merge_params,
    },
    infra::Api,
    nodes::{Incarnation, NodeObject, NodeStore},
};

/// The time in which a pass begins to write to nodes, or `spec.interval` if that is longer. While
/// requests take seconds, thousands of them would take an hour: nothing would be judged meanwhile,
/// and verdicts written that are long over.
const WRITING: Duration = Duration::from_secs(10);

/// Writes the plan; a failed write does not keep the others from being made.
pub(super) async fn apply(
    reconciler: &TrafficWatchReconciler,
    watch: &TrafficWatch,
    desired: Desired,
) -> Result<Vec<Notice>, Error> {
    let key = key(watch);
    let (facts, transitions, evaluation) = (desired.facts, desired.transitions, desired.evaluation);
    // Of a judgment, not of a pass between two: those that are called must not call each other.
    let waiting = desired.memory.as_ref().is_some_and(|memory| memory.above_ceiling > 0);
    let waits = waiting && evaluation.is_some();
    reconciler.memories.change(&key, |entry| {
        entry.failed_offers = desired.failed_offers;
        match desired.memory {
            Some(memory) => entry.decided(Decided { memory, facts, transitions, evaluation }),
            None => entry.pause(facts),
        }
    });
    if waits {
        reconciler.ceiling.call();
    }
    let end = Instant::now() + Duration::from(watch.spec.interval).max(WRITING);
    // A failure does not prevent the other writes.
    let results = sorted(reconciler.write_nodes(&key.0, desired.nodes, Some(end)).await);
    let reported = reconciler.memories.change(&key, |entry| {
        entry.wrote(&results, clock::timestamp());
        entry.memory.failed.reported().map(|(node, _)| Arc::clone(node))
    });
    let mut errors: Vec<_> = failure(results, reported.as_deref()).into_iter().collect();
    let offered = sorted(reconciler.write_offers(desired.offers, Some(end)).await);
    let reported = reconciler.memories.change(&key, |entry| {
        entry.offered(&offered, clock::timestamp());
        entry.failed_offers.reported().map(|(node, _)| Arc::clone(node))
    });
    errors.extend(failure(offered, reported.as_deref()));
    if let Some(child) = desired.deployment
        && let Err(error) = reconciler.apply_child(watch, &key, child).await
    {
        errors.push(error);
    }
    let notices = reconciler.evict(&key, desired.evictions).await;
    Error::stages(notices, errors)
}

type Results = Vec<(Arc<str>, Result<(), Error>)>;

/// By the names of nodes, not in the order of the answers: the same failures have the same text.
fn sorted(mut results: Results) -> Results {
    results.sort_by(|(a, _), (b, _)| a.cmp(b));
    results
}

/// The error of the node that is reported already, else the first.
fn failure(results: Results, reported: Option<&str>) -> Option<Error> {
    let failures = results.into_iter().filter_map(|(node, result)| Some((node, result.err()?)));
    failures.min_by_key(|(node, _)| reported != Some(&**node)).map(|(_, error)| error)
}

/// Ends at that time, if there is one.
async fn reached(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

impl TrafficWatchReconciler {
    /// Writes to nodes, each tried even if the previous one failed. Marks come last: if a place
    /// that was to be free is not, the next plan sees it, and knows which node holds it. After
    /// `end` no write begins: those that are left are planned again, by a newer judgment.
    async fn write_nodes(
        &self,
        namespace: &str,
        writes: Vec<NodeWrite>,
        end: Option<Instant>,
    ) -> Vec<(Arc<str>, Result<(), Error>)> {
        let freed: Vec<_> = writes
            .iter()
            .filter(|w| w.frees)
            .map(|w| (Arc::clone(&w.node), Arc::clone(&w.key)))
            .collect();
        let (marks, others): (Vec<_>, Vec<_>) =
            writes.into_iter().partition(|write| write.label == Edit::Set(true));
        let mut results = self.write_all(namespace, others, end).await;
        // A write that succeeds may leave a node as it is, because it has changed meanwhile.
        if !freed.iter().any(|(node, key)| self.nodes.has(node, key, "true")) {
            results.extend(self.write_all(namespace, marks, end).await);
        }
        results
    }

    async fn write_all(
        &self,
        namespace: &str,
        writes: Vec<NodeWrite>,
        end: Option<Instant>,
    ) -> Vec<(Arc<str>, Result<(), Error>)> {
        let results =
            futures::stream::iter(writes).take_until(reached(end)).map(|write| async move {
                // Never closed, so there is always a permit to wait for.
                let _permit = self.label_writes.acquire().await;
                let paced = self.pace.write(namespace, self.nodes.len());
                // What is cleaned up counts, and waits for nothing.
                if let (Err(error), Some(_)) = (paced, end) {
                    return (write.node, Err(error));
                }
                let place = match write.label {
                    Edit::Set(true) => self.ceiling.admit(&write.node),
                    _ => None,
                };
                if write.label == Edit::Set(true) && place.is_none() {
                    // Another object took the last place since: the next plan sees it.
                    return (write.node, Ok(()));
                }
                let still = || place.as_ref().is_none_or(Place::is_free);
                let result = match write.taint {
                    Edit::Keep => self.write_label(&write, still).await,
                    _ => with_taint(&self.client, &self.nodes, &write, still).await,
                };
                let is_lost = |e: &kube::Error| !matches!(e, kube::Error::Api(s) if s.code < 500);
                if let Some(place) = &place
                    && result.as_ref().is_err_and(is_lost)
                {
                    place.lose();
                }
                drop(place);
                let result = match result {
                    // The node was deleted in the meantime, with everything on it; a successor is
                    // judged by itself.
                    Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
                    result => result.map_err(Error::kube("patch node")),
                };
                (write.node, result)
            });
        results.buffer_unordered(LABEL_CONCURRENCY).collect().await
    }

    async fn write_label(&self, write: &NodeWrite, still: impl Fn() -> bool) -> kube::Result<()> {
        let labels = json!({"labels": labels(write)});
        self.nodes.patch(&self.client, &write.node, Some(write.incarnation), &labels, still).await
    }

    /// Writes what nodes offer, each tried even if the previous one failed.
    async fn write_offers(
        &self,
        writes: Vec<OfferWrite>,
        end: Option<Instant>,
    ) -> Vec<(Arc<str>, Result<(), Error>)> {
        let results =
            futures::stream::iter(writes).take_until(reached(end)).map(|write| async move {
                // Never closed, so there is always a permit to wait for.
                let _permit = self.label_writes.acquire().await;
                let decided = write.incarnation;
                if decided.is_some_and(|decided| self.nodes.is_replaced(&write.node, decided)) {
                    // The next judgment is of its successor.
                    return (write.node, Ok(()));
                }
                let nodes = Api::<NodeObject>::all(self.client.clone());
                let patch = Patch::Merge(offer(&write));
                let result = match nodes.patch_status(&write.node, &merge_params(), &patch).await {
                    Ok(written) => {
                        self.nodes.wrote_node(&written);
                        Ok(())
                    }
                    // The node was deleted in the meantime, with everything on it.
                    Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
                    Err(error) => Err(Error::kube("patch node status")(error)),
                };
                (write.node, result)
            });
        results.buffer_unordered(LABEL_CONCURRENCY).collect().await
    }

    async fn apply_child(
        &self,
        watch: &TrafficWatch,
        key: &Key,
        child: Child,
    ) -> Result<(), Error> {
        let (namespace, name) = key;
        let api = Api::<PartialObjectMeta<Deployment>>::namespaced(self.client.clone(), namespace);
        let there = api.get_opt(name).await.map_err(Error::kube("get Deployment"))?;
        if let Some(there) = &there
            && !there.owner_references().iter().any(|o| Some(&o.uid) == watch.metadata.uid.as_ref())
        {
            let text = format!(
                "Deployment {namespace}/{name} exists and is not owned by this TrafficWatch; \
                 delete it or rename one of them"
            );
            let outcome = Outcome::Taken(text.clone());
            let applied = Applied { hash: child.hash, outcome };
            let news = self.memories.change(key, |entry| entry.applied(applied));
            // Reported once; the condition persists, and the nodes are still judged.
            return if news { Err(Error::Taken(text)) } else { Ok(()) };
        }
        if let Some(there) = &there {
            self.hand_over_replicas(&api, there, &child).await?;
        }
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let outcome = match api.patch(name, &params, &Patch::Apply(&child.object)).await {
            Ok(applied) => {
                self.deployments.wrote(&applied);
                let before = there.as_ref().map(|there| there.metadata.generation);
                Outcome::Accepted {
                    uid: applied.uid().unwrap_or_default(),
                    generation: applied.metadata.generation.unwrap_or_default(),
                    restored: before != Some(applied.metadata.generation),
                    at: clock::timestamp(),
                    rounds: Rounds::default(),
                    other: there.as_ref().and_then(children::last_writer),
                }
            }
            Err(kube::Error::Api(status)) if is_refusal(&status) => Outcome::Refused {
                text: status.message.clone(),
                at: clock::timestamp(),
                there: self.owned_deployment(watch).as_ref().map(DeploymentFacts::version),
            },
            Err(error) => return Err(Error::kube("apply Deployment")(error)),
        };
        let refused = match &outcome {
            Outcome::Refused { text, .. } => {
                Some(Error::Refused(format!("spec.deployment: {text}")))
            }
            Outcome::Accepted { .. } | Outcome::Taken(_) => None,
        };
        let mut applied = Applied { hash: child.hash, outcome };
        let restored = self.memories.change(key, |entry| {
            let last = entry.memory.applied.as_ref();
            let restored = last.is_some_and(|last| applied.follows(last));
            entry.applied(applied);
            restored
        });
        if restored {
            self.metrics.restored("Deployment");
        }
        refused.map_or(Ok(()), Err)
    }

    /// Keeps the number of replicas when the author no longer sets one (for an autoscaler):
    /// server-side apply would set a field without an owner to its default, one.
    async fn hand_over_replicas(
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
        // A field with two managers stays when one of them releases it. Not forced: a conflict
        // means that the number is known too late, and the next pass knows it.
        let params = PatchParams::apply(children::REPLICAS_MANAGER);
        let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
        applied.map(drop).map_err(Error::kube("apply replicas"))
    }

    /// Evicts pods; the result of each is counted and reported. That one could not be evicted is no
    /// reason to leave anything else undone.
    async fn evict(&self, key: &Key, pods: Vec<PodFacts>) -> Vec<Notice> {
        let api = Api::<Pod>::namespaced(self.client.clone(), &key.0);
        let holder = holder("TrafficWatch", key);
        let mut notices = Vec::new();
        for pod in pods {
            let attempt = self.disruptions.attempt(&holder, pod.node.as_deref(), EVICTION);
            // Another object disrupts this zone: the next judgment tries again.
            let Ok(attempt) = attempt else { continue };
            let preconditions =
                Preconditions { uid: Some(pod.uid.clone()), resource_version: None };
            let options =
                DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            let params = EvictParams { delete_options: Some(options), ..EvictParams::default() };
            let node = pod.node.as_deref().unwrap_or_default();
            let answer = api.evict(&pod.name, &params).await;
            attempt.answered(&answer);
            let (result, notice) = match answer {
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
            let refused = (result != "evicted").then(clock::timestamp);
            self.memories.change(key, |entry| entry.evicted(result, refused));
            notices.extend(notice.map(|(warning, reason, note)| Notice {
                warning,
                reason,
                note,
                node: pod.node.as_ref().map(ToString::to_string),
            }));
        }
        notices
    }
}

/// The patch of a node's status: one key of two maps. The kubelet computes what is allocatable from
/// the capacity, and would undo a change of the former alone.
fn offer(write: &OfferWrite) -> Value {
    // A quantity is a text.
    let amount = write.amount.map(|amount| amount.to_string());
    let resources = json!({&*write.resource: amount});
    json!({"status": {"capacity": resources, "allocatable": resources}})
}

/// Maximum number of attempts to write a taint while others write to the same node: taints are one
/// list, so each attempt depends on the last read.
const TRIES: usize = 5;

/// Writes label and taint in one request. The list of taints is replaced as a whole, so the write
/// is refused, and tried again, if any client changed the node since it was read, and if the
/// decision holds `still`.
async fn with_taint(
    client: &Client,
    store: &NodeStore,
    write: &NodeWrite,
    still: impl Fn() -> bool,
) -> kube::Result<()> {
    let nodes = Api::<NodeObject>::all(client.clone());
    let mut tries = 0;
    loop {
        let node = nodes.get(&write.node).await?;
        if Incarnation::of(&node.metadata) != write.incarnation {
            // It was replaced in the meantime: the next judgment is of its successor.
            return Ok(());
        }
        let patch = Patch::Merge(json!({
            "metadata": {
                "resourceVersion": node.metadata.resource_version, "labels": labels(write),
            },
            "spec": {"taints": taints(node.taints(), &write.key, write.taint)},
        }));
        tries += 1;
        match nodes.patch(&write.node, &merge_params(), &patch).await {
            Ok(written) => {
                store.wrote_node(&written);
                return Ok(());
            }
            Err(kube::Error::Api(s)) if s.is_conflict() && tries < TRIES => {
                if !still() {
                    return Ok(());
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns the part of a patch that is about the label.
fn labels(write: &NodeWrite) -> Value {
    match write.label {
        Edit::Keep => json!({}),
        Edit::Set(unfit) => json!({&*write.key: if unfit { "true" } else { "false" }}),
        Edit::Remove => json!({&*write.key: null}),
    }
}

/// Returns the taints of a node with ours in the desired state, and all others unchanged.
fn taints(there: &[Value], key: &str, edit: Edit<TaintEffect>) -> Vec<Value> {
    let mut taints: Vec<_> = there.iter().filter(|taint| taint["key"] != key).cloned().collect();
    if let Edit::Set(effect) = edit {
        taints.push(json!({"key": key, "value": "true", "effect": effect.as_str()}));
    }
    taints
}

/// Removes its marks from all nodes, except those whose key another object waits for, and then the
/// resource that it offers.
pub(super) async fn cleanup(
    reconciler: &TrafficWatchReconciler,
    watch: &TrafficWatch,
    others: &Others,
) -> Result<Vec<Notice>, Error> {
    let all = others.state();
    let all = || all.iter().filter_map(|other| other.0.as_ref().ok());
    // An object in Conflict never wrote; and no node is without a label while the key goes to one
    // that waits for it.
    let removals = [Some(watch.label_key()), conflict::former_key(watch).map(str::to_owned)]
        .into_iter()
        .flatten()
        .filter(|key| !conflict::is_claimed_by_other(watch, key, all()))
        .flat_map(|key| reconciler.nodes.carriers(&key))
        .map(NodeWrite::removal)
        .collect::<Vec<_>>();
    let count = removals.len();
    let results = reconciler.write_nodes(&key(watch).0, removals, None).await;
    results.into_iter().try_for_each(|(_, result)| result)?;
    let labels = (count > 0).then(|| Notice {
        warning: false,
        reason: "LabelsRemoved",
        note: format!("removed the label of {count} nodes"),
        node: None,
    });
    let leaving = reconciler.leaving(watch, None, &all().collect::<Vec<_>>());
    let (writes, resource) = reservation::removed(&leaving);
    let results = reconciler.write_offers(writes, None).await;
    results.into_iter().try_for_each(|(_, result)| result)?;
    Ok(labels.into_iter().chain(resource).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::body::Body;
    use http::{Method, Request, Response};

    use super::*;

    #[test]
    fn an_offer_is_one_key_of_capacity_and_allocatable() {
        let patch = |amount| {
            let (node, resource) = ("a".into(), "example.com/mbps".into());
            offer(&OfferWrite { node, incarnation: None, resource, amount })
        };
        let expected = |amount: Value| {
            let resources = json!({"example.com/mbps": amount});
            json!({"status": {"capacity": resources, "allocatable": resources}})
        };
        assert_eq!(patch(Some(700)), expected(json!("700")));
        assert_eq!(patch(None), expected(Value::Null));
    }

    /// A client of an API server with one node; the methods of its requests.
    fn server(uid: &'static str) -> (Client, Arc<Mutex<Vec<Method>>>) {
        let methods = Arc::new(Mutex::new(vec![]));
        let seen = Arc::clone(&methods);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            seen.lock().unwrap().push(request.method().clone());
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "spec": {"taints": []},
                "metadata": {"name": "a", "uid": uid, "resourceVersion": "7"},
            });
            let response = Response::new(Body::from(node.to_string()));
            std::future::ready(Ok::<_, std::convert::Infallible>(response))
        });
        (Client::new(service, "default"), methods)
    }

    /// Otherwise a new machine would get the taint of the one whose name it has.
    #[tokio::test]
    async fn a_taint_decided_about_a_node_is_not_written_to_one_that_has_replaced_it() {
        let metadata = |uid: &str| serde_json::from_value(json!({"uid": uid})).unwrap();
        let decided = NodeWrite {
            node: "a".into(),
            incarnation: Incarnation::of(&metadata("judged")),
            key: "k".into(),
            label: Edit::Set(true),
            taint: Edit::Set(TaintEffect::NoSchedule),
            frees: false,
        };
        for (uid, requests) in
            [("judged", vec![Method::GET, Method::PATCH]), ("successor", vec![Method::GET])]
        {
            let (client, methods) = server(uid);
            with_taint(&client, &NodeStore::default(), &decided, || true).await.unwrap();
            assert_eq!(*methods.lock().unwrap(), requests, "{uid}");
        }
    }

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
}
