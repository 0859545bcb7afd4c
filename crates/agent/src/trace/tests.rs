//! When a path is traced, and what its trace says.
use nix::sys::socket::getsockopt;
use prometheus_client::{encoding::text::encode, registry::Registry};

use super::*;
use crate::{echo, metrics::Metrics};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn to(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 8080))
}

fn pair(dst_node: &str, dst_zone: &str) -> Pair {
    Pair {
        src_node: "n1".into(),
        src_zone: "a".into(),
        dst_node: dst_node.into(),
        dst_zone: dst_zone.into(),
    }
}

#[test]
fn a_loss_lasts_if_most_probes_of_a_minute_are_lost() {
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let lasts = |probes: &[(u64, bool)]| {
        let mut loss = Loss::default();
        let last = probes.iter().map(|(seconds, lost)| {
            if *lost {
                loss.lost(at(*seconds))
            } else {
                loss.answered();
                None
            }
        });
        last.last().flatten()
    };
    let every = |period: usize, until: u64| (0..=until).step_by(period);
    let all: Vec<_> = every(10, 60).map(|at| (at, true)).collect();
    assert_eq!(lasts(&all), Some(begin));
    assert_eq!(lasts(&all[..6]), None);
    // Two lost probes are no evidence, however rare they are.
    assert_eq!(lasts(&[(0, true), (3600, true)]), None);
    assert_eq!(lasts(&[(0, true), (3600, true), (7200, true)]), Some(begin));
    // One answer in nine is none; one in four, or the last six, show that the path works.
    let some = |answered: u64| -> Vec<_> {
        (0..=90).map(|at| (at, at % answered != answered - 1)).collect()
    };
    assert_eq!(lasts(&some(9)[..90]), None, "the last one is answered");
    assert_eq!(lasts(&some(9)), Some(begin));
    assert_eq!(lasts(&some(4)), None);
    let mut back: Vec<_> = every(10, 3600).map(|at| (at, true)).collect();
    back.extend((3610..3616).map(|at| (at, false)));
    back.push((3616, true));
    assert_eq!(lasts(&back), None);
}

#[test]
fn an_agent_runs_one_trace_at_a_time_and_each_path_seldom() {
    let (traces, begin) = (Traces::default(), Instant::now());
    let minutes = |minutes: u64| begin + Duration::from_mins(minutes);
    let (one, other) = (pair("n2", "a"), pair("n3", "a"));
    let turn = traces.begin(to(2), &one, begin).unwrap();
    // Another one runs, however long.
    assert!(traces.begin(to(3), &other, minutes(20)).is_none());
    drop(turn);
    assert!(traces.begin(to(3), &other, minutes(4)).is_none());
    assert!(traces.begin(to(3), &other, minutes(6)).is_some());
    // Another pod on the same node is the same path.
    assert!(traces.begin(to(4), &one, minutes(29)).is_none());
    assert!(traces.begin(to(4), &one, minutes(31)).is_some());
    // What is remembered of it is bounded too.
    for i in 0..1000 {
        let _ = traces.begin(to(9), &pair(&format!("n{i}"), "a"), minutes(60 + i));
        assert!(traces.state().begun.len() <= 7);
        let port = u16::try_from(i).unwrap();
        traces.works(SocketAddr::from(([10, 0, 0, 1], port)), &one, begin);
        assert!(traces.state().working.len() <= WORKING);
    }
}

#[test]
fn the_path_that_works_is_the_one_most_alike() {
    let (traces, begin) = (Traces::default(), Instant::now());
    let later = begin + Duration::from_secs(1);
    let turn = traces.begin(to(2), &pair("n2", "a"), begin).unwrap();
    assert_eq!(turn.working(begin), None);
    // The path itself, one of the other family, and one that has not answered since, are none.
    traces.works(to(2), &pair("n2", "a"), later);
    traces.works("[fd00::2]:8080".parse().unwrap(), &pair("n2", "a"), later);
    traces.works(to(8), &pair("n2", "a"), begin);
    assert_eq!(turn.working(later), None);
    for (address, node, zone) in [(3, "n3", "b"), (4, "n4", "a"), (5, "n2", "a")] {
        traces.works(to(address), &pair(node, zone), later);
        assert_eq!(turn.working(later), Some(to(address)));
    }
}

fn page(traces: &Traces) -> Vec<String> {
    let mut registry = Registry::default();
    registry.register("trace", "help", traces.family());
    let mut page = String::new();
    encode(&mut page, &registry).unwrap();
    page.lines().filter(|line| line.starts_with("trace{")).map(str::to_owned).collect()
}

