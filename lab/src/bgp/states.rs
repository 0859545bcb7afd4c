//! Topologies to measure: nodes in three zones, and what makes them a mesh or reflectors and
//! clients. No IO.

use std::collections::BTreeMap;

use crate::bgp::family::Family;
use crate::bgp::ground::node_name;
use crate::bgp::network;
use crate::bgp::selector::Selector;
use crate::bgp::world::{Local, Node, Peer, Remote, Speaker, World};

/// The label of reflectors.
const RR: &str = "rr";
/// Label with the number of the reflector.
const SLOT: &str = "rr-slot";
/// Label with the group of reflectors of a client.
const GROUP: &str = "rr-group";
const ZONE: &str = "zone";
/// The names of the zones; each has the same number of neighboring nodes.
pub(super) const ZONES: [&str; 3] = ["a", "b", "c"];

/// A cluster id for a slot in a zone.
pub(super) type Ids = fn(usize, &str) -> String;

/// One id for all.
pub(super) fn one(_: usize, _: &str) -> String {
    "224.0.0.1".to_owned()
}

pub(super) fn per_zone(_: usize, zone: &str) -> String {
    let number = ZONES.iter().position(|one| *one == zone).unwrap_or_default() + 1;
    format!("224.0.1.{number}")
}

/// One for each reflector.
pub(super) fn unique(slot: usize, _: &str) -> String {
    format!("224.0.0.{}", slot + 1)
}

/// Nodes that all peer with each other.
pub(super) fn mesh(count: u8) -> World {
    let per_zone = usize::from(count).div_ceil(ZONES.len());
    let node = |number: u8| {
        let zone = ZONES[usize::from(number) / per_zone];
        let node = Node {
            speakers: [speaker(Family::V4, number)].into(),
            labels: BTreeMap::from([(ZONE.to_owned(), zone.to_owned())]),
            cluster_id: None,
        };
        (node_name(number), node)
    };
    World { nodes: (0..count).map(node).collect(), ..World::default() }
}

/// A node's speaker of a family.
pub(super) fn speaker(family: Family, number: u8) -> (Family, Speaker) {
    let address = network::address(family, number).parse().expect("the lab makes addresses");
    (family, Speaker { address, pods: network::pods(family, number) })
}

/// The same nodes, which speak IPv6 too.
pub(super) fn dual(mut world: World) -> World {
    for (number, node) in world.nodes.values_mut().enumerate() {
        let number = u8::try_from(number).expect("few nodes");
        node.speakers.extend([speaker(Family::V6, number)]);
    }
    world
}

/// The names of a zone's nodes.
pub(super) fn zone(world: &World, zone: &str) -> Vec<String> {
    let of_zone = world.nodes.iter().filter(|(_, node)| node.labels[ZONE] == zone);
    of_zone.map(|(name, _)| name.clone()).collect()
}

/// Makes a node a reflector, or gives it another id.
pub(super) fn promote(world: &mut World, name: &str, id: &str) {
    if let Some(node) = world.nodes.get_mut(name) {
        node.labels.insert(RR.to_owned(), String::new());
        node.cluster_id = id.parse().ok();
    }
}

/// Makes a reflector a client.
pub(super) fn demote(world: &mut World, name: &str) {
    if let Some(node) = world.nodes.get_mut(name) {
        node.labels.remove(RR);
        node.labels.remove(SLOT);
        node.cluster_id = None;
    }
}

/// The first `per` nodes of each zone are reflectors; the mesh is off.
pub(super) fn reflectors(world: &World, ids: Ids, per: usize) -> World {
    let mut world = World { mesh: false, ..world.clone() };
    let mut slot = 0;
    for one in ZONES {
        for name in zone(&world, one).iter().take(per) {
            promote(&mut world, name, &ids(slot, one));
            if let Some(node) = world.nodes.get_mut(name) {
                node.labels.insert(SLOT.to_owned(), slot.to_string());
            }
            slot += 1;
        }
    }
    world
}

fn peer(local: &str, remote: &str) -> Peer {
    let selector = |text| Selector::parse(text).expect("only selectors are written here");
    Peer {
        local: Local::Selected(selector(local)),
        remote: Remote::Selected(selector(remote)),
        reverse: true,
        restart: None,
    }
}

fn with_peers(world: World, clients: impl IntoIterator<Item = (String, Peer)>) -> World {
    let all = ("rrs-to-rrs".to_owned(), peer("has(rr)", "has(rr)"));
    World { peers: clients.into_iter().chain([all]).collect(), ..world }
}

/// Every client peers with every reflector.
pub(super) fn simple(world: World) -> World {
    with_peers(world, [("peer-to-rrs".to_owned(), peer("!has(rr)", "has(rr)"))])
}

/// Every client peers with the reflectors of its zone.
pub(super) fn zonal(world: World) -> World {
    let zone = |zone: &str| {
        let local = format!("!has(rr) && zone == '{zone}'");
        (format!("zone-{zone}"), peer(&local, &format!("has(rr) && zone == '{zone}'")))
    };
    with_peers(world, ZONES.map(zone))
}

/// Every client peers with this many reflectors: one of its own zone first, then others.
pub(super) fn grouped(mut world: World, per_client: usize) -> World {
    let slots = |world: &World, name: &str| {
        let names = zone(world, name);
        let slot = |name: &String| world.nodes[name].labels.get(SLOT).cloned();
        names.iter().filter_map(slot).collect::<Vec<_>>()
    };
    let by_zone: Vec<Vec<String>> = ZONES.iter().map(|zone| slots(&world, zone)).collect();
    let mut groups: BTreeMap<Vec<String>, String> = BTreeMap::new();
    for (index, name) in ZONES.iter().enumerate() {
        let clients = zone(&world, name);
        let clients = clients.iter().filter(|name| world.nodes[*name].cluster_id.is_none());
        for (turn, client) in clients.cloned().collect::<Vec<_>>().into_iter().enumerate() {
            let pick = |step: usize| {
                let slots = &by_zone[(index + step) % ZONES.len()];
                slots[(turn + step / 2) % slots.len()].clone()
            };
            let mut mine: Vec<String> = (0..per_client).map(pick).collect();
            mine.sort();
            let next = format!("g{}", groups.len());
            let group = groups.entry(mine).or_insert(next).clone();
            if let Some(node) = world.nodes.get_mut(&client) {
                node.labels.insert(GROUP.to_owned(), group);
            }
        }
    }
    let group = |(slots, group): (Vec<String>, String)| {
        let slots: Vec<String> = slots.iter().map(|slot| format!("'{slot}'")).collect();
        let local = format!("!has(rr) && rr-group == '{group}'");
        (format!("group-{group}"), peer(&local, &format!("rr-slot in {{{}}}", slots.join(", "))))
    };
    with_peers(world, groups.into_iter().map(group))
}
