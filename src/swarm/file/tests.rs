use proptest::{collection, prelude::*};

use super::*;

fn published(shares: &[(&str, &[&str], Epoch)], epoch: Epoch) -> Published {
    let share = |(worker, streams, version): &(&str, &[&str], Epoch)| {
        let streams = streams.iter().map(|stream| (*stream).into()).collect();
        ((*worker).into(), Share { streams, version: *version })
    };
    Published { epoch, shares: shares.iter().map(share).collect(), ..Published::default() }
}

#[test]
fn the_files_are_as_documented() {
    let lists: &[(&str, &[&str], Epoch)] =
        &[("w-10", &[], 0), ("w-2", &["stream:xxctv12:updated", "true", "7"], 12)];
    let mut file = published(lists, 14);
    file.barrier = Some(13);
    for (stream, worker, since) in
        [("b", "w-10", 14), ("a", "w-10", 14), ("c", "w-10", 9), ("a", "w-9", 3)]
    {
        file.releasing.insert((stream.into(), worker.into()), since);
    }
    let Files { config, state } = render(&file);
    let expected = "\
workloads:
  w-2:
    jobs:
    - stream:xxctv12:updated
    - 'true'
    - '7'
    version: 12
  w-10:
    jobs: []
    version: 0
version: 14
";
    assert_eq!(config, expected);
    let expected = format!(
        "\
config: {}
barrier: 13
releasing:
- worker: w-9
  epoch: 3
  streams:
  - a
- worker: w-10
  epoch: 9
  streams:
  - c
- worker: w-10
  epoch: 14
  streams:
  - a
  - b
",
        fingerprint(&config)
    );
    assert_eq!(state, expected);
    let parsed = parse(&config, Some(&state)).unwrap();
    assert_eq!(parsed, Parsed { published: file, duplicates: vec![], origin: Origin::Ours });
}

/// Shape of the original's sample with its own mistake: one job on both workers.
#[test]
fn the_originals_file_is_read_and_its_duplicate_told() {
    let text = "\
workloads:
    swarm-worker-0:
        jobs:
            - stream:xxrtve1
            - stream:xxctv12:updated
        version: 0
    swarm-worker-1:
        jobs:
            - stream:xxctv12:updated
            - stream:cars:new
        version: 0
        somethingElse: {a: b}
version: 7
another: key
";
    let parsed = parse(text, None).unwrap();
    let expected: &[(&str, &[&str], Epoch)] = &[
        ("swarm-worker-0", &["stream:xxrtve1", "stream:xxctv12:updated"], 0),
        ("swarm-worker-1", &["stream:xxctv12:updated", "stream:cars:new"], 0),
    ];
    assert_eq!(parsed.published, published(expected, 7));
    assert_eq!(parsed.origin, Origin::Foreign);
    let duplicate = Duplicate {
        stream: "stream:xxctv12:updated".into(),
        keeper: "swarm-worker-0".into(),
        other: "swarm-worker-1".into(),
    };
    assert_eq!(parsed.duplicates, [duplicate]);
}

#[test]
fn what_is_missing_is_empty() {
    for text in ["", "# later\n", "{}", "workloads:\n", "workloads: {}\nversion: 0", "null"] {
        assert_eq!(parse(text, None).unwrap().published, Published::default(), "{text:?}");
    }
    let text = "workloads:\n  a:\n  b: {}\n  c: {jobs: }\n  d: {jobs: [x, 7, -7], version: 4}\n";
    let expected: &[(&str, &[&str], Epoch)] =
        &[("a", &[], 0), ("b", &[], 0), ("c", &[], 0), ("d", &["x", "7", "-7"], 4)];
    assert_eq!(parse(text, None).unwrap().published, published(expected, 4));
}

#[test]
fn an_edit_is_noticed() {
    let files = render(&published(&[("w-0", &["a"], 1)], 1));
    let edited = files.config.replace("- a", "- b");
    assert_eq!(parse(&edited, Some(&files.state)).unwrap().origin, Origin::Edited);
    for emptied in ["", "releasing: []", "config:"] {
        assert_eq!(parse(&files.config, Some(emptied)).unwrap().origin, Origin::Edited);
    }
}

