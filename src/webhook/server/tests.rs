//! A real server: rotation under load, limits, and requests that are not admission requests.
use std::{
    collections::VecDeque,
    net::Ipv4Addr,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
};

use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes, client::conn::http1::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    time_provider::TimeProvider,
};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::{
    pods::PodObject,
    webhook::{
        certificates::{Lifetimes, State as Stored, next},
        injection::SkipReason,
        review::Decision,
    },
};

mod hostile;
mod waiting;

/// 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600;

struct Refuses;

impl Injector for Refuses {
    fn decide(&self, prober: (&str, &str), _: &PodObject, _: bool) -> Decision {
        assert_eq!(prober, ("ns", "mesh"));
        Decision::Skip(SkipReason::OptedOut)
    }
}

#[derive(Default)]
struct Counts(Mutex<Vec<&'static str>>);

impl Observer for Counts {
    fn answered(&self, outcome: &Outcome, _: Duration) {
        self.0.lock().unwrap().push(outcome.result());
    }
}

/// A clock that all clients and the authority share.
#[derive(Clone, Debug)]
struct Clock(Arc<AtomicI64>);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.load(Ordering::SeqCst)).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

fn names() -> Vec<String> {
    vec!["traffic-operator-webhook.ns.svc".into()]
}

fn lifetimes() -> Lifetimes {
    Lifetimes { authority: Duration::from_secs(90), leaf: Duration::from_secs(45) }
}

struct Running {
    address: SocketAddr,
    counts: Arc<Counts>,
    refused: Counter,
    certificates: Certificates,
    state: Stored,
    clock: Clock,
    stop: tokio::sync::oneshot::Sender<()>,
    served: tokio::task::JoinHandle<io::Result<()>>,
}

async fn start(connections: usize) -> Running {
    start_with(|server| server.places = Places::new(connections, connections)).await
}

async fn start_with(change: impl FnOnce(&mut Server)) -> Running {
    serve(Arc::new(Refuses), change).await
}

async fn serve(injector: Arc<dyn Injector>, change: impl FnOnce(&mut Server)) -> Running {
    let certificates = Certificates::default();
    let state = next(None, START, lifetimes(), &names()).unwrap().unwrap();
    certificates.install(&state).unwrap();
    let counts = Arc::new(Counts::default());
    let router = router(injector, counts.clone());
    let address = ([127, 0, 0, 1], 0).into();
    let refused = Counter::default();
    let mut server = Server::bind(address, &certificates, refused.clone()).await.unwrap();
    change(&mut server);
    let address = server.address().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let served = tokio::spawn(server.run(router, async { drop(stopped.await) }));
    let clock = Clock(Arc::new(AtomicI64::new(START)));
    Running { address, counts, refused, certificates, state, clock, stop, served }
}

async fn tls(
    address: SocketAddr,
    bundle: &str,
    clock: &Clock,
    alpn: &[u8],
) -> anyhow::Result<TlsStream<TcpStream>> {
    tls_from(1, address, &connector(bundle, clock, alpn)?).await
}

fn connector(bundle: &str, clock: &Clock, alpn: &[u8]) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_details(provider, Arc::new(clock.clone()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Connects from a separate address: all of 127.0.0.0/8 is loopback.
async fn tls_from(
    source: u8,
    address: SocketAddr,
    connector: &TlsConnector,
) -> anyhow::Result<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::new(127, 0, 0, source), 0).into())?;
    let stream = socket.connect(address).await?;
    let name = ServerName::try_from(names().remove(0))?;
    Ok(connector.connect(name, stream).await?)
}

type Sender = SendRequest<Full<Bytes>>;

async fn connect(address: SocketAddr, bundle: &str, clock: &Clock) -> anyhow::Result<Sender> {
    let stream = tls(address, bundle, clock, b"http/1.1").await?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let request = Request::post(path).header("host", "webhook");
    request.body(Full::new(body.into())).unwrap()
}

fn review() -> Bytes {
    let review = json!({"request": {
        "uid": "u", "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "object": {"spec": {"containers": [{"name": "a"}]}}
    }});
    review.to_string().into()
}

