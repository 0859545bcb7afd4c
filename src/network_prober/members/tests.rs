//! The probed pods, and for how long they are probed.
use serde_json::{Value, json};

use super::*;
use crate::network_prober::{
    constraints::ByNamespace,
    scope::NamespaceFacts,
    tests::{pod, prober, setup},
};

/// Now, in these tests: 2026-01-01T12:00:00Z.
const NOON: i64 = 1_767_268_800;

fn at(seconds_before_noon: i64) -> String {
    k8s_openapi::jiff::Timestamp::from_second(NOON - seconds_before_noon).unwrap().to_string()
}

/// Returns the result for pods, the state of every node, and the previous result.
fn found(spec: &Value, pods: &[Value], node: Option<Readiness>, last: Option<&Members>) -> Members {
    found_while(spec, pods, node, last, &|_| false)
}

/// The same, where the end of some nodes is announced.
fn found_while(
    spec: &Value,
    pods: &[Value],
    node: Option<Readiness>,
    last: Option<&Members>,
    ends: &dyn Fn(&str) -> bool,
) -> Members {
    let prober = prober("np", "2026-01-01T00:00:00Z", spec);
    let setup = setup(Some("operator"));
    let settings = Settings::of(&prober, &setup.tenancy).unwrap();
    let team = NamespaceFacts { name: "team".into(), ..NamespaceFacts::default() };
    let read = |pod: &Value| Arc::new(serde_json::from_value::<PodObject>(pod.clone()).unwrap());
    members(&Selection {
        settings: &settings,
        recipe: None,
        scope: &Scope::of(&settings, None, &setup.tenancy, [&team]),
        older: &[],
        pods: &pods.iter().map(read).collect::<Vec<_>>(),
        nodes: &Nodes { zone: &|_| String::new(), readiness: &|_| node, ends },
        constraints: &ByNamespace::new(),
        last,
        appeared: None,
        calls_since: None,
        now: NOON,
    })
}

fn names(members: &Members) -> Vec<&str> {
    members.members.iter().map(|member| member.name.as_str()).collect()
}

fn is_member(change: &Value, node: Option<Readiness>) -> bool {
    let pods = [pod("p", Some("team/np"), change)];
    let members = found(&json!({}), &pods, node, None);
    names(&members) == ["p"]
}

/// A node that an autoscaler takes away is no fault of the network.
#[test]
fn a_node_whose_end_is_announced_is_not_probed() {
    let deleted = json!({"metadata": {"deletionTimestamp": at(60)}});
    let pods = [
        pod("stays", Some("team/np"), &json!({"spec": {"nodeName": "n2"}})),
        pod("ends", Some("team/np"), &json!({})),
        pod("stranded", Some("team/np"), &deleted),
    ];
    let ends = |node: &str| node == "n1";
    let found = found_while(&json!({}), &pods, Some(not_ready(60)), None, &ends);
    assert_eq!((names(&found), found.injected), (vec!["stays"], 2));
}

/// The state of a node that stopped being Ready so long ago.
fn not_ready(seconds: i64) -> Readiness {
    Readiness::NotReady(Some(NOON - seconds))
}

/// Returns the kubelet's report of an agent in this state.
fn agent(state: &Value) -> Value {
    json!({"status": {"initContainerStatuses": [{"name": "net-prober", "state": state}]}})
}

#[test]
fn whose_agent_runs_is_probed_whatever_its_application_says() {
    let ready = Some(Readiness::Ready);
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let pending = json!({"status": {"phase": "Pending", "conditions": null}});
    let crashed = json!({"waiting": {"reason": "CrashLoopBackOff"}, "running": null});
    let ended = json!({"terminated": {"exitCode": 137}, "running": null});
    for (what, change, node, expected) in [
        ("all is well", json!({}), ready, true),
        ("its application is not ready", unready.clone(), ready, true),
        ("its application is still being started", pending, ready, true),
        ("its node fell silent", unready.clone(), Some(not_ready(60)), true),
        ("its node is long dead, and nobody deletes it", unready, Some(not_ready(86_400)), true),
        ("its node is not known here yet", json!({}), None, true),
        ("its agent crashes", agent(&crashed), ready, false),
        ("its agent has ended", agent(&ended), ready, false),
        (
            "nothing is said of its agent",
            json!({"status": {"initContainerStatuses": null}}),
            ready,
            false,
        ),
        ("it has no address", json!({"status": {"podIPs": null}}), ready, false),
        ("it has no node", json!({"spec": {"nodeName": null}}), ready, false),
    ] {
        assert_eq!(is_member(&change, node), expected, "{what}");
        // Its agent may ask for its list either way; without a place it has no peers.
        let members = found(&json!({}), &[pod("p", Some("team/np"), &change)], node, None);
        assert_eq!((members.selected, members.injected), (1, 1), "{what}");
        assert_eq!(members.guests.len(), usize::from(!expected), "{what}");
    }
}