#[test]
fn errors_say_the_line() {
    let config = |text| parse(text, None).unwrap_err().to_string();
    for (text, part) in [
        ("workloads:\n  w-0:\n    jobs: 7\n", "at line 3"),
        ("workloads:\n  w-0:\n    jobs:\n    - a\n    - 1.5\n", "at line 5"),
        ("workloads:\n  w-0:\n    jobs: [true]\n", "in quotes"),
        ("workloads: [a]\n", "a map from workers to their jobs at line 1"),
        ("workloads:\n  a: {jobs: [x]}\n  b: {}\n  a: {jobs: [y]}\n", "a is listed twice"),
        ("version: -1\n", "a whole number from 0 to 9007199254740992"),
        ("version: 9007199254740993\n", "at line 1"),
        ("- a\n", "a map with `workloads` and `version`"),
        ("workloads:\n\t- a\n", "at line 2"),
    ] {
        let error = config(text);
        assert!(error.contains(part), "{error}");
        assert!(error.starts_with("the workers' file: "), "{error}");
    }
    let state = |text| parse("", Some(text)).unwrap_err().to_string();
    for text in ["releasing:\n- worker: a\n  streams: []\n", "releasing: 7", "a: b: c"] {
        assert!(state(text).starts_with("handover.yml: "), "{}", state(text));
    }
    assert!(state("releasing:\n- worker: a\n  epoch: x\n").contains("at line 3"));
}

/// The streams of a swarm at the limit, all of them releasing, take hardly more room than all of them
/// owned: a handover does not fail in the middle for the size of its file.
#[test]
fn what_is_releasing_takes_no_more_room_than_what_is_owned() {
    let streams: Vec<Name> = (0..10_000).map(|i| format!("stream:number:{i}").into()).collect();
    let mut owned = Published { epoch: 7, ..Published::default() };
    let mut releasing = owned.clone();
    for (i, stream) in streams.iter().enumerate() {
        let worker: Name = format!("swarm-worker-{}", i % 100).into();
        owned.shares.entry(worker.clone()).or_default().streams.push(stream.clone());
        releasing.releasing.insert((stream.clone(), worker), 7);
    }
    let size = |file| {
        let Files { config, state } = render(file);
        config.len() + state.len()
    };
    let (owned, releasing) = (size(&owned), size(&releasing));
    assert!(releasing < owned + 10 * 1024, "{releasing} of {owned}");
}

fn name() -> impl Strategy<Value = Name> {
    let text = prop_oneof![
        "[a-c]{1,2}",
        "w-[0-9]{1,2}",
        // What YAML could take for something else.
        "(true|null|~|1e3|0x1f|-7|1_000|12:30|- a|a: b|#a|'|\"|&a|\\*a|!a|%a|@a| a |\\{|\\[)",
        "\\PC{0,12}",
        any::<String>(),
    ];
    text.prop_map(Into::into)
}

prop_compose! {
    fn any_published()(
        epoch in 0..=LARGEST_EPOCH,
        shares in collection::btree_map(name(), (collection::vec(name(), 0..5), 0..=LARGEST_EPOCH), 0..5),
        releasing in collection::btree_map((name(), name()), 0..=LARGEST_EPOCH, 0..8),
        barrier in proptest::option::of(0..=LARGEST_EPOCH),
    ) -> Published {
        let share = |(worker, (streams, version))| (worker, Share { streams, version });
        Published { epoch, shares: shares.into_iter().map(share).collect(), releasing, barrier, ..Published::default() }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(file in any_published()) {
        let files = render(&file);
        let parsed = parse(&files.config, Some(&files.state)).unwrap();
        prop_assert_eq!(parsed.published, file);
        prop_assert_eq!(parsed.origin, Origin::Ours);
    }

    #[test]
    fn no_text_makes_it_panic(config in any::<String>(), state in any::<String>()) {
        let _ = parse(&config, Some(&state));
    }
}
