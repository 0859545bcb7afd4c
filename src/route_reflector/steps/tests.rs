//! Complete changes from one network to another, step by step, judged by the routes that the
//! sessions carry at each step.
use std::net::Ipv4Addr;

use super::*;
use crate::{
    api::{
        RouteReflectorSet,
        route_reflector_set::{RouteReflectorSetSpec, Topology},
    },
    nodes::{Incarnation, Readiness, Speaker, Texts},
    route_reflector::{
        cleanup::restoration,
        datastore::{CalicoPeer, Snapshot},
        dry_run::Stage,
        election::{Member, Previous, PreviousSlot, Target, target},
        settings::{Settings, rules},
        topology::BgpTopology,
    },
};

mod admission;

const KEY: &str = "calico-route-reflector";
const ZONE: &str = "topology.kubernetes.io/zone";

const SET: &str = "set";

/// A cluster, as the API server has it.
#[derive(Clone, Debug)]
struct World {
    stage: Stage,
    previous: Previous,
    log: Vec<Step>,
}

fn texts(texts: &[(&str, &str)]) -> Texts {
    texts.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

impl World {
    /// A full mesh of nodes, in turn in `zones`.
    fn mesh(nodes: usize, zones: usize) -> Self {
        let snapshot = Snapshot { mesh: true, as_number: 64_512, ..Snapshot::default() };
        let stage = Stage { snapshot, ..Stage::default() };
        let mut world = Self { stage, previous: Previous::default(), log: vec![] };
        for i in 0..nodes {
            world.join(i, &format!("z{}", i % zones.max(1)));
        }
        world
    }

    /// Eighteen nodes in three zones, after all steps of a spec.
    fn converged(spec: &str) -> Self {
        let mut world = Self::mesh(18, 3);
        world.converge(spec, Some(false)).unwrap();
        world
    }

    fn join(&mut self, i: usize, zone: &str) {
        let address = format!("10.0.{}.{}/16", i / 250, i % 250 + 1);
        self.stage.speakers.push(Speaker {
            name: format!("n{i:02}").into(),
            incarnation: Incarnation { created: i64::try_from(i).unwrap(), uid: 0 },
            labels: texts(&[(ZONE, zone)]),
            taints: [].into(),
            readiness: Readiness::Ready,
            cordoned: false,
            calico: texts(&[("projectcalico.org/IPv4Address", &address)]),
        });
    }

    fn bgp(&self) -> BgpTopology {
        self.stage.bgp((KEY, ZONE), SET)
    }

    fn target(&self, spec: &str) -> Target {
        let spec = spec_of(spec);
        let bgp = self.bgp();
        let members: Vec<_> = self
            .stage
            .speakers
            .iter()
            .map(|speaker| {
                let actual = &bgp.nodes[&speaker.name];
                let not_ready = matches!(speaker.readiness, Readiness::NotReady(_));
                Member {
                    name: Arc::clone(&speaker.name),
                    zone: actual.zone.clone(),
                    created: speaker.incarnation.created,
                    address: actual.address,
                    ready: !not_ready,
                    not_ready_for: not_ready.then(|| std::time::Duration::from_mins(10)),
                    closed: speaker.cordoned,
                    suitable: true,
                    slot: actual.labels.slot,
                    group: actual.labels.group.clone(),
                    cluster_id: actual.labels.cluster_id,
                    labeled: actual.labels.label.is_some(),
                    ..Member::default()
                }
            })
            .collect();
        target(&rules(&spec).unwrap(), &members, &self.previous).unwrap()
    }

    /// The slots that are known and no living node holds.
    fn vacant(&self) -> BTreeSet<u32> {
        let bgp = self.bgp();
        let up = |node: &Arc<str>| bgp.fabric.node(node).is_some_and(|node| node.up);
        let all = bgp.reflectors().filter_map(|(node, labels)| Some((node, labels.slot?)));
        let (living, dead): (Vec<_>, Vec<_>) = all.partition(|(node, _)| up(node));
        let known = self.previous.slots.iter().map(|slot| slot.id);
        let known = known.chain(dead.into_iter().map(|(_, slot)| slot));
        known.filter(|slot| living.iter().all(|(_, held)| held != slot)).collect()
    }

    fn goal(&self, spec: &str, mesh: Option<bool>) -> (Target, Goal) {
        let target = self.target(spec);
        let goal = Goal {
            label: (KEY.into(), "".into()),
            slots: target.slots.clone(),
            vacant: self.vacant(),
            groups: (!target.groups.is_empty()).then(|| target.groups.clone()),
            peers: target.peers.clone(),
            mesh,
            max_per_zone: 1,
            retires: false,
        };
        (target, goal)
    }

    /// Writes one step as the API server would take it.
    fn take(&mut self, step: &Step) {
        self.stage.take(step, (KEY, ""), SET);
        self.log.push(step.clone());
    }

    fn remember(&mut self, target: &Target) {
        self.previous = Previous {
            topology: Some(target.topology),
            slots: target
                .slots
                .iter()
                .map(|slot| PreviousSlot {
                    id: slot.id,
                    node: Arc::clone(&slot.node),
                    zone: slot.zone.clone(),
                    cluster_id: Some(slot.cluster_id),
                })
                .collect(),
            groups: target.group_slots.clone(),
        };
    }

    /// Takes all steps, and decides again after each; returns the obstacle, if there is one.
    fn converge(&mut self, spec: &str, mesh: Option<bool>) -> Result<(), String> {
        self.log.clear();
        for _ in 0..500 {
            let (target, goal) = self.goal(spec, mesh);
            let bgp = self.bgp();
            let left = pending(&bgp, &goal);
            if left.is_empty() {
                return Ok(());
            }
            sound(&bgp, &goal).map_err(|why| why.to_string())?;
            let mut refused = vec![];
            let next = left.iter().flat_map(Step::tries).find(|step| {
                let after = step.after(&bgp.fabric, KEY, "");
                step.admit(&bgp.fabric, &after)
                    .map_err(|why| refused.push(format!("{step}: {why}")))
                    .is_ok()
            });
            let Some(step) = next else { return Err(refused.join("; ")) };
            self.remember(&target);
            self.watch(&step);
            self.take(&step);
        }
        Err(format!("no end: {:?}", self.words()))
    }

    /// Checks the cost of a step, computed again from the reads before and after it.
    fn watch(&self, step: &Step) {
        let (before, mut later) = (self.bgp(), self.clone());
        later.take(step);
        let after = later.bgp();
        let expected = step.after(&before.fabric, KEY, "");
        assert_eq!(expected.nodes(), after.fabric.nodes(), "{step}");
        assert_eq!(expected.sessions(), after.fabric.sessions(), "{step}");
        let change = Change::new(&before.fabric, &after.fabric, &step.changed());
        assert_eq!(change.lost(Rule::Bird).pairs, 0, "{step}");
        assert!(step.changed().len() <= pending::JOINING, "{step}");
    }

    fn words(&self) -> Vec<&'static str> {
        self.log.iter().map(Step::word).collect()
    }

    fn reflectors(&self) -> BTreeMap<String, String> {
        let bgp = self.bgp();
        let all = bgp.reflectors();
        all.map(|(node, labels)| (node.to_string(), labels.cluster_id.unwrap().to_string()))
            .collect()
    }

    fn is_redundant(&self) -> bool {
        let fabric = self.bgp().fabric;
        [Rule::Rfc, Rule::Bird].into_iter().all(|rule| {
            fabric.missing(rule).pairs == 0
                && fabric.worst_without_one(rule).is_none_or(|(_, missing)| missing.pairs == 0)
        })
    }

    fn edit(&mut self, node: &str, edit: impl FnOnce(&mut Speaker)) {
        self.stage.edit(node, edit);
    }
}

