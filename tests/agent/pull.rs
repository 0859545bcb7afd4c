//! Lists from the operator, which a small TLS server stands in for.
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    time::{Instant, sleep},
};
use tokio_rustls::TlsAcceptor;

use crate::stage::{ALL, Agent, Directory, Page};

/// The time for which the server holds a request whose list has not changed.
const HELD: Duration = Duration::from_secs(2);

/// One request, as the server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    path: String,
    headers: BTreeMap<String, String>,
    status: u16,
}

struct State {
    tls: Arc<ServerConfig>,
    token: String,
    list: String,
    version: u32,
    /// Status of every answer, if set.
    broken: Option<u16>,
    seen: Vec<Seen>,
}

type Shared = Arc<Mutex<State>>;

struct Operator {
    address: SocketAddr,
    state: Shared,
    _runtime: Runtime,
}

/// A CA in PEM form, and a server that has a certificate of it.
fn authority() -> (String, Arc<ServerConfig>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "test CA");
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &ca).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(leaf.pem().as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
    (ca.pem(), Arc::new(config))
}

impl Operator {
    fn start() -> (Self, String) {
        let (ca, tls) = authority();
        let state = State {
            tls,
            token: "first".into(),
            list: list(&[]),
            version: 1,
            broken: None,
            seen: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&state);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        (Self { address, state, _runtime: runtime }, ca)
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    fn publish(&self, text: String) {
        self.with(|state| {
            state.list = text;
            state.version += 1;
        });
    }
}

/// Handles one request.
async fn serve(stream: TcpStream, shared: Shared) {
    let tls = Arc::clone(&shared.lock().unwrap().tls);
    let Ok(mut stream) = TlsAcceptor::from(tls).accept(stream).await else { return };
    let mut request = Vec::new();
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.is_ok_and(|length| length > 0) {
            continue;
        }
        return;
    }
    let request = String::from_utf8(request).unwrap();
    let mut lines = request.lines();
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let headers: BTreeMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let asked = Instant::now();
    let waits = !path.contains("wait=0");
    let (status, etag, body) = loop {
        {
            let state = shared.lock().unwrap();
            let etag = format!("\"{}\"", state.version);
            if let Some(status) = state.broken {
                break (status, etag, "not now".to_owned());
            }
            if headers.get("authorization") != Some(&format!("Bearer {}", state.token)) {
                break (401, etag, "bad token".to_owned());
            }
            if headers.get("if-none-match") != Some(&etag) {
                break (200, etag, state.list.clone());
            }
            if !waits || asked.elapsed() > HELD {
                break (304, etag, String::new());
            }
        }
        sleep(Duration::from_millis(20)).await;
    };
    shared.lock().unwrap().seen.push(Seen { path, headers, status });
    let mut answer = format!(
        "HTTP/1.1 {status} X\r\nETag: {etag}\r\nContent-Length: {}\r\nConnection: close\r\n",
        body.len()
    );
    if status == 302 {
        answer.push_str("Location: https://localhost:1/elsewhere\r\n");
    }
    let _ = write!(answer, "\r\n{body}");
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Returns peers by name and port, at 127.0.0.2.
fn list(peers: &[(&str, u16)]) -> String {
    let peer = |(name, port): &(&str, u16)| {
        format!(
            r#"{{"key":"{name}","namespace":"ns","name":"{name}","uid":"u","ips":["127.0.0.2"],"port":{port},"node":"node-{name}","zone":"z"}}"#
        )
    };
    let peers: Vec<_> = peers.iter().map(peer).collect();
    format!(
        r#"{{"prober":"ns/mesh","self":{{"namespace":"ns","name":"me","uid":"u","node":"node-me","zone":"z"}},
        "period":"200ms","timeout":"200ms","probes":{ALL},"originalMetrics":false,"peers":[{}]}}"#,
        peers.join(",")
    )
}

/// Starts an agent that pulls from this server, with its CA and token files.
fn agent(operator: &Operator, ca: &str, ttl: &str) -> (Agent, Directory) {
    let files = Directory::new();
    fs::write(files.path("ca.crt"), ca).unwrap();
    fs::write(files.path("token"), "first\n").unwrap();
    let url = format!("https://localhost:{}/pinglist", operator.address.port());
    let (ca, token) = (files.path("ca.crt"), files.path("token"));
    let variables = [
        ("NET_PROBER_DELIVERY", "Pull"),
        ("NET_PROBER_PINGLIST_URL", url.as_str()),
        ("NET_PROBER_PROBER", "ns/mesh"),
        ("NET_PROBER_CA_FILE", ca.to_str().unwrap()),
        ("NET_PROBER_TOKEN_FILE", token.to_str().unwrap()),
        ("NET_PROBER_PINGLIST_TTL", ttl),
    ];
    (Agent::with(&variables, &[]), files)
}

fn refreshes(page: &Page, result: &str) -> i64 {
    page.sum("netprober_pinglist_refreshes_total", &[("result", result)])
}

