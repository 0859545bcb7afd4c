//! Ways from wherever a crash leaves off, at every size, and back to the mesh.
use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// It does not matter where the way is interrupted, nor what happens there.
    #[test]
    fn from_wherever_a_crash_leaves_it_the_way_is_found(
        nodes in 9_usize..24, zones in 1_usize..4, stop in 0_usize..25, topology in 0_usize..3,
        victim in 0_usize..9, what in 0_usize..4,
    ) {
        let spec = [SIMPLE, "{count: {min: 6}}", "{topology: Multi, count: {min: 6}}"][topology];
        prop_assume!(topology != 2 || zones > 1);
        let mut whole = World::mesh(nodes, zones);
        let mut world = whole.clone();
        let result = whole.converge(spec, Some(false));
        // With three reflectors in two zones, after one failure a client has only reflectors of one
        // id.
        prop_assert!(result.is_ok() || topology == 2 && zones == 2, "{result:?}");
        prop_assert!(result.is_ok() || whole.stage.snapshot.mesh);
        for step in whole.log.iter().take(stop) {
            let (target, _) = world.goal(spec, Some(false));
            world.remember(&target);
            world.take(step);
        }
        let name = format!("n{victim:02}");
        match what {
            0 => world.leave(&name),
            1 => world.edit(&name, |speaker| speaker.cordoned = true),
            2 => world.edit(&name, |speaker| speaker.readiness = Readiness::NotReady(Some(0))),
            _ => {}
        }
        let result = world.converge(spec, Some(false));
        prop_assert!(result.is_ok() || topology == 2, "{result:?}");
        prop_assert!(result.is_err() || !world.stage.snapshot.mesh);
        prop_assert_eq!(world.bgp().fabric.missing(Rule::Rfc).pairs, 0);
    }
}

/// Sizes at which a living reflector could not be replaced, or a topology not be left.
#[test]
fn reflectors_of_zones_are_replaced_and_zones_are_left_at_every_size_that_is_admitted() {
    for (zones, each) in [(2, 2), (2, 6), (2, 12), (3, 3), (3, 4), (4, 2)] {
        let count = zones * each;
        let spec = format!("{{topology: Zonal, count: {{min: {count}, max: {count}}}}}");
        let what = format!("{zones} x {each}");
        let mut world = World::mesh((2 * each + 4) * zones, zones);
        world.converge(&spec, Some(false)).unwrap_or_else(|why| panic!("{what}: {why}"));
        assert!(world.is_redundant(), "{what}");
        // One leaves; a zone's are dead.
        let victim = world.reflectors().into_keys().next().unwrap();
        world.edit(&victim, |speaker| speaker.cordoned = true);
        world.converge(&spec, Some(false)).unwrap_or_else(|why| panic!("{what}: {why}"));
        assert_eq!(world.words(), ["Promote", "Demote"], "{what}");
        let dead: Vec<_> =
            world.target(&spec).slots.into_iter().filter(|s| s.zone == Some("z0".into())).collect();
        for slot in &dead {
            world.edit(&slot.node, |speaker| speaker.readiness = Readiness::NotReady(Some(0)));
        }
        world.converge(&spec, Some(false)).unwrap_or_else(|why| panic!("{what}: {why}"));
        let words = world.words();
        assert_eq!(words.len(), 2 * each, "{what}: {words:?}");
        assert!(words[..each].iter().all(|word| *word == "Promote"), "{what}: {words:?}");
        assert!(world.is_redundant(), "{what}");
        // And left again, with one more, and back.
        let (more, most) = (count + 1, count + 1);
        let simple = format!("{{topology: Simple, count: {{min: {more}, max: {most}}}}}");
        world.converge(&simple, Some(false)).unwrap_or_else(|why| panic!("{what}: {why}"));
        assert_eq!(world.stage.snapshot.peers.len(), 2, "{what}");
        world.converge(&spec, Some(false)).unwrap_or_else(|why| panic!("{what}: {why}"));
        assert!(world.is_redundant(), "{what}");
    }
}

