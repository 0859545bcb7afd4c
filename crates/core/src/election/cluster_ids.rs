//! The cluster id of each reflector.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use super::{
    Previous, Refusal, Roll, Rules,
    choice::Chosen,
    pool::{MOST_IDS, Pool, is_id},
};
use crate::election::{IdScope, Topology};

/// The reflectors that share an id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    All,
    Zone(Option<&'a str>),
    Slot(u32),
}

/// Number of reflectors with an id: those that stay, those that leave, and earlier ones.
type Votes = (usize, usize, usize);

/// Returns the id of each holder, in their order. Ids stay: where several are in use, the one of
/// most reflectors wins.
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
    let keys: Vec<_> = chosen.holders.iter().map(|holder| key(holder.member, holder.id)).collect();
    let distinct: BTreeSet<_> = keys.iter().collect();
    if distinct.len() > MOST_IDS {
        return Err(Refusal::ManyIds { scope, needed: distinct.len() });
    }
    let addresses: BTreeSet<IpAddr> = roll.members.iter().filter_map(|m| m.address).collect();
    let is_free = |id: &Ipv4Addr| !addresses.contains(&IpAddr::V4(*id));
    let may = |id: &Ipv4Addr| rules.ids.pool.contains(*id) && is_id(*id) && is_free(id);
    // Reflectors from before us keep theirs, unless the author has chosen a pool.
    let keeps = |id: &Ipv4Addr| {
        let usable = !id.is_unspecified() && !id.is_broadcast() && !id.is_loopback();
        rules.ids.pool == Pool::default() && usable && is_free(id)
    };

    let mut votes: BTreeMap<(&Key, Ipv4Addr), Votes> = BTreeMap::new();
    for (holder, key) in chosen.holders.iter().zip(&keys) {
        // A client's id is left over from earlier.
        let id = roll.members[holder.member].cluster_id.filter(|_| roll.is_holder(holder.member));
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
    let wishes = votes.into_iter().filter(|((_, id), _)| may(id) || keeps(id));
    let mut wishes: Vec<_> = wishes.collect();
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
