//! One pass: what is taken, what waits, what is told.
use serde_json::{Value, json};

use super::*;
use crate::{
    nodes::Texts,
    route_reflector::{
        datastore::{CalicoPeer, Snapshot, Stale},
        dry_run::{Stage, simulate},
        election::Slot,
        gate::Counted,
        steps::Why,
    },
};

const KEY: &str = "calico-route-reflector";

fn texts(texts: &[(&str, &str)]) -> Texts {
    let mut texts: Vec<_> = texts.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    texts.sort();
    texts.into()
}

/// Six nodes in a mesh.
fn mesh() -> Stage {
    let speakers = (0..6).map(|i| Speaker {
        name: format!("n{i}").into(),
        created: i,
        labels: texts(&[("topology.kubernetes.io/zone", "a")]),
        taints: [].into(),
        readiness: Readiness::Ready,
        cordoned: false,
        calico: texts(&[("projectcalico.org/IPv4Address", &format!("10.0.0.{}/24", i + 1))]),
    });
    let snapshot = Snapshot { mesh: true, as_number: 64_512, ..Snapshot::default() };
    Stage { speakers: speakers.collect(), snapshot }
}

fn set(spec: &Value) -> RouteReflectorSet {
    let mut all = json!({"count": {"min": 2, "max": 2}, "mesh": "Migrate"});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "RouteReflectorSet",
        "metadata": {"name": "main"}, "spec": all
    }))
    .unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 - seconds).unwrap()
}

fn observed(set: &RouteReflectorSet, stage: &Stage) -> Observed {
    let settings = Settings::of(set).unwrap();
    let bgp = stage.bgp(settings.keys(), "main");
    Observed {
        now: now(),
        held: None,
        settings: Ok(settings),
        speakers: stage.speakers.clone(),
        bgp: Ok((Arc::new(stage.snapshot.clone()), bgp)),
        fitness: None,
        measured: None,
        memory: Memory { last_step: Some(ago(60)), ..Memory::default() },
    }
}

/// What a healthy network answers, `age` seconds ago.
fn healthy(observed: &Observed, age: f64) -> Measured {
    let (_, bgp) = observed.bgp.as_ref().unwrap();
    let sessions = bgp.fabric.sessions();
    let mut measured = Measured::default();
    for (node, expected) in sessions.iter() {
        let counted =
            Counted { established: Some(expected.up), sampled: Some(seconds(observed.now) - age) };
        measured.nodes.insert(Arc::clone(node), counted);
    }
    measured
}

/// A converged set, its status and network.
fn converged(spec: &Value) -> (RouteReflectorSet, Stage) {
    let mut set = set(spec);
    let mut stage = mesh();
    let way = simulate(&set, &mut stage, None, Arc::default(), now()).unwrap();
    assert_eq!(way.refused, None);
    let mut seen = observed(&set, &stage);
    seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
    set.status = Some(plan(&set, &seen).unwrap().status);
    (set, stage)
}

fn word(desired: &Desired) -> Option<&'static str> {
    desired.step.as_ref().map(|(step, _)| step.word())
}

fn condition<'a>(
    plan: &'a Plan<Desired, RouteReflectorSetStatus>,
    type_: &str,
) -> (&'a str, &'a str) {
    let found = plan.conditions.iter().find(|condition| condition.type_ == type_).unwrap();
    (found.reason, &found.message)
}

#[test]
fn a_converged_set_has_nothing_to_do_and_says_so() {
    let (set, stage) = converged(&json!({}));
    let plan = plan(&set, &observed(&set, &stage)).unwrap();
    assert_eq!(word(&plan.desired), None);
    assert_eq!(condition(&plan, "Converged").0, "Converged");
    assert_eq!(condition(&plan, "RoutesSafe").0, "Redundant");
    assert_eq!(condition(&plan, "Ready").1, "2 reflectors in topology Simple");
    let status = &plan.status;
    assert_eq!((status.phase.as_str(), status.mesh.as_deref()), ("Converged", Some("Off")));
    assert_eq!((status.desired, status.ready, status.slots.len()), (2, 2, 2));
    assert_eq!(plan.period, PERIOD);
    assert!(plan.notices.is_empty());
}

