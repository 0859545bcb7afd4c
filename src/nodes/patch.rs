//! Writes to the metadata of nodes, each over the state on which it was decided.
use std::time::Duration;

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Client, Resource,
    api::Patch,
    core::{Request, Status},
};
use serde_json::{Value, json};

use super::{Incarnation, NodeObject, NodeStore};
use crate::{
    controller::merge_params,
    infra::{
        Api,
        watch::{DeserializeGuard, Metadata, version},
    },
};

/// Maximum number of attempts while others write to the same node.
const TRIES: usize = 5;

/// The time between two looks for a newer state of a node.
const LOOK: Duration = Duration::from_millis(50);

/// The number of looks: a second in all. A watch is a fraction of that behind.
const LOOKS: usize = 20;

impl NodeStore {
    /// Patches labels and annotations of a node.
    ///
    /// The patch is over the last known version: one that is late, from a process that led before,
    /// is refused if the node has changed since. If a newer version does not arrive, because its
    /// event was lost, the node is read. The last attempt is over any version of the same node, so
    /// that others who write to it all the time cannot prevent ours: it is a new request, before
    /// which the lease is checked again.
    ///
    /// A node that was replaced since the write was decided is not patched. `decided` is the
    /// incarnation that the decision is about; without one, it is about the node of now. `still`
    /// reports, before another attempt, whether the decision holds: if not, nothing more is tried.
    ///
    /// # Errors
    /// The errors of the API server. A node that was replaced is not found.
    pub async fn patch(
        &self,
        client: &Client,
        name: &str,
        decided: Option<Incarnation>,
        metadata: &Value,
        still: impl Fn() -> bool,
    ) -> kube::Result<()> {
        let known = self.known(name);
        let mut version = known.map(|(_, version)| version);
        let before = known.map(|(incarnation, _)| incarnation);
        if decided.is_some() && before != decided {
            return Err(replaced(name));
        }
        for _ in 1..TRIES {
            match self.patch_over(client, name, metadata, &Over::version(version)).await {
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                result => return result,
            }
            let (incarnation, newer) = self.newer(client, name, version).await?;
            if incarnation != before {
                return Err(replaced(name));
            }
            if !still() {
                return Ok(());
            }
            version = newer;
        }
        let node = read(client, name).await?;
        if Some(Incarnation::of(&node)) != before {
            return Err(replaced(name));
        }
        self.patch_over(client, name, metadata, &Over::uid(&node)).await
    }

    /// Reports whether a node is gone, or another one has its name now.
    #[must_use]
    pub fn is_replaced(&self, name: &str, decided: Incarnation) -> bool {
        self.known(name).is_none_or(|(incarnation, _)| incarnation != decided)
    }

    async fn patch_over(
        &self,
        client: &Client,
        name: &str,
        metadata: &Value,
        over: &Over,
    ) -> kube::Result<()> {
        let mut metadata = metadata.clone();
        if let Some((field, value)) = over.0.clone() {
            metadata[field] = value.into();
        }
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let request = Request::new(Node::url_path(&(), None));
        let request = request.patch_metadata(name, &merge_params(), &patch);
        // Into the reduced type, which skips the managed fields.
        let written: DeserializeGuard<NodeObject> =
            client.request(request.map_err(kube::Error::BuildRequest)?).await?;
        self.wrote(written.meta());
        Ok(())
    }

    /// Waits for another version of a node, and reads the node if there is none for a while.
    async fn newer(
        &self,
        client: &Client,
        name: &str,
        known: Option<u64>,
    ) -> kube::Result<(Option<Incarnation>, Option<u64>)> {
        for _ in 0..LOOKS {
            tokio::time::sleep(LOOK).await;
            let now = self.known(name);
            if now.is_none_or(|(_, version)| Some(version) > known) {
                return Ok(now.unzip());
            }
        }
        let node = read(client, name).await?;
        Ok((Some(Incarnation::of(&node)), Some(version(&node))))
    }
}

