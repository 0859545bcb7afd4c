//! Probes: a packet from every pod to every other, one way, every 50 ms, in each address family
//! that both have.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::record::{Pair, Record};
use crate::bgp::family::Family;
use crate::bgp::network::{inside, pod};

/// Port of the probes; nothing else listens in a node's namespace.
const PORT: u16 = 9000;
/// After this a packet counts as lost: on links within one machine it takes microseconds, and the
/// rest is for a machine that is busy.
pub(super) const GRACE: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct Prober {
    sockets: BTreeMap<(Family, u8), UdpSocket>,
    /// Sent less than [`GRACE`] ago.
    rounds: VecDeque<Round>,
    next: u32,
}

struct Round {
    number: u32,
    at: Instant,
    sent: u64,
    /// Not arrived yet.
    out: BTreeSet<(Family, Pair)>,
}

impl Prober {
    pub fn add(&mut self, family: Family, number: u8, namespace: &str) -> Result<()> {
        let address = target(family, number)?;
        let socket = inside(namespace, || UdpSocket::bind(address))?;
        let socket = socket.with_context(|| format!("listening on {address}"))?;
        socket.set_nonblocking(true)?;
        self.sockets.insert((family, number), socket);
        Ok(())
    }

    pub fn remove(&mut self, number: u8) {
        self.sockets.retain(|(_, of), _| *of != number);
        for round in &mut self.rounds {
            round.out.retain(|(_, pair)| pair.0 != number && pair.1 != number);
        }
    }

    pub fn socket(&self, family: Family, number: u8) -> Option<&UdpSocket> {
        self.sockets.get(&(family, number))
    }

    /// Sends one packet for each pair, in each family.
    pub fn send(&mut self, now: Instant) -> Result<()> {
        let mut round = Round { number: self.next, at: now, sent: 0, out: BTreeSet::new() };
        self.next = self.next.wrapping_add(1);
        for (&(family, from), socket) in &self.sockets {
            let others =
                self.sockets.keys().filter(|(of, number)| *of == family && *number != from);
            for &(_, to) in others {
                let mut packet = round.number.to_be_bytes().to_vec();
                packet.extend([from, to]);
                match socket.send_to(&packet, target(family, to)?) {
                    // Not sent because of missing buffers: unrelated to routes.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    // Sent, or refused at once because there is no route.
                    _ => {
                        round.sent += 1;
                        round.out.insert((family, (from, to)));
                    }
                }
            }
        }
        self.rounds.push_back(round);
        Ok(())
    }

    /// Takes in what has arrived at a node.
    pub fn receive(&mut self, family: Family, number: u8) {
        let Some(socket) = self.sockets.get(&(family, number)) else { return };
        let mut packet = [0; 6];
        while let Ok(length) = socket.recv(&mut packet) {
            let [a, b, c, d, from, to] = packet;
            let sent = u32::from_be_bytes([a, b, c, d]);
            let mut rounds = self.rounds.iter_mut();
            if length == packet.len()
                && let Some(round) = rounds.find(|round| round.number == sent)
            {
                round.out.remove(&(family, (from, to)));
            }
        }
    }

    /// Enters the rounds that are over.
    pub fn settle(&mut self, now: Instant, record: &mut Record) {
        while self.rounds.front().is_some_and(|round| now >= round.at + GRACE) {
            if let Some(round) = self.rounds.pop_front() {
                let lost = round.out.into_iter().map(|(_, pair)| pair);
                record.probed(round.at, round.sent, lost);
            }
        }
    }
}

/// The address and port of the probes to a node.
fn target(family: Family, number: u8) -> Result<SocketAddr> {
    let address: IpAddr = pod(family, number).parse().context("the address of a pod")?;
    Ok(SocketAddr::new(address, PORT))
}
