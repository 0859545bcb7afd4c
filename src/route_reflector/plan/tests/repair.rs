//! Reflectors that are dead, unfit or silent.
use super::*;

#[test]
fn a_dead_reflector_gets_a_successor_at_once_even_when_nobody_can_count() {
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
    // The operator waits for nothing from a client.
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

/// The labels of a reflector are removed by hand; until the gate lets it have them again, it keeps
/// its slot.
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
        // Sessions cannot be counted.
        seen.measured = Some(Err("refused".into()));
        let plan = plan(&set, &seen).unwrap();
        assert_eq!(slots(&plan.status), before);
        set.status = Some(plan.status);
    }
}

/// The spec is impossible: the topology in use is kept up, and its dead are replaced.
#[test]
fn a_topology_that_is_refused_stops_no_repair() {
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
fn a_client_without_sessions_stops_no_repair() {
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

/// Growing is no repair: while sessions cannot be counted, no node is promoted into a new slot.
#[test]
fn nobody_is_promoted_blindly_into_a_new_slot() {
    let (mut set, stage) = converged(&json!({}));
    (set.spec.count.min, set.spec.count.max) = (4, 4);
    let mut seen = observed(&set, &stage);
    seen.memory.last_step = Some(ago(10_000));
    seen.measured = Some(Err("away".into()));
    assert_eq!(word(&plan(&set, &seen).unwrap().desired), None);
    seen.measured = Some(Ok(Arc::new(healthy(&seen, 1.0))));
    assert_eq!(word(&plan(&set, &seen).unwrap().desired), Some("Promote"));
}

/// The pods of Calico's API server may need the very route that a repair restores.
#[test]
fn a_dead_reflector_is_replaced_while_calicos_api_is_down_and_peers_wait() {
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

/// Twelve nodes, and this many reflectors.
fn zonal(count: usize, zone: fn(u8) -> &'static str) -> (RouteReflectorSet, Stage) {
    let mut set = set(&json!({"topology": "Zonal", "count": {"min": count, "max": count}}));
    let mut stage = mesh();
    let template = stage.speakers[0].clone();
    stage.speakers = (10..22_u8)
        .map(|i| Speaker {
            name: format!("n{i}").into(),
            incarnation: Incarnation { uid: i.into(), created: i.into() },
            labels: texts(&[("topology.kubernetes.io/zone", zone(i - 10))]),
            calico: texts(&[("projectcalico.org/IPv4Address", &format!("10.0.0.{i}/24"))]),
            ..template.clone()
        })
        .collect();
    let way = simulate(&set, &mut stage, None, Arc::default(), now()).unwrap();
    assert_eq!((way.refused, way.topology), (None, "Zonal"));
    set.status = Some(plan(&set, &observed(&set, &stage)).unwrap().status);
    (set, stage)
}

fn reflecting(stage: &Stage) -> Vec<String> {
    let bgp = stage.bgp((KEY, "topology.kubernetes.io/zone"), "main");
    bgp.reflectors().map(|(node, _)| node.to_string()).collect()
}

/// Zone a has three nodes, all of which reflect.
#[test]
fn a_reflector_replaced_in_another_zone_is_demoted_last_and_its_successor_waits_for_the_gate() {
    let zone = |i| if i < 3 { "a" } else { "b" };
    let (mut set, mut stage) = zonal(5, zone);
    assert_eq!(reflecting(&stage), ["n10", "n11", "n12", "n13", "n14"]);
    let look = |set: &RouteReflectorSet, stage: &Stage, counted: bool| {
        let mut seen = observed(set, stage);
        let healthy = Ok(Arc::new(healthy(&seen, 1.0)));
        seen.measured = Some(if counted { healthy } else { Err("away".into()) });
        plan(set, &seen).unwrap()
    };
    stage.edit("n10", |speaker| speaker.cordoned = true);
    let mut words = vec![];
    while let Some((step, _)) = look(&set, &stage, true).desired.step {
        let blind = look(&set, &stage, false);
        assert_eq!(blind.desired.step.is_none(), step.needs_gate(), "{step}");
        assert!(!step.repairs() && words.len() < 10, "{step} after {words:?}");
        set.status = Some(blind.status);
        stage.take(&step, (KEY, ""), "main");
        words.push(step.word());
    }
    words.retain(|word| *word != "WritePeer");
    assert_eq!(words, ["Promote", "Demote"]);
    assert_eq!(reflecting(&stage), ["n11", "n12", "n13", "n14", "n15"]);
    // A node that is up and lost its labels, and is replaced elsewhere, is no dead reflector.
    let (set, mut stage) = zonal(5, zone);
    stage.edit("n10", |speaker| {
        speaker.cordoned = true;
        speaker.labels = texts(&[("topology.kubernetes.io/zone", "a")]);
        speaker.calico = texts(&[("projectcalico.org/IPv4Address", "10.0.0.10/24")]);
    });
    let mut blind = vec![];
    while let Some((step, _)) = look(&set, &stage, false).desired.step {
        stage.take(&step, (KEY, ""), "main");
        blind.push(step.word());
        assert!(blind.len() < 10, "{blind:?}");
    }
    assert!(!blind.contains(&"Promote"), "{blind:?}");
    assert_eq!(word(&look(&set, &stage, true).desired), Some("Promote"));
}

/// The spec of a running topology Zonal asks for an id for each slot.
#[test]
fn ids_that_are_refused_stop_no_repair() {
    use crate::route_reflector::election::IdScope;
    let (mut set, mut stage) = zonal(6, |i| ["a", "b", "c"][usize::from(i % 3)]);
    set.spec.cluster_id.per = Some(IdScope::Slot);
    let refused = plan(&set, &observed(&set, &stage)).unwrap();
    let (reason, text) = condition(&refused, "Ready");
    assert_eq!(reason, "PlanRefused");
    assert!(text.starts_with("spec.clusterID.per: Slot needs 6"), "{text}");
    assert!(text.ends_with("; topology Zonal is kept, and repaired"), "{text}");
    assert_eq!(word(&refused.desired), None);
    let dead = reflecting(&stage).swap_remove(0);
    stage.edit(&dead, |speaker| speaker.readiness = Readiness::NotReady(Some(0)));
    assert_eq!(word(&plan(&set, &observed(&set, &stage)).unwrap().desired), Some("Promote"));
}

/// The label of reflectors is removed by hand from all of them: `has(label)` selects none, and
/// zones are cut off.
#[test]
fn reflectors_that_lost_only_their_label_get_it_again_even_when_nobody_can_count() {
    let (set, mut stage) = zonal(4, |i| if i < 6 { "a" } else { "b" });
    let reflectors = reflecting(&stage);
    for node in &reflectors {
        stage.edit(node, |speaker| {
            let kept = speaker.labels.iter().filter(|(key, _)| ***key != *KEY);
            let kept = kept.map(|(key, value)| (Arc::clone(key), Arc::clone(value)));
            speaker.labels = kept.collect();
        });
    }
    assert_eq!(reflecting(&stage), reflectors);
    for _ in &reflectors {
        let mut seen = observed(&set, &stage);
        seen.measured = Some(Err("away".into()));
        let (step, _) = plan(&set, &seen).unwrap().desired.step.unwrap();
        assert!(step.repairs(), "{step}");
        stage.take(&step, (KEY, ""), "main");
    }
    assert_eq!(word(&plan(&set, &observed(&set, &stage)).unwrap().desired), None);
}

/// A mistake in the fields of the gate: dead reflectors are replaced, and nothing else is done.
#[test]
fn an_invalid_gate_stops_no_repair() {
    let text = "spec.transition.prometheus: no endpoint";
    let look = |set: &RouteReflectorSet, stage: &Stage| {
        let mut seen = observed(set, stage);
        seen.misconfigured = Some(text.into());
        seen.measured = Some(Err(text.into()));
        let plan = plan(set, &seen).unwrap();
        assert_eq!(condition(&plan, "Ready"), ("InvalidSpec", text));
        assert!(plan.notices.iter().any(|notice| notice.reason == "InvalidSpec"));
        plan
    };
    // Nothing is in use, and with these zones nothing can be.
    for spec in [json!({}), json!({"topology": "Zonal", "zoneLabel": "rack"})] {
        let fresh = look(&set(&spec), &mesh());
        assert_eq!(word(&fresh.desired), None);
        assert_eq!(condition(&fresh, "Converged").0, "Frozen");
    }
    let (mut set, mut stage) = converged(&json!({}));
    let idle = look(&set, &stage);
    assert_eq!(word(&idle.desired), None);
    let converged = condition(&idle, "Converged");
    assert_eq!(converged, ("Frozen", "only dead reflectors are replaced; see Ready"));
    (set.spec.count.min, set.spec.count.max) = (4, 4);
    assert_eq!(word(&look(&set, &stage).desired), None, "growing is no repair");
    stage.edit("n0", |speaker| speaker.readiness = Readiness::NotReady(Some(0)));
    let (step, _) = look(&set, &stage).desired.step.unwrap();
    assert!(step.repairs(), "{step}");
    set.spec.paused = true;
    let mut seen = observed(&set, &stage);
    seen.misconfigured = Some(text.into());
    assert!(matches!(plan(&set, &seen), Err(Error::Invalid(said)) if said == text));
}

/// Otherwise a new machine would reflect because of the one whose name it has.
#[test]
fn a_step_is_about_the_nodes_that_were_seen_and_not_their_successors() {
    let (set, mut stage) = converged(&json!({}));
    stage.speakers.retain(|speaker| &*speaker.name != "n0");
    let seen = observed(&set, &stage);
    let (_, writes) = plan(&set, &seen).unwrap().desired.step.unwrap();
    let mut nodes = 0;
    for write in &writes {
        let Write::Node(write) = write else { continue };
        let speaker = seen.speakers.iter().find(|speaker| speaker.name == write.node).unwrap();
        assert_eq!(write.decided, Some(speaker.incarnation), "{}", write.node);
        nodes += 1;
    }
    assert_eq!(nodes, 1, "{writes:?}");
}