#[test]
fn a_step_waits_for_the_sessions_of_the_one_before() {
    let set = set(&json!({}));
    let mut stage = mesh();
    // The peers, and the first reflector.
    for _ in 0..2 {
        let seen = observed(&set, &stage);
        let (step, _) = plan(&set, &seen).unwrap().desired.step.unwrap();
        stage.take(&step, (KEY, ""), "main");
    }
    let mut seen = observed(&set, &stage);
    // R14: nobody can say.
    seen.measured = Some(Err("connection refused".into()));
    let blind = plan(&set, &seen).unwrap();
    assert_eq!(word(&blind.desired), None);
    let (reason, message) = condition(&blind, "Converged");
    assert_eq!(reason, "GateUnavailable");
    assert_eq!(message, "promoting n1: sessions cannot be counted: connection refused");
    assert_eq!(blind.period, TRY);
    assert_eq!(blind.status.plan[0].step, "Promote");
    assert!(blind.status.plan[0].waiting_for.is_some());
    // Samples of before the step.
    seen.measured = Some(Ok(Arc::new(healthy(&seen, 58.0))));
    assert_eq!(condition(&plan(&set, &seen).unwrap(), "Converged").0, "WaitingForSamples");
    // One session is missing.
    let mut some = healthy(&seen, 1.0);
    some.nodes.get_mut("n0").unwrap().established = Some(4);
    seen.measured = Some(Ok(Arc::new(some)));
    let waiting = plan(&set, &seen).unwrap();
    assert_eq!(
        condition(&waiting, "Converged"),
        ("WaitingForSessions", "promoting n1: sessions are not established: n0 has 4 of 5")
    );
    // Too long.
    seen.memory.shut_since = Some(ago(300));
    let late = plan(&set, &seen).unwrap();
    assert_eq!(condition(&late, "Converged").0, "GateTimeout");
    assert_eq!(late.notices[0].reason, "GateTimeout");
    assert_eq!(word(&late.desired), None, "and nothing is done");
    // All there.
    seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
    let next = plan(&set, &seen).unwrap();
    assert_eq!(word(&next.desired), Some("Promote"));
    assert_eq!(next.desired.memory.unwrap().shut_since, None);
}

#[test]
fn r13_a_dead_reflector_gets_a_successor_at_once_even_when_nobody_can_count() {
    let (set, mut stage) = converged(&json!({}));
    stage.speakers.retain(|speaker| &*speaker.name != "n0");
    let mut seen = observed(&set, &stage);
    seen.measured = Some(Err("away".into()));
    let plan = plan(&set, &seen).unwrap();
    assert_eq!(word(&plan.desired), Some("Promote"));
    assert_eq!(plan.notices[0].reason, "ReflectorGone");
}

#[test]
fn without_prometheus_nobody_is_demoted() {
    let (set, mut stage) = converged(&json!({}));
    stage.edit("n0", |speaker| speaker.cordoned = true);
    let mut seen = observed(&set, &stage);
    seen.memory.last_step = Some(ago(10_000));
    seen.measured = Some(Err("away".into()));
    // Its place is held by a node that is up: it is not a dead reflector.
    assert_eq!(word(&plan(&set, &seen).unwrap().desired), None);
    // The successor is there; the demotion waits.
    seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
    let (step, _) = plan(&set, &seen).unwrap().desired.step.unwrap();
    stage.take(&step, (KEY, ""), "main");
    let mut seen = observed(&set, &stage);
    seen.memory.last_step = Some(ago(10_000));
    seen.measured = Some(Err("away".into()));
    let waiting = plan(&set, &seen).unwrap();
    assert_eq!(word(&waiting.desired), None);
    assert_eq!(waiting.status.slots.iter().filter(|slot| slot.leaving.is_some()).count(), 1);
    seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
    assert_eq!(word(&plan(&set, &seen).unwrap().desired), Some("Demote"));
}

/// R3: nobody who could be one is no wish for none.
#[test]
fn no_candidate_freezes_everything() {
    let (set, mut stage) = converged(&json!({}));
    for speaker in &mut stage.speakers {
        speaker.cordoned = true;
    }
    let frozen = plan(&set, &observed(&set, &stage)).unwrap();
    assert_eq!(word(&frozen.desired), None);
    assert_eq!(condition(&frozen, "Ready").0, "NoCandidates");
    assert_eq!((frozen.status.desired, frozen.status.phase.as_str()), (2, "Frozen"));
    assert!(frozen.status.plan.is_empty());
    assert_eq!(frozen.notices[0].reason, "NoCandidates");
}

