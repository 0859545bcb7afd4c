//! The addresses to take cluster ids from, and the number of ids.
use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
};

use super::Refusal;

/// Reflectors with different ids are clients of each other, and Calico's BIRD passes on every path
/// that it has: with four ids, each table holds some tens of paths to a prefix; with six, 326, and
/// BIRD has not converged after a minute (measured).
pub const MOST_IDS: usize = 4;

/// IPv4 addresses to take ids from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    first: u32,
    bits: u8,
}

/// 224.0.0.0/16.
impl Default for Pool {
    fn default() -> Self {
        Self { first: 224 << 24, bits: 16 }
    }
}

impl Pool {
    /// Reads a range ("224.0.0.0/16") or an address.
    ///
    /// # Errors
    /// If it is neither.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let invalid = || Refusal::Pool { text: text.to_owned() };
        let (address, bits) = match text.split_once('/') {
            None => (text, 32),
            // As the API server reads it: no sign, no leading zero.
            Some((_, bits)) if bits.starts_with(['+', '0']) && bits != "0" => return Err(invalid()),
            Some((address, bits)) => (address, bits.parse::<u8>().map_err(|_| invalid())?),
        };
        let address: Ipv4Addr = address.parse().map_err(|_| invalid())?;
        let mask = match bits {
            0 => 0,
            1..=32 => u32::MAX << (32 - bits),
            _ => return Err(invalid()),
        };
        Ok(Self { first: address.to_bits() & mask, bits })
    }

    pub(super) fn contains(self, id: Ipv4Addr) -> bool {
        (self.first..=self.last()).contains(&id.to_bits())
    }

    fn last(self) -> u32 {
        self.first | u32::MAX.checked_shr(u32::from(self.bits)).unwrap_or(0)
    }

    /// Reports whether any of its addresses can be an id.
    #[must_use]
    pub fn has_ids(self) -> bool {
        self.size(&BTreeSet::new()) > 0
    }

    /// Returns the parts of the pool that can be ids.
    fn parts(self) -> impl Iterator<Item = RangeInclusive<u32>> {
        let within = move |(first, last): (u32, u32)| self.first.max(first)..=self.last().min(last);
        IDS.into_iter().map(within)
    }

    pub(super) fn ids(self) -> impl Iterator<Item = Ipv4Addr> {
        self.parts().flatten().map(Ipv4Addr::from_bits)
    }

    /// Returns the number of addresses that can be ids, without these.
    pub(super) fn size(self, without: &BTreeSet<IpAddr>) -> usize {
        let size = |part: RangeInclusive<u32>| {
            if part.is_empty() { 0 } else { (part.end() - part.start()) as usize + 1 }
        };
        let taken = |address: &&IpAddr| match address {
            IpAddr::V4(id) => self.contains(*id) && is_id(*id),
            IpAddr::V6(_) => false,
        };
        self.parts().map(size).sum::<usize>() - without.iter().filter(taken).count()
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.first), self.bits)
    }
}

/// Addresses of hosts and multicast groups, without loopback (first and last).
const IDS: [(u32, u32); 2] = [(0x0100_0000, 0x7eff_ffff), (0x8000_0000, 0xefff_ffff)];

/// Reports whether an address can be an id.
pub(super) fn is_id(id: Ipv4Addr) -> bool {
    IDS.iter().any(|(first, last)| (*first..=*last).contains(&id.to_bits()))
}
