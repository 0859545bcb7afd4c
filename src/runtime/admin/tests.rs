//! The paths of each server. With a real API server: `tests/reconcile/scraping.rs`.
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::{
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::{Request, Response, header},
};
use serde_json::json;
use tower::{ServiceExt, service_fn};

use super::*;
use crate::{
    runtime::status_page::{self, Live, STATE_PATH},
    traffic_watch::Memories,
};

async fn ask(router: &Router, path: &str, token: Option<&str>) -> (StatusCode, String) {
    let mut request = Request::get(path);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let mut request = request.body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 1))));
    let answer = router.clone().oneshot(request).await.unwrap();
    let status = answer.status();
    let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn pages_metrics_and_probes_stand_beside_each_other() {
    let page = status_page::router(Arc::new(Live::new(
        "pod-a".into(),
        crate::prometheus::Exporters::default(),
        Memories::default(),
    )));
    let router =
        page.merge(scrape::router(Metrics::new(), None)).merge(probes(Readiness::default()));
    for path in ["/", "/page.css", "/page.js", STATE_PATH, "/metrics", "/livez", "/readyz"] {
        let (status, _) = ask(&router, path, None).await;
        assert_eq!(status, StatusCode::OK, "{path}");
    }
}

/// Families that are larger than all buffers between us and a reader.
#[derive(Debug)]
struct Large;

impl prometheus_client::collector::Collector for Large {
    fn encode(
        &self,
        mut encoder: prometheus_client::encoding::DescriptorEncoder,
    ) -> Result<(), std::fmt::Error> {
        use prometheus_client::{encoding::EncodeMetric, metrics::MetricType};
        let help = "x".repeat(1 << 20);
        for number in 0..64 {
            let name = format!("large_{number}");
            let metric = encoder.encode_descriptor(&name, &help, None, MetricType::Gauge)?;
            prometheus_client::metrics::gauge::ConstGauge::new(1_i64).encode(metric)?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_hold_a_few_pages_and_nobody_elses() {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpSocket, TcpStream},
    };
    async fn ask(from: u8, to: SocketAddr) -> (TcpStream, String) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, from], 0).into()).unwrap();
        let mut stream = socket.connect(to).await.unwrap();
        stream
            .write_all(
                b"GET /metrics HTTP/1.1\r\nhost: x\r\naccept: application/openmetrics-text\r\n\r\n",
            )
            .await
            .unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        (stream, String::from_utf8_lossy(&first).into_owned())
    }
    let metrics = Metrics::new();
    metrics.register_streaming(Box::new(Large));
    let address = ([127, 0, 0, 1], 0).into();
    let server = Server::bind(address, SCRAPES, None, metrics.refused_connections("metrics"));
    let server = server.await.unwrap();
    let address = server.address().unwrap();
    let router = scrape::router(metrics.clone(), None);
    tokio::spawn(server.run(router, std::future::pending()));
    let mut slow = Vec::new();
    for _ in 0..4 {
        let (stream, status) = ask(2, address).await;
        assert_eq!(status, "HTTP/1.1 200");
        slow.push(stream);
    }
    assert_eq!(ask(2, address).await.1, "HTTP/1.1 503", "four pages for one address");
    let (mut other, status) = ask(3, address).await;
    assert_eq!(status, "HTTP/1.1 200");
    let mut page = Vec::new();
    other.read_to_end(&mut page).await.unwrap();
    assert!(page.len() > 64 << 20, "{}", page.len());
    assert!(String::from_utf8_lossy(&page).contains("# EOF\n"), "the page is complete");
    // A client that disconnects releases the page, and no counter waited for a slow reader.
    metrics.reconciled("x", "", Duration::ZERO, Some("a new label"));
    drop(slow);
    let free = async {
        while ask(2, address).await.1 != "HTTP/1.1 200" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), free).await.unwrap();
}

/// Returns an API server that answers reviews with this status, and its number of requests.
fn api_server(code: u16) -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let service = service_fn(move |_: Request<kube::client::Body>| {
        count.fetch_add(1, Ordering::SeqCst);
        let body = match code {
            201 => json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {},
                "spec": {}, "status": {"authenticated": false},
            }),
            _ => json!({
                "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
                "reason": "ServiceUnavailable", "message": "no", "metadata": {},
            }),
        };
        let body = kube::client::Body::from(body.to_string().into_bytes());
        let answer = Response::builder().status(code).body(body).unwrap();
        async { Ok::<_, std::convert::Infallible>(answer) }
    });
    (Client::new(service, "default"), asked)
}

#[tokio::test]
async fn without_an_api_server_nobody_new_reads_and_nothing_breaks() {
    let (client, asked) = api_server(503);
    let router = scrape::router(Metrics::new(), Some(Access::to(scrape::PATH, client)));
    let (status, text) = ask(&router, "/metrics", Some("secret-token")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!text.contains("secret-token"), "{text}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let (status, _) = ask(&router, "/metrics", None).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "a request without a token needs no review");
}

#[tokio::test]
async fn a_thousand_wrong_tokens_are_one_review_a_second() {
    let (client, asked) = api_server(201);
    let router = scrape::router(Metrics::new(), Some(Access::to(scrape::PATH, client)));
    let started = std::time::Instant::now();
    for number in 0..1000 {
        let (status, _) = ask(&router, "/metrics", Some(&format!("wrong-{number}"))).await;
        let expected = [StatusCode::UNAUTHORIZED, StatusCode::TOO_MANY_REQUESTS];
        assert!(expected.contains(&status), "{status}");
    }
    let most = 2 + usize::try_from(started.elapsed().as_secs()).unwrap();
    let asked = asked.load(Ordering::SeqCst);
    assert!((1..=most).contains(&asked), "{asked} reviews, {most} at most");
}
