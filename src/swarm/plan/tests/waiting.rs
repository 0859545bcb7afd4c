//! Passes while workers do not answer: what is reported of them, and what it costs.
use super::*;

/// In mode Observe no file is written, and so no worker can read it.
#[test]
fn w31_a_swarm_that_observes_waits_for_nobody() {
    let file = published(5, &[&["a", "b"], &[]]);
    let more = json!({
        "jobs": null, "mode": "Observe", "streams": [{"id": "a"}, {"id": "b", "pin": "w-1"}],
    });
    let swarm = swarm(&[], &more);
    let pass = |now: Instant, memory: Memory| {
        let observed = Observed {
            now,
            held: None,
            view: Some(view(&file, vec![pod(0, Some("n")), pod(1, Some("n"))], 2)),
            confirmed: Confirmed::default(),
            memory,
            unfit: BTreeSet::new(),
            measuring: None,
        };
        plan(&swarm, &observed).unwrap()
    };
    let memory = Memory { reports: answers(&[(0, 5), (1, 5)]), ..Memory::default() };
    let first = pass(Instant::now().checked_sub(LONG).unwrap(), memory);
    let second = pass(Instant::now(), first.desired.memory.unwrap());
    assert_eq!(ready(&second).1, "Observing");
    assert!(second.notices.is_empty(), "{:?}", second.notices);
}

#[test]
fn w32_a_worker_that_stays_away_costs_no_passes() {
    let file = published(5, &[&["a"], &["b"]]);
    let period = |memory: Memory, second: PodFacts| {
        let memory = Memory { reports: answers(&[(0, 5)]), ..memory };
        let pods = vec![pod(0, Some("n")), second];
        let plan = decide(&swarm(&["a", "b"], &json!({})), view(&file, pods, 2), memory);
        assert!(plan.desired.publish.is_none());
        plan.period
    };
    let away = |ago| Memory { absent: absent(&[1], ago), ..Memory::default() };
    assert_eq!(period(away(LONG), pod(1, None)), PERIOD, "its pod is an event when it comes");
    assert_eq!(period(away(Duration::ZERO), pod(1, None)), MOVING, "it is about to start");
}
