//! Judgments while something else than the network is broken.
use serde_json::json;

use super::*;
use crate::controller::contest::Rounds;

fn busy_and_calm() -> World {
    let mut w = World::new(&["a", "b"], json!({}));
    for _ in 0..2 {
        w.judge(&[Percent(99.0), Percent(1.0)]);
    }
    assert_eq!((w.label("a"), w.label("b")), (Some("true"), Some("false")));
    w
}

fn evicting() -> World {
    let deployment = json!({
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}
    });
    let spec = json!({"deployment": deployment, "eviction": {"after": "20s"}});
    let mut w = World::new(&["a", "b", "c"], spec);
    let pod = |name: &str| PodFacts {
        name: name.into(),
        uid: name.into(),
        node: Some("a".into()),
        created: 0,
        ready: true,
        terminating: false,
    };
    w.pods = Some(["p", "q", "r"].map(pod).into());
    w.replicas = Some((3, 3));
    w
}

const BUSY: [Says; 3] = [Percent(99.0), Percent(1.0), Percent(1.0)];

/// A quota, a webhook or a controller manager that is down: the replacement never comes.
#[test]
fn eviction_ends_with_the_first_pod_that_is_not_replaced() {
    let mut w = evicting();
    let mut evicted = vec![];
    for _ in 0..30 {
        for pod in w.judge(&BUSY).evicted {
            w.pods.as_mut().unwrap().retain(|p| p.name != pod);
            w.replicas = Some((3, i32::try_from(w.pods.as_ref().unwrap().len()).unwrap()));
            evicted.push(pod);
        }
    }
    assert_eq!(evicted, ["p"]);
    // The replacement comes after all.
    let fresh = PodFacts {
        name: "s".into(),
        node: Some("b".into()),
        ..w.pods.as_ref().unwrap()[0].clone()
    };
    w.pods.as_mut().unwrap().push(fresh);
    w.replicas = Some((3, 3));
    assert_eq!(w.judge(&BUSY).evicted, ["q"]);
}

#[test]
fn without_a_deployment_of_ours_nothing_is_evicted() {
    let mut w = evicting();
    w.replicas = None;
    for _ in 0..9 {
        assert!(w.judge(&BUSY).evicted.is_empty());
    }
}

#[test]
fn a_fit_node_that_can_take_no_pod_is_no_room_for_evicted_ones() {
    let mut w = evicting();
    w.away = ["b", "c"].map(Into::into).into();
    w.watch.spec.min_fit = serde_json::from_value(json!(0)).unwrap();
    for _ in 0..9 {
        assert!(w.judge(&BUSY).evicted.is_empty());
    }
    assert_eq!(w.label("a"), Some("true"));
    w.away.remove("b");
    assert_eq!(w.judge(&BUSY).evicted, ["p"]);
}

#[test]
fn a_mark_goes_when_the_last_fit_node_does() {
    let mut w = busy_and_calm();
    w.away.insert("b".into());
    let step = w.judge(&[Percent(99.0), Percent(1.0)]);
    assert_eq!(
        (step.writes, step.states),
        (vec![("a".into(), Some(false))], vec![Suppressed, Fit])
    );
    assert_eq!(step.conditions[2].reason, "LimitReached");
    // Nobody measured that it recovered.
    assert!(!step.notices.contains(&"NodeFit"), "{:?}", step.notices);
    assert!(step.notices.contains(&"NodeSuppressed"), "{:?}", step.notices);
    w.away.clear();
    w.judge(&[Percent(99.0), Percent(1.0)]);
    assert_eq!(w.label("a"), Some("true"));
    w.labels.remove("b");
    assert_eq!(w.judge(&[Percent(99.0)]).writes, [("a".into(), Some(false))]);
}

#[test]
fn max_unfit_zero_takes_every_mark_away() {
    let mut w = World::new(&["a", "b", "c", "d"], json!({}));
    let busy = [Percent(99.0), Percent(98.0), Percent(1.0), Percent(1.0)];
    w.judge(&busy);
    w.judge(&busy);
    w.watch.spec.max_unfit = serde_json::from_value(json!(0)).unwrap();
    // One of them is Unknown by now.
    let step = w.judge(&[Percent(99.0), Nothing, Percent(1.0), Percent(1.0)]);
    assert_eq!(step.states, [Suppressed, Unknown, Fit, Fit]);
    assert_eq!((w.label("a"), w.label("b")), (Some("false"), Some("false")));
    assert!(!w.node("b").unfit);
}