/// A session by a BGPPeer between two nodes of the mesh becomes two: that resets nothing.
#[test]
fn the_mesh_may_always_be_switched_on() {
    let mut world = World::mesh(6, 1);
    world.stage.snapshot.mesh = false;
    world.stage.snapshot.peers.push(CalicoPeer {
        name: "everybody".into(),
        node_selector: Some("all()".into()),
        peer_selector: Some("all()".into()),
        reverse: true,
        ..CalicoPeer::default()
    });
    let before = world.bgp().fabric;
    let step = Step::Mesh(true);
    assert_eq!(step.admit(&before, &step.after(&before, KEY, "")), Ok(()));
}

#[test]
fn a_dead_slot_comes_before_nodes_that_join() {
    let mut world = World::converged(ZONAL);
    for i in 30..60 {
        world.join(i, "z1");
    }
    let victim = world.reflectors().into_keys().next().unwrap();
    world.edit(&victim, |speaker| speaker.readiness = Readiness::NotReady(Some(0)));
    let (_, goal) = world.goal(ZONAL, Some(false));
    let left = pending(&world.bgp(), &goal);
    assert!(left[0].repairs(), "{left:?}");
    assert!(left.iter().any(|step| matches!(step, Step::LabelClients { .. })));
    world.converge(ZONAL, Some(false)).unwrap();
    assert_eq!(world.words().first(), Some(&"Promote"));
    assert!(world.is_redundant());
}

/// One by one through the gate, 36 BGPPeers took a quarter of an hour.
#[test]
fn the_peers_of_multi_go_in_one_step() {
    let mut world = World::converged(MULTI);
    assert_eq!(world.stage.snapshot.peers.len(), 37);
    world.converge(SIMPLE, Some(false)).unwrap();
    let narrowing = world.log.iter().filter(|step| step.activity() == "Narrowing").count();
    assert!(narrowing <= 2, "{:?}", world.words());
    assert_eq!(world.stage.snapshot.peers.len(), 2);
}

/// Auto never starts on a way that it cannot complete.
#[test]
fn auto_takes_zones_only_with_room_to_replace_a_reflector() {
    for (zones, count, topology) in [
        (2, 25, Topology::Zonal),
        (3, 12, Topology::Zonal),
        (3, 15, Topology::Simple),
        (4, 8, Topology::Zonal),
        (4, 12, Topology::Simple),
    ] {
        let spec = format!("{{count: {{min: {count}, max: {count}}}}}");
        let mut world = World::mesh(15 * zones, zones);
        world.converge(&spec, Some(false)).unwrap_or_else(|why| panic!("{spec}: {why}"));
        assert_eq!(world.target(&spec).topology, topology, "{zones} zones, {count}");
        assert!(world.is_redundant());
    }
}

/// The way back to the mesh, before the object is deleted.
#[test]
fn the_mesh_is_restored_before_anybody_is_demoted() {
    for spec in [SIMPLE, ZONAL, MULTI] {
        let mut world = World::converged(spec);
        let start = World::mesh(18, 3);
        world.log.clear();
        let settings = Settings::of(&RouteReflectorSet::new(SET, spec_of(spec))).unwrap();
        for _ in 0..100 {
            let bgp = world.bgp();
            let left = pending(&bgp, &restoration(&settings, &bgp));
            let next = left.iter().flat_map(Step::tries).find(|step| {
                let after = step.after(&bgp.fabric, KEY, "");
                step.admit(&bgp.fabric, &after).is_ok()
            });
            let Some(step) = next else {
                assert!(left.is_empty(), "{spec}: {left:?}");
                break;
            };
            world.watch(&step);
            world.take(&step);
        }
        assert_eq!(world.words().first(), Some(&"MeshOn"));
        assert_eq!(world.stage.speakers, start.stage.speakers, "{spec}");
        assert_eq!(world.stage.snapshot, start.stage.snapshot, "{spec}");
    }
}