#[test]
fn nodes_that_are_not_ready_never_shrink_the_set() {
    let (set, mut stage) = converged(&json!({"count": {"min": 1, "ratio": "0.5"}}));
    assert_eq!(set.status.as_ref().unwrap().slots.len(), 3);
    for node in ["n3", "n4", "n5"] {
        stage.edit(node, |speaker| speaker.readiness = Readiness::NotReady(Some(0)));
    }
    let mut seen = observed(&set, &stage);
    seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
    let plan = plan(&set, &seen).unwrap();
    assert_eq!((word(&plan.desired), plan.status.slots.len()), (None, 3));
}

#[test]
fn the_next_look_comes_when_a_reflector_has_been_silent_for_long_enough() {
    let (set, mut stage) = converged(&json!({"candidates": {"replaceAfter": "3m"}}));
    let mut period = |node: &str, silent: i64| {
        let since = ago(silent).as_second();
        stage.edit(node, |speaker| speaker.readiness = Readiness::NotReady(Some(since)));
        let plan = plan(&set, &observed(&set, &stage)).unwrap();
        (word(&plan.desired), plan.period)
    };
    // Of a client nothing is waited for.
    assert_eq!(period("n5", 170), (None, PERIOD));
    assert_eq!(period("n0", 60), (None, PERIOD));
    assert_eq!(period("n0", 160), (None, Duration::from_secs(20)));
    assert_eq!(period("n0", 179), (None, TRY));
}

#[test]
fn an_unfit_reflector_is_replaced_after_its_time_and_only_by_evidence() {
    let (set, stage) = converged(&json!({
        "candidates": {"fitnessRef": {"namespace": "n", "name": "w"}, "demoteAfter": "10m"}
    }));
    let mut set = set;
    let unfit = |frozen: Option<&str>| {
        Some(Fitness { unfit: ["n0".into()].into(), frozen: frozen.map(Into::into) })
    };
    let look = |set: &RouteReflectorSet, fitness| {
        let mut seen = observed(set, &stage);
        seen.fitness = fitness;
        seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
        plan(set, &seen).unwrap()
    };
    // From now on.
    let first = look(&set, unfit(None));
    assert_eq!(word(&first.desired), None);
    assert_eq!(first.status.slots[0].unfit_since.as_ref().map(|time| time.0), Some(now()));
    set.status = Some(first.status);
    let since = |set: &mut RouteReflectorSet, since| {
        let slots = &mut set.status.as_mut().unwrap().slots;
        slots[0].unfit_since = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(since));
    };
    since(&mut set, ago(599));
    assert_eq!(word(&look(&set, unfit(None)).desired), None);
    assert_eq!(look(&set, unfit(None)).period, TRY);
    since(&mut set, ago(600));
    assert_eq!(word(&look(&set, unfit(None)).desired), Some("Promote"));
    // The TrafficWatch has no measurement: no clock runs.
    let frozen = look(&set, unfit(Some("TrafficWatch n/w has no measurement")));
    assert_eq!(word(&frozen.desired), None);
    assert_eq!(frozen.status.slots[0].unfit_since, None);
    assert!(condition(&frozen, "Ready").1.contains("no reflector is replaced for being unfit"));
}

#[test]
fn a_name_that_is_taken_stops_everything_and_says_how_to_hand_it_over() {
    let set = set(&json!({}));
    let mut stage = mesh();
    stage.snapshot.peers.push(CalicoPeer {
        name: "rrs-to-rrs".into(),
        node_selector: Some("has(calico-route-reflector)".into()),
        peer_selector: Some("has(calico-route-reflector)".into()),
        reverse: true,
        ..CalicoPeer::default()
    });
    let taken = plan(&set, &observed(&set, &stage)).unwrap();
    assert_eq!(word(&taken.desired), None);
    let (reason, message) = condition(&taken, "Ready");
    assert_eq!(reason, "Conflict");
    assert!(message.ends_with(
        "kubectl label bgppeer rrs-to-rrs app.kubernetes.io/managed-by=traffic-operator"
    ));
    // With that label it is ours.
    stage.snapshot.peers[0].ours = true;
    assert!(word(&plan(&set, &observed(&set, &stage)).unwrap().desired).is_some());
}

