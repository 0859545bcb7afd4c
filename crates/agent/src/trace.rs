//! Where a path loses its packets: one trace of a path that has lost most of its probes for a while.
//!
//! A trace sends requests of the echo from the socket of the probes, with the same addresses and
//! ports, so that it takes the same way. The TTL ends each at the next router, which reports that;
//! the kernel keeps the report in the socket's queue of errors, which needs no rights.
//!
//! A router that answers proves that packets reach it. Silence proves nothing by itself: many
//! routers never answer, and an answer can be lost too. Therefore a path that works is traced beside
//! it: only if that one passes the same last router, and the next hop of it answers, the silence
//! behind that router means something.
use std::{
    collections::{HashMap, VecDeque},
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::AsRawFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    time::{Duration, SystemTime},
};

use nix::{
    libc,
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, recv, recvmsg, sendmsg, setsockopt, sockopt,
    },
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
};
use tokio::{
    io::Interest,
    net::UdpSocket,
    time::{Instant, timeout_at},
};

use crate::{
    echo::{LENGTH, Packet, Replies, Reply},
    target::Pair,
};

/// The time for which a path has to lose most of its probes: longer than a pod needs to restart, and
/// than the operator needs to take a pod that ends off the list.
const LASTING: Duration = Duration::from_mins(1);

/// The least number of lost probes.
const FEWEST: u32 = 3;

/// A path that answers more than every fifth probe is not lost.
const MOST: u32 = 5;

/// Number of probes that are remembered: after five answers a path is no longer lost.
const REMEMBERED: u32 = 20;

/// Time between two traces of the same path.
const PAUSE: Duration = Duration::from_mins(30);

/// Time between two traces of an agent. If its own link is down, all of its paths are lost.
const APART: Duration = Duration::from_mins(5);

/// Number of traces that are exported, each as one series.
pub const KEPT: usize = 4;

/// The time for which a trace is exported.
const EXPORTED: Duration = Duration::from_hours(1);

/// Number of paths that work of which the last answer is known: more than an agent may probe.
const WORKING: usize = 256;

/// The longest trace: in one data center, a path has at most six hops, between two rarely more than
/// twelve.
const HOPS: u8 = 16;

/// Number of packets to each hop: in more than a second, after which Linux answers again, however
/// much it was asked before.
const TRIES: u8 = 3;

/// The time for which an answer to each packet is waited for.
const WAIT: Duration = Duration::from_millis(500);

/// A trace ends after this many hops in a row that do not answer: in about six seconds, which fit
/// between two probes of the default period.
const SILENT: usize = 4;

/// A trace ends after this time at the latest.
const LONGEST: Duration = Duration::from_secs(12);

/// An address that occurs this often is a loop. A firewall may answer for two hops.
const LOOP: usize = 3;

/// The last probes of one path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    since: Option<Instant>,
    /// The last [`REMEMBERED`] probes, one bit each: answered.
    answers: u32,
    probes: u32,
}

impl Loss {
    /// Records an answered probe.
    pub fn answered(&mut self) {
        self.record(true);
        if self.answers.count_ones() * MOST > self.probes {
            *self = Self::default();
        }
    }

    /// Records a lost probe; returns the beginning of a loss that lasts.
    pub fn lost(&mut self, now: Instant) -> Option<Instant> {
        self.record(false);
        let since = *self.since.get_or_insert(now);
        let enough = self.probes - self.answers.count_ones() >= FEWEST;
        (enough && now.saturating_duration_since(since) >= LASTING).then_some(since)
    }

    fn record(&mut self, answered: bool) {
        self.probes = (self.probes + 1).min(REMEMBERED);
        self.answers = (self.answers << 1 | u32::from(answered)) & ((1 << REMEMBERED) - 1);
    }
}

/// The traces of an agent; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Traces(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    exported: Family<Labels, Gauge<f64, AtomicU64>>,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    /// The last trace of each path, by its ends and whether it is of IPv4.
    begun: HashMap<(Pair, bool), Instant>,
    /// The last answer on each path that works.
    working: HashMap<SocketAddr, (Pair, Instant)>,
    found: VecDeque<(Labels, Instant)>,
}

/// A finished trace, as a series.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Labels {
    #[prometheus(flatten)]
    pair: Pair,
    dst_ip: String,
    result: &'static str,
    hops: String,
    silent_hop: String,
}

/// The permission to run a trace; the next one waits for its end.
#[derive(Debug)]
pub struct Turn {
    traces: Traces,
    pair: Pair,
    to: SocketAddr,
}

