use std::collections::BTreeMap;

use super::*;
use crate::swarm::handover::LARGEST_EPOCH;

fn share(streams: &[&str], version: Epoch) -> Share {
    Share { streams: streams.iter().map(|s| (*s).into()).collect(), version }
}

fn published(epoch: Epoch) -> Published {
    Published {
        epoch,
        shares: [("w-0".into(), share(&["a", "b"], 3)), ("w-1".into(), share(&["c"], epoch))]
            .into(),
        releasing: [(("d".into(), "w-0".into()), epoch)].into(),
        ..Published::default()
    }
}

/// The `ConfigMap` as we write it.
fn map(published: &Published) -> MapFacts {
    let file::Files { config, state } = file::render(published);
    let content = Some(fingerprint(&config, &state));
    let data = [("config.yml".to_owned(), config), (STATE_KEY.to_owned(), state)];
    MapFacts { content, data: Arc::new(BTreeMap::from(data)), ..MapFacts::default() }
}

fn read(map: Option<&MapFacts>, memory: &Memory, reported: Epoch, unknown_pods: bool) -> History {
    of(map, "config.yml", Evidence { memory, reported, made: 0, unknown_pods, running: &[] })
        .unwrap()
}

fn knows(published: &Published) -> Memory {
    Memory { published: Some(Arc::new(published.clone())), ..Memory::default() }
}

#[test]
fn what_we_wrote_is_believed_after_a_restart() {
    let known = read(Some(&map(&published(7))), &Memory::default(), 7, true);
    assert_eq!(known, History { published: published(7), repair: None, edited: None });
}

#[test]
fn the_first_file_needs_no_barrier_if_nobody_can_have_read_another() {
    let first = read(None, &Memory::default(), 0, false);
    assert_eq!((first.repair, first.published.epoch), (Some(Repair::First), 0));
    assert_eq!(first.repaired(0).barrier, None);
    // Pods that run are another matter: a file may have been there before.
    let unknown = read(None, &Memory::default(), 0, true);
    assert_eq!(unknown.repair, Some(Repair::Barrier));
    assert_eq!(unknown.repaired(57).barrier, Some(58), "newer than any version that they run");
}

/// Bug 4 of the original: its version began again with every start.
#[test]
fn a_version_never_goes_backwards() {
    // The ConfigMap was deleted while no leader was running: the status remembers.
    let lost = read(None, &Memory::default(), 41, true);
    assert_eq!(lost.repaired(0).epoch, 42);
    // An old one was restored from a backup.
    let old = read(Some(&map(&published(7))), &Memory::default(), 41, true);
    assert_eq!(old.repair, Some(Repair::Barrier));
    assert_eq!(old.repaired(0).epoch, 42);
    assert_eq!(old.repaired(99).epoch, 100);
}

#[test]
fn a_deleted_map_is_put_back_and_nobody_has_to_read_it_again() {
    let lost = read(None, &knows(&published(7)), 7, true);
    assert_eq!(lost.repair, Some(Repair::Restore));
    let next = lost.repaired(0);
    assert_eq!((next.epoch, next.barrier), (8, None));
    assert_eq!(next.shares, published(7).shares);
    assert_eq!(next.releasing, published(7).releasing);
}

#[test]
fn an_edit_is_undone_under_a_newer_version() {
    let mut edited = published(7);
    edited.epoch = 20;
    edited.shares.insert("w-1".into(), share(&["c", "a"], 20));
    edited.releasing.clear();
    let mut map = map(&edited);
    map.content = Some("of ours".into());
    let known = read(Some(&map), &knows(&published(7)), 7, true);
    assert_eq!(known.repair, Some(Repair::Undo));
    let next = known.repaired(0);
    assert_eq!((next.epoch, next.barrier), (21, None));
    // A worker that may have read a different list must read again; others need not.
    assert_eq!(next.shares["w-1"], share(&["c"], 21));
    // A version of the edit acknowledges nothing.
    assert_eq!(next.releasing[&("d".into(), "w-0".into())], 21);
    // A stream that an edit gave to another worker belongs to none until both have released it.
    assert_eq!(next.shares["w-0"], share(&["b"], 21));
    for worker in ["w-0", "w-1"] {
        assert_eq!(next.releasing[&("a".into(), worker.into())], 21);
    }
    // An unreadable edit may have contained anything.
    map.data = Arc::new([("config.yml".to_owned(), "workloads: [".to_owned())].into());
    let next = read(Some(&map), &knows(&published(7)), 7, true).repaired(0);
    assert!(next.shares.values().all(|share| share.version == 8));
}

