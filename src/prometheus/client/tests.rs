//! The client against servers that misbehave in every way that was seen.
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::stream;

use super::{super::decode, *};

const VECTOR: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
const JSON: [(header::HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];

/// Serves `answer` for every request and counts them.
async fn server<F, R>(answer: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(Request) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response> + Send,
{
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let router = Router::new().fallback(move |request: Request| {
        counter.fetch_add(1, Ordering::SeqCst);
        answer(request)
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, count)
}

fn client(url: &str) -> Client {
    // The binary does it in `main`; the second test finds it done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = Config { url: url.into(), timeout: Duration::from_millis(1500) };
    Client::new(&config, Metrics::new()).unwrap()
}

async fn ask(client: &Client) -> Result<usize, QueryError> {
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

#[tokio::test]
async fn asks_by_post_with_a_timeout_for_the_server() {
    let (address, _) = server(async |request: Request| {
        assert_eq!(request.method(), Method::POST);
        assert_eq!(request.uri().path(), "/base/api/v1/query");
        let body = axum::body::to_bytes(request.into_body(), 1000).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert!(body.contains("query=up") && body.contains("timeout=1000ms"), "{body}");
        (JSON, VECTOR).into_response()
    })
    .await;
    assert_eq!(ask(&client(&format!("http://{address}/base"))).await, Ok(0));
}

#[tokio::test]
async fn a_proxy_that_refuses_post_is_asked_by_get_from_then_on() {
    for refusal in [403, 405, 501] {
        let (address, count) = server(move |request: Request| async move {
            if request.method() == Method::POST {
                return StatusCode::from_u16(refusal).unwrap().into_response();
            }
            (JSON, VECTOR).into_response()
        })
        .await;
        let client = client(&format!("http://{address}"));
        assert_eq!(ask(&client).await, Ok(0));
        assert_eq!(ask(&client).await, Ok(0));
        assert_eq!(count.load(Ordering::SeqCst), 3, "POST, GET, GET");
    }
}

#[tokio::test]
async fn a_redirect_to_another_host_is_not_followed() {
    let (elsewhere, visits) = server(async |_| (JSON, VECTOR).into_response()).await;
    let target = format!("http://localhost:{}/", elsewhere.port());
    let (address, _) = server(move |_| {
        let target = target.clone();
        async move { (StatusCode::FOUND, [(header::LOCATION, target)]).into_response() }
    })
    .await;
    let error = ask(&client(&format!("http://{address}"))).await.unwrap_err();
    assert_eq!(error.class, Class::BadAnswer);
    assert_eq!(visits.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn silence_and_trickle_end_at_the_deadline() {
    let (silent, _) = server(async |_| std::future::pending::<Response>().await).await;
    let (trickle, _) = server(async |_| {
        let bytes = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Some((Ok::<_, std::io::Error>(" "), ()))
        });
        (JSON, Body::from_stream(bytes)).into_response()
    })
    .await;
    for address in [silent, trickle] {
        let started = Instant::now();
        let error = ask(&client(&format!("http://{address}"))).await.unwrap_err();
        assert_eq!(error.class, Class::Timeout);
        assert!(started.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let (address, _) = server(async |_| {
        let chunk = "x".repeat(1 << 20);
        let bytes = stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone()));
        (JSON, Body::from_stream(bytes)).into_response()
    })
    .await;
    let mut config = Config { url: format!("http://{address}"), timeout: Duration::from_secs(30) };
    config.url.push('/');
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::new(&config, Metrics::new()).unwrap();
    let result = client.query("up", Duration::from_secs(30), |_| Ok(())).await;
    assert_eq!(result.unwrap_err().message, "answer is larger than 32 MiB");
}

#[tokio::test]
async fn nobody_there_is_unreachable_and_named_without_the_query() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = ask(&client(&url)).await.unwrap_err();
    assert_eq!(error.class, Class::Unreachable);
    assert!(error.message.starts_with(&url) && error.message.contains("refused"), "{error}");
}

#[test]
fn urls_that_are_none_are_refused_by_the_flag_s_name() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    for url in ["", "prometheus:9090", "ftp://prometheus", "http://", "/path"] {
        let config = Config { url: url.into(), timeout: Duration::from_secs(1) };
        let error = Client::new(&config, Metrics::new()).err().map(|e| e.to_string());
        assert!(error.as_ref().is_some_and(|e| e.contains("--prometheus-url")), "{url}: {error:?}");
    }
}

#[tokio::test]
async fn credentials_of_a_url_are_never_shown() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = client(&format!("http://user:secret@{address}"));
    assert_eq!(client.url(), format!("http://{address}"));
    assert!(!ask(&client).await.unwrap_err().message.contains("secret"));
}
