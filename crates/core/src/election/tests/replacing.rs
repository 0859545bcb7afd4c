//! Cases in which another node takes a slot.
use super::*;

type Spoil = fn(&mut Member);

/// The problems of a reflector, with the reason for which it leaves.
const WRONG: [(&str, Spoil); 4] = [
    ("Cordoned", |m| m.closed = true),
    ("NotSuitable", |m| m.suitable = false),
    ("NotReady", |m| (m.ready, m.not_ready_for) = (false, Some(Duration::from_mins(3)))),
    ("Unfit", |m| (m.unfit, m.unfit_for) = (true, Some(Duration::from_mins(10)))),
];

#[test]
fn another_takes_the_slot_with_number_id_and_peers() {
    for topology in [Topology::Simple, Topology::Zonal, Topology::Multi] {
        let mut cluster = Cluster::new("a:5 b:5").topology(topology).count(4);
        let before = cluster.settle();
        assert_eq!(before.shown(), "0=a00 1=a01 2=b00 3=b01");
        for (reason, spoil) in WRONG {
            let mut cluster = cluster.clone();
            spoil(cluster.node("b00"));
            let target = cluster.promote();
            assert_eq!(target.shown(), "0=a00 1=a01 2=b02 3=b01", "{reason}");
            assert_eq!(target.left(), format!("b00 2 {reason}"));
            assert_eq!((target.ids(), &target.peers), (before.ids(), &before.peers));
            // Both hold the slot, and nothing else is left to do.
            let between = cluster.target();
            assert_eq!((between.shown(), between.left()), (target.shown(), target.left()));
            cluster.settle();
            assert_eq!(cluster.target().left(), "");
        }
    }
}

/// A node that is gone holds nothing; its number is free for one of its zone.
#[test]
fn the_slot_of_a_node_that_is_gone() {
    for topology in [Topology::Simple, Topology::Zonal, Topology::Multi] {
        let mut cluster = Cluster::new("a:5 b:5").topology(topology).count(4);
        let before = cluster.settle();
        cluster.remove("a01");
        cluster.remove("b00");
        let target = cluster.target();
        assert_eq!(target.shown(), "0=a00 1=a02 2=b02 3=b01");
        assert_eq!((target.ids(), target.peers), (before.ids(), before.peers));
    }
}

#[test]
fn not_a_moment_too_early() {
    let mut cluster = Cluster::new(":5");
    let before = cluster.settle();
    let node = cluster.node("n00");
    (node.ready, node.not_ready_for) = (false, Some(Duration::from_secs(3 * 60 - 1)));
    let node = cluster.node("n01");
    (node.unfit, node.unfit_for) = (true, Some(Duration::from_secs(10 * 60 - 1)));
    // Nothing is measured any more, so the time is unknown.
    cluster.node("n02").unfit = true;
    assert_eq!(cluster.target().shown(), before.shown());
    assert_eq!(cluster.target().left(), "");
}

/// It may still carry routes; if not, the others do.
#[test]
fn without_a_substitute_it_stays() {
    for (reason, spoil) in WRONG.into_iter().filter(|(reason, _)| *reason != "NotSuitable") {
        let mut cluster = Cluster::new(":3");
        cluster.settle();
        spoil(cluster.node("n01"));
        let target = cluster.target();
        assert_eq!((target.shown().as_str(), target.left().as_str()), ("0=n00 1=n01! 2=n02", ""));
        assert_eq!(target.slots[1].trouble.unwrap().as_str(), reason);
    }
    // A forbidden reflector leaves, unless no other node may replace it: here two are the maximum.
    let mut cluster = Cluster::new(":3");
    cluster.settle();
    cluster.node("n01").suitable = false;
    assert_eq!(cluster.target().left(), "n01 1 NotSuitable");
}