#[test]
fn a_live_node_is_marked_beside_one_that_fell_silent_with_its_mark() {
    let mut w = World::new(&["a", "b", "c"], json!({}));
    w.judge(&BUSY);
    w.judge(&BUSY);
    let step = [Nothing, Percent(95.0), Percent(1.0)];
    w.judge(&step);
    let step = w.judge(&step);
    assert_eq!(step.states, [Unknown, Unfit, Fit]);
    assert_eq!(
        (w.label("a"), w.label("b"), w.label("c")),
        (Some("true"), Some("true"), Some("false"))
    );
}

fn expiring(action: &str) -> World {
    let spec = json!({"onUnknown": {"after": "1m", "action": action}});
    let mut w = World::new(&["a", "b", "c", "d"], spec);
    w.judge(&[Percent(1.0); 4]);
    w.judge(&[Percent(1.0); 4]);
    w
}

/// All exporters are stale, or double: the samples are there, and prove nothing.
#[test]
fn a_broken_measurement_runs_no_clock() {
    for broken in [Old, NaN, NoSpeed] {
        let mut w = expiring("Unfit");
        for _ in 0..20 {
            let step = w.judge(&[broken, broken, broken, Percent(1.0)]);
            assert_eq!(step.writes, [], "{broken:?}");
            let metrics = &step.conditions[1];
            let said =
                metrics.message.contains("usable data") || metrics.message.contains("evidence");
            assert!(said, "{broken:?}: {metrics:?}");
        }
        assert_eq!(w.node("a").unknown_seconds, 0, "{broken:?}");
        // The other side of the rule: one broken node is that node's.
        let mut w = expiring("Unfit");
        for _ in 0..7 {
            w.judge(&[broken, Percent(1.0), Percent(1.0), Percent(1.0)]);
        }
        assert_eq!(w.label("a"), Some("true"), "{broken:?}");
    }
}

#[test]
fn stale_samples_of_most_nodes_are_low_coverage_with_their_reason() {
    let mut w = expiring("Hold");
    let step = w.judge(&[Old, Old, Old, Percent(99.0)]);
    assert_eq!(step.states, [Unknown; 4]);
    assert_eq!(
        (step.conditions[1].status, step.conditions[1].reason),
        (Some(false), "LowCoverage")
    );
    assert!(step.conditions[1].message.contains("3 stale"), "{:?}", step.conditions[1]);
    assert_eq!(w.node("a").reason.as_deref(), Some("StaleSample"));
    assert_eq!(w.node("d").reason.as_deref(), Some("LowCoverage"));
    // Nodes without a speed do not prevent the judgment of others.
    let mut w = expiring("Hold");
    let says = [NoSpeed, NoSpeed, NoSpeed, Percent(99.0)];
    w.judge(&says);
    assert_eq!(w.judge(&says).states, [Unknown, Unknown, Unknown, Unfit]);
}

#[test]
fn a_node_that_is_missing_in_a_partial_answer_has_no_clock() {
    for (warned, label) in [(true, "false"), (false, "true")] {
        let mut w = expiring("Unfit");
        for _ in 0..7 {
            w.next();
            let mut reading = w.reading(&[Nothing, Percent(1.0), Percent(1.0), Percent(1.0)]);
            if warned {
                reading.warnings = vec!["a store did not answer".into()];
            }
            w.pass(vec![Ok(reading)]);
        }
        assert_eq!(w.label("a"), Some(label), "warned: {warned}");
    }
}

#[test]
fn a_refused_deployment_is_tried_again_when_it_changes_and_after_some_time() {
    let mut w = evicting();
    w.replicas = None;
    w.judge(&BUSY);
    assert!(w.judge(&BUSY).deployment);
    assert!(!w.judge(&BUSY).deployment, "refused a moment ago");
    // A user created one, or changed it.
    w.replicas = Some((1, 1));
    assert!(w.judge(&BUSY).deployment);
    let refused = |w: &mut World| {
        let applied = w.memory.applied.as_mut().unwrap();
        let Outcome::Refused { there, .. } = &mut applied.outcome else { unreachable!() };
        *there = Some((String::new(), 0));
    };
    refused(&mut w);
    for _ in 0..17 {
        assert!(!w.judge(&BUSY).deployment);
    }
    assert!(w.judge(&BUSY).deployment, "three minutes later");
}

