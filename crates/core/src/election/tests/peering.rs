//! Peerings between nodes.
use super::*;

const GROUP: &str = "route-reflectors.traffic.example.com/group";
const SLOT: &str = "route-reflectors.traffic.example.com/slot";

fn shown(target: &Target) -> Vec<[&str; 3]> {
    fn show(peer: &PeerSpec) -> [&str; 3] {
        [&peer.name, &peer.node_selector, &peer.peer_selector]
    }
    target.peers.iter().map(show).collect()
}

#[test]
fn the_originals_two_peers() {
    let mut cluster = Cluster::new("a:9 b:9").topology(Topology::Simple);
    cluster.rules.key = "calico-route-reflector".into();
    let target = cluster.target();
    assert_eq!(
        shown(&target),
        [
            ["rrs-to-rrs", "has(calico-route-reflector)", "has(calico-route-reflector)"],
            ["peer-to-rrs-1", "!has(calico-route-reflector)", "has(calico-route-reflector)"],
        ]
    );
    assert!(target.groups.is_empty() && target.group_slots.is_empty());
}

/// All clients had sessions with the reflectors of all zones; the proposal requires only those of
/// their own.
#[test]
fn a_peer_for_each_zone() {
    let target = Cluster::new("a:9 b:9 c:3 :1").topology(Topology::Zonal).count(6).target();
    let first = format!("({GROUP} == 'a') || (!has({GROUP}) && !has({SLOT}) && !has(rr))");
    let (b, c) = (format!("{GROUP} == 'b'"), format!("{GROUP} == 'c'"));
    assert_eq!(
        shown(&target),
        [
            ["rrs-to-rrs", "has(rr)", "has(rr)"],
            ["peer-to-rrs-a", &first, &format!("{SLOT} in {{'0', '1'}}")],
            ["peer-to-rrs-b", &b, &format!("{SLOT} in {{'2', '3'}}")],
            ["peer-to-rrs-c", &c, &format!("{SLOT} in {{'4', '5'}}")],
        ]
    );
    // Every other node has a group, and no reflector does.
    assert_eq!(target.groups.len(), 22 - 6);
    assert_eq!((&*target.groups["b05"], &*target.groups["n00"]), ("b", "a"));
    assert!(target.slots.iter().all(|slot| !target.groups.contains_key(&slot.node)));
}

/// `key=value`: the peers selected only the number where the label had value and number.
#[test]
fn selectors_do_not_know_the_value_of_the_label() {
    let spec = |label: &str| {
        let count = rules().count;
        let rules = Rules { key: label.split('=').next().unwrap().into(), count, ..rules() };
        let members = Cluster::new("a:9 b:9").members;
        target(
            &Rules {
                topology: Topology::Zonal,
                count: Count { min: 4, ..rules.count.clone() },
                ..rules
            },
            &members,
            &Previous::default(),
        )
        .unwrap()
    };
    assert_eq!(spec("rr=yes").peers, spec("rr").peers);
    for peer in spec("rr=yes").peers {
        assert!(!format!("{peer:?}").contains("yes"));
    }
}

/// No selector names a node, so nodes without the label of a host name work like others.
#[test]
fn peers_do_not_depend_on_nodes() {
    for topology in [Topology::Simple, Topology::Zonal, Topology::Multi] {
        let mut cluster = Cluster::new("a:40 b:40 c:40").topology(topology).count(6);
        let before = cluster.settle();
        for peer in &before.peers {
            let text = format!("{peer:?}");
            assert!(cluster.members.iter().all(|member| !text.contains(&*member.name)), "{text}");
        }
        cluster
            .members
            .iter_mut()
            .for_each(|member| member.name = format!("x{}", member.name).into());
        cluster.previous = Previous::default();
        assert_eq!(cluster.target().peers, before.peers);
    }
}

#[test]
fn names_of_groups() {
    for (zone, expected) in [
        (Some("eu-west-1a"), "eu-west-1a"),
        (Some("0"), "0"),
        // The peer of all clients.
        (Some("1"), "1-"),
        (Some("EU_West"), "eu-west-"),
        (Some("eu.west"), "eu-west-"),
        (Some("-a-"), "a-"),
        (Some("___"), "zone-"),
        (Some("日本"), "zone-"),
        (None, "zone-"),
    ] {
        let name = group_name(zone);
        match expected.strip_suffix('-') {
            Some(kept) => {
                let hash = name.strip_prefix(&format!("{kept}-")).unwrap();
                assert!(hash.len() == 8 && hash.chars().all(|c| c.is_ascii_hexdigit()), "{name}");
            }
            None => assert_eq!(&*name, expected),
        }
    }
    let long = "a".repeat(63);
    assert!(group_name(Some(&long)).len() <= 50);
    assert_ne!(group_name(Some(&long)), group_name(Some(&long[1..])));
    assert_ne!(group_name(Some("EU")), group_name(Some("Eu")));
}

/// A zone may have the same name as the peer of all clients.
#[test]
fn names_of_peers_differ() {
    for topology in [Topology::Zonal, Topology::Multi] {
        let target = Cluster::new("1:5 A:5 a:5 a-1:5").topology(topology).count(8).target();
        let names: BTreeSet<_> = target.peers.iter().map(|peer| &peer.name).collect();
        assert_eq!(names.len(), target.peers.len());
        assert!(!names.contains(&"peer-to-rrs-1".to_owned()));
        for name in names {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(name.len() <= 63 + "peer-to-rrs-".len() && name.chars().all(plain), "{name}");
        }
    }
}