#[test]
fn observe_pause_and_a_datastore_that_moves_write_nothing() {
    let stage = mesh();
    let observe = set(&json!({"mode": "Observe"}));
    let seen = plan(&observe, &observed(&observe, &stage)).unwrap();
    assert_eq!((word(&seen.desired), seen.period), (None, PERIOD));
    assert!(condition(&seen, "Ready").1.contains("mode Observe"));
    assert!(!seen.status.plan.is_empty(), "but the plan is told");
    let paused = set(&json!({"paused": true}));
    let seen = plan(&paused, &observed(&paused, &stage)).unwrap();
    assert_eq!((word(&seen.desired), seen.status.phase.as_str()), (None, "Paused"));
    let enforce = set(&json!({}));
    let mut locked = mesh();
    locked.snapshot.locked = true;
    let seen = plan(&enforce, &observed(&enforce, &locked)).unwrap();
    assert_eq!((word(&seen.desired), condition(&seen, "Ready").0), (None, "DatastoreLocked"));
    let mut none = observed(&enforce, &stage);
    none.bgp = Err(Calico { reason: "CalicoNotFound", text: "Calico is not installed".into() });
    let seen = plan(&enforce, &none).unwrap();
    assert_eq!((word(&seen.desired), condition(&seen, "Ready").0), (None, "CalicoNotFound"));
}

#[test]
fn a_node_that_speaks_no_bgp_reflects_nothing() {
    let set = set(&json!({}));
    let mut stage = mesh();
    stage.edit("n0", |speaker| speaker.calico = texts(&[]));
    stage.edit("n1", |speaker| {
        speaker.calico = texts(&[
            ("projectcalico.org/IPv4Address", "10.0.0.2/24"),
            ("projectcalico.org/ASNumber", "64999"),
        ]);
    });
    let way = simulate(&set, &mut stage, None, Arc::default(), now()).unwrap();
    let reflectors: Vec<_> = way.reflectors.iter().map(|reflector| &*reflector.node).collect();
    assert_eq!(reflectors, ["n2", "n3"]);
}

/// What the original operator left is taken over as it is.
#[test]
fn reflectors_of_the_original_are_adopted_without_a_change_of_sessions() {
    let set = set(&json!({"clusterID": {"pool": "224.0.0.0/16"}}));
    let mut stage = mesh();
    for node in ["n3", "n4"] {
        stage.edit(node, |speaker| {
            speaker.labels =
                texts(&[("topology.kubernetes.io/zone", "a"), ("calico-route-reflector", "")]);
            let address = speaker.calico[0].1.clone();
            speaker.calico = texts(&[
                ("projectcalico.org/IPv4Address", &address),
                ("projectcalico.org/RouteReflectorClusterID", "224.0.0.0"),
            ]);
        });
    }
    let way = simulate(&set, &mut stage, None, Arc::default(), now()).unwrap();
    let words: Vec<_> = way.steps.iter().map(|step| step.step).collect();
    assert_eq!(words, ["Adopt", "WritePeer", "MeshOff"]);
    let ids: Vec<_> = way.reflectors.iter().map(|r| (&*r.node, &*r.cluster_id)).collect();
    assert_eq!(ids, [("n3", "224.0.0.0"), ("n4", "224.0.0.0")]);
}

/// Somebody takes the labels of a reflector away; until the gate lets it have them again, its slot is its own.
#[test]
fn who_lost_its_labels_is_remembered_until_it_has_them_again() {
    let (mut set, mut stage) = converged(&json!({}));
    let slots = |status: &RouteReflectorSetStatus| {
        status.slots.iter().map(|slot| (slot.id, slot.node.clone())).collect::<Vec<_>>()
    };
    let before = slots(set.status.as_ref().unwrap());
    stage.edit("n0", |speaker| speaker.labels = texts(&[("topology.kubernetes.io/zone", "a")]));
    for _ in 0..3 {
        let mut seen = observed(&set, &stage);
        // Nobody can count.
        seen.measured = Some(Err("refused".into()));
        let plan = plan(&set, &seen).unwrap();
        assert_eq!(slots(&plan.status), before);
        set.status = Some(plan.status);
    }
}