const SIMPLE: &str = "{topology: Simple}";
const ZONAL: &str = "{topology: Zonal, count: {min: 6}}";
const MULTI: &str = "{topology: Multi, count: {min: 6}}";

mod unknown;
mod ways;

#[test]
fn the_mesh_goes_only_when_every_session_of_the_reflectors_is_there() {
    for spec in [SIMPLE, ZONAL, MULTI] {
        let mut world = World::converged(spec);
        assert!(!world.stage.snapshot.mesh && world.is_redundant(), "{spec}");
        assert_eq!(world.words().last(), Some(&"MeshOff"), "{spec}");
        assert_eq!(world.words().iter().filter(|word| **word == "MeshOff").count(), 1);
        // And nothing more.
        world.converge(spec, Some(false)).unwrap();
        assert_eq!(world.words(), Vec::<&str>::new(), "{spec}");
    }
}

#[test]
fn zones_are_reached_over_a_wide_state_that_is_narrowed_last() {
    let world = World::converged(ZONAL);
    let wide = world.log.iter().position(
        |step| matches!(step, Step::Peers { write, .. } if write.iter().any(|p| p.name == WIDE)),
    );
    let promoted = world.words().iter().position(|word| *word == "Promote");
    assert!(wide.unwrap() < promoted.unwrap());
    let narrowed = world.log.iter().position(
        |step| matches!(step, Step::Peers { delete, .. } if delete.iter().any(|(n, _)| n == WIDE)),
    );
    assert_eq!(narrowed, Some(world.log.len() - 2), "{:?}", world.words());
    // As many peers as groups, and one.
    assert_eq!(world.stage.snapshot.peers.len(), 4);
    let ids: BTreeSet<_> = world.reflectors().into_values().collect();
    assert_eq!(ids.len(), 3);
}

