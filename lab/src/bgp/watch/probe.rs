//! Probes: a packet from every pod to every other, one way, every 50 ms.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::record::{Pair, Record};
use crate::bgp::network::{inside, pod};

/// Port of the probes; nothing else listens in a node's namespace.
const PORT: u16 = 9000;
/// After this a packet counts as lost: on links within one machine it takes microseconds, and the
/// rest is for a machine that is busy.
pub(super) const GRACE: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct Prober {
    sockets: BTreeMap<u8, UdpSocket>,
    /// Sent less than [`GRACE`] ago.
    rounds: VecDeque<Round>,
    next: u32,
}

struct Round {
    number: u32,
    at: Instant,
    sent: u64,
    /// Not arrived yet.
    out: BTreeSet<Pair>,
}

impl Prober {
    pub fn add(&mut self, number: u8, namespace: &str) -> Result<()> {
        let address = format!("{}:{PORT}", pod(number));
        let socket = inside(namespace, || UdpSocket::bind(&address))?;
        let socket = socket.with_context(|| format!("listening on {address}"))?;
        socket.set_nonblocking(true)?;
        self.sockets.insert(number, socket);
        Ok(())
    }

    pub fn remove(&mut self, number: u8) {
        self.sockets.remove(&number);
        for round in &mut self.rounds {
            round.out.retain(|pair| pair.0 != number && pair.1 != number);
        }
    }

    pub fn socket(&self, number: u8) -> Option<&UdpSocket> {
        self.sockets.get(&number)
    }

    /// Sends one packet for each pair.
    pub fn send(&mut self, now: Instant) {
        let mut round = Round { number: self.next, at: now, sent: 0, out: BTreeSet::new() };
        self.next = self.next.wrapping_add(1);
        for (&from, socket) in &self.sockets {
            for &to in self.sockets.keys().filter(|to| **to != from) {
                let mut packet = round.number.to_be_bytes().to_vec();
                packet.extend([from, to]);
                match socket.send_to(&packet, (pod(to).as_str(), PORT)) {
                    // Not sent because of missing buffers: unrelated to routes.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    // Sent, or refused at once because there is no route.
                    _ => {
                        round.sent += 1;
                        round.out.insert((from, to));
                    }
                }
            }
        }
        self.rounds.push_back(round);
    }

    /// Takes in what has arrived at a node.
    pub fn receive(&mut self, number: u8) {
        let Some(socket) = self.sockets.get(&number) else { return };
        let mut packet = [0; 6];
        while let Ok(length) = socket.recv(&mut packet) {
            let [a, b, c, d, from, to] = packet;
            let sent = u32::from_be_bytes([a, b, c, d]);
            let mut rounds = self.rounds.iter_mut();
            if length == packet.len()
                && let Some(round) = rounds.find(|round| round.number == sent)
            {
                round.out.remove(&(from, to));
            }
        }
    }

    /// Enters the rounds that are over.
    pub fn settle(&mut self, now: Instant, record: &mut Record) {
        while self.rounds.front().is_some_and(|round| now >= round.at + GRACE) {
            if let Some(round) = self.rounds.pop_front() {
                record.probed(round.at, round.sent, round.out);
            }
        }
    }
}
