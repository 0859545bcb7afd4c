use std::fs;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::resolve::tests::{answer, server as dns};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A probe on loopback, with files of its own.
struct Stage {
    directory: PathBuf,
    prober: Prober,
    metrics: Metrics,
}

impl Stage {
    async fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("destination-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("resolv.conf"), "nameserver 127.0.0.1\nsearch svc").unwrap();
        fs::write(directory.join("hosts"), "127.0.0.1 local").unwrap();
        let dns_port = dns("web.svc", |kind, question| {
            let local: &[(u16, &[u8])] = &[(1, &[127, 0, 0, 1])];
            answer(question, [0x81, 0x80], if kind == 1 { local } else { &[] })
        });
        let surroundings = Surroundings {
            hosts: directory.join("hosts"),
            resolver: directory.join("resolv.conf"),
            dns_port: dns_port.await,
            timeout: PATIENCE,
            is_forbidden: |_| false,
            ..Surroundings::of(&Identity::default(), directory.join("cluster.crt"))
        };
        Self { directory, prober: Prober { surroundings }, metrics: Metrics::new() }
    }

    /// Probes once, as a slot does.
    async fn probe(&self, to: &Destination) -> Result<(), (Phase, Reason)> {
        let probed = self.prober.probe(to, &self.metrics.target(to)).await;
        probed.map_err(|(phase, why)| match why {
            Unanswered::Failed(reason) => (phase, reason),
            Unanswered::Local => panic!("{phase:?}: this machine cannot probe"),
        })
    }

    /// Returns the number of times that each phase has succeeded.
    fn succeeded(&self, target: &str) -> Vec<(String, u64)> {
        let of = format!("netprober_target_phase_seconds_count{{target=\"{target}\",phase=\"");
        let lines = page(&self.metrics);
        let lines = lines.lines().filter_map(|line| line.strip_prefix(&of)?.split_once("\"} "));
        let mut found: Vec<_> =
            lines.map(|(phase, count)| (phase.to_owned(), count.parse().unwrap())).collect();
        found.sort();
        found
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn page(metrics: &Metrics) -> String {
    let mut page = String::new();
    let encode = |registry: &_| prometheus_client::encoding::text::encode(&mut page, registry);
    metrics.encode_with(encode).unwrap();
    page
}

fn to(host: &str, port: Option<u16>, tls: bool, path: Option<&str>) -> Destination {
    Destination { name: "t".into(), host: host.into(), port, tls, path: path.map(Into::into) }
}

/// Answers every request with this status, and keeps the connection.
async fn web(status: &'static str) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).await.unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            if request.starts_with("GET /health?x=1 HTTP/1.1\r\n") && request.contains("\r\nhost: ")
            {
                // A body that never ends.
                let answer = format!(
                    "HTTP/1.1 {status}\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 9\r\n\r\n"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
            open.push(stream);
        }
    });
    port
}

#[tokio::test]
async fn an_answer_is_judged_by_its_status_alone() {
    let stage = Stage::new("status").await;
    let failed = Err((Phase::FirstByte, Reason::Status));
    for (status, expected) in [
        ("200 OK", Ok(())),
        ("302 Found", Ok(())),
        ("401 Unauthorized", Ok(())),
        ("403 Forbidden", Ok(())),
        ("404 Not Found", failed),
        ("503 Service Unavailable", failed),
    ] {
        let port = web(status).await;
        let probed = stage.probe(&to("web", Some(port), false, Some("/health?x=1"))).await;
        assert_eq!(probed, expected, "{status}");
    }
    let of = |phase: &str, count| (phase.to_owned(), count);
    assert_eq!(stage.succeeded("t"), [of("connect", 6), of("dns", 6), of("first_byte", 4)]);
}

#[tokio::test]
async fn a_target_has_the_phases_that_it_names() {
    let stage = Stage::new("phases").await;
    let port = web("200 OK").await;
    let closed = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let refused = closed.local_addr().unwrap().port();
    drop(closed);
    for (target, expected, phases) in [
        (to("web", None, false, None), Ok(()), &["dns"][..]),
        (to("web.svc.", None, false, None), Ok(()), &["dns"]),
        (to("local", Some(port), false, None), Ok(()), &["connect", "dns"]),
        (to("127.0.0.1", Some(port), false, None), Ok(()), &["connect"]),
        (
            to("nobody", Some(port), false, None),
            Err((Phase::Dns, Reason::NotFound)),
            &["connect", "dns"],
        ),
        (
            to("web", Some(refused), false, None),
            Err((Phase::Connect, Reason::Refused)),
            &["connect", "dns"],
        ),
    ] {
        assert_eq!(stage.probe(&target).await, expected, "{target:?}");
        let found: Vec<_> = stage.succeeded("t").into_iter().map(|(phase, _)| phase).collect();
        assert_eq!(found, phases, "{target:?}");
        stage.metrics.forget_target("t");
    }
}

#[tokio::test]
async fn a_silent_server_fails_the_phase_that_it_is_in() {
    let mut stage = Stage::new("silent").await;
    stage.prober.surroundings.timeout = Duration::from_millis(500);
    let port = web("200 OK").await;
    let http = stage.probe(&to("local", Some(port), false, Some("/other"))).await;
    assert_eq!(http, Err((Phase::FirstByte, Reason::Timeout)));
    let tls = stage.probe(&to("local", Some(port), true, Some("/"))).await;
    assert_eq!(tls, Err((Phase::Tls, Reason::Timeout)));
}

/// Accepts TLS with a certificate for `web`; returns the port, and the certificate.
async fn secure() -> (u16, String) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["web".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        }
    });
    (port, cert.pem())
}

