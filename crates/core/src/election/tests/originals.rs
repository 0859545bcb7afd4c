//! The tables of the original operator, where they were right.
use super::*;

/// Nodes as `zone` and `+` (ready), `-` (not), `*` (a reflector already); the expected number by
/// zone, and how many of these exist now.
#[test]
fn how_many_are_expected() {
    for (nodes, min, max, ratio, expected) in [
        ("-", 1, 5, "1", ""),
        ("+", 1, 5, "1", ":1"),
        ("+", 2, 5, "1", ":1"),
        ("+ + +", 1, 2, "1", ":2"),
        ("+ + +", 1, 5, "0.5", ":2"),
        ("+ + +", 1, 5, "1", ":3"),
        ("+ + -", 1, 5, "1", ":2"),
        ("* + -", 1, 5, "1", ":2"),
        ("a+ b+", 1, 5, "1", "a:1 b:1"),
    ] {
        let mut cluster = Cluster::new("");
        cluster.rules.count = Count { min, max, ratio: ratio.parse().unwrap(), ..rules().count };
        cluster.rules.topology = Topology::Simple;
        for word in nodes.split_whitespace() {
            let (zone, sign) = word.split_at(word.len() - 1);
            cluster.add(&format!("{zone}:1"));
            let member = cluster.members.last_mut().unwrap();
            member.ready = sign != "-";
            if sign == "*" {
                member.labeled = true;
                member.cluster_id = Some(Ipv4Addr::new(224, 0, 0, 0));
            }
        }
        let target = cluster.target();
        assert_eq!(target.zones(), expected, "{nodes} {min} {max} {ratio}");
        // The existing one is one of them.
        assert!(!nodes.contains('*') || &*target.slots[0].node == "n00");
    }
}

/// Deterministic, stable over a thousand calls; different for zones. (Its numbers were those of
/// Go's generator.)
#[test]
fn cluster_ids_are_stable() {
    let mut cluster = Cluster::new("a:3 b:3").topology(Topology::Multi).count(4);
    let ids = cluster.settle().ids();
    assert_eq!(ids, "224.0.0.0 224.0.0.0 224.0.0.1 224.0.0.1");
    for _ in 0..1000 {
        assert_eq!(cluster.target().ids(), ids);
    }
}

/// Its cases of peers: without a reflector and a node; the one between reflectors is always there;
/// a reflector is not a client; with three reflectors in three zones every node has all of them.
#[test]
fn peers_of_topology_multi() {
    let empty = Cluster::new("").topology(Topology::Multi).target();
    assert_eq!(empty.peers, [reflector_peer("rr")]);
    let only = Cluster::new(":1").topology(Topology::Multi).target();
    assert_eq!((only.peers[0].clone(), only.groups.len()), (reflector_peer("rr"), 0));
    let one = Cluster::new(":2").topology(Topology::Multi).count(1).target();
    assert_eq!(&one.group_slots[&one.groups["n01"]], &BTreeSet::from([0]));
    let all = Cluster::new("a:2 b:2 c:2").topology(Topology::Multi).count(3).target();
    for node in ["a01", "b01", "c01"] {
        assert_eq!(&all.group_slots[&all.groups[node]], &BTreeSet::from([0, 1, 2]), "{node}");
    }
}

/// All unfit (not ready, cordoned, tainted, incompatible): none is chosen. Fewer than there are:
/// the number is right at once.
#[test]
fn up_and_down() {
    let mut cluster = Cluster::new(":4").topology(Topology::Simple);
    cluster.node("n00").ready = false;
    cluster.node("n01").closed = true;
    cluster.node("n02").suitable = false;
    cluster.node("n03").closed = true;
    let target = cluster.target();
    assert_eq!((target.shown().as_str(), target.freeze), ("", Some(Freeze::NoCandidates)));
    let mut cluster = Cluster::new(":2").count(1);
    cluster.settle();
    let mut more = cluster.clone().count(2);
    assert_eq!(more.settle().shown(), "0=n00 1=n01");
    assert_eq!(more.count(1).target().left(), "n01 1 Surplus");
}
