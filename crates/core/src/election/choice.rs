//! The choice of reflectors, their slots and their cluster ids.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use super::{
    IdScope, Leave, Leaving, MOST_IDS, Pool, Previous, Refusal, Roll, Rules, Scope, Slot, Topology,
    candidates::{Rank, Standing},
    layout::{self, Layout, spread},
    rules::is_id,
};

/// The chosen reflectors.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub desired: usize,
    /// Set if the topology has no room for as many reflectors as the count requires.
    pub fitted: Option<Fitted>,
    /// By slot.
    pub holders: Vec<Holder>,
    /// Reflectors that should not be reflectors: node, slot, reason.
    pub leavers: Vec<(usize, u32, Leave)>,
}

/// The numbers that the count requires.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fitted {
    pub wanted: usize,
    /// Different cluster ids.
    pub ids: usize,
}

/// A node in a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub id: u32,
    pub member: usize,
    pub trouble: Option<Leave>,
}

impl Holder {
    pub fn slot(&self, roll: &Roll, cluster_id: Ipv4Addr) -> Slot {
        let member = roll.members[self.member];
        Slot {
            id: self.id,
            node: member.name.clone(),
            zone: member.zone().cloned(),
            cluster_id,
            trouble: self.trouble,
        }
    }
}

impl Chosen {
    pub fn leaving(&self, roll: &Roll) -> Vec<Leaving> {
        let leaving = |&(index, slot, reason): &(usize, u32, Leave)| {
            let node = roll.members[index].name.clone();
            Leaving { node, slot, reason }
        };
        let mut all: Vec<_> = self.leavers.iter().map(leaving).collect();
        all.sort_by(|a, b| (&a.node, a.slot).cmp(&(&b.node, b.slot)));
        all
    }
}

/// The order in which the nodes of a zone are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// A reflector that stays.
    Holder,
    /// The node that had the slot until its labels were removed by hand.
    Returning,
    /// A client that is fit.
    Fit,
    /// A reflector that has been unfit for long: only a fit node may replace it.
    UnfitHolder,
    /// A client that is not fit.
    Unfit,
    /// A reflector that should not be one: any other node may replace it.
    Troubled,
}

type Choice<'a> = (Class, Rank<'a>, usize);

/// A zone and its nodes.
type Zone<'a> = (Option<&'a Arc<str>>, Vec<usize>);

/// Returns every slot with the nodes that hold it now.
pub(super) fn keep(roll: &Roll) -> Chosen {
    let mut holders: Vec<_> = (0..roll.len()).filter(|&index| roll.is_holder(index)).collect();
    holders.sort_by_key(|&index| (roll.trouble(index).is_some(), roll.rank(index)));
    let nothing = Previous::default();
    let mut numbers = Numbers::new(roll, &nothing);
    let mut chosen = Chosen::default();
    for &index in &holders {
        if let Some(id) = roll.slot(index)
            && !numbers.taken.insert(id)
        {
            continue;
        }
        let id = roll.slot(index).unwrap_or_else(|| numbers.fresh());
        chosen.holders.push(Holder { id, member: index, trouble: roll.trouble(index) });
    }
    chosen.holders.sort_by_key(|holder| holder.id);
    chosen.desired = chosen.holders.len();
    chosen
}

