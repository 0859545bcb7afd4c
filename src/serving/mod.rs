//! HTTP servers that no client can exhaust. They limit the number of connections, in total and for
//! each source, and the time for the head of a request and for the whole connection. A connection
//! above a limit is closed at once and counted.
use std::{future::Future, io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use axum::Router;
use axum_server::{
    Handle, Server as HttpServer,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};
use prometheus_client::metrics::counter::Counter;
use rustls::ServerConfig;
use tokio::net::TcpListener;

pub(crate) mod budget;
pub(crate) mod connections;
#[cfg(test)]
mod tests;

use connections::{Lifetime, Limited};
pub use traffic_operator_core::places;

use places::Places;

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