/// The spec is impossible: the topology in use is kept up, and its dead are replaced.
#[test]
fn r02_a_topology_that_is_refused_stops_no_repair() {
    let (mut set, mut stage) = converged(&json!({}));
    set.spec.topology = crate::api::route_reflector_set::Topology::Zonal;
    set.spec.zone_label = "rack".into();
    let refused = plan(&set, &observed(&set, &stage)).unwrap();
    let (reason, text) = condition(&refused, "Ready");
    assert_eq!(reason, "PlanRefused");
    assert!(text.starts_with("spec.zoneLabel: topology Zonal needs zones"), "{text}");
    assert!(text.ends_with("; topology Simple is kept, and repaired"), "{text}");
    assert_eq!(word(&refused.desired), None);
    stage.edit("n0", |speaker| speaker.readiness = Readiness::NotReady(Some(0)));
    let repaired = plan(&set, &observed(&set, &stage)).unwrap();
    assert_eq!(word(&repaired.desired), Some("Promote"));
    assert_eq!(repaired.status.topology.as_deref(), Some("Simple"));
}

/// One node's BIRD is down: a gate that stays shut for it keeps no dead reflector in its place.
#[test]
fn r06_a_client_without_sessions_stops_no_repair() {
    let (set, mut stage) = converged(&json!({}));
    stage.edit("n0", |speaker| speaker.readiness = Readiness::NotReady(Some(0)));
    let mut seen = observed(&set, &stage);
    let mut counted = healthy(&seen, 1.0);
    counted.nodes.get_mut("n1").unwrap().established = Some(1);
    counted.nodes.get_mut("n5").unwrap().established = Some(0);
    seen.measured = Some(Ok(Arc::new(counted)));
    let (step, _) = plan(&set, &seen).unwrap().desired.step.unwrap();
    assert!(step.repairs(), "{step}");
    // It is demoted only when sessions are counted.
    stage.take(&step, (KEY, ""), "main");
    let mut seen = observed(&set, &stage);
    seen.measured = Some(Err("away".into()));
    assert_eq!(word(&plan(&set, &seen).unwrap().desired), None);
}

/// There Calico's BGP is not BIRD's.
#[test]
fn r07_a_windows_node_reflects_nothing() {
    let set = set(&json!({}));
    let mut stage = mesh();
    stage.edit("n0", |speaker| {
        speaker.labels =
            texts(&[("kubernetes.io/os", "windows"), ("topology.kubernetes.io/zone", "a")]);
    });
    let way = simulate(&set, &mut stage, None, Arc::default(), now()).unwrap();
    let reflectors: Vec<_> = way.reflectors.iter().map(|reflector| &*reflector.node).collect();
    assert_eq!(reflectors, ["n1", "n2"]);
}

/// Growing is no repair: while nobody can count, nobody is promoted into a slot that is new.
#[test]
fn r13_nobody_is_promoted_blindly_into_a_new_slot() {
    let (mut set, stage) = converged(&json!({}));
    (set.spec.count.min, set.spec.count.max) = (4, 4);
    let mut seen = observed(&set, &stage);
    seen.memory.last_step = Some(ago(10_000));
    seen.measured = Some(Err("away".into()));
    assert_eq!(word(&plan(&set, &seen).unwrap().desired), None);
    seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
    assert_eq!(word(&plan(&set, &seen).unwrap().desired), Some("Promote"));
}

/// Topology Multi where the loss of one would cost routes: Simple serves, and Ready says so.
#[test]
fn r01_multi_that_does_not_hold_is_simple_with_a_sentence() {
    let set = set(&json!({"topology": "Multi", "count": {"min": 4, "max": 4}}));
    let mut stage = mesh();
    let way = simulate(&set, &mut stage, None, Arc::default(), now()).unwrap();
    assert_eq!((way.refused, way.topology), (None, "Simple"));
    let ready = plan(&set, &observed(&set, &stage)).unwrap();
    let (reason, text) = condition(&ready, "Ready");
    assert_eq!(reason, "Adjusted");
    assert!(
        text.contains("; topology Simple is used in place of Multi: with one cluster id"),
        "{text}"
    );
}

