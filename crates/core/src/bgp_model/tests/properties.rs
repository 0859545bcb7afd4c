//! Classes of nodes give the same results as single nodes.
use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

use proptest::prelude::*;

use super::{
    super::{Change, Local, Missing, Node, Peer, Remote, Rule},
    lab::{Lab, name, node, selector},
    naive,
};

const RULES: [Rule; 2] = [Rule::Rfc, Rule::Bird];

const SELECTORS: [&str; 9] = [
    "all()",
    "has(rr)",
    "!has(rr)",
    "has(rr) && zone == 'a'",
    "zone in {'a', 'b'}",
    "zone == 'a' && !has(rr)",
    "slot in {'0', '1'}",
    "slot == '2' || !has(slot)",
    "!(slot == '0')",
];

/// Few enough for the plain walk, which is exponential, and many enough that classes have several
/// members.
const NODES: usize = 9;

fn cluster_id() -> impl Strategy<Value = Option<Ipv4Addr>> {
    prop_oneof![
        3 => Just(None),
        2 => Just(Some(Ipv4Addr::new(224, 0, 0, 1))),
        1 => Just(Some(Ipv4Addr::new(224, 0, 0, 2))),
        1 => Just(Some(Ipv4Addr::new(224, 0, 0, 3))),
    ]
}

fn any_node() -> impl Strategy<Value = Node> {
    let zone = prop::sample::select(vec!["a", "b"]);
    let slot = prop::option::weighted(0.4, prop::sample::select(vec!["0", "1", "2"]));
    let flags = (prop::bool::weighted(0.9), prop::bool::weighted(0.95), prop::bool::weighted(0.8));
    (zone, slot, cluster_id(), flags).prop_map(|(zone, slot, id, (up, addressed, tidy))| {
        let mut labels = vec![("zone", zone)];
        labels.extend(slot.map(|slot| ("slot", slot)));
        if id.is_some() == tidy {
            labels.push(("rr", ""));
        }
        // The name and the address depend on its place.
        let node = node(0, &labels);
        Node { cluster_id: id, up, address: node.address.filter(|_| addressed), ..node }
    })
}

fn any_peer() -> impl Strategy<Value = Peer> {
    let selected = || prop::sample::select(SELECTORS.to_vec()).prop_map(selector);
    let local = prop_oneof![
        1 => Just(Local::All),
        1 => (0..NODES).prop_map(|place| Local::Node(name(place).into())),
        8 => selected().prop_map(Local::Selected),
    ];
    let remote = prop_oneof![
        8 => selected().prop_map(Remote::Selected),
        // One beyond the nodes is outside.
        1 => (0..=NODES).prop_map(|place| Remote::Address(node(place, &[]).address.unwrap())),
    ];
    (local, remote, prop::bool::weighted(0.85)).prop_map(|(local, remote, reverse)| Peer {
        name: "".into(),
        local,
        remote,
        reverse,
    })
}

fn lab(nodes: Vec<Node>, peers: Vec<Peer>, mesh: bool) -> Lab {
    let nodes = nodes.into_iter().enumerate().map(|(place, of)| {
        let address = node(place, &[]).address.filter(|_| of.address.is_some());
        Node { name: name(place).into(), address, ..of }
    });
    let peers = peers.into_iter().enumerate();
    let peers = peers.map(|(place, peer)| Peer { name: format!("p{place}").into(), ..peer });
    Lab { nodes: nodes.collect(), peers: peers.collect(), mesh }
}

fn any_lab() -> impl Strategy<Value = Lab> {
    let nodes = prop::collection::vec(any_node(), 1..=NODES);
    let peers = prop::collection::vec(any_peer(), 0..5);
    (nodes, peers, any::<bool>()).prop_map(|(nodes, peers, mesh)| lab(nodes, peers, mesh))
}

/// A lab before and after a change: some nodes differ, one BGPPeer more or less, the mesh switched
/// or not.
fn any_change() -> impl Strategy<Value = (Lab, Lab)> {
    let nodes = prop::collection::vec((any::<prop::sample::Index>(), any_node()), 0..3);
    let more = prop::option::of(any_peer());
    (any_lab(), nodes, more, any::<bool>(), prop::bool::weighted(0.2)).prop_map(
        |(before, nodes, more, less, switch)| {
            let mut after = before.clone();
            for (place, other) in nodes {
                let place = place.index(after.nodes.len());
                after.nodes[place] = other;
            }
            if less {
                after.peers.pop();
            }
            after.peers.extend(more);
            let after = lab(after.nodes, after.peers, after.mesh ^ switch);
            (before, after)
        },
    )
}

fn reported(pairs: &BTreeSet<(usize, usize)>) -> Missing {
    let named = |&(node, origin): &(usize, usize)| (name(node).into(), name(origin).into());
    Missing { pairs: pairs.len() as u64, examples: pairs.iter().take(5).map(named).collect() }
}

fn none() -> BTreeSet<(usize, usize)> {
    BTreeSet::new()
}

