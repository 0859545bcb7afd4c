//! Streams that will come to a worker.
use super::*;
use crate::swarm::{plan::Handed, settings::LARGEST_MAP};

/// Two streams of w-0, one of which w-1 should have.
fn beginning() -> (Swarm, Published) {
    let hot = json!({"refresh": {"strategy": "HotReload"}});
    (swarm(&["a", "b"], &hot), published(5, &[&["a", "b"], &[]]))
}

fn pods() -> Vec<PodFacts> {
    let ready = |w| PodFacts { ip: Some([10, 1, 0, 1].into()), ..pod(w, Some("n")) };
    vec![ready(0), ready(1)]
}

/// The reports of two workers, of which the second prepares streams.
fn reports(versions: [Epoch; 2], prepared: &[&str]) -> BTreeMap<Arc<str>, Report> {
    let mut reports = answers(&[(0, versions[0]), (1, versions[1])]);
    let prepared = Some(prepared.iter().map(|&id| id.to_owned()).collect());
    let answer = Answer { version: Some(versions[1]), jobs: Some(vec![]), prepared };
    reports.get_mut("uid-1").unwrap().answer = Some(Arc::new(answer));
    reports
}

fn next(plan: &Plan<Desired, SwarmStatus>) -> Published {
    Published::clone(&plan.desired.publish.as_ref().expect("a file").published)
}

#[test]
fn a_stream_moves_when_it_is_prepared_and_its_worker_is_told_at_once() {
    let (swarm, file) = beginning();
    let decide = |file: &Published, memory: Memory| decide(&swarm, view(file, pods(), 2), memory);
    let plan = decide(&file, Memory { reports: reports([5, 5], &[]), ..Memory::default() });
    let said = next(&plan);
    let stream = Arc::clone(&said.next["w-1"][0]);
    assert_eq!((&said.shares, said.releasing.len()), (&file.shares, 0));
    let reason = plan.conditions.iter().find(|c| c.type_ == "Converged").unwrap().reason;
    assert_eq!(reason, "AwaitingWorkers");
    // The worker that prepares is nudged for it, the other one is not.
    let memory = |memory: Memory, reports| Memory { reports, published: None, ..memory };
    let plan = decide(&said, memory(plan.desired.memory.unwrap(), reports([5, 5], &[])));
    let nudge = Refresh::Nudge { worker: "w-1".into(), uid: "uid-1".into(), epoch: said.epoch };
    assert_eq!((plan.desired.refresh.as_slice(), plan.period), (&[nudge][..], MOVING));
    assert!(plan.desired.publish.is_none());
    assert_eq!(plan.desired.memory.as_ref().unwrap().snapshot.workers[1].preparing, 1);
    let six = said.epoch;
    let plan = decide(&said, memory(plan.desired.memory.unwrap(), reports([5, six], &[&stream])));
    let revoked = next(&plan);
    assert_eq!(revoked.releasing.keys().next().unwrap().0, stream);
    assert_eq!(revoked.next, said.next, "it will still come");
    assert_eq!(plan.period, SOON + FOR_EACH * 2, "nobody runs it once it is acknowledged");
    let seven = revoked.epoch;
    let acknowledged = reports([seven, six], &[&stream]);
    let plan = decide(&revoked, memory(plan.desired.memory.unwrap(), acknowledged));
    let granted = next(&plan);
    assert_eq!((&granted.shares["w-1"].streams, granted.next.len()), (&vec![stream.clone()], 0));
    let [Handed { pod, streams }] = &plan.desired.publish.as_ref().unwrap().grants[..] else {
        panic!("no word to a worker")
    };
    assert_eq!((&*pod.name, streams), ("w-1", &vec![stream.clone()]));
    // It runs there before the kubelet has delivered the file.
    let mut running = reports([seven, six], &[]);
    let answer =
        Answer { version: Some(six), jobs: Some(vec![stream.to_string()]), prepared: None };
    running.get_mut("uid-1").unwrap().answer = Some(Arc::new(answer));
    let plan = decide(&granted, memory(plan.desired.memory.unwrap(), running));
    assert_eq!(plan.desired.gaps.len(), 1);
}

/// What a worker says that it prepares must not hold up a stream for ever.
#[test]
fn a_preparation_that_takes_too_long_is_not_waited_for() {
    let (swarm, mut file) = beginning();
    file.next.insert("w-1".into(), vec!["a".into()]);
    let pass = |ago: Duration, reports| {
        let since = Instant::now().checked_sub(ago).unwrap();
        let memory = Memory { preparing: Some(since), reports, ..Memory::default() };
        decide(&swarm, view(&file, pods(), 2), memory)
    };
    let plan = pass(Duration::from_mins(1), reports([5, 5], &[]));
    assert!(plan.desired.publish.is_none_or(|publish| publish.published.releasing.is_empty()));
    assert_eq!(next(&pass(LONG, reports([5, 5], &[]))).releasing.len(), 1);
    let unaware = pass(Duration::ZERO, answers(&[(0, 5), (1, 5)]));
    assert_eq!(next(&unaware).releasing.len(), 1, "it prepares nothing");
}

/// A stream without a worker goes where it has been prepared, not where it fits best.
#[test]
fn a_stream_that_is_free_comes_to_the_worker_that_expects_it() {
    let (swarm, _) = beginning();
    for worker in ["w-0", "w-1"] {
        let mut file = published(5, &[&[], &[]]);
        file.next.insert(worker.into(), vec!["a".into()]);
        let memory = Memory { reports: reports([5, 5], &[]), ..Memory::default() };
        let granted = next(&decide(&swarm, view(&file, pods(), 2), memory));
        assert_eq!(granted.shares[worker].streams, ["a".into()], "{granted:?}");
    }
}

#[test]
fn with_delete_pod_nothing_is_said_of_what_will_come() {
    let (_, file) = beginning();
    let memory = Memory { reports: reports([5, 5], &[]), ..Memory::default() };
    let plan = decide(&swarm(&["a", "b"], &json!({})), view(&file, pods(), 2), memory);
    let revoked = next(&plan);
    assert_eq!((revoked.next.len(), revoked.releasing.len()), (0, 1));
}

/// A file that holds each stream once may not hold some of them twice.
#[test]
fn what_will_come_is_left_out_of_a_file_that_it_does_not_fit() {
    let hot = json!({"refresh": {"strategy": "HotReload"}});
    let ids: Vec<String> = (0..2900).map(|i| format!("{i:0250}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let file = published(5, &[&ids, &[]]);
    let size = file::render(&file).config.len();
    assert!(size < LARGEST_MAP && size * 3 / 2 > LARGEST_MAP, "{size}");
    let memory = Memory { reports: reports([5, 5], &[]), ..Memory::default() };
    let plan = decide(&swarm(&ids, &hot), view(&file, pods(), 2), memory);
    let revoked = next(&plan);
    assert_eq!((revoked.next.len(), revoked.releasing.len()), (0, 1450));
}
