//! Pods that leave a node which stays unfit.
use super::*;

fn pod(name: &str, node: &str) -> PodFacts {
    PodFacts {
        name: name.into(),
        uid: name.into(),
        node: Some(node.into()),
        created: 0,
        ready: true,
        terminating: false,
    }
}

#[test]
fn pods_leave_a_node_that_stays_unfit_and_only_while_there_is_a_fit_one() {
    let deployment = json!({
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}
    });
    let spec = json!({"deployment": deployment, "eviction": {"after": "1m"}, "minFit": 0, "maxUnfit": "100%"});
    let mut w = World::new(&["a", "b"], spec);
    w.pods = Some(vec![pod("p", "a"), pod("q", "a")]);
    w.replicas = Some((2, 2));
    let busy = [Percent(99.0), Percent(1.0)];
    w.judge(&busy);
    w.judge(&busy);
    for _ in 0..5 {
        assert!(w.judge(&busy).evicted.is_empty());
    }
    assert_eq!(w.judge(&busy).evicted, ["p"], "one at a time");
    // A budget that refused is not asked again at once.
    w.memory.refused = Some(Timestamp::from_second(w.second).unwrap());
    for _ in 0..5 {
        assert!(w.judge(&busy).evicted.is_empty());
    }
    assert_eq!(w.judge(&busy).evicted, ["p"]);
    // Pods that cannot be listed are reported, once in that time.
    let pods = w.pods.take();
    let reported: Vec<_> = (0..6).map(|_| w.judge(&busy).notices).collect();
    assert_eq!(reported.concat(), ["EvictionFailed"]);
    w.pods = pods;
    assert_eq!(w.judge(&busy).evicted, ["p"]);
    // Passes of the same tick are one judgment.
    let reading = w.reading(&busy);
    assert!(w.pass(vec![Ok(reading)]).evicted.is_empty());
    // No fit node, no eviction.
    let all = [Percent(99.0); 2];
    w.judge(&all);
    w.judge(&all);
    assert!(w.judge(&all).evicted.is_empty());
    // No evidence about the unfit node: its pods stay.
    let mut blind = World::new(&["a", "b"], serde_json::to_value(&w.watch.spec).unwrap());
    (blind.pods, blind.replicas) = (w.pods.clone(), w.replicas);
    for _ in 0..9 {
        blind.judge(&busy);
    }
    assert!(blind.judge(&[Nothing, Percent(1.0)]).evicted.is_empty());
    assert!(blind.fail().evicted.is_empty());
    let mut observing = World::new(&["a", "b"], json!({}));
    observing.watch.spec = w.watch.spec.clone();
    observing.watch.spec.mode = Mode::Observe;
    (observing.pods, observing.replicas) = (w.pods.clone(), w.replicas);
    for _ in 0..12 {
        assert!(observing.judge(&busy).evicted.is_empty());
    }
}

/// Each list has a page for every hundred pods.
#[test]
fn pods_are_not_read_while_evictions_rest() {
    let spec = json!({"eviction": {"after": "1m"}, "minFit": 0, "maxUnfit": "100%"});
    let mut w = World::new(&["a", "b"], spec);
    let settings = Settings::of(&w.watch).unwrap();
    let may_leave = |w: &World| {
        let now = Timestamp::from_second(w.second).unwrap();
        super::super::may_leave(&settings, &w.memory, now)
    };
    let mut read = vec![];
    for _ in 0..8 {
        w.judge(&[Percent(99.0), Percent(1.0)]);
        read.push(may_leave(&w));
    }
    assert_eq!(read, [false, false, false, false, false, false, false, true]);
    w.memory.refused = Some(Timestamp::from_second(w.second).unwrap());
    assert!(!may_leave(&w));
    w.second += 60;
    assert!(may_leave(&w));
}