/// The new one would be the next to be replaced, and so on for ever.
#[test]
fn an_unfit_reflector_is_not_replaced_by_an_unfit_node() {
    let mut cluster = Cluster::new(":4");
    cluster.settle();
    cluster.members.iter_mut().for_each(|m| (m.unfit, m.unfit_for) = (true, Some(30 * MINUTE)));
    assert_eq!(cluster.target().shown(), "0=n00! 1=n01! 2=n02!");
    // But a dead one is.
    cluster.dead("n01");
    assert_eq!(cluster.target().shown(), "0=n00! 1=n03! 2=n02!");
}

/// Topologies with slots that belong to no zone use other zones, and return afterwards.
#[test]
fn a_zone_that_is_lost() {
    for topology in [Topology::Simple, Topology::Multi] {
        let mut cluster = Cluster::new("a:5 b:5 c:5").topology(topology).count(3);
        let before = cluster.settle();
        for i in 0..5 {
            cluster.dead(&format!("c{i:02}"));
        }
        let target = cluster.settle();
        assert_eq!(target.shown(), "0=a00 1=b00 2=a01");
        for i in 0..5 {
            let node = cluster.node(&format!("c{i:02}"));
            (node.ready, node.not_ready_for) = (true, None);
        }
        let target = cluster.promote();
        assert_eq!(target.shown(), before.shown());
        assert_eq!(target.left(), "a01 2 Surplus");
        // While both hold it, the one in the zone with other reflectors leaves.
        assert_eq!(cluster.target().shown(), before.shown());
        assert_eq!(cluster.target().left(), "a01 2 Surplus");
    }
    // In topology Zonal, clients of other zones would not use it.
    let mut cluster = Cluster::new("a:5 b:5 c:5").topology(Topology::Zonal).count(6);
    let before = cluster.settle();
    for i in 0..5 {
        cluster.dead(&format!("c{i:02}"));
    }
    assert_eq!(
        cluster.target().shown(),
        before.shown().replace("c00", "c00!").replace("c01", "c01!")
    );
}

/// The old one recovers before it was demoted: one of them goes, and nothing starts again.
#[test]
fn a_reflector_that_recovers_while_it_is_replaced() {
    let mut cluster = Cluster::new(":9");
    cluster.settle();
    cluster.node("n01").closed = true;
    assert_eq!(cluster.promote().shown(), "0=n00 1=n03 2=n02");
    cluster.node("n01").closed = false;
    let target = cluster.settle();
    assert_eq!(
        (target.shown().as_str(), target.left().as_str()),
        ("0=n00 1=n01 2=n02", "n03 1 Surplus")
    );
    assert_eq!(cluster.target().left(), "");
}

#[test]
fn slots_get_the_smallest_free_numbers() {
    let mut cluster = Cluster::new(":20").count(6);
    cluster.settle();
    cluster = cluster.count(4);
    cluster.node("n01").workloads = 9;
    cluster.node("n04").workloads = 9;
    let target = cluster.settle();
    assert_eq!(target.shown(), "0=n00 2=n02 3=n03 5=n05");
    cluster.members.iter_mut().for_each(|member| member.workloads = 0);
    assert_eq!(cluster.count(7).target().shown(), "0=n00 1=n01 2=n02 3=n03 4=n04 5=n05 6=n06");
}

