//! Cluster ids.
use super::*;

fn ids(topology: Topology, per: Option<IdScope>, pool: &str) -> Cluster {
    let mut cluster = Cluster::new("a:5 b:5").topology(topology).count(4);
    cluster.rules.ids = Ids { pool: Pool::parse(pool).unwrap(), per };
    cluster
}

#[test]
fn who_shares_an_id() {
    use Topology::{Multi, Simple, Zonal};
    let (one, two) = ("10.1.0.0 10.1.0.0 10.1.0.0 10.1.0.0", "10.1.0.0 10.1.0.0 10.1.0.1 10.1.0.1");
    let four = "10.1.0.0 10.1.0.1 10.1.0.2 10.1.0.3";
    for (topology, per, expected) in [
        (Simple, None, one),
        (Zonal, None, two),
        (Multi, None, two),
        (Simple, Some(IdScope::Set), one),
        (Simple, Some(IdScope::Zone), two),
        (Simple, Some(IdScope::Slot), four),
        (Zonal, Some(IdScope::Slot), four),
        (Multi, Some(IdScope::Slot), four),
    ] {
        let mut cluster = ids(topology, per, "10.1.0.0/16");
        assert_eq!(cluster.target().shown(), "0=a00 1=a01 2=b00 3=b01");
        assert_eq!(cluster.settle().ids(), expected, "{topology:?} {per:?}");
        assert_eq!(cluster.target().ids(), expected, "{topology:?} {per:?}");
    }
}

#[test]
fn no_id_is_the_address_of_a_node_or_no_address_at_all() {
    let mut cluster = ids(Topology::Zonal, None, "10.1.0.0/29");
    for (index, member) in cluster.members.iter_mut().enumerate().skip(5) {
        member.address =
            Some(IpAddr::V4(Ipv4Addr::new(10, 1, 0, u8::try_from(index).unwrap() - 5)));
    }
    assert_eq!(cluster.settle().ids(), "10.1.0.5 10.1.0.5 10.1.0.6 10.1.0.6");
    // A new node with an address that is already an id.
    cluster.members[0].address = Some(IpAddr::V4(Ipv4Addr::new(10, 1, 0, 6)));
    assert_eq!(cluster.target().ids(), "10.1.0.5 10.1.0.5 10.1.0.7 10.1.0.7");
    let cluster = ids(Topology::Simple, None, "0.0.0.0/0");
    assert_eq!(cluster.target().slots[0].cluster_id, Ipv4Addr::new(1, 0, 0, 0));
    let cluster = ids(Topology::Simple, None, "126.255.255.255/7");
    assert_eq!(cluster.target().slots[0].cluster_id, Ipv4Addr::new(126, 0, 0, 0));
}

/// Each id that changes costs its reflector two seconds of routes.
#[test]
fn another_topology_keeps_as_many_ids_as_it_can() {
    let mut cluster = ids(Topology::Simple, None, "10.1.0.0/16");
    cluster.settle();
    cluster.rules.topology = Topology::Zonal;
    assert_eq!(cluster.settle().ids(), "10.1.0.0 10.1.0.0 10.1.0.1 10.1.0.1");
    cluster.rules.topology = Topology::Simple;
    cluster.rules.count.min = 3;
    cluster.rules.count.max = 3;
    assert_eq!(cluster.settle().ids(), "10.1.0.0 10.1.0.0 10.1.0.0");
}

#[test]
fn ids_outlive_their_reflectors() {
    let mut cluster = ids(Topology::Zonal, None, "10.1.0.0/16");
    cluster.settle();
    for name in ["a00", "a01"] {
        cluster.remove(name);
    }
    let target = cluster.target();
    assert_eq!(target.ids(), "10.1.0.0 10.1.0.0 10.1.0.1 10.1.0.1");
    // Without the status the labels are enough, and an id that is in use is not given to another
    // zone.
    cluster.previous = Previous::default();
    let target = cluster.target();
    assert_eq!(target.slots[2].cluster_id, Ipv4Addr::new(10, 1, 0, 1));
    assert_eq!(target.slots[0].cluster_id, Ipv4Addr::new(10, 1, 0, 0));
}

