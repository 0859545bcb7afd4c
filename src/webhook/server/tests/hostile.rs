//! A client of the port that is not an API server.
use futures::{StreamExt, stream::BoxStream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
    time::timeout,
};

use super::*;

/// Longer than any test takes on a busy machine: the API server waits for two seconds.
const PATIENCE: Duration = Duration::from_mins(1);

/// Shorter deadlines, so that tests need not wait as long.
const HURRY: Duration = Duration::from_secs(3);

async fn hurried() -> Running {
    start_with(|server| (server.pace.head, server.pace.answer) = (HURRY, HURRY)).await
}

/// One admission, on an existing connection or on a new one. A machine that is too slow to send it
/// within the deadline tries again: the server takes it for an attacker.
async fn admitted(running: &Running, kept: &mut Option<Sender>) {
    let bundle = running.state.bundle();
    loop {
        let begun = Instant::now();
        let admission = async {
            let mut sender = match kept.take() {
                Some(sender) => sender,
                None => connect(running.address, &bundle, &running.clock).await?,
            };
            admit(&mut sender).await?;
            anyhow::Ok(sender)
        };
        match timeout(PATIENCE, admission).await.expect("an answer") {
            Ok(sender) => return *kept = Some(sender),
            Err(error) => assert!(begun.elapsed() >= HURRY, "{error:#}"),
        }
    }
}

/// Runs an API server that sends twenty requests a second during an attack; each must be answered.
async fn admitted_beside(running: &Running, attack: impl Future<Output = ()>) {
    let asking = async {
        let mut clock = tokio::time::interval(Duration::from_millis(50));
        let mut kept = None;
        loop {
            clock.tick().await;
            admitted(running, &mut kept).await;
            admitted(running, &mut None).await;
        }
    };
    tokio::select! {
        () = asking => {}
        done = timeout(2 * PATIENCE, attack) => done.expect("the attack ends"),
    }
    // On a slow machine the attack may be over before the first answer.
    admitted(running, &mut None).await;
    assert!(running.counts.0.lock().unwrap().contains(&"skipped"));
}

