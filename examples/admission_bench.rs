//! Measures an admission: 1,000 requests per second with Pods of 50 kB, over TLS, to one thread.
//!
//! `make bench`. The server is the real one, in this process but with its own thread and runtime,
//! so that its processor time can be measured separately. Latency counts from the scheduled time of
//! a request, not from the time of sending, so a server that falls behind shows it. Build with
//! `--release`: without it the figures are several times worse.
use std::{
    net::SocketAddr,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Bytes, client::conn, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prometheus_client::metrics::counter::Counter;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::{TlsConnector, client::TlsStream};
use traffic_operator::{
    pods::PodObject,
    webhook::{
        certificates::{Certificates, Lifetimes, next},
        injection::{Delivery, Recipe, Resources},
        review::{Decision, Injector, Outcome},
        server::{Observer, Server, router},
    },
};

/// Requests per second: as many pods as the largest clusters create in a storm, times ten.
const RATE: u32 = 1000;

/// Duration of each row, in seconds.
const SECONDS: u32 = 10;

/// The size of a Pod: that of the largest usual ones, with managed fields and many environment
/// variables.
const POD_BYTES: usize = 50_000;

/// Maximum number of concurrent requests; over HTTP/1.1 also the number of connections.
const LANES: u32 = 16;

/// The protocols of the API server and of the agents, with their numbers of connections.
const VERSIONS: [&str; 2] = ["1 x HTTP/2", "16 x HTTP/1.1"];

/// The columns. The last two show whether the machine was free: latency includes the time by which
/// the client woke late (its timer has steps of 1 ms) and the time for which the server waited for
/// a processor.
const HEADER: [&str; 9] = [
    "connections",
    "p50 ms",
    "p90 ms",
    "p99 ms",
    "max ms",
    "CPU us per request",
    "CPU % of a core",
    "client woken late, p99 ms",
    "server waited for a core, %",
];

/// Idle connections of the last row.
const IDLE: usize = 1000;

const NAME: &str = "traffic-operator-webhook.bench.svc";

struct Always(Recipe);

impl Injector for Always {
    fn decide(&self, _: (&str, &str), _: &str, _: &PodObject) -> Decision {
        Decision::Inject(Box::new(self.0.clone()))
    }
}

struct Nobody;

impl Observer for Nobody {
    fn answered(&self, _: &Outcome, _: Duration) {}
}

fn main() -> anyhow::Result<()> {
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_secs())?;
    let state = next(None, now, Lifetimes::default(), &[NAME.into()])?.context("no state")?;
    let certificates = Certificates::default();
    certificates.install(&state)?;
    let (started, start) = mpsc::channel();
    std::thread::spawn(move || serve(&certificates, &started));
    let server = start.recv().context("the server did not start")?;
    let client = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    client.block_on(measure(&server, &state.bundle()))
}

struct Serving {
    address: SocketAddr,
    /// The directory of the server's thread below `/proc`.
    thread: String,
}

fn serve(certificates: &Certificates, started: &mpsc::Sender<Serving>) -> anyhow::Result<()> {
    let thread = format!("/proc/{}", std::fs::read_link("/proc/thread-self")?.display());
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let server =
            Server::bind(([127, 0, 0, 1], 0).into(), certificates, Counter::default()).await?;
        started.send(Serving { address: server.address()?, thread })?;
        let router = router(Arc::new(Always(recipe())), Arc::new(Nobody));
        Ok(server.run(router, std::future::pending()).await?)
    })
}

fn recipe() -> Recipe {
    Recipe {
        prober: "bench/mesh".into(),
        image: "registry.invalid/traffic-operator:0.1.0".into(),
        own_image: true,
        http_port: 8080,
        prometheus_port: 2112,
        delivery: Delivery::Pull { url: format!("https://{NAME}/pinglist") },
        config_map: "mesh".into(),
        resources: Resources::default(),
        native_sidecar: true,
    }
}

async fn measure(server: &Serving, bundle: &str) -> anyhow::Result<()> {
    let body = Bytes::from(review().to_string());
    println!("{} requests/s for {SECONDS} s, Pods of {} B, server: 1 thread", RATE, body.len());
    println!("{}", HEADER.join(" | "));
    println!("{}", HEADER.map(|_| "---").join(" | "));
    for version in VERSIONS {
        let mut lanes = Vec::new();
        if version == VERSIONS[0] {
            let sender = http2(server, bundle).await?;
            lanes.extend((0..LANES).map(|_| Lane::Two(sender.clone())));
        } else {
            for _ in 0..LANES {
                lanes.push(Lane::One(http1(server, bundle).await?));
            }
        }
        let (before, start) = (scheduled(&server.thread)?, Instant::now());
        let times = run(lanes, &body).await?;
        let (after, took) = (scheduled(&server.thread)?, start.elapsed());
        let (busy, queued) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        let (times, woken): (Vec<_>, Vec<_>) = times.into_iter().unzip();
        let percent = |part: Duration| part.as_secs_f64() / took.as_secs_f64() * 100.0;
        println!(
            "{version} | {} | {:.0} | {:.0} | {} | {:.1}",
            spread(times, &[500, 900, 990, 1000]),
            busy.as_secs_f64() / f64::from(RATE * SECONDS) * 1e6,
            percent(busy),
            spread(woken, &[990]),
            percent(queued),
        );
    }
    let before = resident()?;
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(connect(server, bundle, b"http/1.1").await?);
    }
    // Both ends are in this process.
    let each = resident()?.saturating_sub(before) / IDLE / 1024;
    println!("{IDLE} idle TLS connections: {each} KiB each, client and server together");
    Ok(())
}

