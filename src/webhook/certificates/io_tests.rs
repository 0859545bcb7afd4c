//! The keeper and the readers against an API server of one Secret.
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use k8s_openapi::{ByteString, api::core::v1::Secret, jiff::Timestamp};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::metrics::Metrics;

const NAMESPACE: &str = "traffic-operator-system";

/// The only object, and its number of writes.
#[derive(Clone)]
struct Server {
    object: watch::Sender<Option<Value>>,
    writes: Arc<Mutex<u32>>,
}

impl Server {
    fn new(object: Option<Value>) -> Self {
        Self { object: watch::Sender::new(object), writes: Arc::default() }
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = server.clone();
            async move { Ok::<_, std::convert::Infallible>(server.answer(request).await) }
        });
        Client::new(service, NAMESPACE)
    }

    fn secret(&self) -> Secret {
        serde_json::from_value(self.object.borrow().clone().unwrap()).unwrap()
    }

    fn state(&self) -> State {
        State::from_secret(&self.secret()).unwrap()
    }

    fn writes(&self) -> u32 {
        *self.writes.lock().unwrap()
    }

    fn put(&self, mut object: Value) -> Response<Body> {
        let mut writes = self.writes.lock().unwrap();
        *writes += 1;
        object["metadata"]["resourceVersion"] = json!(writes.to_string());
        self.object.send_replace(Some(object.clone()));
        answer(StatusCode::OK, &object)
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = to_bytes(Body::new(body), usize::MAX).await.unwrap();
        let current = self.object.borrow().clone();
        let query = parts.uri.query().unwrap_or_default();
        match (parts.method, current) {
            (Method::GET, _) if query.contains("watch=true") => {
                assert!(query.contains(NAME), "{query}");
                let changes = tokio_stream(self.object.subscribe());
                Response::new(Body::from_stream(changes))
            }
            (Method::GET, current) if parts.uri.path().ends_with("/secrets") => {
                let items: Vec<_> = current.into_iter().collect();
                answer(
                    StatusCode::OK,
                    &json!({"metadata": {"resourceVersion": "0"}, "items": items}),
                )
            }
            (Method::GET, None) => failure(StatusCode::NOT_FOUND, "NotFound"),
            (Method::GET, Some(object)) => answer(StatusCode::OK, &object),
            (Method::POST, Some(_)) => failure(StatusCode::CONFLICT, "AlreadyExists"),
            (Method::POST, None) => self.put(serde_json::from_slice(&body).unwrap()),
            (Method::PUT, current) => {
                let object: Value = serde_json::from_slice(&body).unwrap();
                let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
                if current.is_none_or(|current| version(&current) != version(&object)) {
                    return failure(StatusCode::CONFLICT, "Conflict");
                }
                self.put(object)
            }
            (method, _) => panic!("{method} {}", parts.uri),
        }
    }
}

/// Every change as an event, for ever.
fn tokio_stream(
    changes: watch::Receiver<Option<Value>>,
) -> impl futures::Stream<Item = Result<String, std::convert::Infallible>> {
    futures::stream::unfold(changes, |mut changes| async move {
        changes.changed().await.ok()?;
        let object = changes.borrow_and_update().clone();
        let event = object.map(|object| format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n"));
        Some((Ok(event.unwrap_or_default()), changes))
    })
    .boxed()
}

fn answer(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response
}

fn failure(status: StatusCode, reason: &str) -> Response<Body> {
    let code = status.as_u16();
    answer(
        status,
        &json!({"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code}),
    )
}

fn keeper(server: &Server, certificates: &Certificates) -> CertificateKeeper {
    let names = CertificateKeeper::service_names(NAMESPACE);
    CertificateKeeper::new(server.client(), NAMESPACE, Lifetimes::default(), names, certificates)
}

fn now() -> UnixSeconds {
    Timestamp::now().as_second()
}

#[tokio::test]
async fn the_leader_writes_what_is_due_and_else_nothing() {
    let server = Server::new(None);
    let keeper = keeper(&server, &Certificates::default());
    let now = now();
    let due = keeper.pass(now).await.unwrap();
    assert_eq!(server.secret().type_.as_deref(), Some("kubernetes.io/tls"));
    let labels = server.secret().metadata.labels.unwrap();
    assert_eq!(labels["app.kubernetes.io/managed-by"], "traffic-operator");
    let first = server.state();
    assert_eq!(keeper.pass(now + 60).await.unwrap(), due);
    assert_eq!((server.writes(), server.state()), (1, first.clone()));
    keeper.pass(due).await.unwrap();
    assert_eq!(server.writes(), 2);
    assert_eq!(server.state().authorities, first.authorities);
    assert_ne!(server.state().leaf, first.leaf);
}

#[tokio::test]
async fn a_foreign_secret_becomes_ours_and_keeps_its_type() {
    let foreign = json!({
        "metadata": {"name": NAME, "resourceVersion": "0", "labels": {"a": "b"}}, "type": "Opaque",
        "data": {"tls.crt": ByteString(b"x".to_vec()), "tls.key": null}
    });
    let server = Server::new(Some(foreign));
    keeper(&server, &Certificates::default()).pass(now()).await.unwrap();
    let secret = server.secret();
    assert_eq!(
        (secret.type_.as_deref(), secret.metadata.labels.unwrap().len()),
        (Some("Opaque"), 2)
    );
    assert_eq!(server.state().authorities.len(), 1);
}

#[tokio::test]
async fn who_writes_second_is_refused_and_reads_again() {
    let server = Server::new(None);
    let certificates = Certificates::default();
    let (one, two) = (keeper(&server, &certificates), keeper(&server, &certificates));
    let now = now();
    let results = tokio::join!(one.pass(now), two.pass(now));
    // Both may have read before one wrote; but there are never two states.
    assert_eq!(server.writes(), 1);
    assert!(results.0.is_ok() || results.1.is_ok());
    let due = one.pass(now).await.unwrap();
    assert_eq!((two.pass(now).await.unwrap(), server.writes()), (due, 1));
}

#[tokio::test]
async fn a_replica_serves_with_what_the_leader_wrote_and_survives_what_others_did() {
    let (server, certificates) = (Server::new(None), Certificates::default());
    let mut bundle = certificates.bundle();
    let reader = certificates.clone();
    let (client, leader) = (server.client(), keeper(&server, &certificates));
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { reader.follow(client, NAMESPACE, Metrics::new()).await });
    tasks.spawn(leader.keep());
    let changed = async |bundle: &mut watch::Receiver<Option<Bundle>>| {
        let deadline = Duration::from_mins(1);
        tokio::time::timeout(deadline, bundle.changed()).await.unwrap().unwrap();
        bundle.borrow_and_update().clone().unwrap()
    };
    let first = changed(&mut bundle).await;
    let state = server.state();
    assert_eq!(&*first.pem, state.bundle());
    assert_eq!(first.leaf_not_after, state.leaf.not_after);
    assert_eq!(first.authority_not_after, state.authorities[0].not_after);
    // A user breaks it; the leader creates another, and every replica learns of it.
    let mut broken = server.object.borrow().clone().unwrap();
    broken["data"]["tls.key"] = json!(ByteString(b"nonsense".to_vec()));
    server.put(broken);
    let second = changed(&mut bundle).await;
    assert_ne!(second.pem, first.pem);
    assert_eq!(&*second.pem, server.state().bundle());
}