#[test]
fn lists_are_followed_and_asked_for_as_agreed() {
    let (operator, ca) = Operator::start();
    let peer = Agent::start();
    operator.publish(list(&[("b", peer.port), ("c", peer.port)]));
    let (agent, _files) = agent(&operator, &ca, "10m");
    let page =
        agent.page_with("probes", |page| page.successes("b") >= 3 && page.successes("c") >= 3);
    assert!(!page.text.contains("netprober_interpod_latency_s_count"), "{}", page.text);
    agent.page_with("nothing new", |page| refreshes(page, "unchanged") >= 1);
    operator.publish(list(&[("b", peer.port)]));
    let page = agent.page_with("another list", |page| refreshes(page, "changed") >= 2);
    assert!(!page.text.contains("node-c"), "{}", page.text);

    let seen = operator.with(|state| state.seen.clone());
    assert_eq!(seen[0].path, "/pinglist?prober=ns%2Fmesh&wait=0");
    assert_eq!(seen[0].headers["authorization"], "Bearer first");
    assert!(!seen[0].headers.contains_key("if-none-match"));
    assert_eq!(seen[1].path, "/pinglist?prober=ns%2Fmesh&wait=50");
    assert_eq!(seen[1].headers["if-none-match"], "\"2\"");
    let statuses: Vec<_> = seen.iter().map(|seen| seen.status).collect();
    assert!(statuses.starts_with(&[200, 304]), "{statuses:?}");
}

#[test]
fn a_new_token_is_read_and_no_token_goes_to_a_redirect() {
    let (operator, ca) = Operator::start();
    let peer = Agent::start();
    operator.publish(list(&[("b", peer.port)]));
    let (agent, files) = agent(&operator, &ca, "10m");
    let page = agent.page_with("probes", |page| page.successes("b") >= 3);
    operator.with(|state| state.token = "second".into());
    // The held request was valid when it arrived; the next one is not.
    agent.page_with("refused", |page| refreshes(page, "error") >= 2);
    fs::write(files.path("token"), "second\n").unwrap();
    let good = |page: &Page| refreshes(page, "changed") + refreshes(page, "unchanged");
    let before = good(&agent.page());
    agent.page_with("accepted again", |page| good(page) > before);
    operator.with(|state| state.broken = Some(302));
    let errors = refreshes(&agent.page(), "error");
    let page_now = agent.page_with("no redirect", |page| refreshes(page, "error") > errors);
    // The last list was valid all that time.
    assert!(page_now.successes("b") > page.successes("b"));
    assert!(page_now.failures("b") == 0, "{}", page_now.text);
    let log = agent.log();
    assert!(log.contains("401") && log.contains("bad token"), "{log}");
    assert!(!log.contains("Bearer") && !log.contains("second"), "{log}");
}

#[test]
fn another_authority_is_trusted_once_its_certificate_is_there() {
    let (operator, ca) = Operator::start();
    let peer = Agent::start();
    operator.publish(list(&[("b", peer.port)]));
    let (agent, files) = agent(&operator, &ca, "10m");
    agent.page_with("the list", |page| refreshes(page, "changed") == 1);
    let (other, tls) = authority();
    operator.with(|state| state.tls = tls);
    agent.page_with("not trusted", |page| refreshes(page, "error") >= 1);
    operator.publish(list(&[("c", peer.port)]));
    let both = format!("{ca}{other}");
    fs::write(files.path("ca.crt"), both).unwrap();
    agent.page_with("trusted", |page| page.successes("c") >= 1);
    // A temporarily empty file, as while it is being written, is an error without further effect.
    fs::write(files.path("ca.crt"), "").unwrap();
    let errors = refreshes(&agent.page(), "error");
    agent.page_with("no authority", |page| refreshes(page, "error") > errors);
    fs::write(files.path("ca.crt"), other).unwrap();
    operator.publish(list(&[("d", peer.port)]));
    agent.page_with("trusted again", |page| page.successes("d") >= 1);
}

#[test]
fn a_list_that_nobody_confirms_is_given_up_until_the_operator_is_back() {
    let (operator, ca) = Operator::start();
    let peer = Agent::start();
    operator.publish(list(&[("b", peer.port)]));
    // Ten periods are two seconds.
    let (agent, _files) = agent(&operator, &ca, "5s");
    agent.page_with("probes", |page| page.successes("b") >= 3);
    operator.with(|state| state.broken = Some(503));
    let page = agent.page_with("given up", |page| page.sum("netprober_peers", &[]) == 0);
    assert!(!page.text.contains("node-b"), "{}", page.text);
    assert!(agent.log().contains("probing stops"), "{}", agent.log());
    // The list is the same: the operator answers 304.
    operator.with(|state| state.broken = None);
    let page = agent.page_with("taken up", |page| page.successes("b") >= 3);
    assert!(refreshes(&page, "changed") == 1, "{}", page.text);
}

#[test]
fn nonsense_is_an_error_and_no_list() {
    let (operator, ca) = Operator::start();
    operator.publish("{\"peers\":[]}".into());
    let (agent, _files) = agent(&operator, &ca, "10m");
    agent.page_with("an error", |page| refreshes(page, "error") >= 1);
    operator.publish(format!("{}{}", " ".repeat(2 << 20), list(&[])));
    let page = agent.page_with("another", |page| refreshes(page, "error") >= 2);
    assert!(refreshes(&page, "changed") == 0);
    operator.publish(list(&[]));
    agent.page_with("a list", |page| refreshes(page, "changed") == 1);
}