/// Sends requests one after the other on each lane, by the clock. Returns how long each took, and
/// how much of that is because this client woke late.
async fn run(lanes: Vec<Lane>, body: &Bytes) -> anyhow::Result<Vec<(Duration, Duration)>> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for (offset, mut lane) in (0..).zip(lanes) {
        let body = body.clone();
        tasks.spawn(async move {
            let mut times = Vec::new();
            for turn in 0..RATE * SECONDS / LANES {
                let due = start + Duration::from_secs(1) / RATE * (turn * LANES + offset);
                let early = Instant::now() < due;
                tokio::time::sleep_until(due.into()).await;
                let woken = if early { due.elapsed() } else { Duration::ZERO };
                let answer = lane.ask(body.clone()).await?;
                times.push((due.elapsed(), woken));
                if turn == 0 {
                    let review: Value = serde_json::from_slice(&answer)?;
                    ensure!(review["response"]["patchType"] == "JSONPatch", "{review}");
                }
            }
            Ok(times)
        });
    }
    let mut all = Vec::new();
    while let Some(times) = tasks.join_next().await {
        all.extend(times??);
    }
    Ok(all)
}

type Http1 = conn::http1::SendRequest<Full<Bytes>>;
type Http2 = conn::http2::SendRequest<Full<Bytes>>;

async fn http1(server: &Serving, bundle: &str) -> anyhow::Result<Http1> {
    let stream = TokioIo::new(connect(server, bundle, b"http/1.1").await?);
    let (sender, connection) = conn::http1::handshake(stream).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn http2(server: &Serving, bundle: &str) -> anyhow::Result<Http2> {
    let stream = TokioIo::new(connect(server, bundle, b"h2").await?);
    let (sender, connection) = conn::http2::handshake(TokioExecutor::new(), stream).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// A connection, or one stream of a shared one.
enum Lane {
    One(Http1),
    Two(Http2),
}

impl Lane {
    async fn ask(&mut self, body: Bytes) -> anyhow::Result<Bytes> {
        let request = Request::post(format!("https://{NAME}/mutate/bench/mesh"))
            .header(header::HOST, NAME)
            .body(Full::new(body))?;
        let response: Response<_> = match self {
            Self::One(sender) => sender.send_request(request).await?,
            Self::Two(sender) => sender.send_request(request).await?,
        };
        ensure!(response.status().is_success(), "{}", response.status());
        Ok(response.into_body().collect().await?.to_bytes())
    }
}

async fn connect(
    server: &Serving,
    bundle: &str,
    alpn: &[u8],
) -> anyhow::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate?)?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    let stream = TcpStream::connect(server.address).await?;
    stream.set_nodelay(true)?;
    Ok(TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(NAME)?, stream).await?)
}

/// Returns the API server's review of the creation of a Pod.
fn review() -> Value {
    let mut env = Vec::new();
    let size = |env: &[Value]| env.len() * 104;
    while size(&env) < POD_BYTES {
        let value = format!("{:0>64}", env.len());
        env.push(json!({"name": format!("VARIABLE_{:08}", env.len()), "value": value}));
    }
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "namespace": "bench",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"generateName": "app-", "namespace": "bench", "labels": {"app": "app"}, "annotations": {}},
                "spec": {
                    "containers": [{"name": "app", "image": "app", "env": env, "ports": [{"containerPort": 80}]}],
                    "volumes": [{"name": "kube-api-access", "projected": {"sources": []}}]
                }
            },
            "oldObject": null, "dryRun": false
        }
    })
}

/// Reads the kernel's statistics of a thread: how long it ran, and how long it waited for a
/// processor.
fn scheduled(thread: &str) -> anyhow::Result<(Duration, Duration)> {
    let text = std::fs::read_to_string(format!("{thread}/schedstat"))?;
    let mut nanoseconds = text.split_whitespace().map(str::parse);
    let mut next = || -> anyhow::Result<_> {
        Ok(Duration::from_nanos(nanoseconds.next().context("schedstat is short")??))
    };
    Ok((next()?, next()?))
}

/// Returns percentiles in milliseconds, each given in thousandths.
fn spread(mut times: Vec<Duration>, parts: &[usize]) -> String {
    times.sort_unstable();
    let at = |part: &usize| {
        let place = (times.len() * part / 1000).min(times.len().saturating_sub(1));
        format!("{:.2}", times.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e3))
    };
    parts.iter().map(at).collect::<Vec<_>>().join(" | ")
}

/// Returns the memory of this process, in bytes.
fn resident() -> anyhow::Result<usize> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = text.split_whitespace().nth(1).context("statm is short")?.parse()?;
    Ok(pages * 4096)
}
