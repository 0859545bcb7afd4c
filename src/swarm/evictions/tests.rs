use proptest::prelude::*;

use super::*;
use crate::swarm::handover::{
    Pod, Published, Refresh, Rules, Share, Strategy as Refreshing, refresh_in_turn,
};

fn name(worker: usize) -> Name {
    format!("w-{worker}").into()
}

fn worker(loaded: Option<Epoch>) -> Worker {
    let pod = Pod {
        uid: "uid".into(),
        ready: true,
        terminating: false,
        stopped: false,
        loaded,
        heir: None,
        born: None,
        prepared: None,
    };
    Worker { wanted: true, pod: Some(pod), ..Worker::default() }
}

fn learn(evictions: &mut Evictions, loaded: Option<Epoch>, epoch: Epoch) {
    evictions.learn(&[(name(0), worker(loaded))].into(), epoch);
}

/// Returns the number of seconds after its last eviction during which a worker is left alone.
fn pause(evictions: &Evictions, at: Instant) -> u64 {
    let rests = |seconds: &u64| evictions.turns(at + Duration::from_secs(*seconds))[&name(0)].rests;
    (0..10_000).take_while(rests).count() as u64
}

#[test]
fn the_pause_doubles_from_5_s_to_5_min_while_the_version_does_not_rise() {
    let mut evictions = Evictions::default();
    let mut now = Instant::now();
    learn(&mut evictions, Some(3), 9);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        evictions.evicted(&name(0), &"uid".into(), 9, now);
        pauses.push(pause(&evictions, now));
        now += Duration::from_hours(1);
        // It is back, does not answer at first, and then reports the same.
        learn(&mut evictions, None, 9);
        learn(&mut evictions, Some(3), 9);
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    assert_eq!(evictions.without_progress("w-0"), 9);
    // A version that was never published proves nothing.
    learn(&mut evictions, Some(1_000), 9);
    assert_eq!(evictions.without_progress("w-0"), 9);
    learn(&mut evictions, Some(4), 9);
    assert_eq!(evictions.without_progress("w-0"), 0, "progress ends the pauses");
    evictions.learn(&BTreeMap::new(), 9);
    assert!(evictions.proved.is_empty(), "a worker that is gone is forgotten");
}

/// Such a worker proves nothing, ever; but each of its lists is worth an eviction.
#[test]
fn a_worker_that_answers_nothing_is_evicted_for_each_new_list_at_once() {
    let mut evictions = Evictions::default();
    let now = Instant::now();
    learn(&mut evictions, None, 5);
    let refreshed = |evictions: &Evictions, version| {
        let share = Share { streams: vec!["a".into()], version };
        let file =
            Published { epoch: version, shares: [(name(0), share)].into(), ..Published::default() };
        let workers = [(name(0), worker(None))].into();
        !refresh_in_turn(&file, &workers, &rules(1), &evictions.turns(now)).is_empty()
    };
    for version in [5, 6, 7] {
        assert!(refreshed(&evictions, version));
        evictions.evicted(&name(0), &"uid".into(), version, now);
        assert!(!refreshed(&evictions, version), "the same list again");
        assert_eq!(evictions.without_progress("w-0"), 1);
    }
    evictions.evicted(&name(0), &"uid".into(), 7, now);
    assert_eq!(evictions.without_progress("w-0"), 2, "for the same list");
}

#[test]
fn a_pod_that_was_evicted_is_leaving_until_a_watch_shows_it() {
    let mut evictions = Evictions::default();
    evictions.evicted(&name(0), &"uid".into(), 9, Instant::now());
    let pod = |deleted: Option<&str>| {
        crate::swarm::watches::read_pod(serde_json::json!({
            "metadata": {"name": "w-0", "uid": "uid", "deletionTimestamp": deleted},
        }))
    };
    evictions.seen(&[pod(None)]);
    assert!(evictions.is_leaving("uid"));
    let mut gone = evictions.clone();
    evictions.seen(&[pod(Some("2026-01-01T00:00:00Z"))]);
    assert!(!evictions.is_leaving("uid"));
    gone.seen(&[]);
    assert!(!gone.is_leaving("uid"));
}

fn rules(max_unavailable: usize) -> Rules {
    Rules {
        exclusive: true,
        strategy: Refreshing::DeletePod,
        max_unavailable,
        gather: false,
        await_targets: false,
        announce: false,
    }
}

/// The hour of a workload: the seconds at which each worker was evicted.
fn hour(deaf: &[bool], max_unavailable: usize, restart: u64, remembers: bool) -> Vec<Vec<u64>> {
    let (start, epoch) = (Instant::now(), 9);
    let share = |w| (name(w), Share { streams: vec!["a".into()], version: epoch });
    let shares = (0..deaf.len()).map(share).collect();
    let file = Published { epoch, shares, ..Published::default() };
    let mut evicted = vec![Vec::<u64>::new(); deaf.len()];
    let mut evictions = Evictions::default();
    for second in 0..3_600 {
        let now = start + Duration::from_secs(second);
        let state = |w: usize| {
            let Some(last) = evicted[w].last() else { return worker(Some(3)) };
            if second < last + restart {
                return Worker { pod: None, ..worker(None) };
            }
            worker(Some(if deaf[w] { 3 } else { epoch }))
        };
        let workers: BTreeMap<_, _> = (0..deaf.len()).map(|w| (name(w), state(w))).collect();
        evictions.learn(&workers, epoch);
        let turns = if remembers { evictions.turns(now) } else { Turns::new() };
        for refresh in refresh_in_turn(&file, &workers, &rules(max_unavailable), &turns) {
            let Refresh::Evict { worker, uid } = refresh else { panic!("{refresh:?}") };
            let w = (0..deaf.len()).find(|w| name(*w) == worker).unwrap();
            evicted[w].push(second);
            evictions.evicted(&worker, &uid, epoch, now);
        }
        let down = |w: &usize| evicted[*w].last().is_some_and(|last| second < last + restart);
        assert!((0..deaf.len()).filter(down).count() <= max_unavailable, "at {second} s");
    }
    evicted
}

/// The original finding: 120 evictions a minute of one worker, and none of the next.
#[test]
fn without_memory_a_worker_that_ignores_its_file_is_evicted_without_end() {
    let evicted = hour(&[true, false], 1, 0, false);
    assert_eq!((evicted[0].len(), evicted[1].len()), (3_600, 0));
    let evicted = hour(&[true, false], 1, 0, true);
    assert_eq!((evicted[0].len(), evicted[1].len()), (17, 1));
    assert_eq!(evicted[1], [1], "the other one is next");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Every worker gets a turn soon, even if others ignore the file; and no worker is evicted
    /// endlessly.
    #[test]
    fn every_worker_gets_its_eviction_and_none_more_than_17_in_an_hour(
        deaf in prop::collection::vec(any::<bool>(), 1..7),
        max_unavailable in 1_usize..4,
        restart in 0_u64..30,
    ) {
        let evicted = hour(&deaf, max_unavailable, restart, true);
        // One after another, each with its restart, is the slowest that the budget allows.
        let turn = (restart + 1) * deaf.len() as u64;
        for (w, evicted) in evicted.iter().enumerate() {
            prop_assert!(evicted.first().is_some_and(|first| *first < turn), "w-{}: {:?}", w, evicted);
            prop_assert!(evicted.len() <= 17, "w-{}: {:?}", w, evicted);
            prop_assert!(deaf[w] || evicted.len() == 1, "w-{}: {:?}", w, evicted);
        }
    }
}
