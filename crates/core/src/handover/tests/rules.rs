//! The rules, one by one.
use super::*;

#[test]
fn a_first_file_gives_everything_at_once_whether_or_not_there_are_pods() {
    let workers = workers([("w-0", absent()), ("w-1", pod(0).silent())]);
    let step = step(&Published::default(), &target("a>w-0 b>w-1 c>w-0 d>-"), &workers, 0, &RULES);
    assert_eq!(step.publish, Some(file(1, &["w-0@1: a c", "w-1@1: b"], &[])));
    assert_eq!(step.granted, [(n("a"), n("w-0")), (n("b"), n("w-1")), (n("c"), n("w-0"))]);
    assert!(step.free.is_empty());
}

#[test]
fn a_stream_moves_in_three_files_and_only_after_the_acknowledgement() {
    let mut at = workers([("w-0", pod(1)), ("w-1", pod(1))]);
    let start = file(1, &["w-0@1: a b", "w-1@0:"], &[]);
    let revoked = next(&start, "a>w-0 b>w-1", &at, &RULES);
    assert_eq!(revoked, file(2, &["w-0@2: a", "w-1@0:"], &["b<w-0@2"]));
    // Nothing is acknowledged: nothing happens, no matter how often the step is repeated.
    assert_eq!(next(&revoked, "a>w-0 b>w-1", &at, &RULES), revoked);
    at.insert(n("w-0"), pod(2));
    let step = step(&revoked, &target("a>w-0 b>w-1"), &at, 0, &RULES);
    assert_eq!(step.freed, [(n("b"), n("w-0"))]);
    assert_eq!(step.granted, [(n("b"), n("w-1"))]);
    let granted = step.publish.unwrap();
    assert_eq!(granted, file(3, &["w-0@2: a", "w-1@3: b"], &[]));
    at.insert(n("w-1"), pod(3));
    assert_eq!(next(&granted, "a>w-0 b>w-1", &at, &RULES), granted);
}

#[test]
fn what_is_a_letting_go_and_what_is_not() {
    use Why::*;
    // The stream was taken by epoch 4; the file is at epoch 6.
    let cases = [
        (Some(pod(3)), Some(Behind)),
        (Some(pod(4)), None),
        (Some(pod(6)), None),
        (Some(pod(5).terminating()), None),
        (Some(pod(0).silent()), Some(Silent)),
        (Some(pod(3).unready()), Some(Behind)),
        (Some(pod(0).silent().born(6)), Some(Silent)),
        (Some(pod(3).terminating()), Some(Terminating)),
        (Some(pod(3).terminating().stopped()), None),
        (Some(pod(3).stopped()), None),
        (Some(pod(3).stopped().unconfirmed(3)), Some(Unconfirmed)),
        (Some(pod(7)), Some(Ahead)),
        (Some(absent()), None),
        (Some(absent().unwanted()), None),
        (Some(absent().unconfirmed(3)), Some(Unconfirmed)),
        (Some(absent().unconfirmed(4)), None),
        (Some(absent().successor(3)), Some(Template)),
        (Some(absent().successor(4)), None),
        (Some(pod(3).stopped().successor(3)), Some(Template)),
        (Some(pod(4).successor(3)), Some(Template)),
        (None, Some(Unseen)),
    ];
    let mut published = file(6, &["w-1@0:"], &["a<w-0@4"]);
    // Otherwise a pod that is ahead begins one.
    published.barrier = Some(6);
    for (i, (worker, why)) in cases.into_iter().enumerate() {
        let mut at = workers([("w-1", pod(0))]);
        at.extend(worker.map(|worker| (n("w-0"), worker)));
        let step = step(&published, &target("a>w-1"), &at, 0, &RULES);
        assert_eq!(step.freed.is_empty(), why.is_some(), "case {i}: {step:?}");
        let is = decide::in_the_way(at.get("w-0"), 4, 6);
        assert_eq!(is, why, "case {i}");
    }
}

