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
    let away = |ago| Memory { away: away(&[1], ago), ..Memory::default() };
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

fn converged(plan: &Plan<Desired, SwarmStatus>) -> (Option<bool>, &'static str, String) {
    let converged = plan.conditions.iter().find(|c| c.type_ == "Converged").unwrap();
    (converged.status, converged.reason, converged.message.clone())
}

/// The container has crashed since the acknowledgement and is not started again.
#[test]
fn a_worker_that_crash_loops_after_its_acknowledgement_is_reported() {
    let file = published(5, &[&["a"], &["b"]]);
    let crashed = PodFacts {
        ready: false,
        trouble: Some("container worker: CrashLoopBackOff, 12 restarts".into()),
        ..pod(1, Some("n"))
    };
    let pass = |ago: Duration, failures: u32| {
        let mut reports = answers(&[(0, 5), (1, 5)]);
        reports.get_mut("uid-1").unwrap().failures = failures;
        let memory = Memory { away: away(&[1], ago), reports, ..Memory::default() };
        let pods = vec![pod(0, Some("n")), crashed.clone()];
        decide(&swarm(&["a", "b"], &json!({})), view(&file, pods, 2), memory)
    };
    let plan = pass(LONG, 4);
    assert!(plan.desired.publish.is_none(), "its streams stay: time frees nothing");
    let (status, reason, message) = ready(&plan);
    assert_eq!((status, reason), (Some(false), "WorkerNotReady"));
    let words = [
        "nothing shows that 1 streams run: they are in the list of worker w-1, whose pod",
        "CrashLoopBackOff, 12 restarts",
    ];
    assert!(words.iter().all(|words| message.contains(words)), "{message}");
    assert_eq!(converged(&plan).1, "WorkerNotReady");
    assert_eq!(plan.desired.memory.unwrap().snapshot.stranded, 1);
    // A restart that is over soon; and one that answers runs, whatever its probe says.
    for plan in [pass(Duration::from_mins(1), 4), pass(LONG, 0)] {
        assert_eq!((ready(&plan).0, converged(&plan).0), (Some(true), Some(true)));
    }
}

/// The port is closed, or something else answers there; the pod stays ready.
#[test]
fn an_acknowledgement_is_evidence_for_a_while() {
    let file = published(5, &[&["a"], &["b"]]);
    let pass = |failing: Option<Duration>| {
        let mut reports = answers(&[(0, 5), (1, 5)]);
        let report = reports.get_mut("uid-1").unwrap();
        report.failing = failing.map(|ago| Instant::now().checked_sub(ago).unwrap());
        report.error = failing.map(|_| "http://10.1.0.2:9090/version: connection refused".into());
        let memory = Memory { reports, ..Memory::default() };
        let pods = vec![pod(0, Some("n")), pod(1, Some("n"))];
        decide(&swarm(&["a", "b"], &json!({})), view(&file, pods, 2), memory)
    };
    let plan = pass(Some(LONG));
    let (status, reason, message) = converged(&plan);
    assert_eq!((status, reason), (None, "NoAnswer"));
    assert!(message.starts_with("worker w-1 has answered before"), "{message}");
    assert!(message.ends_with("connection refused"), "{message}");
    assert!(plan.desired.publish.is_none() && plan.desired.refresh.is_empty());
    for ago in [None, Some(Duration::from_mins(1))] {
        assert_eq!(converged(&pass(ago)).0, Some(true), "{ago:?}");
    }
}

/// A Swarm over pods that run already: nothing is decided before they have said what they run.
#[test]
fn streams_in_no_list_are_not_placed() {
    let first = |memory: Memory| {
        let pods = (0..2).map(|w| PodFacts { ip: Some([10, 1, 0, 1].into()), ..pod(w, Some("n")) });
        let mut view = view(&Published::default(), pods.collect(), 2);
        view.share = None;
        decide(&swarm(&["a", "b"], &json!({"refresh": {"port": 9090}})), view, memory)
    };
    let plan = first(Memory::default());
    assert!(plan.desired.publish.is_none());
    let (status, reason, message) = ready(&plan);
    assert_eq!((status, reason), (Some(false), "HistoryUnknown"));
    let words =
        "2 streams are in no list: there is no record of what runs, and pod w-0 (and 1 more)";
    assert!(message.starts_with(words), "{message}");
    assert_eq!(converged(&plan).1, "HistoryUnknown");
    assert_eq!(plan.desired.memory.unwrap().snapshot.undecided, 2);
    assert_eq!(plan.period, MOVING);
}

/// Paused is no excuse: nobody runs these streams.
#[test]
fn a_paused_swarm_reports_streams_that_do_not_run() {
    let (status, reason, message) = ready(&with_one_away(LONG, &json!({"paused": true})));
    assert_eq!((status, reason), (Some(false), "WorkerAbsent"));
    assert!(message.ends_with("; spec.paused: nothing is decided or written"), "{message}");
}

/// Nobody reads the file: only an acknowledgement shows the contrary.
#[test]
fn a_template_without_the_file_is_ready_only_by_acknowledgements() {
    let file = published(5, &[&["a"], &["b"]]);
    for (reports, expected) in [(answers(&[]), false), (answers(&[(0, 5), (1, 5)]), true)] {
        let mut seen = view(&file, vec![pod(0, Some("n")), pod(1, Some("n"))], 2);
        seen.workload.as_mut().unwrap().mounts.clear();
        let memory = Memory { reports, ..Memory::default() };
        let (status, reason, _) = ready(&decide(&swarm(&["a", "b"], &json!({})), seen, memory));
        assert_eq!((status, reason), (Some(expected), "NotMounted"));
    }
}

/// A worker that looks for its hostname, which is not the name of its pod, finds no entry.
#[test]
fn a_worker_that_says_it_runs_nothing_has_not_converged() {
    let file = published(5, &[&["a"], &["b"]]);
    for (jobs, expected) in [(None, "Converged"), (Some(vec![]), "OtherStreams")] {
        let mut reports = answers(&[(0, 5), (1, 5)]);
        let answer = Answer { version: Some(5), jobs, prepared: None };
        reports.get_mut("uid-1").unwrap().answer = Some(Arc::new(answer));
        let memory = Memory { reports, ..Memory::default() };
        let pods = vec![pod(0, Some("n")), pod(1, Some("n"))];
        let plan = decide(&swarm(&["a", "b"], &json!({})), view(&file, pods, 2), memory);
        let (_, reason, message) = converged(&plan);
        assert_eq!(reason, expected, "{message}");
        assert!(expected == "Converged" || message.contains("setHostnameAsFQDN"), "{message}");
    }
}

/// Every pod has to acknowledge a first file before anything is granted.
#[test]
fn before_any_stream_is_in_a_list_ready_has_the_reason_of_converged() {
    let mut file = published(5, &[&[], &[]]);
    file.barrier = Some(5);
    let pods = vec![pod(0, Some("n")), pod(1, Some("n"))];
    let plan = decide(&swarm(&["a", "b"], &json!({})), view(&file, pods, 2), Memory::default());
    let (status, reason, message) = ready(&plan);
    assert_eq!((status, reason), (Some(false), "HistoryUnknown"), "{message}");
    let words = "none of 2 streams is in a worker's list yet: it is unknown what workers have read";
    assert!(message.starts_with(words), "{message}");
}