/// An autoscaler beside `spec.deployment.replicas`, or Argo CD, would otherwise be fought
/// at every pass.
#[test]
fn a_deployment_that_another_client_changes_again_and_again_is_left_alone_ever_longer() {
    let mut w = evicting();
    w.replicas = None;
    w.judge(&BUSY);
    assert!(w.judge(&BUSY).deployment);
    let hash = w.memory.applied.as_ref().unwrap().hash;
    let apply = |w: &mut World, restored: bool| {
        let outcome = Outcome::Accepted {
            uid: String::new(),
            generation: 1,
            restored,
            at: Timestamp::from_second(w.second).unwrap(),
            rounds: Rounds::default(),
            other: Some("kube-controller-manager (scale)".into()),
        };
        let mut applied = Applied { hash, outcome };
        let restored = w.memory.applied.as_ref().is_some_and(|last| applied.follows(last));
        w.memory.applied = Some(applied);
        restored
    };
    // Changes of what is not ours are no fight, however many there are.
    for _ in 0..9 {
        assert!(!apply(&mut w, false));
    }
    let step = w.judge(&BUSY);
    assert!(step.deployment && step.conditions[0].reason != "Contested");
    for _ in 0..3 {
        apply(&mut w, true);
    }
    let step = w.judge(&BUSY);
    let ready = &step.conditions[0];
    assert_eq!((ready.status, ready.reason), (None, "Contested"), "{ready:?}");
    assert!(ready.message.contains("kube-controller-manager (scale)"), "{ready:?}");
    assert!(step.notices.contains(&"Contested"), "{:?}", step.notices);
    for _ in 0..9 {
        apply(&mut w, true);
    }
    // Five minutes, at ten seconds a pass; one event for all of it.
    let quiet = (0..29).map(|_| w.judge(&BUSY));
    assert!(quiet.into_iter().all(|step| !step.deployment && !step.notices.contains(&"Contested")));
    assert!((0..3).any(|_| w.judge(&BUSY).deployment));
}

#[test]
fn a_node_that_cannot_be_written_waits_and_the_others_do_not() {
    let mut w = World::new(&["a", "b", "c"], json!({}));
    let failed = Arc::make_mut(&mut w.memory.failed);
    let why = Error::Pending("Forbidden", "patch node: no".into()).verdict();
    failed.take(&"b".into(), Some(why), Timestamp::from_second(w.second + 15).unwrap());
    assert_eq!(w.judge(&BUSY).writes, [("c".into(), Some(false))]);
    let step = w.judge(&BUSY);
    assert_eq!(step.writes, [("a".into(), Some(true))]);
    assert_eq!((step.conditions[0].status, step.conditions[0].reason), (None, "Forbidden"));
    assert_eq!(w.judge(&BUSY).writes, [("b".into(), Some(false))]);
}

#[test]
fn a_node_that_was_written_without_an_answer_is_not_tried_on_behalf_of_the_others() {
    let mut w = World::new(&["a", "b", "c"], json!({}));
    let failed = Arc::make_mut(&mut w.memory.failed);
    // The next judgment is 15 s later.
    let now = Timestamp::from_second(w.second - 5).unwrap();
    for node in ["a", "b", "c"] {
        // The fifth pause is 160 s.
        for _ in 0..5 {
            let why = Error::Pending("Timeout", "patch node: no answer".into()).verdict();
            failed.take(&node.into(), Some(why), now);
        }
    }
    // The API server made this write; only its answer was lost.
    w.labels.insert("a".into(), Some("true".into()));
    assert_eq!(w.judge(&BUSY).writes, [("b".into(), Some(false))]);
}

/// Deleted and registered again under its name: other hardware, other load.
#[test]
fn a_replaced_node_inherits_nothing() {
    let life = |uid, created| Incarnation { uid, created };
    let mut w = busy_and_calm();
    w.lives.insert("a".into(), life(2, w.second));
    w.labels.insert("a".into(), None);
    let step = w.judge(&[Nothing, Percent(1.0)]);
    assert_eq!((step.writes, w.label("a")), (vec![], None));
    assert_eq!(w.node("a").current_bandwidth_percent, "NaN");
    // The same while the operator was down: the status is about the previous node.
    let mut w = busy_and_calm();
    w.restart();
    w.lives.insert("a".into(), life(2, w.second + 1));
    w.labels.insert("a".into(), None);
    w.judge(&[Nothing, Percent(1.0)]);
    assert_eq!(w.node("a").current_bandwidth_percent, "NaN");
    // The previous node, whose UID is learned with the restart, is still unfit.
    let mut w = busy_and_calm();
    w.restart();
    w.lives.insert("a".into(), life(1, 5));
    w.judge(&[Nothing, Percent(1.0)]);
    assert_eq!(
        (w.label("a"), w.node("a").current_bandwidth_percent.as_str()),
        (Some("true"), "9.9e+01")
    );
}

