//! Passes while workers do not answer: what is reported of them, and what it costs.
use super::*;

/// In mode Observe no file is written, and so no worker can read it.
#[test]
fn a_swarm_that_observes_waits_for_nobody() {
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
fn a_worker_that_stays_away_costs_no_passes() {
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

/// `configMap.immutable` was switched off, and the template left as it was.
#[test]
fn a_template_that_still_names_an_immutable_file_is_reported_with_its_name() {
    let mut file = published(5, &[&["a"], &["b"]]);
    file.releasing.insert(("b".into(), "w-0".into()), 5);
    let mut seen = view(&file, vec![pod(0, Some("n")), pod(1, Some("n"))], 2);
    seen.workload.as_mut().unwrap().mounts = vec![("config".into(), "w-config-4".into())];
    let memory = Memory { reports: answers(&[(0, 5), (1, 5)]), ..Memory::default() };
    let plan = decide(&swarm(&["a", "b"], &json!({})), seen, memory);
    let (_, reason, text) = ready(&plan);
    assert_eq!(reason, "NotMounted");
    let words = "no volume of ConfigMap w-config, but one of w-config-4, which never changes";
    assert!(text.ends_with(words), "{text}");
    let memory = plan.desired.memory.unwrap();
    let (waiting, why) = &memory.snapshot.waiting[0];
    assert_eq!((&*waiting.worker, waiting.why), ("w-0", handover::Why::Template));
    assert!(why.contains("the template still names ConfigMap w-config-4"), "{why}");
}
