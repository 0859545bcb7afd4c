//! Properties that hold for any input, named for the invariants of route reflectors.
use proptest::prelude::*;

use super::*;

fn some_member() -> impl Strategy<Value = Member> {
    let zone = prop::option::weighted(0.9, (0..4_u8).prop_map(|zone| format!("z{zone}").into()));
    let state = (prop::bool::weighted(0.85), prop::bool::weighted(0.1), prop::bool::weighted(0.9));
    let liking = (any::<bool>(), prop::bool::weighted(0.2), 0..3_u32, 0..3_i64);
    let times = (prop::option::of(0..900_u64), prop::option::of(0..900_u64));
    (zone, state, liking, times).prop_map(|(zone, (ready, closed, suitable), liking, times)| {
        let seconds = |time: Option<u64>| time.map(Duration::from_secs);
        Member {
            zone,
            ready,
            closed,
            suitable,
            preferred: liking.0,
            unfit: liking.1,
            workloads: liking.2,
            created: liking.3,
            not_ready_for: seconds(times.0).filter(|_| !ready),
            unfit_for: seconds(times.1).filter(|_| liking.1),
            ..Member::default()
        }
    })
}

fn some_members(sizes: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Member>> {
    prop::collection::vec(some_member(), sizes).prop_map(|mut members| {
        for (index, member) in members.iter_mut().enumerate() {
            member.name = format!("node-{index:03}").into();
            let index = u8::try_from(index).unwrap();
            member.address = Some(IpAddr::V4(Ipv4Addr::new(224, 0, 0, index)));
        }
        members
    })
}

fn some_rules() -> impl Strategy<Value = Rules> {
    let topology = prop::sample::select(vec![
        Topology::Auto,
        Topology::Simple,
        Topology::Zonal,
        Topology::Multi,
    ]);
    let number = (1..12_usize, 0..12_usize, 1..=100_u32);
    let rounding = prop::sample::select(vec![Rounding::Ceil, Rounding::Floor, Rounding::Round]);
    let per = prop::option::weighted(
        0.3,
        prop::sample::select(vec![IdScope::Set, IdScope::Zone, IdScope::Slot]),
    );
    (topology, number, rounding, per, prop::bool::weighted(0.2), 2..5_usize).prop_map(
        |(topology, (min, more, percent), rounding, per, per_zone, peers_per_client)| {
            let defaults = rules();
            Rules {
                topology,
                count: Count {
                    scope: if per_zone { Scope::PerZone } else { Scope::Cluster },
                    ratio: format!("{}.{:02}", percent / 100, percent % 100).parse().unwrap(),
                    min,
                    max: min + more,
                    rounding,
                    steps: Vec::new(),
                },
                ids: Ids { per, ..defaults.ids },
                peers_per_client,
                ..defaults
            }
        },
    )
}

fn some_cluster() -> impl Strategy<Value = Cluster> {
    (some_rules(), some_members(0..60)).prop_map(|(rules, members)| Cluster {
        rules,
        members,
        previous: Previous::default(),
    })
}

/// A cluster that ran with the first states of its nodes, and now has the second.
fn some_running() -> impl Strategy<Value = Cluster> {
    (some_rules(), some_members(4..60)).prop_flat_map(|(rules, members)| {
        let size = members.len();
        let later = prop::collection::vec(prop::option::weighted(0.3, some_member()), size);
        (Just(rules), Just(members), later).prop_map(|(rules, members, later)| {
            let mut cluster = Cluster { rules, members, previous: Previous::default() };
            if target(&cluster.rules, &cluster.members, &cluster.previous).is_ok() {
                cluster.settle();
            }
            for (member, later) in cluster.members.iter_mut().zip(later) {
                let Some(later) = later else { continue };
                *member = Member {
                    name: member.name.clone(),
                    address: member.address,
                    zone: member.zone.clone(),
                    slot: member.slot,
                    group: member.group.clone(),
                    cluster_id: member.cluster_id,
                    labeled: member.labeled,
                    ..later
                };
            }
            cluster
        })
    })
}

fn reported(cluster: &Cluster) -> Result<Target, Refusal> {
    target(&cluster.rules, &cluster.members, &cluster.previous)
}

/// Establishes the target until nothing is left to do; false if something is refused.
fn settled(cluster: &mut Cluster) -> bool {
    let mut last = None;
    loop {
        let Ok(next) = reported(cluster) else { return false };
        if last.as_ref() == Some(&next) {
            return true;
        }
        last = Some(cluster.settle());
    }
}

fn check(cluster: &Cluster, target: &Target) -> Result<(), TestCaseError> {
    let node = |name: &Arc<str>| cluster.members.iter().find(|m| m.name == *name).unwrap();
    let nodes: BTreeSet<_> = target.slots.iter().map(|slot| &slot.node).collect();
    prop_assert!(target.slots.is_sorted_by(|a, b| a.id < b.id), "{}", target.shown());
    prop_assert_eq!(nodes.len(), target.slots.len(), "nobody has two");
    prop_assert_eq!(target.by_zone.values().sum::<usize>(), target.slots.len());
    for slot in &target.slots {
        let member = node(&slot.node);
        let held = member.slot.is_some();
        prop_assert!(held || (member.ready && !member.closed && member.suitable), "{}", slot.node);
    }
    for leaving in &target.leaving {
        prop_assert!(node(&leaving.node).slot.is_some());
        prop_assert!(!nodes.contains(&leaving.node));
    }
    // Every reflector stays or leaves; every other node is a client of a reflector.
    for member in &cluster.members {
        let is_reflector = nodes.contains(&member.name);
        let leaves = target.leaving.iter().any(|leaving| leaving.node == member.name);
        prop_assert_eq!(member.slot.is_some(), member.slot.is_some() && (is_reflector || leaves));
        if target.topology != Topology::Simple && target.freeze.is_none() {
            prop_assert_ne!(is_reflector, target.groups.contains_key(&member.name));
        }
    }
    for group in target.groups.values().filter(|_| target.freeze.is_none()) {
        let slots = &target.group_slots[group];
        prop_assert!(!slots.is_empty());
        prop_assert!(slots.iter().all(|id| target.slots.iter().any(|slot| slot.id == *id)));
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_target_is_sound(cluster in some_running()) {
        if let Ok(target) = reported(&cluster) {
            check(&cluster, &target)?;
        }
    }

    #[test]
    fn the_number_is_the_formula(mut cluster in some_cluster()) {
        cluster.rules.count.scope = Scope::Cluster;
        cluster.rules.topology = Topology::Simple;
        cluster.rules.ids.per = None;
        for member in &mut cluster.members {
            (member.ready, member.closed, member.suitable) = (true, false, true);
        }
        let target = reported(&cluster).unwrap();
        let (count, nodes) = (&cluster.rules.count, cluster.members.len());
        let share = count.ratio.of(nodes, count.rounding);
        prop_assert_eq!(target.desired, nodes.min(count.max.min(count.min.max(share))));
        prop_assert_eq!(target.slots.len(), target.desired);
    }

    #[test]
    fn the_number_grows_with_the_nodes(rules in some_rules(), nodes in 0..5000_usize) {
        prop_assert!(rules.count.of(nodes) <= rules.count.of(nodes + 1));
    }

    #[test]
    fn what_one_zone_lacks_is_carried_to_others_once(mut cluster in some_cluster()) {
        cluster.rules.count.scope = Scope::Cluster;
        cluster.rules.topology = Topology::Simple;
        cluster.rules.ids.per = None;
        let target = reported(&cluster).unwrap();
        let usable = cluster.members.iter().filter(|m| m.is_usable()).count();
        let count = &cluster.rules.count;
        let ready = cluster.members.iter().filter(|m| m.ready).count();
        prop_assert_eq!(target.slots.len(), count.of(ready).min(usable));
        for (a, more) in &target.by_zone {
            for zone in cluster.members.iter().map(|m| m.zone().cloned().unwrap_or_default()) {
                let has = target.by_zone.get(&zone).copied().unwrap_or_default();
                let can = cluster.members.iter().filter(|m| {
                    m.is_usable() && m.zone().cloned().unwrap_or_default() == zone
                });
                prop_assert!(has + 1 >= *more || has == can.count(), "{a} {more}, {zone} {has}");
            }
        }
    }

    #[test]
    fn without_candidates_nothing_is_written(mut cluster in some_running()) {
        cluster.members.iter_mut().for_each(|member| member.closed = true);
        if let Ok(target) = reported(&cluster) {
            prop_assert_eq!(target.freeze, Some(Freeze::NoCandidates));
            prop_assert!(target.leaving.is_empty());
            for member in &cluster.members {
                let slot = target.slots.iter().find(|slot| slot.node == member.name);
                prop_assert_eq!(slot.map(|slot| slot.id), member.slot);
                prop_assert_eq!(slot.map(|slot| slot.cluster_id), member.cluster_id);
                prop_assert_eq!(target.groups.get(&member.name), member.group.as_ref());
            }
        }
    }

    /// Nodes created in the same second came in the order of a Go map.
    #[test]
    fn the_order_of_the_nodes_does_not_matter(
        (cluster, shuffled) in some_running().prop_flat_map(|cluster| {
            let members = cluster.members.clone();
            (Just(cluster), Just(members).prop_shuffle())
        }),
        same_age: bool,
    ) {
        let mut cluster = cluster;
        let mut other = Cluster { members: shuffled, ..cluster.clone() };
        other.previous.slots.reverse();
        if same_age {
            cluster.members.iter_mut().chain(&mut other.members).for_each(|m| m.created = 7);
        }
        prop_assert_eq!(reported(&cluster), reported(&other));
    }

    /// A finished target stays unchanged.
    #[test]
    fn again_changes_nothing(mut cluster in some_cluster()) {
        if reported(&cluster).is_ok() {
            let first = cluster.settle();
            let again = reported(&cluster).unwrap();
            prop_assert_eq!(&again.leaving, &vec![]);
            prop_assert_eq!(first, again);
        }
    }

    /// Every state reaches a final one.
    #[test]
    fn every_state_converges(mut cluster in some_running()) {
        if reported(&cluster).is_ok() {
            let mut last = cluster.settle();
            // Groups change one slot at a time.
            for _ in 0..20 {
                let Ok(next) = reported(&cluster) else { return Ok(()) };
                if next == last {
                    return Ok(());
                }
                last = cluster.settle();
            }
            prop_assert!(false, "{} {}", last.shown(), last.left());
        }
    }

    #[test]
    fn a_client_changes_nothing_for_others(
        mut cluster in some_running(), which in any::<prop::sample::Index>(), zone in 0..3_u8,
    ) {
        if !settled(&mut cluster) {
            return Ok(());
        }
        // A number that does not depend on nodes.
        cluster.rules.count.max = cluster.rules.count.min;
        let Ok(before) = reported(&cluster) else { return Ok(()) };
        if before.freeze.is_some() {
            return Ok(());
        }
        cluster.settle();
        let Ok(before) = reported(&cluster) else { return Ok(()) };
        let clients: Vec<_> = before.groups.keys().cloned().collect();
        if clients.is_empty() {
            return Ok(());
        }
        // A client that no zone needs as a candidate; otherwise the zone's own number would change.
        let gone = which.get(&clients).clone();
        let mut smaller = cluster.clone();
        let member = smaller.members.iter().find(|m| m.name == gone).unwrap().clone();
        prop_assume!(!member.suitable && cluster.members.iter().any(|m| m.zone == member.zone && m.name != gone));
        smaller.remove(&gone);
        let mut larger = cluster.clone();
        larger.members.push(Member {
            name: "node-new".into(),
            zone: cluster.members.iter().filter_map(|m| m.zone.clone()).find(|z| z.ends_with(&zone.to_string())),
            ready: true,
            ..Member::default()
        });
        for other in [smaller, larger] {
            let Ok(after) = reported(&other) else { continue };
            if after.topology != before.topology || after.desired != before.desired {
                continue;
            }
            prop_assert_eq!(&after.slots, &before.slots);
            for (node, group) in &before.groups {
                prop_assert!(*node == gone || after.groups.get(node) == Some(group), "{node}");
            }
            prop_assert_eq!(&after.peers, &before.peers);
        }
    }

    /// Another node in a slot changes no peer, and no client loses all its reflectors.
    #[test]
    fn a_reflector_touches_only_itself(mut cluster in some_running(), which in any::<prop::sample::Index>()) {
        cluster.members.iter_mut().for_each(|m| {
            (m.ready, m.closed, m.suitable, m.unfit_for, m.not_ready_for) = (true, false, true, None, None);
        });
        if !settled(&mut cluster) {
            return Ok(());
        }
        let before = reported(&cluster).unwrap();
        let slot = which.get(&before.slots);
        cluster.node(&slot.node).closed = true;
        let after = reported(&cluster).unwrap();
        let same = after.slots.iter().find(|other| other.id == slot.id);
        prop_assume!(same.is_some_and(|same| same.zone == slot.zone) && before.desired == after.desired);
        prop_assert_eq!(&before.peers, &after.peers);
        prop_assert_eq!(before.ids(), after.ids());
        for (node, group) in &before.groups {
            let promoted = after.slots.iter().any(|slot| slot.node == *node);
            prop_assert!(promoted || after.groups.get(node) == Some(group));
        }
    }

    #[test]
    fn ids_are_few_valid_nobodys_and_stable(mut cluster in some_cluster()) {
        let Ok(target) = reported(&cluster) else { return Ok(()) };
        let ids: BTreeSet<_> = target.slots.iter().map(|slot| slot.cluster_id).collect();
        prop_assert!(ids.len() <= MOST_IDS);
        for id in &ids {
            prop_assert!(matches!(id.octets()[0], 1..=239) && !id.is_loopback());
            prop_assert!(cluster.members.iter().all(|m| m.address != Some(IpAddr::V4(*id))));
        }
        let scope = cluster.rules.id_scope(target.topology);
        for a in &target.slots {
            for b in &target.slots {
                let shared = match scope {
                    IdScope::Set => true,
                    IdScope::Zone => a.zone == b.zone,
                    IdScope::Slot => a.id == b.id,
                };
                prop_assert_eq!(a.cluster_id == b.cluster_id, shared);
            }
        }
        cluster.settle();
        cluster.previous = Previous { topology: cluster.previous.topology, ..Previous::default() };
        if let Ok(again) = reported(&cluster) {
            prop_assert_eq!(again.ids(), target.ids());
        }
    }

    #[test]
    fn few_peers_with_short_selectors(mut cluster in some_cluster(), more in 1..200_usize) {
        cluster.rules.key = "k".repeat(317).into();
        let Ok(target) = reported(&cluster) else { return Ok(()) };
        if target.freeze.is_some() {
            return Ok(());
        }
        for peer in &target.peers {
            prop_assert!(peer.node_selector.len() <= 1024 && peer.peer_selector.len() <= 1024);
            prop_assert!(peer.name.len() <= 253);
        }
        let zones = cluster.members.iter().map(Member::zone).collect::<BTreeSet<_>>().len();
        let most = match target.topology {
            Topology::Simple => 2,
            Topology::Zonal => zones + 1,
            _ => zones * GROUPS_PER_ZONE + 1,
        };
        prop_assert!(target.peers.len() <= most);
        // Any number of additional clients.
        cluster.settle();
        for number in 0..more {
            let zone = cluster.members[number % cluster.members.len()].zone.clone();
            cluster.members.push(Member { name: format!("x{number}").into(), zone, ..Member::default() });
        }
        if let Ok(larger) = reported(&cluster) && larger.topology == target.topology {
            prop_assert_eq!(larger.peers.len(), target.peers.len());
        }
    }
}
