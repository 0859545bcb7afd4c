//! The agent that probes: it runs beside an application in its pod, or by itself, and needs no API
//! server.
//!
//! Read in this order:
//!
//! - [`pinglist`]: the list of peers to probe, as the operator serves it; [`members`]: the same
//!   from a file.
//! - [`budget`]: how many peers a list has at most.
//! - [`source`]: the sources of lists, which are the only input from outside.
//! - [`target`]: a list as targets: addresses, protocols, labels, and which series are stale.
//! - [`schedule`]: when each target is due.
//! - [`prober`]: the loop that follows the lists, one task per target; [`probe`]: one probe.
//! - [`trace`]: where a path that has lost its probes for a while loses them.
//! - [`destination`]: what is probed besides peers, phase by phase; `resolve`: names.
//! - [`server`]: answers the probes of others, and serves the page of [`metrics`]; [`echo`]: the
//!   packets.
//!
//! - `client`: its HTTP requests; [`cli`]: its flags, with the help text.
//!
//! The crate also contains [`worker`], which runs the streams of a Swarm, and [`reload`], the
//! sidecar of an application that runs them but cannot report them.
use std::{net::IpAddr, path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use nix::ifaddrs::getifaddrs;
use tokio::sync::mpsc;

use self::{
    destination::Surroundings,
    members::Identity,
    metrics::Metrics,
    prober::Prober,
    source::pull::{self, Pull},
    tasks::{Signals, Tasks},
};

pub mod cli;
mod client;
pub mod destination;
pub mod echo;
pub mod file;
pub mod log;
pub mod members;
pub mod metrics;
pub mod probe;
pub mod prober;
pub mod process;
pub mod reason;
pub mod reload;
mod resolve;
pub mod schedule;
pub mod server;
pub mod source;
pub mod target;
mod tasks;
pub mod trace;
pub mod worker;

pub use traffic_operator_core::{budget, pinglist};

/// The name under which it identifies itself to the operator and to the peers it probes.
pub const USER_AGENT: &str = concat!("traffic-operator/", env!("CARGO_PKG_VERSION"));

/// The settings of an agent at startup.
#[derive(Clone, Debug)]
pub struct Config {
    /// The identity of the agent; without addresses, it uses those of the host's interfaces.
    pub who: Identity,
    /// Port of `/metrics`.
    pub metrics_port: u16,
    /// The source of lists.
    pub source: Source,
    /// The CA of the cluster, in PEM form.
    pub cluster_ca: PathBuf,
    /// The time for which a list stays valid without confirmation.
    pub ttl: Duration,
}

/// The source of lists.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file, as in the original.
    File {
        /// Path of the file.
        path: PathBuf,
        /// The `NetworkProber`, if known.
        prober: String,
    },
    /// The operator.
    Pull(Pull),
}

/// Runs an agent until it receives the signal to stop.
///
/// # Errors
/// When a port is taken, or any of its tasks ends.
pub async fn run(mut config: Config) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let port = config.who.port;
    if port == config.metrics_port {
        bail!("HTTP_PORT and HTTP_PROMETHEUS_PORT are both {port}: they must differ");
    }
    if config.who.ips.is_empty() {
        config.who.ips = local_addresses();
    }
    let descriptors = tasks::raise_descriptors();
    let metrics = Metrics::new();
    let tcp = server::listen(port).await.with_context(|| taken("HTTP_PORT", port, "TCP"))?;
    let udp = server::echo::listen(port).await.with_context(|| taken("HTTP_PORT", port, "UDP"))?;
    let scrapes = server::listen(config.metrics_port)
        .await
        .with_context(|| taken("HTTP_PROMETHEUS_PORT", config.metrics_port, "TCP"))?;
    tracing::info!(
        ping = %tcp.local_addr()?, metrics = %scrapes.local_addr()?,
        addresses = ?config.who.ips, "agent"
    );

    // One is enough: the next list waits until this one is taken.
    let (lists, taken) = mpsc::channel(1);
    let mut tasks = Tasks::default();
    let pings = server::PINGS.within(descriptors);
    tasks.start("ping server", server::serve(tcp, server::Ping(metrics.clone()), pings));
    tasks.start("UDP echo", server::echo::serve(udp, metrics.clone()));
    let serving = server::serve(scrapes, server::Scrape(metrics.clone()), server::SCRAPES);
    tasks.start("metrics server", serving);
    let surroundings = Surroundings::of(&config.who, config.cluster_ca);
    let prober = Prober::new(config.who.clone(), metrics, config.ttl, surroundings);
    tasks.start("prober", prober.run(taken));
    match config.source {
        Source::File { path, prober } => {
            let watching = source::file::watch(path, config.who, prober, lists);
            tasks.start("configuration file", watching)
        }
        Source::Pull(pull) => tasks.start("pinglist", pull::watch(pull, lists)),
    };

    tokio::select! {
        () = signals.stop() => {}
        error = tasks.ended() => return Err(error),
    }
    // There is no state to save: running probes are dropped.
    tracing::info!("stopping");
    Ok(())
}

fn taken(variable: &str, port: u16, protocol: &str) -> String {
    format!("{variable}: cannot listen on {protocol} port {port}")
}

/// The addresses of every interface. If the system does not report them, no address counts as our
/// own, and every family is tried.
fn local_addresses() -> Vec<IpAddr> {
    let addresses = match getifaddrs() {
        Ok(addresses) => addresses,
        Err(error) => {
            tracing::warn!(%error, "the addresses of this host are not known");
            return Vec::new();
        }
    };
    let ip = |storage: nix::sys::socket::SockaddrStorage| {
        let v4 = storage.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|v6| v6.ip().into()))
    };
    addresses.filter_map(|interface| interface.address.and_then(ip)).collect()
}
