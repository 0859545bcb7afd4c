//! Packets as large as the path should carry. A path that drops only those lets every small probe
//! through, and stalls whatever sends more than a packet.
//!
//! Each round sends two requests of the same kind: a short one, and one that fills a packet of the
//! size that the kernel believes in (the interface's MTU, or what a router has reported since), with
//! the don't-fragment bit. Both are answered by a short reply with the length that arrived. Only a
//! round whose short request was answered counts: the large one was lost on its way to the peer,
//! and nothing else can be the cause. Peers of an earlier version answer neither.
//!
//! Each reply also shows how many routers it has passed: each takes one from the TTL that the peer's
//! kernel gave it.
use std::{
    convert::Infallible,
    io::{self, IoSliceMut},
    net::SocketAddr,
    os::fd::AsRawFd,
    time::Duration,
};

// The macros call each other, and libc, by their plain names.
use nix::{
    getsockopt_impl, libc, setsockopt_impl, sockopt_impl,
    sys::socket::{ControlMessageOwned, MsgFlags, getsockopt, recvmsg, setsockopt, sockopt},
};
use tokio::{
    io::Interest,
    net::UdpSocket,
    time::{Instant, sleep_until, timeout_at},
};

use crate::{
    echo::{self, LENGTH, Padded},
    metrics::LargeSeries,
};

/// Time between two rounds: a path that drops large packets is known after three of them.
const ROUND: Duration = Duration::from_secs(10);

/// The time for which answers are waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest request: a jumbo frame. A larger packet, as on the loopback device, measures nothing.
const LONGEST: usize = 9000;

sockopt_impl!(
    /// The don't-fragment bit of IPv4, and an error for what is longer than the known path MTU.
    Discover4, SetOnly, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::c_int
);
sockopt_impl!(
    /// The same of IPv6.
    Discover6, SetOnly, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::c_int
);
sockopt_impl!(
    /// The known path MTU of a connected socket.
    Mtu4, GetOnly, libc::IPPROTO_IP, libc::IP_MTU, libc::c_int
);
sockopt_impl!(
    /// The same of IPv6.
    Mtu6, GetOnly, libc::IPPROTO_IPV6, libc::IPV6_MTU, libc::c_int
);

/// The rounds of one target.
#[derive(Debug)]
pub(super) struct Large {
    address: SocketAddr,
    series: LargeSeries,
    socket: Option<UdpSocket>,
    nonce: u64,
    sequence: u64,
    next: Instant,
    round: Option<Round>,
    /// Hops of the last reply.
    hops: Option<u8>,
}

/// A round that is not over.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Length of the large request.
    length: usize,
    ends: Instant,
    short: bool,
    large: bool,
}

impl Large {
    pub fn new(address: SocketAddr, series: LargeSeries) -> Self {
        let (nonce, next) = (echo::nonce(), Instant::now());
        Self { address, series, socket: None, nonce, sequence: 0, next, round: None, hops: None }
    }

    /// Plays rounds for as long as it is polled; one that is interrupted goes on the next time.
    pub async fn rounds(&mut self) -> Infallible {
        loop {
            if self.round.is_none() {
                sleep_until(self.next).await;
                self.next = Instant::now() + ROUND;
                match self.begin().await {
                    Ok(round) => self.round = Some(round),
                    // The node, or what the kernel knows of the path, has changed: nothing is lost.
                    Err(error) => {
                        tracing::debug!(%error, to = %self.address, "large packets");
                        self.socket = None;
                    }
                }
            } else {
                self.listen().await;
            }
        }
    }

    async fn begin(&mut self) -> io::Result<Round> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => connect(self.address).await?,
        };
        let socket = self.socket.insert(socket);
        let length = payload(socket, self.address)?;
        self.sequence = self.sequence.wrapping_add(1);
        let request = Padded::request(self.nonce, self.sequence);
        socket.send(&request.encode(LENGTH)).await?;
        socket.send(&request.encode(length)).await?;
        Ok(Round { length, ends: Instant::now() + PATIENCE, short: false, large: false })
    }

    /// Reads one reply, or ends the round.
    async fn listen(&mut self) {
        let (Some(round), Some(socket)) = (&mut self.round, &self.socket) else { return };
        if let Ok(received) = timeout_at(round.ends, receive(socket)).await {
            // An error is about an earlier packet; the round's end decides.
            let ours =
                |reply: &Padded| (reply.nonce, reply.sequence) == (self.nonce, self.sequence);
            let received = received.ok().flatten().filter(|(reply, _)| ours(reply));
            if let Some((reply, hops)) = received {
                let arrived = usize::try_from(reply.length).unwrap_or(usize::MAX);
                round.short |= arrived == LENGTH;
                round.large |= arrived == round.length;
                // Peers of one node share the series: only what changes is written, so that two
                // families with different paths do not look like one path that changes.
                if let Some(hops) = hops.filter(|hops| self.hops != Some(*hops)) {
                    self.hops = Some(hops);
                    self.series.set_hops(hops);
                }
            }
            if !(round.short && round.large) && Instant::now() < round.ends {
                return;
            }
        }
        if round.short {
            self.series.count(round.large.then(|| packet(round.length, self.address)));
        }
        self.round = None;
    }
}

async fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = super::udp::connect(address).await?;
    match address {
        SocketAddr::V4(_) => {
            setsockopt(&socket, Discover4, &libc::IP_PMTUDISC_DO)?;
            setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)?;
        }
        SocketAddr::V6(_) => {
            setsockopt(&socket, Discover6, &libc::IPV6_PMTUDISC_DO)?;
            setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
        }
    }
    Ok(socket)
}

/// Waits for a packet; returns the reply in it, if it is one, with the hops that it has passed.
async fn receive(socket: &UdpSocket) -> io::Result<Option<(Padded, Option<u8>)>> {
    socket
        .async_io(Interest::READABLE, || {
            let mut buffer = [0; LENGTH + 1];
            let mut control = nix::cmsg_space!(libc::c_int);
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let (fd, flags) = (socket.as_raw_fd(), MsgFlags::empty());
            let message = recvmsg::<()>(fd, &mut parts, Some(&mut control), flags)?;
            let ttl = message.cmsgs()?.find_map(|message| match message {
                ControlMessageOwned::Ipv4Ttl(ttl) | ControlMessageOwned::Ipv6HopLimit(ttl) => {
                    Some(ttl)
                }
                _ => None,
            });
            let length = message.bytes;
            let reply = Padded::decode_reply(&buffer[..length]);
            Ok(reply.map(|reply| (reply, ttl.and_then(hops))))
        })
        .await
}

/// Returns the routers that a packet has passed that arrives with this TTL. Kernels begin with 64,
/// 128 (Windows) or 255.
fn hops(ttl: i32) -> Option<u8> {
    let ttl = u8::try_from(ttl).ok().filter(|ttl| *ttl > 0)?;
    [64, 128, 255].into_iter().find_map(|first: u8| first.checked_sub(ttl))
}

/// The headers of IP and UDP.
const fn headers(address: SocketAddr) -> usize {
    if address.is_ipv4() { 20 + 8 } else { 40 + 8 }
}

/// Returns the length of a packet with this payload.
const fn packet(payload: usize, address: SocketAddr) -> usize {
    payload + headers(address)
}

/// Returns the longest payload that the path should carry.
fn payload(socket: &UdpSocket, address: SocketAddr) -> io::Result<usize> {
    let mtu = match address {
        SocketAddr::V4(_) => getsockopt(socket, Mtu4)?,
        SocketAddr::V6(_) => getsockopt(socket, Mtu6)?,
    };
    let mtu = usize::try_from(mtu).unwrap_or_default().min(LONGEST);
    Ok(mtu.saturating_sub(headers(address)).max(LENGTH + 1))
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::{metrics::Metrics, target::Pair};

    #[test]
    fn routers_are_counted_from_the_ttl_that_the_peer_began_with() {
        let table = [(64, Some(0)), (63, Some(1)), (128, Some(0)), (120, Some(8)), (255, Some(0))];
        for (ttl, expected) in table.into_iter().chain([(1, Some(63)), (0, None), (-1, None)]) {
            assert_eq!(hops(ttl), expected, "{ttl}");
        }
    }

    /// A peer that answers packets up to this length, and nothing else.
    async fn peer(longest: usize) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = vec![0; 2 * LONGEST];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                let answer = Padded::answer(&buffer[..LENGTH], length);
                if let Some(answer) = answer.filter(|_| length <= longest) {
                    socket.send_to(&answer, from).await.unwrap();
                }
            }
        });
        address
    }

    async fn counted(longest: usize, deadline: Duration) -> (u64, u64) {
        let pair = Pair {
            src_node: "a".into(),
            src_zone: String::new(),
            dst_node: "b".into(),
            dst_zone: String::new(),
        };
        let series = Metrics::new().large(&pair);
        let mut large = Large::new(peer(longest).await, series.clone());
        let counts = || (series.successes.get(), series.failures.get());
        let counted = async {
            while counts() == (0, 0) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let counted = tokio::select! {
            never = large.rounds() => match never {},
            _ = timeout(deadline, counted) => counts(),
        };
        // No router is on the way to this host.
        assert_eq!(large.hops, (counted != (0, 0)).then_some(0));
        counted
    }

    #[tokio::test]
    async fn only_a_path_that_carries_short_requests_loses_large_ones() {
        let long = Duration::from_mins(1);
        let (all, short, none) = tokio::join!(
            counted(2 * LONGEST, long),
            counted(1410, long),
            // It answers nothing: an earlier version, or no path at all.
            counted(0, PATIENCE + PATIENCE / 2)
        );
        assert_eq!((all, short, none), ((1, 0), (0, 1), (0, 0)));
    }
}
