//! Number of reflectors in each zone.
use proptest::prelude::*;

use super::{super::layout::spread, *};

fn even(total: usize, sizes: &[usize]) -> Vec<usize> {
    let lists: Vec<_> = sizes.iter().map(|size| vec![(); *size]).collect();
    spread(total, &lists)
}

/// It was 1 + 5 + 5 + 5 = 16, and "2 are missing".
#[test]
fn what_a_zone_lacks_is_carried_once() {
    assert_eq!(even(12, &[1, 10, 10, 10]), [1, 4, 4, 3]);
    assert_eq!(even(12, &[10, 10, 10, 1]), [4, 4, 3, 1]);
    assert_eq!(even(12, &[10, 0, 1, 10]), [6, 0, 1, 5]);
    assert_eq!(even(12, &[1, 2, 3]), [1, 2, 3]);
    assert_eq!(Cluster::new("a:1 b:10 c:10 d:10").count(12).target().zones(), "a:1 b:4 c:4 d:3");
}

/// It was 4 in each of three zones, and 2 in each of four.
#[test]
fn never_more_than_the_maximum() {
    assert_eq!(even(10, &[100, 100, 100]), [4, 3, 3]);
    assert_eq!(even(5, &[100, 100, 100, 100]), [2, 1, 1, 1]);
    let mut cluster = Cluster::new("a:20 b:20 c:20").topology(Topology::Simple);
    cluster.rules.count = Count { max: 10, ratio: "1".parse().unwrap(), ..cluster.rules.count };
    let target = cluster.target();
    assert_eq!((target.zones().as_str(), target.desired), ("a:4 b:3 c:3", 10));
}

#[test]
fn among_even_zones_the_better_node_decides() {
    assert_eq!(spread(1, &[vec![2], vec![1], vec![1]]), [0, 1, 0]);
    assert_eq!(spread(4, &[vec![1, 9], vec![1, 8], vec![1, 7]]), [1, 1, 2]);
    assert_eq!(spread::<()>(3, &[]), [0; 0]);
}

/// As the original documents it: a separate number in each zone, and nothing is carried.
#[test]
fn counted_in_each_zone() {
    let mut cluster = Cluster::new("a:1 b:10 c:300 :5").topology(Topology::Simple);
    cluster.rules.count.scope = Scope::PerZone;
    cluster.rules.count.ratio = "0.02".parse().unwrap();
    let target = cluster.target();
    assert_eq!((target.zones().as_str(), target.desired), (":3 a:1 b:3 c:6", 13));
    // Without zones, it is the number of the cluster.
    let mut cluster = Cluster::new(":300");
    cluster.rules.count.scope = Scope::PerZone;
    assert_eq!(cluster.target().zones(), ":3");
}

proptest! {
    #[test]
    fn exactly_the_total_and_even(total in 0..60_usize, sizes in prop::collection::vec(0..15_usize, 0..8)) {
        let taken = even(total, &sizes);
        prop_assert_eq!(taken.iter().sum::<usize>(), total.min(sizes.iter().sum()));
        for (a, size) in taken.iter().zip(&sizes) {
            prop_assert!(a <= size);
            for b in &taken {
                // Fewer than elsewhere only where there are no more.
                prop_assert!(a + 1 >= *b || a == size, "{taken:?} of {sizes:?}");
            }
        }
    }
}