/// Its pod ended and the next one started between two observations.
#[test]
fn a_silent_worker_has_released_with_its_next_pod() {
    let file = file(5, &["w-0@5:", "w-1@1:"], &["a<w-0@5"]);
    let granted = |w0: Worker| {
        let at = workers([("w-0", w0), ("w-1", pod(5))]);
        step(&file, &target("a>w-1"), &at, 0, &RULES).granted.len()
    };
    let made_after = |epoch| pod(0).silent().but(|pod| pod.heir = Some(epoch));
    assert_eq!(granted(made_after(5)), 1);
    assert_eq!(granted(made_after(4)), 0, "it may have read what lists the stream");
    assert_eq!(granted(made_after(5).terminating()), 0, "it is not known what it still runs");
}

#[test]
fn who_is_waited_for_is_reported_once_per_worker_in_natural_order() {
    let published = file(6, &[], &["a<w-10@4", "b<w-10@5", "c<w-2@6", "d<w-3@6"]);
    let at = workers([("w-10", pod(3).unwanted()), ("w-2", absent().unconfirmed(1).unwanted())]);
    let waiting = step(&published, &target("a>-"), &at, 0, &RULES).waiting;
    let reported: Vec<_> =
        waiting.iter().map(|w| (&*w.worker, w.streams, w.epoch, w.why)).collect();
    let expected =
        [("w-2", 1, 6, Why::Unconfirmed), ("w-3", 1, 6, Why::Unseen), ("w-10", 2, 5, Why::Behind)];
    assert_eq!(reported, expected);
}

#[test]
fn make_before_break_nothing_leaves_for_a_worker_that_cannot_take_it() {
    let start = file(1, &["w-0@1: a", "w-1@0:"], &[]);
    for (worker, moves) in [
        (pod(1), true),
        (pod(1).unready(), false),
        (pod(1).terminating(), false),
        (pod(1).stopped(), false),
        (absent(), false),
        (pod(1).unwanted(), false),
    ] {
        let wanted = worker.wanted;
        let at = workers([("w-0", pod(1)), ("w-1", worker)]);
        for exclusive in [true, false] {
            let rules = Rules { exclusive, ..RULES };
            let step = step(&start, &target("a>w-1"), &at, 0, &rules);
            assert_eq!(!step.revoked.is_empty(), moves);
            assert_eq!(step.publish.is_some(), moves || !wanted);
        }
    }
}

#[test]
fn why_a_stream_leaves_its_worker() {
    let start = file(3, &["w-0@1: a b", "w-1@2: c", "w-2@3: d"], &[]);
    let at = workers([("w-0", pod(3)), ("w-1", pod(3)), ("w-2", pod(3).unwanted())]);
    let step = step(&start, &target("a>w-1 b>w-0 c>- d>w-0"), &at, 0, &RULES);
    let expected = [
        (n("a"), n("w-0"), Cause::Moved),
        (n("c"), n("w-1"), Cause::Unassigned),
        (n("d"), n("w-2"), Cause::Unwanted),
    ];
    assert_eq!(step.revoked, expected);
    let releasing = ["a<w-0@4", "c<w-1@4", "d<w-2@4"];
    assert_eq!(step.publish, Some(file(4, &["w-0@4: b", "w-1@4:"], &releasing)));
}

#[test]
fn a_removed_stream_is_releasing_until_it_is_free_and_then_gone() {
    let start = file(1, &["w-0@1: a b"], &[]);
    let at = workers([("w-0", pod(1))]);
    let revoked = next(&start, "a>w-0", &at, &RULES);
    assert_eq!(revoked, file(2, &["w-0@2: a"], &["b<w-0@2"]));
    assert_eq!(next(&revoked, "a>w-0", &at, &RULES), revoked);
    let at = workers([("w-0", pod(2))]);
    let gone = next(&revoked, "a>w-0", &at, &RULES);
    assert_eq!(gone, file(3, &["w-0@2: a"], &[]));
    // A new worker has the same name.
    assert_eq!(next(&gone, "a>w-0 b>w-0", &at, &RULES), file(4, &["w-0@4: a b"], &[]));
}

