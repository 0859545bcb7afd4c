//! HTTP servers that no client can exhaust. They limit the number of connections, in total and for
//! each source, and the time for the head of a request and for the whole connection. A connection
//! above a limit is closed at once and counted.
use std::{
    future::{Future, Ready, ready},
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::Router;
use axum_server::{
    Handle, Server as HttpServer,
    accept::Accept,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use http::Request;
use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};
use prometheus_client::metrics::counter::Counter;
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::{Instant, Sleep, sleep_until},
};
use tower::Service;

pub(crate) mod budget;
#[cfg(test)]
mod tests;

pub use traffic_operator_core::places;

use places::{Place, Places};

/// The largest head of a request, in bytes: a token of a pod is about 1 kB. The libraries' own
/// limit is 400 kB for each connection.
pub const HEAD_LIMIT: usize = 16 * 1024;

/// The time that a TLS handshake may take: several round trips over a bad network.
pub const HANDSHAKE: Duration = Duration::from_secs(5);

/// The time that pending answers may take at shutdown: they are made from memory.
const DRAIN: Duration = Duration::from_secs(1);

/// The resources that clients of a server may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Those of one address.
    pub of_one_source: usize,
    /// The time that the TLS handshake, and then the head of a request, may take; if a connection
    /// may send a second request, this includes the pause before it.
    pub head: Duration,
    /// The time for which a connection may last, regardless of the slow side.
    pub lifetime: Lifetime,
    /// True if a connection may send a second request.
    pub keep_alive: bool,
    /// True if a connection above that takes the place of the oldest stranger, instead of being
    /// closed.
    pub newest_wins: bool,
}

/// An HTTP/1 server with a bound address, which serves when it is [run](Server::run).
pub struct Server {
    listener: TcpListener,
    limits: Limits,
    tls: Option<Arc<ServerConfig>>,
    refused: Counter,
}

impl Server {
    /// Binds `address`, for HTTPS if there is a TLS configuration. `refused` counts connections
    /// that were closed because there were too many.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(
        address: SocketAddr,
        limits: Limits,
        tls: Option<ServerConfig>,
        refused: Counter,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { listener, limits, tls: tls.map(Arc::new), refused })
    }

    /// Returns the address on which it listens.
    ///
    /// # Errors
    /// When the system does not report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`, and then finishes running requests. Handlers get the client's
    /// address as `ConnectInfo<SocketAddr>`.
    ///
    /// # Errors
    /// When connections cannot be accepted any more.
    pub async fn run(
        self,
        router: Router,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        let limits = self.limits;
        let places = if limits.newest_wins {
            Places::newest_wins(limits.connections, limits.of_one_source)
        } else {
            Places::new(limits.connections, limits.of_one_source)
        };
        let limited = Limited::new(places, limits.lifetime, self.refused);
        let handle = Handle::new();
        let server = HttpServer::<SocketAddr>::from_listener(self.listener).handle(handle.clone());
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let mut serving: Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;
        if let Some(tls) = self.tls {
            let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(tls))
                .handshake_timeout(limits.head.min(HANDSHAKE))
                .acceptor(limited);
            // HTTP/1 only: the detection of the version waits for ever for the first bytes.
            let mut server = server.acceptor(acceptor).http1_only();
            configure(server.http_builder(), limits);
            serving = Box::pin(server.serve(service));
        } else {
            let mut server = server.acceptor(limited).http1_only();
            configure(server.http_builder(), limits);
            serving = Box::pin(server.serve(service));
        }
        tokio::select! {
            ended = &mut serving => return ended,
            () = shutdown => handle.graceful_shutdown(Some(DRAIN)),
        }
        serving.await
    }
}

fn configure(http: &mut Builder<TokioExecutor>, limits: Limits) {
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(HEAD_LIMIT)
        .keep_alive(limits.keep_alive);
}

/// The lifetime of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Lifetime {
    /// For at most this time, in any case.
    AtMost(Duration),
    /// As long as it is used.
    WhileUsed(Pace),
}

