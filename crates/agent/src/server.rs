//! The servers of an agent: pings, echoes and metrics.
use std::{
    collections::HashMap,
    convert::Infallible,
    future::poll_fn,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    task::Poll,
    time::{Duration, Instant},
};

use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::{encoding, registry::Registry};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use traffic_operator_core::{
    exposition::{Format, Rewriter},
    places::{Place, Places},
};

use crate::metrics::Metrics;

pub mod echo;

/// The resources that clients of a port may use. Above that, the newest connection wins: it
/// replaces the oldest of its own source, or else the oldest of all. Requests here are short, so
/// the oldest connection is idle, and a client that holds connections blocks no other client, not
/// even itself.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Those of one address.
    pub of_one_source: usize,
    /// The time that the headers of a request may take, including the wait for the next request.
    pub headers: Duration,
}

/// The ping port. Two protocols of 250 agents at the same moment: far more than probe one pod,
/// because their phases are spread over the period. An idle connection costs some 10 kB.
///
/// Behind NAT, all agents of a node may share one address: 110 pods, the default maximum of a
/// kubelet, with one HTTP and one TCP probe each make 220 connections, all at the same moment.
///
/// A packet that is lost three times in a row arrives after 1.4 s; a prober that takes longer has
/// given up by default.
pub const PINGS: Limits =
    Limits { connections: 512, of_one_source: 256, headers: Duration::from_secs(2) };

/// The metrics port has separate places: a handful of replicas of Prometheus, and an occasional
/// user. A page has some 400 kB, so that slow readers on all connections hold 6 MB. One address is
/// one Prometheus, with the connection of the previous scrape not closed yet, and other clients
/// behind the same NAT.
pub const SCRAPES: Limits =
    Limits { connections: 16, of_one_source: 4, headers: Duration::from_secs(2) };

/// Connections that the kernel queues for us while we are not scheduled: more than the probes that
/// any ping port receives within a second, and more than the 128 of the standard library, all of
/// which one stranger can occupy. The kernel's own limit (`net.core.somaxconn`) is 4096.
const BACKLOG: u32 = 1024;

/// The time for which a connection may last in total: a client that reads an answer a byte at a
/// time is cut off.
const LIFETIME: Duration = Duration::from_mins(1);

/// The headers of a request: those of a scrape through a service mesh have some kilobytes.
const HEADERS: usize = 16 << 10;

/// The pause when no connection can be accepted (no file descriptor left).
const FULL: Duration = Duration::from_millis(100);

impl Limits {
    /// The same with at most half of the descriptors that this process may have: the other half is
    /// for its own probes.
    #[must_use]
    pub fn within(self, descriptors: u64) -> Self {
        let half = usize::try_from(descriptors / 2).unwrap_or(usize::MAX).max(1);
        Self {
            connections: self.connections.min(half),
            of_one_source: self.of_one_source.min(half),
            ..self
        }
    }
}

/// A handler of requests on a port.
pub trait Site: Clone + Send + 'static {
    /// A client connected.
    fn heard(&self, _from: IpAddr) {}

    /// Returns the answer to a request; the body of the request is not read.
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>>;
}

/// Serves the ping port of a prober: `/ping` and `/healthz`.
#[derive(Clone)]
pub struct Ping(pub Metrics);

/// Serves the metrics port: `/metrics` and `/healthz`.
#[derive(Clone)]
pub struct Scrape(pub Metrics);

/// The wildcard addresses to try: IPv6, whose socket also serves IPv4; then, for a host without
/// IPv6, IPv4.
#[must_use]
pub fn wildcards(port: u16) -> [SocketAddr; 2] {
    [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()]
        .map(|ip| SocketAddr::new(ip, port))
}

/// Reports whether a bind failed because this host has no IPv6 (then IPv4 alone is right), and not
/// because the port is taken.
#[must_use]
pub fn no_ipv6(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::AddrNotAvailable)
        || error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT)
}

