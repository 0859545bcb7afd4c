//! The pods that are refreshed, and when.
use super::*;

fn refreshed(published: &Published, at: &BTreeMap<Name, Worker>, rules: &Rules) -> String {
    let refresh = refresh::refresh(published, at, rules);
    let described = refresh.iter().map(|refresh| match refresh {
        Refresh::Evict { worker, .. } => worker.to_string(),
        Refresh::Nudge { worker, epoch, .. } => format!("{worker}@{epoch}"),
    });
    described.collect::<Vec<_>>().join(" ")
}

#[test]
fn only_a_pod_that_runs_an_older_list_is_restarted() {
    let published = file(9, &["w-0@5: a"], &[]);
    for (worker, restarted) in [
        (pod(4), true),
        (pod(5), false),
        (pod(9), false),
        // Above the published epoch: it is unknown what it runs.
        (pod(10), true),
        (pod(4).unready(), true),
        (pod(0).silent(), true),
        (pod(0).silent().born(4), true),
        (pod(0).silent().born(5), false),
        (pod(4).terminating(), false),
        (pod(4).stopped(), false),
        (pod(4).unwanted(), false),
        (absent(), false),
    ] {
        let described = format!("{worker:?}");
        let at = workers([("w-0", worker)]);
        assert_eq!(!refreshed(&published, &at, &RULES).is_empty(), restarted, "{described}");
    }
}

#[test]
fn a_pod_of_a_worker_that_never_had_anything_is_left_alone() {
    let at = workers([("w-0", pod(0).silent()), ("w-1", pod(0).silent())]);
    assert_eq!(refreshed(&file(9, &["w-0@0:"], &[]), &at, &RULES), "");
}

#[test]
fn first_those_that_others_wait_for_then_by_number_as_many_as_may_be_down() {
    let lists = ["w-1@9: a", "w-2@9: b", "w-9@9:", "w-10@9:"];
    let published = file(9, &lists, &["c<w-9@9", "d<w-10@9"]);
    let at = |first| workers([("w-1", first), ("w-2", pod(8)), ("w-9", pod(8)), ("w-10", pod(8))]);
    let up_to = |max_unavailable| Rules { max_unavailable, ..RULES };
    assert_eq!(refreshed(&published, &at(pod(8)), &up_to(1)), "w-9");
    assert_eq!(refreshed(&published, &at(pod(8)), &up_to(3)), "w-9 w-10 w-1");
    // A pod that is down for other reasons counts, and may itself be restarted, because it has
    // reported that its list is old.
    assert_eq!(refreshed(&published, &at(pod(9).unready()), &up_to(1)), "");
    assert_eq!(refreshed(&published, &at(pod(8).unready()), &up_to(1)), "w-1");
    assert_eq!(refreshed(&published, &at(absent()), &up_to(2)), "w-9");
    assert_eq!(refreshed(&published, &at(pod(8).terminating()), &up_to(2)), "w-9");
    assert_eq!(refreshed(&published, &at(pod(8).terminating().unwanted()), &up_to(1)), "w-9");
}

#[test]
fn a_pod_that_is_down_and_has_reported_nothing_is_restarted_within_the_budget_only() {
    let published = file(9, &["w-0@9: a", "w-1@9: b"], &[]);
    let down = || pod(0).silent().unready();
    assert_eq!(refreshed(&published, &workers([("w-0", down()), ("w-1", pod(9))]), &RULES), "w-0");
    assert_eq!(refreshed(&published, &workers([("w-0", down()), ("w-1", absent())]), &RULES), "");
}

#[test]
fn a_nudge_reaches_all_that_are_behind_and_the_unwanted_that_are_releasing() {
    let hot = Rules { strategy: Strategy::HotReload, ..RULES };
    let published = file(9, &["w-0@7: a", "w-1@9: b", "w-2@9: c"], &["d<w-3@8", "e<w-0@6"]);
    let at = workers([
        ("w-0", pod(7)),
        ("w-1", pod(8)),
        ("w-2", pod(0).silent()),
        ("w-3", pod(5).unwanted()),
        ("w-4", pod(5).unwanted()),
    ]);
    assert_eq!(refreshed(&published, &at, &hot), "w-3@8 w-1@9 w-2@9");
    let none = Rules { strategy: Strategy::None, ..RULES };
    assert_eq!(refreshed(&published, &at, &none), "");
}

#[test]
fn under_a_barrier_every_pod_has_to_load_it() {
    let mut published = file(9, &["w-0@3: a"], &[]);
    published.barrier = Some(8);
    let at = workers([("w-0", pod(7)), ("w-1", pod(8)), ("w-2", pod(3).unwanted())]);
    assert_eq!(refreshed(&published, &at, &RULES), "w-0");
    let hot = Rules { strategy: Strategy::HotReload, ..RULES };
    assert_eq!(refreshed(&published, &at, &hot), "w-0@8 w-2@8");
}

#[test]
fn what_must_be_refreshed_is_known_with_the_file_that_asks_for_it() {
    let at = workers([("w-0", pod(1)), ("w-1", pod(1))]);
    let start = file(1, &["w-0@1: a", "w-1@1:"], &[]);
    let step = step(&start, &target("a>w-1"), &at, 0, &RULES);
    assert_eq!(step.refresh, [Refresh::Evict { worker: n("w-0"), uid: n("uid") }]);
}

#[test]
fn a_worker_that_rests_is_left_alone_unless_it_is_silent_and_its_list_is_newer() {
    let published = file(9, &["w-0@5: a"], &[]);
    let turn = |rests, silent_since| Turn { attempts: 3, rests, silent_since };
    for (worker, turn, evicted) in [
        (pod(4), turn(false, None), true),
        (pod(4), turn(true, None), false),
        (pod(4), turn(true, Some(4)), false),
        (pod(0).silent(), turn(true, None), false),
        (pod(0).silent(), turn(true, Some(4)), true),
        (pod(0).silent(), turn(true, Some(5)), false),
        (pod(0).silent(), turn(true, Some(6)), false),
    ] {
        let described = format!("{worker:?} {turn:?}");
        let turns = Turns::from([(n("w-0"), turn)]);
        let refresh = refresh_in_turn(&published, &workers([("w-0", worker)]), &RULES, &turns);
        assert_eq!(!refresh.is_empty(), evicted, "{described}");
    }
}
