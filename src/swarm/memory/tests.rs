//! The memory of pods and answers.
use super::*;
use crate::swarm::{
    acknowledge,
    handover::{Epoch, Share},
};

fn pod(uid: &str, started: bool) -> PodFacts {
    PodFacts {
        name: "w-0".into(),
        uid: uid.into(),
        node: Some("n".into()),
        ready: started,
        started,
        ..PodFacts::default()
    }
}

fn published(epoch: Epoch, releases: bool) -> Published {
    let mut published = Published { epoch, ..Published::default() };
    published.shares.insert("w-0".into(), Share::default());
    if releases {
        published.releasing.insert(("a".into(), "w-0".into()), epoch);
    }
    published
}

fn see(memory: &mut Memory, pod: PodFacts, published: &Published) -> Option<Epoch> {
    let uid = Arc::clone(&pod.uid);
    let view = WorkloadView { pods: vec![pod], ..WorkloadView::default() };
    memory.seen(&view, Some(published));
    memory.born.get(&uid).copied()
}

/// The operator was killed between a file and the eviction for it.
#[test]
fn a_pod_that_must_release_something_may_not_have_read_it_after_a_restart() {
    let mut memory = Memory::default();
    assert_eq!(see(&mut memory, pod("old", true), &published(7, true)), None);
    assert_eq!(see(&mut memory, pod("old", true), &published(7, true)), None, "nor later");
    // Its successor was made after the file.
    assert_eq!(see(&mut memory, pod("new", true), &published(7, true)), Some(7));
}

/// The `Swarm` was deleted and applied again, and a kubelet delivered the old file once more.
#[test]
fn a_worker_that_came_back_from_a_file_nobody_knows_is_not_ahead_for_ever() {
    let mut memory = Memory::default();
    let mut says = |version| {
        let answer = acknowledge::Answer { version, jobs: None, prepared: None };
        memory.reported("uid".into(), Ok(answer), Instant::now());
        memory.reports["uid"].loaded
    };
    assert_eq!(says(Some(3)), Some(3));
    assert_eq!(says(None), Some(3), "it restarts, and has read nothing else");
    assert_eq!(says(Some(2)), Some(2));
}

#[test]
fn a_restart_of_the_operator_restarts_no_worker() {
    let mut memory = Memory::default();
    assert_eq!(see(&mut memory, pod("old", true), &published(7, false)), Some(7));
    assert_eq!(see(&mut memory, pod("old", true), &published(8, false)), Some(7));
}

/// It came between the last look and the file that was written then: it has read the one before,
/// and must be refreshed, otherwise no worker ever runs the streams that the file gives it.
#[test]
fn a_pod_that_came_just_before_a_file_has_not_read_it() {
    let mut memory = Memory::default();
    see(&mut memory, pod("old", true), &published(7, false));
    assert_eq!(see(&mut memory, pod("new", true), &published(8, false)), Some(7));
    assert_eq!(see(&mut memory, pod("newer", true), &published(8, false)), Some(8));
}

#[test]
fn a_pod_that_waits_for_its_file_reads_the_newest() {
    let mut memory = Memory::default();
    let pending = || PodFacts { node: None, ..pod("new", false) };
    assert_eq!(see(&mut memory, pending(), &published(1, false)), Some(1));
    assert_eq!(see(&mut memory, pending(), &published(2, true)), Some(2));
    assert_eq!(see(&mut memory, pod("new", true), &published(3, true)), Some(2));
    // Nothing is mounted before there is a file.
    assert_eq!(see(&mut memory, pod("first", false), &Published::default()), Some(0));
    assert_eq!(see(&mut memory, pod("first", false), &published(7, false)), Some(7));
}

#[test]
fn a_pod_that_is_starting_may_have_mounted_the_file_before() {
    let mut memory = Memory::default();
    assert_eq!(see(&mut memory, pod("new", false), &published(1, false)), Some(1));
    assert_eq!(see(&mut memory, pod("new", false), &published(2, false)), Some(1));
    assert_eq!(see(&mut memory, pod("new", true), &published(2, false)), Some(1));
}