/// One admission over a connection.
async fn admit(sender: &mut Sender) -> anyhow::Result<()> {
    // After an answer, a connection needs a moment.
    sender.ready().await?;
    let response = sender.send_request(post("/mutate/ns/mesh", review())).await?;
    anyhow::ensure!(response.status() == StatusCode::OK, "{}", response.status());
    let body = response.into_body().collect().await?.to_bytes();
    let body: Value = serde_json::from_slice(&body)?;
    anyhow::ensure!(body["response"]["allowed"] == true, "{body}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_fails_while_authorities_and_certificates_rotate() {
    // The bundle reaches clients this late; the overlap of this life is 10 s.
    const LATE: usize = 6;
    const CLIENTS: usize = 3;
    let running = start(100).await;
    let clock = running.clock.clone();
    let published = Arc::new(Mutex::new(VecDeque::from([running.state.bundle()])));
    let done: Arc<[AtomicU64; CLIENTS]> = Arc::default();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let (address, clock) = (running.address, clock.clone());
        let (published, done) = (Arc::clone(&published), Arc::clone(&done));
        clients.spawn(async move {
            let bundle = || published.lock().unwrap().front().unwrap().clone();
            let mut kept = connect(address, &bundle(), &clock).await.unwrap();
            loop {
                let reported = bundle();
                let mut sender = connect(address, &reported, &clock).await.unwrap();
                admit(&mut sender).await.unwrap();
                // A connection from the beginning outlives all certificates.
                admit(&mut kept).await.unwrap();
                done[client].fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let (mut state, mut authorities, mut leaves) = (running.state.clone(), 0, 0);
    for second in 1..=300 {
        // Each client connects at least once in every second of that clock.
        let before: Vec<_> = done.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        while done.iter().zip(&before).any(|(now, before)| now.load(Ordering::SeqCst) == *before) {
            assert!(clients.try_join_next().is_none(), "a client failed in second {second}");
            tokio::task::yield_now().await;
        }
        clock.0.store(START + second, Ordering::SeqCst);
        if let Some(next) = next(Some(&state), START + second, lifetimes(), &names()).unwrap() {
            leaves += u32::from(next.leaf != state.leaf);
            authorities += u32::from(next.leaf.authority != state.leaf.authority);
            running.certificates.install(&next).unwrap();
            state = next;
        }
        let mut published = published.lock().unwrap();
        published.push_back(state.bundle());
        if published.len() > LATE {
            published.pop_front();
        }
    }
    assert!(authorities >= 3 && leaves >= 9, "{authorities} {leaves}");
    clients.shutdown().await;
    drop(running.stop);
    running.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn both_versions_of_http_are_spoken() {
    let running = start(10).await;
    let bundle = running.state.bundle();
    let mut sender = connect(running.address, &bundle, &running.clock).await.unwrap();
    admit(&mut sender).await.unwrap();
    // The protocol of the API server.
    let stream = tls(running.address, &bundle, &running.clock, b"h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let io = TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let mut request = post("/mutate/ns/mesh", review());
    *request.uri_mut() = "https://webhook/mutate/ns/mesh".parse().unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(*running.counts.0.lock().unwrap(), ["skipped", "skipped"]);
}

#[tokio::test]
async fn what_is_no_admission_request_is_answered_and_counted() {
    let running = start(10).await;
    let bundle = running.state.bundle();
    let large = vec![b' '; body::LIMIT + 1];
    for (path, body, status) in [
        ("/mutate/ns/mesh", "{}".into(), StatusCode::BAD_REQUEST),
        ("/mutate/ns/mesh", large.into(), StatusCode::PAYLOAD_TOO_LARGE),
        ("/mutate/ns", Bytes::new(), StatusCode::NOT_FOUND),
        ("/pinglist", Bytes::new(), StatusCode::NOT_FOUND),
    ] {
        let mut sender = connect(running.address, &bundle, &running.clock).await.unwrap();
        let response = sender.send_request(post(path, body)).await.unwrap();
        assert_eq!(response.status(), status, "{path}");
    }
    assert_eq!(*running.counts.0.lock().unwrap(), ["error", "error"]);
}

#[tokio::test]
async fn nobody_is_served_before_there_is_a_certificate() {
    let certificates = Certificates::default();
    let address = ([127, 0, 0, 1], 0).into();
    let server = Server::bind(address, &certificates, Counter::default()).await.unwrap();
    let address = server.address().unwrap();
    tokio::spawn(server.run(Router::new(), std::future::pending()));
    let clock = Clock(Arc::new(AtomicI64::new(START)));
    let state = next(None, START, lifetimes(), &names()).unwrap().unwrap();
    assert!(tls(address, &state.bundle(), &clock, b"h2").await.is_err());
    certificates.install(&state).unwrap();
    assert!(tls(address, &state.bundle(), &clock, b"h2").await.is_ok());
}
