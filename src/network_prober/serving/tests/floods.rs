//! Floods against the port of pinglists, on real sockets: all of 127.0.0.0/8 is loopback.
use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use axum::body::{Body, to_bytes};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::Request as HttpRequest;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};

use super::super::*;
use crate::{
    network_prober::tests::{pod, setup, view},
    serving::Server,
};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// The pods that are served: "uid-a" to "uid-h".
const PODS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// A slow API server that accepts tokens that end in "good".
#[derive(Default)]
struct Reviews {
    slow: AtomicBool,
    down: AtomicBool,
    asked: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Reviews {
    fn client(self: &Arc<Self>) -> Client {
        let reviews = Arc::clone(self);
        let service = tower::service_fn(move |request: HttpRequest<kube::client::Body>| {
            let reviews = Arc::clone(&reviews);
            async move { Ok::<_, std::convert::Infallible>(reviews.answer(request).await) }
        });
        Client::new(service, "ops")
    }

    async fn answer(&self, request: HttpRequest<kube::client::Body>) -> http::Response<Body> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let slow = self.slow.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(if slow { 300 } else { 20 })).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        if self.down.load(Ordering::SeqCst) {
            return http::Response::builder().status(503).body(Body::empty()).unwrap();
        }
        let body = to_bytes(Body::new(request.into_body()), usize::MAX).await.unwrap();
        let review: Value = serde_json::from_slice(&body).unwrap();
        let token = review["spec"]["token"].as_str().unwrap();
        let uid = claimed_pod(token, 0).unwrap();
        let status = if token.ends_with("good") {
            json!({"authenticated": true, "audiences": [AUDIENCE], "user": {
                "username": "u", "extra": {"authentication.kubernetes.io/pod-uid": [uid]}}})
        } else {
            json!({"authenticated": false})
        };
        let answer = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": review["spec"], "status": status});
        http::Response::builder().status(201).body(Body::from(answer.to_string())).unwrap()
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Returns the maximum number of concurrent requests since the last call.
    fn most(&self) -> usize {
        self.most.swap(0, Ordering::SeqCst)
    }
}

fn token(audience: &str, uid: &str, signature: &str) -> String {
    let claims = json!({"aud": [audience], "exp": i64::MAX - 100, "kubernetes.io": {
        "namespace": "team", "pod": {"name": "p", "uid": uid}}});
    let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{signature}", part(json!({"alg": "RS256"})), part(claims))
}

struct Running {
    agents: Agents,
    address: SocketAddr,
    reviews: Arc<Reviews>,
    refused: Counter,
}

async fn start(limits: Limits) -> Running {
    let view = view(&json!({}), &PODS.map(|name| pod(name, Some("team/np"), &json!({}))));
    let views = [(("team".to_owned(), "np".to_owned()), Arc::new(view))].into();
    let cluster = ClusterState::knowing(
        setup(Some("operator")),
        Snapshot { views, synced: true, ..Snapshot::default() },
    );
    let (reviews, refused) = (Arc::<Reviews>::default(), Counter::default());
    let (client, shutdown) = (reviews.client(), Shutdown::default());
    let agents = Agents::new(cluster, client, Metrics::new(), shutdown, REVIEWS_OF_ONE_SOURCE);
    let server = Server::bind(([127, 0, 0, 1], 0).into(), limits, None, refused.clone());
    let server = server.await.unwrap();
    let address = server.address().unwrap();
    tokio::spawn(server.run(agents.clone().router(), std::future::pending()));
    Running { agents, address, reviews, refused }
}

async fn connect(from: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, from), 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// One request on a connection; the status, 0 if it is closed without an answer.
async fn ask(stream: &mut TcpStream, token: &str) -> u16 {
    let request = format!(
        "GET /pinglist?prober=team/np&wait=0 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    let exchange = async {
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let read = stream.read(&mut buffer).await.ok()?;
            if read == 0 {
                return None;
            }
            text.extend_from_slice(&buffer[..read]);
            let all = String::from_utf8_lossy(&text).into_owned();
            let Some((head, body)) = all.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.and_then(|length| length.parse().ok()).unwrap_or(0) {
                return head.split(' ').nth(1)?.parse::<u16>().ok();
            }
        }
    };
    timeout(PATIENCE, exchange).await.expect("the server answers or closes").unwrap_or(0)
}