fn attacker(running: &Running, alpn: &[u8]) -> TlsConnector {
    connector(&running.state.bundle(), &running.clock, alpn).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trickling_posts_hold_neither_memory_nor_admission() {
    let running = hurried().await;
    let (connector, to) = (attacker(&running, b"http/1.1"), running.address);
    let attack = async {
        let mut trickles = JoinSet::new();
        for number in 0..40_u8 {
            let connector = connector.clone();
            trickles.spawn(async move {
                let mut stream = tls_from(2 + number % 8, to, &connector).await.ok()?;
                let head =
                    b"POST /mutate/ns/mesh HTTP/1.1\r\nhost: x\r\ncontent-length: 4194304\r\n\r\n";
                stream.write_all(head).await.ok()?;
                // Some send most of it before they trickle.
                stream.write_all(&vec![b' '; usize::from(number % 4) << 20]).await.ok()?;
                let begun = Instant::now();
                while begun.elapsed() < PATIENCE {
                    stream.write_all(b" ").await.ok()?;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Some(())
            });
        }
        while let Some(done) = trickles.join_next().await {
            assert_eq!(done.unwrap(), None, "it was not closed");
        }
    };
    admitted_beside(&running, attack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eighteen_hundred_idle_connections_are_closed_and_in_nobodys_way() {
    let running = hurried().await;
    let (connector, to) = (attacker(&running, b"http/1.1"), running.address);
    let attack = async {
        let mut held = Vec::new();
        for number in 0..1_800_u32 {
            let source = 2 + u8::try_from(number % 6).unwrap();
            held.push(tls_from(source, to, &connector).await.unwrap());
        }
        // Nothing was sent on any of them after the handshake.
        for mut stream in held {
            let mut text = Vec::new();
            let _ = stream.read_to_end(&mut text).await;
            assert!(text.is_empty());
        }
    };
    admitted_beside(&running, attack).await;
}

type Endless = StreamBody<BoxStream<'static, Result<Frame<Bytes>, std::convert::Infallible>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_never_end_and_resets_without_end_are_in_nobodys_way() {
    let running = hurried().await;
    let (connector, to) = (attacker(&running, b"h2"), running.address);
    let attack = async {
        let mut attackers = JoinSet::new();
        for number in 0..12_u8 {
            let connector = connector.clone();
            attackers.spawn(async move { junk(number, to, &connector).await.ok() });
        }
        while attackers.join_next().await.is_some() {}
    };
    admitted_beside(&running, attack).await;
}

async fn junk(number: u8, to: SocketAddr, connector: &TlsConnector) -> anyhow::Result<()> {
    let mut stream = tls_from(2 + number % 6, to, connector).await?;
    if number.is_multiple_of(3) {
        // The preface, and then frames of no known type, as fast as they are taken.
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
        for _ in 0..20_000 {
            stream.write_all(&[0, 0, 5, 0xfa, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5]).await?;
        }
        return Ok(());
    }
    let io = TokioIo::new(stream);
    let executor = TokioExecutor::new();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake::<_, _, Endless>(executor, io).await?;
    let connection = tokio::spawn(connection);
    let mut open = JoinSet::new();
    for turn in 0..2_000_u32 {
        // Sends a byte some time after the previous one.
        let endless = futures::stream::unfold((), async |()| {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Some((Ok(Frame::data(Bytes::from_static(b" "))), ()))
        });
        let endless = StreamBody::new(endless.boxed());
        let request = Request::post("https://webhook/mutate/ns/mesh").body(endless)?;
        if sender.ready().await.is_err() {
            break;
        }
        let answer = sender.send_request(request);
        if number % 3 == 1 {
            open.spawn(answer);
        } else if turn.is_multiple_of(2) {
            // Reset as soon as it was sent.
            let _ = timeout(Duration::from_micros(200), answer).await;
        }
    }
    while open.join_next().await.is_some() {}
    connection.abort();
    Ok(())
}

/// For any number of connections, a source gets its part of the places, and all together no more
/// than the total.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_have_a_limit_in_all_and_for_each_source() {
    const MORE: usize = 40;
    // No connection times out while the next ones are made, however slow the machine is.
    let running = start_with(|server| {
        server.handshake = 10 * PATIENCE;
        server.pace.head = 10 * PATIENCE;
    })
    .await;
    let mut held = Vec::new();
    let mut refused = 0;
    // Four sources use all places; each has more than its part, and then there is a fifth.
    for (source, count) in [(2, 0), (3, 0), (4, 0), (5, 0), (6, MORE)] {
        let count = if count == 0 { OF_ONE_SOURCE + MORE } else { count };
        for _ in 0..count {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((Ipv4Addr::new(127, 0, 0, source), 0).into()).unwrap();
            held.push(socket.connect(running.address).await.unwrap());
        }
        refused += MORE as u64;
        let counted = async {
            while running.refused.get() < refused {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let counted = timeout(PATIENCE, counted).await;
        counted.unwrap_or_else(|_| panic!("{source}: {} refused", running.refused.get()));
    }
}

/// One frame of HTTP/2: its type, and what is in it.
async fn frame(stream: &mut TlsStream<TcpStream>) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).await?;
    Ok((head[3], payload))
}

/// The first frame of a type.
async fn frame_of(stream: &mut TlsStream<TcpStream>, wanted: u8) -> Vec<u8> {
    let found = async {
        loop {
            let (kind, payload) = frame(stream).await.expect("a frame");
            if kind == wanted {
                return payload;
            }
        }
    };
    timeout(PATIENCE, found).await.expect("a frame of that type")
}

/// Its client is informed of the limits of a connection, and a client that resets streams without
/// end is disconnected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_http2_has_limits() {
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    let running = start(10).await;
    let connector = attacker(&running, b"h2");
    let mut stream = tls_from(2, running.address, &connector).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let settings = frame_of(&mut stream, SETTINGS).await;
    let said = |id: u16| {
        let mut all = settings.chunks_exact(6);
        let entry = all.find(|entry| entry[..2] == id.to_be_bytes())?;
        Some(u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]))
    };
    // Streams at a time, the window of each; the size of a head.
    assert_eq!([3, 4, 6].map(said), [Some(STREAMS), Some(WINDOW), Some(HEADERS)]);
    let mut burst = Vec::new();
    for number in 0..1000_u32 {
        let id = (2 * number + 1).to_be_bytes();
        // A complete GET https://…/, and its reset.
        burst.extend([&[0, 0, 3, 1, 5], &id[..], &[0x82, 0x87, 0x84]].concat());
        burst.extend([&[0, 0, 4, 3, 0], &id[..], &[0, 0, 0, 8]].concat());
    }
    // It may be cut off before all of them are sent.
    let _ = stream.write_all(&burst).await;
    let goodbye = frame_of(&mut stream, GOAWAY).await;
    assert_eq!(goodbye[4..8], 11_u32.to_be_bytes(), "ENHANCE_YOUR_CALM");
}
