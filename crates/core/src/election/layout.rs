//! The topology, the zones with their own reflectors, and how many each zone may have so that there
//! is room to replace any one of them.
//!
//! The measure of the room is the fullest table while one reflector is replaced and the bridge
//! exists that is used to enter and leave a topology. `make prove-reflectors` simulates every
//! change on every layout that passes here.
use std::{collections::BTreeSet, sync::Arc};

use super::{
    BRIDGE, IdScope, MOST_IDS, Previous, Refusal, Roll, Rules, Scope, Slot, Topology, rules::Nodes,
};
use crate::bgp_model::{Cluster, Paths};

/// Minimum number of reflectors in a zone: two, so that one may fail or be replaced.
const REFLECTORS_PER_ZONE: usize = 2;

/// Numbers of zones for which Auto selects Zonal: one zone cannot be divided, and each zone needs a
/// separate cluster id.
const ZONES_OF_AUTO: std::ops::RangeInclusive<usize> = 2..=MOST_IDS;

/// The chosen layout.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Never Auto.
    pub topology: Topology,
    /// Zones that have no reflectors of their own in topology Zonal.
    pub guests: Vec<Arc<str>>,
    /// The differences from the spec.
    pub notes: Vec<String>,
}

impl Layout {
    fn plain(topology: Topology) -> Self {
        Self { topology, guests: Vec::new(), notes: Vec::new() }
    }
}

/// The nodes by which zones are judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ZoneBasis {
    /// The current nodes: for a topology that is being introduced.
    Now,
    /// As above, and with a tenth fewer and a tenth more nodes too: for a change from another
    /// topology, which renumbers every reflector, so that a cluster around a threshold does not go
    /// back and forth.
    Lasting,
    /// The nodes once all of them are ready and open: for a topology in use. Zones too small for it
    /// are guests.
    InUse,
}

impl ZoneBasis {
    /// Returns the number of nodes for which tables must have room.
    fn nodes(self, roll: &Roll) -> usize {
        match self {
            Self::Lasting => roll.len() * 11 / 10,
            Self::Now | Self::InUse => roll.len(),
        }
    }
}

pub(super) fn choose(rules: &Rules, roll: &Roll, previous: &Previous) -> Result<Layout, Refusal> {
    let in_use = previous.topology == Some(Topology::Zonal);
    match rules.topology {
        Topology::Simple => Ok(Layout::plain(Topology::Simple)),
        Topology::Multi => Ok(Layout::plain(Topology::Multi)),
        Topology::Zonal => {
            zonal(rules, roll, if in_use { ZoneBasis::InUse } else { ZoneBasis::Now })
        }
        Topology::Auto => {
            let basis = match previous.topology {
                Some(Topology::Zonal) => ZoneBasis::InUse,
                Some(_) => ZoneBasis::Lasting,
                None => ZoneBasis::Now,
            };
            let layout = zonal(rules, roll, basis).ok().filter(|layout| {
                let zones = roll.zones().keys().flatten().count() - layout.guests.len();
                let sizes = even(total(rules, roll, basis), zones);
                ZONES_OF_AUTO.contains(&zones)
                    && has_room(rules, Topology::Zonal, &sizes, basis.nodes(roll))
            });
            Ok(layout.unwrap_or_else(|| Layout::plain(Topology::Simple)))
        }
    }
}

/// Returns the total number of reflectors; for a change from another topology, also with a tenth
/// more nodes.
fn total(rules: &Rules, roll: &Roll, basis: ZoneBasis) -> usize {
    let of = |nodes: Nodes| match basis {
        ZoneBasis::Lasting => {
            rules.count.of(nodes.ready).max(rules.count.wanted(nodes.ready * 11 / 10))
        }
        ZoneBasis::Now | ZoneBasis::InUse => rules.count.of(nodes.ready),
    };
    match rules.count.scope {
        Scope::Cluster => of(roll.count(0..roll.len())),
        Scope::PerZone => {
            let zones = roll.zones();
            zones.values().map(|indices| of(roll.count(indices.iter().copied()))).sum()
        }
    }
}

