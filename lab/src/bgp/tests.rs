//! Confd's rules and what follows from them, held against figures of real BIRD and against golden
//! texts.

use std::collections::{BTreeMap, BTreeSet};

use super::family::Family;
use super::propagation::{Rule, missing, more_while_restarting, paths, worst_without_one};
use super::render::texts;
use super::sessions::{Sessions, sessions, two_ended};
use super::states::{
    Ids, dual, grouped, in_zones, mesh, one, per_zone, promote, reflectors, simple, unique, zonal,
};
use super::world::{Local, Peer, Remote, World};

/// Returns how many sessions have two ends.
fn count(all: &Sessions) -> usize {
    two_ended(all).values().map(BTreeMap::len).sum::<usize>() / 2
}

fn two(ids: Ids) -> World {
    reflectors(&mesh(18), ids, 2)
}

#[test]
fn sessions_routes_and_the_loss_of_one_are_as_measured() {
    // Sessions; routes missing by RFC 4456 and by BIRD's rule; the same when the worst one
    // reflector is down.
    for (name, world, wanted) in [
        ("mesh", mesh(18), [153, 0, 0, 0, 0]),
        ("simple, one id", simple(two(one)), [87, 0, 0, 0, 0]),
        ("zonal, one id", zonal(two(one)), [39, 144, 96, 136, 96]),
        ("zonal, id per zone", zonal(two(per_zone)), [39, 0, 0, 0, 0]),
        ("3 per client, one id", grouped(two(one), 3), [51, 60, 24, 62, 32]),
        ("3 per client, id per zone", grouped(two(per_zone), 3), [51, 0, 0, 0, 0]),
    ] {
        let all = sessions(&world);
        let lost = |rule| missing(&all, &BTreeSet::new(), rule).len();
        let worst = |rule| worst_without_one(&all, rule);
        let found =
            [count(&all), lost(Rule::Rfc), lost(Rule::Bird), worst(Rule::Rfc), worst(Rule::Bird)];
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn a_session_that_is_cut_costs_what_was_measured() {
    let mut all = sessions(&zonal(two(per_zone)));
    for (client, reflector) in [("bgp-02", "bgp-00"), ("bgp-03", "bgp-01")] {
        all.get_mut(client).unwrap().retain(|_, end| end.peer != reflector);
    }
    let lost = |rule| missing(&all, &BTreeSet::new(), rule).len();
    assert_eq!((lost(Rule::Rfc), lost(Rule::Bird)), (4, 2));
}

#[test]
fn paths_explode_with_an_id_for_each_reflector() {
    let at_reflectors = |world: &World| {
        let all = paths(&sessions(world));
        let is_reflector = |name: &&String| world.nodes[*name].cluster_id.is_some();
        all.keys().filter(is_reflector).map(|name| all[name]).max().unwrap()
    };
    let of = |ids: Ids, per| reflectors(&mesh(18), ids, per);
    for (name, world, wanted) in [
        ("simple, one id", simple(of(one, 2)), 80),
        ("zonal, 3, id per zone", zonal(of(per_zone, 1)), 32),
        ("zonal, 6, id per zone", zonal(of(per_zone, 2)), 184),
        ("zonal, 9, id per zone", zonal(of(per_zone, 3)), 650),
        ("simple, 3, id per zone", simple(of(per_zone, 1)), 82),
        ("simple, 6, id per zone", simple(of(per_zone, 2)), 392),
        ("simple, 9, id per zone", simple(of(per_zone, 3)), 1100),
        ("simple, 6, unique ids", simple(of(unique, 2)), 4240),
        ("zonal, 6, unique ids", zonal(of(unique, 2)), 1632),
    ] {
        assert_eq!(at_reflectors(&world), wanted, "{name}");
    }
}

#[test]
fn what_comes_through_a_reflector_is_held_twice_while_it_starts_again() {
    let all = sessions(&zonal(two(per_zone)));
    let fullest = paths(&all).into_values().max();
    assert_eq!(fullest, Some(194 + 3), "with its own three");
    // Half of what its clients hold is from it, and all paths to itself and some to its neighbor
    // came through it.
    assert_eq!(more_while_restarting(&all, "bgp-00"), 110);
    // A client passes nothing on: only the paths to itself are held twice.
    assert_eq!(more_while_restarting(&all, "bgp-02"), 12);
    assert_eq!(more_while_restarting(&all, "nobody"), 0);
}

#[test]
fn paths_of_layouts_in_zones_are_as_measured() {
    // Of 24 nodes, with the three paths of a table's own.
    for (layout, bridged, wanted) in [
        (&[2, 2, 2, 2][..], false, 1342),
        (&[3, 2, 2, 2], false, 2247),
        (&[3, 3, 2, 2], false, 3387),
        (&[4, 4, 4], false, 2172),
        (&[5, 5, 5], false, 4635),
        (&[3, 2, 2, 2], true, 5099),
    ] {
        let all = paths(&sessions(&in_zones(24, layout, bridged)));
        assert_eq!(all.into_values().max(), Some(wanted + 3), "{layout:?} {bridged}");
    }
}

/// The protocols of a node, each with what is special about it.
fn ends(all: &Sessions, node: &str) -> Vec<String> {
    let text = |(name, end): (&String, &super::sessions::Session)| {
        let passive = if end.passive { " passive" } else { "" };
        let client = end.reflects.map_or(String::new(), |id| format!(" client of {id}"));
        format!("{name}{passive}{client}")
    };
    all[node].iter().map(text).collect()
}

#[test]
fn the_mesh_leaves_reflectors_out_on_both_sides() {
    let mut world = mesh(3);
    // 10.90.0.9 as text is greater than 10.90.0.11: the other end is the passive one.
    let speakers = &mut world.nodes.get_mut("bgp-00").unwrap().speakers;
    speakers.get_mut(&Family::V4).unwrap().address = "10.90.0.9".parse().unwrap();
    let all = sessions(&world);
    assert_eq!(ends(&all, "bgp-01"), ["Mesh_10_90_0_12 passive", "Mesh_10_90_0_9 passive"]);
    assert_eq!(ends(&all, "bgp-00"), ["Mesh_10_90_0_11", "Mesh_10_90_0_12"]);
    promote(&mut world, "bgp-02", "224.0.0.1");
    let all = sessions(&world);
    assert_eq!(ends(&all, "bgp-01"), ["Mesh_10_90_0_9 passive"]);
    assert!(ends(&all, "bgp-02").is_empty());
}

#[test]
fn who_has_no_id_or_another_one_is_a_client() {
    let mut world = simple(World { mesh: false, ..mesh(4) });
    for (node, id) in [("bgp-00", "224.0.0.1"), ("bgp-01", "224.0.0.1"), ("bgp-02", "224.0.0.2")] {
        promote(&mut world, node, id);
    }
    assert_eq!(
        ends(&sessions(&world), "bgp-00"),
        [
            "Node_10_90_0_11",
            "Node_10_90_0_12 client of 224.0.0.1",
            "Node_10_90_0_13 client of 224.0.0.1"
        ]
    );
    assert_eq!(
        ends(&sessions(&world), "bgp-03"),
        ["Node_10_90_0_10", "Node_10_90_0_11", "Node_10_90_0_12"]
    );
    // By address nobody has an id; the other end knows the node.
    let remote = Remote::Address("10.90.0.11".parse().unwrap());
    let local = Local::Node("bgp-00".to_owned());
    let peer = Peer { local, remote, reverse: true, restart: None };
    world.peers = [("a".to_owned(), peer)].into();
    let all = sessions(&world);
    assert_eq!(ends(&all, "bgp-00"), ["Node_10_90_0_11 client of 224.0.0.1"]);
    assert_eq!(ends(&all, "bgp-01"), ["Node_10_90_0_10"]);
}

#[test]
fn an_end_of_the_mesh_answers_none_by_peers() {
    let mut world = mesh(2);
    let remote = Remote::Address("10.90.0.11".parse().unwrap());
    let local = Local::Node("bgp-00".to_owned());
    world.peers.insert("a".to_owned(), Peer { local, remote, reverse: false, restart: None });
    assert_eq!(ends(&sessions(&world), "bgp-00"), ["Mesh_10_90_0_11 passive", "Node_10_90_0_11"]);
    assert_eq!(ends(&two_ended(&sessions(&world)), "bgp-00"), ["Mesh_10_90_0_11 passive"]);
    world.peers.get_mut("a").unwrap().reverse = true;
    let all = sessions(&world);
    assert_eq!((two_ended(&all), count(&all)), (all, 2));
}

#[test]
fn global_peers_come_first_and_manual_ones_are_not_reversed() {
    let address = |text: &str| Remote::Address(text.parse().unwrap());
    let peer = |local, remote, reverse| Peer { local, remote, reverse, restart: None };
    let mut world = World { mesh: false, ..mesh(3) };
    let only = Local::Node("bgp-01".to_owned());
    world.peers.insert("a".to_owned(), peer(only.clone(), address("10.90.0.12"), true));
    world.peers.insert("b".to_owned(), peer(Local::All, address("10.90.0.12"), true));
    let all = sessions(&world);
    // The one for all nodes wins over the node's own, and its reverse is always a node's own.
    assert_eq!(ends(&all, "bgp-01"), ["Global_10_90_0_12 passive"]);
    assert_eq!(ends(&all, "bgp-02"), ["Node_10_90_0_10", "Node_10_90_0_11"]);
    world.peers = [("a".to_owned(), peer(only, address("10.90.0.12"), false))].into();
    let all = sessions(&world);
    assert_eq!(ends(&all, "bgp-01"), ["Node_10_90_0_12"]);
    assert!(ends(&all, "bgp-02").is_empty());
}

#[test]
fn texts_are_calicos() {
    let mut world = simple(mesh(3));
    promote(&mut world, "bgp-00", "224.0.1.1");
    promote(&mut world, "bgp-02", "224.0.1.2");
    for peer in world.peers.values_mut() {
        peer.restart = Some(std::time::Duration::from_secs(10));
    }
    let texts = texts(&world, &sessions(&world));
    assert_eq!(texts["bgp-00"][&Family::V4], include_str!("golden/reflector.conf"));
    let mesh = mesh(2);
    let texts = super::render::texts(&mesh, &sessions(&mesh));
    assert_eq!(texts["bgp-00"][&Family::V4], include_str!("golden/mesh.conf"));
}

#[test]
fn both_families_have_the_same_sessions_where_both_nodes_speak_both() {
    let mut world = dual(simple(World { mesh: false, ..mesh(3) }));
    promote(&mut world, "bgp-00", "224.0.0.1");
    world.nodes.get_mut("bgp-02").unwrap().speakers.remove(&Family::V6);
    let all = sessions(&world);
    assert_eq!(
        ends(&all, "bgp-00"),
        [
            "Node_10_90_0_11 client of 224.0.0.1",
            "Node_10_90_0_12 client of 224.0.0.1",
            "Node_fd90__b client of 224.0.0.1"
        ]
    );
    assert_eq!(ends(&all, "bgp-02"), ["Node_10_90_0_10"]);
    assert_eq!((two_ended(&all), count(&all)), (all.clone(), 3));
    let texts = texts(&world, &all);
    let six = &texts["bgp-01"][&Family::V6];
    for line in [
        "router id 10.90.0.11;",
        "  ipv6;\n  route fd91:0:0:1::/64 blackhole;",
        "  if (net ~ fd91::/48) then { accept; }",
        "protocol bgp Node_fd90__a from bgp_template {\n  neighbor fd90::a as 64512;\n  source address fd90::b;",
    ] {
        assert!(six.contains(line), "{line}: {six}");
    }
    assert!(!six.contains("ipv4") && !texts["bgp-01"][&Family::V4].contains("ipv6"));
    assert!(!texts["bgp-02"].contains_key(&Family::V6));
}