/// A round that would fill tables as a whole is done in parts.
#[test]
fn r10_a_round_that_is_refused_is_taken_one_by_one() {
    let set = set(&json!({"topology": "Zonal", "count": {"min": 12, "max": 12}}));
    let mut stage = mesh();
    let template = stage.speakers[0].clone();
    stage.speakers = (0..48_u8)
        .map(|i| Speaker {
            name: format!("n{i:02}").into(),
            labels: texts(&[("topology.kubernetes.io/zone", ["a", "b", "c"][usize::from(i % 3)])]),
            calico: texts(&[("projectcalico.org/IPv4Address", &format!("10.0.0.{}/24", i + 1))]),
            ..template.clone()
        })
        .collect();
    let way = simulate(&set, &mut stage, None, Arc::default(), now()).unwrap();
    assert_eq!((way.refused, way.topology), (None, "Zonal"));
    let seen = observed(&set, &stage);
    let (_, bgp) = seen.bgp.as_ref().unwrap();
    let settings = Settings::of(&set).unwrap();
    let decision = decide(&set, &seen, &settings, bgp).unwrap();
    let first = decision.target.slots[0].clone();
    let taken: BTreeSet<_> = decision.target.slots.iter().map(|slot| &slot.node).collect();
    let free = stage.speakers.iter().map(|speaker| &speaker.name);
    let free = free.filter(|node| !taken.contains(node) && bgp.zone(node) == first.zone.as_ref());
    let slots: Vec<_> = free
        .zip(100..104)
        .map(|(node, id)| Slot { id, node: Arc::clone(node), ..first.clone() })
        .collect();
    assert_eq!(slots.len(), 4);
    let round = Step::Promote { why: Why::Promote, slots: slots.clone() };
    let next = next::choose(bgp, &decision.goal, &[round], None, |_| Ok(()));
    let one = Step::Promote { why: Why::Promote, slots: slots[..1].to_vec() };
    assert_eq!(next, Next::Take(one));
}

/// The pods of Calico's API server may need the very route that a repair brings back.
#[test]
fn r08_a_dead_reflector_is_replaced_while_calicos_api_is_down_and_peers_wait() {
    let (set, mut stage) = converged(&json!({}));
    let stale = Stale { since: Some(ago(3600)), why: "503".into() };
    stage.snapshot.stale = Some(stale);
    stage.edit("n0", |node| node.readiness = Readiness::NotReady(Some(1_000_000 - 600)));
    let mut seen = observed(&set, &stage);
    seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
    let repair = plan(&set, &seen).unwrap();
    assert_eq!(word(&repair.desired), Some("Promote"));
    let ready = repair.conditions.iter().find(|c| c.type_ == "Ready").unwrap();
    assert_eq!((ready.status, ready.reason), (None, "DatastoreUnreachable"));
    let text = "Calico's API does not answer (503); only Nodes are written until it does, by what \
                was read at 12:46 UTC on 1970-01-12";
    assert_eq!(ready.message, text);

    stage.edit("n0", |node| node.readiness = Readiness::Ready);
    stage.snapshot.peers.retain(|peer| peer.name != "rrs-to-rrs");
    let mut seen = observed(&set, &stage);
    seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
    let waits = plan(&set, &seen).unwrap();
    assert_eq!(word(&waits.desired), None);
    let (reason, message) = condition(&waits, "Converged");
    assert_eq!(reason, "DatastoreUnreachable");
    assert!(message.ends_with(text), "{message}");
    assert_eq!(waits.period, PERIOD);
    stage.snapshot.stale = None;
    assert_eq!(word(&plan(&set, &observed(&set, &stage)).unwrap().desired), Some("WritePeer"));
}

#[test]
fn r16_what_the_mesh_alone_can_have_is_refused_before_anything_is_written() {
    let set = set(&json!({}));
    let mut stage = mesh();
    stage.snapshot.only_of_mesh = vec!["nodeMeshKeepalive".into()];
    let refused = plan(&set, &observed(&set, &stage)).unwrap();
    assert_eq!(word(&refused.desired), None);
    let (reason, message) = condition(&refused, "Ready");
    assert_eq!(reason, "PlanRefused");
    assert!(message.contains("spec.nodeMeshKeepalive of BGPConfiguration default"), "{message}");
    // The mesh stays: nothing is lost.
    let mut leave = set;
    leave.spec.mesh = crate::api::route_reflector_set::Mesh::Leave;
    assert!(plan(&leave, &observed(&leave, &stage)).unwrap().desired.step.is_some());
}
