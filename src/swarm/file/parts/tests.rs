use super::*;
use crate::swarm::{file, handover::Share};

fn published() -> Published {
    let share = |i: u64| Share { streams: vec![format!("s{i}").into()], version: i };
    let shares = (1..9).map(|i| (format!("w-{i}").into(), share(i))).collect();
    let releasing = [(("x".into(), "w-3".into()), 8), (("y".into(), "w-20".into()), 7)].into();
    let outdated = [("w-4".into(), "uid".into())].into();
    let next = [("w-5".into(), vec!["x".into()])].into();
    Published { epoch: 9, shares, next, releasing, barrier: Some(6), outdated }
}

#[test]
fn what_is_divided_is_the_same_when_united() {
    let whole = published();
    for parts in [2, 3, 32] {
        let divided = divide(&whole, parts);
        assert_eq!(divided.len(), parts as usize);
        for (i, one) in (0..).zip(&divided) {
            let workers = one.shares.keys().chain(one.releasing.keys().map(|(_, worker)| worker));
            assert!(workers.chain(one.outdated.keys()).all(|w| part::of(w, parts) == i));
        }
        let head = Head { epoch: 9, barrier: Some(6), parts: vec![9; parts as usize] };
        assert_eq!(unite(&head, &divided), whole);
        assert_eq!(Head::parse(&head.render()).unwrap(), head);
    }
}

#[test]
fn a_part_has_the_shape_of_the_file_and_says_which_it_is() {
    let mut one = divide(&published(), 2).swap_remove(0);
    one.shares.retain(|worker, _| &**worker == "w-1" || &**worker == "w-2");
    let Files { config, state } = render(&one, 0, 2);
    assert!(config.ends_with("part: 0\nparts: 2\nversion: 9\n"), "{config}");
    assert_eq!(file::parse(&config, Some(&state)).unwrap().published, one);
    // The one file has neither line.
    assert!(!file::render(&one).config.contains("part"));
}

/// Else its lists would seem to be empty.
#[test]
fn a_head_is_no_file_and_a_file_no_head() {
    let head = Head { epoch: 9, barrier: None, parts: vec![9, 4] }.render();
    assert_eq!(head, "epoch: 9\nparts:\n- 9\n- 4\n");
    assert!(file::parse("", Some(&head)).is_err());
    assert!(Head::parse(&file::render(&published()).state).is_err());
}

#[test]
fn as_few_parts_are_needed_as_hold_everything() {
    let share = |i: usize| Share {
        streams: (0..100).map(|s| format!("stream:{i}-{s}").into()).collect(),
        version: 1,
    };
    let shares = (0..100).map(|i| (format!("w-{i}").into(), share(i))).collect();
    let whole = Published { epoch: 1, shares, ..Published::default() };
    let all = file::render(&whole).config.len();
    let parts = needed(&whole, all / 3, 1).unwrap();
    assert!((4..=5).contains(&parts), "{parts}");
    assert_eq!(needed(&whole, 100, 1), None);
}

#[test]
fn one_change_is_the_head_and_the_parts_that_change() {
    let whole = Published { barrier: None, ..published() };
    let there: Vec<_> = divide(&whole, 3).into_iter().map(|part| Some(Arc::new(part))).collect();
    let nothing = change(&whole, &there, 3);
    assert_eq!((nothing.head.parts, nothing.parts.len()), (vec![9; 3], 0));
    let mut next = Published { epoch: 10, ..whole };
    next.shares.insert("w-1".into(), Share { streams: vec![], version: 10 });
    let i = part::of("w-1", 3);
    let one = change(&next, &there, 3);
    let mut versions = vec![9; 3];
    versions[i as usize] = 10;
    assert_eq!((one.head.parts, one.parts.len(), one.parts[0].0), (versions, 1, i));
    // So is another stream that will come.
    let mut coming = next.clone();
    coming.next.insert("w-1".into(), vec!["y".into()]);
    let parts: Vec<_> = divide(&next, 3).into_iter().map(|part| Some(Arc::new(part))).collect();
    let numbers = change(&coming, &parts, 3).parts.into_iter().map(|(i, _)| i);
    assert_eq!(numbers.collect::<Vec<_>>(), [i]);
    // A worker without a list must acknowledge a barrier, too.
    let barrier = change(&next.distrusted(0), &there, 3);
    assert_eq!((barrier.head.parts, barrier.parts.len()), (vec![11; 3], 3));
    // A part that differs from the head is written, whatever it contains.
    assert_eq!(change(&next, &[None, None, None], 3).parts.len(), 3);
}
