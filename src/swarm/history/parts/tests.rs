use super::*;
use crate::swarm::{
    acknowledge::Answer,
    file::parts::{divide, render},
    handover::{Epoch, Share},
    watches::MapFacts,
};

const FILES: u32 = 3;

fn swarm(files: u32) -> Swarm {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": "s", "namespace": "n", "uid": "s"},
        "spec": {"workload": {"name": "s"}, "jobs": ["a"], "configMap": {"files": files}}
    }))
    .unwrap()
}

/// Parts 0 and 2 have workers.
fn published(epoch: Epoch) -> Published {
    let share = |stream: &str| Share { streams: vec![stream.into()], version: 3 };
    Published {
        epoch,
        shares: [("s-0".into(), share("a")), ("s-1".into(), share("b"))].into(),
        releasing: [(("c".into(), "s-0".into()), 3)].into(),
        ..Published::default()
    }
}

fn map(config: Option<String>, state: String, version: &str) -> MapFacts {
    let content = Some(fingerprint(config.as_deref().unwrap_or_default(), &state));
    let config = config.map(|config| ("config.yml".to_owned(), config));
    let data = config.into_iter().chain([(STATE_KEY.to_owned(), state)]).collect();
    let resource_version = version.to_owned();
    MapFacts { content, resource_version, data: Arc::new(data), ..MapFacts::default() }
}

fn head(epoch: Epoch, parts: [Epoch; 3]) -> MapFacts {
    let head = Head { epoch, barrier: None, parts: parts.into() };
    map(None, head.render(), "1")
}

fn part(published: &Published, i: u32, version: Epoch) -> MapFacts {
    let mut part = divide(published, FILES).swap_remove(i as usize);
    part.epoch = version;
    let file::Files { config, state } = render(&part, i, FILES);
    map(Some(config), state, &format!("{i}{version}"))
}

fn view(published: &Published, parts: [Epoch; 3]) -> WorkloadView {
    let each = (0..).zip(parts).map(|(i, version)| Some(part(published, i, version)));
    WorkloadView {
        share: Some(head(published.epoch, parts)),
        parts: each.collect(),
        ..WorkloadView::default()
    }
}

fn read(
    view: &WorkloadView,
    memory: &Memory,
    reported: Epoch,
    unknown_pods: bool,
) -> (History, Good) {
    of(&swarm(FILES), view, Evidence { memory, reported, made: 0, unknown_pods, running: &[] })
        .unwrap()
}

fn knows(published: &Published) -> Memory {
    Memory { published: Some(Arc::new(published.clone())), ..Memory::default() }
}

#[test]
fn parts_of_the_versions_that_the_head_says_are_the_file() {
    let view = view(&published(7), [7, 2, 3]);
    let (history, good) = read(&view, &Memory::default(), 7, true);
    assert_eq!(history, History { published: published(7), repair: None, edited: None });
    assert!(good.iter().all(Option::is_some));
    assert_eq!(*super::published(&swarm(FILES), &view, &Memory::default()).unwrap(), published(7));
}

/// The operator was killed between the head and a part.
#[test]
fn a_part_behind_its_head_is_written_again_before_anything_rests_on_it() {
    let mut view = view(&published(7), [6, 2, 3]);
    view.share = Some(head(7, [7, 2, 3]));
    let (history, good) = read(&view, &Memory::default(), 7, true);
    assert_eq!(history.repair, Some(Repair::Fence));
    let next = history.repaired(0);
    assert_eq!(next, Published { epoch: 8, ..published(7) }, "nothing else changes");
    let there: Vec<_> = good.iter().map(Option::is_some).collect();
    assert_eq!(there, [false, true, true], "only that part differs");
    // A pod that comes now reads a part of version 6, and is not of 7.
    let published = |memory: &Memory| super::published(&swarm(FILES), &view, memory).unwrap().epoch;
    assert_eq!(published(&Memory::default()), 6);
    // The replica that made the decision writes it.
    let decided = Published { releasing: BTreeMap::new(), ..self::published(7) };
    assert_eq!(published(&knows(&decided)), 6);
    let (history, _) = read(&view, &knows(&decided), 7, true);
    assert_eq!((history.repair, &history.published), (Some(Repair::Fence), &decided));
    // A replica that decided earlier has an outdated memory.
    let before = Published { epoch: 6, ..decided };
    let (history, _) = read(&view, &knows(&before), 6, true);
    assert_eq!((history.repair, history.published), (Some(Repair::Fence), self::published(7)));
}

#[test]
fn a_part_that_is_gone_is_restored_where_its_content_is_known() {
    let mut view = view(&published(7), [7, 2, 3]);
    view.parts[2] = None;
    let (history, good) = read(&view, &knows(&published(7)), 7, true);
    assert_eq!(history.repair, Some(Repair::Restore));
    assert_eq!(history.repaired(0), Published { epoch: 8, ..published(7) });
    assert_eq!(good.iter().flatten().count(), 2);
    // After a restart it is not known: then nothing is given away before all have acknowledged.
    let (history, _) = read(&view, &Memory::default(), 7, true);
    assert_eq!(history.repair, Some(Repair::Barrier));
    assert_eq!(history.repaired(0).barrier, Some(8));
    let lists: Vec<_> = history.published.shares.keys().map(|worker| &**worker).collect();
    assert_eq!(lists, ["s-0"], "the rest of the lists stays");
    assert_eq!(read(&view, &Memory::default(), 7, false).0.repair, Some(Repair::First));
    // Nor to one that remembers less than was written since.
    let (history, _) = read(&view, &knows(&published(6)), 6, true);
    assert_eq!(history.repair, Some(Repair::Barrier));
}

