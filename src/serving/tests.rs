//! Real sockets with separate source addresses: all of 127.0.0.0/8 is loopback.
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Instant,
};

use axum::{body::Body, routing::get};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use super::*;

const LIMITS: Limits = Limits {
    connections: 6,
    of_one_source: 4,
    head: Duration::from_millis(500),
    lifetime: Lifetime::AtMost(Duration::from_secs(2)),
    keep_alive: false,
    newest_wins: false,
};

/// Longer than any test takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

async fn start(limits: Limits, router: Router) -> (SocketAddr, Counter) {
    let refused = Counter::default();
    let address = ([127, 0, 0, 1], 0).into();
    let server = Server::bind(address, limits, None, refused.clone()).await.unwrap();
    let address = server.address().unwrap();
    tokio::spawn(server.run(router, std::future::pending()));
    (address, refused)
}

async fn connect(from: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let source = IpAddr::from(Ipv4Addr::new(127, 0, 0, from));
    socket.bind((source, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Returns the server's answer until it closes; empty if it only closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut text)).await;
    // A reset is an end as well.
    let _ = read.expect("the server closes it");
    String::from_utf8_lossy(&text).into_owned()
}

async fn ask(from: u8, to: SocketAddr) -> String {
    let mut stream = connect(from, to).await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    rest(&mut stream).await
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

#[tokio::test]
async fn one_source_cannot_take_every_place_and_idle_ones_lose_theirs() {
    let patient = Limits { head: PATIENCE * 2, lifetime: Lifetime::AtMost(PATIENCE * 2), ..LIMITS };
    let (address, refused) = start(patient, hello()).await;
    let mut held = Vec::new();
    for _ in 0..10 * LIMITS.connections {
        held.push(connect(2, address).await);
    }
    // Those above its share are closed at once.
    let above = held.split_off(LIMITS.of_one_source);
    for mut stream in above {
        assert_eq!(rest(&mut stream).await, "");
    }
    assert!(refused.get() >= 9 * LIMITS.connections as u64);
    assert!(ask(3, address).await.ends_with("hello"), "another source is served");
    assert_eq!(ask(2, address).await, "", "the same one is not");
    // A released place is free as soon as the server has noticed the end.
    drop(held);
    let again = async {
        while !ask(2, address).await.ends_with("hello") {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, again).await.unwrap();
}

/// A hostile pod on the host network has the address of the kubelet, and no network policy blocks
/// it.
#[tokio::test]
async fn a_source_that_holds_all_its_places_loses_the_oldest_to_its_next_request() {
    let limits = Limits {
        head: PATIENCE * 2,
        lifetime: Lifetime::AtMost(PATIENCE * 2),
        newest_wins: true,
        connections: 4,
        ..LIMITS
    };
    let (address, refused) = start(limits, hello()).await;
    let mut held = Vec::new();
    for round in 1..=3 {
        for _ in 0..LIMITS.of_one_source {
            held.push(connect(2, address).await);
        }
        for source in [2, 3] {
            let answer = ask(source, address).await;
            assert!(answer.ends_with("hello"), "{round}: source {source}: {answer:?}");
        }
    }
    let mut oldest = held.remove(0);
    assert_eq!(rest(&mut oldest).await, "");
    assert!(refused.get() >= 6, "{}", refused.get());
}

#[tokio::test]
async fn a_client_that_sends_nothing_or_trickles_is_cut_off() {
    let (address, _) = start(LIMITS, hello()).await;
    let started = Instant::now();
    let mut silent = connect(2, address).await;
    let mut trickling = connect(3, address).await;
    let (_, sent) = tokio::join!(rest(&mut silent), async {
        let mut sent = 0;
        // Sends a byte whenever the previous one has arrived, for as long as the server allows it.
        while trickling.write_all(b"x").await.is_ok() && started.elapsed() < PATIENCE {
            sent += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        sent
    });
    assert!(sent > 1 && started.elapsed() < PATIENCE, "{sent} bytes, {:?}", started.elapsed());
}

#[tokio::test]
async fn a_connection_ends_with_its_answer_and_never_outlives_its_time() {
    let endless = || {
        let piece = axum::body::Bytes::from(vec![b'x'; 64 * 1024]);
        let pieces = futures::stream::repeat(Ok::<_, std::convert::Infallible>(piece));
        Body::from_stream(pieces)
    };
    let router = hello()
        .route("/endless", get(async move || endless()))
        .route("/hanging", get(async || std::future::pending::<()>().await));
    let limits = Limits { lifetime: Lifetime::AtMost(Duration::from_millis(500)), ..LIMITS };
    let (address, _) = start(limits, router).await;
    // No second request on a connection.
    let mut stream = connect(2, address).await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.contains("connection: close") && answer.ends_with("hello"), "{answer}");
    // Neither a reader of an endless answer nor one that reads nothing keeps its place.
    for path in ["endless", "hanging"] {
        let mut stream = connect(2, address).await;
        stream
            .write_all(format!("GET /{path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())
            .await
            .unwrap();
        rest(&mut stream).await;
    }
    for _ in 0..LIMITS.of_one_source {
        let mut stream = connect(3, address).await;
        stream.write_all(b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        // Kept open, never read.
        tokio::spawn(async move {
            tokio::time::sleep(PATIENCE).await;
            drop(stream);
        });
    }
    let again = async {
        while !ask(3, address).await.ends_with("hello") {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, again).await.unwrap();
}
