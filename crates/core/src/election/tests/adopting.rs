//! Reflectors of other origin, and labels that were removed by hand.
use super::*;

type Spoil = fn(&mut Member);

/// As the original left it: label and cluster id.
fn chosen_before(cluster: &mut Cluster, names: &[&str]) {
    for name in names {
        let member = cluster.node(name);
        (member.labeled, member.cluster_id) = (true, Some(Ipv4Addr::new(224, 0, 0, 0)));
    }
}

#[test]
fn the_originals_reflectors_get_slots_and_keep_their_id() {
    let mut cluster = Cluster::new(":20");
    chosen_before(&mut cluster, &["n04", "n09", "n15"]);
    let target = cluster.settle();
    assert_eq!(target.shown(), "0=n04 1=n09 2=n15");
    assert_eq!(
        (target.ids().as_str(), target.left().as_str()),
        ("224.0.0.0 224.0.0.0 224.0.0.0", "")
    );
}

/// With another value of the label, the original's `BGPPeer`s counted it as a reflector and its
/// count did not, so that it chose one more.
#[test]
fn what_the_selectors_take_for_a_reflector_is_counted() {
    let mut cluster = Cluster::new(":20");
    chosen_before(&mut cluster, &["n19"]);
    assert_eq!(cluster.target().shown(), "0=n19 1=n00 2=n01");
}

/// Four in each of three zones, where ten are wanted: all get a number, which marks them as ours,
/// and two leave.
#[test]
fn surplus_reflectors_of_the_original_are_marked_before_they_go() {
    let mut cluster = Cluster::new("a:9 b:9 c:9").topology(Topology::Simple).count(4);
    let names = ["a00", "a01", "b00", "b01", "c00", "c01"];
    chosen_before(&mut cluster, &names);
    let target = cluster.target();
    assert_eq!(target.shown(), "0=a00 1=a01 2=b00 3=c00");
    assert_eq!(target.left(), "b01 5 Surplus, c01 4 Surplus");
}

/// It has an id and a label, and the set has been served before: it belongs to another owner, and
/// this stays so.
#[test]
fn a_reflector_that_was_made_by_hand_later_is_not_ours() {
    let mut cluster = Cluster::new(":20");
    let before = cluster.settle();
    chosen_before(&mut cluster, &["n10"]);
    let target = cluster.target();
    assert_eq!((target.shown(), target.left()), (before.shown(), String::new()));
}

#[test]
fn labels_removed_by_hand_come_back_on_the_same_node() {
    let gone: [(&str, Spoil); 4] = [
        ("all", |m| (m.slot, m.labeled, m.cluster_id) = (None, false, None)),
        ("slot", |m| m.slot = None),
        ("slot and label", |m| (m.slot, m.labeled) = (None, false)),
        ("slot and id", |m| (m.slot, m.cluster_id) = (None, None)),
    ];
    for topology in [Topology::Simple, Topology::Zonal, Topology::Multi] {
        let mut cluster = Cluster::new("a:8 b:8").topology(topology).count(4);
        let before = cluster.settle();
        for (what, gone) in gone {
            let mut cluster = cluster.clone();
            // Others would be better.
            cluster.node("b00").workloads = 50;
            gone(cluster.node("b00"));
            let target = cluster.target();
            assert_eq!((target.shown(), target.ids()), (before.shown(), before.ids()), "{what}");
            assert_eq!(target.peers, before.peers, "{what}");
        }
        // All of them at once.
        for (_, gone) in gone {
            let mut cluster = cluster.clone();
            cluster.members.iter_mut().for_each(gone);
            let target = cluster.target();
            assert_eq!((target.shown(), target.ids()), (before.shown(), before.ids()));
        }
    }
}

/// It cannot be one now: another takes the slot.
#[test]
fn labels_removed_from_a_node_that_is_drained() {
    let mut cluster = Cluster::new(":9");
    cluster.settle();
    let member = cluster.node("n01");
    (member.slot, member.labeled, member.cluster_id, member.closed) = (None, false, None, true);
    assert_eq!(cluster.target().shown(), "0=n00 1=n03 2=n02");
}
