//! Both ports while somebody floods them, with a real API server that creates pods meanwhile.
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::StatusCode;
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpSocket, task::JoinSet};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

use super::{agent, lists::Agent, selector};
use crate::bench::{Bench, Operator, run};

/// How many pods are created, twenty a second.
const PODS: u32 = 200;

/// A hostile pod: an address of its own, as all of 127.0.0.0/8 is loopback.
#[derive(Clone)]
struct Hostile {
    connector: TlsConnector,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
}

impl Hostile {
    async fn of(bench: &Bench) -> Self {
        let map = bench.maps("default").get("np").await.expect("ConfigMap");
        let ca = map.data.expect("data")["ca.crt"].clone();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            roots.add(certificate.expect("PEM")).expect("a certificate");
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        Self { connector, stop: Arc::default(), done: Arc::default() }
    }

    async fn connect(
        &self,
        source: u8,
        to: SocketAddr,
    ) -> Option<TlsStream<tokio::net::TcpStream>> {
        let socket = TcpSocket::new_v4().ok()?;
        socket.bind((Ipv4Addr::new(127, 0, 0, source), 0).into()).ok()?;
        let stream = socket.connect(to).await.ok()?;
        let name = ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]));
        self.connector.connect(name, stream).await.ok()
    }

    fn goes_on(&self) -> bool {
        self.done.fetch_add(1, Ordering::SeqCst);
        !self.stop.load(Ordering::SeqCst)
    }

    /// Announces much, and sends a byte now and then.
    async fn trickle(self, source: u8, to: SocketAddr, path: &str) {
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 4194304\r\n\r\n");
        while self.goes_on() {
            let Some(mut stream) = self.connect(source, to).await else { continue };
            let mut open = stream.write_all(head.as_bytes()).await.is_ok();
            while open && !self.stop.load(Ordering::SeqCst) {
                open = stream.write_all(b" ").await.is_ok();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Holds connections on which nothing is said.
    async fn idle(self, source: u8, to: SocketAddr, count: usize) {
        let mut held = std::collections::VecDeque::new();
        while self.goes_on() {
            if let Some(stream) = self.connect(source, to).await {
                held.push_back(stream);
            }
            if held.len() > count {
                held.pop_front();
                // All are there: they are renewed, and not as fast as this machine can.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Brings tokens that are none, of whatever shape.
    async fn tokens(self, source: u8, to: SocketAddr, tokens: Vec<String>) {
        let mut turn = 0;
        while self.goes_on() {
            turn += 1;
            let Some(mut stream) = self.connect(source, to).await else { continue };
            let request = format!(
                "GET /pinglist?prober=default/np HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}x\r\n\r\n",
                tokens[turn % tokens.len()]
            );
            let _ = stream.write_all(request.as_bytes()).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn address(url: &str) -> SocketAddr {
    url.strip_prefix("https://").and_then(|rest| rest.parse().ok()).expect("an address")
}

#[test]
fn s03_pods_get_agents_and_agents_lists_while_both_ports_are_flooded() {
    run(async |bench| {
        // Kubernetes collects pods whose node it does not know.
        bench.node("node-1").await;
        let operator = bench.ready_operator().await;
        bench.prober("np", selector()).await;
        bench.intercepted("default").await;
        let pod = bench.pod("default", "known", json!({})).await;
        bench.runs("default", "known", "10.1.0.1").await;
        let known = Agent::of(&bench, &operator, &pod).await;
        known.until(&[]).await;
        let hostile = Hostile::of(&bench).await;
        let (webhook, lists) = (address(&operator.webhook), address(&operator.pinglists));
        let foreign = bench.token(&pod, "https://kubernetes.default.svc").await;
        let wrong = vec!["nonsense".into(), "a.e30.b".into(), foreign, known.token.clone()];
        let mut attack = JoinSet::new();
        for source in 2..6 {
            for _ in 0..4 {
                attack.spawn(hostile.clone().trickle(source, webhook, "/mutate/default/np"));
                attack.spawn(hostile.clone().trickle(source, lists, "/pinglist"));
            }
            attack.spawn(hostile.clone().idle(source + 4, webhook, 300));
            attack.spawn(hostile.clone().idle(source + 4, lists, 150));
            attack.spawn(hostile.clone().tokens(source + 8, lists, wrong.clone()));
        }
        let slowest = create(&bench, &known).await;
        let done = hostile.done.load(Ordering::SeqCst);
        hostile.stop.store(true, Ordering::SeqCst);
        attack.shutdown().await;
        println!("{done} attacks; the slowest pod took {} ms", slowest.as_millis());
        // How many there are is for the machine to say.
        assert!(done > 100, "{done} attacks");
        told(&operator).await;
    });
}

/// Creates pods, and asks for a list beside each tenth; returns how long the slowest took.
async fn create(bench: &Bench, known: &Agent) -> Duration {
    let mut clock = tokio::time::interval(Duration::from_millis(50));
    let mut slowest = Duration::ZERO;
    for number in 0..PODS {
        clock.tick().await;
        let begun = Instant::now();
        let pod = bench.pod("default", &format!("flood-{number}"), json!({})).await;
        slowest = slowest.max(begun.elapsed());
        assert!(agent(&pod).is_some(), "pod {number} has no agent");
        if number % 10 == 0 {
            let status = known.ask("default/np", 0, None).await.status;
            assert_eq!(status, StatusCode::OK, "beside pod {number}");
        }
    }
    slowest
}

/// It went on, and what came of it is counted.
async fn told(operator: &Operator) {
    let name = "traffic_operator_networkprober_pinglist_requests_total";
    let refused = operator.metric(name, &["code=\"401\""]).await;
    assert!(refused > 0.0, "no token was refused");
}