#[test]
fn a_version_close_to_the_largest_is_believed_of_no_file_either() {
    let mut edited = published(LARGEST_EPOCH);
    edited.releasing.clear();
    let mut map = map(&edited);
    map.content = Some("of ours".into());
    let known = read(Some(&map), &knows(&published(7)), 7, true);
    assert_eq!((known.repair, known.repaired(0).epoch), (Some(Repair::Undo), 8));
    let unseen = read(Some(&map), &Memory::default(), 7, true);
    assert_eq!((unseen.repair, unseen.repaired(0).epoch), (Some(Repair::Barrier), 8));
    // A file that is handed over with this version has workers that run it: no higher number
    // exists.
    map.content = None;
    let evidence = Evidence {
        memory: &Memory::default(),
        reported: 0,
        made: 0,
        unknown_pods: true,
        running: &[],
    };
    let error = of(Some(&map), "config.yml", evidence).unwrap_err().to_string();
    assert!(error.contains("config.yml") && error.contains("above 4503599627370496"), "{error}");
}

#[test]
fn an_edit_that_nobody_saw_is_a_barrier() {
    let mut map = map(&published(7));
    map.content = Some("of ours".into());
    let known = read(Some(&map), &Memory::default(), 7, true);
    assert_eq!(known.repair, Some(Repair::Barrier));
    let next = known.repaired(0);
    assert_eq!((next.epoch, next.barrier), (8, Some(8)));
    // The lists stay: no worker loses a stream.
    assert_eq!(next.shares["w-0"], share(&["a", "b"], 8));
}

/// The lists were exchanged while the operator was down.
#[test]
fn what_a_worker_says_it_runs_is_no_other_ones_because_of_an_edit() {
    let mut edited = published(7);
    edited.releasing.clear();
    edited.shares =
        [("w-0".into(), share(&["c", "b"], 7)), ("w-1".into(), share(&["a"], 7))].into();
    let mut map = map(&edited);
    map.content = Some("of ours".into());
    let says = |jobs: &[&str]| {
        let jobs = jobs.iter().map(|job| (*job).to_owned()).collect();
        Arc::new(Answer { version: Some(7), jobs: Some(jobs), prepared: None })
    };
    let after = |running: &[(Arc<str>, Arc<Answer>)]| {
        let memory = Memory::default();
        let evidence =
            Evidence { memory: &memory, reported: 7, made: 0, unknown_pods: true, running };
        of(Some(&map), "config.yml", evidence).unwrap().repaired(0)
    };
    let next = after(&[("w-0".into(), says(&["a", "b"])), ("w-1".into(), says(&["c"]))]);
    assert_eq!((next.epoch, next.barrier), (8, Some(8)));
    assert_eq!(next.shares["w-0"], share(&["b"], 8), "it keeps its streams");
    assert_eq!(next.shares["w-1"], share(&[], 8));
    let contested = [("a", "w-0"), ("a", "w-1"), ("c", "w-0"), ("c", "w-1")];
    let contested = contested.map(|(stream, worker)| ((stream.into(), worker.into()), 8));
    assert_eq!(next.releasing, contested.into());
    // A worker that has read the edit keeps its streams, and so does one that does not answer.
    assert_eq!(after(&[("w-1".into(), says(&["a"]))]).shares["w-1"], share(&["a"], 8));
    assert_eq!(after(&[]).shares["w-0"], share(&["c", "b"], 8));
}

