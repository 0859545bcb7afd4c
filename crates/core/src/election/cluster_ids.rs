//! The cluster id of each reflector.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
};

use super::{Previous, Refusal, Roll, Rules, choice::Chosen};
use crate::election::{IdScope, Topology};

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

    fn contains(self, id: Ipv4Addr) -> bool {
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

    fn ids(self) -> impl Iterator<Item = Ipv4Addr> {
        self.parts().flatten().map(Ipv4Addr::from_bits)
    }

    /// Returns the number of addresses that can be ids, without these.
    fn size(self, without: &BTreeSet<IpAddr>) -> usize {
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

fn is_id(id: Ipv4Addr) -> bool {
    IDS.iter().any(|(first, last)| (*first..=*last).contains(&id.to_bits()))
}

/// The reflectors that share an id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    All,
    Zone(Option<&'a str>),
    Slot(u32),
}

/// Number of reflectors with an id: those that stay, those that leave, and earlier ones.
type Votes = (usize, usize, usize);

/// Returns the id of each seat, in their order. Ids stay: where several are in use, the one of most
/// reflectors wins.
pub(super) fn assign(
    rules: &Rules,
    topology: Topology,
    roll: &Roll,
    chosen: &Chosen,
    previous: &Previous,
) -> Result<Vec<Ipv4Addr>, Refusal> {
    let scope = rules.id_scope(topology);
    let key = |member: usize, slot: u32| match scope {
        IdScope::Set => Key::All,
        IdScope::Zone => Key::Zone(roll.members[member].zone().map(|zone| &**zone)),
        IdScope::Slot => Key::Slot(slot),
    };
    let keys: Vec<_> = chosen.seats.iter().map(|seat| key(seat.member, seat.id)).collect();
    let distinct: BTreeSet<_> = keys.iter().collect();
    if distinct.len() > MOST_IDS {
        return Err(Refusal::ManyIds { scope, needed: distinct.len() });
    }
    let addresses: BTreeSet<IpAddr> = roll.members.iter().filter_map(|m| m.address).collect();
    let is_free = |id: &Ipv4Addr| !addresses.contains(&IpAddr::V4(*id));
    let may = |id: &Ipv4Addr| rules.ids.pool.contains(*id) && is_id(*id) && is_free(id);

    let mut votes: BTreeMap<(&Key, Ipv4Addr), Votes> = BTreeMap::new();
    for (seat, key) in chosen.seats.iter().zip(&keys) {
        // A client's id is left over from earlier.
        let id = roll.members[seat.member].cluster_id.filter(|_| roll.is_holder(seat.member));
        if let Some(id) = id {
            votes.entry((key, id)).or_default().0 += 1;
        }
    }
    for &(index, slot, _) in &chosen.leavers {
        let key = distinct.get(&key(index, slot)).copied();
        if let (Some(id), Some(key)) = (roll.members[index].cluster_id, key) {
            votes.entry((key, id)).or_default().1 += 1;
        }
    }
    for slot in &previous.slots {
        let key = match scope {
            IdScope::Set => Key::All,
            IdScope::Zone => Key::Zone(slot.zone.as_deref().filter(|zone| !zone.is_empty())),
            IdScope::Slot => Key::Slot(slot.id),
        };
        if let (Some(id), Some(key)) = (slot.cluster_id, distinct.get(&key).copied()) {
            votes.entry((key, id)).or_default().2 += 1;
        }
    }
    let mut wishes: Vec<_> = votes.into_iter().filter(|((_, id), _)| may(id)).collect();
    wishes.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    let (mut ids, mut given) = (BTreeMap::new(), BTreeSet::new());
    for ((key, id), _) in wishes {
        if !ids.contains_key(key) && given.insert(id) {
            ids.insert(key, id);
        }
    }
    // An id that is still in use would belong to two zones for a while.
    let in_use: BTreeSet<_> = roll.members.iter().filter_map(|member| member.cluster_id).collect();
    for key in &distinct {
        if ids.contains_key(key) {
            continue;
        }
        let open = |id: &Ipv4Addr| is_free(id) && !given.contains(id);
        let pool = rules.ids.pool;
        let unused = pool.ids().find(|id| open(id) && !in_use.contains(id));
        let Some(id) = unused.or_else(|| pool.ids().find(open)) else {
            let have = pool.size(&addresses);
            return Err(Refusal::SmallPool { pool, have, needed: distinct.len() });
        };
        given.insert(id);
        ids.insert(key, id);
    }
    Ok(keys.iter().filter_map(|key| ids.get(key).copied()).collect())
}
