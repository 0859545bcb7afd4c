//! With etcd, a mark is two writes: first Calico's Node, then Kubernetes'. A process may end
//! between the two.
use super::*;
use crate::{
    api::{CLUSTER_ID_ANNOTATION, GROUP_LABEL, SLOT_LABEL},
    route_reflector::dry_run::Stage,
};

/// Six nodes in a mesh, each of which also is a Node of Calico's.
fn etcd() -> Stage {
    let mut stage = mesh();
    stage.snapshot.flavor = "etcd";
    copied(&mut stage);
    stage
}

/// Calico's Nodes get the labels of Kubernetes'.
fn copied(stage: &mut Stage) {
    let labels = stage.speakers.iter().map(|one| (Arc::clone(&one.name), one.labels.clone()));
    stage.snapshot.labels = Some(labels.collect());
}

/// Both writes.
fn whole(stage: &mut Stage, step: &Step) {
    stage.take(step, (KEY, ""), "main");
    copied(stage);
}

/// Calico's alone.
fn half(stage: &mut Stage, step: &Step) {
    let before = stage.speakers.clone();
    whole(stage, step);
    stage.speakers = before;
}

/// Kubernetes' Node gets the labels that a plan writes, and nothing else.
fn written(stage: &mut Stage, desired: &Desired) {
    let (step, writes) = desired.step.as_ref().unwrap();
    whole(stage, step);
    for write in writes {
        let Write::Node(node) = write else { continue };
        let there = stage.speakers.iter().find(|speaker| speaker.name == node.node).unwrap();
        for (key, value) in &node.labels {
            assert_eq!(there.labels.get(key), value.as_ref(), "{key}");
        }
    }
}

fn measured(set: &RouteReflectorSet, stage: &Stage) -> Observed {
    let mut seen = observed(set, stage);
    seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
    seen
}

/// The set and its network, with both reflectors.
fn migrated(spec: &Value) -> (RouteReflectorSet, Stage) {
    let (mut set, mut stage) = (set(spec), etcd());
    for _ in 0..20 {
        let plan = plan(&set, &measured(&set, &stage)).unwrap();
        set.status = Some(plan.status);
        let Some((step, _)) = plan.desired.step else { return (set, stage) };
        whole(&mut stage, &step);
    }
    panic!("no end");
}

fn differing(set: &RouteReflectorSet, stage: &Stage) -> Vec<String> {
    let (_, bgp) = observed(set, stage).bgp.unwrap();
    bgp.differing().map(ToString::to_string).collect()
}

/// The gate was never asked, because no node counted as a reflector, and never opened, because one
/// node was expected to have sessions.
#[test]
fn a_half_written_promotion_is_completed_without_any_gate() {
    let set = set(&json!({}));
    let mut stage = etcd();
    let (peers, _) = plan(&set, &observed(&set, &stage)).unwrap().desired.step.unwrap();
    whole(&mut stage, &peers);
    assert!(questions(&set, &observed(&set, &stage), false).sessions.is_none());
    let (promotion, _) = plan(&set, &observed(&set, &stage)).unwrap().desired.step.unwrap();
    half(&mut stage, &promotion);
    assert_eq!(differing(&set, &stage), ["n0"]);
    // What the gate expects is what is counted.
    let seen = observed(&set, &stage);
    assert!(questions(&set, &seen, false).sessions.is_some());
    let next = plan(&set, &seen).unwrap();
    assert_eq!(word(&next.desired), Some("Adopt"));
    written(&mut stage, &next.desired);
    assert_eq!(differing(&set, &stage), Vec::<String>::new());
    assert_eq!(
        plan(&set, &observed(&set, &stage)).unwrap().status.plan[0].node.as_deref(),
        Some("n1")
    );
}

#[test]
fn a_half_written_demotion_is_completed() {
    let (mut set, mut stage) = migrated(&json!({}));
    stage.edit("n0", |speaker| speaker.cordoned = true);
    let successor = plan(&set, &measured(&set, &stage)).unwrap();
    set.status = Some(successor.status);
    whole(&mut stage, &successor.desired.step.unwrap().0);
    let (demotion, _) = plan(&set, &measured(&set, &stage)).unwrap().desired.step.unwrap();
    assert_eq!(demotion.word(), "Demote");
    half(&mut stage, &demotion);
    let next = plan(&set, &measured(&set, &stage)).unwrap();
    assert_eq!(next.desired.step.as_ref().map(|(step, _)| step), Some(&demotion));
    written(&mut stage, &next.desired);
    assert_eq!(differing(&set, &stage), Vec::<String>::new());
    assert_eq!(word(&plan(&set, &measured(&set, &stage)).unwrap().desired), None);
}

