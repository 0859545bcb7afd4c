//! The tables of measurements with real BIRD (2.0.12; 18 nodes, 306 pairs).
use std::collections::BTreeSet;

use super::{
    super::{Paths, Rule},
    lab::{Ids, Kind, Lab, name},
    naive,
};
use Ids::{One, PerZone, Unique};
use Kind::{Grouped, Simple, Zonal};

const RULES: [Rule; 2] = [Rule::Rfc, Rule::Bird];

fn missing(lab: &Lab) -> [u64; 2] {
    RULES.map(|rule| lab.fabric().missing(rule).pairs)
}

fn worst(lab: &Lab) -> [u64; 2] {
    RULES.map(|rule| lab.fabric().worst_without_one(rule).unwrap().1.pairs)
}

#[test]
fn who_misses_whose_routes() {
    // Sessions; the results of the two rules; and the same with the worst reflector down.
    // Measurements of BIRD agree with its rule.
    let rows = [
        (Simple, One, 87, [0, 0], [0, 0]),
        (Zonal, One, 39, [144, 96], [136, 96]),
        (Zonal, PerZone, 39, [0, 0], [0, 0]),
        (Zonal, Unique, 39, [0, 0], [0, 0]),
        (Grouped(3), Unique, 51, [0, 0], [0, 0]),
        (Grouped(3), One, 51, [60, 24], [62, 32]),
        (Grouped(3), PerZone, 51, [0, 0], [0, 0]),
    ];
    for (kind, ids, sessions, expected, without_one) in rows {
        let lab = Lab::build(kind, ids, 2);
        assert_eq!(lab.fabric().sessions().total(), sessions, "{kind:?} {ids:?}");
        assert_eq!(missing(&lab), expected, "{kind:?} {ids:?}");
        assert_eq!(worst(&lab), without_one, "{kind:?} {ids:?}");
    }
}

#[test]
fn a_full_mesh_misses_nothing_and_has_no_reflector() {
    let mesh = Lab::bare(18, true);
    assert_eq!(mesh.fabric().sessions().total(), 153);
    assert_eq!(missing(&mesh), [0, 0]);
    assert_eq!(mesh.fabric().worst_without_one(Rule::Rfc), None);
    assert_eq!(missing(&Lab::bare(18, false)), [306, 306]);
}

/// Sixty nodes, as in the measurement of the cost.
#[test]
fn sessions_of_sixty_nodes() {
    let rows = [(Simple, One, 339), (Zonal, PerZone, 123), (Grouped(3), PerZone, 177)];
    for (kind, ids, sessions) in rows {
        assert_eq!(Lab::sized(60, kind, ids, 2).fabric().sessions().total(), sessions);
    }
    assert_eq!(Lab::bare(60, true).fabric().sessions().total(), 1770);
}

/// A fabric does not model sessions that are down: this tests the walk that the fabric is compared
/// with.
#[test]
fn two_sessions_of_different_clients_lost() {
    let cut = BTreeSet::from([(2, 0), (3, 1)]);
    for (ids, expected) in [(PerZone, [4, 2]), (Unique, [0, 0])] {
        let lab = Lab::build(Zonal, ids, 2);
        let found = RULES.map(|rule| naive::missing(&lab, &BTreeSet::new(), &cut, rule).len());
        assert_eq!(found, expected, "{ids:?}");
    }
}

#[test]
fn the_only_reflector_of_a_zone_costs_its_zone() {
    let lab = Lab::build(Zonal, PerZone, 1);
    for rule in RULES {
        assert!(lab.fabric().missing(rule).is_empty());
        let (victim, missing) = lab.fabric().worst_without_one(rule).unwrap();
        assert_eq!(*victim, name(0), "the first of equals");
        // Its five clients to and from the other twelve, and among themselves.
        assert_eq!(missing.pairs, 2 * 5 * 12 + 5 * 4);
        let first = |other: usize| (name(1).into(), name(other).into());
        assert_eq!(missing.examples, [2, 3, 4, 5, 6].map(first));
    }
}

/// Every node of the lab had two more networks than its block: its address and the wire's.
const OWN_NETWORKS: u64 = 2;

fn paths(kind: Kind, ids: Ids, per_zone: usize) -> Paths {
    Lab::build(kind, ids, per_zone).fabric().paths(Rule::Bird)
}

#[test]
fn paths_as_measured() {
    // Kind, ids, reflectors per zone, paths in a reflector's table.
    let rows: [(Kind, Ids, usize, u64); 11] = [
        (Simple, One, 1, 50),
        (Simple, One, 2, 80),
        (Simple, One, 3, 92),
        (Zonal, PerZone, 1, 32),
        (Zonal, PerZone, 2, 184),
        (Zonal, PerZone, 3, 650),
        (Simple, PerZone, 1, 82),
        (Simple, PerZone, 2, 392),
        (Simple, PerZone, 3, 1100),
        (Zonal, Unique, 2, 1632),
        (Simple, Unique, 2, 4240),
    ];
    for (kind, ids, per_zone, expected) in rows {
        let found = paths(kind, ids, per_zone);
        assert_eq!(found.reflector.table + OWN_NETWORKS, expected, "{kind:?} {ids:?} {per_zone}");
        assert!(!found.exceeded);
    }
    // At a client.
    assert_eq!(paths(Simple, One, 2).client.table + OWN_NETWORKS, 105);
}

#[test]
fn paths_of_one_prefix() {
    assert_eq!(paths(Simple, One, 2).reflector.per_prefix, 6);
    // 61 on average in a table, as measured.
    let quiet = paths(Simple, PerZone, 3);
    assert_eq!((quiet.reflector.per_prefix, quiet.client.per_prefix), (75, 225));
    assert_eq!((quiet.reflector.table + OWN_NETWORKS) / 18, 61);
    // 1 + (R - 1) S with S the sum of (R - 2)! / (R - 2 - k)! over k.
    assert_eq!(paths(Simple, Unique, 1).reflector.per_prefix, 5);
    assert_eq!(paths(Simple, Unique, 2).reflector.per_prefix, 326);
    let six = paths(Simple, Unique, 2);
    assert_eq!((six.client.per_prefix, six.client.table + OWN_NETWORKS), (1956, 23_475));
    let mut eight = Lab::build(Simple, Unique, 3);
    eight.demote(14);
    let found = eight.fabric().paths(Rule::Bird);
    assert_eq!(found.reflector.per_prefix, 13_700);
    let nine = paths(Simple, Unique, 3);
    assert!(nine.exceeded && !nine.bearable());
}

#[test]
fn what_was_quiet_is_bearable_and_what_exploded_is_not() {
    for (kind, ids, per_zone) in
        [(Simple, One, 3), (Simple, PerZone, 3), (Zonal, PerZone, 3), (Grouped(3), PerZone, 2)]
    {
        assert!(paths(kind, ids, per_zone).bearable(), "{kind:?} {ids:?}");
    }
    for (kind, per_zone) in [(Simple, 2), (Zonal, 3)] {
        assert!(!paths(kind, Unique, per_zone).bearable(), "{kind:?}");
    }
}