impl Traces {
    /// Returns the family of the exported traces.
    #[must_use]
    pub(crate) fn family(&self) -> Family<Labels, Gauge<f64, AtomicU64>> {
        self.0.exported.clone()
    }

    /// Records an answer on a path.
    pub fn works(&self, to: SocketAddr, pair: &Pair, now: Instant) {
        let mut state = self.state();
        if let Some((_, at)) = state.working.get_mut(&to) {
            *at = now;
            return;
        }
        if state.working.len() >= WORKING {
            state.working.clear();
        }
        state.working.insert(to, (pair.clone(), now));
    }

    /// Begins a trace of a path, unless it is too early.
    #[must_use]
    pub fn begin(&self, to: SocketAddr, pair: &Pair, now: Instant) -> Option<Turn> {
        let mut state = self.state();
        let age = |at: &Instant| now.saturating_duration_since(*at);
        state.begun.retain(|_, at| age(at) < PAUSE);
        let path = (pair.clone(), to.is_ipv4());
        let early =
            state.begun.contains_key(&path) || state.begun.values().any(|at| age(at) < APART);
        if state.running || early {
            return None;
        }
        state.running = true;
        state.begun.insert(path, now);
        Some(Turn { traces: self.clone(), pair: pair.clone(), to })
    }

    /// Removes the traces of a path that is no longer probed.
    pub fn forget(&self, pair: &Pair) {
        self.state().working.retain(|_, (of, _)| of != pair);
        self.remove(|labels, _| labels.pair == *pair);
    }

    /// Removes what is too old to be exported.
    pub fn expire(&self, now: Instant) {
        self.remove(|_, at| now.saturating_duration_since(at) >= EXPORTED);
    }

    fn remove(&self, gone: impl Fn(&Labels, Instant) -> bool) {
        self.state().found.retain(|(labels, at)| {
            let gone = gone(labels, *at);
            if gone {
                self.0.exported.remove(labels);
            }
            !gone
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Returns a path that has answered since then, the more alike the better: to the same node, to
    /// the same zone, the last that answered.
    #[must_use]
    pub fn working(&self, since: Instant) -> Option<SocketAddr> {
        let Self { traces, pair, to } = self;
        let state = traces.state();
        let others = state.working.iter().filter(|(other, (_, at))| {
            *other != to && other.is_ipv4() == to.is_ipv4() && *at >= since
        });
        let alike =
            |of: &Pair, at| (of.dst_node == pair.dst_node, of.dst_zone == pair.dst_zone, at);
        others.max_by_key(|(_, (of, at))| alike(of, *at)).map(|(other, _)| *other)
    }

    /// Exports what was found.
    pub fn found(self, lost: &Path, working: Option<&Path>, now: Instant) {
        let labels = Labels {
            pair: self.pair.clone(),
            dst_ip: self.to.ip().to_string(),
            result: lost.result(working),
            hops: lost.to_string(),
            silent_hop: lost.silent_hop().map(|hop| hop.to_string()).unwrap_or_default(),
        };
        tracing::warn!(
            to = %self.to, node = labels.pair.dst_node, result = labels.result, hops = labels.hops,
            working = working.map(ToString::to_string),
            "most probes of this path are lost: a trace"
        );
        let exported = &self.traces.0.exported;
        let mut state = self.traces.state();
        if state.found.len() >= KEPT
            && let Some((oldest, _)) = state.found.pop_front()
        {
            exported.remove(&oldest);
        }
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        exported.get_or_create(&labels).set(time.as_secs_f64().round());
        state.found.retain(|(other, _)| *other != labels);
        state.found.push_back((labels, now));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.traces.state().running = false;
    }
}

/// The routers of a path, as far as they answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    hops: Vec<Option<IpAddr>>,
    end: End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// Nothing answered any more.
    #[default]
    Silence,
    /// The peer answered.
    Peer,
    /// The last hop has reported that it cannot deliver.
    Undeliverable,
}

/// `10.0.0.1 * 10.0.2.1`: the hops, with `*` for those that do not answer.
impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, hop) in self.hops.iter().enumerate() {
            let space = if i == 0 { "" } else { " " };
            match hop {
                Some(hop) => write!(f, "{space}{hop}")?,
                None => write!(f, "{space}*")?,
            }
        }
        Ok(())
    }
}

impl Path {
    /// Reports whether an address answers for more hops than one that is passed once.
    fn loops(&self) -> bool {
        let answered = || self.hops.iter().flatten();
        answered().any(|hop| answered().filter(|other| *other == hop).count() >= LOOP)
    }

