//! Pods that take part, and the reasons of those that do not.
use super::*;
use crate::network_prober::members::Members;

#[test]
fn pods_with_an_agent_and_without_a_node_are_counted() {
    let waits = json!({"spec": {"nodeName": null}, "status": {"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
    let pods = [pod("a", Some("team/np"), &waits), pod("b", Some("team/np"), &json!({}))];
    let view = view(&json!({}), &pods);
    assert_eq!((view.members.injected, view.members.unschedulable), (2, 1));
    let np = prober("np", "2026-01-01T00:00:00Z", &json!({}));
    let decided = plan(&np, &observed(view)).unwrap();
    let covered = decided.conditions.iter().find(|condition| condition.type_ == "Covered");
    let message = &covered.unwrap().message;
    assert!(message.contains("1 pods with an agent find no node"), "{message}");
}

#[test]
fn each_pod_without_an_agent_has_a_reason() {
    let everywhere = json!({"namespaceSelector": {}});
    let cases = [
        ("CreatedBefore", pod("p", None, &json!({}))),
        ("HostNetwork", pod("p", None, &json!({"spec": {"hostNetwork": true}}))),
        (
            "OptedOut",
            pod(
                "p",
                None,
                &json!({"metadata": {"annotations": {"netprober-container-deployed": "true"}}}),
            ),
        ),
        (
            "OptedOut",
            pod(
                "p",
                None,
                &json!({"metadata": {"annotations": {"probes.bigmikes.io/inject": "false"}}}),
            ),
        ),
        (
            "PortTaken",
            pod(
                "p",
                None,
                &json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 22080}]}]}}),
            ),
        ),
        ("Windows", pod("p", None, &json!({"spec": {"os": {"name": "windows"}}}))),
        (
            "MirrorPod",
            pod(
                "p",
                None,
                &json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
            ),
        ),
        ("NameTaken", pod("p", None, &json!({"spec": {"containers": [{"name": "net-prober"}]}}))),
        ("OtherProber", pod("p", Some("other/np"), &json!({}))),
        // A container that only claims to be an agent, at an address that is the node's or
        // unconfirmed.
        ("HostNetwork", pod("p", Some("team/np"), &json!({"spec": {"hostNetwork": true}}))),
        ("NameTaken", pod("p", Some("team/np"), &json!({"metadata": {"annotations": null}}))),
        ("Stripped", pod("p", Some("team/np"), &json!({"spec": {"initContainers": null}}))),
        (
            "Stripped",
            pod(
                "p",
                Some("team/np"),
                &json!({"spec": {"initContainers": [
            {"name": "net-prober", "ports": [{"name": "np-ping", "containerPort": 8080}]}]}}),
            ),
        ),
    ];
    for (reason, pod) in cases {
        let members = view(&everywhere, std::slice::from_ref(&pod)).members;
        assert_eq!(members.not_injected, [(reason, 1)].into(), "{pod}");
        assert_eq!((members.selected, members.injected), (1, 0), "{reason}");
    }
}

/// The author of a `NetworkProber` may select the namespaces of others, and learns nothing of them.
#[test]
fn nothing_is_revealed_of_namespaces_that_do_not_consent() {
    let everywhere = json!({"namespaceSelector": {}});
    for namespace in ["silent", "kube-system"] {
        for by in [None, Some("team/np")] {
            // Not even because of a failing pod that only looks like one of ours.
            let change = json!({"metadata": {"namespace": namespace}, "status": {
                "initContainerStatuses": [
                    {"name": "net-prober", "state": {"waiting": {"reason": "ErrImagePull"}}}]}});
            let view = view(&everywhere, &[pod("p", by, &change)]);
            assert_eq!(view.members, Members::default(), "{namespace}");
            let prober = prober("np", "2026-01-01T00:00:00Z", &everywhere);
            let decided = plan(&prober, &observed(view)).unwrap();
            let shown = format!("{:?} {:?}", decided.status, decided.conditions);
            assert!(!shown.contains(namespace) && decided.notices.is_empty(), "{shown}");
            assert!(
                shown.contains("probes.bigmikes.io/allow"),
                "how a namespace consents: {shown}"
            );
        }
    }
    // Authors learn everything about their own pods.
    assert_eq!(view(&everywhere, &[pod("p", None, &json!({}))]).members.selected, 1);
}

