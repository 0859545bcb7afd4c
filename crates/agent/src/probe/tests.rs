use std::{collections::BTreeSet, io::ErrorKind};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UdpSocket},
};

use super::*;
use crate::{
    metrics::Metrics,
    target::{Pair, Stale},
};

const MS: fn(u64) -> Duration = Duration::from_millis;
const fn answer(rtt: Duration) -> Answer {
    Answer { rtt, smoothed: None }
}

#[test]
fn a_probe_ends_in_exactly_one_way() {
    let (timeout, patience) = (MS(1000), MS(500));
    let success = |rtt| Outcome::Success(answer(MS(rtt)));
    let timed_out = Outcome::Failure(Reason::Timeout);
    for (given, took, expected) in [
        (Some(Ok(answer(MS(5)))), 5, success(5)),
        (Some(Ok(answer(MS(1000)))), 1000, success(1000)),
        // The body was slow, and was complete at the timeout.
        (Some(Ok(answer(MS(5)))), 1001, success(5)),
        // Read from the socket after the timeout.
        (Some(Ok(answer(MS(1001)))), 1001, timed_out),
        (None, 1001, timed_out),
        (None, 1500, timed_out),
        (Some(Err(Reason::Refused.into())), 1, Outcome::Failure(Reason::Refused)),
        (Some(Err(Unanswered::Local)), 1, Outcome::Local),
        // This process was not scheduled.
        (None, 1501, Outcome::Void),
        (Some(Ok(answer(MS(1501)))), 1501, Outcome::Void),
        (Some(Err(Reason::Reset.into())), 9000, Outcome::Void),
    ] {
        assert_eq!(judge(given, MS(took), timeout, patience), expected, "{given:?} {took}");
    }
}

#[test]
fn errors_of_sockets_have_reasons() {
    for (kind, reason) in [
        (ErrorKind::TimedOut, Reason::Timeout),
        (ErrorKind::ConnectionRefused, Reason::Refused),
        (ErrorKind::HostUnreachable, Reason::Unreachable),
        (ErrorKind::NetworkUnreachable, Reason::Unreachable),
        (ErrorKind::ConnectionReset, Reason::Reset),
        (ErrorKind::BrokenPipe, Reason::Reset),
        (ErrorKind::InvalidInput, Reason::Other),
    ] {
        assert_eq!(Reason::of(&kind.into()), reason, "{kind:?}");
    }
    let labels: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.label()).collect();
    assert_eq!(labels.len(), Reason::ALL.len());
}

/// A local failure reports nothing about the network; an error from the network does.
#[test]
fn what_this_host_cannot_do_is_no_loss() {
    let v4 = SocketAddr::from(([10, 0, 0, 1], 1));
    let v6: SocketAddr = "[fd00::1]:1".parse().unwrap();
    let of = |number, to| Unanswered::of(&io::Error::from_raw_os_error(number), to);
    for number in [
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOBUFS,
        libc::ENOMEM,
        libc::EADDRNOTAVAIL,
        libc::EADDRINUSE,
        libc::EPERM,
    ] {
        assert_eq!(of(number, v4), Unanswered::Local, "{number}");
        assert_eq!(of(number, v6), Unanswered::Local, "{number}");
    }
    assert_eq!(of(libc::EACCES, v4), Unanswered::Local);
    assert_eq!(of(libc::EACCES, v6), Unanswered::Failed(Reason::Unreachable));
    for (number, reason) in [
        (libc::ECONNREFUSED, Reason::Refused),
        (libc::EHOSTUNREACH, Reason::Unreachable),
        (libc::ENETUNREACH, Reason::Unreachable),
        (libc::ECONNRESET, Reason::Reset),
        (libc::ETIMEDOUT, Reason::Timeout),
    ] {
        assert_eq!(of(number, v4), Unanswered::Failed(reason), "{number}");
    }
}

fn target(protocol: Protocol, address: SocketAddr) -> Target {
    let none = String::new;
    let pair = Pair { src_node: none(), src_zone: none(), dst_node: none(), dst_zone: none() };
    Target { protocol, address, identity: none(), pair, original: None }
}

#[tokio::test]
async fn the_kernel_says_its_round_trip_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let answer = connect(listener.local_addr().unwrap()).await.unwrap();
    assert!(answer.smoothed.is_some_and(|rtt| !rtt.is_zero() && rtt <= answer.rtt), "{answer:?}");
}

/// On every node between, a connection that was closed is remembered for two minutes.
#[tokio::test]
async fn connections_end_by_a_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ends = async |answer: &[u8]| {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        if !answer.is_empty() {
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer).await.unwrap();
        }
        stream.read_to_end(&mut request).await.map_err(|error| error.kind())
    };
    let (answer, end) = tokio::join!(connect(address), ends(b""));
    assert!(answer.is_ok() && end == Err(ErrorKind::ConnectionReset), "{answer:?} {end:?}");
    let pong = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\npong\n";
    let (answer, end) = tokio::join!(get(address), ends(pong));
    assert!(answer.is_ok() && end == Err(ErrorKind::ConnectionReset), "{answer:?} {end:?}");
}

/// The ICMP error of one packet does not count for the next.
#[tokio::test]
async fn a_refusal_is_counted_once_and_forgotten() {
    let taken = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    drop(taken);
    let target = target(Protocol::Udp, address);
    let mut probe = Probe::new(&target, &Metrics::new().series(&target));
    let long = Duration::from_mins(1);
    assert_eq!(probe.once(long, long).await, Outcome::Failure(Reason::Refused));
    let server = UdpSocket::bind(address).await.unwrap();
    let serving = tokio::spawn(crate::server::echo::serve(server, Metrics::new()));
    assert!(matches!(probe.once(long, long).await, Outcome::Success(_)));
    serving.abort();
}

/// Both results exist from the beginning, and of the reasons only those that have occurred.
#[test]
fn every_failure_is_counted_with_its_reason_and_vanishes_with_its_pair() {
    let metrics = Metrics::new();
    let target = target(Protocol::Udp, SocketAddr::from(([127, 0, 0, 1], 1)));
    let series = metrics.series(&target);
    let lines = |of: &str| {
        let mut page = String::new();
        metrics
            .encode_with(|registry| prometheus_client::encoding::text::encode(&mut page, registry))
            .unwrap();
        let lines = page.lines().filter(|line| line.starts_with(of));
        let values = lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap());
        values.collect::<Vec<usize>>()
    };
    let (probes, failures) = ("netprober_probes_total{", "netprober_failures_total{");
    assert_eq!((lines(probes), lines(failures)), (vec![0, 0], vec![]));
    for reason in Reason::ALL {
        series.failure(reason);
    }
    assert_eq!(lines(probes).into_iter().sum::<usize>(), Reason::ALL.len());
    assert_eq!(lines(failures), vec![1; Reason::ALL.len()]);
    let stale = Stale {
        probes: [(target.protocol, target.pair.clone())].into(),
        originals: BTreeSet::new(),
    };
    metrics.forget(&stale);
    assert_eq!((lines(probes), lines(failures)), (vec![], vec![]));
}