/// The field that a node must have for a patch of it to be carried out, and its value.
struct Over(Option<(&'static str, String)>);

impl Over {
    /// Over one version of it.
    fn version(version: Option<u64>) -> Self {
        // A version that is not a number counts as zero, and cannot be named.
        let version = version.filter(|version| *version > 0);
        Self(version.map(|version| ("resourceVersion", version.to_string())))
    }

    /// Over any version of the same node: the API server refuses to change a UID.
    fn uid(node: &ObjectMeta) -> Self {
        Self(node.uid.clone().map(|uid| ("uid", uid)))
    }
}

async fn read(client: &Client, name: &str) -> kube::Result<ObjectMeta> {
    Ok(Api::<Metadata<Node>>::all(client.clone()).get(name).await?.metadata)
}

/// The error of a write that was decided about a node which another one has replaced.
fn replaced(name: &str) -> kube::Error {
    let text = format!("node {name} is another one than the decision is about");
    kube::Error::Api(Status::failure(&text, "NotFound").with_code(404).boxed())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::body::{Body, to_bytes};
    use http::{Request, Response, StatusCode};
    use kube::runtime::watcher::Event;

    use super::*;

    #[derive(Clone, Default)]
    struct Server(Arc<Mutex<State>>);

    #[derive(Default)]
    struct State {
        /// The version of the only node.
        version: u64,
        /// True if another client writes to it before each patch.
        busy: bool,
        /// The versions, or the UID, over which it was patched.
        overs: Vec<Option<String>>,
    }

    impl Server {
        fn client(&self) -> Client {
            let server = self.clone();
            let service = tower::service_fn(move |request: Request<kube::client::Body>| {
                let server = server.clone();
                async move { Ok::<_, std::convert::Infallible>(server.answer(request).await) }
            });
            Client::new(service, "default")
        }

        async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
            assert_eq!(request.uri().path(), "/api/v1/nodes/a");
            if request.method() == http::Method::GET {
                let mut there = node(self.0.lock().unwrap().version, &json!({}));
                there["kind"] = "PartialObjectMetadata".into();
                return Response::new(Body::from(there.to_string()));
            }
            let body = to_bytes(Body::new(request.into_body()), usize::MAX).await.unwrap();
            let patch: Value = serde_json::from_slice(&body).unwrap();
            let over = |field| patch["metadata"][field].as_str().map(str::to_owned);
            let (over, uid) = (over("resourceVersion"), over("uid"));
            let mut state = self.0.lock().unwrap();
            state.version += u64::from(state.busy);
            state.overs.push(over.clone().or(uid));
            let (code, object) = if over.is_none_or(|over| over == state.version.to_string()) {
                state.version += 1;
                (StatusCode::OK, node(state.version, &patch["metadata"]["labels"]))
            } else {
                let status = json!({
                    "kind": "Status", "status": "Failure", "message": "changed",
                    "reason": "Conflict", "code": 409,
                });
                (StatusCode::CONFLICT, status)
            };
            let mut response = Response::new(Body::from(object.to_string()));
            *response.status_mut() = code;
            response
        }

        fn overs(&self) -> Vec<Option<String>> {
            self.0.lock().unwrap().overs.clone()
        }
    }

    fn node(version: u64, labels: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "a", "uid": "one", "resourceVersion": version.to_string(),
                "labels": labels,
            },
        })
    }

    fn see(store: &NodeStore, version: u64) {
        let object = serde_json::from_value(node(version, &json!({}))).unwrap();
        store.apply(Event::Apply(object));
    }

    /// The server has one version of the node, and the store another one.
    fn world(there: u64, known: u64) -> (Server, NodeStore) {
        let (server, store) = (Server::default(), NodeStore::default());
        server.0.lock().unwrap().version = there;
        see(&store, known);
        (server, store)
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_patched_over_the_version_that_was_known_and_then_over_our_own() {
        let (server, store) = world(7, 7);
        let labels = json!({"labels": {"k": "true"}});
        for _ in 0..2 {
            store.patch(&server.client(), "a", None, &labels, || true).await.unwrap();
        }
        assert_eq!(server.overs(), [Some("7".into()), Some("8".into())]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_patch_that_another_write_preceded_waits_for_the_event() {
        let (server, store) = world(9, 7);
        let (client, labels) = (server.client(), json!({"labels": {"k": "true"}}));
        let event = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            see(&store, 9);
        };
        let (result, ()) = tokio::join!(store.patch(&client, "a", None, &labels, || true), event);
        result.unwrap();
        assert_eq!(server.overs(), [Some("7".into()), Some("9".into())]);
    }

    /// Otherwise a new machine would get the label of the one whose name it has.
    #[tokio::test(start_paused = true)]
    async fn a_patch_that_waits_is_not_made_to_the_successor_of_the_node() {
        let (server, store) = world(9, 7);
        let mut successor = node(9, &json!({}));
        successor["metadata"]["uid"] = "another".into();
        let (client, labels) = (server.client(), json!({"labels": {"k": "true"}}));
        let event = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            store.apply(Event::Apply(serde_json::from_value(successor).unwrap()));
        };
        let (result, ()) = tokio::join!(store.patch(&client, "a", None, &labels, || true), event);
        assert!(matches!(result, Err(kube::Error::Api(status)) if status.is_not_found()));
        assert_eq!(server.overs(), [Some("7".into())]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_patch_whose_decision_does_not_hold_any_more_is_not_tried_again() {
        let (server, store) = world(9, 7);
        let labels = json!({"labels": {"k": "true"}});
        store.patch(&server.client(), "a", None, &labels, || false).await.unwrap();
        assert_eq!(server.overs(), [Some("7".into())]);
    }

    /// Otherwise it would have the verdict about another machine until its first judgment.
    #[tokio::test(start_paused = true)]
    async fn a_write_decided_about_a_node_is_not_made_to_one_that_has_replaced_it_already() {
        let (server, store) = world(7, 7);
        let (decided, _) = store.known("a").unwrap();
        let (client, labels) = (server.client(), json!({"labels": {"k": "true"}}));
        let refused = async || {
            let result = store.patch(&client, "a", Some(decided), &labels, || true).await;
            matches!(result, Err(kube::Error::Api(status)) if status.is_not_found())
        };
        assert!(!refused().await && !store.is_replaced("a", decided));
        let mut successor = node(9, &json!({}));
        successor["metadata"]["uid"] = "another".into();
        let successor: NodeObject = serde_json::from_value(successor).unwrap();
        store.apply(Event::Apply(successor.clone()));
        assert!(refused().await && store.is_replaced("a", decided));
        // Its successor may be there although it is not known yet.
        store.apply(Event::Delete(successor));
        assert!(refused().await && store.is_replaced("a", decided));
        assert_eq!(server.overs(), [Some("7".into())]);
    }

    /// It gets nothing of its predecessor, whose deletion no event has shown: seed 5668.
    #[tokio::test(start_paused = true)]
    async fn a_successor_that_no_event_has_shown_is_not_patched() {
        let (server, store) = world(9, 7);
        let mut seen = node(7, &json!({}));
        seen["metadata"]["uid"] = "predecessor".into();
        store.apply(Event::Apply(serde_json::from_value(seen).unwrap()));
        let (decided, _) = store.known("a").unwrap();
        let labels = json!({"labels": {"k": "true"}});
        let result = store.patch(&server.client(), "a", Some(decided), &labels, || true).await;
        assert!(matches!(result, Err(kube::Error::Api(status)) if status.is_not_found()));
        assert_eq!(server.overs(), [Some("7".into())]);
    }

    /// Otherwise a node could not be written until its next heartbeat.
    #[tokio::test(start_paused = true)]
    async fn a_patch_whose_event_was_lost_is_made_after_a_second() {
        let (server, store) = world(9, 7);
        let began = tokio::time::Instant::now();
        let labels = json!({"labels": {"k": "true"}});
        store.patch(&server.client(), "a", None, &labels, || true).await.unwrap();
        assert_eq!(server.overs(), [Some("7".into()), Some("9".into())]);
        assert_eq!(began.elapsed().as_secs(), 1);
    }

    /// Otherwise a client that edits a node all the time would prevent each write of ours.
    #[tokio::test(start_paused = true)]
    async fn a_patch_that_others_precede_each_time_is_made_at_last_to_the_same_node_only() {
        let (server, store) = world(7, 7);
        server.0.lock().unwrap().busy = true;
        let labels = json!({"labels": {"k": "true"}});
        store.patch(&server.client(), "a", None, &labels, || true).await.unwrap();
        let overs = ["7", "8", "9", "10", "one"];
        assert_eq!(server.overs(), overs.map(|over| Some(over.into())));
    }
}