/// An original operator's pods are taken over, as such that need a restart.
#[test]
fn agents_of_the_original_operator_are_taken_over() {
    let original = json!({
        "metadata": {"annotations": {"netprober-container-deployed": "true"}},
        "spec": {"containers": [{"name": "app"}, {"name": "net-prober", "image": "old",
            "ports": [{"name": "np-ping", "containerPort": 9090}]}]},
        "status": {"containerStatuses": [{"name": "net-prober", "state": {"running": {}}}]},
    });
    let members = view(&json!({}), &[pod("p", None, &original)]).members;
    assert_eq!((members.injected, members.need_restart), (1, 1));
    assert_eq!(members.members[0].port, 9090, "its own port, not that of the spec");
    // Only the older of two that select it counts it.
    let setup = setup(Some("operator"));
    let older = prober("zz", "2025-01-01T00:00:00Z", &json!({}));
    let mut snapshot = Snapshot::default();
    let view = view_among(&older, &snapshot, &[], &setup);
    snapshot.views.insert(("team".into(), "zz".into()), Arc::new(view));
    let younger = prober("np", "2026-01-01T00:00:00Z", &json!({}));
    let members = view_among(&younger, &snapshot, &[pod("p", None, &original)], &setup).members;
    assert_eq!(members.not_injected, [("OtherProber", 1)].into());
}

#[test]
fn one_agent_that_runs_shows_that_the_image_is_right() {
    let waiting = |reason: &str| {
        json!({"status": {"phase": "Pending", "conditions": null,
        "initContainerStatuses": [{"name": "net-prober", "state": {"waiting": {"reason": reason}}}]}})
    };
    let hash = view(&json!({}), &[]).recipe.unwrap().hash();
    let current = json!({"metadata": {"annotations": {"probes.bigmikes.io/injected-hash": hash}}});
    let stuck = |hash: &str| {
        let mut change = waiting("ErrImagePull");
        change["metadata"] = json!({"annotations": {"probes.bigmikes.io/injected-hash": hash}});
        pod("a", Some("team/np"), &change)
    };
    // Failures of an earlier spec do not count: its author has corrected it.
    assert!(!view(&json!({}), &[stuck("earlier")]).members.is_paused("team"));
    let stuck = stuck(&hash);
    let runs = pod("b", Some("team/np"), &current);
    assert!(view(&json!({}), std::slice::from_ref(&stuck)).members.is_paused("team"));
    assert!(!view(&json!({}), &[stuck.clone(), runs]).members.is_paused("team"));
    // An agent of an earlier spec proves nothing about this one.
    assert!(
        view(&json!({}), &[stuck.clone(), pod("c", Some("team/np"), &json!({}))])
            .members
            .is_paused("team")
    );
    // A pod that is skipped in the meantime has a reason.
    let failing = view(&json!({}), &[stuck.clone(), pod("d", None, &json!({}))]).members;
    assert_eq!(failing.not_injected, [("AgentFailing", 1)].into());
    for starting in ["ContainerCreating", "PodInitializing"] {
        let pod = pod("a", Some("team/np"), &waiting(starting));
        assert!(!view(&json!({}), &[pod]).members.is_paused("team"), "{starting}");
    }
}

