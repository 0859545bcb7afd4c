//! Probes the targets of a list in phases, each with its own duration and failures: name resolution, connection, TLS
//! handshake, first byte.
//!
//! The author of a `NetworkProber` chooses where the agents send requests. So there is one request per target and
//! period, with no header of the author's; no redirect is followed, no body is read; and no target reaches what trusts
//! this pod or its node because of where it is: loopback, link-local addresses, the metadata of a cloud.
use std::{
    fs::File,
    hash::{BuildHasher, RandomState},
    io::Read as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::StatusCode;
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use traffic_operator_core::budget::TARGET_PERIOD;

use crate::{
    members::Identity,
    metrics::{Metrics, Skipped, TargetSeries},
    pinglist::Destination,
    probe::{self, Unanswered},
    reason::Reason,
    resolve::{self, Families},
    schedule::{Clock, Schedule, Start},
};

/// Longest time of a probe: twice the time after which resolvers ask again.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest file that is read.
const LONGEST_FILE: u64 = 1 << 20;

/// A part of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Resolving the name.
    Dns,
    /// Connecting to one of its addresses.
    Connect,
    /// The TLS handshake.
    Tls,
    /// From the request to the headers of its answer.
    FirstByte,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 4] = [Self::Dns, Self::Connect, Self::Tls, Self::FirstByte];

    /// The value of the label `phase`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::FirstByte => "first_byte",
        }
    }

    /// The phases of a target.
    pub fn of(to: &Destination) -> impl Iterator<Item = Self> {
        let has =
            [to.host.parse::<IpAddr>().is_err(), to.port.is_some(), to.tls, to.path.is_some()];
        Self::ALL.into_iter().zip(has).filter_map(|(phase, has)| has.then_some(phase))
    }
}

/// The CA of the cluster, and a TLS client that was built with it.
type Trusting = (Vec<u8>, TlsConnector);

/// What the probes of an agent depend on.
#[derive(Clone)]
pub struct Surroundings {
    families: Families,
    hosts: PathBuf,
    resolver: PathBuf,
    dns_port: u16,
    /// The CA of the cluster, in PEM form.
    cluster_ca: PathBuf,
    /// The time for all phases of a probe.
    timeout: Duration,
    /// The client of the last handshake.
    client: Arc<Mutex<Option<Trusting>>>,
    /// Whether an address must not be probed.
    is_forbidden: fn(IpAddr) -> bool,
}

impl Surroundings {
    /// Those of a pod.
    #[must_use]
    pub fn of(who: &Identity, cluster_ca: PathBuf) -> Self {
        let reaches = |ip: IpAddr| who.reaches(ip);
        Self {
            families: Families {
                v4: reaches(Ipv4Addr::UNSPECIFIED.into()),
                v6: reaches(Ipv6Addr::UNSPECIFIED.into()),
            },
            hosts: "/etc/hosts".into(),
            resolver: "/etc/resolv.conf".into(),
            dns_port: resolve::PORT,
            cluster_ca,
            timeout: TIMEOUT,
            client: Arc::default(),
            is_forbidden,
        }
    }

    /// Returns the client that trusts this CA of the cluster and the public ones: the previous one if it is the same.
    fn client(&self, cluster_ca: Vec<u8>) -> Option<TlsConnector> {
        let mut kept = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((before, client)) = &*kept
            && *before == cluster_ca
        {
            return Some(client.clone());
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&cluster_ca).flatten());
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().ok()?;
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        // Each probe measures a whole handshake.
        config.resumption = Resumption::disabled();
        let client = TlsConnector::from(Arc::new(config));
        *kept = Some((cluster_ca, client.clone()));
        Some(client)
    }
}

