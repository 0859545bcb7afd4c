//! Impossible requests, with clear messages.
use super::*;

fn refused(cluster: Cluster, change: impl FnOnce(&mut Rules)) -> String {
    let mut cluster = cluster;
    change(&mut cluster.rules);
    cluster.refused()
}

#[test]
fn whatever_the_nodes_are() {
    let nodes = || Cluster::new("a:5 b:5");
    let steps = |steps: &[(usize, usize)]| {
        let steps = steps.to_vec();
        refused(nodes(), |rules| rules.count.steps = steps)
    };
    let cases = [
        (
            refused(nodes(), |r| r.count.min = 26),
            "spec.count.min: 26 is greater than spec.count.max (25)",
        ),
        (refused(nodes(), |r| r.count.min = 0), "spec.count.min: must be at least 1"),
        (steps(&[(5, 3), (5, 4)]), "spec.count.steps: 5 nodes stand there twice"),
        (
            steps(&[(500, 3), (100, 5)]),
            "spec.count.steps: 500 nodes have fewer reflectors (3) than 100 nodes (5)",
        ),
        (refused(nodes(), |r| r.key = "a b".into()), "spec.nodeLabel: \"a b\" is not a label key"),
        (refused(nodes(), |r| r.key = "".into()), "spec.nodeLabel: \"\" is not a label key"),
        (
            refused(nodes().topology(Topology::Multi), |r| r.peers_per_client = 1),
            "spec.peersPerClient: must be at least 2",
        ),
        (
            refused(nodes().topology(Topology::Zonal), |r| r.zone_label = "".into()),
            "spec.zoneLabel: required for topology Zonal",
        ),
        (
            refused(nodes().topology(Topology::Zonal), |r| r.ids.per = Some(IdScope::Set)),
            "spec.clusterID.per: with topology Zonal and one id for all, reflectors drop the routes of other zones; use Zone",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(text, expected);
    }
}

#[test]
fn zones_that_cannot_have_reflectors() {
    let zonal = |zones: &str| Cluster::new(zones).topology(Topology::Zonal).count(6);
    assert_eq!(
        zonal(":9").refused(),
        "spec.zoneLabel: topology Zonal needs zones, and no node has the label zone; label the nodes, or use topology Simple"
    );
    let small = |zone: &str, has: &str| {
        format!(
            "spec.topology: Zonal needs two eligible nodes in each zone (ready, schedulable, selected by spec.candidates), and zone \"{zone}\" has {has}; use topology Simple"
        )
    };
    assert_eq!(zonal("a:5 b:1").refused(), small("b", "1"));
    let mut cluster = zonal("a:5 b:5 c:5");
    cluster.members.iter_mut().filter(|m| m.name.starts_with('b')).for_each(|m| m.suitable = false);
    assert_eq!(cluster.refused(), small("b", "none"));
    // A node that is not ready cannot be a reflector now; a running set would wait for it.
    let mut cluster = zonal("a:5 b:2");
    cluster.node("b01").ready = false;
    assert_eq!(cluster.refused(), small("b", "1"));
    cluster.node("b01").ready = true;
    cluster.settle();
    cluster.dead("b01");
    assert_eq!(cluster.target().zones(), "a:3 b:2".replace("a:3", "a:4"));
    // No zone has two.
    let mut cluster = zonal("a:2 b:2");
    cluster.settle();
    for name in ["a00", "b00"] {
        cluster.remove(name);
    }
    assert_eq!(cluster.refused(), small("a", "1"));
}

#[test]
fn fewer_reflectors_than_zones_need() {
    let zonal = |zones: &str, min, max| {
        let mut cluster = Cluster::new(zones).topology(Topology::Zonal);
        (cluster.rules.count.min, cluster.rules.count.max) = (min, max);
        cluster
    };
    let few = "spec.count.min: topology Zonal needs two reflectors in each of 3 zones, and the count gives";
    assert_eq!(zonal("a:5 b:5 c:5", 3, 25).refused(), format!("{few} 3; set count.min to 6"));
    assert_eq!(
        zonal("a:5 b:5 c:5", 2, 5).refused(),
        format!("{few} 2; set count.min to 6, and count.max as well (it is 5)")
    );
    let mut cluster = zonal("a:5 b:5 c:5", 1, 1);
    cluster.rules.count.scope = Scope::PerZone;
    assert_eq!(
        cluster.refused(),
        "spec.count.min: topology Zonal needs two reflectors in each zone, and the count gives zone \"a\" 1; set count.min to 2, and count.max as well (it is 1)"
    );
    cluster.rules.count.max = 3;
    cluster.rules.count.min = 2;
    assert_eq!(cluster.target().zones(), "a:2 b:2 c:2");
}

#[test]
fn ids_that_cannot_be() {
    let many = |scope: &str, needed: usize| {
        format!(
            "spec.clusterID.per: {scope} needs {needed} different cluster ids, and with more than 4 the number of paths between reflectors explodes; use topology Simple with clusterID.per Set"
        )
    };
    let five = "a:5 b:5 c:5 d:5 e:5";
    for (topology, per, scope, needed) in [
        (Topology::Multi, None, "Zone", 5),
        (Topology::Simple, Some(IdScope::Zone), "Zone", 5),
        (Topology::Simple, Some(IdScope::Slot), "Slot", 10),
        (Topology::Auto, Some(IdScope::Slot), "Slot", 10),
    ] {
        let cluster = Cluster::new(five).topology(topology).count(10);
        assert_eq!(refused(cluster, |rules| rules.ids.per = per), many(scope, needed));
    }
    assert_eq!(
        Cluster::new(five).topology(Topology::Zonal).count(10).refused(),
        "spec.topology: Zonal has no room to replace a reflector in 5 zones (in at most 4 it has); use topology Simple"
    );
    assert_eq!(
        Cluster::new("a:9 b:9 c:9").topology(Topology::Zonal).count(20).refused(),
        "spec.count: with topology Zonal and these zones at most 14 reflectors leave room to replace one, and the count gives 20; set count.max to 14, or use topology Simple with clusterID.per Set"
    );
    let small = |pool: &str, has: &str, needed: usize| {
        format!(
            "spec.clusterID.pool: {pool} has {has} that can be cluster ids (1.0.0.0 to 239.255.255.255, without 127.0.0.0/8 and the addresses of nodes), and {needed} are needed"
        )
    };
    let zonal = || Cluster::new("a:5 b:5 c:5").count(6);
    let pool = |text: &str| {
        let pool = Pool::parse(text).unwrap();
        refused(zonal(), |rules| rules.ids.pool = pool)
    };
    assert_eq!(pool("224.0.0.0"), small("224.0.0.0/32", "1 address", 3));
    assert_eq!(pool("224.0.0.0/31"), small("224.0.0.0/31", "2 addresses", 3));
    for none in ["0.0.0.0/8", "127.0.0.0/30", "255.255.255.255/32", "240.0.0.0/30"] {
        assert_eq!(pool(none), small(none, "no addresses", 3));
    }
    let mut cluster = zonal();
    cluster.node("c04").address = Some(IpAddr::V4(Ipv4Addr::new(224, 0, 0, 2)));
    cluster.rules.ids.pool = Pool::parse("224.0.0.0/30").unwrap();
    assert_eq!(cluster.target().slots.len(), 6);
    cluster.node("c03").address = Some(IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)));
    assert_eq!(cluster.refused(), small("224.0.0.0/30", "2 addresses", 3));
}

/// 24 of 306 routes were missing in the measurement.
#[test]
fn multi_with_one_id_for_all() {
    let text = |slots: usize| {
        format!(
            "with one cluster id for all {slots} reflectors it loses routes unless every client peers with each of them (spec.peersPerClient is 3)"
        )
    };
    let multi = |zones: &str, count| Cluster::new(zones).topology(Topology::Multi).count(count);
    assert_eq!(multi(":9", 4).target().crowded, Some(text(4)));
    let mut one = multi("a:9 b:9", 6);
    one.rules.ids.per = Some(IdScope::Set);
    assert_eq!(one.target().crowded, Some(text(6)));
    assert_eq!(multi(":9", 3).target().crowded, None);
    assert_eq!(multi("a:9 b:9 c:9", 6).target().crowded, None);
}