#[test]
fn what_comes_back_while_it_is_releasing_is_given_back_at_once() {
    let revoked = file(2, &["w-0@2:", "w-1@0:"], &["a<w-0@2"]);
    let at = workers([("w-0", pod(1)), ("w-1", pod(1))]);
    let back = next(&revoked, "a>w-0", &at, &RULES);
    assert_eq!(back, file(3, &["w-0@3: a", "w-1@0:"], &[]));
    // The acknowledgement of the revocation comes late: it ends nothing that begins after it.
    let at = workers([("w-0", pod(2)), ("w-1", pod(1))]);
    let again = next(&back, "a>w-1", &at, &RULES);
    assert_eq!(again, file(4, &["w-0@4:", "w-1@0:"], &["a<w-0@4"]));
    assert_eq!(next(&again, "a>w-1", &at, &RULES), again);
}

#[test]
fn a_stream_that_two_are_releasing_is_free_when_both_have_released_it() {
    let published = file(5, &["w-0@5:", "w-1@5:", "w-2@0:"], &["a<w-0@4", "a<w-1@5"]);
    let at = |first, second| workers([("w-0", pod(first)), ("w-1", pod(second)), ("w-2", pod(3))]);
    // Neither to a third, nor back to one of them, while the other has it.
    for to in ["a>w-2", "a>w-0", "a>w-1"] {
        assert_eq!(next(&published, to, &at(3, 3), &RULES), published);
    }
    let one = next(&published, "a>w-2", &at(5, 3), &RULES);
    assert_eq!(one, file(6, &["w-0@5:", "w-1@5:", "w-2@0:"], &["a<w-1@5"]));
    let both = next(&one, "a>w-2", &at(5, 5), &RULES);
    assert_eq!(both, file(7, &["w-0@5:", "w-1@5:", "w-2@7: a"], &[]));
    // Back to the one that still has it.
    assert_eq!(
        next(&published, "a>w-1", &at(5, 3), &RULES),
        file(6, &["w-0@5:", "w-1@6: a", "w-2@0:"], &[])
    );
}

#[test]
fn a_stream_that_a_third_still_releases_does_not_leave_its_owner() {
    // The state after an immediate handover, when the spec has just become exclusive.
    let published = file(5, &["w-0@5:", "w-1@5: a", "w-2@0:"], &["a<w-0@5"]);
    let at = workers([("w-0", pod(4)), ("w-1", pod(5)), ("w-2", pod(5))]);
    assert_eq!(next(&published, "a>w-2", &at, &RULES), published);
    let back = next(&published, "a>w-0", &at, &RULES);
    assert_eq!(back.releasing.len(), 2);
}

#[test]
fn an_immediate_handover_grants_at_once_and_keeps_book() {
    let rules = Rules { exclusive: false, ..RULES };
    let start = file(1, &["w-0@1: a", "w-1@0:", "w-2@0:"], &[]);
    let at = workers([("w-0", pod(1)), ("w-1", pod(1)), ("w-2", pod(1))]);
    let moved = next(&start, "a>w-1", &at, &rules);
    assert_eq!(moved, file(2, &["w-0@2:", "w-1@2: a", "w-2@0:"], &["a<w-0@2"]));
    let on = next(&moved, "a>w-2", &at, &rules);
    assert_eq!(on, file(3, &["w-0@2:", "w-1@3:", "w-2@3: a"], &["a<w-0@2", "a<w-1@3"]));
    let back = next(&on, "a>w-0", &at, &rules);
    assert_eq!(back, file(4, &["w-0@4: a", "w-1@3:", "w-2@4:"], &["a<w-1@3", "a<w-2@4"]));
}

