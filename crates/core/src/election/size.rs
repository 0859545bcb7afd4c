//! Limits of the number of reflectors in a topology, with room to replace any one of them.
//!
//! The measure is the fullest table while one reflector is replaced and the bridge exists that is
//! used to enter and leave a topology. `make prove-reflectors` simulates every change on every
//! layout that passes here.
use std::collections::BTreeSet;

use super::{Rules, Slot, pool::MOST_IDS};
use crate::{
    bgp_model::{Cluster, Paths},
    election::{BRIDGE, IdScope, Topology},
};

/// Maximum number of reflectors of topology Multi, by the number of cluster ids: the sizes that the
/// model finds sound after the loss of any one reflector, with three for each client and room to
/// replace one. In two zones, if a client loses its second id, all reflectors of its remaining id
/// learn its routes only while there are three of them.
const MOST_OF_MULTI: [usize; MOST_IDS + 1] = [0, 0, 6, 14, 8];

/// Removes reflectors from the largest zones until tables have room, or no zone has more than
/// `floor`. Returns true if it removed any. The lists are those that
/// [`spread`](super::zones::spread) takes them from, the best first: of equally large zones the one
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