/// A rollout costs no packet; the pods of a dead node visibly fail until an alert has fired.
#[test]
fn who_is_being_deleted_leaves_at_once_and_stays_on_a_dead_node() {
    let deleted = json!({"metadata": {"deletionTimestamp": at(0)}});
    let crashed = agent(&json!({"waiting": {"reason": "CrashLoopBackOff"}, "running": null}));
    let mut crashed_and_deleted = crashed;
    json_patch::merge(&mut crashed_and_deleted, &deleted);
    let failed = json!({"metadata": {"deletionTimestamp": at(0)}, "status": {"phase": "Failed"}});
    for (what, change, node, expected) in [
        ("a rollout", &deleted, Some(Readiness::Ready), false),
        ("it is evicted from a dead node", &deleted, Some(not_ready(300)), true),
        (
            "the window of loss and the alert's `for` have passed",
            &deleted,
            Some(not_ready(600)),
            true,
        ),
        ("the alert has fired long ago", &deleted, Some(not_ready(EVIDENCE_SECONDS)), false),
        ("the clock of the reporting kubelet is ahead", &deleted, Some(not_ready(-30)), true),
        ("the node was deleted", &deleted, None, false),
        ("the node never said anything", &deleted, Some(Readiness::NotReady(None)), false),
        ("its agent had crashed before", &crashed_and_deleted, Some(not_ready(60)), false),
        ("it has ended", &failed, Some(not_ready(60)), false),
    ] {
        assert_eq!(is_member(change, node), expected, "{what}");
        // Either way it is no pod to be covered any more.
        let members = found(&json!({}), &[pod("p", Some("team/np"), change)], node, None);
        assert_eq!((members.selected, members.injected), (0, 0), "{what}");
        assert!(members.guests.is_empty() && members.not_injected.is_empty(), "{what}");
    }
}

/// The alert on a dead node: loss over five minutes, `for: 5m`.
const _: () = assert!(EVIDENCE_SECONDS >= 2 * 5 * 60);

#[test]
fn the_same_holds_for_agents_of_their_own() {
    let spec = json!({"mode": "DaemonSet"});
    let owned = json!({
        "metadata": {"ownerReferences": [
            {"kind": "DaemonSet", "name": "np", "uid": "d", "controller": true}]},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    });
    let mut deleted = owned.clone();
    deleted["metadata"]["deletionTimestamp"] = at(0).into();
    for (change, node, expected) in [
        (&owned, Some(Readiness::Ready), true),
        (&owned, Some(not_ready(300)), true),
        (&deleted, Some(Readiness::Ready), false),
        (&deleted, Some(not_ready(300)), true),
    ] {
        let pods = [pod("p", Some("team/np"), change)];
        let members = found(&spec, &pods, node, None);
        assert_eq!(names(&members) == ["p"], expected, "{change} {node:?}");
    }
}

