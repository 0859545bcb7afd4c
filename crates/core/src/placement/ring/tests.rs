use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

mod bound;
mod scale;

type Edges = BTreeSet<(String, String)>;

fn member(id: impl Into<String>, zone: impl Into<String>) -> Member {
    Member { id: id.into(), zone: zone.into() }
}

/// Returns a number of members, distributed in turn over a number of zones.
fn members(count: usize, zones: usize) -> Vec<Member> {
    (0..count).map(|i| member(format!("shop/web-{i}/uid"), format!("z{}", i % zones))).collect()
}

fn edges(members: &[Member], neighbors: Neighbors) -> Edges {
    let lists = Ring::new(members, neighbors).peers();
    let name = |place: usize| members[place].id.clone();
    lists
        .iter()
        .enumerate()
        .flat_map(|(from, list)| list.iter().map(move |&to| (name(from), name(to))))
        .collect()
}

fn zone_of(members: &[Member]) -> BTreeMap<&str, &str> {
    members.iter().map(|m| (m.id.as_str(), m.zone.as_str())).collect()
}

/// Up to 40 members, all different, in up to four zones, one of which has no name.
fn some_members() -> impl Strategy<Value = Vec<Member>> {
    proptest::collection::btree_map("[a-z]{1,3}", 0..4_usize, 0..40).prop_map(|map| {
        let zones = ["", "a", "b", "c"];
        map.into_iter().map(|(id, zone)| member(id, zones[zone])).collect()
    })
}

fn some_neighbors() -> impl Strategy<Value = Neighbors> {
    (0..12_usize, 0..5_usize)
        .prop_map(|(in_zone, per_other_zone)| Neighbors { in_zone, per_other_zone })
}

/// Lists by the zones of their edges, with the number of elements that each gained or lost.
type Lists<'a> = BTreeMap<(&'a str, &'a str), BTreeMap<&'a str, usize>>;

