//! Properties of every file, from any writer.
use proptest::{collection, prelude::*};
use serde_json::{Value, json};

use super::*;

/// The entry of another worker: any JSON.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~äß]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let key = prop::sample::select(vec!["jobs", "version", "w", "workloads", "part", "x"]);
        prop_oneof![
            collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            collection::btree_map(key, inner, 0..4).prop_map(|all| json!(all)),
        ]
    })
}

fn file(streams: &[String], epoch: u64, version: u64) -> String {
    let jobs: Vec<_> = streams.iter().map(|stream| format!("    - '{stream}'\n")).collect();
    let jobs = if jobs.is_empty() { " []\n".into() } else { format!("\n{}", jobs.join("")) };
    format!(
        "workloads:\n  other:\n    jobs:\n    - 'x'\n    version: 1\n  w:\n    jobs:{jobs}    \
         version: {epoch}\nversion: {version}\n"
    )
}

fn names() -> impl Strategy<Value = Vec<String>> {
    collection::btree_set("[a-z0-9:]{1,6}", 0..5).prop_map(|set| set.into_iter().collect())
}

proptest! {
    #[test]
    fn nobody_elses_entry_changes_a_share(
        other in anything(), streams in names(), epoch in 0..9_u64, version in 0..9_u64,
        extra in anything(),
    ) {
        let text = json!({
            "extra": extra, "version": version,
            "workloads": {"a": other, "w": {"jobs": streams, "version": epoch}, "z": other},
        });
        let share = parse(text.to_string().as_bytes(), "w", None).unwrap();
        let read: Vec<_> = share.streams.iter().map(ToString::to_string).collect();
        prop_assert_eq!((share.version, share.epoch, read), (version, epoch, streams));
    }

    /// A file that breaks off is none, or an older one, which is not followed.
    #[test]
    fn no_beginning_of_a_file_is_as_new_as_the_file(
        streams in names(), epoch in 1..100_u64, version in 1..1000_u64, at: prop::sample::Index,
    ) {
        let text = file(&streams, epoch, version);
        let whole = parse(text.as_bytes(), "w", None).unwrap();
        let read = (whole.version, whole.epoch, whole.streams.len());
        prop_assert_eq!(read, (version, epoch, streams.len()));
        let cut = at.index(text.len());
        if let Ok(begun) = parse(&text.as_bytes()[..cut], "w", None) {
            let complete = text[cut..].trim().is_empty();
            prop_assert!(begun.version < version || complete, "{begun:?} of {}", &text[..cut]);
            let mut newest = Newest::default();
            newest.offer(whole.clone());
            newest.offer(begun);
            let kept = newest.get();
            prop_assert_eq!(kept.as_deref(), Some(&whole));
        }
    }

    #[test]
    fn no_text_makes_it_panic(
        bytes: Vec<u8>, json in anything(), streams in names(), at: prop::sample::Index,
        gone in 0..3_usize, written in "([-: '\"\n#&*{}0-9]|\\[|\\]|null|\\PC){0,3}",
    ) {
        let text = file(&streams, 3, 4);
        let cut = at.index(text.len());
        let end = (cut + gone).min(text.len());
        let edited = format!("{}{written}{}", &text[..cut], &text[end..]);
        for text in [bytes, json.to_string().into_bytes(), edited.into_bytes()] {
            for part in [None, Some((0, 2))] {
                if let Err(error) = parse(&text, "w", part) {
                    let text = format!("{error:#}");
                    prop_assert!(!text.is_empty());
                }
            }
        }
    }

    /// Whatever order files arrive in, what runs never goes back.
    #[test]
    fn versions_never_go_back(files in collection::vec((0..6_u64, names()), 1..12)) {
        let mut newest = Newest::default();
        let mut expected: Option<Share> = None;
        for (version, streams) in files {
            let streams = streams.into_iter().map(Arc::from).collect();
            let share = Share { version, epoch: version, streams, next: vec![] };
            let newer = expected.as_ref().is_none_or(|last| version > last.version);
            let looked = newest.offer(share.clone());
            prop_assert_eq!(looked == Looked::Changed, newer);
            if newer {
                expected = Some(share);
            }
            let kept = newest.get();
            prop_assert_eq!(kept.as_deref(), expected.as_ref());
        }
    }
}
