//! Test servers, certificates, and files that change.
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, extract::Request, response::Response, serve::Listener};
use http::{HeaderMap, header};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{Answer, Client, Endpoints, EndpointsConfig, QueryError, decode};
use crate::metrics::Metrics;

/// An empty answer.
pub const VECTOR: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
/// The header of that answer.
pub const JSON: [(header::HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];

/// Installs the crypto provider, as `main` does; for later tests it is already installed.
pub fn provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A directory that vanishes with the test.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "traffic-operator-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Serves `answer` for every request and counts them.
pub async fn server<F, R>(answer: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(Request) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, serve(listener, answer))
}

fn serve<L, F, R>(listener: L, answer: F) -> Arc<AtomicUsize>
where
    L: Listener<Addr = SocketAddr>,
    F: Fn(Request) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response> + Send,
{
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let router = Router::new().fallback(move |request: Request| {
        counter.fetch_add(1, Ordering::SeqCst);
        answer(request)
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    count
}

/// The headers and the query or body of each request.
pub type Seen = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// Records its requests, and answers with an empty vector.
pub fn recorder()
-> (Seen, impl Fn(Request) -> futures::future::BoxFuture<'static, Response> + Clone) {
    let seen = Seen::default();
    let recorded = Arc::clone(&seen);
    let answer = move |request: Request| {
        let recorded = Arc::clone(&recorded);
        let answer: futures::future::BoxFuture<'static, Response> = Box::pin(async move {
            let (parts, body) = request.into_parts();
            let query = parts.uri.query().unwrap_or_default().to_owned();
            let body = axum::body::to_bytes(body, 10_000).await.unwrap();
            let text = query + std::str::from_utf8(&body).unwrap();
            recorded.lock().unwrap().push((parts.headers, text));
            axum::response::IntoResponse::into_response((JSON, VECTOR))
        });
        answer
    };
    (seen, answer)
}

/// Answers with an empty vector over TLS, on 127.0.0.1.
pub async fn tls_server(config: ServerConfig) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, answer) = recorder();
    serve(TlsListener(listener, TlsAcceptor::from(Arc::new(config))), answer);
    (address, seen)
}

struct TlsListener(TcpListener, TlsAcceptor);

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((stream, address)) = self.0.accept().await else { continue };
            // Some tests use a client that does not trust this server.
            if let Ok(stream) = self.1.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a name, and its key, in PEM.
    pub fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    /// Returns the TLS configuration of a server whose certificate was valid until 2020.
    pub fn expired(&self, name: &str) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        let cert = params.signed_by(&key, &self.0).unwrap().pem();
        Self::serving(&cert, &key.serialize_pem(), None)
    }

    /// Returns the TLS configuration of a server called `name`; with `clients`, it accepts only
    /// clients with a certificate signed by this authority.
    pub fn server(&self, name: &str, clients: Option<&Authority>) -> ServerConfig {
        let (cert, key) = self.issue(name);
        Self::serving(&cert, &key, clients)
    }

    fn serving(cert: &str, key: &str, clients: Option<&Authority>) -> ServerConfig {
        provider();
        let chain =
            vec![rustls::pki_types::CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let builder = ServerConfig::builder();
        let builder = match clients {
            Some(clients) => {
                let mut roots = RootCertStore::empty();
                roots.add(clients.0.der().clone()).unwrap();
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
                builder.with_client_cert_verifier(verifier)
            }
            None => builder.with_no_client_auth(),
        };
        builder.with_single_cert(chain, key).unwrap()
    }
}

/// The client of an endpoint `default` with `url` and these fields, through the loader.
pub fn endpoint(directory: &Directory, url: &str, fields: &str) -> Client {
    provider();
    let text = format!("endpoints:\n  default:\n    url: {url}\n    {fields}\n");
    let file = directory.write("endpoints.yaml", &text);
    client_of(Some(&file), None, Duration::from_secs(5))
}

/// The client of `--prometheus-url`.
pub fn client(url: &str) -> Client {
    client_of(None, Some(url), Duration::from_millis(1500))
}

/// The client of the endpoint `default`.
pub fn client_of(file: Option<&Path>, url: Option<&str>, timeout: Duration) -> Client {
    provider();
    let config = EndpointsConfig::load(file, url, timeout).unwrap();
    Endpoints::new(&config, Metrics::new()).unwrap().get("default").unwrap().clone()
}

/// Queries `up`, and returns the number of elements.
pub async fn ask(client: &Client) -> Result<usize, QueryError> {
    let read = |answer: &Answer| {
        let mut count = 0;
        decode::vector(answer.status, &answer.content_type, &answer.body, |_| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    };
    client.query("up", Duration::from_secs(10), read).await
}