#[test]
fn the_last_traces_are_exported_and_vanish_with_their_path_or_time() {
    let (traces, begin) = (Traces::default(), Instant::now());
    let lost = Path { hops: vec![Some(ip("10.1.0.1"))], end: End::Silence };
    let minutes = |minutes: u64| begin + Duration::from_mins(minutes);
    for i in 0..20 {
        let now = minutes(u64::from(i) * 6);
        let turn = traces.begin(to(i), &pair(&format!("n{i}"), "a"), now).unwrap();
        turn.found(&lost, None, now);
        assert_eq!(page(&traces).len(), KEPT.min(usize::from(i) + 1));
    }
    let newest = page(&traces);
    let expected = r#"trace{src_node="n1",src_zone="a",dst_node="n19",dst_zone="a",dst_ip="10.0.0.19",result="silent",hops="10.1.0.1",silent_hop="2"} "#;
    assert!(newest.iter().any(|line| line.starts_with(expected)), "{newest:?}");
    traces.forget(&pair("n19", "a"));
    assert_eq!(page(&traces).len(), KEPT - 1);
    traces.expire(minutes(17 * 6) + EXPORTED);
    assert_eq!(page(&traces).len(), 1);
    traces.expire(minutes(18 * 6) + EXPORTED);
    assert_eq!(page(&traces), [""; 0]);
}

/// A path as it is written, with its end.
fn path(hops: &str, end: End) -> Path {
    let hops = hops.split_whitespace().map(|hop| (hop != "*").then(|| ip(hop))).collect();
    Path { hops, end }
}

#[test]
fn silence_means_something_only_beside_a_path_that_passes_the_same_router_and_answers() {
    use End::{Peer, Silence, Undeliverable};
    let works = |hops| path(hops, Peer);
    for (lost, working, result, silent_hop) in [
        // The next hop of the other path is a router, or the peer itself.
        (path("1.1.1.1", Silence), Some(works("1.1.1.1 2.2.2.2")), "lost", Some(2)),
        (path("1.1.1.1", Silence), Some(works("1.1.1.1")), "lost", Some(2)),
        (path("1.1.1.1 * 3.3.3.3", Silence), Some(works("9.9.9.9 * 3.3.3.3")), "lost", Some(4)),
        (path("", Silence), Some(works("1.1.1.1")), "lost", Some(1)),
        (path("", Silence), Some(works("")), "lost", Some(1)),
        // That router does not answer there either.
        (path("1.1.1.1", Silence), Some(works("1.1.1.1 * 3.3.3.3")), "silent", Some(2)),
        (path("", Silence), Some(works("* 2.2.2.2")), "silent", Some(1)),
        // Another router, a shorter path, one that does not work any more, none at all.
        (
            path("1.1.1.1 2.2.2.2", Silence),
            Some(works("1.1.1.1 9.9.9.9 3.3.3.3")),
            "silent",
            Some(3),
        ),
        (path("1.1.1.1 2.2.2.2", Silence), Some(works("1.1.1.1")), "silent", Some(3)),
        (path("1.1.1.1", Silence), Some(path("1.1.1.1 2.2.2.2", Silence)), "silent", Some(2)),
        (path("1.1.1.1", Silence), None, "silent", Some(2)),
        // What is heard needs no comparison.
        (path("1.1.1.1", Peer), Some(works("1.1.1.1")), "answered", None),
        (path("1.1.1.1", Undeliverable), None, "undeliverable", None),
        (path("1.1.1.1 2.2.2.2 1.1.1.1 2.2.2.2 1.1.1.1", Silence), None, "loop", None),
    ] {
        let said = (lost.result(working.as_ref()), lost.silent_hop());
        assert_eq!(said, (result, silent_hop), "{lost} beside {working:?}");
    }
    let all: Vec<_> = (1..=HOPS).map(|i| format!("10.0.0.{i}")).collect();
    let longest = path(&all.join(" "), Silence);
    assert_eq!((longest.result(None), longest.silent_hop()), ("silent", None));
}

/// `1.1.1.1/5`: the TTL of packet 5 has expired there; without the number, nothing was quoted. `!…`:
/// not delivered. `=5`: the peer's reply to packet 5. `-`: nothing of interest.
fn heard(text: &str) -> Heard {
    let packet =
        |reply, sequence: &str| Packet { reply, nonce: 7, sequence: sequence.parse().unwrap() };
    if let Some(sequence) = text.strip_prefix('=') {
        return Heard::Reply(packet(true, sequence));
    }
    if let Some(from) = text.strip_prefix('!') {
        return Heard::Report { from: ip(from), undeliverable: true, quoted: None };
    }
    let Some((from, sequence)) = text.split_once('/') else { return Heard::Other };
    let quoted = (!sequence.is_empty()).then(|| packet(false, sequence));
    Heard::Report { from: ip(from), undeliverable: false, quoted }
}

