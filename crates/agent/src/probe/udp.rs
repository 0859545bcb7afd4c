//! One packet in each direction: it shows the loss that TCP hides by retransmission.
use std::{convert::Infallible, io, net::SocketAddr, time::Duration};

use prometheus_client::metrics::counter::Counter;
use tokio::{
    net::UdpSocket,
    time::{Instant, sleep},
};

use super::{Answer, Outcome, Unanswered, large::Large};
use crate::echo::{self, Packet, Replies, Reply};
use crate::{
    metrics::Series,
    reason::Reason,
    target::Pair,
    trace::{self, Loss, Traces, Turn},
};

/// The pause after an error between probes, for a socket that reports errors without end: ICMP
/// errors belong to packets, and each probe sends only one.
const ERRORS: Duration = Duration::from_millis(10);

/// The probes of one target. The socket stays the same, so that an answer that arrives after the
/// timeout of its probe is still seen; it is connected, so that ICMP errors are reported on it.
#[derive(Debug)]
pub struct Udp {
    address: SocketAddr,
    socket: Option<UdpSocket>,
    replies: Replies,
    /// Counters of duplicate and reordered packets.
    strays: Option<(Counter, Counter)>,
    large: Large,
    pair: Pair,
    traces: Traces,
    loss: Loss,
}

impl Udp {
    pub(super) fn new(address: SocketAddr, pair: &Pair, series: &Series) -> Self {
        Self {
            address,
            socket: None,
            replies: Replies::new(echo::nonce()),
            strays: series.strays.clone(),
            large: Large::new(address, series.large()),
            pair: pair.clone(),
            traces: series.traces(),
            loss: Loss::default(),
        }
    }

    /// Learns from the outcome of a probe: where most are lost for a while, the path is traced before
    /// the next one.
    pub(super) async fn learn(&mut self, outcome: &Outcome) {
        let now = Instant::now();
        match outcome {
            Outcome::Success(_) => {
                self.loss.answered();
                self.traces.works(self.address, &self.pair, now);
            }
            // The peer's host has answered.
            Outcome::Failure(Reason::Refused) => self.loss.answered(),
            Outcome::Failure(Reason::Timeout | Reason::Unreachable) => {
                if let Some(since) = self.loss.lost(now)
                    && let Some(turn) = self.traces.begin(self.address, &self.pair, now)
                    // Almost no path is ever traced: its memory is not part of every path's.
                    && let Err(error) = Box::pin(self.trace(turn, since)).await
                {
                    tracing::debug!(%error, to = %self.address, "trace");
                }
            }
            Outcome::Failure(_) | Outcome::Local | Outcome::Void => {}
        }
    }

    async fn trace(&mut self, turn: Turn, since: Instant) -> io::Result<()> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => connect(self.address).await?,
        };
        let socket = self.socket.insert(socket);
        let other = turn.working(since);
        let working = async {
            let address = other?;
            let socket = connect(address).await.ok()?;
            trace::run(&socket, address, &mut Replies::new(echo::nonce())).await.ok()
        };
        let lost = trace::run(socket, self.address, &mut self.replies);
        let (lost, working) = tokio::join!(lost, working);
        turn.found(&lost?, working.as_ref(), Instant::now());
        Ok(())
    }

    pub(super) async fn echo(&mut self) -> Result<Answer, Unanswered> {
        let answer = self.exchange().await;
        let answer = answer.map_err(|error| Unanswered::of(&error, self.address));
        let retries = |why| {
            matches!(
                why,
                Unanswered::Local | Unanswered::Failed(Reason::Unreachable | Reason::Other)
            )
        };
        if answer.is_err_and(retries) {
            // The path or our own address may have changed: the next probe chooses again.
            self.socket = None;
        }
        answer.map(|rtt| Answer { rtt, smoothed: None })
    }

    async fn exchange(&mut self) -> io::Result<Duration> {
        if self.socket.is_none() {
            self.socket = Some(connect(self.address).await?);
        }
        let Some(socket) = &self.socket else { return Err(io::ErrorKind::NotConnected.into()) };
        let packet = self.replies.send();
        let bytes = packet.encode();
        let mut started = Instant::now();
        if socket.send(&bytes).await.is_err() {
            // The reported error may be about the previous packet; reading it clears it.
            started = Instant::now();
            socket.send(&bytes).await?;
        }
        let mut buffer = [0; echo::LENGTH + 1];
        loop {
            let length = socket.recv(&mut buffer).await?;
            let at = started.elapsed();
            let Some(reply) = Packet::decode(&buffer[..length]) else { continue };
            let sort = self.replies.receive(&reply);
            count(sort, self.strays.as_ref());
            if reply.sequence == packet.sequence && sort == Reply::First {
                return Ok(at);
            }
        }
    }

    /// Reads packets that arrive between probes, and also errors, which would otherwise count for
    /// the next probe.
    pub(super) async fn idle(&mut self) -> Infallible {
        let Self { socket, replies, strays, large, .. } = self;
        tokio::select! {
            never = read(socket.as_ref(), replies, strays.as_ref()) => never,
            never = large.rounds() => never,
        }
    }
}

async fn read(
    socket: Option<&UdpSocket>,
    replies: &mut Replies,
    strays: Option<&(Counter, Counter)>,
) -> Infallible {
    let Some(socket) = socket else { return std::future::pending().await };
    let mut buffer = [0; echo::LENGTH + 1];
    loop {
        match socket.recv(&mut buffer).await {
            Ok(length) => {
                if let Some(reply) = Packet::decode(&buffer[..length]) {
                    count(replies.receive(&reply), strays);
                }
            }
            Err(_) => sleep(ERRORS).await,
        }
    }
}

fn count(sort: Reply, strays: Option<&(Counter, Counter)>) {
    if let Some((duplicates, reordered)) = strays {
        match sort {
            Reply::Duplicate => drop(duplicates.inc()),
            Reply::Reordered => drop(reordered.inc()),
            Reply::First | Reply::Foreign => {}
        }
    }
}

pub(crate) async fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    Ok(socket)
}
