//! A reconciler in front of an API server that a test describes.
use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Method, Request, Response};
use kube::Client;
use serde_json::{Value, json};

use super::{
    RouteReflectorReconciler,
    datastore::{Datastore, Kubernetes},
    memory::Memories,
    stores::Stores,
};
use crate::{
    controller::{disruptions::Disruptions, schedule::Schedule},
    infra::lease::Fence,
    metrics::Metrics,
    nodes::NodeStore,
    prometheus::{Endpoints, EndpointsConfig, Exporters, Shared},
};

/// The body with which the API server refuses a request.
pub fn refusal(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "metadata": {},
        "message": "no", "reason": reason, "code": code,
    });
    (code, status)
}

/// A reconciler without nodes. `answer` gets the method and the path of each request.
pub fn reconciler(
    answer: impl Fn(&Method, &str) -> (u16, Value) + Send + 'static,
) -> RouteReflectorReconciler {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (code, object) = answer(request.method(), request.uri().path());
        let body = kube::client::Body::from(object.to_string().into_bytes());
        let response = Response::builder().status(code).body(body).unwrap();
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let client = Client::new(service, "default");
    let nodes = NodeStore::default();
    // As `main` does; for later tests it is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = EndpointsConfig::load(None, None, Duration::from_secs(1)).unwrap();
    RouteReflectorReconciler {
        client: client.clone(),
        nodes: nodes.clone(),
        kubernetes: Datastore::Kubernetes(Arc::new(Kubernetes::new(client))),
        stores: Stores::default(),
        namespace: "default".into(),
        fence: Fence::default(),
        prometheus: Endpoints::new(&config, Metrics::new()).unwrap(),
        own_queries: true,
        exporters: Exporters::default(),
        memories: Memories::default(),
        schedule: Schedule::default(),
        metrics: Metrics::new(),
        disruptions: Disruptions::new(nodes),
        measurements: Shared::default(),
    }
}
