//! One probe: its possible outcomes, and its duration.
use std::{error::Error as _, io, net::SocketAddr, pin::pin, time::Duration};

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
// The macros call each other, and libc, by their plain names.
use nix::{getsockopt_impl, libc, sockopt_impl, sys::socket::getsockopt};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{Instant, timeout_at},
};

use super::{metrics::Series, pinglist::Protocol, reason::Reason, target::Target};

mod large;
pub(crate) mod udp;

/// The reason why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The probe was sent, and failed.
    Failed(Reason),
    /// It could not be sent: this process or its node has no descriptor, port or memory left, or
    /// forbids it. This is unrelated to the path to the peer.
    Local,
}

impl From<Reason> for Unanswered {
    fn from(reason: Reason) -> Self {
        Self::Failed(reason)
    }
}

impl Unanswered {
    /// Classifies an error of a socket to this address.
    #[must_use]
    pub fn of(error: &io::Error, to: SocketAddr) -> Self {
        if is_local(error, to) { Self::Local } else { Self::Failed(Reason::of(error)) }
    }
}

/// Reports whether an error is local, so that nothing can have been lost in the network.
fn is_local(error: &io::Error, to: SocketAddr) -> bool {
    match error.raw_os_error() {
        // No descriptors, no buffers, no memory, no port or address of ours to send from; and a
        // filter of this host (netfilter, eBPF, a security module).
        Some(
            libc::EMFILE
            | libc::ENFILE
            | libc::ENOBUFS
            | libc::ENOMEM
            | libc::EADDRNOTAVAIL
            | libc::EADDRINUSE
            | libc::EAGAIN
            | libc::EAFNOSUPPORT
            | libc::EPERM,
        ) => true,
        // For IPv4, a route of this host prohibits it. For IPv6, a remote router may also have
        // reported it (ICMPv6, "administratively prohibited"), and then there is no route.
        Some(libc::EACCES) => to.is_ipv4(),
        _ => error.kind() == io::ErrorKind::OutOfMemory,
    }
}

/// An answered probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// From the first packet to the answer, by the monotonic clock.
    pub rtt: Duration,
    /// The kernel's smoothed round-trip time, if there was a connection to ask about: TCP.
    pub smoothed: Option<Duration>,
}

/// The outcome of a slot that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered in time.
    Success(Answer),
    /// Not answered, for this reason.
    Failure(Reason),
    /// It could not be sent.
    Local,
    /// This process was not scheduled while it waited: the answer may have arrived in time.
    Void,
}

/// Probes one target. Holds the state that outlives one probe: the UDP socket.
pub enum Probe {
    /// A connection and a request.
    Http(SocketAddr),
    /// A connection.
    Tcp(SocketAddr),
    /// A packet.
    Udp(Box<udp::Udp>),
}

impl Probe {
    /// Prepares to probe; nothing is sent yet.
    #[must_use]
    pub fn new(target: &Target, series: &Series) -> Self {
        match target.protocol {
            Protocol::Http => Self::Http(target.address),
            Protocol::Tcp => Self::Tcp(target.address),
            Protocol::Udp => {
                Self::Udp(Box::new(udp::Udp::new(target.address, &target.pair, series)))
            }
        }
    }

    /// Probes once, for `timeout` at most. `patience` is how late the end may be noticed before the
    /// result says more about this process than about the peer.
    pub async fn once(&mut self, timeout: Duration, patience: Duration) -> Outcome {
        let started = Instant::now();
        let answer = timeout_at(started + timeout, self.answer()).await;
        judge(answer.ok(), started.elapsed(), timeout, patience)
    }

    async fn answer(&mut self) -> Result<Answer, Unanswered> {
        match self {
            Self::Http(address) => get(*address).await,
            Self::Tcp(address) => connect(*address).await,
            Self::Udp(udp) => udp.echo().await,
        }
    }

    /// Learns from an outcome: may take some seconds, to find out where a path is lost.
    pub async fn learn(&mut self, outcome: &Outcome) {
        if let Self::Udp(udp) = self {
            udp.learn(outcome).await;
        }
    }

    /// Runs between probes, for as long as it is polled, and reads packets that arrive late. Never
    /// returns.
    pub async fn idle(&mut self) -> std::convert::Infallible {
        match self {
            Self::Http(_) | Self::Tcp(_) => std::future::pending().await,
            Self::Udp(udp) => udp.idle().await,
        }
    }
}

/// Judges one probe; `answer` is `None` after a timeout.
fn judge(
    answer: Option<Result<Answer, Unanswered>>,
    took: Duration,
    timeout: Duration,
    patience: Duration,
) -> Outcome {
    if took > timeout + patience {
        return Outcome::Void;
    }
    match answer {
        // An answer that is available at the timeout still counts: it may have arrived before the
        // timer fired.
        Some(Ok(answer)) if answer.rtt <= timeout => Outcome::Success(answer),
        Some(Ok(_)) | None => Outcome::Failure(Reason::Timeout),
        Some(Err(Unanswered::Failed(reason))) => Outcome::Failure(reason),
        Some(Err(Unanswered::Local)) => Outcome::Local,
    }
}

