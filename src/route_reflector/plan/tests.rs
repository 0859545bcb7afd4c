//! One pass: the step taken, the one that waits, and the reports.
use serde_json::{Value, json};

use super::*;
use crate::{
    nodes::{Incarnation, Texts},
    route_reflector::{
        cleanup::restore,
        datastore::{CalicoPeer, Snapshot, Stale},
        dry_run::{Stage, simulate},
        election::Slot,
        gate::Counted,
        memory::seconds,
    },
};

const KEY: &str = "calico-route-reflector";

fn texts(texts: &[(&str, &str)]) -> Texts {
    texts.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

/// Six nodes in a mesh.
fn mesh() -> Stage {
    let speakers = (0..6_i64).map(|i| Speaker {
        name: format!("n{i}").into(),
        incarnation: Incarnation { uid: 100 + i.unsigned_abs(), created: i },
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
    serde_json::from_value(json!({"metadata": {"name": "main"}, "spec": all})).unwrap()
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
        misconfigured: None,
        speakers: stage.speakers.clone(),
        bgp: Ok((Arc::new(stage.snapshot.clone()), bgp)),
        fitness: None,
        measured: None,
        busy: BTreeMap::new(),
        memory: Memory { last_step: Some(ago(60)), ..Memory::default() },
    }
}

/// Returns the answer of a healthy network, `age` seconds ago.
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

mod busy;
mod half_written;
mod others;
mod repair;
mod reports;
mod retire;

#[test]
fn a_converged_set_has_nothing_to_do_and_reports_it() {
    let (set, stage) = converged(&json!({}));
    let plan = plan(&set, &observed(&set, &stage)).unwrap();
    assert_eq!(word(&plan.desired), None);
    assert_eq!(condition(&plan, "Converged").0, "Converged");
    assert_eq!(condition(&plan, "RoutesSafe").0, "Redundant");
    assert_eq!(condition(&plan, "Ready").1, "2 reflectors in topology Simple");
    let status = &plan.status;
    assert_eq!(status.mesh.as_deref(), Some("Off"));
    assert_eq!((status.desired, status.ready, status.slots.len()), (2, 2, 2));
    assert_eq!(plan.period, PERIOD);
    assert!(plan.notices.is_empty());
}

/// Takes the first two steps: the peers, and the first reflector.
fn begin(set: &RouteReflectorSet, stage: &mut Stage) {
    for _ in 0..2 {
        let (step, _) = plan(set, &observed(set, stage)).unwrap().desired.step.unwrap();
        stage.take(&step, (KEY, ""), "main");
    }
}

#[test]
fn a_step_waits_for_the_sessions_of_the_one_before() {
    let set = set(&json!({}));
    let mut stage = mesh();
    begin(&set, &mut stage);
    let mut seen = observed(&set, &stage);
    // The state is unknown.
    seen.measured = Some(Err("connection refused".into()));
    let blind = plan(&set, &seen).unwrap();
    assert_eq!(word(&blind.desired), None);
    let (reason, message) = condition(&blind, "Converged");
    assert_eq!(reason, "GateUnavailable");
    assert_eq!(message, "promoting n1: sessions cannot be counted: connection refused");
    assert_eq!(blind.period, TRY);
    assert_eq!(blind.status.plan[0].step, "Promote");
    assert!(blind.status.plan[0].waiting_for.is_some());
    // Samples from before the step.
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
    assert_eq!(word(&late.desired), None, "no step is taken");
    // All there.
    seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
    let next = plan(&set, &seen).unwrap();
    assert_eq!(word(&next.desired), Some("Promote"));
    let (reason, message) = condition(&next, "Converged");
    assert_eq!(reason, "Promoting", "the reason is the activity");
    assert!(message.starts_with("promoting n1; ") && message.ends_with(" steps are left"));
    assert_eq!(next.desired.memory.unwrap().shut_since, None);
}

/// No eligible node does not mean that no reflector is wanted.
#[test]
fn no_candidate_freezes_everything() {
    let (set, mut stage) = converged(&json!({}));
    for speaker in &mut stage.speakers {
        speaker.cordoned = true;
    }
    let frozen = plan(&set, &observed(&set, &stage)).unwrap();
    assert_eq!(word(&frozen.desired), None);
    assert_eq!(condition(&frozen, "Ready").0, "NoCandidates");
    assert_eq!((frozen.status.desired, condition(&frozen, "Converged").0), (2, "Frozen"));
    assert!(frozen.status.plan.is_empty());
    assert_eq!(frozen.notices[0].reason, "NoCandidates");
}

#[test]
fn why_no_node_is_eligible_is_counted() {
    let set = set(&json!({"candidates": {
        "nodeSelector": {"matchExpressions": [{"key": "no", "operator": "DoesNotExist"}]},
        "forbidden": {"matchLabels": {"db": ""}},
    }}));
    let mut stage = mesh();
    let mut numbers = 0..6;
    let mut edit = |edit: fn(&mut Speaker)| {
        stage.edit(&format!("n{}", numbers.next().unwrap()), edit);
    };
    edit(|node| node.readiness = Readiness::NotReady(None));
    edit(|node| node.cordoned = true);
    edit(|node| {
        let (key, effect) = ("node.kubernetes.io/disk-pressure".into(), "NoSchedule".into());
        node.taints = [crate::nodes::Taint { key, value: "".into(), effect }].into();
    });
    edit(|node| node.calico = texts(&[("projectcalico.org/ASNumber", "65000")]));
    edit(|node| node.calico = texts(&[]));
    edit(|node| node.labels = texts(&[("kubernetes.io/os", "windows")]));
    let frozen = |stage: &Stage| {
        let plan = plan(&set, &observed(&set, stage)).unwrap();
        assert_eq!(plan.notices[0].note, condition(&plan, "Ready").1);
        let run = simulate(&set, &mut stage.clone(), None, Arc::default(), now()).unwrap();
        let why = run.refused.unwrap();
        assert_eq!(condition(&plan, "Ready").1, format!("{why}; everything stays as it is"));
        why
    };
    let all = "no node is eligible as a reflector (of 6 nodes 1 NotReady, 1 cordoned, 1 of Windows, \
               1 of another AS, 1 with taint node.kubernetes.io/disk-pressure, \
               1 without an address in BGP)";
    assert_eq!(frozen(&stage), all);
    for node in ["n0", "n1", "n2", "n3"] {
        let label = if node == "n0" { "no" } else { "db" };
        stage.edit(node, |speaker| speaker.labels = texts(&[(label, "")]));
    }
    let selected = "(of 6 nodes 3 forbidden by candidates.forbidden, 1 not selected by \
                    candidates.nodeSelector, 1 of Windows, 1 without an address in BGP)";
    let found = frozen(&stage);
    assert!(found.ends_with(selected), "{found}");
    stage.speakers.clear();
    assert!(frozen(&stage).ends_with("(there are no nodes)"));
}

/// Some installations keep their reflectors cordoned for ever.
#[test]
fn a_cordoned_reflector_stays_where_its_taint_is_tolerated() {
    let tolerations = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
    for (tolerations, stays) in [(tolerations, true), (json!([]), false)] {
        let (set, mut stage) = converged(&json!({"candidates": {"tolerations": tolerations}}));
        stage.edit("n0", |speaker| speaker.cordoned = true);
        let plan = plan(&set, &observed(&set, &stage)).unwrap();
        assert_eq!(condition(&plan, "Converged").0 == "Converged", stays);
        assert_eq!(plan.status.slots[0].leaving.is_none(), stays);
    }
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
    assert!(!seen.status.plan.is_empty(), "but the status has the plan");
    let paused = set(&json!({"paused": true}));
    let seen = plan(&paused, &observed(&paused, &stage)).unwrap();
    assert_eq!((word(&seen.desired), condition(&seen, "Converged").0), (None, "Paused"));
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

/// The remains of the original operator are adopted unchanged.
#[test]
fn reflectors_of_the_original_are_adopted_without_a_change_of_sessions() {
    let set = set(&json!({"clusterID": {"pool": "224.0.0.0/16"}}));
    let mut stage = mesh();
    for node in ["n3", "n4"] {
        stage.edit(node, |speaker| {
            speaker.labels =
                texts(&[("topology.kubernetes.io/zone", "a"), ("calico-route-reflector", "")]);
            let address = speaker.calico.get("projectcalico.org/IPv4Address").unwrap().clone();
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

/// In that mode, Calico's BGP is not BIRD's.
#[test]
fn a_windows_node_reflects_nothing() {
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

/// Topology Multi if the loss of one would cost routes: Simple serves, and Ready reports this.
#[test]
fn multi_that_does_not_hold_is_simple_with_a_sentence() {
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
fn a_round_that_is_refused_is_taken_one_by_one() {
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
    let next = steps::choose(bgp, &decision.goal, &[round], None, |_| Ok(()));
    let one = Step::Promote { why: Why::Promote, slots: slots[..1].to_vec() };
    assert_eq!(next, Next::Take(one));
}

#[test]
fn what_the_mesh_alone_can_have_is_refused_before_anything_is_written() {
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

/// Each new leader would report that the mesh is off and every route is there.
#[test]
fn what_is_refused_has_its_figures_and_what_is_not_decided_has_none() {
    let set = set(&json!({}));
    let mut stage = mesh();
    stage.snapshot.only_of_mesh = vec!["nodeMeshKeepalive".into()];
    let refused = plan(&set, &observed(&set, &stage)).unwrap();
    let memory = refused.desired.memory.unwrap();
    assert!(memory.figures.as_ref().is_some_and(|figures| figures.mesh));
    // While it is paused they stay, and a new leader has none.
    let mut paused = set;
    paused.spec.paused = true;
    let mut seen = observed(&paused, &stage);
    let none = plan(&paused, &seen).unwrap().desired.memory.unwrap();
    assert!(none.figures.is_none());
    seen.memory = memory;
    let kept = plan(&paused, &seen).unwrap().desired.memory.unwrap();
    assert!(kept.figures.is_some_and(|figures| figures.mesh));
}