/// Another pool gives other ids, even for existing reflectors.
#[test]
fn ids_come_from_the_pool() {
    let mut cluster = ids(Topology::Simple, None, "10.1.0.0/16");
    cluster.settle();
    cluster.rules.ids.pool = Pool::parse("224.0.0.1").unwrap();
    assert_eq!(cluster.target().ids(), ["224.0.0.1"; 4].join(" "));
    cluster.rules.ids.pool = Pool::parse("10.1.0.0").unwrap();
    assert_eq!(cluster.target().ids(), ["10.1.0.0"; 4].join(" "));
}

/// Calico's documentation makes reflectors with 244.0.0.1.
#[test]
fn reflectors_from_before_keep_any_id_unless_a_pool_is_chosen() {
    for (pool, expected) in [("224.0.0.0/16", "244.0.0.1"), ("224.1.0.0/16", "224.1.0.0")] {
        let mut cluster = ids(Topology::Simple, None, pool);
        for name in ["a02", "b03"] {
            let node = cluster.node(name);
            (node.labeled, node.cluster_id) = (true, Some(Ipv4Addr::new(244, 0, 0, 1)));
        }
        assert_eq!(cluster.target().ids(), [expected; 4].join(" "));
        cluster.settle();
        // A slot keeps it when another node takes it.
        cluster.remove("a02");
        assert_eq!(cluster.target().ids(), [expected; 4].join(" "));
    }
}

#[test]
fn the_id_of_someone_elses_reflector_is_not_given_out() {
    let mut cluster = ids(Topology::Simple, None, "10.1.0.0/16");
    cluster.previous.slots.push(PreviousSlot {
        id: 0,
        node: "long-gone".into(),
        zone: None,
        cluster_id: None,
    });
    let other = cluster.node("b04");
    (other.labeled, other.cluster_id) = (true, Some(Ipv4Addr::new(10, 1, 0, 0)));
    assert_eq!(cluster.target().ids(), ["10.1.0.1"; 4].join(" "));
}

/// The original's ids, one for each reflector, which made the number of paths explode.
#[test]
fn the_originals_ids_become_one_for_each_zone() {
    let mut cluster = Cluster::new("a:5 b:5").count(6);
    for (index, name) in ["a00", "a01", "a02", "b00", "b01", "b02"].into_iter().enumerate() {
        let node = cluster.node(name);
        let last = 9 - u8::try_from(index).unwrap();
        (node.labeled, node.cluster_id) = (true, Some(Ipv4Addr::new(224, 0, 0, last)));
    }
    let target = cluster.target();
    assert_eq!(target.topology, Topology::Zonal);
    // One reflector of each zone keeps its own id.
    assert_eq!(target.ids(), "224.0.0.7 224.0.0.7 224.0.0.7 224.0.0.4 224.0.0.4 224.0.0.4");
}

#[test]
fn which_texts_are_pools() {
    for (text, shown) in [
        ("224.0.0.0/16", "224.0.0.0/16"),
        ("224.0.0.1", "224.0.0.1/32"),
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("1.2.3.4/32", "1.2.3.4/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
    ] {
        assert_eq!(Pool::parse(text).unwrap().to_string(), shown);
    }
    for text in [
        "",
        "/",
        "224.0.0.0/",
        "/16",
        "224.0.0/16",
        "224.0.0.256",
        "224.0.0.0/33",
        "::1",
        "fe80::/64",
        "224.0.0.%d",
        "a.b.c.d",
        "1.2.3.4/+8",
        "1.2.3.4/08",
        "1.2.3.4/-1",
        " 1.2.3.4",
    ] {
        assert_eq!(
            Pool::parse(text).unwrap_err().to_string(),
            format!(
                "spec.clusterID.pool: \"{text}\" is not an IPv4 range or address, e.g. \"224.0.0.0/16\""
            )
        );
    }
}
