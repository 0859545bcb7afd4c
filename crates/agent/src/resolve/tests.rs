use proptest::prelude::*;
use tokio::net::{TcpListener, UdpSocket};

use super::*;

const BOTH: Families = Families { v4: true, v6: true };
const V4: Families = Families { v4: true, v6: false };

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn the_file_is_read_as_libc_reads_it() {
    let text = "# comment\ndomain first.example\nnameserver 10.96.0.10\nnameserver fe80::1%eth0\nnameserver x\n\
        nameserver 10.0.0.3\nnameserver 10.0.0.4\nsearch shop.svc.cluster.local  svc.cluster.local.\n\
        options ndots:5 timeout:2 attempts:9 rotate edns0\n";
    let expected = Settings {
        servers: ["10.96.0.10", "fe80::1", "10.0.0.3"].map(ip).to_vec(),
        search: vec!["shop.svc.cluster.local".into(), "svc.cluster.local.".into()],
        ndots: 5,
        wait: Duration::from_secs(2),
        attempts: 5,
    };
    assert_eq!(Settings::read(text), expected);
    let none = Settings::read("");
    assert_eq!((none.servers, none.ndots, none.attempts), (vec![ip("127.0.0.1")], 1, 2));
}

#[test]
fn names_are_searched_by_their_dots() {
    let settings = Settings::read("search a.example b.example.\noptions ndots:2");
    for (host, expected) in [
        ("web", vec!["web.a.example", "web.b.example", "web"]),
        ("web.shop", vec!["web.shop.a.example", "web.shop.b.example", "web.shop"]),
        ("web.shop.svc", vec!["web.shop.svc", "web.shop.svc.a.example", "web.shop.svc.b.example"]),
        ("web.", vec!["web"]),
    ] {
        assert_eq!(settings.candidates(host), expected, "{host}");
    }
}

#[test]
fn names_that_dns_cannot_have_are_not_asked_for() {
    let long = [&*"a".repeat(63); 4].join(".");
    for name in ["", "a..b", &"a".repeat(64), &long] {
        assert!(Query::new([0, 0], name, A).is_none(), "{name}");
    }
    assert!(Query::new([0, 0], &long[..253], A).is_some());
}

/// Builds an answer to a question.
pub(crate) fn answer(question: &[u8], flags: [u8; 2], records: &[(u16, &[u8])]) -> Vec<u8> {
    let mut packet = question.to_vec();
    packet[2..4].copy_from_slice(&flags);
    packet[7] = u8::try_from(records.len()).unwrap();
    for (kind, data) in records {
        // The name is that of the question.
        packet.extend_from_slice(&[0xc0, 12]);
        packet.extend_from_slice(&kind.to_be_bytes());
        packet.extend_from_slice(&[0, 1, 0, 0, 0, 5, 0, u8::try_from(data.len()).unwrap()]);
        packet.extend_from_slice(data);
    }
    packet
}

#[test]
fn answers_are_told_apart() {
    let query = Query::new([1, 2], "web.shop", A).unwrap();
    let of = |flags, records: &[(u16, &[u8])]| query.reply(&answer(&query.bytes, flags, records));
    let found = |ips: &[&str]| Some(Reply::Addresses(ips.iter().map(|text| ip(text)).collect()));
    let v4: (u16, &[u8]) = (A, &[10, 0, 0, 1]);
    assert_eq!(
        of([0x81, 0x80], &[(5, b"\x03www\xc0\x0c"), v4, (A, &[10, 0, 0, 2])]),
        found(&["10.0.0.1", "10.0.0.2"])
    );
    assert_eq!(
        of([0x81, 0x80], &[(AAAA, &[0; 16]), (A, &[1])]),
        found(&[]),
        "of another type, and of a wrong length"
    );
    assert_eq!(of([0x81, 0x83], &[]), found(&[]), "no such name");
    for code in [0x82, 0x85] {
        assert_eq!(of([0x81, code], &[]), Some(Reply::Failed));
    }
    assert_eq!(of([0x83, 0x80], &[]), Some(Reply::Truncated));
    assert_eq!(of([0x83, 0x80], &[v4]), found(&["10.0.0.1"]), "what fits is enough");
    assert_eq!(of([0x01, 0x00], &[v4]), None, "a question");
    let other = Query::new([1, 3], "web.shop", A).unwrap();
    assert_eq!(query.reply(&answer(&other.bytes, [0x81, 0x80], &[v4])), None, "of another id");
    let other = Query::new([1, 2], "web.shup", A).unwrap();
    assert_eq!(query.reply(&answer(&other.bytes, [0x81, 0x80], &[v4])), None, "of another name");
}