/// Two of two are down, and no node can replace them: their clients had no routes at all.
#[test]
fn clients_of_a_zone_without_a_living_reflector_join_another_group() {
    // Guests: nodes of no zone.
    let mut cluster = Cluster::new("a:2 b:6 :2").count(8);
    let target = cluster.settle();
    assert_eq!((target.topology, &*target.groups["n00"]), (Topology::Zonal, "a"));
    cluster.dead("a00");
    assert_eq!(&*cluster.target().groups["n00"], "a", "one is enough");
    cluster.dead("a01");
    let target = cluster.settle();
    assert_eq!((&*target.groups["n00"], &*target.groups["n01"]), ("b", "b"));
    // They stay when it returns: another change would improve nothing.
    for node in ["a00", "a01"] {
        (cluster.node(node).ready, cluster.node(node).not_ready_for) = (true, None);
    }
    assert_eq!(&*cluster.settle().groups["n00"], "b");

    // Clients of the zone itself; none of them can be a reflector.
    let mut cluster = Cluster::new("a:3 b:6").topology(Topology::Zonal).count(4);
    cluster.node("a02").suitable = false;
    assert_eq!(&*cluster.settle().groups["a02"], "a");
    for node in ["a00", "a01"] {
        cluster.dead(node);
    }
    let target = cluster.settle();
    assert_eq!((&*target.groups["a02"], &*target.guests), ("b", &["a".into()][..]));
    // Back home as soon as there is a reflector.
    (cluster.node("a00").ready, cluster.node("a00").not_ready_for) = (true, None);
    assert_eq!(&*cluster.settle().groups["a02"], "a");
    // All reflectors are down: no other group is better.
    for node in ["a00", "b00", "b01", "b02", "b03", "b04", "b05"] {
        cluster.dead(node);
    }
    assert_eq!(&*cluster.target().groups["a02"], "a");
}

/// One of four is up, and no node can replace the others: groups without it had no routes.
#[test]
fn in_topology_multi_nodes_leave_groups_without_a_living_reflector() {
    let mut cluster = Cluster::new("a:4 b:2 :2").topology(Topology::Multi).count(4);
    for node in ["a02", "a03", "n00", "n01"] {
        cluster.node(node).suitable = false;
    }
    let target = cluster.settle();
    let nodes: BTreeSet<_> = target.slots.iter().map(|slot| &*slot.node).collect();
    assert_eq!(nodes, ["a00", "a01", "b00", "b01"].into());
    let down = |cluster: &mut Cluster, dead: &[&str]| {
        for node in ["a00", "a01", "b00", "b01"] {
            let member = cluster.node(node);
            (member.ready, member.not_ready_for) = (true, None);
        }
        for node in dead {
            cluster.dead(node);
        }
        cluster.settle()
    };
    for alive in ["a00", "a01", "b00", "b01"] {
        let mut dead = vec!["a00", "a01", "b00", "b01"];
        dead.retain(|node| *node != alive);
        let target = down(&mut cluster, &dead);
        let slot = target.slots.iter().find(|slot| &*slot.node == alive).expect("it stays").id;
        for node in ["a02", "a03", "n00", "n01"] {
            let group = &target.groups[node];
            assert!(target.group_slots[group].contains(&slot), "{alive}: {node} in {group}");
        }
    }
    // Back in their zone, where one reflector is enough, and then they stay.
    let target = down(&mut cluster, &["a01", "b00"]);
    assert!(target.groups["a02"].starts_with("a-") && target.groups["a03"].starts_with("a-"));
    assert_eq!(down(&mut cluster, &[]).groups, target.groups);
    // All are down: no other group is better.
    assert_eq!(down(&mut cluster, &["a00", "a01", "b00", "b01"]).groups, target.groups);
}

/// The only zone is down, and nodes without a zone do not count in topology Zonal: the set seemed
/// to be complete.
#[test]
fn reflectors_that_are_all_down_and_cannot_be_replaced_freeze_the_set() {
    let mut cluster = Cluster::new("a:3 :2").topology(Topology::Zonal).count(2);
    cluster.node("a02").closed = true;
    cluster.settle();
    cluster.dead("a00");
    assert_eq!(cluster.target().freeze, None, "one is left");
    cluster.remove("a01");
    let target = cluster.target();
    assert_eq!((target.freeze, target.shown().as_str()), (Some(Freeze::NoCandidates), "0=a00!"));
    // Being down counts before any other problem of a node.
    cluster.node("a00").closed = true;
    assert_eq!(cluster.target().freeze, Some(Freeze::NoCandidates));
    cluster.node("a02").closed = false;
    assert_eq!(cluster.target().shown(), "0=a00! 1=a02");
}
