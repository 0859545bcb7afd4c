//! The cost of an agent to its pod: bytes of its program, resident memory and processor time, with
//! 20 peers that it probes with three protocols every 10 s, 20 that probe it, lists over TLS, and a
//! scrape every 5 s.
//!
//! The program is what `make image` builds, or `"…/traffic-operator agent"`.
use std::{
    env, fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::{sleep, spawn},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use lab::process::kib;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{PrivateKeyDer, pem::PemObject},
};
use traffic_operator_core::pinglist::{Peer, Pinglist, PinglistSelf, Protocol};

const PEERS: u8 = 20;

/// The largest program, in bytes.
const MOST_BYTES: u64 = 6_000_000;

/// The most resident memory, in KiB, at any time.
const MOST_RESIDENT: f64 = 6.0 * 1024.0;

/// The time for which the operator of the bench holds a request: short enough for several in one
/// run.
const HELD: Duration = Duration::from_secs(5);

pub fn run(program: &str, seconds: u64) -> anyhow::Result<()> {
    let directory = env::temp_dir().join(format!("agent-bench-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let measured = measure(program, Duration::from_secs(seconds), &directory);
    fs::remove_dir_all(&directory)?;
    measured
}

/// Measures two agents, each with the other as all of its peers, at as many addresses.
fn measure(program: &str, long: Duration, directory: &Path) -> anyhow::Result<()> {
    let ports = [free_port()?, free_port()?];
    let metrics = [free_port()?, free_port()?];
    let mut agents = Vec::new();
    for (own, other) in [(0, 1), (1, 0)] {
        let url = operator(&list(ports[other])?, directory)?;
        agents.push(Agent(start(program, ports[own], metrics[own], &url, directory)?));
    }
    let id = agents[0].0.id();
    let (started, mut page) = (Instant::now(), String::new());
    while started.elapsed() < long {
        sleep(Duration::from_secs(5));
        page = scrape(metrics[0])?;
    }
    let answered = page
        .lines()
        .filter(|line| line.contains("_probes_total") && line.contains("result=\"success\""))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum::<u64>();
    let series = page.lines().filter(|line| !line.starts_with('#')).count();
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let (resident, most) = (kib(&status, "VmRSS:")?, kib(&status, "VmHWM:")?);
    let (file, anonymous) = (kib(&status, "RssFile:")?, kib(&status, "RssAnon:")?);
    let bytes = fs::metadata(format!("/proc/{id}/exe"))?.len();
    println!(
        "{bytes} bytes of program; {resident} KiB resident ({anonymous} of its own, {file} of files), {most} at most; \
         {answered} probes answered in {long:?}; a page of {series} series and {} bytes",
        page.len()
    );
    ensure!(answered >= u64::from(PEERS) * 3, "too few probes are answered");
    ensure!(bytes <= MOST_BYTES, "the program has more than {MOST_BYTES} bytes");
    ensure!(most <= MOST_RESIDENT, "more than {MOST_RESIDENT} KiB were resident");
    Ok(())
}

/// An agent, killed when this is dropped.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(
    program: &str,
    port: u16,
    metrics: u16,
    url: &str,
    directory: &Path,
) -> anyhow::Result<Child> {
    let mut words = program.split_whitespace();
    let mut command = Command::new(words.next().context("no program")?);
    command
        .args(words)
        .arg("probe")
        .env_clear()
        .env("HTTP_PORT", port.to_string())
        .env("HTTP_PROMETHEUS_PORT", metrics.to_string())
        .env("NET_PROBER_DELIVERY", "Pull")
        .env("NET_PROBER_PROBER", "shop/mesh")
        .env("NET_PROBER_PINGLIST_URL", url)
        .env("NET_PROBER_CA_FILE", directory.join("ca.crt"))
        .env("NET_PROBER_TOKEN_FILE", directory.join("token"))
        .env("NET_PROBER_POD_IPS", "127.0.0.1")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command.spawn().with_context(|| program.to_owned())
}

/// A list with names as long as in clusters; all addresses are loopback addresses.
fn list(port: u16) -> anyhow::Result<String> {
    let node = |i: u8| format!("ip-10-0-0-{i}.eu-central-1.compute.internal");
    let peer = |i: u8| Peer {
        key: format!("shop-frontend-7c9f8d6b5-{i:05}"),
        namespace: "shop".into(),
        name: format!("shop-frontend-7c9f8d6b5-{i:05}"),
        uid: format!("8b8a33a4-1111-2222-3333-{i:012}"),
        ips: vec![[127, 0, 1, i].into()],
        port,
        node: node(i),
        zone: format!("eu-central-1{}", ["a", "b", "c"][usize::from(i % 3)]),
    };
    let list = Pinglist {
        prober: "shop/mesh".into(),
        own: PinglistSelf {
            namespace: "shop".into(),
            name: "shop-frontend-7c9f8d6b5-00000".into(),
            uid: "8b8a33a4-1111-2222-3333-000000000000".into(),
            node: node(0),
            zone: "eu-central-1a".into(),
        },
        period: Duration::from_secs(10),
        timeout: Duration::from_secs(1),
        probes: Protocol::ALL.to_vec(),
        original_metrics: false,
        peers: (1..=PEERS).map(peer).collect(),
        targets: vec![],
    };
    Ok(serde_json::to_string(&list)?)
}

/// Serves that list over TLS; its certificate and a token are in the directory.
fn operator(list: &str, directory: &Path) -> anyhow::Result<String> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()])?;
    let mut authorities = fs::read_to_string(directory.join("ca.crt")).unwrap_or_default();
    authorities.push_str(&cert.pem());
    fs::write(directory.join("ca.crt"), authorities)?;
    fs::write(directory.join("token"), "token")?;
    let key = PrivateKeyDer::from_pem_slice(signing_key.serialize_pem().as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)?;
    let (tls, list) = (Arc::new(tls), Arc::<str>::from(list));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    spawn(move || {
        for stream in listener.incoming().flatten() {
            let (tls, list) = (Arc::clone(&tls), Arc::clone(&list));
            spawn(move || answer(stream, tls, &list));
        }
    });
    Ok(format!("https://localhost:{port}/pinglist"))
}

/// Serves the list to clients that do not have it, and, after a while, an unchanged answer to those
/// that do.
fn answer(stream: TcpStream, tls: Arc<ServerConfig>, list: &str) -> anyhow::Result<()> {
    let mut stream = StreamOwned::new(ServerConnection::new(tls)?, stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        if String::from_utf8_lossy(&head).to_lowercase().contains("if-none-match") {
            sleep(HELD);
            write!(stream, "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n")?;
        } else {
            let length = list.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: {length}\r\n\r\n{list}"
            )?;
        }
        stream.flush()?;
    }
}

fn scrape(port: u16) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    // Prometheus asks for the other form.
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: \
         application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited\r\n\r\n"
    )?;
    ensure!(stream.read_to_end(&mut Vec::new())? > 1000, "no page in protobuf");
    Ok(page)
}

/// A port that is free for TCP and UDP.
fn free_port() -> anyhow::Result<u16> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let port = socket.local_addr()?.port();
    TcpListener::bind(("0.0.0.0", port))?;
    Ok(port)
}
