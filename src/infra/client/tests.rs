//! The middleware before a server that is slow, on the paused clock.
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{StreamExt, stream};
use http::Method;
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::core::{DynamicObject, WatchEvent};

use super::*;

/// An answer: its code, the seconds until it begins, and the pieces of its body with the seconds
/// before each.
#[derive(Clone, Copy)]
struct Script {
    code: u16,
    begins: u64,
    pieces: usize,
    pause: u64,
}

const SCRIPT: Script = Script { code: 200, begins: 0, pieces: 1, pause: 0 };

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Sends one request; returns its answer, and the number of requests that left.
async fn send(
    script: Script,
    method: Method,
    target: &str,
    fence: &Fence,
) -> (Result<(StatusCode, Bytes), BoxError>, usize) {
    let left = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&left);
    let server = tower::service_fn(move |_: Request<Body>| {
        let left = Arc::clone(&counted);
        async move {
            // Until it has its connection.
            seconds(script.begins).await;
            left.fetch_add(1, Ordering::Relaxed);
            let pieces = stream::iter(0..script.pieces).then(move |_| async move {
                seconds(script.pause).await;
                Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"x")))
            });
            let mut response = Response::new(StreamBody::new(pieces.boxed()));
            *response.status_mut() = StatusCode::from_u16(script.code).unwrap();
            Ok::<_, BoxError>(response)
        }
    });
    let guard = Guard { fence: fence.clone(), metrics: Metrics::new() };
    let mut service = guard.layer(server);
    let request = Request::builder().method(method).uri(target).body(Body::empty()).unwrap();
    let answer = async {
        let (parts, body) = service.call(request).await?.into_parts();
        Ok((parts.status, body.collect().await?.to_bytes()))
    };
    let answer = answer.await;
    (answer, left.load(Ordering::Relaxed))
}

fn text(answer: Result<(StatusCode, Bytes), BoxError>) -> String {
    answer.unwrap_err().to_string()
}

const NODES: &str = "/api/v1/nodes";
const NODE: &str = "/api/v1/nodes/a";

#[tokio::test(start_paused = true)]
async fn a_page_of_a_list_may_take_long_while_it_makes_progress() {
    let began = Instant::now();
    let slow = Script { pieces: 10, pause: 5, ..SCRIPT };
    let (answer, _) = send(slow, Method::GET, NODES, &Fence::default()).await;
    assert_eq!(answer.unwrap().1.len(), 10);
    assert_eq!(began.elapsed().as_secs(), 50);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_list_without_progress_or_without_an_end_is_given_up() {
    for (script, after, says) in [
        (Script { begins: 11, ..SCRIPT }, 10, "no answer within 10 s"),
        (Script { pieces: 3, pause: 11, ..SCRIPT }, 10, "no answer within 10 s"),
        (Script { pieces: 1000, pause: 1, ..SCRIPT }, 60, "no answer within 60 s"),
    ] {
        let began = Instant::now();
        let (answer, _) = send(script, Method::GET, NODES, &Fence::default()).await;
        assert_eq!((text(answer), began.elapsed().as_secs()), (says.to_owned(), after));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_silent_ends_and_one_that_is_not_answered_fails() {
    let watch = "/api/v1/nodes?watch=true";
    let bookmarks = Script { pieces: 4, pause: 61, ..SCRIPT };
    let dead = Script { pieces: 4, pause: 600, ..SCRIPT };
    for (script, pieces, after) in [(bookmarks, 4, 244), (dead, 0, 75)] {
        let began = Instant::now();
        let (answer, _) = send(script, Method::GET, watch, &Fence::default()).await;
        assert_eq!((answer.unwrap().1.len(), began.elapsed().as_secs()), (pieces, after));
    }
    let began = Instant::now();
    let never = Script { begins: 600, ..SCRIPT };
    let (answer, _) = send(never, Method::GET, watch, &Fence::default()).await;
    assert_eq!((text(answer), began.elapsed().as_secs()), ("no answer within 10 s".to_owned(), 10));
}

#[tokio::test(start_paused = true)]
async fn any_other_answer_must_be_whole_within_ten_seconds() {
    for method in [Method::GET, Method::PATCH] {
        let trickles = Script { pieces: 11, pause: 1, ..SCRIPT };
        let began = Instant::now();
        let (answer, _) = send(trickles, method, NODE, &Fence::open()).await;
        assert_eq!(text(answer), "no answer within 10 s");
        assert_eq!(began.elapsed().as_secs(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_lease_reads_leave_and_writes_do_not() {
    let shut = Fence::default();
    let lease = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b";
    for (method, target, leaves) in [
        (Method::GET, NODE, 1),
        (Method::PATCH, NODE, 0),
        (Method::POST, NODES, 0),
        (Method::DELETE, NODE, 0),
        (Method::PUT, lease, 1),
        (Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", 1),
    ] {
        let (answer, left) = send(SCRIPT, method.clone(), target, &shut).await;
        assert_eq!(left, leaves, "{method} {target}");
        if leaves == 0 {
            assert_eq!(text(answer), "not written: the lease is not held");
        }
    }
}

/// The lease is lost while the connection is made; see also the tests of the fence.
#[tokio::test(start_paused = true)]
async fn a_write_that_waits_for_its_connection_does_not_leave_after_the_lease_is_lost() {
    let slow = Script { begins: 3, ..SCRIPT };
    let fence = Fence::until(Instant::now() + Duration::from_secs(2));
    let (answer, left) = send(slow, Method::PATCH, NODE, &fence).await;
    assert_eq!((text(answer), left), ("not written: the lease is not held".to_owned(), 0));
    let fence = Fence::until(Instant::now() + Duration::from_secs(4));
    let (answer, left) = send(slow, Method::PATCH, NODE, &fence).await;
    assert_eq!((answer.unwrap().0, left), (StatusCode::OK, 1));
}

/// The client library begins with a list only after this event.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_as_too_old_gets_the_event_for_that() {
    let gone = Script { code: 410, ..SCRIPT };
    let watch = "/api/v1/nodes?watch=true&resourceVersion=1";
    let (answer, _) = send(gone, Method::GET, watch, &Fence::default()).await;
    let (code, body) = answer.unwrap();
    assert_eq!(code, StatusCode::OK);
    let event: WatchEvent<DynamicObject> = serde_json::from_slice(&body).unwrap();
    assert!(matches!(event, WatchEvent::Error(status) if status.code == 410), "another event");
    assert_eq!(body.iter().position(|byte| *byte == b'\n'), Some(body.len() - 1), "one line");
    // Only that answer, and only of a watch.
    let (answer, _) = send(gone, Method::GET, NODES, &Fence::default()).await;
    assert_eq!(answer.unwrap().0, StatusCode::GONE);
    let (answer, _) = send(SCRIPT, Method::GET, watch, &Fence::default()).await;
    assert_eq!(answer.unwrap().1, "x");
}
