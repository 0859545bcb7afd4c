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
mod exposition;

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

/// What a port serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// `/ping` and `/healthz`.
    Ping,
    /// `/metrics` and `/healthz`.
    Metrics,
}

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
pub async fn serve(
    listener: TcpListener,
    page: Page,
    most: usize,
    metrics: Metrics,
) -> anyhow::Result<()> {
    let places = Arc::new(Semaphore::new(most));
    let mut connections = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await?;
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    if page == Page::Ping {
                        metrics.heard(from.ip());
                    }
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
        let metrics = metrics.clone();
        connections.spawn(async move {
            connection(stream, page, metrics).await;
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, page: Page, metrics: Metrics) {
    // The answer is one packet; waiting for more would be measured.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(move |request| {
        let answer = answer(page, &request, &metrics);
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

fn answer(page: Page, request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    match (page, request.uri().path()) {
        // Any method, as the original.
        (Page::Ping, "/ping") => text(StatusCode::OK, "pong\n"),
        (_, "/healthz") => text(StatusCode::OK, "ok\n"),
        (Page::Metrics, "/metrics") => match *request.method() {
            Method::GET | Method::HEAD => exposition::page(metrics, request.headers()),
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "GET only\n"),
        },
        _ => text(StatusCode::NOT_FOUND, "not found\n"),
    }
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", text)
}

fn response(
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