/// Checks the documented effect of a member that joins (in reverse: that leaves).
fn check_movement(
    before: &[Member],
    after: &[Member],
    new: &Member,
    k: Neighbors,
) -> Result<(), TestCaseError> {
    let (old, now) = (edges(before, k), edges(after, k));
    let zones = zone_of(after);
    let appeared: Vec<_> = now.difference(&old).collect();
    let vanished: Vec<_> = old.difference(&now).collect();
    prop_assert!(appeared.iter().all(|(from, to)| *from == new.id || *to == new.id));

    // One for one: the new member probes each target that lost a prober.
    let mut losers = BTreeSet::new();
    for (_, to) in &vanished {
        prop_assert!(losers.insert(to), "{to} lost two probers");
        prop_assert!(now.contains(&(new.id.clone(), to.clone())), "{to} lost a prober for nothing");
    }

    // Lists of others, by the prober's zone and the target's: gained and lost.
    let (mut gained, mut lost) = (Lists::new(), Lists::new());
    for (from, to) in appeared.iter().filter(|(from, _)| *from != new.id) {
        *gained
            .entry((zones[from.as_str()], zones[to.as_str()]))
            .or_default()
            .entry(from)
            .or_default() += 1;
    }
    for (from, to) in &vanished {
        *lost
            .entry((zones[from.as_str()], zones[to.as_str()]))
            .or_default()
            .entry(from)
            .or_default() += 1;
    }
    let limit = |(from, to): (&str, &str)| if from == to { k.in_zone } else { k.per_other_zone };
    for (pair, lists) in &gained {
        prop_assert!(lists.len() <= limit(*pair), "{} lists gained", lists.len());
        prop_assert!(lists.values().all(|count| *count == 1));
        prop_assert_eq!(pair.1, new.zone.as_str());
    }
    for (pair, lists) in &lost {
        prop_assert!(lists.len() <= limit(*pair), "{} lists lost", lists.len());
        prop_assert_eq!(pair.0, new.zone.as_str());
        if pair.0 == pair.1 {
            // Inside a zone one element for one element.
            prop_assert!(lists.values().all(|count| *count == 1));
            let same = gained.get(pair).is_some_and(|others| others.keys().eq(lists.keys()));
            prop_assert!(same, "lists that lost and did not gain");
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_order_of_the_members_does_not_matter(
        (members, shuffled) in some_members().prop_flat_map(|m| (Just(m.clone()), Just(m).prop_shuffle())),
        k in some_neighbors(),
    ) {
        prop_assert_eq!(edges(&members, k), edges(&shuffled, k));
        // The lists are the same word for word, not only as sets.
        for who in &members {
            let names = |all: &[Member]| -> Vec<String> {
                peers_of(all, k, Bound::NONE, &who.id).into_iter().map(|place| all[place].id.clone()).collect()
            };
            prop_assert_eq!(names(&members), names(&shuffled));
        }
    }

    #[test]
    fn every_target_has_exactly_its_probers(members in some_members(), k in some_neighbors()) {
        prop_assume!(k != Neighbors::FULL_MESH);
        let zones = zone_of(&members);
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        for zone in zones.values() {
            *sizes.entry(zone).or_default() += 1;
        }
        let mut probers: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let edges = edges(&members, k);
        for (from, to) in &edges {
            prop_assert_ne!(from, to);
            *probers.entry((zones[from.as_str()], to)).or_default() += 1;
        }
        for target in &members {
            for (&zone, &size) in &sizes {
                let own = zone == target.zone;
                let wanted = if own { k.in_zone.min(size - 1) } else { k.per_other_zone.min(size) };
                let found = probers.get(&(zone, target.id.as_str())).copied().unwrap_or(0);
                prop_assert_eq!(found, wanted, "{:?} from {}", target, zone);
            }
        }
        // Inside a zone, every member also probes exactly as many.
        for source in &members {
            let inside = edges.iter().filter(|(from, to)| {
                *from == source.id && zones[to.as_str()] == source.zone
            });
            prop_assert_eq!(inside.count(), k.in_zone.min(sizes[source.zone.as_str()] - 1));
        }
    }

    #[test]
    fn every_ordered_pair_of_zones_is_measured(members in some_members(), k in 1..4_usize) {
        let neighbors = Neighbors { in_zone: 0, per_other_zone: k };
        let zones = zone_of(&members);
        let edges = edges(&members, neighbors);
        let measured: BTreeSet<_> =
            edges.iter().map(|(from, to)| (zones[from.as_str()], zones[to.as_str()])).collect();
        let names: BTreeSet<_> = zones.values().copied().collect();
        prop_assert_eq!(measured.len(), names.len() * names.len().saturating_sub(1));
    }

    #[test]
    fn one_member_moves_no_more_than_its_own_share(
        all in some_members(), pick in any::<prop::sample::Index>(), k in some_neighbors(),
    ) {
        prop_assume!(!all.is_empty() && k != Neighbors::FULL_MESH);
        let place = pick.index(all.len());
        let mut without = all.clone();
        let one = without.remove(place);
        check_movement(&without, &all, &one, k)?;
    }

    #[test]
    fn one_list_is_that_of_all_lists(
        mut members in some_members(), k in some_neighbors(), again in any::<prop::sample::Index>(),
    ) {
        // With one of them given twice.
        if !members.is_empty() {
            members.push(members[again.index(members.len())].clone());
        }
        let ring = Ring::new(&members, k);
        let lists = ring.peers();
        prop_assert_eq!(lists.len(), members.len());
        for (place, list) in lists.iter().enumerate() {
            prop_assert_eq!(&ring.peers_at(place), list);
            prop_assert_eq!(&peers_of(&members, k, Bound::NONE, &members[place].id), list);
        }
    }

    #[test]
    fn who_is_listed_twice_counts_once(
        members in some_members(), k in some_neighbors(), again in any::<prop::sample::Index>(),
    ) {
        prop_assume!(!members.is_empty());
        let twice = members[again.index(members.len())].clone();
        let expected = edges(&members, k);
        // In a later zone and at the front: the smaller zone wins, not the first place.
        let mut more = vec![member(&twice.id, "z"), twice];
        more.extend(members);
        prop_assert_eq!(edges(&more, k), expected);
        for list in Ring::new(&more, k).peers() {
            let ids: BTreeSet<_> = list.iter().map(|&place| &more[place].id).collect();
            prop_assert_eq!(ids.len(), list.len());
        }
    }
}

#[test]
fn no_neighbors_is_the_full_mesh() {
    let all = members(7, 3);
    let lists = Ring::new(&all, Neighbors::FULL_MESH).peers();
    for (place, list) in lists.iter().enumerate() {
        assert_eq!(list.len(), 6);
        assert!(!list.contains(&place));
        assert_eq!(*list, peers_of(&all, Neighbors::FULL_MESH, Bound::NONE, &all[place].id));
    }
}

#[test]
fn few_members_and_strangers_are_no_trouble() {
    let k = Neighbors { in_zone: 8, per_other_zone: 2 };
    assert!(Ring::new(&[], k).peers().is_empty());
    assert!(Ring::new(&[], k).peers_at(0).is_empty());
    assert_eq!(Ring::new(&members(1, 1), k).peers(), [Vec::<usize>::new()]);
    assert_eq!(Ring::new(&members(2, 1), k).peers(), [vec![1], vec![0]]);
    assert_eq!(Ring::new(&members(2, 2), k).peers(), [vec![1], vec![0]]);
    assert!(peers_of(&members(5, 1), k, Bound::NONE, "a stranger").is_empty());
}

/// Returns the minimum and the maximum of the numbers of lists that hold a member, and of the
/// lengths of lists.
fn degrees(members: &[Member], k: Neighbors) -> [(usize, usize); 2] {
    let lists = Ring::new(members, k).peers();
    let mut probers = vec![0; members.len()];
    lists.iter().flatten().for_each(|&place| probers[place] += 1);
    let lengths: Vec<_> = lists.iter().map(Vec::len).collect();
    [probers, lengths].map(|n| (*n.iter().min().unwrap(), *n.iter().max().unwrap()))
}

/// The table in the documentation of this module.
#[test]
fn sizes_are_as_documented() {
    let k = Neighbors { in_zone: 10, per_other_zone: 0 };
    assert_eq!(degrees(&members(500, 1), k), [(10, 10), (10, 10)]);
    let k = Neighbors { in_zone: 8, per_other_zone: 2 };
    assert_eq!(degrees(&members(500, 3), k), [(12, 12), (8, 22)]);
}

/// Two agents of different versions must agree: an edge that moves here moves in every cluster.
#[test]
fn the_lists_never_change() {
    let k = Neighbors { in_zone: 2, per_other_zone: 1 };
    let lists = Ring::new(&members(8, 2), k).peers();
    let expected: [&[usize]; 8] = [
        &[2, 6],
        &[3, 5],
        &[1, 3, 4, 6, 7],
        &[5, 7],
        &[0, 2, 5],
        &[0, 1, 2, 4, 6, 7],
        &[0, 4],
        &[1, 3],
    ];
    assert_eq!(lists, expected);
}