#[test]
fn workers_that_are_not_wanted_lose_everything_and_their_entry() {
    let start = file(1, &["w-0@1: a", "w-1@1: b"], &[]);
    // Even if no worker can take it, and regardless of the target.
    let at = workers([("w-0", pod(1).unwanted()), ("w-1", pod(1).unwanted())]);
    let gone = next(&start, "a>w-0 b>-", &at, &RULES);
    assert_eq!(gone, file(2, &[], &["a<w-0@2", "b<w-1@2"]));
    let at = workers([("w-0", absent().unwanted()), ("w-1", pod(1).unwanted())]);
    assert_eq!(next(&gone, "a>w-0 b>-", &at, &RULES), file(3, &[], &["b<w-1@2"]));
}

#[test]
fn an_entry_that_appears_empty_is_no_change_for_its_pod() {
    let start = file(1, &["w-0@1: a"], &[]);
    let at = workers([("w-0", pod(1)), ("w-1", pod(1))]);
    let step = step(&start, &target("a>w-0"), &at, 0, &RULES);
    assert_eq!(step.publish, Some(file(2, &["w-0@1: a", "w-1@0:"], &[])));
    assert!(step.refresh.is_empty());
}

#[test]
fn another_order_is_no_change() {
    let start = file(1, &["w-0@1: a b c"], &[]);
    let at = workers([("w-0", pod(1))]);
    assert_eq!(next(&start, "c>w-0 a>w-0 b>w-0", &at, &RULES), start);
    // A new list is in the order of the spec.
    let added = next(&start, "d>w-0 c>w-0 a>w-0 b>w-0", &at, &RULES);
    assert_eq!(added, file(2, &["w-0@2: d c a b"], &[]));
}

#[test]
fn an_id_that_is_twice_in_the_target_is_given_once() {
    let at = workers([("w-0", pod(0)), ("w-1", pod(0))]);
    let first = next(&Published::default(), "a>w-0 a>w-1", &at, &RULES);
    assert_eq!(first, file(1, &["w-0@1: a", "w-1@0:"], &[]));
}

#[test]
fn a_stream_that_a_file_lists_twice_stays_with_the_first_and_is_taken_from_the_other() {
    let start = file(4, &["w-0@0: a b", "w-1@0: a c"], &[]);
    let at = workers([("w-0", pod(4)), ("w-1", pod(4))]);
    let step = step(&start, &target("a>w-0 b>w-0 c>w-1"), &at, 0, &RULES);
    assert_eq!(step.publish, Some(file(5, &["w-0@0: a b", "w-1@5: c"], &["a<w-1@5"])));
    assert_eq!(step.revoked, [(n("a"), n("w-1"), Cause::Duplicate)]);
}

#[test]
fn the_epoch_exceeds_what_was_ever_reported_but_not_what_is_absurd() {
    let at = workers([("w-0", pod(0).silent())]);
    let epoch = |highest| {
        let step = step(&file(3, &[], &[]), &target("a>w-0"), &at, highest, &RULES);
        step.publish.unwrap().epoch
    };
    assert_eq!(epoch(3), 4);
    assert_eq!(epoch(9), 10);
    assert_eq!(epoch(BELIEVED_EPOCH), BELIEVED_EPOCH + 1);
    assert_eq!(epoch(BELIEVED_EPOCH + 1), 4);
    assert_eq!(epoch(Epoch::MAX), 4);
}

