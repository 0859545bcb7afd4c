//! HTTPS on every replica of the webhook: admission requests of the API server, and nothing else.
//!
//! Any pod may reach the port. A client that sends no admission request keeps a connection for only
//! seconds, and loses it to the next client; no client gets more than its share of the connections,
//! streams and memory.
use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Extension, Router,
    body::Body,
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
use prometheus_client::metrics::counter::Counter;
use tokio::net::TcpListener;

use super::{
    certificates::{Certificates, HTTP1, HTTP2},
    review::{self, Answer, Injector, Outcome, Unreadable},
};
use crate::serving::{Connection, HANDSHAKE, HEAD_LIMIT, Lifetime, Limited, Pace, places::Places};

mod body;
#[cfg(test)]
mod tests;

use body::{Bodies, Refused};

/// The deadlines within which a connection must be used. A request follows the handshake at once,
/// and its answer takes no longer than its body. The pause after it is longer than the 90 s after
/// which Go's client, which the API server uses, closes an idle connection itself: if we closed it
/// first, a request that is being sent would be lost.
const PACE: Pace = Pace {
    head: Duration::from_secs(8),
    answer: Duration::from_secs(5),
    idle: Duration::from_secs(100),
};

/// Time between two pings of an HTTP/2 connection, and the timeout of an answer: the API server may
/// have vanished with its node.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// Maximum number of connections. An API server keeps clients for at most 200 webhooks, and opens
/// another connection when the streams of one are used up: three API servers stay below this.
const CONNECTIONS: usize = 1024;

/// Maximum number of connections of one address: an API server with all of its clients.
const OF_ONE_SOURCE: usize = 256;

/// Maximum number of concurrent requests on one HTTP/2 connection; the API server opens another one
/// for more.
const STREAMS: u32 = 64;

/// Maximum number of recently reset streams of a connection: the API server resets one when it
/// abandons a request. A connection that resets more is closed.
const RESETS: usize = 16;

/// The time that running requests may take to end at shutdown: half of the pod's grace period, as
/// elsewhere in this operator.
const DRAIN: Duration = Duration::from_secs(5);

/// The largest head of a request over HTTP/2, in bytes; over HTTP/1 it is [`HEAD_LIMIT`].
const HEADERS: u32 = 16 * 1024;

/// Number of bytes of its bodies that an HTTP/2 connection may send ahead: no budget counts them
/// before they are read. This is the protocol's smallest window; all connections together have 64
/// MiB.
const WINDOW: u32 = 65_535;

/// The time for which a pod waits for the event of a namespace that is as new as itself: a watch
/// delivers it within some milliseconds, and a fifth of a second later it is known. The API server
/// waits for two seconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time between two log lines about pods admitted without an agent: the cause usually affects all
/// of them, and they are counted.
const SAID: Duration = Duration::from_secs(10);

/// Counts requests.
pub trait Observer: Send + Sync + 'static {
    /// A request was answered after this time.
    fn answered(&self, outcome: &Outcome, took: Duration);
}

/// The admission endpoint: `POST /mutate/{namespace}/{name}` of a `NetworkProber`.
pub fn router(injector: Arc<dyn Injector>, observer: Arc<dyn Observer>) -> Router {
    let state = Admission { injector, observer, bodies: Bodies::default(), said: Arc::default() };
    Router::new().route("/mutate/{namespace}/{name}", post(mutate)).with_state(state)
}

#[derive(Clone)]
struct Admission {
    injector: Arc<dyn Injector>,
    observer: Arc<dyn Observer>,
    bodies: Bodies,
    said: Arc<Mutex<Option<Instant>>>,
}

impl Admission {
    /// Returns the answer, as soon as all facts that it depends on are known, or [`PATIENCE`] is
    /// over.
    async fn settled(&self, body: &[u8], prober: (&str, &str)) -> Result<Answer, Unreadable> {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            // Registered before the decision, so that no change in between is missed.
            let changed = self.injector.changed();
            let answer = review::answer(body, prober, self.injector.as_ref())?;
            if !answer.not_yet || tokio::time::timeout_at(end, changed).await.is_err() {
                return Ok(answer);
            }
        }
    }

    /// Counts an answer, and logs its error if there is one.
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
    Extension(connection): Extension<Connection>,
    body: Body,
) -> Response {
    let (start, prober) = (Instant::now(), (&*namespace, &*name));
    let refuse = |status: StatusCode, why: String| {
        let outcome = Outcome::Failed(why.clone());
        admission.answered(prober, &outcome, start.elapsed());
        (status, why).into_response()
    };
    let body = match admission.bodies.read(body, connection.source()).await {
        Ok(body) => body,
        Err(refused) => {
            let status = match refused {
                Refused::TooMany => StatusCode::TOO_MANY_REQUESTS,
                Refused::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                Refused::TooSlow => StatusCode::REQUEST_TIMEOUT,
                Refused::Broken => StatusCode::BAD_REQUEST,
            };
            return refuse(status, refused.to_string());
        }
    };
    match admission.settled(&body.bytes, prober).await {
        Ok(answer) => {
            connection.good();
            admission.answered(prober, &answer.outcome, start.elapsed());
            ([(header::CONTENT_TYPE, "application/json")], answer.body).into_response()
        }
        Err(error) => refuse(StatusCode::BAD_REQUEST, error.to_string()),
    }
}

/// A server with a bound address, which serves when it is [run](Server::run).
pub struct Server {
    listener: TcpListener,
    config: RustlsConfig,
    places: Places,
    handshake: Duration,
    pace: Pace,
    refused: Counter,
}

impl Server {
    /// Binds `address`. Handshakes are refused until the first certificate is installed. `refused`
    /// counts connections that were closed because there were too many.
    ///
    /// # Errors
    /// When the address cannot be bound, or TLS cannot be set up.
    pub async fn bind(
        address: SocketAddr,
        certificates: &Certificates,
        refused: Counter,
    ) -> io::Result<Self> {
        let config = certificates.server_config(&[HTTP2, HTTP1]).map_err(io::Error::other)?;
        let config = RustlsConfig::from_config(Arc::new(config));
        let listener = TcpListener::bind(address).await?;
        let places = Places::newest_wins(CONNECTIONS, OF_ONE_SOURCE);
        Ok(Self { listener, config, places, handshake: HANDSHAKE, pace: PACE, refused })
    }

    /// Returns the address on which it listens.
    ///
    /// # Errors
    /// When the system does not report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`, and then finishes running requests. Long requests should end by
    /// themselves at the shutdown.
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
            .handshake_timeout(self.handshake)
            .acceptor(Limited::new(self.places, Lifetime::WhileUsed(self.pace), self.refused));
        let mut server = HttpServer::<SocketAddr>::from_listener(self.listener)
            .acceptor(acceptor)
            .handle(handle.clone());
        let http = server.http_builder();
        let idle = self.pace.idle;
        http.http1().timer(TokioTimer::new()).header_read_timeout(idle).max_buf_size(HEAD_LIMIT);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_pending_accept_reset_streams(RESETS)
            .max_local_error_reset_streams(RESETS)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
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
