//! The Kubernetes client: deadlines, the fence of the lease, and a count of requests.
use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use anyhow::Context as _;
use axum::body::{Bytes, HttpBody};
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use kube::client::{Body, ClientBuilder};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use super::lease::Fence;
use crate::metrics::Metrics;

mod call;
mod silence;
#[cfg(test)]
mod tests;

use call::Call;
use silence::UntilSilent;

/// The deadline of every call except watches; of a list, the longest time without progress.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// The deadline of one page of a list that makes progress. A page of 100 nodes of 16 kB needs half
/// of it at 50 kB/s; a longer one would let an answer that trickles hold up a watch for minutes.
const LIST_DEADLINE: Duration = Duration::from_mins(1);

/// The longest silence of a watch: an API server sends a bookmark every minute. A connection that died
/// silently is noticed by it.
const SILENCE: Duration = Duration::from_secs(75);

/// The event by which an API server says within a watch that its version is gone. The client
/// library begins with a list again on this one only, and not on the same code when it opens a
/// watch.
const GONE: &str = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"#,
    r#""status":"Failure","message":"the watch was refused: its version is gone","#,
    r#""reason":"Expired","code":410}}"#,
    "\n"
);

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
    // A silently dead connection must not stop a watch for good: by default, the library has no
    // read timeout, and 15 retries that take six minutes.
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(SILENCE + CALL_DEADLINE);
    config.reset_reader_on_write = true;
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, crate::USER_AGENT.parse()?));
    let layer = Guard { fence, metrics };
    Ok(ClientBuilder::try_from(config).context("kubernetes client")?.with_layer(&layer).build())
}

/// The client of a simulated API server.
#[cfg(test)]
pub(crate) fn simulated<S, B>(server: S, fence: Fence, metrics: Metrics) -> kube::Client
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Send + 'static,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes, Error = BoxError> + Send + 'static,
{
    kube::Client::new(Guard { fence, metrics }.layer(server), "default")
}

/// Refused because another process may lead: our lease is not valid now.
#[derive(Debug, thiserror::Error)]
#[error("not written: the lease is not held")]
pub struct NotLeading;

/// No answer arrived in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", .0.as_secs())]
pub struct DeadlineExceeded(Duration);

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
        let fenced = call.writes && !call.is_lease;
        if fenced && !self.guard.fence.is_open() {
            return Box::pin(async { Err(NotLeading.into()) });
        }
        let guard = Arc::clone(&self.guard);
        let response = self.inner.call(request);
        Box::pin(async move {
            let answer = answered(call.verb, response);
            // Until the bytes leave, and while they are on their way: a process that was stopped
            // for a minute, or had to connect first, must not write one of them.
            let result = if fenced {
                guard.fence.guard(answer).await.unwrap_or_else(|| Err(NotLeading.into()))
            } else {
                answer.await
            };
            let code = result.as_ref().map_or(0, |response| response.status().as_u16());
            guard.metrics.api_request(call.verb, &call.resource, code);
            if call.verb == "watch" { result.map(begin_again) } else { result }
        })
    }
}

/// Waits for an answer; except that of a watch, which ends when it is silent, for all of it.
async fn answered<B>(
    verb: &str,
    response: impl Future<Output = Result<Response<B>, BoxError>>,
) -> Result<Response<BoxBody>, BoxError>
where
    B: HttpBody<Data = Bytes, Error = BoxError> + Send + 'static,
{
    if verb == "watch" {
        let answer = tokio::time::timeout(CALL_DEADLINE, response).await;
        let answer = answer.unwrap_or_else(|_| Err(DeadlineExceeded(CALL_DEADLINE).into()))?;
        return Ok(answer.map(|body| UntilSilent::new(body, SILENCE).boxed_unsync()));
    }
    let began = Instant::now();
    let longest = if verb == "list" { LIST_DEADLINE } else { CALL_DEADLINE };
    let progress = Mutex::new(began);
    let mut answer = pin!(async {
        let (parts, body) = response.await?.into_parts();
        let body = body.map_frame(|frame| {
            *progress.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            frame
        });
        let bytes = body.collect().await?.to_bytes();
        Ok::<_, BoxError>(Response::from_parts(parts, whole(bytes)))
    });
    let end = began + longest;
    loop {
        let last = *progress.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = last + CALL_DEADLINE;
        if let Ok(answer) = tokio::time::timeout_at(idle.min(end), &mut answer).await {
            return answer;
        }
        // Headers and body: an answer that trickles in does not count, unless it is a list.
        if end <= idle {
            return Err(DeadlineExceeded(longest).into());
        }
        if *progress.lock().unwrap_or_else(PoisonError::into_inner) == last {
            return Err(DeadlineExceeded(CALL_DEADLINE).into());
        }
    }
}

/// Opens a watch with the event that its version is gone, if the API server refused it for that:
/// otherwise it would be retried with the same version.
fn begin_again(response: Response<BoxBody>) -> Response<BoxBody> {
    if response.status() != StatusCode::GONE {
        return response;
    }
    Response::new(whole(Bytes::from_static(GONE.as_bytes())))
}

fn whole(bytes: Bytes) -> BoxBody {
    Full::new(bytes).map_err(|never| -> BoxError { match never {} }).boxed_unsync()
}