/// The pod of a dead node still claims the address that its successor has: it must not be measured
/// as the dead one, nor the dead one as alive.
#[test]
fn an_address_is_the_newest_pods() {
    let with = |name: &str, created: i64, ips: &[&str], by: Option<&str>| {
        let ips: Vec<_> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        let change = json!({
            "metadata": {"creationTimestamp": at(created)}, "status": {"podIPs": ips},
        });
        pod(name, by, &change)
    };
    let ours = Some("team/np");
    let (dead, next) =
        (with("dead", 3600, &["10.0.0.7"], ours), with("next", 60, &["10.0.0.7"], ours));
    let addresses = |pods: &[Value]| {
        let members = found(&json!({}), pods, Some(Readiness::Ready), None);
        let of = |m: &Member| format!("{} {:?}", m.name, m.ips);
        members.members.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(addresses(&[dead.clone(), next.clone()]), ["next [10.0.0.7]"]);
    assert_eq!(addresses(&[next.clone(), dead.clone()]), ["next [10.0.0.7]"]);
    assert_eq!(addresses(std::slice::from_ref(&dead)), ["dead [10.0.0.7]"]);
    // One without an agent answers there as well as any other.
    assert!(addresses(&[dead.clone(), with("bare", 60, &["10.0.0.7"], None)]).is_empty());
    // An agent that is not running yet: none would answer in place of the dead one.
    let mut starting = next.clone();
    starting["status"]["initContainerStatuses"] = Value::Null;
    assert!(addresses(&[dead.clone(), starting]).is_empty());
    // One of two addresses is lost, the other stays.
    let both = with("dead", 3600, &["10.0.0.7", "fd00::7"], ours);
    assert_eq!(addresses(&[both, next.clone()]), ["dead [fd00::7]", "next [10.0.0.7]"]);
    // If created in the same second, exactly one of them has it.
    let twin = with("twin", 60, &["10.0.0.7"], ours);
    assert_eq!(addresses(&[next.clone(), twin.clone()]).len(), 1);
    // The one that stays, if only one does.
    for (leaves, stays) in [(&next, &twin), (&twin, &next)] {
        let mut leaves = leaves.clone();
        leaves["metadata"]["deletionTimestamp"] = at(0).into();
        let name = stays["metadata"]["name"].as_str().unwrap();
        assert_eq!(addresses(&[leaves, stays.clone()]), [format!("{name} [10.0.0.7]")]);
    }
    // A pod that has ended has released the address, and one with the node's address has not taken
    // it.
    let mut ended = next.clone();
    ended["status"]["phase"] = "Succeeded".into();
    assert_eq!(addresses(&[dead.clone(), ended]), ["dead [10.0.0.7]"]);
    let mut on_host = next;
    on_host["spec"]["hostNetwork"] = true.into();
    assert_eq!(addresses(&[dead, on_host]), ["dead [10.0.0.7]"]);
}

/// All agents ending at once indicates another outage: the lists stay.
#[test]
fn lists_are_not_emptied_by_an_outage() {
    let ready = Some(Readiness::Ready);
    let runs = |name: &str| pod(name, Some("team/np"), &json!({}));
    let down = |name: &str| pod(name, Some("team/np"), &agent(&json!({"running": null})));
    let before = found(&json!({}), &[runs("a"), runs("b")], ready, None);
    assert!(!before.held);
    let out = found(&json!({}), &[down("a"), down("b"), down("new")], ready, Some(&before));
    assert_eq!((names(&out), out.held), (vec!["a", "b"], true));
    assert_eq!(out.guests.len(), 1, "one that was never probed is still not");
    // For as long as it lasts, and no longer.
    let still = found(&json!({}), &[down("a"), down("b")], ready, Some(&out));
    assert_eq!((names(&still), still.held), (vec!["a", "b"], true));
    let back = found(&json!({}), &[runs("a"), down("b")], ready, Some(&still));
    assert_eq!((names(&back), back.held), (vec!["a"], false));
    // A pod that is gone has no address to probe.
    let left = found(&json!({}), &[down("b")], ready, Some(&before));
    assert_eq!(names(&left), ["b"]);
    let mut bare = down("b");
    bare["status"]["podIPs"] = Value::Null;
    assert!(found(&json!({}), &[bare], ready, Some(&before)).members.is_empty());
    assert!(found(&json!({}), &[], ready, Some(&before)).members.is_empty());
}

/// A pod with an agent of the current spec in this state; its pod was scheduled this long ago.
fn agent_for(name: &str, namespace: &str, seconds: i64, state: &Value) -> Value {
    let mut change = agent(state);
    change["metadata"] = json!({"namespace": namespace});
    change["status"]["startTime"] = at(seconds).into();
    let mut pod = pod(name, Some("team/np"), &change);
    pod["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
    pod
}

fn stuck(name: &str, seconds: i64) -> Value {
    let waiting = json!({"waiting": {"reason": "ErrImagePull"}, "running": null});
    agent_for(name, "team", seconds, &waiting)
}

#[test]
fn agents_that_cannot_start_are_counted_whatever_runs_elsewhere() {
    let ready = Some(Readiness::Ready);
    let runs = |name: &str| pod(name, Some("team/np"), &json!({}));
    let look = |pods: &[Value]| found(&json!({}), pods, ready, None);
    let one = look(&[runs("a"), runs("b"), stuck("c", 600)]);
    assert_eq!((one.failures(), one.failing.get("ErrImagePull")), (1, Some(&1)));
    assert!(one.paused.is_empty(), "one of three may be on a full node");
    // Several that wait for long: the next would wait too.
    let three =
        |seconds| look(&[runs("a"), stuck("c", seconds), stuck("d", seconds), stuck("e", 600)]);
    assert!(three(60).paused.is_empty() && three(60).failures() == 3);
    assert!(three(120).is_paused("team"));
    // It continues by itself.
    assert!(!look(&[runs("a"), runs("c"), runs("d"), stuck("e", 600)]).is_paused("team"));
    assert!(!look(&[runs("a"), stuck("d", 600), stuck("e", 600)]).is_paused("team"));
    // All agents of a small namespace.
    assert!(look(&[stuck("c", 600)]).is_paused("team"));
    for starting in ["ContainerCreating", "PodInitializing"] {
        let state = json!({"waiting": {"reason": starting}, "running": null});
        let pods = ["a", "b", "c"].map(|name| agent_for(name, "team", 3600, &state));
        assert_eq!((look(&pods).failures(), look(&pods).paused.len()), (0, 0), "{starting}");
    }
}

/// An agent that ends again and again runs for moments in between.
#[test]
fn an_agent_that_crashes_again_and_again_stays_counted() {
    let looping = |restarts: u32, ran: i64, state: &Value| {
        let mut pod = agent_for("a", "team", 86_400, state);
        let status = &mut pod["status"]["initContainerStatuses"][0];
        status["restartCount"] = restarts.into();
        status["lastState"] =
            json!({"terminated": {"startedAt": at(30 + ran), "finishedAt": at(30)}});
        found(&json!({}), &[pod], Some(Readiness::Ready), None).failures()
    };
    let runs = |seconds: i64| json!({"running": {"startedAt": at(seconds)}});
    assert_eq!(looping(7, 5, &runs(5)), 1, "it runs, as it does each time");
    assert_eq!(looping(7, 5, &runs(601)), 0, "it has run for long enough");
    assert_eq!(looping(7, 86_000, &runs(5)), 0, "it ended once in a day");
    assert_eq!(looping(1, 5, &runs(5)), 0, "it ended once");
    let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}, "running": null});
    assert_eq!(looping(1, 5, &waits), 1);
}