pub(super) fn choose(rules: &Rules, roll: &Roll, layout: &Layout, previous: &Previous) -> Chosen {
    let zonal = layout.topology == Topology::Zonal;
    let counts = |zone: Option<&Arc<str>>| {
        !zonal || zone.is_some_and(|zone| layout.guests.binary_search(zone).is_err())
    };
    let zones: Vec<_> = roll.zones().into_iter().filter(|(zone, _)| counts(*zone)).collect();
    let mut all: Vec<Vec<Choice>> =
        zones.iter().map(|(_, indices)| options(roll, indices)).collect();
    // A new choice in too many zones is refused; a running one stays in its zones.
    if rules.id_scope(layout.topology) == IdScope::Zone
        && previous.topology == Some(layout.topology)
    {
        keep_zones(roll, &mut all);
    }
    // In topology Zonal, no zone in use gets fewer: the last one could not be replaced.
    let floor = if zonal { layout::least(1) } else { 0 };
    let (mut desired, mut quotas) = match rules.count.scope {
        Scope::PerZone => {
            let quotas = per_zone(rules, roll, &zones, &all, floor);
            (quotas.iter().sum(), quotas)
        }
        Scope::Cluster => {
            let now = roll.held(0..roll.len());
            let desired = rules.count.desired(now, &roll.count(0..roll.len()));
            // Assumes that every node is ready: one that is not must not cost a zone its second
            // reflector.
            let least = if zonal { layout::least(zones.len()) } else { 0 };
            let desired = desired.max(least);
            (desired, spread(desired, &all))
        }
    };
    let wanted = desired;
    let ids = match rules.id_scope(layout.topology) {
        IdScope::Set => 1,
        IdScope::Zone => quotas.iter().filter(|quota| **quota > 0).count(),
        IdScope::Slot => wanted,
    };
    let fitted = layout::fit(rules, layout.topology, &mut quotas, &all, (roll.len(), floor));
    if fitted {
        desired = quotas.iter().sum();
    }
    let taken = if zonal || rules.count.scope == Scope::PerZone {
        heads(&all, &quotas)
    } else {
        anywhere(desired, &all)
    };
    let stays: BTreeSet<usize> = taken.iter().copied().collect();
    let mut leavers: Vec<_> =
        (0..roll.len()).filter(|index| roll.is_holder(*index) && !stays.contains(index)).collect();
    roll.worst_first(&mut leavers);
    let mut chosen = number(roll, &taken, &leavers, previous, zonal);
    chosen.desired = desired;
    chosen.fitted = fitted.then_some(Fitted { wanted, ids });
    for leaver in &mut chosen.leavers {
        if leaver.2 == Leave::Surplus && !counts(roll.members[leaver.0].zone()) {
            leaver.2 = Leave::NotSuitable;
        }
    }
    chosen
}

/// Returns the nodes of a zone that can be chosen, the best first.
fn options<'a>(roll: &Roll<'a>, indices: &[usize]) -> Vec<Choice<'a>> {
    let class = |index: usize| {
        let member = roll.members[index];
        Some(match (roll.standing[index], roll.trouble(index)) {
            (Standing::Holder(_), None) => Class::Holder,
            (Standing::Holder(_), Some(Leave::Unfit)) => Class::UnfitHolder,
            (Standing::Holder(_), Some(_)) => Class::Troubled,
            (Standing::Returning(_), _) => Class::Returning,
            (Standing::Other, _) if !member.is_usable() => return None,
            (Standing::Other, _) if member.unfit => Class::Unfit,
            (Standing::Other, _) => Class::Fit,
        })
    };
    let mut options: Vec<_> = indices
        .iter()
        .filter_map(|&index| Some((class(index)?, roll.rank(index), index)))
        .collect();
    options.sort_unstable();
    options
}

fn heads(all: &[Vec<Choice>], quotas: &[usize]) -> Vec<usize> {
    let heads = all.iter().zip(quotas).flat_map(|(options, quota)| &options[..*quota]);
    heads.map(|option| option.2).collect()
}

/// Chooses for slots without a zone: a surplus reflector keeps such a slot only if no zone has a
/// candidate.
fn anywhere(desired: usize, all: &[Vec<Choice>]) -> Vec<usize> {
    let is_good = |option: &&Choice| option.0 != Class::Troubled;
    let good: Vec<Vec<Choice>> =
        all.iter().map(|options| options.iter().filter(is_good).copied().collect()).collect();
    let mut taken = heads(&good, &spread(desired, &good));
    let mut rest: Vec<_> = all.iter().flatten().filter(|option| !is_good(option)).collect();
    rest.sort_unstable();
    taken.extend(rest.iter().take(desired - taken.len()).map(|option| option.2));
    taken
}

/// Empties the lists of zones for which there is no cluster id: those without a reflector first.
fn keep_zones(roll: &Roll, all: &mut [Vec<Choice>]) {
    let in_use = |options: &[Choice]| options.iter().any(|option| roll.is_holder(option.2));
    while all.iter().filter(|options| !options.is_empty()).count() > MOST_IDS {
        let filled = all.iter_mut().filter(|options| !options.is_empty());
        let worst = filled.max_by_key(|options| (!in_use(options), options[0]));
        worst.into_iter().for_each(Vec::clear);
    }
}

/// Chooses with a separate number for each zone, at least `floor`; a shortfall is not carried to
/// another zone.
fn per_zone(
    rules: &Rules,
    roll: &Roll,
    zones: &[Zone],
    all: &[Vec<Choice>],
    floor: usize,
) -> Vec<usize> {
    let quota = |(zone, options): (&Zone, &Vec<Choice>)| {
        let indices = || zone.1.iter().copied();
        let desired = rules.count.desired(roll.held(indices()), &roll.count(indices()));
        desired.max(floor).min(options.len())
    };
    zones.iter().zip(all).map(quota).collect()
}

