//! `plan`: what a spec would do.
use super::*;
use crate::{
    network_prober::dry_run::{Cluster, DryRun, text},
    nodes::NodeStore,
};
use kube::runtime::watcher::Event;

fn planned(probers: &[&NetworkProber], place: usize, pods: &[Value]) -> Result<DryRun, String> {
    planned_over(None, probers, place, pods)
}

fn planned_over(
    existing: Option<&NetworkProber>,
    probers: &[&NetworkProber],
    place: usize,
    pods: &[Value],
) -> Result<DryRun, String> {
    let read = |pod: &Value| Arc::new(serde_json::from_value::<PodObject>(pod.clone()).unwrap());
    let pods: Vec<_> = pods.iter().map(read).collect();
    let (setup, namespaces, nodes) = (setup(Some("unknown")), namespaces(), NodeStore::default());
    nodes.apply(Event::Init);
    for (name, os) in [("n1", "linux"), ("n2", "linux"), ("w", "windows")] {
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": os}}});
        nodes.apply(Event::InitApply(serde_json::from_value(node).unwrap()));
    }
    nodes.apply(Event::InitDone);
    let cluster = Cluster { setup: &setup, namespaces: &namespaces, probers, nodes: &nodes };
    let plan = cluster.plan(place)?;
    Ok(plan.decide(&cluster, &pods, &BTreeMap::new(), existing, Duration::ZERO))
}

#[test]
fn a_plan_says_which_pods_get_an_agent_and_why_others_get_none() {
    let older = prober(
        "older",
        "2026-01-01T00:00:00Z",
        &json!({"podSelector": {"matchLabels": {"tier": "x"}}}),
    );
    let np = prober(
        "np",
        "2026-01-02T00:00:00Z",
        &json!({"namespaceSelector": {}, "probes": ["HTTP"], "originalMetrics": false}),
    );
    let pods = [
        pod("bare", None, &json!({})),
        pod("new", None, &json!({})),
        // Of an earlier spec.
        pod("old", Some("team/np"), &json!({})),
        pod("host", None, &json!({"spec": {"hostNetwork": true}})),
        pod("claimed", None, &json!({"metadata": {"labels": {"tier": "x"}}})),
        pod("ended", None, &json!({"status": {"phase": "Succeeded"}})),
    ];
    let run = planned(&[&older, &np], 1, &pods).unwrap();
    assert_eq!((run.selected, run.current, run.after_restart), (5, 0, 3), "{run:?}");
    let without: Vec<_> = run.without.iter().map(|one| (&*one.reason, one.pods)).collect();
    assert_eq!(without, [("HostNetwork", 1), ("OtherProber", 1)]);
    assert_eq!(run.namespaces, ["team"]);
    let left_out: Vec<_> = run.left_out.keys().map(String::as_str).collect();
    assert_eq!(left_out, ["kube-system", "silent"]);
    // Three agents that probe two others on one node each, once they run.
    assert_eq!((run.peers, run.estimated_series), (2, 3 * (40 + 28)));
    let text = text(&run);
    assert!(text.starts_with("NetworkProber team/np: 3 of 5 selected pods would have an agent\n"));
    assert!(text.contains("  1 get none, HostNetwork: it uses the network of its node"), "{text}");
}

/// The operator's image and address are in the hash of an agent, and are not known to a command.
#[test]
fn agents_of_the_same_spec_stay_and_others_need_a_restart() {
    let pods = [
        pod("a", Some("team/np"), &json!({})),
        pod("b", Some("team/np"), &json!({})),
        pod("c", Some("team/np"), &json!({})),
    ];
    let spec = |change: &Value| prober("np", "2026-01-01T00:00:00Z", change);
    let mut there = spec(&json!({}));
    there.status = serde_json::from_value(json!({"injected": 3, "needRestart": 1})).unwrap();
    for (change, current) in [
        (json!({}), 2),
        (json!({"pollingPeriodSeconds": "30"}), 2),
        (json!({"httpPort": "9999"}), 0),
        (json!({"agentImage": "registry/other"}), 0),
    ] {
        let np = spec(&change);
        let run = planned_over(Some(&there), &[&np], 0, &pods).unwrap();
        assert_eq!((run.current, run.after_restart), (current, 3 - current), "{change}");
    }
    let new = spec(&json!({}));
    assert_eq!(planned(&[&new], 0, &pods).unwrap().current, 0);
    let none = text(&planned(&[&new], 0, &[]).unwrap());
    assert!(none.contains("spec.podSelector matches no pod"), "{none}");
}

#[test]
fn a_daemon_set_has_an_agent_on_each_linux_node() {
    let np = prober("np", "2026-01-01T00:00:00Z", &json!({"mode": "DaemonSet"}));
    let run = planned(&[&np], 0, &[]).unwrap();
    assert_eq!((run.selected, run.current, run.after_restart, run.peers), (2, 0, 2, 1));
    let text = text(&run);
    assert!(text.starts_with("NetworkProber team/np: 2 nodes would have an agent, 0 have one now"));
}

#[test]
fn a_plan_that_does_nothing_says_why() {
    let wrong = prober("np", "2026-01-01T00:00:00Z", &json!({"httpPort": "0"}));
    let why = planned(&[&wrong], 0, &[]).unwrap_err();
    assert!(why.contains("httpPort"), "{why}");
    // Those of one namespace that are served.
    let all: Vec<_> = (0..40)
        .map(|i| prober(&format!("np-{i:02}"), "2026-01-01T00:00:00Z", &json!({})))
        .collect();
    let all: Vec<_> = all.iter().collect();
    let refused = |place| match planned(&all, place, &[]) {
        Ok(run) => run.refused,
        Err(why) => Some(why),
    };
    assert_eq!(refused(0), None);
    assert!(refused(39).is_some());
}