/// Five probes were sent before; then one packet to each hop, the first with the number 5.
#[test]
fn what_arrives_becomes_the_hops_of_a_path() {
    use End::{Peer, Silence, Undeliverable};
    use Next::{Hop, Wait};
    for (events, next, written, end) in [
        ("1.1.1.1/5 2.2.2.2/6", Hop, "1.1.1.1 2.2.2.2", Silence),
        ("1.1.1.1/5 - 3.3.3.3/7", Hop, "1.1.1.1 * 3.3.3.3", Silence),
        // A late answer counts for its hop; one about a probe, for none.
        ("- 1.1.1.1/5", Wait, "1.1.1.1", Silence),
        ("1.1.1.1/5 9.9.9.9/2", Wait, "1.1.1.1", Silence),
        // Routers that quote too little: the hop that is waited for, unless it has answered before.
        ("1.1.1.1/ 2.2.2.2/", Hop, "1.1.1.1 2.2.2.2", Silence),
        ("1.1.1.1/ 1.1.1.1/", Wait, "1.1.1.1", Silence),
        ("1.1.1.1/5 =6", Next::End, "1.1.1.1", Peer),
        ("- - =7", Next::End, "* *", Peer),
        // The late answer to a probe; the answer to nothing that was sent.
        ("=4", Wait, "", Silence),
        ("=99", Wait, "", Silence),
        ("1.1.1.1/5 !2.2.2.2", Next::End, "1.1.1.1 2.2.2.2", Undeliverable),
        ("1.1.1.1/5 !1.1.1.1", Next::End, "1.1.1.1", Undeliverable),
        // The peer's host is up, and nothing listens there.
        ("1.1.1.1/5 !10.0.0.2", Next::End, "1.1.1.1", Peer),
    ] {
        let mut replies = Replies::new(7);
        for _ in 0..5 {
            replies.send();
        }
        let mut trace = Trace { peer: ip("10.0.0.2"), sent: vec![], path: Path::default() };
        let mut last = Wait;
        for (ttl, event) in (1..).zip(events.split(' ')) {
            trace.sent.push((replies.send().sequence, ttl));
            last = trace.hear(&heard(event), &mut replies, ttl);
        }
        let found = (last, trace.path.to_string(), trace.path.end);
        assert_eq!(found, (next, written.to_owned(), end), "{events}");
    }
}

#[test]
fn reports_of_the_kernel_are_told_apart() {
    let (v4, v6) = (libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6);
    for (origin, type_, code, expected) in [
        (v4, 11, 0, Some(false)),
        (v6, 3, 0, Some(false)),
        (v4, 3, 1, Some(true)),
        (v4, 3, 13, Some(true)),
        (v6, 1, 4, Some(true)),
        // Fragments that did not all arrive; too large; an error of this host.
        (v4, 11, 1, None),
        (v4, 3, 4, None),
        (v6, 2, 0, None),
        (libc::SO_EE_ORIGIN_LOCAL, 3, 1, None),
    ] {
        let error = libc::sock_extended_err {
            ee_errno: 0,
            ee_origin: origin,
            ee_type: type_,
            ee_code: code,
            ee_pad: 0,
            ee_info: 0,
            ee_data: 0,
        };
        assert_eq!(kind(&error), expected, "{origin} {type_} {code}");
    }
}

/// A socket that keeps reports would end each later probe with one that is not about it.
#[tokio::test]
async fn a_peer_is_reached_and_the_socket_is_as_before() {
    for any in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(server) = UdpSocket::bind(any).await else { continue };
        let address = server.local_addr().unwrap();
        let serving = tokio::spawn(crate::server::echo::serve(server, Metrics::new()));
        let socket = UdpSocket::bind(any).await.unwrap();
        socket.connect(address).await.unwrap();
        let mut replies = Replies::new(echo::nonce());
        let reached = Path { hops: vec![], end: End::Peer };
        assert_eq!(run(&socket, address, &mut replies).await.unwrap(), reached);
        serving.abort();
        assert!(serving.await.is_err_and(|error| error.is_cancelled()));
        // Nothing listens there any more.
        assert_eq!(run(&socket, address, &mut replies).await.unwrap(), reached);
        let kept = if address.is_ipv4() {
            getsockopt(&socket, sockopt::Ipv4RecvErr)
        } else {
            getsockopt(&socket, sockopt::Ipv6RecvErr)
        };
        assert_eq!((kept, socket.take_error().unwrap().is_none()), (Ok(false), true));
    }
}
