//! The Kubernetes client: deadlines, the fence of the lease, and a count of requests.
use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use anyhow::Context as _;
use axum::body::{Bytes, HttpBody};
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use kube::client::{Body, ClientBuilder};
use tower::{BoxError, Layer, Service};

use super::lease::Fence;
use crate::metrics::Metrics;

/// The deadline of every call that is no watch.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// The client for the cluster of the environment: `KUBECONFIG`, or the pod's service account.
///
/// # Errors
/// When there is no such configuration, or it cannot be used.
pub async fn connect(fence: Fence, metrics: Metrics) -> anyhow::Result<kube::Client> {
    let config =
        kube::Config::infer().await.context("no cluster: set KUBECONFIG or run in a pod")?;
    with_config(config, fence, metrics)
}

/// The client for one configuration.
///
/// # Errors
/// When the configuration cannot be used.
pub fn with_config(
    mut config: kube::Config,
    fence: Fence,
    metrics: Metrics,
) -> anyhow::Result<kube::Client> {
    // A silently dead connection must not stop a watch for good: the library's defaults are a
    // read timeout of none and 15 retries that take six minutes.
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(Duration::from_secs(30));
    config.reset_reader_on_write = true;
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, crate::USER_AGENT.parse()?));
    let layer = Guard { fence, metrics };
    Ok(ClientBuilder::try_from(config).context("kubernetes client")?.with_layer(&layer).build())
}

/// Refused because another process may lead: our lease is not valid now.
#[derive(Debug, thiserror::Error)]
#[error("not written: the lease is not held")]
pub struct NotLeading;

/// Nothing came back in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", CALL_DEADLINE.as_secs())]
pub struct DeadlineExceeded;

#[derive(Clone)]
struct Guard {
    fence: Fence,
    metrics: Metrics,
}

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, guard: Arc::new(self.clone()) }
    }
}

/// The middleware around every call to the API server.
pub struct Guarded<S> {
    inner: S,
    guard: Arc<Guard>,
}

type BoxBody = UnsyncBoxBody<Bytes, BoxError>;

impl<S, B> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes, Error = BoxError> + Send + 'static,
{
    type Response = Response<BoxBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = Call::of(request.method(), request.uri());
        // Immediately before the bytes leave: a process that was stopped for a minute must not
        // write one of them.
        if call.writes && !call.is_lease && !self.guard.fence.is_open() {
            return Box::pin(async { Err(NotLeading.into()) });
        }
        let guard = Arc::clone(&self.guard);
        let response = self.inner.call(request);
        Box::pin(async move {
            let result = if call.verb == "watch" {
                response.await.map(|response| response.map(BodyExt::boxed_unsync))
            } else {
                // Headers and body: an answer that trickles is no answer.
                tokio::time::timeout(CALL_DEADLINE, async {
                    let (parts, body) = response.await?.into_parts();
                    let bytes = body.collect().await?.to_bytes();
                    let body = Full::new(bytes).map_err(|never| match never {});
                    Ok(Response::from_parts(parts, body.boxed_unsync()))
                })
                .await
                .unwrap_or_else(|_| Err(DeadlineExceeded.into()))
            };
            let code = result.as_ref().map_or(0, |response| response.status().as_u16());
            guard.metrics.api_request(call.verb, &call.resource, code);
            result
        })
    }
}

/// A request in the terms of Kubernetes.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    verb: &'static str,
    /// Resource with sub-resource, e.g. `trafficwatches/status`; never an object's name.
    resource: String,
    writes: bool,
    is_lease: bool,
}

impl Call {
    fn of(method: &Method, uri: &http::Uri) -> Self {
        let mut path = uri.path().split('/').filter(|part| !part.is_empty());
        // /api/v1/… or /apis/group/version/…
        let skip = if path.next() == Some("api") { 1 } else { 2 };
        let mut parts: Vec<_> = path.skip(skip).collect();
        // A namespace is where the object is, unless it is the object.
        if parts.len() > 2 && parts[0] == "namespaces" {
            parts.drain(..2);
        }
        let resource = parts.first().copied().unwrap_or("version");
        let named = parts.len() > 1;
        let resource = match parts.get(2) {
            Some(sub) => format!("{resource}/{sub}"),
            None => resource.into(),
        };
        let watches = uri.query().is_some_and(|q| q.split('&').any(|p| p == "watch=true"));
        let (verb, writes) = match *method {
            Method::GET if watches => ("watch", false),
            Method::GET if named => ("get", false),
            Method::GET => ("list", false),
            // A review of an account or its rights, by a POST: nothing is stored, and every replica
            // may make one.
            Method::POST if resource == "tokenreviews" || resource == "subjectaccessreviews" => {
                ("create", false)
            }
            Method::POST => ("create", true),
            Method::PUT => ("update", true),
            Method::PATCH => ("patch", true),
            Method::DELETE => ("delete", true),
            _ => ("other", true),
        };
        Self { verb, is_lease: resource == "leases", resource, writes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_named_without_its_object() {
        for (method, path, verb, resource, writes) in [
            (Method::GET, "/api/v1/nodes?watch=true&timeoutSeconds=20", "watch", "nodes", false),
            (Method::GET, "/api/v1/nodes?limit=100", "list", "nodes", false),
            (Method::PATCH, "/api/v1/nodes/node-1?fieldManager=x", "patch", "nodes", true),
            (
                Method::PATCH,
                "/apis/traffic.example.com/v1alpha1/namespaces/ns/trafficwatches/a/status",
                "patch",
                "trafficwatches/status",
                true,
            ),
            (Method::GET, "/apis/apps/v1/namespaces/ns/deployments/a", "get", "deployments", false),
            (Method::GET, "/api/v1/namespaces/default", "get", "namespaces", false),
            (
                Method::PUT,
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
                "update",
                "leases",
                true,
            ),
            (Method::GET, "/version", "list", "version", false),
            (
                Method::POST,
                "/apis/authentication.k8s.io/v1/tokenreviews",
                "create",
                "tokenreviews",
                false,
            ),
            (
                Method::POST,
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                "create",
                "subjectaccessreviews",
                false,
            ),
        ] {
            let call = Call::of(&method, &path.parse().unwrap());
            assert_eq!(
                (call.verb, call.resource.as_str(), call.writes),
                (verb, resource, writes),
                "{path}"
            );
        }
    }
}
