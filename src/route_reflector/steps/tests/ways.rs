//! Ways that have conditions of their own, and the way back to the mesh.
use super::*;

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