#[test]
fn a_report_from_a_lost_history_begins_a_barrier_and_is_no_acknowledgement_of_it() {
    let published = file(10, &["w-0@3:", "w-1@2: b"], &["a<w-0@10"]);
    let at = workers([("w-0", pod(50)), ("w-1", pod(10))]);
    let to = "a>w-1 b>w-1 c>w-1";
    let barred = next(&published, to, &at, &RULES);
    let mut expected = file(51, &["w-0@51:", "w-1@51: b"], &["a<w-0@51"]);
    expected.barrier = Some(51);
    assert_eq!(barred, expected);
    // Nothing is granted, not even streams without an owner; each worker is waited for only once.
    let step = step(&barred, &target(to), &at, 0, &RULES);
    assert_eq!(step.publish, None);
    assert_eq!(step.free, [n("c")]);
    assert_eq!(step.waiting.len(), 2);
    // Another pod with lost history appears: this alone causes no write, but the next one raises
    // the barrier.
    let later = workers([("w-0", pod(51)), ("w-1", pod(70))]);
    let raised = next(&barred, "a>w-1 b>w-1 c>w-1", &later, &RULES);
    assert_eq!((raised.epoch, raised.barrier, raised.releasing.len()), (71, Some(71), 0));
    let cleared = workers([("w-0", pod(71)), ("w-1", pod(71))]);
    let cleared = next(&raised, to, &cleared, &RULES);
    assert_eq!((cleared.epoch, cleared.barrier), (72, None));
    assert_eq!(
        cleared.shares[&n("w-1")],
        Share { streams: vec![n("a"), n("b"), n("c")], version: 72 }
    );
}

#[test]
fn the_report_of_a_pod_is_a_proof_though_it_is_stopped() {
    let published = file(10, &["w-1@2: b"], &[]);
    let at = workers([("w-0", pod(50).stopped()), ("w-1", pod(10))]);
    let barred = next(&published, "b>w-1 c>w-1", &at, &RULES);
    assert_eq!((barred.epoch, barred.barrier), (51, Some(51)));
}

#[test]
fn a_worker_that_makes_versions_up_does_not_cost_a_write_at_every_step() {
    let mut published = file(10, &["w-0@3: a"], &[]);
    for _ in 0..3 {
        let at = workers([("w-0", pod(published.epoch + 1))]);
        published = next(&published, "a>w-0", &at, &RULES);
    }
    assert_eq!((published.epoch, published.barrier), (12, Some(12)));
    // It is gone; its last report still counts.
    let at = workers([("w-0", absent())]);
    let after = step(&published, &target("a>w-0"), &at, 13, &RULES).publish.unwrap();
    assert_eq!((after.epoch, after.barrier), (14, Some(14)));
    let free = step(&after, &target("a>w-0"), &at, 13, &RULES).publish.unwrap();
    assert_eq!((free.epoch, free.barrier), (15, None));
}

#[test]
fn under_a_barrier_nothing_is_granted_nor_leaves_for_the_balance() {
    let mut published = file(5, &["w-0@5: a", "w-1@5:"], &["b<w-0@5"]);
    published.barrier = Some(5);
    let at = workers([("w-0", pod(4)), ("w-1", pod(5)), ("w-2", pod(4).silent().unwanted())]);
    let waits = step(&published, &target("a>w-1 b>w-0 c>w-1"), &at, 0, &RULES);
    assert_eq!(waits.publish, None);
    let reported: Vec<_> = waits.waiting.iter().map(|w| (&*w.worker, w.streams, w.why)).collect();
    assert_eq!(reported, [("w-0", 1, Why::Behind), ("w-2", 0, Why::Silent)]);
    // A stream that must leave still leaves.
    let removed = next(&published, "a>-", &at, &RULES);
    assert_eq!(removed.releasing.len(), 2);
    assert_eq!(removed.barrier, Some(5));
    // An unread worker may have a pod.
    let hidden = workers([("w-0", pod(5)), ("w-1", pod(5)), ("w-2", absent().unconfirmed(4))]);
    assert_eq!(next(&published, "a>w-0 b>w-0", &hidden, &RULES).barrier, Some(5));
    let all = workers([("w-0", pod(5)), ("w-1", pod(5)), ("w-2", absent())]);
    assert_eq!(next(&published, "a>w-0 b>w-0", &all, &RULES).barrier, None);
}

