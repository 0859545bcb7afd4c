//! The parts of a patch of a node, and the write of its taint.
use kube::{Client, api::Patch};
use serde_json::{Value, json};

use super::plan::{Edit, NodeWrite};
use crate::{
    api::traffic_watch::TaintEffect,
    controller::merge_params,
    infra::Api,
    nodes::{Incarnation, NodeObject, NodeStore},
};

/// Maximum number of attempts to write a taint while others write to the same node: taints are one
/// list, so each attempt depends on the last read.
const TRIES: usize = 5;

/// Writes label and taint in one request. The list of taints is replaced as a whole, so the write
/// is refused, and tried again, if any client changed the node since it was read, and if the
/// decision holds `still`.
pub(super) async fn with_taint(
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
pub(super) fn labels(write: &NodeWrite) -> Value {
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::body::Body;
    use http::{Method, Request, Response};

    use super::*;

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
