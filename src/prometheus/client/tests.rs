//! The client against servers that misbehave in all observed ways.
use std::sync::atomic::Ordering;

use axum::{
    body::Body,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures::{StreamExt, stream};

use super::{
    super::testing::{Directory, JSON, VECTOR, ask, client, client_of, endpoint, recorder, server},
    super::{Budget, Payer},
    *,
};

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
async fn a_token_is_never_sent_over_a_redirect() {
    let (seen, answer) = recorder();
    let (elsewhere, _) = server(answer).await;
    let directory = Directory::new();
    let token = directory.write("token", "hunter2");
    for target in [
        format!("http://localhost:{}/login?state=hunter3", elsewhere.port()),
        format!("http://127.0.0.1:{}/login?state=hunter3", elsewhere.port()),
        "/login?state=hunter3".into(),
    ] {
        let location = target.clone();
        let (address, count) = server(move |_| {
            let location = location.clone();
            async move { (StatusCode::TEMPORARY_REDIRECT, [("location", location)]).into_response() }
        })
        .await;
        let url = format!("http://{address}");
        let fields = format!("bearerTokenFile: {}", token.display());
        let error = ask(&endpoint(&directory, &url, &fields)).await.unwrap_err();
        assert_eq!(error.class, Class::BadAnswer);
        let origin = target.split("/login").next().unwrap();
        let origin = if origin.is_empty() { url.as_str() } else { origin };
        let words = format!("{url}: redirects to {origin}: is this URL the Prometheus API?");
        assert_eq!(error.message, words);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
    assert!(seen.lock().unwrap().is_empty(), "no server received the request");
}

#[tokio::test]
async fn a_range_is_asked_for_in_seconds() {
    let (seen, answer) = recorder();
    let (address, _) = server(answer).await;
    let client = client(&format!("http://{address}"));
    let step = Duration::from_millis(2500);
    let read = |answer: &Answer| Ok(answer.status);
    let asked = client.query_range("a+b", 1_700_000_000, 1_700_000_060, step, step, read);
    assert_eq!(asked.await, Ok(200));
    let seen = seen.lock().unwrap();
    let (headers, body) = &seen[0];
    assert_eq!(headers["content-type"], "application/x-www-form-urlencoded");
    assert_eq!(body, "query=a%2Bb&start=1700000000&end=1700000060&step=2.5&timeout=1000ms");
}

#[tokio::test]
async fn headers_and_parameters_of_the_endpoint_are_sent_by_post_and_by_get() {
    let (seen, answer) = recorder();
    let (address, _) = server(move |request: Request| {
        let answer = answer.clone();
        async move {
            if request.method() == Method::POST {
                let _ = answer(request).await;
                return StatusCode::FORBIDDEN.into_response();
            }
            answer(request).await
        }
    })
    .await;
    let directory = Directory::new();
    let key = directory.write("key", "k1\n");
    let fields = format!(
        "headers: {{X-Scope-OrgID: tenant}}\n    headerFiles: {{X-Api-Key: {}}}\n    parameters: {{partial_response: \"false\"}}",
        key.display()
    );
    let client = endpoint(&directory, &format!("http://{address}"), &fields);
    assert_eq!(ask(&client).await, Ok(0));
    directory.write("key", "k2");
    assert_eq!(ask(&client).await, Ok(0));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3, "POST, GET, GET");
    for ((headers, text), key) in seen.iter().zip(["k1", "k1", "k2"]) {
        assert_eq!(headers["x-scope-orgid"], "tenant");
        assert_eq!(headers["x-api-key"], key);
        assert!(text.contains("query=up") && text.contains("partial_response=false"), "{text}");
    }
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

/// Returns the number of requests with this result, and of durations.
fn counted(client: &Client, result: &str) -> (Option<u64>, Option<u64>) {
    let page = client.0.metrics.encode().unwrap();
    let value = |family: &str, label: &str| {
        let is_it = |line: &&str| line.starts_with(&format!("{family}{{")) && line.contains(label);
        page.lines().find(is_it)?.rsplit(' ').next()?.parse().ok()
    };
    let requests = "traffic_operator_prometheus_requests_total";
    let durations = "traffic_operator_prometheus_request_duration_seconds_count";
    (value(requests, &format!("result=\"{result}\"")), value(durations, "endpoint="))
}

/// The objects of a server that hangs wait for less than its timeout, and no metric showed it.
#[tokio::test]
async fn a_request_that_nobody_waits_for_any_more_counts_as_a_timeout() {
    let (silent, _) = server(async |_| std::future::pending::<Response>().await).await;
    let client = client_of(None, Some(&format!("http://{silent}/")), Duration::from_secs(30));
    let permit = Budget::new(1).permit("default", &Payer::BuiltIn("a".into())).await;
    let query = client.query_vector("up", permit, |_| Ok(()));
    assert!(tokio::time::timeout(Duration::from_millis(50), query).await.is_err());
    assert_eq!(counted(&client, "PrometheusTimeout"), (Some(1), Some(1)));
}

#[tokio::test]
async fn each_request_counts_once_and_one_that_was_not_sent_has_no_duration() {
    let (address, _) = server(async |_| (JSON, VECTOR).into_response()).await;
    let client = client(&format!("http://{address}"));
    client.not_asked(&QueryError::new(Class::OverBudget, "not asked"));
    assert_eq!(counted(&client, "OverBudget"), (Some(1), None));
    assert_eq!(ask(&client).await, Ok(0));
    assert_eq!(counted(&client, "success"), (Some(1), Some(1)));
    assert_eq!(counted(&client, "PrometheusTimeout"), (None, Some(1)));
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let (address, _) = server(async |_| {
        let chunk = "x".repeat(1 << 20);
        let bytes = stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone()));
        (JSON, Body::from_stream(bytes)).into_response()
    })
    .await;
    let client = client_of(None, Some(&format!("http://{address}/")), Duration::from_secs(30));
    let result = client.query("up", Duration::from_secs(30), |_| Ok(())).await;
    let expected = format!("http://{address}: answer is larger than 32 MiB");
    assert_eq!(result.unwrap_err().message, expected);
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

#[tokio::test]
async fn credentials_of_a_url_are_never_shown() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = client(&format!("http://user:secret@{address}"));
    assert_eq!(client.url(), format!("http://{address}"));
    assert!(!ask(&client).await.unwrap_err().message.contains("secret"));
}