#[tokio::test]
async fn certificates_are_verified() {
    let stage = Stage::new("tls").await;
    let (port, pem) = secure().await;
    let target = to("web", Some(port), true, Some("/"));
    let certificate = Err((Phase::Tls, Reason::Certificate));
    assert_eq!(stage.probe(&target).await, certificate, "no CA of a cluster");
    fs::write(stage.directory.join("cluster.crt"), secure().await.1).unwrap();
    assert_eq!(stage.probe(&target).await, certificate, "another CA");
    fs::write(stage.directory.join("cluster.crt"), pem).unwrap();
    assert_eq!(stage.probe(&target).await, Ok(()), "the file is read again");
    let of = |phase: &str, count| (phase.to_owned(), count);
    let all = [of("connect", 3), of("dns", 3), of("first_byte", 1), of("tls", 1)];
    assert_eq!(stage.succeeded("t"), all);
    let other = to("local", Some(port), true, Some("/"));
    assert_eq!(stage.probe(&other).await, certificate, "another name");
}

/// A name that leads to such an address is no way around.
#[tokio::test]
async fn no_target_reaches_loopback_or_metadata() {
    for (address, forbidden) in [
        ("127.0.0.1", true),
        ("127.9.9.9", true),
        ("::1", true),
        ("::ffff:127.0.0.1", true),
        ("169.254.169.254", true),
        ("64:ff9b::169.254.169.254", true),
        ("64:ff9b::192.0.2.1", false),
        ("fe80::1", true),
        ("0.0.0.0", true),
        ("0.1.2.3", true),
        ("::", true),
        ("224.0.0.1", true),
        ("ff02::1", true),
        ("255.255.255.255", true),
        ("168.63.129.16", true),
        ("100.100.100.200", true),
        ("fd00:ec2::254", true),
        ("10.96.0.1", false),
        ("192.168.1.1", false),
        ("100.64.0.1", false),
        ("2001:db8::1", false),
        ("fd00::1", false),
    ] {
        assert_eq!(is_forbidden(address.parse().unwrap()), forbidden, "{address}");
    }
    let mut stage = Stage::new("forbidden").await;
    stage.prober.surroundings.is_forbidden = is_forbidden;
    let port = web("200 OK").await;
    let forbidden = Err((Phase::Connect, Reason::Forbidden));
    for host in ["web", "local", "127.0.0.1"] {
        assert_eq!(stage.probe(&to(host, Some(port), false, Some("/"))).await, forbidden, "{host}");
    }
}

#[test]
fn all_series_of_a_target_vanish_with_it_and_are_bounded() {
    let metrics = Metrics::new();
    let target = to("web", Some(1), true, Some("/"));
    let series = metrics.target(&target);
    let count =
        |page: &str| page.lines().filter(|line| line.starts_with("netprober_target_")).count();
    // Histograms of four phases, and two results.
    assert_eq!(count(&page(&metrics)), 42);
    series.success();
    for phase in Phase::ALL {
        for reason in Reason::ALL {
            series.failure(phase, reason);
        }
    }
    assert!(count(&page(&metrics)) > 42);
    metrics.forget_target("t");
    assert_eq!(count(&page(&metrics)), 0);
}
