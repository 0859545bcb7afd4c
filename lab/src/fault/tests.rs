//! The proxy before a small server of plain HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use futures::StreamExt;
use tokio::sync::mpsc;

use super::*;
use crate::wait::until;

/// Longer than anything here takes, shorter than a person waits.
const SOON: Duration = Duration::from_mins(1);
/// Long enough to show that nothing comes.
const NOTHING: Duration = Duration::from_millis(300);

const NODES: &str = "/api/v1/nodes";

/// A server whose watches deliver what a test sends, and whose other answers are `answer`.
struct Server {
    url: String,
    events: mpsc::UnboundedSender<String>,
    requests: Arc<AtomicUsize>,
    client: reqwest::Client,
}

type Watched = (Arc<AtomicUsize>, Arc<Mutex<Option<mpsc::UnboundedReceiver<String>>>>);

#[allow(clippy::unused_async, reason = "handlers are asynchronous")]
async fn serve(State((requests, events)): State<Watched>, uri: http::Uri) -> Response {
    requests.fetch_add(1, Ordering::SeqCst);
    let taken = if uri.query().is_some_and(|query| query.contains("watch=true")) {
        events.lock().unwrap().take()
    } else {
        None
    };
    let body = match taken {
        Some(events) => {
            Body::from_stream(futures::stream::unfold(events, |mut events| async move {
                let event = events.recv().await?;
                Some((Ok::<_, std::io::Error>(event), events))
            }))
        }
        None => Body::from("answer"),
    };
    Response::new(body)
}

impl Server {
    async fn start() -> Self {
        crate::credentials::install_crypto();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (events, receiver) = mpsc::unbounded_channel();
        let requests = Arc::new(AtomicUsize::new(0));
        let state: Watched = (Arc::clone(&requests), Arc::new(Mutex::new(Some(receiver))));
        let router = Router::new().fallback(serve).with_state(state);
        tokio::spawn(async move { axum::serve(listener, router).await });
        // Connections are not kept: a broken one would make the next request fail.
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0);
        Self { url, events, requests, client: client.build().unwrap() }
    }

    fn event(&self, name: &str, version: u64) {
        let metadata = format!(r#"{{"name":"{name}","resourceVersion":"{version}"}}"#);
        let event = format!(r#"{{"type":"MODIFIED","object":{{"metadata":{metadata}}}}}"#);
        self.events.send(format!("{event}\n")).unwrap();
    }

    async fn get(&self, proxy: &Proxy, target: &str) -> reqwest::Result<reqwest::Response> {
        self.client.get(format!("{}{target}", proxy.url())).timeout(SOON).send().await
    }

    fn count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Asserts that a request gets no answer, and that the server has then had this many.
    async fn is_not_answered(&self, proxy: &Proxy, requests: usize) {
        let mut answer = Box::pin(self.get(proxy, NODES));
        // A request that the server never gets has still to meet its rule, and not the next one.
        let before = proxy.faults();
        let met = || proxy.faults() > before || proxy.is_halted();
        let arrived = async {
            while self.count() < requests || !met() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            answer = &mut answer => panic!("{answer:?}"),
            () = arrived => {}
        }
        assert!(tokio::time::timeout(NOTHING, answer).await.is_err());
        assert_eq!(self.count(), requests);
    }
}

#[tokio::test]
async fn a_request_passes_is_refused_or_throttled_as_the_rules_say() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server.url).await.unwrap();
    assert_eq!(server.get(&proxy, NODES).await.unwrap().text().await.unwrap(), "answer");
    proxy.set([
        Rule::new(Fault::Throttle(7)).resource("nodes").times(1),
        Rule::new(Fault::Refuse(503)).resource("nodes").skip(1).times(1),
    ]);
    let throttled = server.get(&proxy, NODES).await.unwrap();
    assert_eq!(throttled.status(), 429);
    assert_eq!(throttled.headers()["retry-after"], "7");
    let refused = server.get(&proxy, NODES).await.unwrap();
    assert_eq!(refused.status(), 503);
    let status: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(status["kind"], "Status");
    assert_eq!(status["code"], 503);
    assert_eq!(server.count(), 1);
    assert_eq!(server.get(&proxy, NODES).await.unwrap().status(), 200);
    let codes: Vec<_> = proxy.requests().iter().map(|request| request.code).collect();
    assert_eq!((codes, proxy.faults()), (vec![200, 429, 503, 200], 2));
}

