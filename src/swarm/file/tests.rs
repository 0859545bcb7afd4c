use proptest::{collection, prelude::*};

use super::*;

mod properties;

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

/// A worker that reads line by line takes every line that begins with `- ` in its entry for a stream.
#[test]
fn what_will_come_is_on_one_line() {
    let mut file = published(&[("w-1", &["a"], 3), ("w-0", &[], 2)], 4);
    let next = ["on", "b \"c\\", "stream:ü", "x, y]"].map(Name::from);
    file.next.insert("w-0".into(), next.into());
    let files = render(&file);
    let expected = "\
workloads:
  w-0:
    jobs: []
    next: [\"on\", \"b \\\"c\\\\\", \"stream:\\U000000fc\", \"x, y]\"]
    version: 2
  w-1:
    jobs:
    - a
    version: 3
version: 4
";
    assert_eq!(files.config, expected);
    assert_eq!(parse(&files.config, Some(&files.state)).unwrap().published, file);
}

/// Shape of the original's sample with its own mistake: one job on both workers.
#[test]
fn the_originals_file_is_read_and_its_duplicate_reported() {
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

/// The streams of a swarm at the limit, all of them releasing, take hardly more room than all of
/// them owned: a handover does not fail in the middle for the size of its file.
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

/// Texts that YAML 1.1 types (yaml.org/type: bool, float, int, merge, null, timestamp, value) would
/// match, one for each form, and some extensions of single libraries.
const OTHERS: [&str; 62] = [
    "y",
    "Y",
    "yes",
    "Yes",
    "YES",
    "n",
    "N",
    "no",
    "No",
    "NO",
    "true",
    "True",
    "TRUE",
    "false",
    "False",
    "FALSE",
    "on",
    "On",
    "ON",
    "off",
    "Off",
    "OFF",
    "~",
    "null",
    "Null",
    "NULL",
    "",
    "=",
    "<<",
    "0",
    "-19",
    "+12",
    "1_000",
    "0b1010_0111",
    "-0b1",
    "02472256",
    "0o17",
    "0x_0A_74_AE",
    "-0xff",
    "12:30",
    "190:20:30",
    "-1:30",
    "1.5",
    "1_000.5",
    ".5",
    "685.230_15e+03",
    "6.8523015e+5",
    "1e3",
    "190:20:30.15",
    ".inf",
    "-.Inf",
    "+.INF",
    ".nan",
    ".NaN",
    "2024-01-01",
    "2001-12-14t21:59:43.10-05:00",
    "2001-12-14 21:59:43.10 -5",
    "2001-1-4T1:2:3Z",
    "1.2.3",
    "1.",
    ":symbol",
    "00:1A:2B:3C:4D:5E",
];

/// Returns the form of a name in the file as a stream, and as a worker.
fn written(name: &str) -> (String, String) {
    let file = published(&[(name, &[name], 1)], 1);
    let files = render(&file);
    assert_eq!(parse(&files.config, Some(&files.state)).unwrap().published, file, "{name:?}");
    let lines: Vec<_> = files.config.split('\n').collect();
    let stream = lines.iter().find_map(|line| line.strip_prefix("    - ")).expect("a stream");
    let worker = lines[1].strip_prefix("  ").expect("a worker").strip_suffix(':').expect("a key");
    (stream.to_owned(), worker.to_owned())
}

#[test]
fn what_yaml_1_1_takes_for_something_else_is_quoted() {
    for name in OTHERS {
        let quoted = format!("'{name}'");
        assert_eq!(written(name), (quoted.clone(), quoted), "{name:?}");
    }
    // A quote in it is doubled.
    assert_eq!(written(":it's"), ("':it''s'".to_owned(), "':it''s'".to_owned()));
    // No other text differs from before.
    for name in [
        "stream:xxrtve1",
        "camera-1",
        "cam 1",
        "one",
        "yesterday",
        "12 monkeys",
        "a=b",
        "zrtve2:new",
    ] {
        assert_eq!(written(name), (name.to_owned(), name.to_owned()));
    }
}

#[test]
fn another_text_of_the_same_content_is_nobodys_edit() {
    let file = published(&[("w-0", &["on", "a"], 1)], 1);
    let files = render(&file);
    // As earlier versions wrote it, without quotes.
    let config = files.config.replace("'on'", "on");
    assert_ne!(config, files.config);
    let state = files.state.replace(&fingerprint(&files.config), &fingerprint(&config));
    let parsed = parse(&config, Some(&state)).unwrap();
    assert_eq!((parsed.published, parsed.origin), (file, Origin::Ours));
}

#[test]
fn aliases_do_not_make_a_file_longer_than_its_text() {
    let jobs = vec!["a".repeat(200); 5_000].join(",");
    let workers: Vec<_> = (0..9).map(|i| format!("  w-{i}: *a\n")).collect();
    let text = format!("workloads:\n  w: &a {{jobs: [{jobs}]}}\n{}", workers.join(""));
    let error = parse(&text, None).unwrap_err().to_string();
    assert!(error.contains("aliases repeat them"), "{error}");
    let streams = vec!["*a"; 9_000].join(",");
    let state = format!(
        "config: &a {}\nreleasing: [{{worker: w, epoch: 1, streams: [{streams}]}}]",
        "a".repeat(999)
    );
    let error = parse("", Some(&state)).unwrap_err().to_string();
    assert!(error.contains("aliases repeat them"), "{error}");
}

proptest! {
    /// The same by the grammar of those types.
    #[test]
    fn numbers_dates_and_times_are_quoted(name in prop_oneof![
        "[-+]?(0|[1-9][0-9_]{0,8})",
        "[-+]?0[0-7_]{1,8}",
        "[-+]?0x[0-9a-fA-F_]{1,8}",
        "[-+]?0b[01_]{1,8}",
        "[-+]?[1-9][0-9_]{0,3}(:[0-5]?[0-9]){1,3}",
        "[-+]?([0-9][0-9_]{0,4})?\\.[0-9._]{1,4}([eE][-+][0-9]{1,3})?",
        "[-+]?[0-9][0-9_]{0,3}(:[0-5]?[0-9]){1,2}\\.[0-9_]{0,3}",
        "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}",
        "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt]|[ \t]{1,2})[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{0,3})?( ?(Z|[-+][0-9]{1,2}(:[0-9]{2})?))?",
    ]) {
        let (stream, worker) = written(&name);
        for text in [stream, worker] {
            prop_assert!(text.starts_with(['\'', '"']), "{} is {}", name, text);
        }
    }
}

fn name() -> impl Strategy<Value = Name> {
    let text = prop_oneof![
        "[a-c]{1,2}",
        "w-[0-9]{1,2}",
        proptest::sample::select(OTHERS.to_vec()).prop_map(str::to_owned),
        // Text that could be read as another entry of the file.
        "(a\n)?( {0,6}(- )?(on|1:2|=|w:)\n?){1,3}",
        // Text that YAML could read as another type.
        "(true|null|~|1e3|0x1f|-7|1_000|12:30|- a|a: b|#a|'|\"|&a|\\*a|!a|%a|@a| a |\\{|\\[)",
        "\\PC{0,12}",
        any::<String>(),
    ];
    text.prop_map(Into::into)
}

/// The file could not be read any more: a name that begins like a symbol of Ruby's, and has a
/// quote.
#[test]
fn a_quote_within_a_name_that_is_quoted_is_kept() {
    let share = Share { streams: vec![":'".into(), ":a''b".into()], version: 1 };
    let shares = [("w-0".into(), share)].into();
    let file = Published { epoch: 1, shares, ..Published::default() };
    let files = render(&file);
    assert_eq!(parse(&files.config, Some(&files.state)).unwrap().published, file);
}

prop_compose! {
    fn any_published()(
        epoch in 0..=LARGEST_EPOCH,
        shares in collection::btree_map(name(), (collection::vec(name(), 0..5), 0..=LARGEST_EPOCH, collection::vec(name(), 0..3)), 0..5),
        releasing in collection::btree_map((name(), name()), 0..=LARGEST_EPOCH, 0..8),
        barrier in proptest::option::of(0..=LARGEST_EPOCH),
    ) -> Published {
        let lists = shares.iter().filter(|(_, (.., next))| !next.is_empty());
        let next = lists.map(|(worker, (.., next))| (worker.clone(), next.clone())).collect();
        let share = |(worker, (streams, version, _))| (worker, Share { streams, version });
        Published { epoch, shares: shares.into_iter().map(share).collect(), next, releasing, barrier, ..Published::default() }
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