/// Listens on every address.
///
/// # Errors
/// When the port is taken or may not be used.
#[expect(clippy::unused_async, reason = "sockets are registered with the runtime")]
pub async fn listen(port: u16) -> io::Result<TcpListener> {
    let [v6, v4] = wildcards(port);
    match bind(v6) {
        Err(error) if no_ipv6(&error) => bind(v4),
        bound => bound,
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
    // Connections from before a restart may linger.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until it is dropped.
///
/// # Errors
/// When the task of a connection panics.
pub async fn serve<S: Site>(listener: TcpListener, site: S, limits: Limits) -> anyhow::Result<()> {
    let places = Places::newest_wins(limits.connections, limits.of_one_source);
    let mut connections = JoinSet::new();
    loop {
        let (stream, from) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => (stream, from.ip()),
                // The connection is already gone, or none can be accepted now; neither stops the
                // server.
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
        site.heard(from);
        let Some(place) = places.take(from) else { continue };
        connections.spawn(connection(stream, site.clone(), place, limits.headers));
    }
}

async fn connection<S: Site>(stream: TcpStream, site: S, place: Place, headers: Duration) {
    // The answer is one packet; waiting for more would add to the measured time.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(move |request| {
        let answer = site.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(headers)
        .max_buf_size(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    let lost = poll_fn(|cx| if place.is_over(cx) { Poll::Ready(()) } else { Poll::Pending });
    // An error of one connection concerns only its client.
    tokio::select! {
        served = timeout(LIFETIME, serving) => match served {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "connection"),
            Err(_) => tracing::debug!("connection: too long"),
        },
        () = lost => tracing::debug!("connection: its place is taken"),
    }
}

impl Site for Ping {
    fn heard(&self, from: IpAddr) {
        self.0.heard(from);
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        match request.uri().path() {
            // Any method, as in the original.
            "/ping" => text(StatusCode::OK, "pong\n"),
            path => other(path),
        }
    }
}

impl Site for Scrape {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        match request.uri().path() {
            "/metrics" => read_only(request, || {
                self.0.encode_with(|registry| exposition(registry, request.headers()))
            }),
            path => other(path),
        }
    }
}

/// Answers requests that are the same on every port.
pub(super) fn other(path: &str) -> Response<Full<Bytes>> {
    match path {
        "/healthz" => text(StatusCode::OK, "ok\n"),
        _ => text(StatusCode::NOT_FOUND, "not found\n"),
    }
}

/// Returns the page, for requests that read.
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

/// The page, or 500: a truncated page could pass as a complete one.
pub(crate) fn exposition(registry: &Registry, headers: &HeaderMap) -> Response<Full<Bytes>> {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accept = accept.collect::<Vec<_>>().join(",");
    let all = [Format::Text, Format::OpenMetrics, Format::Protobuf];
    let format = Format::preferred(&accept, &all);
    match page(registry, format) {
        Ok(body) => response(StatusCode::OK, format.content_type(), body),
        Err(error) => {
            let what = format!("cannot encode: {error}\n");
            text(StatusCode::INTERNAL_SERVER_ERROR, what)
        }
    }
}

fn page(registry: &Registry, format: Format) -> Result<Vec<u8>, String> {
    if format == Format::Protobuf {
        let page = encoding::prometheus_protobuf::encode_to_vec(registry);
        return page.map_err(|error| error.to_string());
    }
    let mut page = String::new();
    encoding::text::encode(&mut page, registry).map_err(|error| error.to_string())?;
    let page = page.into_bytes();
    Ok(if format == Format::Text { Rewriter::default().rewrite(&page) } else { page })
}

/// The time within which packets are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Packets of one source that are answered in a second. One address may hide a node full of agents:
/// 110 pods, each with one packet in the shortest period of 100 ms, send 1,100. More than that does
/// not come from probers, and an answer costs three times as much as dropping the packet.
const OF_ONE_SOURCE: u32 = 2048;

/// Number of sources that are distinguished in a second: the number of probers that an agent
/// remembers. Those beyond share one count, because addresses are easily forged.
const SOURCES: usize = 4096;

/// The packets of the current second.
#[derive(Debug)]
struct Rates {
    since: Instant,
    of: HashMap<IpAddr, u32>,
    of_others: u32,
}

impl Rates {
    pub fn new(now: Instant) -> Self {
        Self { since: now, of: HashMap::new(), of_others: 0 }
    }

    /// Reports whether one more packet of a source may be answered.
    pub fn admit(&mut self, from: IpAddr, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= WINDOW {
            *self = Self { since: now, of: std::mem::take(&mut self.of), of_others: 0 };
            self.of.clear();
        }
        let from = from.to_canonical();
        let count = if self.of.len() < SOURCES || self.of.contains_key(&from) {
            self.of.entry(from).or_default()
        } else {
            &mut self.of_others
        };
        *count = count.saturating_add(1);
        *count <= OF_ONE_SOURCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::Ipv4Addr;

    #[test]
    fn a_source_that_floods_is_not_answered_and_others_are() {
        let start = Instant::now();
        let mut rates = Rates::new(start);
        let [loud, quiet] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        let mut count = |from, now| (0..10_000).filter(|_| rates.admit(from, now)).count();
        assert_eq!(count(loud, start), OF_ONE_SOURCE as usize);
        assert_eq!(count(mapped, start), 0);
        assert_eq!(count(quiet, start), OF_ONE_SOURCE as usize);
        // The next second.
        assert_eq!(count(loud, start + WINDOW), OF_ONE_SOURCE as usize);
    }

    #[test]
    fn made_up_sources_cost_a_bounded_memory_and_known_ones_are_answered() {
        let start = Instant::now();
        let mut rates = Rates::new(start);
        let known = "10.0.0.1".parse().unwrap();
        assert!(rates.admit(known, start));
        let admitted =
            (0..100_000_u32).filter(|i| rates.admit(Ipv4Addr::from(*i).into(), start)).count();
        assert!(admitted < SOURCES + OF_ONE_SOURCE as usize);
        assert!(rates.of.len() <= SOURCES && rates.admit(known, start));
    }
}