/// The deadlines within which a connection must be used.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From its acceptance to the head of its first request, including the TLS handshake.
    pub head: Duration,
    /// From then until the first [good](Connection::good) request.
    pub answer: Duration,
    /// From each good request to the next.
    pub idle: Duration,
}

/// A server's knowledge of one connection. Handlers find it among a request's extensions.
#[derive(Clone, Debug)]
pub struct Connection(Arc<Known>);

#[derive(Debug)]
struct Known {
    place: Place,
    lifetime: Lifetime,
    until: Mutex<Until>,
}

#[derive(Clone, Copy, Debug)]
struct Until {
    asked: bool,
    end: Instant,
}

impl Connection {
    fn new(place: Place, lifetime: Lifetime) -> Self {
        let first = match lifetime {
            Lifetime::AtMost(lifetime) => lifetime,
            Lifetime::WhileUsed(pace) => pace.head,
        };
        let until = Mutex::new(Until { asked: false, end: Instant::now() + first });
        Self(Arc::new(Known { place, lifetime, until }))
    }

    /// The client's address.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        self.0.place.source()
    }

    /// Marks a request that only a legitimate client makes: the connection may stay, and cannot
    /// lose its place.
    pub fn good(&self) {
        if let Lifetime::WhileUsed(pace) = self.0.lifetime {
            self.until().end = Instant::now() + pace.idle;
            self.0.place.keep();
        }
    }

    /// Records the head of a request.
    fn asked(&self) {
        let mut until = self.until();
        if let (Lifetime::WhileUsed(pace), false) = (self.0.lifetime, until.asked) {
            *until = Until { asked: true, end: Instant::now() + pace.answer };
        }
    }

    fn until(&self) -> MutexGuard<'_, Until> {
        self.0.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts connections while there are places, and closes the others at once: existing connections
/// continue, and a refused client retries.
#[derive(Clone, Debug)]
pub struct Limited {
    places: Places,
    lifetime: Lifetime,
    refused: Counter,
}

impl Limited {
    /// Accepts as many connections as there are places, for no longer than this. Counts those that
    /// are refused, or lose their place.
    #[must_use]
    pub fn new(places: Places, lifetime: Lifetime, refused: Counter) -> Self {
        Self { places, lifetime, refused }
    }

    fn counted(&self, stream: TcpStream) -> io::Result<Counted> {
        // A client that is already gone has no address any more.
        let source: IpAddr = stream.peer_addr()?.ip();
        let Some(place) = self.places.take(source) else {
            self.refused.inc();
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        // Answers are small and awaited: collecting them would gain nothing.
        stream.set_nodelay(true)?;
        if place.replaced {
            self.refused.inc();
        }
        let connection = Connection::new(place, self.lifetime);
        let end = Box::pin(sleep_until(connection.until().end));
        Ok(Counted { stream, end, connection })
    }
}

impl<S> Accept<TcpStream, S> for Limited {
    type Stream = Counted;
    type Service = WithConnection<S>;
    type Future = Ready<io::Result<(Counted, WithConnection<S>)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        ready(self.counted(stream).map(|counted| {
            let connection = counted.connection.clone();
            (counted, WithConnection { service, connection })
        }))
    }
}

/// A service that knows the connection of each request.
#[derive(Clone, Debug)]
pub struct WithConnection<S> {
    service: S,
    connection: Connection,
}

impl<S, B> Service<Request<B>> for WithConnection<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        self.connection.asked();
        request.extensions_mut().insert(self.connection.clone());
        self.service.call(request)
    }
}

/// A connection that releases its place when it ends.
pub struct Counted {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    connection: Connection,
}

impl Counted {
    /// Fails when its time is over, or its place was given to another client.
    fn in_time(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.connection.0.place.is_over(cx) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        while self.end.as_mut().poll(cx).is_ready() {
            // A connection that was used since then has more time.
            let end = self.connection.until().end;
            if end <= Instant::now() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.end.as_mut().reset(end);
        }
        Ok(())
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.in_time(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.in_time(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.in_time(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.in_time(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