/// The time of `connect()` is one round trip without any application; the connection is closed.
async fn connect(address: SocketAddr) -> Result<Answer, Unanswered> {
    let started = Instant::now();
    let stream =
        TcpStream::connect(address).await.map_err(|error| Unanswered::of(&error, address))?;
    let rtt = started.elapsed();
    let answer = Answer { rtt, smoothed: smoothed_rtt(&stream) };
    end_by_reset(&stream, address)?;
    Ok(answer)
}

/// Makes a connection end by a reset. Nothing is lost by it once everything was read, and connection
/// tracking on both nodes forgets a reset connection after 10 s, one that was closed after 120 s.
fn end_by_reset(stream: &TcpStream, to: SocketAddr) -> Result<(), Unanswered> {
    stream.set_zero_linger().map_err(|error| Unanswered::of(&error, to))
}

/// Maximum number of bytes of a body that are read before the connection is closed: the agent's
/// body has 5 bytes, and another server must not send its entire front page.
const BODY: usize = 4096;

/// The longest headers of an answer.
const HEADERS: usize = 16 * 1024;

/// Sends one request on a new connection.
async fn get(address: SocketAddr) -> Result<Answer, Unanswered> {
    let started = Instant::now();
    let stream = open(address).await?;
    // `SocketAddr` writes IPv6 addresses in brackets.
    let host = address.to_string();
    let (status, at) = exchange(stream, address, &host, "/ping", Some(BODY)).await?;
    if status == StatusCode::OK {
        Ok(Answer { rtt: at - started, smoothed: None })
    } else {
        Err(Reason::Status.into())
    }
}

/// Opens a connection that ends by a reset: neither end is asked to close it.
pub(crate) async fn open(address: SocketAddr) -> Result<TcpStream, Unanswered> {
    let unanswered = |error: &io::Error| Unanswered::of(error, address);
    let stream = TcpStream::connect(address).await.map_err(|error| unanswered(&error))?;
    // No data follows with which a request could be combined.
    stream.set_nodelay(true).map_err(|error| unanswered(&error))?;
    end_by_reset(&stream, address)?;
    Ok(stream)
}

/// Sends one GET; returns the status of the answer, and when its headers were there. `body` is the number of bytes to
/// read of what follows.
pub(crate) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    address: SocketAddr,
    host: &str,
    path: &str,
    body: Option<usize>,
) -> Result<(StatusCode, Instant), Unanswered> {
    let reason = |error: &hyper::Error| reason(error, address);
    let mut builder = http1::Builder::new();
    let handshake =
        builder.max_buf_size(HEADERS).handshake::<_, Empty<Bytes>>(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(|error| reason(&error))?;
    let request = Request::get(path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, crate::USER_AGENT)
        .body(Empty::new())
        .map_err(|_| Reason::Other)?;
    let exchange = pin!(async {
        let response = sender.send_request(request).await.map_err(|error| reason(&error))?;
        let (status, at) = (response.status(), Instant::now());
        if let Some(most) = body {
            drain(response.into_body(), most).await.map_err(|error| reason(&error))?;
        }
        Ok((status, at))
    });
    let mut connection = pin!(connection);
    let mut over = false;
    let mut exchange = exchange;
    loop {
        tokio::select! {
            biased;
            answer = &mut exchange => return answer,
            // It does the input and output; the exchange receives its errors by itself.
            _ = &mut connection, if !over => over = true,
        }
    }
}

async fn drain(mut body: Incoming, most: usize) -> Result<(), hyper::Error> {
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > most {
            break;
        }
    }
    Ok(())
}

fn reason(error: &hyper::Error, to: SocketAddr) -> Unanswered {
    if let Some(error) = error.source().and_then(|cause| cause.downcast_ref::<io::Error>()) {
        return Unanswered::of(error, to);
    }
    // The peer closed the connection in the middle of its answer, or before it.
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return Reason::Reset.into();
    }
    Reason::Other.into()
}

/// The beginning of the kernel's `struct tcp_info`, in words: two of eight single bytes, then
/// `u32`s. Every kernel has this part, and therefore fills all of it.
type Head = [u32; 18];

/// Offset of `tcpi_rtt`, after 8 bytes and 15 words of four (`include/uapi/linux/tcp.h`).
const RTT: usize = 17;

sockopt_impl!(
    /// `getsockopt(TCP_INFO)`, as much of it as [`Head`] holds.
    TcpInfo, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, Head
);

/// Returns the smoothed round-trip time; `None` if the kernel has none.
fn smoothed_rtt(stream: &TcpStream) -> Option<Duration> {
    let info = getsockopt(stream, TcpInfo).ok()?;
    let micros = u64::from(info[RTT]);
    (micros > 0).then(|| Duration::from_micros(micros))
}

#[cfg(test)]
mod tests;