/// Sends an answer without end.
async fn endless(_: Request) -> Response {
    let chunk = "x".repeat(1 << 20);
    let bytes = stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone()));
    (JSON, Body::from_stream(bytes)).into_response()
}

#[tokio::test]
async fn a_query_of_an_authors_has_a_smaller_answer() {
    let (address, _) = server(endless).await;
    let client = client_of(None, Some(&format!("http://{address}/")), Duration::from_secs(30));
    let budget = Budget::new(1);
    let ask = async |payer| {
        let permit = budget.permit("default", &payer).await;
        client.query_with_permit("up", permit, |_| Ok(())).await.unwrap_err()
    };
    let error = ask(Payer::Own("a".into())).await;
    assert_eq!(error.class, Class::OverBudget);
    assert!(error.message.starts_with("answer is larger than 4 MiB"), "{error}");
    let error = ask(Payer::BuiltIn("a".into())).await;
    assert_eq!(error.class, Class::BadAnswer);
    assert!(error.message.ends_with(": answer is larger than 32 MiB"), "{error}");
}

#[tokio::test]
async fn large_answers_are_read_two_at_a_time_and_small_ones_past_them() {
    // Twice: 3 MiB at once, then nothing.
    let (stalled, _) = server(async |_| {
        let first = stream::iter([Ok::<_, std::io::Error>("x".repeat(3 << 20))]);
        let body = first.chain(stream::pending());
        (JSON, Body::from_stream(body)).into_response()
    })
    .await;
    let (large, _) = server(async |_| (JSON, " ".repeat(3 << 20) + VECTOR).into_response()).await;
    let (small, _) = server(async |_| (JSON, VECTOR).into_response()).await;
    let budget = Budget::new(1);
    let ask = async |address: std::net::SocketAddr, namespace: &str, seconds| {
        let client =
            client_of(None, Some(&format!("http://{address}/")), Duration::from_secs(seconds));
        let permit = budget.permit("default", &Payer::BuiltIn(namespace.into())).await;
        client.query_with_permit("up", permit, |answer| Ok(answer.body.len())).await
    };
    let started = Instant::now();
    let both = async { tokio::join!(ask(stalled, "a", 2), ask(stalled, "a", 2)) };
    let others = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(ask(small, "b", 1).await, Ok(VECTOR.len()));
        assert!(started.elapsed() < Duration::from_millis(1900), "{:?}", started.elapsed());
        // It waits for one of the two to end.
        let size = ask(large, "b", 20).await;
        assert!(started.elapsed() >= Duration::from_millis(1900), "{:?}", started.elapsed());
        size
    };
    let ((first, second), size) = tokio::join!(both, others);
    assert_eq!(size, Ok((3 << 20) + VECTOR.len()));
    for error in [first, second] {
        assert_eq!(error.unwrap_err().class, Class::Timeout);
    }
}