fn worst(
    victims: impl Iterator<Item = usize>,
    cost: impl Fn(usize) -> BTreeSet<(usize, usize)>,
) -> Option<(Arc<str>, Missing)> {
    let mut worst: Option<(usize, BTreeSet<_>)> = None;
    for victim in victims {
        let cost = cost(victim);
        if worst.as_ref().is_none_or(|(_, most)| cost.len() > most.len()) {
            worst = Some((victim, cost));
        }
    }
    worst.map(|(victim, cost)| (name(victim).into(), reported(&cost)))
}

fn reflectors(lab: &Lab) -> impl Iterator<Item = usize> {
    let is = |place: &usize| lab.nodes[*place].up && lab.nodes[*place].cluster_id.is_some();
    (0..lab.nodes.len()).filter(is)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn sessions(lab in any_lab()) {
        let found = lab.fabric().sessions();
        let found: Vec<_> =
            found.iter().map(|(_, of)| (of.all as usize, of.up as usize)).collect();
        prop_assert_eq!(found, naive::sessions(&lab));
    }

    #[test]
    fn missing(lab in any_lab()) {
        let fabric = lab.fabric();
        for rule in RULES {
            let expected = naive::missing(&lab, &BTreeSet::new(), &none(), rule);
            prop_assert_eq!(fabric.missing(rule), reported(&expected));
        }
    }

    #[test]
    fn rfc_misses_whatever_bird_misses(lab in any_lab()) {
        let [rfc, bird] = RULES.map(|rule| lab.fabric().missing(rule).pairs);
        prop_assert!(rfc >= bird);
    }

    #[test]
    fn worst_without_one(lab in any_lab()) {
        for rule in RULES {
            let without = |victim| naive::missing(&lab, &[victim].into(), &none(), rule);
            let expected = worst(reflectors(&lab), without);
            prop_assert_eq!(lab.fabric().worst_without_one(rule), expected);
        }
    }

    #[test]
    fn paths(mut lab in any_lab()) {
        let fabric = lab.fabric();
        // A node that is not Ready may still speak BGP.
        lab.nodes.iter_mut().for_each(|node| node.up = true);
        for rule in RULES {
            let learned = naive::learned(&lab, &BTreeSet::new(), &none(), rule);
            let found = fabric.most_paths(rule);
            for (load, reflector) in [(found.reflector, true), (found.client, false)] {
                let nodes = lab.nodes.iter().enumerate();
                let of: Vec<usize> = nodes
                    .filter(|(_, node)| node.cluster_id.is_some() == reflector)
                    .map(|(place, _)| place)
                    .collect();
                let own = |pair: &(usize, usize)| of.contains(&pair.0);
                let most = learned.iter().filter(|(pair, _)| own(pair)).map(|(_, &n)| n).max();
                prop_assert_eq!(load.per_prefix, most.unwrap_or(0));
                let table = |&node: &usize| {
                    let all = learned.iter().filter(|(pair, _)| pair.0 == node);
                    1 + all.map(|(_, &paths)| paths).sum::<u64>()
                };
                prop_assert_eq!(load.table, of.iter().map(table).max().unwrap_or(0));
            }
            prop_assert!(!found.exceeded);
        }
    }

    #[test]
    fn lost((before, after) in any_change(), changed in prop::collection::btree_set(0..NODES, 0..3)) {
        let names: BTreeSet<Arc<str>> = changed.iter().map(|&place| name(place).into()).collect();
        let alike = naive::surviving(&before, &after);
        let all = || 0..before.nodes.len();
        let cut: BTreeSet<(usize, usize)> =
            all().flat_map(|a| all().map(move |b| (a, b))).filter(|p| !alike.contains(p)).collect();
        let down: BTreeSet<usize> = all().filter(|&n| !before.nodes[n].up).collect();
        let [was, is] = [&before, &after].map(Lab::fabric);
        for rule in RULES {
            let already = naive::missing(&before, &BTreeSet::new(), &none(), rule);
            let during = naive::missing(&after, &down, &cut, rule);
            let lost = during.into_iter().filter(|pair| {
                !already.contains(pair) && !changed.contains(&pair.0) && !changed.contains(&pair.1)
            });
            let expected = reported(&lost.collect());
            prop_assert_eq!(Change::new(&was, &is, &names).lost(rule), expected);
        }
    }

    #[test]
    fn fragile((before, after) in any_change()) {
        let [was, is] = [&before, &after].map(Lab::fabric);
        let change = Change::new(&was, &is, &BTreeSet::new());
        for rule in RULES {
            let cost = |victim| {
                let [now, then] = [&before, &after]
                    .map(|lab| naive::missing(lab, &[victim].into(), &none(), rule));
                let both = |n: usize| before.nodes[n].up && after.nodes[n].up;
                let more = then.difference(&now).copied();
                more.filter(|&(node, origin)| both(node) && both(origin)).collect()
            };
            let expected = worst(reflectors(&after), cost).filter(|(_, cost)| cost.pairs > 0);
            prop_assert_eq!(change.fragile(rule), expected);
        }
    }
}