async fn once(from: u8, to: SocketAddr, token: &str) -> u16 {
    ask(&mut connect(from, to).await, token).await
}

/// Counts statuses.
async fn all(mut tasks: JoinSet<u16>) -> HashMap<u16, usize> {
    let mut statuses = HashMap::new();
    while let Some(status) = tasks.join_next().await {
        *statuses.entry(status.unwrap()).or_default() += 1;
    }
    statuses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_cannot_be_good_cost_the_api_server_nothing() {
    let running = start(LIMITS).await;
    let to = running.address;
    let mut floods = JoinSet::new();
    for number in 0..400 {
        let (token, from) = match number % 4 {
            0 => ("nonsense".to_owned(), 2),
            1 => (format!("{}.e30.x", "a".repeat(number)), 3),
            2 => (token("https://kubernetes.default.svc", "uid-a", "x"), 4),
            _ => (token(AUDIENCE, &format!("unknown-{number}"), "x"), 5),
        };
        floods.spawn(async move { once(from, to, &token).await });
    }
    // While unknown pods are waited for, an agent that is known is answered.
    let good = token(AUDIENCE, "uid-a", "good");
    let mut kept = connect(9, to).await;
    assert_eq!(ask(&mut kept, &good).await, 200);
    assert_eq!(ask(&mut kept, &good).await, 200, "on the same connection");
    let statuses = all(floods).await;
    assert_eq!(statuses, [(401, 300), (403, 100)].into());
    assert_eq!(running.reviews.asked(), 1, "one review of the good token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_tokens_of_known_pods_leave_reviews_for_agents() {
    let running = start(LIMITS).await;
    let (to, begun) = (running.address, Instant::now());
    let mut floods = JoinSet::new();
    for number in 0..600_usize {
        let from = 10 + u8::try_from(number % 6).unwrap();
        let uid = ["uid-a", "uid-b", "uid-c"][number / 6 % 3];
        let token = token(AUDIENCE, uid, &format!("wrong{number}"));
        floods.spawn(async move { once(from, to, &token).await });
    }
    // Agents without a reviewed token, one of them behind the address of a flood.
    for (from, uid) in [(9, "uid-a"), (8, "uid-b"), (10, "uid-c")] {
        let good = token(AUDIENCE, uid, "good");
        let answered = async {
            while once(from, to, &good).await != 200 {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        timeout(PATIENCE, answered).await.unwrap_or_else(|_| panic!("{uid} gets no list"));
    }
    let statuses = all(floods).await;
    assert_eq!(statuses, [(401, 600)].into());
    // One review for each pod and address in a second, and those of the good tokens.
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap() + 2;
    let asked = running.reviews.asked();
    assert!(asked <= 18 * seconds + 3, "{asked} reviews in {seconds} s");
    let most = running.reviews.most();
    assert!(most <= REVIEWS, "{most} reviews at once");
}

/// While the agents of a node start, or a client sends wrong tokens of one pod, most reviews stay
/// free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_and_a_pod_have_their_parts_of_the_reviews() {
    let running = start(LIMITS).await;
    let to = running.address;
    running.reviews.slow.store(true, Ordering::SeqCst);
    let mut node = JoinSet::new();
    for name in PODS {
        let good = token(AUDIENCE, &format!("uid-{name}"), "good");
        node.spawn(async move { once(10, to, &good).await });
    }
    assert_eq!(all(node).await, [(200, PODS.len())].into());
    let most = running.reviews.most();
    assert!(most <= REVIEWS_OF_ONE_SOURCE, "{most} reviews of one address at once");
    let mut wrong = JoinSet::new();
    for number in 0..20 {
        let token = token(AUDIENCE, "uid-a", &format!("wrong{number}"));
        wrong.spawn(async move { once(11, to, &token).await });
    }
    assert_eq!(all(wrong).await, [(401, 20)].into());
    assert_eq!(running.reviews.most(), 1, "reviews of one pod at once");
}

/// Its list may be as old as the outage, and its agents would read it for half an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_cannot_ask_the_api_server_sends_its_agents_to_another() {
    let running = start(LIMITS).await;
    let (to, good) = (running.address, token(AUDIENCE, "uid-a", "good"));
    let mut kept = connect(9, to).await;
    assert_eq!(ask(&mut kept, &good).await, 200);
    running.reviews.down.store(true, Ordering::SeqCst);
    assert_eq!(ask(&mut kept, &good).await, 200, "confirmed a moment ago");
    let (mut other, unknown) = (connect(8, to).await, token(AUDIENCE, "uid-b", "good"));
    assert_eq!(ask(&mut other, &unknown).await, 503);
    assert_eq!(ask(&mut other, &unknown).await, 0, "the connection is closed");
    if running.agents.0.tokens.age(Duration::from_mins(6)) {
        assert_eq!(ask(&mut kept, &good).await, 200);
        assert_eq!(ask(&mut kept, &good).await, 0, "the connection is closed");
    }
}

/// A hurried server: tests do not wait as long as clients may.
fn hurried() -> Limits {
    let pace = Pace {
        head: Duration::from_secs(3),
        answer: Duration::from_secs(8),
        idle: Duration::from_mins(2),
    };
    Limits { lifetime: Lifetime::WhileUsed(pace), ..LIMITS }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_keep_no_agent_from_its_list() {
    let limits = Limits { connections: 1_000, ..hurried() };
    let running = start(limits).await;
    let (to, good) = (running.address, token(AUDIENCE, "uid-a", "good"));
    let mut kept = connect(9, to).await;
    assert_eq!(ask(&mut kept, &good).await, 200);
    let mut idle = Vec::new();
    for number in 0..1_800_u32 {
        let mut stream = connect(20 + u8::try_from(number % 5).unwrap(), to).await;
        if number % 3 == 0 {
            // The beginning of an HTTP/2 request, and a request that never ends.
            let junk =
                ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "POST /pinglist HTTP/1.1\r\ncontent-le"];
            let _ = stream.write_all(junk[usize::from(number % 2 == 0)].as_bytes()).await;
        }
        idle.push(stream);
        if number % 100 == 0 {
            assert_eq!(ask(&mut kept, &good).await, 200, "its connection is kept");
            assert_eq!(once(8, to, &token(AUDIENCE, "uid-b", "good")).await, 200, "a new one");
        }
    }
    assert!(running.refused.get() >= 300, "{}", running.refused.get());
    // Those that are left lose their places in a few seconds.
    for mut stream in idle {
        let mut text = Vec::new();
        let end = timeout(PATIENCE, stream.read_to_end(&mut text)).await;
        let _ = end.expect("the server closes it");
    }
    assert_eq!(ask(&mut kept, &good).await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trickling_posts_end_and_hold_no_place() {
    let running = start(hurried()).await;
    let (to, good) = (running.address, token(AUDIENCE, "uid-a", "good"));
    let mut trickles = JoinSet::new();
    for number in 0..100 {
        trickles.spawn(async move {
            let mut stream = connect(30 + number % 4, to).await;
            // A body that is never read, and a head that never ends.
            let begins = [
                "POST /pinglist HTTP/1.1\r\nhost: x\r\ncontent-length: 4194304\r\n\r\n",
                "GET /pinglist HTTP/1.1\r\nhost: x\r\ncookie: ",
            ];
            let begun = Instant::now();
            let begin = begins[usize::from(number % 2)];
            let mut going = stream.write_all(begin.as_bytes()).await.is_ok();
            while going && begun.elapsed() < PATIENCE {
                going = stream.write_all(b"x").await.is_ok();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            u16::from(going)
        });
    }
    for _ in 0..20 {
        assert_eq!(once(9, to, &good).await, 200);
    }
    assert_eq!(all(trickles).await, [(0, 100)].into(), "each is cut off");
}
