//! The measured costs of writes (with an id per zone unless stated): pairs that lost probes.
use std::{collections::BTreeSet, sync::Arc};

use super::{
    super::{Change, Rule},
    lab::{Ids, Kind, Lab, name, simple},
};
use Ids::PerZone;
use Kind::{Grouped, Zonal};

const RULES: [Rule; 2] = [Rule::Rfc, Rule::Bird];

/// Returns the number of lost pairs, which is the same by both rules.
fn lost(before: &Lab, after: &Lab, changed: &[usize]) -> u64 {
    let changed: BTreeSet<Arc<str>> = changed.iter().map(|&place| name(place).into()).collect();
    let [before, after] = [before, after].map(Lab::fabric);
    let change = Change::new(&before, &after, &changed);
    let [rfc, bird] = RULES.map(|rule| change.lost(rule).pairs);
    assert_eq!(rfc, bird);
    rfc
}

/// Returns the worst reflector after the write, and how many more pairs its loss costs than before.
fn fragile(before: &Lab, after: &Lab) -> Option<(String, u64)> {
    let [before, after] = [before, after].map(Lab::fabric);
    let worst = Change::new(&before, &after, &BTreeSet::new()).fragile(Rule::Rfc)?;
    Some((worst.0.to_string(), worst.1.pairs))
}

fn meshed(lab: &Lab) -> Lab {
    Lab { mesh: true, ..lab.clone() }
}

/// The reflectors of a lab with two in each zone.
const SIX: [usize; 6] = [0, 1, 6, 7, 12, 13];

#[test]
fn from_the_mesh_to_reflectors_in_every_order() {
    let (mesh, reflectors) = (Lab::bare(18, true), Lab::build(Grouped(3), PerZone, 2));
    // Mesh off first, reflectors later.
    assert_eq!(lost(&mesh, &Lab::bare(18, false), &[]), 306);
    // All in one write: even sessions without a reflector are lost.
    assert_eq!(lost(&mesh, &reflectors, &[]), 306);
    assert_eq!(lost(&mesh, &reflectors, &SIX), 12 * 11);
    // In the right order: reflectors and peers, then the mesh is switched off.
    assert_eq!(lost(&mesh, &meshed(&reflectors), &[]), 174);
    assert_eq!(lost(&mesh, &meshed(&reflectors), &SIX), 0);
    assert_eq!(lost(&meshed(&reflectors), &reflectors, &[]), 0);
    // And back: the mesh is switched on, then all are demoted and the peers removed.
    assert_eq!(lost(&reflectors, &meshed(&reflectors), &[]), 0);
    assert_eq!(lost(&meshed(&reflectors), &mesh, &[]), 174);
    assert_eq!(lost(&meshed(&reflectors), &mesh, &SIX), 0);
    // Nothing changes.
    assert_eq!(lost(&reflectors, &reflectors, &[]), 0);
}

#[test]
fn one_reflector_at_a_time_costs_one_node_at_a_time() {
    let mut now = Lab { peers: simple(), ..Lab::bare(18, true) };
    for (slot, place) in SIX.into_iter().enumerate() {
        let before = now.clone();
        now.promote(place, slot, PerZone.of(slot, ["a", "b", "c"][slot / 2]));
        assert_eq!(lost(&before, &now, &[]), 34);
        assert_eq!(lost(&before, &now, &[place]), 0);
    }
    let without = Lab { mesh: false, ..now.clone() };
    assert_eq!(lost(&now, &without, &[]), 0);
}

#[test]
fn promoting_and_demoting_costs_that_node_where_another_reflector_is() {
    let before = Lab::build(Zonal, PerZone, 2);
    let mut promoted = before.clone();
    promoted.promote(3, 6, PerZone.of(6, "a"));
    assert_eq!((lost(&before, &promoted, &[]), lost(&before, &promoted, &[3])), (34, 0));
    let mut demoted = promoted.clone();
    demoted.demote(0);
    assert_eq!((lost(&promoted, &demoted, &[]), lost(&promoted, &demoted, &[0])), (34, 0));
    assert_eq!(fragile(&promoted, &demoted), None);
}

#[test]
fn the_only_reflector_of_a_zone_swapped_in_one_write_cuts_the_zone_off() {
    let before = Lab::build(Zonal, PerZone, 1);
    let mut swapped = before.clone();
    swapped.demote(0);
    swapped.promote(3, 3, PerZone.of(3, "a"));
    assert_eq!(lost(&before, &swapped, &[]), 174);
    // Four clients, to and from twelve, and among themselves.
    assert_eq!(lost(&before, &swapped, &[0, 3]), 4 * 12 * 2 + 4 * 3);
    let mut both = before.clone();
    both.promote(3, 3, PerZone.of(3, "a"));
    assert_eq!((lost(&before, &both, &[]), lost(&both, &swapped, &[])), (34, 34));
    assert_eq!((lost(&before, &both, &[3]), lost(&both, &swapped, &[0])), (0, 0));
    assert_eq!(fragile(&before, &both), None);
    // With two, the zone can do without the new one; with one, it cannot.
    assert_eq!(fragile(&both, &swapped), Some((name(3), 5 * 12 * 2 + 5 * 4)));
}

#[test]
fn a_slot_that_moves_in_one_write_costs_both_nodes() {
    let before = Lab::build(Grouped(3), PerZone, 2);
    let group = before.nodes[3].labels.get("rr-group").unwrap().to_owned();
    let mut moved = before.clone();
    moved.demote(0);
    moved.label(0, &[("rr-group", Some(&group))]);
    moved.promote(3, 0, PerZone.of(0, "a"));
    assert_eq!((lost(&before, &moved, &[]), lost(&before, &moved, &[0, 3])), (66, 0));
}

#[test]
fn another_address_is_another_session() {
    let before = Lab::build(Zonal, PerZone, 2);
    let mut moved = before.clone();
    moved.nodes[5].address = Some([10, 91, 0, 1].into());
    assert_eq!((lost(&before, &moved, &[]), lost(&before, &moved, &[5])), (34, 0));
}

#[test]
fn nodes_that_come_and_go() {
    let before = Lab::build(Zonal, PerZone, 2);
    // The last is a client; the first is one of two reflectors.
    for gone in [17, 0] {
        let mut after = before.clone();
        after.nodes.remove(gone);
        assert_eq!((lost(&before, &after, &[]), lost(&after, &before, &[])), (0, 0));
    }
    let mut gone = before.clone();
    gone.nodes.remove(0);
    // The other reflector of its zone: its five clients would be left with none, unlike with two.
    assert_eq!(fragile(&before, &gone), Some((name(1), 4 * 12 * 2 + 4 * 3)));
    assert_eq!(fragile(&gone, &before), None);
}