/// Returns the layout in which each zone has its reflectors, if that is possible.
fn zonal(rules: &Rules, roll: &Roll, basis: ZoneBasis) -> Result<Layout, Refusal> {
    if rules.zone_label.is_empty() {
        return Err(Refusal::NoZoneLabel);
    }
    if rules.ids.per == Some(IdScope::Set) {
        return Err(Refusal::OneIdForZones);
    }
    let mut guests = Vec::new();
    let mut zones = Vec::new();
    for (zone, indices) in roll.zones() {
        let Some(zone) = zone else { continue };
        let nodes = roll.count(indices.iter().copied());
        let candidates = match basis {
            ZoneBasis::InUse => nodes.suitable,
            // A node that is already a reflector counts even if it is not ready.
            ZoneBasis::Now | ZoneBasis::Lasting => {
                let can = |&&i: &&usize| {
                    roll.members[i].is_usable() || (roll.is_holder(i) && roll.members[i].suitable)
                };
                indices.iter().filter(can).count()
            }
        };
        if candidates >= REFLECTORS_PER_ZONE {
            zones.push((zone, nodes));
        } else if basis == ZoneBasis::InUse {
            guests.push((zone.clone(), candidates));
        } else {
            return Err(Refusal::SmallZone { zone: zone.clone(), candidates });
        }
    }
    // A requested topology that is in use is kept, whatever zones join the cluster.
    let kept = basis == ZoneBasis::InUse && rules.topology == Topology::Zonal;
    while kept && !room(rules, zones.len(), roll.len()) {
        let holds = |zone: &&Arc<str>| {
            (0..roll.len()).any(|i| roll.is_holder(i) && roll.members[i].zone() == Some(*zone))
        };
        let Some(last) = zones.iter().rposition(|(zone, _)| !holds(zone)) else { break };
        let (zone, nodes) = zones.remove(last);
        guests.push((zone.clone(), nodes.suitable));
    }
    guests.sort();
    if zones.is_empty() {
        let small = guests.into_iter().next();
        return Err(match small {
            Some((zone, candidates)) => Refusal::SmallZone { zone, candidates },
            None => Refusal::NoZones { label: rules.zone_label.clone() },
        });
    }
    if !kept && !room(rules, zones.len(), basis.nodes(roll)) {
        let most = (1..zones.len()).rev().find(|&most| room(rules, most, basis.nodes(roll)));
        return Err(Refusal::ManyZones { zones: zones.len(), most: most.unwrap_or(0) });
    }
    let mut notes = Vec::new();
    match enough(rules, roll, basis, &zones) {
        Ok(()) => {}
        Err(few) if kept => {
            notes.push(format!("two reflectors in each zone are kept: {few}"));
        }
        Err(few) => return Err(few),
    }
    let guests = guests.into_iter().map(|(zone, _)| zone).collect();
    Ok(Layout { topology: Topology::Zonal, guests, notes })
}

/// Reports whether this many zones can have two reflectors each.
fn room(rules: &Rules, zones: usize, nodes: usize) -> bool {
    has_room(rules, Topology::Zonal, &vec![REFLECTORS_PER_ZONE; zones], nodes)
}

/// Succeeds if the count gives each zone its reflectors.
fn enough(
    rules: &Rules,
    roll: &Roll,
    basis: ZoneBasis,
    zones: &[(&Arc<str>, Nodes)],
) -> Result<(), Refusal> {
    let (count, max) = (&rules.count, rules.count.max);
    let number = |nodes: &Nodes| match basis {
        ZoneBasis::InUse => count.of(nodes.all),
        ZoneBasis::Now => count.of(nodes.ready),
        ZoneBasis::Lasting => count.of(nodes.ready).min(count.wanted(nodes.ready * 9 / 10)),
    };
    match count.scope {
        Scope::Cluster => {
            let count = number(&roll.count(0..roll.len()));
            let needed = zones.len() * REFLECTORS_PER_ZONE;
            let few = Refusal::FewForZones { zones: zones.len(), count, needed, max };
            if count < needed { Err(few) } else { Ok(()) }
        }
        Scope::PerZone => {
            let few = zones.iter().find(|(_, nodes)| number(nodes) < REFLECTORS_PER_ZONE);
            few.map_or(Ok(()), |&(zone, nodes)| {
                Err(Refusal::FewInZone { zone: zone.clone(), count: number(&nodes), max })
            })
        }
    }
}

/// The minimum number of reflectors for this many zones.
pub(super) fn least(zones: usize) -> usize {
    zones * REFLECTORS_PER_ZONE
}

/// Maximum number of reflectors of topology Multi, by the number of cluster ids: the sizes that the
/// model finds sound after the loss of any one reflector, with three for each client and room to
/// replace one. In two zones, if a client loses its second id, all reflectors of its remaining id
/// learn its routes only while there are three of them.
const MOST_OF_MULTI: [usize; MOST_IDS + 1] = [0, 0, 6, 14, 8];