/// Rules are evaluated every 30 seconds, and nodes judged every 10.
#[test]
fn a_recorded_value_counts_once_however_often_it_is_read() {
    let criteria = json!([{"name": "loss", "query": "node:loss:ratio1m", "max": "0.05"}]);
    let mut w = World::new(&["a", "b"], json!({"interval": "10s", "criteria": criteria}));
    let mut judge = |loss: f64, age: Option<f64>| {
        w.tick += 1;
        w.second += 10;
        let of = |value| {
            let node = NodeMeasurement::default().with("", &[(Measure::Own, value)]);
            match age {
                Some(age) => node.with("", &[(Measure::OwnAge, age)]),
                None => node,
            }
        };
        let nodes = [("a".into(), of(loss)), ("b".into(), of(0.0))];
        w.pass(vec![Ok(Measurement::of(BTreeMap::from(nodes)))]);
        w.label("a").map(str::to_owned)
    };
    judge(0.0, Some(0.0));
    judge(0.0, Some(10.0));
    judge(0.0, Some(20.0));
    assert_eq!(judge(0.0, Some(0.0)).as_deref(), Some("false"));
    // One value of one evaluation, read three times.
    for age in [0.0, 10.0, 20.0] {
        assert_eq!(judge(0.3, Some(age)).as_deref(), Some("false"), "at an age of {age} s");
    }
    assert_eq!(judge(0.3, Some(0.0)).as_deref(), Some("true"), "another evaluation");
    // A computed value has no age: each answer counts.
    judge(0.0, None);
    assert_eq!(judge(0.0, None).as_deref(), Some("false"));
}

#[test]
fn the_operators_ceiling_is_named_where_it_holds_nodes_back() {
    let mut w = World::new(&["a", "b", "c", "d"], json!({}));
    w.headroom = Headroom { open: 1, all: 1, ..Headroom::UNLIMITED };
    let busy = [Percent(99.0), Percent(98.0), Percent(1.0), Percent(1.0)];
    w.judge(&busy);
    let step = w.judge(&busy);
    assert_eq!(step.states, [Unfit, Suppressed, Fit, Fit]);
    assert_eq!(w.node("b").reason.as_deref(), Some("OperatorLimitReached"));
    let limited = &step.conditions[2];
    assert_eq!((limited.status, limited.reason), (Some(true), "OperatorLimitReached"));
    assert_eq!(w.memory.above_ceiling, 1);
    // Marked nodes stay marked although no fit node is left.
    w.headroom = Headroom { open: 0, all: 0, ..Headroom::UNLIMITED };
    assert_eq!(w.judge(&busy).writes, []);
    // A mark that was decided, and whose write another object's came before, is given up.
    w.labels.insert("a".into(), Some("false".into()));
    assert_eq!(w.judge(&busy).states, [Suppressed, Suppressed, Fit, Fit]);
    // Observe uses nothing of it.
    w.watch.spec.mode = Mode::Observe;
    w.judge(&busy);
    assert_eq!(w.judge(&busy).states, [Unfit, Unfit, Fit, Fit]);
}

/// A scale-out, spot nodes that are not Ready, Fargate: none of them keeps the others from being
/// judged.
#[test]
fn f2_nodes_that_cannot_have_data_do_not_stop_the_judgment() {
    let says = [Percent(99.0), Nothing, Nothing, Nothing];
    let step = |prepare: fn(&mut World)| {
        let mut w = World::new(&["a", "b", "c", "d"], json!({"maxUnfit": "100%"}));
        prepare(&mut w);
        w.judge(&says);
        w.judge(&says)
    };
    let ready = step(|_| ());
    assert_eq!(ready.conditions[1].reason, "LowCoverage");
    assert!(ready.conditions[1].message.starts_with("1 of 4 nodes have data"));
    let away = step(|w| w.away.extend(["c".into(), "d".into()]));
    assert_eq!(away.states, [Unfit, Unknown, Unknown, Unknown]);
    let new = step(|w| {
        for node in ["c", "d"] {
            w.lives.insert(node.into(), Incarnation { uid: 0, created: w.second });
        }
    });
    assert_eq!(new.states, [Unfit, Unknown, Unknown, Unknown]);
    // One of two is enough, and one of three is not.
    let few = step(|w| w.away.extend(["d".into()]));
    let message = &few.conditions[1].message;
    assert!(message.starts_with("1 of 3 nodes have usable data (1 that take none"), "{message}");
}
