//! Steps that are admitted, and steps that are refused.
use super::*;
use crate::route_reflector::election::slot_selector;

/// Slots for further nodes, each with a cluster id of its own.
fn further(world: &World, number: usize) -> Vec<Slot> {
    let reflectors = world.reflectors();
    let free = (0..12).map(|i| format!("n{i:02}")).filter(|node| !reflectors.contains_key(node));
    let slots = free.take(number).zip(20_u32..).zip(100_u8..);
    let slot = |((node, id), last): ((String, u32), u8)| Slot {
        id,
        node: node.into(),
        zone: None,
        cluster_id: Ipv4Addr::new(224, 1, 0, last),
        trouble: None,
    };
    slots.map(slot).collect()
}

/// Four reflectors with an id each.
const EACH_ITS_ID: &str = "{topology: Simple, count: {min: 4, max: 4}, clusterID: {per: Slot}}";

#[test]
fn a_repair_is_never_refused() {
    let mut world = World::mesh(12, 1);
    world.converge(EACH_ITS_ID, Some(false)).unwrap();
    let (before, slots) = (world.bgp().fabric, further(&world, 2));
    let admitted = |why| {
        let step = Step::Promote { why, slots: slots.clone() };
        step.admit(&before, &step.after(&before, KEY, ""))
    };
    assert!(matches!(admitted(Why::Promote), Err(Refused::Paths { .. })));
    assert_eq!(admitted(Why::Repair), Ok(()));
}

/// Standing still would not reduce them.
#[test]
fn where_paths_are_too_many_already_only_more_are_refused() {
    let mut world = World::mesh(12, 1);
    world.converge(EACH_ITS_ID, Some(false)).unwrap();
    let slots = further(&world, 3);
    let promote = |slots: &[Slot]| Step::Promote { why: Why::Promote, slots: slots.to_vec() };
    let (two, third) = (promote(&slots[..2]), promote(&slots[2..]));
    // Another client did it.
    world.take(&two);
    let before = world.bgp().fabric;
    assert!(!before.paths(Rule::Bird).bearable());
    assert_eq!(two.admit(&before, &two.after(&before, KEY, "")), Ok(()));
    let refused = third.admit(&before, &third.after(&before, KEY, "")).unwrap_err();
    assert!(matches!(refused, Refused::Paths { .. }), "{refused}");
}

#[test]
fn a_step_that_leaves_one_reflector_alone_is_refused_though_no_route_is_lost() {
    let world = World::converged(SIMPLE);
    let bgp = world.bgp();
    let all: Vec<_> = bgp.reflectors().collect();
    assert!(all.len() > 1);
    let leaver = |(node, labels): &(&Arc<str>, &ReflectorLabels)| Leaver {
        node: Arc::clone(node),
        slot: labels.slot,
        group: None,
    };
    let step = Step::Demote { nodes: all[1..].iter().map(leaver).collect() };
    let refused = step.admit(&bgp.fabric, &step.after(&bgp.fabric, KEY, "")).unwrap_err();
    let Refused::Fragile { reflector, pairs, .. } = &refused else { panic!("{refused}") };
    assert!(**reflector == **all[0].0 && *pairs > 0, "{refused}");
}

#[test]
fn a_target_that_one_failure_would_cut_apart_is_refused() {
    let world = World::converged(ZONAL);
    let (_, mut goal) = world.goal(ZONAL, Some(false));
    assert_eq!(sound(&world.bgp(), &goal), Ok(()));
    // One reflector in each zone.
    let mut zones = BTreeSet::new();
    goal.slots.retain(|slot| zones.insert(slot.zone.clone()));
    assert_eq!(goal.slots.len(), 3);
    let refused = sound(&world.bgp(), &goal).unwrap_err();
    assert!(matches!(refused, Refused::Fragile { .. }), "{refused}");
}

/// Only BGPPeers that remove a session can take redundancy away.
#[test]
fn peers_that_leave_one_reflector_to_all_clients_are_refused_unless_they_only_add_sessions() {
    let world = World::converged(SIMPLE);
    let before = world.bgp().fabric;
    let first = world.bgp().reflectors().find_map(|(_, labels)| labels.slot).unwrap();
    let mut write = world.goal(SIMPLE, Some(false)).0.peers;
    write.retain(|peer| peer.node_selector.starts_with('!'));
    assert_eq!(write.len(), 1);
    write[0].peer_selector = slot_selector(&[first].into());
    let admitted = |widens| {
        let step = Step::Peers { write: write.clone(), delete: vec![], widens };
        step.admit(&before, &step.after(&before, KEY, ""))
    };
    assert!(matches!(admitted(false), Err(Refused::Fragile { .. })), "{:?}", admitted(false));
    assert_eq!(admitted(true), Ok(()));
}

/// Other steps give no route another path.
#[test]
fn only_a_step_that_writes_peers_or_promotes_can_have_too_many_paths() {
    let mut world = World::mesh(12, 1);
    world.converge(EACH_ITS_ID, Some(false)).unwrap();
    let slots = further(&world, 2);
    let promote = |why| Step::Promote { why, slots: slots.clone() };
    world.take(&promote(Why::Promote));
    let too_many = world.bgp().fabric;
    let without = |place: usize| {
        let mut peers = too_many.peers().to_vec();
        peers.remove(place);
        Fabric::new(too_many.nodes().to_vec(), peers, false)
    };
    let mut fewer = (0..too_many.peers().len()).map(without);
    let before = fewer.find(|fabric| fabric.paths(Rule::Bird).bearable()).unwrap();
    let write = world.goal(EACH_ITS_ID, Some(false)).0.peers;
    let peers = |write| Step::Peers { write, delete: vec![], widens: true };
    for (step, refused) in [
        (promote(Why::Promote), true),
        (promote(Why::Adopt), false),
        (peers(write), true),
        (peers(vec![]), false),
    ] {
        let admitted = step.admit(&before, &too_many);
        let paths = matches!(admitted, Err(Refused::Paths { .. }));
        assert_eq!((paths, admitted.is_err()), (refused, refused), "{step}: {admitted:?}");
    }
}
