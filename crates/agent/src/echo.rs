//! The packets of the UDP echo, and what a reply means.
//!
//! ```text
//! 0      4 magic "NPE1"
//! 4      1 kind: 0 request, 1 reply; 2 request of any length from 64 bytes on, 3 its reply
//! 5      3 zero
//! 8      8 nonce, big-endian: chosen at random by the prober for each socket
//! 16     8 sequence number, big-endian
//! 24     4 kind 3: the length of the request in bytes, big-endian; else zero
//! 28    36 zero, as is everything after them
//! ```
//!
//! A reply is never longer than its request, so that the echo does not amplify an attack, and only
//! requests are answered, so that two echo servers never keep each other busy.
use std::hash::{BuildHasher, RandomState};

/// Length of every packet: that of a small real one (a DNS question, a voice sample), short enough
/// to leave room for the headers of any tunnel.
pub const LENGTH: usize = 64;

const MAGIC: [u8; 4] = *b"NPE1";

/// The distance, in sequence numbers, within which replies are distinguished: a reply that is 64
/// periods late no longer matters.
const WINDOW: u64 = 64;

/// The contents of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// True if it is the answer.
    pub reply: bool,
    /// Identifies the sender.
    pub nonce: u64,
    /// Number of the packet.
    pub sequence: u64,
}

impl Packet {
    /// The bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = u8::from(self.reply);
        bytes[8..16].copy_from_slice(&self.nonce.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    /// Decodes the bytes; `None` unless every one of them is as expected.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
        let number = |at: usize| {
            bytes[at..at + 8].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let packet = Self { reply: bytes[4] == 1, nonce: number(8), sequence: number(16) };
        (packet.encode() == *bytes).then_some(packet)
    }

    /// Decodes a packet of which only the beginning was quoted; `None` if that is too short.
    #[must_use]
    pub fn decode_beginning(bytes: &[u8]) -> Option<Self> {
        let mut whole = [0; LENGTH];
        let length = bytes.len().min(LENGTH);
        whole[..length].copy_from_slice(&bytes[..length]);
        Self::decode(&whole).filter(|_| length >= 24)
    }

    /// Returns the reply of the echo server; none to anything but a request.
    #[must_use]
    pub fn answer(&self) -> Option<Self> {
        (!self.reply).then_some(Self { reply: true, ..*self })
    }
}

/// A request of a certain length, or its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padded {
    kind: u8,
    /// Identifies the sender.
    pub nonce: u64,
    /// Number of the packet.
    pub sequence: u64,
    /// Of a reply: the length of the request.
    pub length: u32,
}

const PADDED_REQUEST: u8 = 2;
const PADDED_REPLY: u8 = 3;

impl Padded {
    /// A request.
    #[must_use]
    pub const fn request(nonce: u64, sequence: u64) -> Self {
        Self { kind: PADDED_REQUEST, nonce, sequence, length: 0 }
    }

    /// The bytes on the wire, padded to this length.
    #[must_use]
    pub fn encode(&self, length: usize) -> Vec<u8> {
        let mut bytes =
            Packet { reply: false, nonce: self.nonce, sequence: self.sequence }.encode();
        bytes[4] = self.kind;
        bytes[24..28].copy_from_slice(&self.length.to_be_bytes());
        let mut bytes = bytes.to_vec();
        bytes.resize(length.max(LENGTH), 0);
        bytes
    }

    fn decode(head: &[u8]) -> Option<Self> {
        let bytes: &[u8; LENGTH] = head.try_into().ok()?;
        let number = |from: usize, to: usize| {
            bytes[from..to].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let length = u32::try_from(number(24, 28)).ok()?;
        let padded =
            Self { kind: bytes[4], nonce: number(8, 16), sequence: number(16, 24), length };
        (padded.encode(LENGTH) == bytes).then_some(padded)
    }

    /// Decodes a reply.
    #[must_use]
    pub fn decode_reply(bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes).filter(|padded| padded.kind == PADDED_REPLY)
    }

    /// Returns the reply of the echo server to a request that begins with these bytes and has this
    /// length; none to anything else.
    #[must_use]
    pub fn answer(head: &[u8], length: usize) -> Option<[u8; LENGTH]> {
        let request = Self::decode(head);
        let request =
            request.filter(|padded| (padded.kind, padded.length) == (PADDED_REQUEST, 0))?;
        let reply = Self { kind: PADDED_REPLY, length: u32::try_from(length).ok()?, ..request };
        reply.encode(LENGTH).try_into().ok()
    }
}

/// Returns a number that a stranger cannot guess: the standard library's hash keys come from the
/// system.
#[must_use]
pub fn nonce() -> u64 {
    RandomState::new().hash_one(0)
}

/// The kind of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The first reply to its request; no later request was answered before.
    First,
    /// The first reply to its request, received after the reply to a later one.
    Reordered,
    /// Another reply to the same request.
    Duplicate,
    /// A reply to none of our requests, or to one so old that it is forgotten.
    Foreign,
}

/// The requests of one socket and their replies.
#[derive(Clone, Copy, Debug)]
pub struct Replies {
    nonce: u64,
    next: u64,
    /// The highest answered number, and the answered ones of the `WINDOW` below it (bit 0: itself).
    highest: Option<u64>,
    answered: u64,
}