proptest! {
    #[test]
    fn no_packet_is_too_odd(bytes: Vec<u8>, count: u16, rest: Vec<u8>) {
        let query = Query::new([0, 0], "web", A).unwrap();
        let _ = query.reply(&bytes);
        let mut packet = answer(&query.bytes, [0x81, 0x80], &[]);
        packet[6..8].copy_from_slice(&count.to_be_bytes());
        packet.extend_from_slice(&rest);
        prop_assert!(query.addresses(&packet, count).len() <= ADDRESSES);
    }
}

/// Answers each question for `name` by `respond`, from its type; for others, there is no such name.
pub(crate) async fn server(name: &'static str, respond: fn(u16, &[u8]) -> Vec<u8>) -> u16 {
    // Other tests take ports of one protocol only.
    let (socket, listener) = loop {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        if let Ok(socket) = UdpSocket::bind(address).await {
            break (socket, listener);
        }
    };
    let port = socket.local_addr().unwrap().port();
    let reply = move |question: &[u8]| {
        let kind = u16::from_be_bytes([question[question.len() - 4], question[question.len() - 3]]);
        let asked = Query::new([question[0], question[1]], name, kind).unwrap();
        if asked.bytes == question {
            respond(kind, question)
        } else {
            answer(question, [0x81, 0x83], &[])
        }
    };
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            socket.send_to(&reply(&buffer[..length]), from).await.unwrap();
        }
    });
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = vec![0; stream.read_u16().await.unwrap().into()];
            stream.read_exact(&mut question).await.unwrap();
            let all = answer(&question, [0x81, 0x80], &[(A, &[10, 0, 0, 7])]);
            stream.write_u16(u16::try_from(all.len()).unwrap()).await.unwrap();
            stream.write_all(&all).await.unwrap();
        }
    });
    port
}

const FILE: &str = "nameserver 127.0.0.1\nsearch shop.svc svc\noptions ndots:5 timeout:1";

#[tokio::test]
async fn a_name_is_found_through_the_search_list_with_both_families() {
    let port = server("web.svc", |kind, question| {
        let data: &[u8] = if kind == A { &[10, 0, 0, 1] } else { &[0xfd; 16] };
        answer(question, [0x81, 0x80], &[(kind, data)])
    })
    .await;
    let mut found = resolve("web", ("", FILE), BOTH, port).await.unwrap();
    found.sort();
    assert_eq!(found, [ip("10.0.0.1"), ip("fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd")]);
    assert_eq!(resolve("web", ("", FILE), V4, port).await.unwrap(), [ip("10.0.0.1")]);
    assert_eq!(resolve("shop", ("", FILE), BOTH, port).await, Err(Reason::NotFound.into()));
    let hosts = "127.0.0.1 localhost\n::1 db # comment web\n10.1.1.1 other WEB # alias\n";
    assert_eq!(resolve("web", (hosts, FILE), BOTH, port).await.unwrap(), [ip("10.1.1.1")]);
}

#[tokio::test]
async fn a_long_answer_is_read_over_tcp() {
    let port = server("web.svc", |_, question| answer(question, [0x83, 0x80], &[])).await;
    assert_eq!(resolve("web", ("", FILE), V4, port).await.unwrap(), [ip("10.0.0.7")]);
}

#[tokio::test]
async fn failures_have_reasons() {
    let fails = server("web.svc", |_, question| answer(question, [0x81, 0x82], &[])).await;
    assert_eq!(resolve("web", ("", FILE), BOTH, fails).await, Err(Reason::ServerFailure.into()));
    // A server that fails for one family only.
    let half = server("web.svc", |kind, question| {
        let failed = answer(question, [0x81, 0x82], &[]);
        if kind == A { answer(question, [0x81, 0x80], &[(A, &[10, 0, 0, 1])]) } else { failed }
    })
    .await;
    assert_eq!(resolve("web", ("", FILE), BOTH, half).await.unwrap(), [ip("10.0.0.1")]);
    let silent = UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let once = format!("{FILE} attempts:1");
    assert_eq!(resolve("web", ("", &once), BOTH, port).await, Err(Reason::Timeout.into()));
    drop(silent);
    assert_eq!(resolve("web", ("", &once), BOTH, port).await, Err(Reason::Refused.into()));
}