#[test]
fn an_edited_part_is_put_back_and_read_lists_count() {
    let mut view = view(&published(7), [7, 2, 3]);
    let edited = view.parts[0].as_mut().unwrap();
    let config = Arc::make_mut(&mut edited.data).get_mut("config.yml").unwrap();
    *config = config.replace("- a", "- b").replace("version: 7", "version: 9");
    let (history, good) = read(&view, &knows(&published(7)), 7, true);
    assert_eq!(history.repair, Some(Repair::Undo));
    assert!(good[0].is_none() && good[1].is_some() && good[2].is_some());
    let next = history.repaired(0);
    assert_eq!(next.epoch, 10, "above the edit");
    assert_eq!(next.shares["s-0"].streams, ["a".into()]);
    // Both may run b: the one because of the edit, the other because of its list.
    for worker in ["s-0", "s-1"] {
        assert_eq!(next.releasing.get(&("b".into(), worker.into())), Some(&10), "{worker}");
    }
    assert_eq!(read(&view, &Memory::default(), 7, true).0.repair, Some(Repair::Barrier));
}

/// A backup of the head was restored, or it was deleted: parts are newer than any record.
#[test]
fn a_part_ahead_of_its_head_is_no_proof_of_anything() {
    let mut view = view(&published(7), [7, 2, 3]);
    for share in [Some(head(6, [3, 2, 3])), None] {
        view.share = share;
        let (history, _) = read(&view, &Memory::default(), 6, true);
        assert_eq!(history.repair, Some(Repair::Barrier));
        assert_eq!(history.repaired(0).epoch, 8);
        let (history, good) = read(&view, &knows(&published(7)), 7, true);
        assert_eq!((history.repair, history.repaired(0).epoch), (Some(Repair::Undo), 8));
        assert!(good[0].is_none());
    }
}

/// The `Swarm` was deleted without its `ConfigMap`s, and applied again with another number of
/// files.
#[test]
fn another_number_of_files_is_a_barrier() {
    let two = WorkloadView {
        parts: vec![Some(part(&published(7), 0, 7)), None],
        ..view(&published(7), [7, 2, 3])
    };
    let memory = Memory::default();
    let evidence =
        Evidence { memory: &memory, reported: 0, made: 0, unknown_pods: true, running: &[] };
    let (history, good) = of(&swarm(2), &two, evidence).unwrap();
    assert_eq!(history.repair, Some(Repair::Barrier));
    assert!(history.repaired(0).epoch > 7 && good.iter().all(Option::is_none));
    // From one file to three its lists stay, and from three to one nothing seems to be an empty
    // file.
    let file::Files { config, state } = file::render(&published(7));
    let one = map(Some(config), state, "1");
    let grown = WorkloadView { share: Some(one), parts: vec![None; 3], ..WorkloadView::default() };
    let (history, _) = of(&swarm(3), &grown, evidence).unwrap();
    assert_eq!(history.repair, Some(Repair::Barrier));
    assert_eq!(history.published, published(7));
    let history = super::super::of(two.share.as_ref(), "config.yml", evidence).unwrap();
    assert_eq!(history.repair, Some(Repair::Barrier));
}

/// An old part was restored, or one is gone, while no operator ran: as for one file.
#[test]
fn reports_count_for_parts_too() {
    let say = |worker: &str, streams: &[&str]| {
        let jobs = streams.iter().map(|stream| (*stream).to_owned()).collect();
        (worker.into(), Arc::new(Answer { version: Some(7), jobs: Some(jobs), prepared: None }))
    };
    let known = |view: &WorkloadView, reported: Epoch, running: &[(Arc<str>, Arc<Answer>)]| {
        let memory = Memory::default();
        let evidence = Evidence { memory: &memory, reported, made: 0, unknown_pods: true, running };
        let (history, _) = of(&swarm(FILES), view, evidence).unwrap();
        assert_eq!(history.repair, Some(Repair::Barrier));
        history.published
    };
    let lists = |file: &Published, worker: &str, stream: &str| {
        file.shares.get(worker).is_some_and(|share| share.streams.contains(&stream.into()))
    };
    let lets_go = |file: &Published, worker: &str, stream: &str| {
        file.releasing.contains_key(&(stream.into(), worker.into()))
    };
    // Two workers of one part run each other's streams.
    let mut file = published(7);
    let mut names = (1..1000).map(|i| format!("s-{i}"));
    let second = names.find(|name| part::of(name, FILES) == 0).unwrap();
    let share = Share { streams: vec!["d".into()], version: 3 };
    file.shares.insert(second.as_str().into(), share);
    let exchanged = [say("s-0", &["d"]), say(&second, &["a"]), say("s-1", &["b"])];
    let reported = known(&view(&file, [7, 2, 3]), 8, &exchanged);
    for worker in ["s-0", &second] {
        for stream in ["a", "d"] {
            assert!(
                lets_go(&reported, worker, stream) && !lists(&reported, worker, stream),
                "{reported:?}"
            );
        }
    }
    assert!(lists(&reported, "s-1", "b") && !lets_go(&reported, "s-1", "b"));
    // A part is gone: its workers own what they run, and what is in no other list.
    let mut gone = view(&published(7), [7, 2, 3]);
    gone.parts[2] = None;
    let reported = known(&gone, 7, &[say("s-1", &["b"])]);
    assert!(lists(&reported, "s-1", "b") && lists(&reported, "s-0", "a"));
    let reported = known(&gone, 7, &[say("s-1", &["a", "b"])]);
    assert!(
        lists(&reported, "s-1", "b")
            && !lists(&reported, "s-1", "a")
            && !lists(&reported, "s-0", "a")
    );
    assert!(lets_go(&reported, "s-1", "a") && lets_go(&reported, "s-0", "a"));
}