    /// The number of the first hop from which on nothing answers.
    fn silent_hop(&self) -> Option<usize> {
        let next = self.hops.len() + 1;
        (self.end == End::Silence && !self.loops() && next <= usize::from(HOPS)).then_some(next)
    }

    /// What a trace says, beside that of a path that works.
    fn result(&self, working: Option<&Self>) -> &'static str {
        match self.end {
            End::Peer => "answered",
            End::Undeliverable => "undeliverable",
            End::Silence if self.loops() => "loop",
            End::Silence if working.is_some_and(|working| self.breaks_off(working)) => "lost",
            End::Silence => "silent",
        }
    }

    /// Reports whether the other path passes the last router of this one, and answers behind it.
    fn breaks_off(&self, working: &Self) -> bool {
        let last = self.hops.len();
        let same = last == 0 || working.hops.get(last - 1) == self.hops.last();
        let next = match working.hops.get(last) {
            Some(next) => next.is_some(),
            None => working.hops.len() == last,
        };
        same && next && working.end == End::Peer
    }
}

/// Something that arrived at the socket.
#[derive(Clone, Copy, Debug)]
enum Heard {
    Reply(Packet),
    /// A report by a router or the peer.
    Report {
        from: IpAddr,
        /// The packet was not delivered; otherwise, its TTL has expired.
        undeliverable: bool,
        /// The packet, if enough of it was quoted.
        quoted: Option<Packet>,
    },
    /// Nothing of interest.
    Other,
}

/// How a trace continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Wait,
    Hop,
    End,
}

/// A trace that is not over.
#[derive(Debug)]
struct Trace {
    peer: IpAddr,
    /// The sequence number of each packet, and its TTL.
    sent: Vec<(u64, u8)>,
    path: Path,
}

impl Trace {
    /// Records what arrives while packets with this TTL are answered.
    fn hear(&mut self, heard: &Heard, replies: &mut Replies, ttl: u8) -> Next {
        match *heard {
            Heard::Other => Next::Wait,
            Heard::Reply(packet) => {
                let foreign = replies.receive(&packet) == Reply::Foreign;
                let Some(reached) = self.ttl_of(&packet).filter(|_| !foreign) else {
                    return Next::Wait;
                };
                self.path.hops.resize(usize::from(reached) - 1, None);
                self.path.end = End::Peer;
                Next::End
            }
            Heard::Report { from, undeliverable: true, .. } if from == self.peer => {
                self.path.end = End::Peer;
                Next::End
            }
            // A report about a probe that was sent before is about the same path.
            Heard::Report { from, undeliverable: true, .. } => {
                if self.path.hops.last() != Some(&Some(from)) {
                    self.path.hops.push(Some(from));
                }
                self.path.end = End::Undeliverable;
                Next::End
            }
            Heard::Report { from, quoted, .. } => {
                let hop = match quoted {
                    Some(packet) => self.ttl_of(&packet),
                    // It may also be one more answer of the hop before.
                    None if self.path.hops.contains(&Some(from)) => None,
                    None => Some(ttl),
                };
                let Some(hop) = hop else { return Next::Wait };
                let place = usize::from(hop) - 1;
                if self.path.hops.len() <= place {
                    self.path.hops.resize(place + 1, None);
                }
                self.path.hops[place] = Some(from);
                if hop == ttl { Next::Hop } else { Next::Wait }
            }
        }
    }

    fn ttl_of(&self, packet: &Packet) -> Option<u8> {
        self.sent.iter().find(|(sequence, _)| *sequence == packet.sequence).map(|(_, ttl)| *ttl)
    }

    /// Reports whether too many hops before this one do not answer.
    fn is_over(&self, ttl: u8) -> bool {
        usize::from(ttl) > self.path.hops.len() + SILENT
    }
}

/// Traces the path of a connected socket.
///
/// # Errors
/// When it cannot send.
pub async fn run(socket: &UdpSocket, to: SocketAddr, replies: &mut Replies) -> io::Result<Path> {
    let _reports = Reports::of(socket, to)?;
    let ends = Instant::now() + LONGEST;
    let mut trace = Trace { peer: to.ip(), sent: Vec::new(), path: Path::default() };
    let mut ttl = 1;
    while ttl <= HOPS && !trace.is_over(ttl) && Instant::now() < ends {
        match hop(socket, to, &mut trace, replies, ttl).await? {
            Next::End => break,
            Next::Hop | Next::Wait => ttl += 1,
        }
    }
    Ok(trace.path)
}

