//! Bounded lists.
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn zones(sizes: &[usize]) -> Vec<Member> {
    let zones = sizes.iter().enumerate();
    zones
        .flat_map(|(zone, &size)| {
            (0..size)
                .map(move |i| member(format!("shop/web-{zone}-{i}/uid"), format!("z{zone:03}")))
        })
        .collect()
}

/// The shapes that break a ring without a bound, and harmless ones.
fn skewed() -> impl Strategy<Value = Vec<Member>> {
    prop_oneof![
        (1000_usize..3000).prop_map(|many| zones(&[1, many])),
        (500_usize..2000).prop_map(|many| zones(&[2, many])),
        (1_usize..20).prop_map(|each| zones(&vec![each; 100])),
        (1_usize..2000).prop_map(|all| zones(&[all])),
        proptest::collection::vec(1_usize..300, 1..12).prop_map(|sizes| zones(&sizes)),
    ]
}

/// The lists of one member in consecutive epochs.
fn epochs_of(
    members: &[Member],
    k: Neighbors,
    most: usize,
    place: usize,
    epochs: std::ops::Range<u64>,
) -> Vec<Vec<usize>> {
    let bounded = |epoch| Ring::new(members, k).bounded(Bound { most, epoch });
    epochs.map(|epoch| bounded(epoch).peers_at(place)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For any zones: no list is longer than the bound, no list that fits is cut, and cut lists are
    /// full.
    #[test]
    fn no_member_probes_more_than_the_bound(
        members in skewed(), k in some_neighbors(), most in 4_usize..80, epoch: u64,
    ) {
        prop_assume!(k != Neighbors::FULL_MESH);
        let all = Ring::new(&members, k).peers();
        let ring = Ring::new(&members, k).bounded(Bound { most, epoch });
        let (lists, rotation) = ring.rotation();
        for (place, (list, whole)) in lists.iter().zip(&all).enumerate() {
            prop_assert_eq!(list.len(), whole.len().min(most), "{} of {}", place, whole.len());
            prop_assert!(list.iter().all(|to| whole.contains(to)));
            prop_assert!(list.is_sorted_by(|one, next| members[*one].id < members[*next].id));
        }
        let longest = all.iter().map(Vec::len).max().unwrap_or_default();
        prop_assert_eq!(rotation.wanted, longest);
        prop_assert_eq!(rotation.members, all.iter().filter(|list| list.len() > most).count());
        prop_assert_eq!(rotation.epochs > 1, longest > most);
        for place in (0..members.len()).step_by(97) {
            prop_assert_eq!(&ring.peers_at(place), &lists[place]);
        }
    }

    /// While nothing exceeds the bound, it has no effect: so all guarantees of the ring hold,
    /// including least movement, and no epoch moves anything.
    #[test]
    fn below_the_bound_nothing_changes(
        members in some_members(), k in some_neighbors(), epoch: u64,
    ) {
        let all = Ring::new(&members, k).peers();
        let most = all.iter().map(Vec::len).max().unwrap_or_default();
        let bounded = Ring::new(&members, k).bounded(Bound { most, epoch });
        prop_assert_eq!(bounded.peers(), all);
    }

    /// The lists do not depend on the order, not even in a mesh, and each can be computed alone.
    #[test]
    fn a_cut_list_depends_on_the_members_and_the_epoch_only(
        (members, shuffled) in some_members().prop_flat_map(|m| (Just(m.clone()), Just(m).prop_shuffle())),
        k in some_neighbors(), most in 1_usize..8, epoch: u64,
    ) {
        let bound = Bound { most, epoch };
        for who in &members {
            let names = |all: &[Member]| -> Vec<String> {
                let places = peers_of(all, k, bound, &who.id);
                places.into_iter().map(|place| all[place].id.clone()).collect()
            };
            prop_assert!(names(&members).len() <= most);
            prop_assert_eq!(names(&members), names(&shuffled));
        }
    }

    /// Each edge of the exact ring is probed within the epochs that are stated: so no target and no
    /// pair of zones is forgotten.
    #[test]
    fn every_target_has_its_turn(
        members in some_members(), k in some_neighbors(), most in 4_usize..10,
        first in 0_u64..1 << 40,
    ) {
        let all = Ring::new(&members, k).peers();
        let ring = |epoch| Ring::new(&members, k).bounded(Bound { most, epoch });
        let (_, rotation) = ring(0).rotation();
        let mut seen = vec![BTreeSet::new(); members.len()];
        for epoch in first..first + rotation.epochs {
            for (seen, list) in seen.iter_mut().zip(ring(epoch).peers()) {
                seen.extend(list);
            }
        }
        for (seen, all) in seen.iter().zip(&all) {
            prop_assert_eq!(seen, &all.iter().copied().collect::<BTreeSet<_>>());
        }
    }
}

/// The member with the most heavily cut list, and the number of epochs of its rotation: found and
/// as documented.
#[test]
fn skewed_zones_come_round_in_time() {
    let k = Neighbors { in_zone: 8, per_other_zone: 2 };
    for (sizes, most, wanted, epochs) in [
        // Seventeen: three protocols and the original's metric.
        (vec![1, 3000], 17, 3000, 256),
        (vec![2, 2000], 17, 2001, 128),
        (vec![1, 4999], 72, 4999, 128),
        // More zones than places.
        (vec![50; 100], 17, 269, 528),
        (vec![5000], 17, 8, 1),
        (vec![500], 17, 8, 1),
    ] {
        let members = zones(&sizes);
        let all = Ring::new(&members, k).peers();
        let (place, _) = all.iter().enumerate().max_by_key(|(_, list)| list.len()).unwrap();
        let (_, rotation) = Ring::new(&members, k).bounded(Bound { most, epoch: 1 }).rotation();
        println!("{} zones, {most}: {rotation:?}", sizes.len());
        let turns = epochs_of(&members, k, most, place, 7..7 + rotation.epochs);
        assert!(turns.iter().all(|list| list.len() == most.min(all[place].len())));
        let seen: BTreeSet<_> = turns.into_iter().flatten().collect();
        assert_eq!(seen.len(), all[place].len());
        assert_eq!((rotation.wanted, rotation.epochs), (wanted, epochs), "{sizes:?}");
    }
}

/// A large zone does not starve a small one, nor a member's own zone the paths to others.
#[test]
fn zones_share_what_there_is() {
    let k = Neighbors { in_zone: 8, per_other_zone: 2 };
    // Each member has its own order of zones: either of the two may come first.
    for (sizes, small) in [([1, 3, 3000], "z001"), ([1, 3000, 3], "z002")] {
        let members = zones(&sizes);
        for list in epochs_of(&members, k, 17, 0, 0..50) {
            assert_eq!(list.iter().filter(|&&to| members[to].zone == small).count(), 3);
            assert_eq!(list.len(), 17);
        }
    }
    let members = zones(&[200, 200]);
    let k = Neighbors { in_zone: 100, per_other_zone: 100 };
    for list in epochs_of(&members, k, 17, 0, 0..50) {
        assert_eq!(list.iter().filter(|&&to| members[to].zone == "z000").count(), 13);
        assert_eq!(list.len(), 17);
    }
}

/// A rollout in a cluster with cut lists does not replace all of them.
#[test]
fn one_member_moves_a_window_by_one() {
    let k = Neighbors { in_zone: 8, per_other_zone: 2 };
    let members = zones(&[1, 1500]);
    let list = |members: &[Member], epoch| -> BTreeSet<String> {
        let list = epochs_of(members, k, 17, 0, epoch..epoch + 1).concat();
        list.into_iter().map(|to| members[to].id.clone()).collect()
    };
    for gone in [1, 77, 1499] {
        let mut fewer = members.clone();
        fewer.remove(gone);
        for epoch in 1000..1020 {
            let (before, after) = (list(&members, epoch), list(&fewer, epoch));
            assert!(before.symmetric_difference(&after).count() <= 4);
        }
    }
}

proptest! {
    #[test]
    fn everything_has_its_turn_within_the_epochs_that_are_stated(
        len in 1_usize..3000, room in 1_usize..80, phase: u64, first: u64,
    ) {
        let all = epochs(len, room);
        prop_assert!(all == 1 || all < 2 * len.div_ceil(room) as u64);
        let mut seen = BTreeSet::new();
        for epoch in 0..all {
            let now: BTreeSet<_> =
                window(len, room, phase, first.wrapping_add(epoch)).collect();
            prop_assert_eq!(now.len(), room.min(len));
            seen.extend(now);
        }
        prop_assert_eq!(seen.len(), len);
    }

    #[test]
    fn shares_are_fair_and_leave_nothing(
        sizes in proptest::collection::vec(1_usize..50, 1..20), more in 0_usize..200,
    ) {
        let room = (sizes.len() + more).min(sizes.iter().sum());
        let shares = shares(&sizes, room);
        prop_assert_eq!(shares.iter().sum::<usize>(), room);
        let most = shares.iter().max().copied().unwrap_or_default();
        for (share, size) in shares.iter().zip(&sizes) {
            prop_assert!(share <= size && (share == size || share + 1 >= most));
        }
    }
}