/// Addresses of clouds' servers that trust whoever reaches them; most others are link-local.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Reports whether an address must not be probed: loopback, link-local, metadata, and those of no host.
fn is_forbidden(ip: IpAddr) -> bool {
    let ip = match ip.to_canonical() {
        // NAT64 leads to the IPv4 address at its end.
        IpAddr::V6(ip) if ip.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] => {
            let [.., a, b, c, d] = ip.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        ip => ip,
    };
    let local = match ip {
        IpAddr::V4(ip) => {
            ip.is_loopback() || ip.is_link_local() || ip.is_broadcast() || ip.octets()[0] == 0
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unspecified(),
    };
    local || ip.is_multicast() || METADATA.contains(&ip)
}

/// The slots of one target, one after the other.
pub struct Slots {
    /// The target.
    pub to: Destination,
    /// What its probes depend on.
    pub surroundings: Surroundings,
    /// Its series.
    pub series: TargetSeries,
    /// Those of the agent.
    pub metrics: Metrics,
    /// Counts the slots.
    pub(crate) clock: Clock,
    /// Distinguishes its times from those of other agents.
    pub identity: String,
}

impl Slots {
    /// Probes for ever.
    pub async fn run(self) {
        let schedule = Schedule::new(&self.identity, TARGET_PERIOD);
        let prober = Prober { surroundings: self.surroundings };
        let mut slot = schedule.next(self.clock.now());
        loop {
            let due = self.clock.instant(schedule.due(slot));
            sleep_until(due).await;
            match schedule.start(due.elapsed(), TIMEOUT) {
                Start::Starved => self.metrics.skipped(Skipped::Starved, 1),
                Start::Now => match prober.probe(&self.to, &self.series).await {
                    Ok(()) => self.series.success(),
                    Err((_, Unanswered::Local)) => self.metrics.skipped(Skipped::Local, 1),
                    Err((phase, Unanswered::Failed(reason))) => self.series.failure(phase, reason),
                },
            }
            slot = schedule.next(self.clock.now()).max(slot + 1);
        }
    }
}

struct Prober {
    surroundings: Surroundings,
}

impl Prober {
    /// Probes once, and records the time of each phase that succeeds; returns the phase that did not.
    async fn probe(
        &self,
        to: &Destination,
        series: &TargetSeries,
    ) -> Result<(), (Phase, Unanswered)> {
        let steps = Steps { deadline: Instant::now() + self.surroundings.timeout, series };
        let ip = match to.host.parse() {
            Ok(ip) => ip,
            Err(_) => steps.take(Phase::Dns, self.resolve(&to.host)).await?,
        };
        let Some(port) = to.port else { return Ok(()) };
        if (self.surroundings.is_forbidden)(ip) {
            return Err((Phase::Connect, Reason::Forbidden.into()));
        }
        let address = SocketAddr::new(ip, port);
        let stream = steps.take(Phase::Connect, probe::open(address)).await?;
        if !to.tls {
            return steps.first_byte(to, address, stream).await;
        }
        let stream = steps.take(Phase::Tls, self.handshake(&to.host, address, stream)).await?;
        steps.first_byte(to, address, stream).await
    }

    /// Returns one address, at random: of several, none may stay unseen.
    async fn resolve(&self, host: &str) -> Result<IpAddr, Unanswered> {
        let Surroundings { families, hosts, resolver, dns_port, .. } = &self.surroundings;
        let [hosts, resolver] = read([hosts.clone(), resolver.clone()]).await?;
        let [hosts, resolver] =
            [hosts, resolver].map(|file| String::from_utf8_lossy(&file).into_owned());
        let found = resolve::resolve(host, (&hosts, &resolver), *families, *dns_port).await?;
        let random = usize::try_from(RandomState::new().hash_one(host) >> 32).unwrap_or_default();
        found.get(random % found.len().max(1)).copied().ok_or(Reason::NotFound.into())
    }

    async fn handshake(
        &self,
        host: &str,
        address: SocketAddr,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Unanswered> {
        let [cluster_ca] = read([self.surroundings.cluster_ca.clone()]).await?;
        let client = self.surroundings.client(cluster_ca).ok_or(Reason::Other)?;
        let name = ServerName::try_from(host.trim_end_matches('.').to_owned());
        let name = name.map_err(|_| Reason::Certificate)?;
        client.connect(name, stream).await.map_err(|error| {
            match error.get_ref().and_then(|error| error.downcast_ref()) {
                Some(rustls::Error::InvalidCertificate(_)) => Reason::Certificate.into(),
                Some(_) => Reason::Other.into(),
                None => Unanswered::of(&error, address),
            }
        })
    }
}

/// Reads files, of which any may be absent.
async fn read<const N: usize>(files: [PathBuf; N]) -> Result<[Vec<u8>; N], Unanswered> {
    let contents = |file: PathBuf| {
        let mut bytes = Vec::new();
        let read =
            File::open(file).and_then(|file| file.take(LONGEST_FILE).read_to_end(&mut bytes));
        if read.is_ok() { bytes } else { vec![] }
    };
    let read = tokio::task::spawn_blocking(move || files.map(contents)).await;
    read.map_err(|_| Unanswered::Local)
}

/// The phases of one probe.
struct Steps<'a> {
    deadline: Instant,
    series: &'a TargetSeries,
}

impl Steps<'_> {
    async fn take<T>(
        &self,
        phase: Phase,
        step: impl Future<Output = Result<T, Unanswered>>,
    ) -> Result<T, (Phase, Unanswered)> {
        let started = Instant::now();
        let done = timeout_at(self.deadline, step).await.unwrap_or(Err(Reason::Timeout.into()));
        let value = done.map_err(|why| (phase, why))?;
        self.series.observe(phase, started.elapsed());
        Ok(value)
    }

    /// Sends the request, if there is one, and judges the answer by its status. An agent has no credentials: a server
    /// that asks for them is well.
    async fn first_byte(
        &self,
        to: &Destination,
        address: SocketAddr,
        stream: impl AsyncRead + AsyncWrite + Unpin,
    ) -> Result<(), (Phase, Unanswered)> {
        let Some(path) = &to.path else { return Ok(()) };
        let host = if to.host.contains(':') { format!("[{}]", to.host) } else { to.host.clone() };
        let host = match (to.tls, address.port()) {
            (false, 80) | (true, 443) => host,
            (_, port) => format!("{host}:{port}"),
        };
        let answer = async {
            let (status, _) = probe::exchange(stream, address, &host, path, None).await?;
            let asks = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            if status.as_u16() < 400 || asks { Ok(()) } else { Err(Reason::Status.into()) }
        };
        self.take(Phase::FirstByte, answer).await
    }
}

#[cfg(test)]
mod tests;
