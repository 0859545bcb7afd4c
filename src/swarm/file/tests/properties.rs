//! Every file of ours is read as it was written, by the operator and by each worker; every other
//! text is refused by name, or known as an edit.
use serde_json::Value;

use super::*;
use crate::{agent::worker::share, placement::part};

/// A file with everything that a state may say.
fn whole() -> impl Strategy<Value = Published> {
    let outdated = collection::btree_map(name(), name(), 0..3);
    (any_published(), outdated).prop_map(|(file, outdated)| Published { outdated, ..file })
}

/// Asserts that a worker reads its share of a text, and nothing else.
fn worker_reads(
    file: &Published,
    worker: &str,
    config: &str,
    part: Option<(u32, u32)>,
) -> Result<(), TestCaseError> {
    let read = share::parse(config.as_bytes(), worker, part);
    prop_assert!(read.is_ok(), "{worker:?}: {:?} in {config}", read.err());
    let Ok(read) = read else { return Ok(()) };
    let own = file.shares.get(worker);
    let mut expected: Vec<&str> = vec![];
    for stream in own.iter().flat_map(|share| &share.streams) {
        if !expected.contains(&&**stream) {
            expected.push(stream);
        }
    }
    let streams: Vec<&str> = read.streams.iter().map(AsRef::as_ref).collect();
    prop_assert_eq!(&streams, &expected);
    let mut coming: Vec<&str> = vec![];
    for stream in file.next.get(worker).into_iter().flatten() {
        if !expected.contains(&&**stream) && !coming.contains(&&**stream) {
            coming.push(stream);
        }
    }
    prop_assert_eq!(read.next.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), coming);
    let epoch = own.map_or(file.epoch, |share| share.version);
    prop_assert_eq!((read.version, read.epoch), (file.epoch, epoch));
    Ok(())
}

/// Any YAML of a few words that mean something here.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        (0..20_u64).prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 16, 4, |inner| {
        let word = proptest::sample::select(
            &["workloads", "jobs", "version", "part", "parts", "w-0", "releasing", "worker"][..],
        );
        let more = proptest::sample::select(
            &["epoch", "streams", "barrier", "outdated", "config", "x"][..],
        );
        let key = prop_oneof![word, more];
        prop_oneof![
            collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            collection::btree_map(key, inner, 0..4).prop_map(|all| serde_json::json!(all)),
        ]
    })
}

/// The text with an edit: where, how many characters vanish, and what is written there.
fn edited(text: &str, at: proptest::sample::Index, gone: usize, written: &str) -> String {
    let all: Vec<char> = text.chars().collect();
    let start = at.index(all.len() + 1);
    let end = (start + gone).min(all.len());
    all[..start].iter().copied().chain(written.chars()).chain(all[end..].iter().copied()).collect()
}

proptest! {
    #[test]
    fn operator_and_workers_read_what_is_written(file in whole(), other in name()) {
        let files = render(&file);
        let parsed = parse(&files.config, Some(&files.state)).unwrap();
        prop_assert_eq!((&parsed.published, parsed.origin), (&file, Origin::Ours));
        for worker in file.shares.keys().chain([&other]) {
            worker_reads(&file, worker, &files.config, None)?;
            // Of an undivided file no part is read.
            prop_assert!(share::parse(files.config.as_bytes(), worker, Some((0, 2))).is_err());
        }
    }

    #[test]
    fn a_divided_file_is_read_part_by_part(
        file in whole(), count in 2..=parts::MOST, other in name(),
    ) {
        let head = parts::Head {
            epoch: file.epoch,
            barrier: file.barrier,
            parts: vec![file.epoch; count as usize],
        };
        prop_assert_eq!(&parts::Head::parse(&head.render()).unwrap(), &head);
        let divided = parts::divide(&file, count);
        let mut read = vec![];
        for (i, one) in (0..).zip(&divided) {
            let files = parts::render(one, i, count);
            let parsed = parse(&files.config, Some(&files.state)).unwrap();
            prop_assert_eq!((&parsed.published, parsed.origin), (one, Origin::Ours));
            for worker in file.shares.keys().chain([&other]) {
                let own = part::of(worker, count);
                if own == i {
                    worker_reads(&file, worker, &files.config, Some((i, count)))?;
                } else {
                    let of = Some((own, count));
                    prop_assert!(share::parse(files.config.as_bytes(), worker, of).is_err());
                }
            }
            read.push(parsed.published);
        }
        prop_assert_eq!(parts::unite(&head, &read), file);
    }

    /// An edit of the workers' file is known as one, whatever it makes of the content: what workers
    /// have read is not known then.
    #[test]
    fn no_edit_of_the_workers_file_passes_for_ours(
        file in whole(), at: proptest::sample::Index, gone in 0..3_usize,
        written in "([-: '\"\n#&*{}0-9]|\\[|\\]|null|jobs|\\PC){0,3}",
    ) {
        let files = render(&file);
        let config = edited(&files.config, at, gone, &written);
        match parse(&config, Some(&files.state)) {
            Ok(parsed) => {
                let same = config == files.config;
                prop_assert_eq!(parsed.origin == Origin::Ours, same, "{}", config);
                prop_assert_eq!(parsed.published.releasing, file.releasing);
            }
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.starts_with("the workers' file: "), "{text}");
            }
        }
        // A worker may see it before the operator repairs it.
        for worker in file.shares.keys() {
            let _ = share::parse(config.as_bytes(), worker, None);
        }
    }

    /// A state that is wrong takes no stream from a worker, and gives none.
    #[test]
    fn no_edit_of_the_state_changes_what_workers_have(
        file in whole(), at: proptest::sample::Index, gone in 0..3_usize,
        written in "([-: '\"\n#&*{}0-9]|\\[|\\]|null|epoch|\\PC){0,3}",
    ) {
        let files = render(&file);
        let state = edited(&files.state, at, gone, &written);
        match parse(&files.config, Some(&state)) {
            Ok(parsed) => {
                prop_assert_eq!(parsed.published.shares, file.shares);
                prop_assert_eq!(parsed.published.epoch, file.epoch);
            }
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.starts_with("handover.yml: "), "{text}");
            }
        }
        let _ = parts::Head::parse(&state);
    }

    /// Files of others, and of nobody.
    #[test]
    fn any_yaml_is_read_or_refused_by_name(config in anything(), state in anything()) {
        let (config, state) = (config.to_string(), state.to_string());
        match parse(&config, Some(&state)) {
            Ok(parsed) => {
                let of = |worker: &Name| share::parse(config.as_bytes(), worker, None);
                for (worker, share) in &parsed.published.shares {
                    // Both read the same streams from every file that both can read.
                    let Ok(read) = of(worker) else { continue };
                    let ours: std::collections::BTreeSet<&str> =
                        share.streams.iter().map(AsRef::as_ref).collect();
                    let theirs: std::collections::BTreeSet<&str> =
                        read.streams.iter().map(AsRef::as_ref).collect();
                    prop_assert_eq!(ours, theirs, "{}", config);
                }
            }
            Err(error) => {
                let text = error.to_string();
                let named = ["the workers' file: ", "handover.yml: "];
                prop_assert!(named.iter().any(|name| text.starts_with(name)), "{text}");
            }
        }
        match parts::Head::parse(&state) {
            Ok(head) => prop_assert_eq!(parts::Head::parse(&head.render()).unwrap(), head),
            Err(error) => prop_assert!(error.to_string().starts_with("handover.yml: ")),
        }
    }
}
