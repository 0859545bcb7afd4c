//! Immutable files in the template and in pods, after `configMap.immutable` was switched off.
use super::*;
use crate::swarm::handover::Published;

fn template(map: &str) -> WorkloadFacts {
    WorkloadFacts { on_delete: true, mounts: vec![("config".into(), map.into())], ..workload(0, 2) }
}

fn mounting(name: &str, map: &str) -> PodFacts {
    PodFacts { mounts: vec![map.into()], ..own(name) }
}

/// The next pod of each worker reads the file in the template, and not the current one.
#[test]
fn a_template_that_still_names_an_immutable_file_says_what_successors_read() {
    let stateful = settings("StatefulSet", false);
    let successor = |facts: WorkloadFacts, maps: &[&str]| {
        let pods = maps.iter().enumerate();
        let pods = pods.map(|(n, map)| mounting(&format!("w-{n}"), map)).collect();
        find(&stateful, facts, pods, &[]).all[0].handover.successor
    };
    let pinned = || template("w-config-12");
    let unseen = || WorkloadFacts { generation: 5, observed_generation: 4, ..pinned() };
    let rolling = || WorkloadFacts { on_delete: false, ..pinned() };
    for (facts, maps, expected) in [
        (pinned(), &["w-config-12", "w-config-12"][..], Some(12)),
        (pinned(), &[], Some(12)),
        // Workers whose list stays the same keep an older file.
        (pinned(), &["w-config-9", "w-config-12"], Some(12)),
        (pinned(), &["w-config", "w-config"], Some(12)),
        (unseen(), &["w-config-12"], Some(0)),
        (unseen(), &[], Some(0)),
        // A rollout may bring back the older revision.
        (rolling(), &["w-config-12", "w-config-12"], Some(12)),
        (rolling(), &["w-config-9", "w-config-12"], Some(0)),
        (rolling(), &["w-config"], Some(0)),
        // The template names the file that changes in place again.
        (template("w-config"), &["w-config-12", "w-config"], Some(0)),
        (template("w-config"), &["w-config", "w-config"], None),
    ] {
        assert_eq!(successor(facts.clone(), maps), expected, "{facts:?}: {maps:?}");
    }
    // A volume beside that of the file is another matter.
    let mut beside = template("w-config");
    beside.mounts.push(("more".into(), "w-config-3".into()));
    assert_eq!(successor(beside, &[]), None);
    let parts = ["w-config-part-0", "w-config-part-1", "w-config-3"];
    assert_eq!(pinned_of(&parts), None);
    assert_eq!(pinned_of(&["w-config-12", "other"]), Some(12));
    assert_eq!(pinned_of(&["w-configs-12"]), None);
}

fn pinned_of(maps: &[&str]) -> Option<u64> {
    pinned("w-config", maps.iter().copied())
}

/// Version 13 has taken stream `a` from worker w-0.
fn is_released(facts: WorkloadFacts, pods: Vec<PodFacts>) -> bool {
    let name = |name: &str| Arc::<str>::from(name);
    let releasing = [((name("a"), name("w-0")), 13)].into();
    let file = Published { epoch: 13, releasing, ..Published::default() };
    let view = WorkloadView { workload: Some(facts), pods, ..WorkloadView::default() };
    let confirmed = Confirmed { all: 13, ..Confirmed::default() };
    let (memory, none, named) = (Memory::default(), BTreeSet::new(), BTreeSet::new());
    let known =
        Known { now: Instant::now(), memory: &memory, confirmed: &confirmed, named: &named };
    let workers = Workers::of(&settings("StatefulSet", false), &view, "w-config", &none, &known);
    let rules = handover::Rules {
        exclusive: true,
        strategy: handover::Strategy::DeletePod,
        max_unavailable: 1,
        gather: false,
        await_targets: false,
        announce: false,
    };
    let target = [(name("a"), Some(name("w-1")))];
    let step = handover::step(&file, &target, &workers.by_name(), 0, &rules);
    !step.freed.is_empty()
}

/// The stream ran on its new worker, and again on w-0, whose next pod read file 12.
#[test]
fn a_worker_whose_next_pod_reads_an_older_file_releases_nothing_that_it_lists() {
    let away = |map: &str| PodFacts { node: None, ready: false, ..mounting("w-0", map) };
    let pinned = || template("w-config-12");
    let other = |map: &str| mounting("w-1", map);
    // It was evicted, and has no pod, or one that waits for a node.
    assert!(!is_released(pinned(), vec![other("w-config-12")]));
    assert!(!is_released(pinned(), vec![away("w-config-12"), other("w-config-12")]));
    assert!(!is_released(template("w-config"), vec![away("w-config-12"), other("w-config")]));
    let current = || template("w-config");
    assert!(is_released(current(), vec![other("w-config")]));
    assert!(is_released(current(), vec![away("w-config"), other("w-config")]));
    // A file that does not list the stream any more.
    assert!(is_released(template("w-config-13"), vec![other("w-config-12")]));
}

#[test]
fn a_pod_that_mounts_an_immutable_file_reads_it_whatever_the_setting() {
    for immutable in [true, false] {
        for node in [None, Some("node-1".into())] {
            let pod = PodFacts { node, ..mounting("w-0", "w-config-12") };
            let settings = settings("StatefulSet", immutable);
            let workers = find(&settings, template("w-config-12"), vec![pod], &[]);
            let pod = workers.all[0].handover.pod.clone().unwrap();
            assert_eq!((pod.loaded, pod.born), (Some(12), Some(12)), "{immutable}");
        }
    }
}
