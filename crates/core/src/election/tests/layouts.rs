//! Choice of the topology.
use super::*;

#[test]
fn what_auto_means() {
    use Topology::{Simple, Zonal};
    for (zones, count, expected) in [
        ("a:9 b:9 c:9", 6, Zonal),
        ("a:9 b:9 c:9", 5, Simple),
        ("a:9 b:9", 4, Zonal),
        ("a:9 b:9", 3, Simple),
        ("a:9", 9, Simple),
        (":20", 9, Simple),
        ("a:9 b:9 c:9 d:9", 8, Zonal),
        ("a:9 b:9 c:9 d:9 e:9", 20, Simple),
        // Too few nodes, whatever the count.
        ("a:9 b:1", 6, Simple),
        ("a:9 b:2", 6, Zonal),
        // Nodes without a zone label belong to no zone.
        ("a:9 b:9 :3", 4, Zonal),
    ] {
        assert_eq!(Cluster::new(zones).count(count).target().topology, expected, "{zones} {count}");
    }
    let mut cluster = Cluster::new("a:9 b:9").count(6);
    cluster.rules.ids.per = Some(IdScope::Set);
    assert_eq!(cluster.target().topology, Simple);
    let mut cluster = Cluster::new("a:9 b:9").count(6);
    cluster.rules.zone_label = "".into();
    assert_eq!(cluster.target().topology, Simple);
    let mut cluster = Cluster::new("a:9 b:9");
    assert_eq!(cluster.target().topology, Simple);
    cluster.rules.count.scope = Scope::PerZone;
    assert_eq!(cluster.target().topology, Zonal);
}

/// A node that is not ready, cordoned or new is no reason to give every reflector another cluster
/// id.
#[test]
fn a_topology_in_use_is_kept_while_that_is_possible() {
    let mut cluster = Cluster::new("a:2 b:9 c:9").count(6);
    assert_eq!(cluster.settle().topology, Topology::Zonal);
    let spoil: [fn(&mut Member); 2] = [|m| m.ready = false, |m| m.closed = true];
    for spoil in spoil {
        let mut cluster = cluster.clone();
        spoil(cluster.node("a01"));
        let target = cluster.target();
        assert_eq!((target.topology, target.zones().as_str()), (Topology::Zonal, "a:2 b:2 c:2"));
    }
    // The first node of a new zone is a guest of the first group.
    let mut larger = cluster.clone();
    larger.add("d:1 :1");
    let target = larger.target();
    assert_eq!(target.topology, Topology::Zonal);
    assert_eq!(
        (&*target.guests, &*target.groups["d00"], &*target.groups["n00"]),
        (&["d".into()][..], "a", "a")
    );
    assert_eq!(target.shown(), cluster.target().shown());
    // Once it can have reflectors of its own, the count decides.
    larger.add("d:1");
    assert_eq!(larger.clone().target().topology, Topology::Simple);
    assert_eq!(larger.count(8).target().zones(), "a:2 b:2 c:2 d:2");
    // A zone that lost its nodes.
    let mut smaller = cluster.clone();
    smaller.remove("a01");
    let target = smaller.target();
    assert_eq!((target.topology, target.zones().as_str()), (Topology::Zonal, "b:3 c:3"));
    assert_eq!(target.left(), "a00 0 NotSuitable");
    assert_eq!(&*target.groups["a00"], "b");
}

/// A cluster that grows and shrinks by a few nodes at a threshold.
#[test]
fn auto_does_not_go_back_and_forth() {
    let zones = |each: usize| format!("a:{each} b:{each} c:{each}");
    let mut cluster = Cluster::new(&zones(333));
    assert_eq!(cluster.settle().topology, Topology::Simple);
    // 1002 nodes require six reflectors, but a tenth fewer nodes do not.
    cluster.add("a:1 b:1 c:1");
    assert_eq!((cluster.target().desired, cluster.settle().topology), (6, Topology::Simple));
    cluster.add("a:40 b:40 c:40");
    assert_eq!(cluster.settle().topology, Topology::Zonal);
    cluster.remove("a370");
    assert_eq!(cluster.settle().topology, Topology::Zonal);
    // The same applies to a change from another topology in the spec; a new set takes the one that
    // fits.
    let mut cluster = Cluster::new(&zones(334));
    assert_eq!(cluster.target().topology, Topology::Zonal);
    cluster.previous.topology = Some(Topology::Multi);
    assert_eq!(cluster.target().topology, Topology::Simple);
    // A fixed number does not depend on nodes.
    let mut cluster = Cluster::new("a:2 b:2").topology(Topology::Simple).count(4);
    cluster.settle();
    assert_eq!(cluster.topology(Topology::Auto).target().topology, Topology::Zonal);
}

#[test]
fn zones_that_are_even_and_those_that_are_not() {
    for (zones, count, expected) in [
        ("a:9 b:9 c:9", 7, "a:3 b:2 c:2"),
        ("a:2 b:9 c:9", 9, "a:2 b:4 c:3"),
        ("a:9 b:2 :9", 6, "a:4 b:2"),
    ] {
        let target = Cluster::new(zones).topology(Topology::Zonal).count(count).target();
        assert_eq!(target.zones(), expected);
    }
    let target = Cluster::new("a:5").topology(Topology::Zonal).target();
    assert_eq!((target.topology, target.zones().as_str()), (Topology::Zonal, "a:3"));
}

/// In topology Zonal, the zone label of a reflector was removed by hand: it has no clients.
#[test]
fn a_reflector_without_a_zone() {
    let mut cluster = Cluster::new("a:5 b:5").topology(Topology::Zonal).count(4);
    cluster.settle();
    cluster.node("a00").zone = None;
    let target = cluster.target();
    assert_eq!(target.shown(), "1=a01 2=b00 3=b01 4=a02");
    assert_eq!(target.left(), "a00 0 NotSuitable");
}

/// A cluster that grows and shrinks by a few nodes where tables have no more room.
#[test]
fn auto_does_not_go_back_and_forth_at_the_limit_of_tables() {
    let rules = Cluster::new("a:1").rules;
    let is_full = |each: &usize| !layout::has_room(&rules, Topology::Zonal, &[2; 4], 4 * *each);
    let each = (700..1300).find(is_full).unwrap();
    let zones = |each: usize| format!("a:{each} b:{each} c:{each} d:{each}");
    let mut cluster = Cluster::new(&zones(each - 1)).count(8);
    assert_eq!(cluster.settle().topology, Topology::Zonal);
    cluster.add(&zones(1));
    assert_eq!(cluster.settle().topology, Topology::Simple);
    let fewer = |fewer: usize| {
        let mut cluster = cluster.clone();
        cluster.members.retain(|member| {
            let number: usize = member.name[1..].parse().unwrap();
            number < each - fewer
        });
        cluster.target().topology
    };
    assert_eq!((fewer(1), fewer(each / 20)), (Topology::Simple, Topology::Simple));
    assert_eq!(fewer(each / 9), Topology::Zonal);
}