#[test]
fn a_deletion_leaves_nothing_of_a_half_written_step() {
    let spec = json!({"deletionPolicy": "RestoreMesh"});
    let promoting = |stage: &mut Stage, set: &RouteReflectorSet| {
        for step in 0..2 {
            let (next, _) = plan(set, &observed(set, stage)).unwrap().desired.step.unwrap();
            let write = if step == 0 { whole } else { half };
            write(stage, &next);
        }
    };
    let demoting = |stage: &mut Stage, set: &RouteReflectorSet| {
        let Desired { step, .. } = restore(set, &measured(set, stage)).unwrap().desired.unwrap();
        whole(stage, &step.unwrap().0);
        let Desired { step, .. } = restore(set, &measured(set, stage)).unwrap().desired.unwrap();
        half(stage, &step.unwrap().0);
    };
    let (promoted, demoted) = ((set(&spec), etcd()), migrated(&spec));
    for ((set, mut stage), write) in
        [(promoted, &promoting as &dyn Fn(&mut _, &_)), (demoted, &demoting)]
    {
        write(&mut stage, &set);
        assert!(!differing(&set, &stage).is_empty());
        for _ in 0..20 {
            let restore = restore(&set, &measured(&set, &stage)).unwrap();
            let Some((step, _)) = restore.desired.and_then(|desired| desired.step) else { break };
            whole(&mut stage, &step);
        }
        assert!(restore(&set, &measured(&set, &stage)).unwrap().end.is_ok());
        assert_eq!(stage.snapshot.cluster_ids.len(), 0);
        let ours = [KEY, SLOT_LABEL, GROUP_LABEL];
        let has = |speaker: &Speaker| ours.iter().any(|key| speaker.labels.get(key).is_some());
        assert!(!stage.speakers.iter().any(has));
        assert_eq!(differing(&set, &stage), Vec::<String>::new());
    }
}

#[test]
fn a_label_of_reflectors_keeps_its_value_where_another_label_differs() {
    let (set, mut stage) = migrated(&json!({}));
    stage.edit("n0", |speaker| {
        speaker.labels = texts(&[(KEY, "yes"), (SLOT_LABEL, "0")]);
    });
    copied(&mut stage);
    stage.edit("n0", |speaker| speaker.labels = texts(&[(KEY, "yes"), (SLOT_LABEL, "7")]));
    let next = plan(&set, &measured(&set, &stage)).unwrap();
    assert_eq!(word(&next.desired), Some("Adopt"));
    let (step, writes) = next.desired.step.unwrap();
    let Write::Node(node) = &writes[0] else { panic!("{writes:?}") };
    assert!(node.labels.iter().all(|(key, _)| &**key != KEY), "{node:?}");
    whole(&mut stage, &step);
    assert_eq!(word(&plan(&set, &measured(&set, &stage)).unwrap().desired), None);
    // One that Kubernetes' Node lacks is written.
    stage.edit("n0", |speaker| speaker.labels = texts(&[(SLOT_LABEL, "0")]));
    let next = plan(&set, &measured(&set, &stage)).unwrap();
    assert_eq!(word(&next.desired), Some("Adopt"));
    written(&mut stage, &next.desired);
    assert_eq!(differing(&set, &stage), Vec::<String>::new());
}

/// A cluster that had its data in Kubernetes before keeps the annotations of that time.
#[test]
fn an_annotation_that_another_datastore_left_is_no_cluster_id() {
    let id = |flavor| {
        let mut stage = if flavor == "etcd" { etcd() } else { mesh() };
        stage.edit("n0", |speaker| {
            speaker.labels = texts(&[(KEY, "")]);
            speaker.calico = texts(&[(CLUSTER_ID_ANNOTATION, "224.0.0.1")]);
        });
        if flavor == "etcd" {
            copied(&mut stage);
        }
        let (_, bgp) = observed(&set(&json!({})), &stage).bgp.unwrap();
        (bgp.nodes["n0"].labels.cluster_id, bgp.nodes["n0"].labels.is_reflector())
    };
    assert_eq!(id("etcd"), (None, false));
    assert_eq!(id("kubernetes"), (Some([224, 0, 0, 1].into()), true));
}