impl Replies {
    /// No request was sent yet.
    #[must_use]
    pub const fn new(nonce: u64) -> Self {
        Self { nonce, next: 0, highest: None, answered: 0 }
    }

    /// The next request.
    pub fn send(&mut self) -> Packet {
        let sequence = self.next;
        self.next = self.next.wrapping_add(1);
        Packet { reply: false, nonce: self.nonce, sequence }
    }

    /// Classifies a reply when it arrives.
    pub fn receive(&mut self, packet: &Packet) -> Reply {
        if !packet.reply || packet.nonce != self.nonce || packet.sequence >= self.next {
            return Reply::Foreign;
        }
        let Some(highest) = self.highest.filter(|highest| packet.sequence <= *highest) else {
            let ahead = self.highest.map_or(WINDOW, |highest| packet.sequence - highest);
            let shift = u32::try_from(ahead).unwrap_or(u32::MAX);
            self.answered = self.answered.checked_shl(shift).unwrap_or(0) | 1;
            self.highest = Some(packet.sequence);
            return Reply::First;
        };
        let back = highest - packet.sequence;
        if back >= WINDOW {
            return Reply::Foreign;
        }
        let bit = 1_u64 << back;
        if self.answered & bit != 0 {
            return Reply::Duplicate;
        }
        self.answered |= bit;
        Reply::Reordered
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn replies_are_distinguished() {
        let mut replies = Replies::new(7);
        for _ in 0..100 {
            replies.send();
        }
        let mut receive = |sequence| replies.receive(&Packet { reply: true, nonce: 7, sequence });
        for (sequence, expected) in [
            (0, Reply::First),
            (0, Reply::Duplicate),
            (2, Reply::First),
            (1, Reply::Reordered),
            (1, Reply::Duplicate),
            (2, Reply::Duplicate),
            (70, Reply::First),
            (7, Reply::Reordered),
            (6, Reply::Foreign),
            (100, Reply::Foreign),
        ] {
            assert_eq!(receive(sequence), expected, "{sequence}");
        }
        assert_eq!(replies.receive(&Packet { reply: true, nonce: 8, sequence: 3 }), Reply::Foreign);
        let request = Packet { reply: false, nonce: 7, sequence: 80 };
        assert_eq!(replies.receive(&request), Reply::Foreign);
    }

    proptest! {
        #[test]
        fn packets_survive_the_wire(reply: bool, nonce: u64, sequence: u64) {
            let packet = Packet { reply, nonce, sequence };
            prop_assert_eq!(Packet::decode(&packet.encode()), Some(packet));
        }

        #[test]
        fn one_wrong_byte_is_never_taken_for_a_padding(at in 0..LENGTH, byte: u8, nonce: u64) {
            let good = Packet { reply: false, nonce, sequence: 3 }.encode();
            let mut bytes = good;
            bytes[at] = byte;
            if let Some(packet) = Packet::decode(&bytes) {
                prop_assert_eq!(packet.encode(), bytes);
                prop_assert!(bytes == good || (4..5).contains(&at) || (8..24).contains(&at));
            }
        }

        #[test]
        fn nothing_malformed_is_answered_and_no_answer_is_longer(bytes in vec(any::<u8>(), 0..200)) {
            let answer = Packet::decode(&bytes).and_then(|packet| packet.answer());
            prop_assert!(answer.is_none_or(|answer| answer.encode().len() <= bytes.len()));
        }

        #[test]
        fn a_request_of_any_length_has_a_short_answer_with_it(
            nonce: u64, sequence: u64, length in LENGTH..10_000,
        ) {
            let request = Padded::request(nonce, sequence).encode(length);
            prop_assert_eq!(request.len(), length);
            let answer = Padded::answer(&request[..LENGTH], length).unwrap();
            let reply = Padded::decode_reply(&answer).unwrap();
            prop_assert_eq!((reply.nonce, reply.sequence), (nonce, sequence));
            prop_assert_eq!(usize::try_from(reply.length).unwrap(), length);
            // Neither kind is taken for the other, and no answer is answered.
            prop_assert_eq!((Packet::decode(&answer), Packet::decode(&request)), (None, None));
            prop_assert_eq!(Padded::answer(&answer, LENGTH), None);
            let small = Packet { reply: false, nonce, sequence }.encode();
            prop_assert_eq!(Padded::answer(&small, LENGTH), None);
        }

        #[test]
        fn an_answer_is_never_answered(nonce: u64, sequence: u64) {
            let answer = Packet { reply: false, nonce, sequence }.answer();
            prop_assert_eq!(answer.and_then(|answer| answer.answer()), None);
        }

        /// Compares with the plain definition, within the window.
        #[test]
        fn each_request_is_answered_first_once(order in vec(0u64..60, 0..200)) {
            let mut replies = Replies::new(1);
            for _ in 0..60 {
                replies.send();
            }
            let mut seen = BTreeSet::new();
            for sequence in order {
                let expected = match (seen.contains(&sequence), seen.last()) {
                    (true, _) => Reply::Duplicate,
                    (false, Some(last)) if *last > sequence => Reply::Reordered,
                    (false, _) => Reply::First,
                };
                seen.insert(sequence);
                let packet = Packet { reply: true, nonce: 1, sequence };
                prop_assert_eq!(replies.receive(&packet), expected);
            }
        }
    }
}
