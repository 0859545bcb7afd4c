//! HTTPS on every replica: admission requests of the API server, and whatever is merged beside them.
use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, HttpBody, to_bytes},
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use axum_server::{
    Handle, Server as HttpServer,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use hyper_util::rt::TokioTimer;
use tokio::{net::TcpListener, sync::Semaphore};

use super::{
    certificates::Certificates,
    review::{self, Injector, Outcome},
};
use crate::serving::{HEAD_LIMIT, connections::Limited, places::Places};

#[cfg(test)]
mod tests;

/// The largest body of an admission request. An object in etcd has at most 1.5 MiB, and JSON is
/// larger than what is stored; the API server sends one object of a creation.
const BODY_LIMIT: usize = 4 << 20;

/// How many KiB of bodies are in memory at a time: every pod of the cluster can reach this port. A
/// thousand reviews per second of the usual size are two at a time; the largest are four.
const BODIES_KIB: usize = 16 * 1024;

/// How long a body may take to arrive, waiting for its turn included. The API server gives up after
/// two seconds.
const BODY_DEADLINE: Duration = Duration::from_secs(3);

/// How long a TLS handshake may take: several round trips over a bad network, which is what this
/// product is for.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// How long a connection may wait for the head of its next request. Longer than the 90 s after which
/// Go's client, which the API server is, closes an idle connection itself: were we first, a request
/// that is just being sent would be lost.
const IDLE: Duration = Duration::from_secs(100);

/// How often an HTTP/2 connection is asked whether it is alive, and how long it may think: the API
/// server's may have vanished with its node.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// Connections at a time: 5,000 agents that all came here because the other replica restarts, half as
/// many of theirs that are not closed yet, and the API servers. A waiting agent takes 41 to 45 kB
/// (`prober_bench`): all of them fit in the memory limit of the Deployment.
const CONNECTIONS: usize = 7_500;

/// How long requests under way may take to end at shutdown: half of the pod's grace period, as
/// everywhere in this operator.
const DRAIN: Duration = Duration::from_secs(5);

/// The largest head of a request over HTTP/2, in bytes; over HTTP/1 it is [`HEAD_LIMIT`].
const HEADERS: u32 = 16 * 1024;

/// How much of a body an HTTP/2 connection may send ahead, in bytes: more than almost every Pod has.
const STREAM_WINDOW: u32 = 256 * 1024;

/// How often it is said that pods are admitted without agent: what keeps one from it keeps all of
/// them, and they are counted.
const SAID: Duration = Duration::from_secs(10);

/// Where requests are counted.
pub trait Observer: Send + Sync + 'static {
    /// A request was answered after this time.
    fn answered(&self, outcome: &Outcome, took: Duration);
}

/// The admission endpoint: `POST /mutate/{namespace}/{name}` of a `NetworkProber`. Merge other routers
/// into it to serve them beside.
pub fn router(injector: Arc<dyn Injector>, observer: Arc<dyn Observer>) -> Router {
    let bodies = Arc::new(Semaphore::new(BODIES_KIB));
    let state = Admission { injector, observer, bodies, said: Arc::default() };
    Router::new().route("/mutate/{namespace}/{name}", post(mutate)).with_state(state)
}

#[derive(Clone)]
struct Admission {
    injector: Arc<dyn Injector>,
    observer: Arc<dyn Observer>,
    bodies: Arc<Semaphore>,
    said: Arc<Mutex<Option<Instant>>>,
}

impl Admission {
    /// Counts an answer, and says in the log what went wrong.
    fn answered(&self, prober: (&str, &str), outcome: &Outcome, took: Duration) {
        self.observer.answered(outcome, took);
        let Outcome::Failed(why) = outcome else { return };
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|said| said.elapsed() >= SAID) {
            *said = Some(Instant::now());
            tracing::warn!(
                namespace = prober.0,
                name = prober.1,
                why,
                "pods admitted without agent"
            );
        }
    }
}

async fn mutate(
    State(admission): State<Admission>,
    Path((namespace, name)): Path<(String, String)>,
    body: Body,
) -> Response {
    let (start, prober) = (Instant::now(), (&*namespace, &*name));
    let refuse = |status: StatusCode, why: String| {
        let outcome = Outcome::Failed(why.clone());
        admission.answered(prober, &outcome, start.elapsed());
        (status, why).into_response()
    };
    let read = async {
        // What is not announced counts as the largest.
        let kib = body.size_hint().upper().map_or(BODY_LIMIT / 1024, |bytes| {
            usize::try_from(bytes / 1024 + 1).unwrap_or(usize::MAX)
        });
        let kib = u32::try_from(kib.min(BODY_LIMIT / 1024)).unwrap_or(u32::MAX);
        let place = admission.bodies.acquire_many(kib).await;
        to_bytes(body, BODY_LIMIT).await.map(|body| (body, place))
    };
    let (body, _place) = match tokio::time::timeout(BODY_DEADLINE, read).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => return refuse(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the body did not arrive".into()),
    };
    match review::answer(&body, prober, admission.injector.as_ref()) {
        Ok(answer) => {
            admission.answered(prober, &answer.outcome, start.elapsed());
            ([(header::CONTENT_TYPE, "application/json")], answer.body).into_response()
        }
        Err(error) => refuse(StatusCode::BAD_REQUEST, error.to_string()),
    }
}

/// A server that is bound, and serves when it is [run](Server::run).
pub struct Server {
    listener: TcpListener,
    config: RustlsConfig,
    connections: usize,
}

impl Server {
    /// Binds `address`. Handshakes are refused until the first certificate is installed.
    ///
    /// # Errors
    /// When the address cannot be bound, or TLS not be set up.
    pub async fn bind(address: SocketAddr, certificates: &Certificates) -> io::Result<Self> {
        let config = certificates.server_config().map_err(io::Error::other)?;
        let config = RustlsConfig::from_config(Arc::new(config));
        let listener = TcpListener::bind(address).await?;
        Ok(Self { listener, config, connections: CONNECTIONS })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`, and then lets what is under way end. Long requests should end by
    /// themselves when they hear of the shutdown.
    ///
    /// # Errors
    /// When connections cannot be accepted any more.
    pub async fn run(
        self,
        router: Router,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        let handle = Handle::new();
        let acceptor = RustlsAcceptor::new(self.config)
            .handshake_timeout(HANDSHAKE_DEADLINE)
            // Agents come from behind their node's address: one source may be a node with all its pods.
            .acceptor(Limited::new(Places::new(self.connections, self.connections)));
        let mut server = HttpServer::<SocketAddr>::from_listener(self.listener)
            .acceptor(acceptor)
            .handle(handle.clone());
        let http = server.http_builder();
        http.http1().timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(HEAD_LIMIT);
        http.http2()
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(STREAM_WINDOW)
            .max_header_list_size(HEADERS)
            .keep_alive_interval(PING.0)
            .keep_alive_timeout(PING.1);
        let serving = server.serve(router.into_make_service());
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            ended = &mut serving => return ended,
            () = shutdown => handle.graceful_shutdown(Some(DRAIN)),
        }
        serving.await
    }
}