#[test]
fn numbers_above_the_files_own_epoch_become_the_next_ones() {
    let mut published = file(5, &["w-0@9: a"], &["b<w-1@8"]);
    published.barrier = Some(7);
    let at = workers([("w-0", pod(5)), ("w-1", absent())]);
    let next = next(&published, "a>w-0", &at, &RULES);
    assert_eq!((next.epoch, next.barrier), (6, Some(6)));
    assert_eq!(next.shares[&n("w-0")].version, 6);
    assert_eq!(next.releasing[&(n("b"), n("w-1"))], 6);
}

#[test]
fn a_worker_gathers_what_is_on_its_way_before_it_is_restarted() {
    let rules = Rules { gather: true, ..RULES };
    let published = file(5, &["w-0@5:", "w-1@5:", "w-2@3: c"], &["a<w-0@5", "b<w-1@5"]);
    let to = "a>w-2 b>w-2 c>w-2";
    let one_of_two = |third| workers([("w-0", pod(5)), ("w-1", pod(4)), ("w-2", third)]);
    let waits = step(&published, &target(to), &one_of_two(pod(5)), 0, &rules);
    assert_eq!((waits.freed.len(), waits.granted.len()), (1, 0));
    assert_eq!(waits.free, [n("a")]);
    // A pod that is about to serve, or that has the file without serving, would restart too.
    for third in [pod(0).silent(), pod(5).unready()] {
        assert_eq!(step(&published, &target(to), &one_of_two(third), 0, &rules).granted.len(), 0);
    }
    // It costs no restart, or the caller has waited long enough, or pods read the file themselves.
    for third in [absent(), pod(0).silent().unready(), pod(5).stopped()] {
        assert_eq!(step(&published, &target(to), &one_of_two(third), 0, &rules).granted.len(), 1);
    }
    for rules in [RULES, Rules { strategy: Strategy::HotReload, ..rules }] {
        let granted = step(&published, &target(to), &one_of_two(pod(5)), 0, &rules).granted;
        assert_eq!(granted.len(), 1);
    }
    let both = workers([("w-0", pod(5)), ("w-1", pod(5)), ("w-2", pod(5))]);
    assert_eq!(step(&published, &target(to), &both, 0, &rules).granted.len(), 2);
    // A stream that leaves in this same step is on its way too.
    let leaving = file(5, &["w-0@5: a", "w-2@3: c"], &[]);
    let at = workers([("w-0", pod(5)), ("w-2", pod(5))]);
    let step = step(&leaving, &target("a>w-2 b>w-2 c>w-2"), &at, 0, &rules);
    assert_eq!((step.revoked.len(), step.granted.len()), (1, 0));
}

#[test]
fn the_balance_waits_until_all_that_gain_are_ready_but_what_must_go_does_not() {
    let rules = Rules { await_targets: true, ..RULES };
    let published = file(5, &["w-0@5: a b", "w-1@0:", "w-2@0:", "w-3@5: c"], &[]);
    let at = |third: Worker| {
        let third = ("w-2", third);
        workers([("w-0", pod(5)), ("w-1", pod(5)), third, ("w-3", pod(5).unwanted())])
    };
    let revoked = |third, rules| {
        let step = step(&published, &target("a>w-1 b>w-2 c>w-1"), &at(third), 0, rules);
        step.revoked.iter().map(|(stream, ..)| stream.to_string()).collect::<String>()
    };
    assert_eq!(revoked(pod(5).unready(), &rules), "c");
    assert_eq!(revoked(pod(5).unready(), &RULES), "ac");
    assert_eq!(revoked(pod(5), &rules), "abc");
    let hot = Rules { strategy: Strategy::HotReload, ..rules };
    assert_eq!(revoked(absent(), &hot), "ac");
}

#[test]
fn every_stream_counts_once() {
    let published = file(5, &["w-0@5: a b", "w-1@5: c"], &["a<w-1@5", "d<w-0@5", "d<w-1@4"]);
    let counts = Counts::of(&published, &target("a>w-0 b>w-0 d>w-1 e>w-1 f>- c>-"));
    assert_eq!(counts, Counts { owned: 3, releasing: 1, free: 1, unassigned: 1 });
}