/// Removes reflectors from the largest zones until tables have room, or no zone has more than
/// `floor`. Returns true if it removed any. The lists are those that
/// [`spread`] takes them from, the best first: of equally large zones the one
/// with the worst last reflector loses it, so that one that reflects is not exchanged for a new one
/// elsewhere.
pub(super) fn fit<T: Ord>(
    rules: &Rules,
    topology: Topology,
    sizes: &mut [usize],
    lists: &[Vec<T>],
    (nodes, floor): (usize, usize),
) -> bool {
    let mut fitted = false;
    while !has_room(rules, topology, sizes, nodes) {
        let can = (0..sizes.len()).filter(|&zone| sizes[zone] > floor);
        let worst = can.max_by_key(|&zone| (sizes[zone], &lists[zone][sizes[zone] - 1]));
        let Some(worst) = worst else { break };
        sizes[worst] -= 1;
        fitted = true;
    }
    fitted
}

/// Reports whether tables stay within their bounds with these numbers of reflectors in each zone
/// and `nodes` nodes, while one is replaced, and while the topology changes.
pub(super) fn has_room(rules: &Rules, topology: Topology, sizes: &[usize], nodes: usize) -> bool {
    let total = sizes.iter().sum();
    let clusters: Vec<usize> = match rules.id_scope(topology) {
        IdScope::Set => vec![total],
        IdScope::Zone => sizes.iter().copied().filter(|size| *size > 0).collect(),
        IdScope::Slot => vec![1; total],
    };
    // One id: each table holds as many paths as there are reflectors.
    if clusters.len() < 2 {
        return true;
    }
    if clusters.len() > MOST_IDS {
        return false;
    }
    if topology == Topology::Multi {
        return true;
    }
    let bridge = (0..clusters.len()).max_by_key(|&cluster| clusters[cluster]);
    (0..clusters.len()).all(|replaced| {
        let cluster = |(place, &size): (usize, &usize)| {
            let next = usize::from(place == replaced);
            let shared = match topology {
                Topology::Simple => size + next,
                _ if Some(place) == bridge => (BRIDGE + next).min(size + next),
                _ => 0,
            };
            Cluster { reflectors: size + next, shared }
        };
        let clusters: Vec<_> = clusters.iter().enumerate().map(cluster).collect();
        Paths::of_clusters(&clusters).bearable_with(nodes)
    })
}

/// Returns the reason why topology Multi is not possible with these slots, if it is not.
pub(super) fn crowded(rules: &Rules, slots: &[Slot]) -> Option<String> {
    let (total, peers) = (slots.len(), rules.peers_per_client);
    let ids: BTreeSet<_> = slots.iter().map(|slot| slot.cluster_id).collect();
    match ids.len() {
        ..2 if peers < total => Some(format!(
            "with one cluster id for all {total} reflectors it loses routes unless every client peers with \
             each of them (spec.peersPerClient is {peers})"
        )),
        ids @ 2..=MOST_IDS if total > MOST_OF_MULTI[ids] => Some(format!(
            "with {ids} cluster ids it carries at most {} reflectors so that any one may fail or be \
             replaced, and there are {total}",
            MOST_OF_MULTI[ids]
        )),
        _ => None,
    }
}

/// Spreads this many reflectors as evenly as possible.
pub(super) fn even(total: usize, zones: usize) -> Vec<usize> {
    let zones = zones.max(1);
    (0..zones).map(|zone| total / zones + usize::from(zone < total % zones)).collect()
}

/// Returns the number of reflectors from each zone, if this many are taken from lists sorted from
/// best to worst: as evenly as the lists allow; the share that a short list lacks is spread over
/// the others once. Where zones are even, the better element decides, and then the order of the
/// zones.
///
/// The sum is `total`, or all there are.
pub(super) fn spread<T: Ord>(total: usize, lists: &[Vec<T>]) -> Vec<usize> {
    let mut taken = vec![0; lists.len()];
    for _ in 0..total {
        let open = (0..lists.len()).filter(|&zone| taken[zone] < lists[zone].len());
        let Some(next) = open.min_by_key(|&zone| (taken[zone], &lists[zone][taken[zone]], zone))
        else {
            break;
        };
        taken[next] += 1;
    }
    taken
}
