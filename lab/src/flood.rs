//! Hostile clients on loopback, which show what a server withstands.
//!
//! All of 127.0.0.0/8 is loopback: each client may have an address of its own, as pods have.
use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The pause of a client after a success: clients that tried again at full speed would load this
/// machine instead of the server.
const PAUSE: Duration = Duration::from_millis(20);

/// The start of an HTTP/2 connection, with empty client settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A PING frame of HTTP/2, which must be answered.
const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Hostile clients of servers with the certificate of one authority; clones stop together.
#[derive(Clone)]
pub struct Flood {
    http1: TlsConnector,
    http2: TlsConnector,
    stop: Arc<AtomicBool>,
    attempts: Arc<AtomicUsize>,
}

impl Flood {
    /// Creates clients that know the authority (PEM) of the servers' certificates, as every agent
    /// does.
    pub fn new(authority: &str) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(certificate.context("PEM")?)?;
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let http1 = TlsConnector::from(Arc::new(config.clone()));
        config.alpn_protocols = vec![b"h2".to_vec()];
        let http2 = TlsConnector::from(Arc::new(config));
        Ok(Self { http1, http2, stop: Arc::default(), attempts: Arc::default() })
    }

    /// Stops all clients, each at its next check.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Returns the number of connections that a client has started.
    pub fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }

    /// Posts requests that announce 4 MiB and send a byte now and then.
    pub async fn trickle(self, source: u8, to: SocketAddr, path: &str) {
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 4194304\r\n\r\n");
        while self.goes_on() {
            let Some(mut stream) = connect(&self.http1, source, to).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let mut open = stream.write_all(head.as_bytes()).await.is_ok();
            while open && !self.is_stopped() {
                open = stream.write_all(b" ").await.is_ok();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Holds this many idle connections at a time.
    pub async fn idle(self, source: u8, to: SocketAddr, count: usize) {
        let mut held = VecDeque::new();
        while self.goes_on() {
            match connect(&self.http1, source, to).await {
                Some(stream) => held.push_back(stream),
                None => tokio::time::sleep(PAUSE).await,
            }
            if held.len() > count {
                held.pop_front();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Speaks HTTP/2 without a request: endless pings, then an invalid frame.
    pub async fn junk(self, source: u8, to: SocketAddr) {
        while self.goes_on() {
            let Some(mut stream) = connect(&self.http2, source, to).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let mut open = stream.write_all(PREFACE).await.is_ok();
            for _ in 0..50 {
                open = open && stream.write_all(&PING.repeat(100)).await.is_ok();
            }
            if open {
                // The server may have ended the connection already.
                let _ = stream.write_all(&[0xff; 4096]).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sends requests with invalid tokens, in turns.
    pub async fn tokens(self, source: u8, to: SocketAddr, path: &str, tokens: Vec<String>) {
        for token in tokens.iter().cycle() {
            if !self.goes_on() {
                return;
            }
            let Some(mut stream) = connect(&self.http1, source, to).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let request =
                format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}x\r\n\r\n");
            // A client without an answer retries.
            if stream.write_all(request.as_bytes()).await.is_ok() {
                let _ = tokio::time::timeout(PAUSE, stream.read_u8()).await;
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn goes_on(&self) -> bool {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        !self.is_stopped()
    }
}

/// Connects from 127.0.0.`source`, if the server accepts.
async fn connect(
    connector: &TlsConnector,
    source: u8,
    to: SocketAddr,
) -> Option<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind((Ipv4Addr::new(127, 0, 0, source), 0).into()).ok()?;
    let stream = socket.connect(to).await.ok()?;
    let name = ServerName::from(IpAddr::from([127, 0, 0, 1]));
    connector.connect(name, stream).await.ok()
}
