//! Choice of nodes.
use super::*;

type Change = fn(&mut Member);

/// Each row: the criterion that makes the second of two nodes the better one, though all lower
/// criteria favor the first.
#[test]
fn the_order_of_what_counts() {
    let better: [(&str, Change, Change); 6] = [
        ("a reflector already", |_| {}, |m| (m.slot, m.labeled, m.unfit) = (Some(7), true, true)),
        ("fit", |m| (m.unfit, m.preferred) = (true, true), |m| m.workloads = 9),
        ("preferred", |_| {}, |m| (m.preferred, m.workloads) = (true, 9)),
        ("fewest workloads", |m| m.workloads = 3, |m| (m.workloads, m.created) = (2, 9)),
        ("older", |m| m.created = 2, |m| m.created = 1),
        ("name", |m| m.name = "z".into(), |_| {}),
    ];
    for (what, worse, good) in better {
        let mut cluster = Cluster::new(":2").count(1);
        cluster.members.iter_mut().for_each(|member| member.created = 5);
        worse(&mut cluster.members[0]);
        good(&mut cluster.members[1]);
        let node = cluster.target().slots[0].node.clone();
        assert_eq!(&*node, "n01", "{what}");
    }
}

#[test]
fn who_cannot_be_one_is_none() {
    let spoil: [fn(&mut Member); 3] =
        [|m| m.ready = false, |m| m.closed = true, |m| m.suitable = false];
    for spoil in spoil {
        let mut cluster = Cluster::new(":4");
        spoil(&mut cluster.members[0]);
        assert_eq!(cluster.target().shown(), "0=n01 1=n02 2=n03");
    }
}

/// "Old ones have more chance to survive", according to its proposal.
#[test]
fn the_oldest_reflector_is_the_last_to_be_dropped() {
    let mut cluster = Cluster::new(":20").count(6);
    cluster.settle();
    for left in (1..6).rev() {
        let mut cluster = cluster.clone().count(left);
        let target = cluster.settle();
        let expected: Vec<_> = (0..left).map(|i| format!("{i}=n{i:02}")).collect();
        assert_eq!(target.shown(), expected.join(" "));
    }
    assert_eq!(cluster.count(4).target().left(), "n04 4 Surplus, n05 5 Surplus");
}

#[test]
fn the_worst_of_all_zones_is_dropped() {
    let mut cluster = Cluster::new("a:5 b:5 c:5").count(6);
    cluster.settle();
    cluster.node("a01").workloads = 5;
    assert_eq!(cluster.clone().count(5).target().left(), "a01 1 Surplus");
    cluster.node("b00").unfit = true;
    assert_eq!(cluster.clone().count(5).target().left(), "b00 2 Surplus");
    cluster.node("c01").ready = false;
    assert_eq!(cluster.clone().count(5).target().left(), "c01 5 Surplus");
    // The zones stay even whatever the score is.
    cluster.node("c00").ready = false;
    assert_eq!(cluster.count(4).target().zones(), "a:2 b:1 c:1");
}

/// Scores change all the time: a better node is no reason for a change.
#[test]
fn a_better_node_does_not_take_the_place_of_a_reflector() {
    let mut cluster = Cluster::new("a:5 b:5");
    let before = cluster.settle();
    for name in ["a00", "b00", "b01"] {
        cluster.node(name).workloads = 100;
        cluster.node(name).unfit = true;
    }
    cluster.add("c:0 a:3");
    cluster.node("a05").preferred = true;
    assert_eq!(cluster.target().shown(), before.shown());
}

/// Three nodes of two thousand may be reflectors: the ratio applies to all clients.
#[test]
fn the_count_is_of_all_nodes_and_never_more_than_may_be() {
    let mut cluster = Cluster::new(":2000").topology(Topology::Simple);
    cluster.members.iter_mut().skip(7).for_each(|member| member.suitable = false);
    assert_eq!(cluster.target().desired, 7);
    cluster.members.iter_mut().for_each(|member| member.suitable = true);
    assert_eq!(cluster.target().desired, 10);
}

#[test]
fn a_cluster_of_one_two_three_nodes() {
    for (nodes, shown) in [(":1", "0=n00"), (":2", "0=n00 1=n01"), (":3", "0=n00 1=n01 2=n02")] {
        let target = Cluster::new(nodes).target();
        assert_eq!((target.shown().as_str(), target.topology), (shown, Topology::Simple));
        assert_eq!(target.freeze, None);
    }
}

/// No node is eligible: everything stays, and nothing is written.
#[test]
fn without_candidates_everything_stays() {
    let empty = Cluster::new("").target();
    assert_eq!((empty.freeze, empty.slots.len()), (Some(Freeze::NoCandidates), 0));
    for topology in [Topology::Auto, Topology::Simple, Topology::Zonal, Topology::Multi] {
        let mut cluster = Cluster::new("a:5 b:5").topology(topology).count(4);
        let before = cluster.settle();
        let spoil: [fn(&mut Member); 3] =
            [|m| m.ready = false, |m| m.closed = true, |m| m.suitable = false];
        for spoil in spoil {
            let mut cluster = cluster.clone();
            cluster.members.iter_mut().for_each(spoil);
            let target = cluster.target();
            assert_eq!(target.freeze, Some(Freeze::NoCandidates));
            assert_eq!(target.slots.len(), 4);
            for (slot, was) in target.slots.iter().zip(&before.slots) {
                assert_eq!((slot.id, &slot.node), (was.id, &was.node));
                assert_eq!(slot.cluster_id, was.cluster_id);
            }
            assert_eq!((&target.groups, &target.peers), (&before.groups, &before.peers));
            assert_eq!((target.left().as_str(), target.topology), ("", before.topology));
        }
    }
}