#[test]
fn a_reflector_is_replaced_before_it_goes_and_no_peer_changes() {
    for spec in [SIMPLE, ZONAL, MULTI] {
        let mut world = World::converged(spec);
        let (peers, old) = (world.stage.snapshot.peers.clone(), world.reflectors());
        let victim = old.keys().next().unwrap().clone();
        world.edit(&victim, |speaker| speaker.cordoned = true);
        world.converge(spec, Some(false)).unwrap();
        assert_eq!(world.words(), ["Promote", "Demote"], "{spec}");
        assert_eq!(world.stage.snapshot.peers, peers, "{spec}");
        let new = world.reflectors();
        assert!(!new.contains_key(&victim));
        assert_eq!(new.keys().filter(|node| !old.contains_key(*node)).count(), 1);
        assert!(world.is_redundant());
    }
}

#[test]
fn new_nodes_get_a_group_and_change_nobody_else() {
    let mut world = World::converged(ZONAL);
    world.join(30, "z2");
    // Until they have a group they are clients of the first one's reflectors.
    assert_eq!(world.bgp().fabric.missing(Rule::Rfc).pairs, 0);
    world.converge(ZONAL, Some(false)).unwrap();
    assert_eq!(world.words(), ["LabelClients"]);
    let Step::LabelClients { nodes, joining } = &world.log[0] else { panic!() };
    assert!(*joining && nodes.len() == 1);
    // In the simple topology nothing is written at all.
    let mut world = World::converged(SIMPLE);
    world.join(30, "z2");
    world.converge(SIMPLE, Some(false)).unwrap();
    assert_eq!(world.words(), Vec::<&str>::new());
}

/// All label writes of a set are lost: `kubectl label nodes --all …-`.
#[test]
fn labels_that_are_removed_by_hand_in_mid_transition_are_written_again() {
    for stop in 0..14 {
        let mut world = World::mesh(18, 3);
        let mut short = world.clone();
        world.converge(ZONAL, Some(false)).unwrap();
        for step in world.log.iter().take(stop) {
            short.take(step);
        }
        let (target, _) = short.goal(ZONAL, Some(false));
        short.remember(&target);
        for speaker in &mut short.stage.speakers {
            let labels = speaker.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
            let kept = labels.filter(|(key, _)| ![SLOT_LABEL, GROUP_LABEL].contains(&&**key));
            speaker.labels = kept.collect();
        }
        short.converge(ZONAL, Some(false)).unwrap_or_else(|why| panic!("{stop}: {why}"));
        assert!(short.is_redundant() && !short.stage.snapshot.mesh, "{stop}");
    }
}

#[test]
fn a_step_that_would_cut_someone_off_is_refused_and_named() {
    // One reflector is no redundancy: no change starts towards a single one.
    let mut world = World::mesh(6, 1);
    let spec = "{topology: Simple, count: {min: 1, max: 1}}";
    let why = world.converge(spec, Some(false)).unwrap_err();
    assert!(why.starts_with("spec.count.min: without the mesh one reflector alone"), "{why}");
    assert!(world.stage.snapshot.mesh && world.log.is_empty());
    // Beside the mesh it may be.
    world.converge(spec, None).unwrap();
    // The mesh is switched off while no node reflects.
    let step = Step::Mesh(false);
    let world = World::mesh(4, 1);
    let before = world.bgp().fabric;
    let refused = step.admit(&before, &step.after(&before, KEY, "")).unwrap_err();
    assert_eq!(refused.to_string(), "n00 would lose the routes to n01 (12 such pairs)");
}

#[test]
fn too_many_paths_are_refused_with_their_number() {
    let mut world = World::mesh(12, 1);
    let spec = "{topology: Simple, count: {min: 4, max: 4}, clusterID: {per: Slot}}";
    world.converge(spec, Some(false)).unwrap();
    let before = world.bgp().fabric;
    let ids: [Ipv4Addr; 4] = [9, 10, 11, 12].map(|i| Ipv4Addr::new(224, 1, 0, i));
    let slots = ["n08", "n09", "n10", "n11"].into_iter().zip(ids).zip(20..);
    let slots = slots.map(|((node, cluster_id), id)| Slot {
        id,
        node: node.into(),
        zone: None,
        cluster_id,
        trouble: None,
    });
    let step = Step::Promote { why: Why::Promote, slots: slots.collect() };
    let refused = step.admit(&before, &step.after(&before, KEY, "")).unwrap_err();
    assert!(matches!(refused, Refused::Paths { .. }), "{refused}");
}

#[test]
fn foreign_peers_are_never_written() {
    let mut world = World::mesh(12, 2);
    let foreign = CalicoPeer {
        name: "peer-to-rack".into(),
        peer_ip: Some("192.168.0.1".into()),
        reverse: true,
        ..CalicoPeer::default()
    };
    world.stage.snapshot.peers.push(foreign.clone());
    world.converge(SIMPLE, Some(false)).unwrap();
    world.converge(ZONAL, Some(false)).unwrap();
    assert!(world.stage.snapshot.peers.contains(&foreign));
    assert_eq!(world.bgp().foreign, 1);
}

fn spec_of(spec: &str) -> RouteReflectorSetSpec {
    serde_yaml::from_str(spec).unwrap()
}