async fn hop(
    socket: &UdpSocket,
    to: SocketAddr,
    trace: &mut Trace,
    replies: &mut Replies,
    ttl: u8,
) -> io::Result<Next> {
    for _ in 0..TRIES {
        let packet = replies.send();
        trace.sent.push((packet.sequence, ttl));
        // The reported error may be about the previous packet.
        send(socket, to, &packet, ttl).or_else(|_| send(socket, to, &packet, ttl))?;
        let until = Instant::now() + WAIT;
        while Instant::now() < until
            && let Ok(heard) = timeout_at(until, receive(socket)).await
        {
            let next = trace.hear(&heard?, replies, ttl);
            if next != Next::Wait {
                return Ok(next);
            }
        }
    }
    Ok(Next::Wait)
}

/// Makes a socket keep the reports of routers, until it is dropped: otherwise each would end a probe.
struct Reports<'a> {
    socket: &'a UdpSocket,
    v4: bool,
}

impl<'a> Reports<'a> {
    fn of(socket: &'a UdpSocket, to: SocketAddr) -> io::Result<Self> {
        let reports = Self { socket, v4: to.is_ipv4() };
        reports.keep(true)?;
        Ok(reports)
    }

    fn keep(&self, keep: bool) -> nix::Result<()> {
        if self.v4 {
            setsockopt(self.socket, sockopt::Ipv4RecvErr, &keep)
        } else {
            setsockopt(self.socket, sockopt::Ipv6RecvErr, &keep)
        }
    }
}

impl Drop for Reports<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.keep(false) {
            tracing::debug!(%error, "reports of routers");
        }
        // The queue is empty now; the error that belongs to its first report is still there.
        drop(self.socket.take_error());
    }
}

fn send(socket: &UdpSocket, to: SocketAddr, packet: &Packet, ttl: u8) -> io::Result<()> {
    let (bytes, ttl) = (packet.encode(), libc::c_int::from(ttl));
    let control = match to {
        SocketAddr::V4(_) => ControlMessage::Ipv4Ttl(&ttl),
        SocketAddr::V6(_) => ControlMessage::Ipv6HopLimit(&ttl),
    };
    let (parts, flags) = ([IoSlice::new(&bytes)], MsgFlags::MSG_DONTWAIT);
    sendmsg(socket.as_raw_fd(), &parts, &[control], flags, None::<&()>)?;
    Ok(())
}

async fn receive(socket: &UdpSocket) -> io::Result<Heard> {
    let read = || match report(socket) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => reply(socket),
        heard => heard,
    };
    socket.async_io(Interest::READABLE | Interest::ERROR, read).await
}

fn reply(socket: &UdpSocket) -> io::Result<Heard> {
    let mut buffer = [0; LENGTH + 1];
    match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT).map_err(io::Error::from) {
        Ok(length) => Ok(Packet::decode(&buffer[..length]).map_or(Heard::Other, Heard::Reply)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
        // The error of a report that was read already.
        Err(_) => Ok(Heard::Other),
    }
}

/// Takes a report from the socket's queue of errors.
fn report(socket: &UdpSocket) -> io::Result<Heard> {
    let mut buffer = [0; LENGTH];
    let mut control = nix::cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let (length, about) = {
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
        let about = message.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::Ipv4RecvErr(error, Some(from)) => {
                let from = Ipv4Addr::from(u32::from_be(from.sin_addr.s_addr));
                Some((error, IpAddr::from(from)))
            }
            ControlMessageOwned::Ipv6RecvErr(error, Some(from)) => {
                Some((error, IpAddr::from(from.sin6_addr.s6_addr)))
            }
            _ => None,
        });
        (message.bytes, about)
    };
    let Some((error, from)) = about else { return Ok(Heard::Other) };
    let quoted = Packet::decode_beginning(&buffer[..length]);
    let Some(undeliverable) = kind(&error) else { return Ok(Heard::Other) };
    Ok(Heard::Report { from, undeliverable, quoted })
}

/// Reports whether a packet was not delivered (true), or its TTL has expired; `None` for anything
/// else, such as a packet that is too large.
fn kind(error: &libc::sock_extended_err) -> Option<bool> {
    match (error.ee_origin, error.ee_type, error.ee_code) {
        (libc::SO_EE_ORIGIN_ICMP, 11, 0) | (libc::SO_EE_ORIGIN_ICMP6, 3, 0) => Some(false),
        // All but "fragmentation needed".
        (libc::SO_EE_ORIGIN_ICMP, 3, 0..=3 | 5..) | (libc::SO_EE_ORIGIN_ICMP6, 1, _) => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