/// Numbers of slots that are in use, and those that were.
struct Numbers<'a> {
    /// Held by a node, which may be leaving.
    held: BTreeSet<u32>,
    /// Assigned.
    taken: BTreeSet<u32>,
    /// No longer held by any node, with the zone.
    vacated: BTreeMap<u32, Option<&'a str>>,
}

impl<'a> Numbers<'a> {
    fn new(roll: &Roll, previous: &'a Previous) -> Self {
        let held: BTreeSet<_> = (0..roll.len()).filter_map(|index| roll.slot(index)).collect();
        let vacated = previous.slots.iter().filter(|slot| !held.contains(&slot.id));
        let vacated = vacated.map(|slot| (slot.id, slot.zone.as_deref())).collect();
        Self { held, taken: BTreeSet::new(), vacated }
    }

    /// Takes a number with a last holder of the same zone that is gone.
    fn vacated(&mut self, zone: Option<&str>) -> Option<u32> {
        let found = self.vacated.iter().find(|(_, of)| **of == zone).map(|(id, _)| *id)?;
        self.vacated.remove(&found);
        self.taken.insert(found);
        Some(found)
    }

    /// Returns the smallest unused number.
    fn fresh(&mut self) -> u32 {
        let id = (0..=u32::MAX).find(|id| !self.held.contains(id) && !self.taken.contains(id));
        let id = id.unwrap_or_default();
        self.vacated.remove(&id);
        self.taken.insert(id);
        id
    }
}

/// Gives each node a slot: its own; that of a reflector of the same zone that leaves; one that was
/// of this zone; that of one that leaves elsewhere (unless slots belong to zones); the smallest
/// unused.
fn number(
    roll: &Roll,
    taken: &[usize],
    leavers: &[usize],
    previous: &Previous,
    zonal: bool,
) -> Chosen {
    let mut numbers = Numbers::new(roll, previous);
    let mut holders = Vec::with_capacity(taken.len());
    let mut waiting = Vec::new();
    let mut best: Vec<usize> = taken.to_vec();
    best.sort_by_key(|&index| (!roll.is_holder(index), roll.rank(index)));
    for index in best {
        match roll.slot(index) {
            Some(id) if numbers.taken.insert(id) => holders.push((id, index)),
            _ => waiting.push(index),
        }
    }
    let zone = |index: usize| roll.members[index].zone();
    // Each number that becomes free goes to one new reflector.
    let mut pass = |waiting: Vec<usize>,
                    pick: &mut dyn FnMut(usize, &mut Numbers) -> Option<u32>| {
        let mut rest = Vec::new();
        for index in waiting {
            match pick(index, &mut numbers) {
                Some(id) => holders.push((id, index)),
                None => rest.push(index),
            }
        }
        rest
    };
    let inherit = |index: usize, numbers: &mut Numbers, same_zone: bool| {
        // A node that is already a reflector takes over no other slot.
        if roll.is_holder(index) {
            return None;
        }
        let slots = leavers.iter().filter(|&&l| !same_zone || zone(l) == zone(index));
        let id = slots.filter_map(|&l| roll.slot(l)).find(|id| !numbers.taken.contains(id))?;
        numbers.taken.insert(id);
        Some(id)
    };
    let waiting = pass(waiting, &mut |index, numbers| inherit(index, numbers, true));
    let waiting =
        pass(waiting, &mut |index, numbers| numbers.vacated(zone(index).map(|zone| &**zone)));
    let waiting = pass(waiting, &mut |index, numbers| {
        if zonal { None } else { inherit(index, numbers, false) }
    });
    pass(waiting, &mut |_, numbers| Some(numbers.fresh()));
    holders.sort_unstable();
    let leavers = leavers
        .iter()
        .map(|&index| {
            let slot = roll.slot(index).unwrap_or_else(|| numbers.fresh());
            (index, slot, roll.trouble(index).unwrap_or(Leave::Surplus))
        })
        .collect();
    let holder = |(id, member): (u32, usize)| Holder { id, member, trouble: roll.trouble(member) };
    Chosen { desired: 0, fitted: None, holders: holders.into_iter().map(holder).collect(), leavers }
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

/// Returns the id of each holder, in their order. Ids stay: where several are in use, the one of
/// most reflectors wins.
pub(super) fn assign_ids(
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
