//! The allowed sizes, compared with complete fabrics.
use super::*;
use crate::{
    bgp_model::{Cluster as Ids, Fabric, Labels, Local, Node, Paths, Peer, Remote, Rule, Selector},
    election::{BRIDGE, layout, peers, slot_selector},
};

/// The fabric of a target: every node with the labels and the id that it would have, the mesh off.
/// `twice` is held by two nodes, `bridge` are slots that every client has.
fn fabric(
    cluster: &Cluster,
    target: &Target,
    twice: Option<u32>,
    bridge: &BTreeSet<u32>,
) -> Fabric {
    let key = &*cluster.rules.key;
    let mut nodes: Vec<Node> = Vec::new();
    let mut add = |name: Arc<str>, labels: Labels, cluster_id| {
        let place = u32::try_from(nodes.len()).unwrap();
        let address = Some(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + place)));
        nodes.push(Node { name, address, labels, cluster_id, up: true });
    };
    for member in &cluster.members {
        let name = Arc::clone(&member.name);
        if let Some(slot) = target.slots.iter().find(|slot| slot.node == name) {
            let id = slot.id.to_string();
            let labels: Labels = [(key, ""), (SLOT_LABEL, &*id)].into_iter().collect();
            if twice == Some(slot.id) {
                add(format!("{name}-next").into(), labels.clone(), Some(slot.cluster_id));
            }
            add(name, labels, Some(slot.cluster_id));
        } else {
            let group = target.groups.get(&name);
            add(name, group.map(|group| (GROUP_LABEL, &**group)).into_iter().collect(), None);
        }
    }
    let wide = PeerSpec { peer_selector: slot_selector(bridge), ..peers::wide(key) };
    let specs = target.peers.iter().chain((!bridge.is_empty()).then_some(&wide));
    let read = |text: &str| Selector::parse(text).unwrap();
    let peer = |spec: &PeerSpec| Peer {
        name: spec.name.as_str().into(),
        local: Local::Selected(read(&spec.node_selector)),
        remote: Remote::Selected(read(&spec.peer_selector)),
        reverse: true,
    };
    Fabric::new(nodes, specs.map(peer).collect(), false)
}

fn zones(zones: usize, each: usize) -> String {
    let names = (b'a'..).take(zones).map(|zone| format!("{}:{each}", char::from(zone)));
    names.collect::<Vec<_>>().join(" ")
}

/// Multi supports the numbers in the table; one more costs routes or has no room.
#[test]
fn multi_carries_as_many_as_the_table_says() {
    for (count, found) in [(2, 6), (3, 14), (4, 8)] {
        let holds = |reflectors: usize| {
            let cluster = Cluster::new(&zones(count, 30)).topology(Topology::Multi);
            let cluster = cluster.count(reflectors);
            let target = cluster.target();
            let plain = fabric(&cluster, &target, None, &BTreeSet::new());
            let bridge =
                target.slots.iter().filter(|slot| slot.cluster_id == target.slots[0].cluster_id);
            let bridge: BTreeSet<u32> = bridge.map(|slot| slot.id).take(BRIDGE).collect();
            let grown = |slot: &Slot| fabric(&cluster, &target, Some(slot.id), &bridge);
            plain.missing(Rule::Bird).is_empty()
                && plain.worst_without_one(Rule::Bird).is_none_or(|(_, lost)| lost.is_empty())
                && target.slots.iter().all(|slot| grown(slot).paths(Rule::Bird).bearable())
        };
        let most = (2 * count..=25).take_while(|reflectors| holds(*reflectors)).last();
        let crowded = |reflectors: usize| {
            let cluster = Cluster::new(&zones(count, 30)).topology(Topology::Multi);
            cluster.count(reflectors).target().crowded.is_some()
        };
        assert_eq!(most, Some(found), "{count} zones");
        assert!(!crowded(found) && crowded(found + 1), "{count} zones");
    }
}