/// Another webhook, which is called after ours each time, would stop every pod of the namespace.
#[test]
fn stripped_agents_pause_injection_and_a_repair_is_never_paused() {
    let hash = view(&json!({}), &[]).recipe.unwrap().hash();
    let change = |hash: &str, policy: Option<&str>| {
        json!({"metadata": {"annotations": {"probes.bigmikes.io/injected-hash": hash}},
            "spec": {"initContainers": [{"name": "net-prober", "image": "operator",
                "restartPolicy": policy, "ports": [{"name": "np-ping", "containerPort": 8080}]}]}})
    };
    let stripped = |name: &str, hash: &str| pod(name, Some("team/np"), &change(hash, None));
    assert!(!view(&json!({}), &[stripped("a", "earlier")]).members.is_paused("team"));
    // Nothing has started, as far as is known.
    let mut early = stripped("a", &hash);
    early["status"] = json!({});
    assert!(!view(&json!({}), &[early]).members.is_paused("team"));
    let paused = view(&json!({}), &[stripped("a", &hash)]);
    assert_eq!(paused.members.not_injected, [("Stripped", 1)].into());
    assert_eq!(paused.members.paused, [("team".to_owned(), "Stripped".to_owned())].into());
    // Where other agents run, one may be an accident.
    let runs = pod("r", Some("team/np"), &change(&hash, Some("Always")));
    let mut pods = vec![runs, stripped("a", &hash), stripped("b", &hash)];
    assert!(!view(&json!({}), &pods).members.is_paused("team"));
    pods.push(stripped("c", &hash));
    assert!(view(&json!({}), &pods).members.is_paused("team"));
    let mut snapshot = Snapshot { synced: true, ..Snapshot::default() };
    snapshot.views.insert(("team".into(), "np".into()), Arc::new(paused));
    let asked = |pod: &Value| {
        let pod = serde_json::from_value(pod.clone()).unwrap();
        decide(&snapshot, ("team", "np"), "team", &pod)
    };
    let fresh = asked(&pod("n", None, &json!({})));
    assert_eq!(fresh, Decision::Skip(SkipReason::AgentFailing));
    assert!(matches!(asked(&stripped("n", &hash)), Decision::Inject(_)));
    let whole = asked(&pod("n", Some("team/np"), &json!({})));
    assert_eq!(whole, Decision::Skip(SkipReason::AlreadyInjected));
}

/// A marked pod is the witness that pods of its namespace are refused with an agent.
#[test]
fn a_namespace_that_refuses_agents_gets_none_for_an_hour() {
    let np = prober("np", "2026-01-01T00:00:00Z", &json!({}));
    let recipe = next(&np, &[], None, (None, 0)).recipe.unwrap();
    let mark = recipe.mark();
    // Minutes after 1970.
    let created =
        |minute: i64| k8s_openapi::jiff::Timestamp::from_second(minute * 60).unwrap().to_string();
    let of = |owner: &str, minute: i64| {
        json!({"metadata": {"creationTimestamp": created(minute), "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner,
             "controller": true}]}})
    };
    let marked = |mark: &str, minute: i64| {
        let mut pod = pod("m", None, &of("web", minute));
        pod["metadata"]["annotations"] = json!({"probes.bigmikes.io/refused-with": mark});
        pod
    };
    let with_agent = |owner: &str, minute: i64| {
        let mut pod = pod("a", Some("team/np"), &of(owner, minute));
        pod["metadata"]["annotations"]["probes.bigmikes.io/injected-hash"] = recipe.hash().into();
        pod
    };
    let at = |pods: &[Value], last: Option<&ProberState>, minute: u64| {
        next(&np, pods, last, (None, minute * 60))
    };
    let refuses = |view: &ProberState| view.members.refusing.contains_key("team");
    let first = at(&[marked(&mark, 100)], None, 101);
    assert!(refuses(&first));
    assert_eq!(first.members.not_injected, [("AgentRefused", 1)].into());
    assert!(refuses(&at(&[marked(&mark, 100)], None, 159)));
    assert!(!refuses(&at(&[marked(&mark, 100)], None, 160)), "pods are tried again");
    // Of another spec, it is still the reason of this pod.
    let earlier = at(&[marked("team/np 0", 100)], None, 101);
    assert!(!refuses(&earlier) && earlier.members.not_injected.contains_key("AgentRefused"));
    assert!(
        !at(&[marked("team/other 0", 100)], None, 101)
            .members
            .not_injected
            .contains_key("AgentRefused")
    );
    // A pod of the same owner with an agent contradicts it, also after its end; others do not.
    let seen = at(&[with_agent("web", 95), marked(&mark, 100)], None, 101);
    assert!(!refuses(&seen));
    assert!(!refuses(&at(&[marked(&mark, 100)], Some(&seen), 120)));
    assert!(refuses(&at(&[with_agent("api", 95), marked(&mark, 100)], None, 101)));
    assert!(refuses(&at(&[with_agent("web", 60), marked(&mark, 100)], None, 101)));
    let mut snapshot = Snapshot { synced: true, ..Snapshot::default() };
    snapshot.views.insert(("team".into(), "np".into()), Arc::new(first));
    let fresh = serde_json::from_value(pod("n", None, &json!({}))).unwrap();
    let decided = decide(&snapshot, ("team", "np"), "team", &fresh);
    assert!(matches!(decided, Decision::Mark(_)), "{decided:?}");
}