#[tokio::test]
async fn bodies_break_and_answers_are_late_or_never_come() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server.url).await.unwrap();
    proxy.set([Rule::new(Fault::Cut(3))]);
    let broken = server.get(&proxy, NODES).await.unwrap();
    assert!(broken.text().await.is_err());
    proxy.set([Rule::new(Fault::Delay(NOTHING))]);
    let began = Instant::now();
    let answer = server.get(&proxy, NODES).await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "answer");
    assert!(began.elapsed() >= NOTHING, "{:?}", began.elapsed());
    let before = server.count();
    proxy.set([Rule::new(Fault::Never)]);
    server.is_not_answered(&proxy, before).await;
}

#[tokio::test]
async fn after_a_halt_nothing_passes() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server.url).await.unwrap();
    proxy.set([Rule::new(Fault::Halt).skip(1).times(1)]);
    assert_eq!(server.get(&proxy, NODES).await.unwrap().status(), 200);
    assert!(!proxy.is_halted());
    server.is_not_answered(&proxy, 2).await;
    assert!(proxy.is_halted());
    assert!(tokio::time::timeout(NOTHING, server.get(&proxy, NODES)).await.is_err());
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn connections_are_refused_or_reset_and_pass_again() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server.url).await.unwrap();
    for wire in [Wire::Refused, Wire::Reset, Wire::Slow(1 << 20)] {
        proxy.wire(wire);
        // The relay learns of it a moment later.
        until(&format!("{wire:?}"), SOON, || async {
            let answer = server.get(&proxy, NODES).await;
            let is_so = answer.is_ok() == matches!(wire, Wire::Slow(_));
            Ok((!is_so).then(|| format!("{answer:?}")))
        })
        .await
        .unwrap();
        proxy.wire(Wire::Open);
        until("open", SOON, || async {
            let answer = server.get(&proxy, NODES).await;
            Ok(answer.err().map(|error| error.to_string()))
        })
        .await
        .unwrap();
    }
}

/// Sends events 1 to 4 about a, b, a, b, and returns the versions: `count` of them, and what follows
/// within a moment.
async fn seen(rules: impl IntoIterator<Item = Rule>, count: usize) -> Vec<String> {
    let server = Server::start().await;
    let proxy = Proxy::before(&server.url).await.unwrap();
    proxy.set(rules);
    let target = format!("{NODES}?watch=true");
    let watch = server.get(&proxy, &target);
    for (name, version) in [("a", 1), ("b", 2), ("a", 3), ("b", 4)] {
        server.event(name, version);
    }
    let mut body = Body::new(reqwest::Body::from(watch.await.unwrap())).into_data_stream();
    let mut text = String::new();
    loop {
        let is_due = text.lines().count() < count;
        let patience = if is_due { Duration::from_mins(1) } else { NOTHING };
        let Ok(chunk) = tokio::time::timeout(patience, body.next()).await else { break };
        let Some(chunk) = chunk else {
            text.push_str("end\n");
            break;
        };
        text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
    }
    text.lines().map(version).collect()
}

/// The version of an event, or the line itself.
fn version(line: &str) -> String {
    let event: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    let version = event["object"]["metadata"]["resourceVersion"].as_str();
    version.or(event["object"]["reason"].as_str()).unwrap_or(line).to_owned()
}

#[tokio::test]
async fn an_event_is_replaced_and_ends_its_watch() {
    let event = |fault| Rule::event(fault).resource("nodes").name("a").times(1);
    for (rule, expected) in [
        (event(EventFault::Gone).skip(1), vec!["1", "2", "Expired", "end"]),
        (event(EventFault::Garbage), vec![r#"{"type":"MODIFIED","object":!}"#, "end"]),
    ] {
        let what = format!("{rule:?}");
        assert_eq!(seen([rule], expected.len()).await, expected, "{what}");
    }
}
