//! Nodes of Kubernetes that Calico does not know, where it has its own Nodes.
use super::*;

/// Such a node would never show a label that is written.
#[test]
fn a_node_without_a_calico_node_gets_no_group_and_holds_nothing_up() {
    for spec in [ZONAL, MULTI] {
        let mut world = World::converged(spec);
        let ids = world.bgp().nodes.into_iter();
        let ids = ids.filter_map(|(name, node)| Some((name, node.labels.cluster_id?)));
        world.stage.snapshot.cluster_ids = ids.collect();
        let known = world.stage.speakers.iter();
        let known = known.map(|speaker| (Arc::clone(&speaker.name), speaker.labels.clone()));
        world.stage.snapshot.labels = Some(known.collect());
        let left = |world: &World| pending(&world.bgp(), &world.goal(spec, Some(false)).1);
        assert_eq!(left(&world), [], "{spec}");
        world.join(30, "z2");
        world.edit("n30", |speaker| speaker.calico = Texts::default());
        assert!(world.target(spec).groups.contains_key("n30"), "{spec}");
        assert_eq!(left(&world), [], "{spec}");
        // With or without a label from earlier.
        let before = world.stage.speakers.clone();
        world.edit("n30", |speaker| speaker.labels = texts(&[(GROUP_LABEL, "z0"), (ZONE, "z2")]));
        assert_eq!(left(&world), [], "{spec}");
        world.stage.speakers = before;
        // Once Calico knows it, it gets its group.
        let labels = world.stage.snapshot.labels.as_mut().unwrap();
        labels.insert("n30".into(), texts(&[(ZONE, "z2")]));
        let left = left(&world);
        let Some(Step::LabelClients { nodes, .. }) = left.first() else { panic!("{left:?}") };
        assert_eq!(nodes.keys().map(|node| &**node).collect::<Vec<_>>(), ["n30"], "{spec}");
    }
}