#[test]
fn a_map_that_is_handed_over_keeps_its_lists() {
    let text = "workloads:\n  w-0:\n    jobs: [a, b]\n    version: 0\nversion: 14\n";
    let given = |text: &str| MapFacts {
        data: Arc::new([("config.yml".to_owned(), text.to_owned())].into()),
        ..MapFacts::default()
    };
    let taken = read(Some(&given(text)), &Memory::default(), 0, true);
    let next = taken.repaired(14);
    assert_eq!((next.epoch, next.barrier), (15, Some(15)));
    assert_eq!(next.shares["w-0"], share(&["a", "b"], 15));
    // An empty place for it is no history (bug 10 of the original: it fell over such a one).
    let empty = read(Some(&given("")), &Memory::default(), 0, false);
    assert_eq!(empty.repair, Some(Repair::First));
    let broken = given("workloads: [");
    let memory = Memory::default();
    let evidence =
        Evidence { memory: &memory, reported: 0, made: 0, unknown_pods: true, running: &[] };
    let error = of(Some(&broken), "config.yml", evidence).unwrap_err().to_string();
    assert!(error.starts_with("the ConfigMap of spec.configMap, key \"config.yml\": "), "{error}");
}

#[test]
fn a_map_that_was_deleted_while_nobody_looked_stops_no_stream() {
    let answer =
        Answer { version: Some(7), jobs: Some(vec!["a".into(), "b".into()]), prepared: None };
    let running = [(Arc::from("w-0"), Arc::new(answer))];
    let memory = Memory::default();
    let evidence =
        Evidence { memory: &memory, reported: 7, made: 0, unknown_pods: true, running: &running };
    let next = of(None, "config.yml", evidence).unwrap().repaired(7);
    assert_eq!((next.epoch, next.barrier), (8, Some(8)));
    assert_eq!(next.shares["w-0"], share(&["a", "b"], 8));
}

/// Returns the history that a `Swarm` of this age derives, without any running pod.
fn aged(made: Epoch, map: Option<&MapFacts>, memory: &Memory, reported: Epoch) -> Published {
    let evidence = Evidence { memory, reported, made, unknown_pods: false, running: &[] };
    of(map, "config.yml", evidence).unwrap().repaired(0)
}

/// Deleted with its file and its pods, and recreated: nothing is left that knows the last version.
#[test]
fn a_swarm_that_is_created_again_begins_above_the_versions_of_the_old_one() {
    let none = Memory::default();
    let first = aged(1_790_000_000, None, &none, 0);
    assert_eq!((first.epoch, first.barrier), (1_790_000_001, None));
    // Eleven files in a minute, and then another Swarm of the same name.
    let last = first.epoch + 11;
    assert!(aged(1_790_000_060, None, &none, 0).epoch > last);
    // The same applies to a file that was lost while no leader was running.
    assert_eq!(aged(1_790_000_000, None, &none, last).epoch, last + 1);
    // The files that this process has written continue unchanged.
    let known = Memory { published: Some(Arc::new(published(7))), ..Memory::default() };
    assert_eq!(aged(1_790_000_000, None, &known, 7).epoch, 8);
}

#[test]
fn a_file_that_is_handed_over_keeps_a_higher_number() {
    let given = |version: Epoch| MapFacts {
        data: Arc::new([("config.yml".to_owned(), format!("version: {version}\n"))].into()),
        ..MapFacts::default()
    };
    let none = Memory::default();
    assert_eq!(aged(1_790_000_000, Some(&given(14)), &none, 0).epoch, 1_790_000_001);
    let ahead = aged(1_790_000_000, Some(&given(1_800_000_000)), &none, 0);
    assert_eq!(ahead.epoch, 1_800_000_001);
    // Nor does a backup go back behind what the status has.
    let restored = aged(1_790_000_000, Some(&given(14)), &none, 1_790_000_500);
    assert_eq!(restored.epoch, 1_790_000_501);
    // Our own file, kept by --cascade=orphan, is still valid.
    let evidence = Evidence {
        memory: &none,
        reported: 0,
        made: 1_790_000_000,
        unknown_pods: false,
        running: &[],
    };
    let kept = of(Some(&map(&published(7))), "config.yml", evidence).unwrap();
    assert_eq!((kept.repair, kept.published.epoch), (None, 7));
}

#[test]
fn the_creation_time_is_the_first_version() {
    let swarm = |created: serde_json::Value| -> Swarm {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "s", "creationTimestamp": created},
            "spec": {"workload": {"name": "w"}, "jobs": ["a"]},
        }))
        .unwrap()
    };
    assert_eq!(made(&swarm("2026-01-01T00:00:00Z".into())), 1_767_225_600);
    assert_eq!(made(&swarm("1969-12-31T23:59:59Z".into())), 0);
    assert_eq!(made(&swarm(serde_json::Value::Null)), 0);
}
