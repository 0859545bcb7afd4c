//! The duration of an election.
use std::time::Instant;

use super::*;

/// 5,000 nodes and 25 reflectors, or as many as have room in the zones: takes milliseconds in a
/// release build, and less than a second without optimization on a busy machine.
#[test]
fn five_thousand_nodes() {
    for topology in [Topology::Simple, Topology::Zonal, Topology::Multi] {
        let count = if topology == Topology::Zonal { 10 } else { 25 };
        let mut cluster = Cluster::new("a:1667 b:1667 c:1666").topology(topology).count(count);
        for new in [true, false] {
            let start = Instant::now();
            let target = cluster.target();
            let took = start.elapsed();
            println!("{topology:?}, {}: {took:?}", if new { "new" } else { "settled" });
            assert!(took < Duration::from_secs(1), "{topology:?}: {took:?}");
            assert_eq!(target.slots.len(), count);
            cluster.settle();
        }
    }
}
