//! What follows from confd's rules, held against figures of real BIRD.

use std::collections::{BTreeMap, BTreeSet};

use super::family::Family;
use super::propagation::{Rule, missing, paths, worst_without_one};
use super::sessions::{Sessions, sessions, two_ended};
use super::states::{
    Ids, grouped, mesh, one, per_zone, promote, reflectors, simple, unique, zonal,
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
