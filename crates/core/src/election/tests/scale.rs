//! Fifty thousand nodes: the sizes of what is decided, and of what changes with one node. Sizes
//! and not times.
use super::*;

/// The sizes of a decision: reflectors, `BGPPeer`s, and groups of clients.
type Sizes = [usize; 3];

fn names(target: &Target) -> Vec<&str> {
    target.slots.iter().map(|slot| &*slot.node).collect()
}

/// Nodes spread evenly over zones.
fn cluster(zones: usize, nodes: usize) -> Cluster {
    let size = |zone: usize| nodes / zones + usize::from(zone < nodes % zones);
    let words: Vec<_> = ["a", "b", "c"][..zones]
        .iter()
        .enumerate()
        .map(|(i, z)| format!("{z}:{}", size(i)))
        .collect();
    Cluster::new(&words.join(" "))
}

/// Elects, leaves alone, and removes a client and a reflector; returns the sizes.
fn sizes(topology: Topology, zones: usize, nodes: usize, count: usize) -> Sizes {
    let mut cluster = cluster(zones, nodes).topology(topology).count(count);
    let first = cluster.settle();
    let grouped = if topology == Topology::Simple { 0 } else { nodes - count };
    assert_eq!((first.slots.len(), first.groups.len()), (count, grouped), "{topology:?} {nodes}");

    let second = cluster.settle();
    assert_eq!(names(&second), names(&first), "a second election changes nothing");
    assert_eq!(second.groups, first.groups);
    assert!(second.leaving.is_empty(), "{}", second.left());

    let is_client = |m: &&Member| m.slot.is_none();
    let client = cluster.members.iter().rfind(is_client).unwrap().name.clone();
    cluster.remove(&client);
    let third = cluster.settle();
    assert_eq!(names(&third), names(&first), "a client that leaves promotes nobody");
    let moved = third.groups.iter().filter(|(name, group)| first.groups[*name] != **group);
    assert_eq!(moved.count(), 0, "{topology:?}: clients that change their group");

    let gone = names(&third)[0].to_owned();
    cluster.remove(&gone);
    let fourth = cluster.target();
    let kept = names(&fourth).iter().filter(|name| names(&third).contains(name)).count();
    assert_eq!((fourth.slots.len(), kept), (count, count - 1), "one of {count} is replaced");
    // The new reflector is no client any more.
    let moved = fourth.groups.iter().filter(|(name, group)| third.groups[*name] != **group);
    assert_eq!(moved.count(), 0, "{topology:?}: clients that change their group");
    [first.slots.len(), first.peers.len(), first.group_slots.len()]
}

/// Each node of a cluster is a client of as many objects, however large the cluster is.
#[test]
fn fifty_thousand_nodes_need_as_many_objects_as_five_thousand() {
    let cases = [(Topology::Simple, 3, 25), (Topology::Zonal, 2, 4), (Topology::Multi, 3, 25)];
    for (topology, zones, count) in cases {
        let [small, large] = [5_000, 50_000].map(|nodes| sizes(topology, zones, nodes, count));
        println!("{topology:?}: reflectors, BGPPeers, groups: {small:?} and {large:?}");
        assert_eq!(large, small, "{topology:?}");
    }
}

/// With an id for each zone, the table of a reflector holds several paths to each node: 50,000
/// nodes have room for four reflectors in two zones, and for none in three.
#[test]
fn fifty_thousand_nodes_with_more_paths_than_tables_bear_are_refused() {
    let refused =
        |zones, count| cluster(zones, 50_000).topology(Topology::Zonal).count(count).refused();
    let many = refused(3, 10);
    assert!(many.contains("has no room to replace a reflector in 3 zones"), "{many}");
    let many = refused(2, 10);
    assert!(many.contains('4'), "{many}");
}