/// Counting by the numbers of reflectors alone gives the same result as the complete fabric.
#[test]
fn paths_of_zones_are_those_of_the_whole_fabric() {
    for (count, reflectors) in [(2, 5), (2, 12), (3, 6), (3, 8), (3, 14), (4, 8), (4, 9)] {
        let cluster = Cluster::new(&zones(count, 20)).topology(Topology::Zonal).count(reflectors);
        let target = cluster.target();
        for bridged in [false, true] {
            let ids: BTreeSet<_> = target.slots.iter().map(|slot| slot.cluster_id).collect();
            let zones: Vec<Vec<u32>> = ids
                .iter()
                .map(|id| {
                    let slots = target.slots.iter().filter(|slot| slot.cluster_id == *id);
                    slots.map(|slot| slot.id).collect()
                })
                .collect();
            let bridge: BTreeSet<u32> = if bridged {
                zones[0].iter().copied().take(BRIDGE).collect()
            } else {
                BTreeSet::new()
            };
            let whole = fabric(&cluster, &target, None, &bridge).paths(Rule::Bird);
            let shared = |zone: usize| if zone == 0 { bridge.len() } else { 0 };
            let zones = zones.iter().enumerate();
            let ids = zones.map(|(z, slots)| Ids { reflectors: slots.len(), shared: shared(z) });
            let ids: Vec<_> = ids.collect();
            let short = Paths::of_clusters(&ids);
            let per_prefix = |paths: &Paths| (paths.reflector.per_prefix, paths.client.per_prefix);
            assert_eq!(per_prefix(&short), per_prefix(&whole), "{count} x {reflectors} {bridged}");
        }
    }
}

/// The sizes with room, for clusters in which the tables of nodes do not count.
#[test]
fn sizes_leave_room_to_replace_a_reflector() {
    let largest = |zones: usize, nodes: usize| {
        let rules = Cluster::new("a:1").topology(Topology::Zonal).rules;
        let fits = |total: &usize| {
            layout::has_room(&rules, Topology::Zonal, &layout::even(*total, zones), nodes)
        };
        (1..=50).take_while(fits).last()
    };
    assert_eq!([2, 3, 4].map(|zones| largest(zones, 1000)), [Some(30), Some(14), Some(9)]);
    // A million paths in a table: 4,900 nodes in two zones.
    assert_eq!([2, 3, 4].map(|zones| largest(zones, 4900)), [Some(23), Some(10), Some(7)]);
}

/// Where a topology has no room for all that the count requires, a zone that has one more than
/// others keeps it, even if another zone now has a better node.
#[test]
fn a_lack_of_room_moves_no_reflector_to_another_zone() {
    let zones = zones(4, 10);
    let mut cluster = Cluster::new(&zones).topology(Topology::Zonal).count(9);
    for name in ["c07", "c08", "c09"] {
        cluster.node(name).preferred = true;
    }
    let settled = cluster.settle();
    assert_eq!(settled.zones(), "a:2 b:2 c:3 d:2");
    let mut cluster = cluster.count(10);
    cluster.node("d09").preferred = true;
    let target = cluster.target();
    assert_eq!((target.shown(), target.left()), (settled.shown(), String::new()));
    assert_eq!(target.notes.len(), 1, "{:?}", target.notes);
}

/// Neither growth up to the limit of tables nor another spec leaves a zone with one reflector,
/// which could not be replaced.
#[test]
fn a_zone_in_use_never_gets_fewer_than_two() {
    let two = "a:2 b:2 c:2 d:2";
    let mut cluster = Cluster::new(&zones(4, 700)).topology(Topology::Zonal).count(8);
    let settled = cluster.settle();
    assert_eq!(settled.zones(), two);
    let per_slot = Some(IdScope::Slot);
    let mut edited = cluster.clone();
    edited.rules.ids.per = per_slot;
    assert!(edited.refused().contains("8 different cluster ids"), "{}", edited.refused());
    cluster.add(&zones(4, 525));
    assert_eq!(
        (cluster.target().shown(), cluster.settle().left()),
        (settled.shown(), String::new())
    );
    // A dead one gets a successor in its zone.
    let dead = settled.slots.iter().find(|slot| slot.zone == Some("d".into())).unwrap();
    cluster.dead(&dead.node);
    let target = cluster.target();
    let next = target.slots.iter().find(|slot| slot.id == dead.id).unwrap();
    assert_eq!((target.zones().as_str(), &next.zone), (two, &dead.zone));
    assert_ne!(next.node, dead.node);
    let mut cluster = Cluster::new("a:9 b:9").topology(Topology::Zonal).count(2);
    cluster.rules.count.scope = Scope::PerZone;
    assert_eq!(cluster.settle().zones(), "a:2 b:2");
    assert_eq!(cluster.count(1).target().zones(), "a:2 b:2");
}
