//! What an agent answers: pings, echoes, and its metrics.
use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::metrics::Metrics;

pub mod echo;
pub(super) mod exposition;

/// How long the headers of a request may take, the wait for the next request among it: that of the
/// original's server.
const READ: Duration = Duration::from_secs(10);

/// How long a connection may last in all: whoever reads an answer a byte at a time is cut off.
const LIFETIME: Duration = Duration::from_mins(1);

/// Connections at a time on the ping port: three protocols of a hundred agents that probe at the
/// same moment, three times over. More wait in the kernel's backlog.
pub const PINGS: usize = 1024;

/// Connections at a time on the metrics port: a handful of replicas of Prometheus, and somebody who
/// looks.
pub const SCRAPES: usize = 16;

/// The headers of a request: those of a scrape by way of a mesh are some kilobytes.
const HEADERS: usize = 16 << 10;

/// How long to wait when no connection can be accepted (no file descriptor left).
const FULL: Duration = Duration::from_millis(100);

/// What answers on a port.
pub trait Site: Clone + Send + 'static {
    /// Somebody connected.
    fn heard(&self, _from: IpAddr) {}

    /// The answer to a request, whose body nobody reads.
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>>;
}

/// What the ping port of a prober serves: `/ping` and `/healthz`.
#[derive(Clone)]
pub struct Ping(pub Metrics);

/// What its metrics port serves: `/metrics` and `/healthz`.
#[derive(Clone)]
pub struct Scrape(pub Metrics);

/// Every address of this host: IPv6 and, through the same socket, IPv4; without IPv6, IPv4.
#[must_use]
pub fn wildcards(port: u16) -> [SocketAddr; 2] {
    [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()]
        .map(|ip| SocketAddr::new(ip, port))
}

/// Whether a failed bind says that this host has no IPv6 (then IPv4 alone is right), and not that the
/// port is taken.
#[must_use]
pub fn no_ipv6(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::AddrNotAvailable)
        || error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT)
}

/// Listens on every address.
///
/// # Errors
/// When the port is taken or may not be used.
pub async fn listen(port: u16) -> io::Result<TcpListener> {
    let [v6, v4] = wildcards(port);
    match TcpListener::bind(v6).await {
        Err(error) if no_ipv6(&error) => TcpListener::bind(v4).await,
        bound => bound,
    }
}

/// Serves until it is dropped.
///
/// # Errors
/// When the task of a connection died.
pub async fn serve<S: Site>(listener: TcpListener, site: S, most: usize) -> anyhow::Result<()> {
    let places = Arc::new(Semaphore::new(most));
    let mut connections = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await?;
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    site.heard(from.ip());
                    stream
                }
                // The connection was gone already, or nothing can be accepted now; neither ends us.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    tracing::debug!(%error, "accept");
                    sleep(FULL).await;
                    continue;
                }
            },
            Some(ended) = connections.join_next() => {
                ended?;
                continue;
            }
        };
        let site = site.clone();
        connections.spawn(async move {
            connection(stream, site).await;
            drop(place);
        });
    }
}

async fn connection<S: Site>(stream: TcpStream, site: S) {
    // The answer is one packet; waiting for more would be measured.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(move |request| {
        let answer = site.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(READ)
        .max_buf_size(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // What a client does to its own connection is its own affair.
    match timeout(LIFETIME, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "connection"),
        Err(_) => tracing::debug!("connection: too long"),
    }
}

impl Site for Ping {
    fn heard(&self, from: IpAddr) {
        self.0.heard(from);
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        match request.uri().path() {
            // Any method, as the original.
            "/ping" => text(StatusCode::OK, "pong\n"),
            path => other(path),
        }
    }
}

impl Site for Scrape {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        match request.uri().path() {
            "/metrics" => read_only(request, || {
                self.0.encode_with(|registry| exposition::page(registry, request.headers()))
            }),
            path => other(path),
        }
    }
}

/// What every port answers.
pub(super) fn other(path: &str) -> Response<Full<Bytes>> {
    match path {
        "/healthz" => text(StatusCode::OK, "ok\n"),
        _ => text(StatusCode::NOT_FOUND, "not found\n"),
    }
}

/// The page, to those who want to read it.
pub(super) fn read_only(
    request: &Request<Incoming>,
    page: impl FnOnce() -> Response<Full<Bytes>>,
) -> Response<Full<Bytes>> {
    match *request.method() {
        Method::GET | Method::HEAD => page(),
        _ => text(StatusCode::METHOD_NOT_ALLOWED, "GET only\n"),
    }
}

pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", text)
}

pub(super) fn response(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let value = header::HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}
