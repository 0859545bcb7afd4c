//! Elections of large clusters. How long one takes is for `make bench` (`bench reflector`).
use super::*;

/// 5,000 nodes and 25 reflectors, or as many as have room in the zones.
#[test]
fn five_thousand_nodes() {
    for topology in [Topology::Simple, Topology::Zonal, Topology::Multi] {
        let count = if topology == Topology::Zonal { 10 } else { 25 };
        let mut cluster = Cluster::new("a:1667 b:1667 c:1666").topology(topology).count(count);
        let new = cluster.target();
        assert_eq!(new.slots.len(), count);
        cluster.settle();
        assert_eq!(cluster.target().shown(), new.shown(), "{topology:?}: nothing moves");
    }
}