/// Any user can compute the hash of the injected agent, and any user who may create pods can write
/// annotations.
#[test]
fn forged_annotations_pause_no_other_namespace() {
    let spec = json!({"namespaceSelector": {}});
    let prober = prober("np", "2026-01-01T00:00:00Z", &spec);
    let setup = setup(Some("operator"));
    let settings = Settings::of(&prober, &setup.tenancy).unwrap();
    let allow = Some("*".to_owned());
    let named = |name: &str| NamespaceFacts {
        name: name.into(),
        allow: allow.clone(),
        ..NamespaceFacts::default()
    };
    let waiting = json!({"waiting": {"reason": "x".repeat(1_000_000)}, "running": null});
    let forged = (0..50).map(|i| agent_for(&format!("p{i}"), "evil", 3600, &waiting));
    let pods = forged.chain([pod("good", Some("team/np"), &json!({}))]);
    let read = |pod: Value| Arc::new(serde_json::from_value::<PodObject>(pod).unwrap());
    let found = members(&Selection {
        settings: &settings,
        recipe: None,
        scope: &Scope::of(&settings, None, &setup.tenancy, &[named("team"), named("evil")]),
        older: &[],
        pods: &pods.map(read).collect::<Vec<_>>(),
        nodes: &Nodes {
            zone: &|_| String::new(),
            readiness: &|_| Some(Readiness::Ready),
            ends: &|_| false,
        },
        constraints: &ByNamespace::new(),
        last: None,
        appeared: None,
        calls_since: None,
        now: NOON,
    });
    assert!(found.is_paused("evil") && !found.is_paused("team"));
    assert!(found.failing.keys().chain(found.paused.values()).all(|reason| reason.len() < 50));
}
