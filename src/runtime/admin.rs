//! The servers for people, Prometheus and the kubelet, each on a separate address so that none
//! starves another: the probes; `/metrics`, over TLS to clients that the API server allows; the
//! status page, on loopback.
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use axum::{Router, extract::State, http::StatusCode, routing::get};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use rustls::ServerConfig;
use tokio::task::JoinSet;

use crate::{
    infra::shutdown::Shutdown,
    metrics::Metrics,
    serving::{Lifetime, Limits, Server},
    webhook::certificates::{self, Certificates, Lifetimes},
};

mod access;
mod scrape;
#[cfg(test)]
mod tests;

use access::Access;

/// Limits for the kubelet, which opens a connection for each probe and needs a millisecond: it
/// replaces long connections, such as those of a pod on the host network with the kubelet's own
/// address. A request is one packet: a client that has not sent it after two seconds is not a
/// kubelet. All connections together take 3 MB.
const PROBES: Limits = Limits {
    connections: 256,
    of_one_source: 64,
    head: Duration::from_secs(2),
    lifetime: Lifetime::AtMost(Duration::from_secs(5)),
    keep_alive: false,
    newest_wins: true,
};

/// Limits for Prometheus: two replicas, and people, perhaps behind one address. A connection in its
/// TLS handshake takes some 40 kB. The longest scrape timeout in use is 30 s.
const SCRAPES: Limits = Limits {
    connections: 128,
    of_one_source: 8,
    head: Duration::from_secs(5),
    lifetime: Lifetime::AtMost(Duration::from_secs(30)),
    keep_alive: false,
    newest_wins: false,
};

/// Limits for browsers behind a port-forward, which all connect from loopback, every five seconds.
const PAGE: Limits = Limits {
    connections: 64,
    of_one_source: 64,
    head: Duration::from_secs(10),
    lifetime: Lifetime::AtMost(Duration::from_mins(1)),
    keep_alive: true,
    newest_wins: false,
};

/// The addresses of the servers.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// `/metrics`.
    pub address: SocketAddr,
    /// True if only clients that the API server allows may read it, over TLS. If not, this address
    /// serves everything in plain HTTP.
    pub metrics_auth: bool,
    /// `/livez` and `/readyz`.
    pub probe_address: SocketAddr,
    /// The status page, and `/metrics` in plain HTTP for every client that reaches it.
    pub page_address: SocketAddr,
}

/// The conditions of this replica's readiness; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, bool>>>);

impl Readiness {
    /// Adds a condition to wait for.
    pub fn expect(&self, what: &'static str) {
        self.set(what, false);
    }

    /// Marks a condition as met.
    pub fn reached(&self, what: &'static str) {
        self.set(what, true);
    }

    /// Returns the conditions that are still missing.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.iter().filter(|(_, reached)| !**reached).map(|(what, _)| *what).collect()
    }

    fn set(&self, what: &'static str, reached: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(what, reached);
    }
}

/// Returns the routes of the probes. Liveness only reports that the process answers: restarting it
/// would not bring back the API server or Prometheus.
fn probes(readiness: Readiness) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(readiness)
}

async fn readyz(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let missing = readiness.missing();
    if missing.is_empty() {
        (StatusCode::OK, "ok\n".into())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for: {}\n", missing.join(", ")))
    }
}

/// The dependencies of the servers.
pub struct Sources {
    /// The metrics of `/metrics`.
    pub metrics: Metrics,
    /// The conditions of `/readyz`.
    pub readiness: Readiness,
    /// The status page with its state.
    pub page: Router,
    /// The client for reviews of tokens by the API server.
    pub client: Client,
    /// The certificate of `/metrics`, once there is one.
    pub certificates: Certificates,
}

/// Starts the servers.
///
/// # Errors
/// When an address cannot be bound, or TLS cannot be set up.
pub async fn start(
    config: &AdminConfig,
    sources: Sources,
    shutdown: &Shutdown,
    tasks: &mut JoinSet<anyhow::Result<&'static str>>,
) -> anyhow::Result<()> {
    let Sources { metrics, readiness, page, client, certificates } = sources;
    let open = page.merge(scrape::router(metrics.clone(), None));
    let (tls, scrapes) = if config.metrics_auth {
        let access = Access::to(scrape::PATH, client);
        (Some(tls(&certificates)?), scrape::router(metrics.clone(), Some(access)))
    } else {
        (None, open.clone().merge(probes(readiness.clone())))
    };
    let servers = [
        ("--probe-address", "probes", config.probe_address, PROBES, None, probes(readiness)),
        ("--admin-address", "metrics", config.address, SCRAPES, tls, scrapes),
        ("--page-address", "page", config.page_address, PAGE, None, open),
    ];
    for (flag, name, address, limits, tls, router) in servers {
        let secure = tls.is_some();
        let server = Server::bind(address, limits, tls, metrics.refused_connections(name));
        let server = server.await.with_context(|| format!("{flag} {address}: cannot listen"))?;
        tracing::info!(server = name, address = %server.address()?, tls = secure, "serving");
        let served = server.run(router, shutdown.begun());
        tasks.spawn(async move {
            served.await.with_context(|| format!("server of {name}"))?;
            Ok("an admin server")
        });
    }
    Ok(())
}

/// Configures TLS with the webhook's certificate. Until that exists, it presents a temporary
/// certificate that no client can verify: clients that do not verify, as Prometheus is usually
/// configured, can read from the start.
fn tls(certificates: &Certificates) -> anyhow::Result<ServerConfig> {
    let now = Timestamp::now().as_second();
    let names = [certificates::NAME.to_owned()];
    let first = certificates::next(None, now, Lifetimes::default(), &names)
        .context("a certificate for /metrics")?
        .context("no certificate for /metrics is due")?
        .certified_key()
        .context("a certificate for /metrics")?;
    certificates.server_config_from(first).context("TLS for /metrics")
}
