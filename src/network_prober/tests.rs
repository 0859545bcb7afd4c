//! The pure core, from a spec and pods to the outputs and writes.
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    children::{ChildKey, ChildKind},
    conflict::{WEBHOOK_BYTES, WEBHOOKS},
    injector::decide,
    members::{Member, Nodes},
    observed::Observed,
    pinglists::config_json,
    plan::plan,
    scope::NamespaceFacts,
    settings::Settings,
    snapshot::{Pods, ProberState, Reach, Setup, Snapshot, Surroundings},
    tenancy::Tenancy,
    watches::budget::{Over, Payer},
};
use crate::{
    agent::pinglist::Pinglist,
    api::NetworkProber,
    controller::Error,
    nodes::Readiness,
    pods::PodObject,
    webhook::{configuration::Endpoint, injection::SkipReason, review::Decision},
};

pub(super) fn prober(name: &str, created: &str, spec: &Value) -> NetworkProber {
    let mut full = json!({"podSelector": {"matchLabels": {"app": "a"}}});
    full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "probes.bigmikes.io/v1alpha1", "kind": "NetworkProber",
        "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"), "generation": 1,
            "creationTimestamp": created},
        "spec": full,
    }))
    .unwrap()
}

pub(super) fn setup(own_image: Option<&str>) -> Setup {
    Setup {
        tenancy: Tenancy::of("ops"),
        own_image: own_image.map(Into::into),
        pinglist_url: "https://operator/pinglist".into(),
        native_sidecars: true,
    }
}

fn namespaces() -> Vec<NamespaceFacts> {
    let named = |name: &str| NamespaceFacts { name: name.into(), ..NamespaceFacts::default() };
    vec![named("team"), named("silent"), named("kube-system")]
}

/// A pod with the agent of `by` in it, running, with a change; its address follows from its name.
pub(super) fn pod(name: &str, by: Option<&str>, change: &Value) -> Value {
    let [high, low, ..] = crate::placement::hash::of(name).to_be_bytes();
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"), "labels": {"app": "a"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "app", "image": "app"}]},
        "status": {"phase": "Running", "podIPs": [{"ip": format!("10.0.{high}.{low}")}],
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    if let Some(by) = by {
        pod["metadata"]["annotations"] = json!({
            "netprober-container-deployed": "true", "probes.bigmikes.io/injected-by": by,
        });
        pod["spec"]["initContainers"] = json!([{
            "name": "net-prober", "image": "operator", "restartPolicy": "Always",
            "ports": [{"name": "np-ping", "containerPort": 8080}],
        }]);
        pod["status"]["initContainerStatuses"] =
            json!([{"name": "net-prober", "state": {"running": {}}}]);
    }
    json_patch::merge(&mut pod, change);
    pod
}

pub(super) fn view_among(
    prober: &NetworkProber,
    before: &Snapshot,
    pods: &[Value],
    setup: &Setup,
) -> ProberState {
    let read = |pod: &Value| Arc::new(serde_json::from_value::<PodObject>(pod.clone()).unwrap());
    let pods: Vec<_> = pods.iter().map(read).collect();
    let surroundings = Surroundings {
        before,
        constraints: &BTreeMap::new(),
        nodes: Nodes {
            zone: &|node| format!("zone-of-{node}"),
            readiness: &|_| Some(Readiness::Ready),
        },
        now: Duration::ZERO,
    };
    let reach = Reach::of(Settings::of(prober, &setup.tenancy), setup, &namespaces());
    ProberState::of(prober, reach, Pods::Listed(&pods), None, &surroundings)
}

pub(super) fn view(spec: &Value, pods: &[Value]) -> ProberState {
    let prober = prober("np", "2026-01-01T00:00:00Z", spec);
    view_among(&prober, &Snapshot::default(), pods, &setup(Some("operator")))
}

fn observed(view: ProberState) -> Observed {
    Observed {
        view: Some(Arc::new(view)),
        setup: setup(Some("operator")),
        bundle: Some("PEM".into()),
        endpoint: Endpoint::Service,
        configuration: true,
        monitoring: BTreeSet::new(),
        existing: vec![],
        unchanged: BTreeMap::new(),
        written: BTreeMap::new(),
    }
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
                &json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 8080}]}]}}),
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
        // What calls itself an agent, at an address that is the node's or by its own word alone.
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
fn s10_nothing_is_told_of_namespaces_that_do_not_consent() {
    let everywhere = json!({"namespaceSelector": {}});
    for namespace in ["silent", "kube-system"] {
        for by in [None, Some("team/np")] {
            // Not even of a pod that stands there as if it were ours, and fails.
            let change = json!({"metadata": {"namespace": namespace}, "status": {
                "initContainerStatuses": [
                    {"name": "net-prober", "state": {"waiting": {"reason": "ErrImagePull"}}}]}});
            let view = view(&everywhere, &[pod("p", by, &change)]);
            assert_eq!(view.members, super::members::Members::default(), "{namespace}");
            let prober = prober("np", "2026-01-01T00:00:00Z", &everywhere);
            let decided = plan(&prober, &observed(view)).unwrap();
            let told = format!("{:?} {:?}", decided.status, decided.conditions);
            assert!(!told.contains(namespace) && decided.notices.is_empty(), "{told}");
            assert!(told.contains("probes.bigmikes.io/allow"), "how a namespace consents: {told}");
        }
    }
    // Of their own pods authors learn everything.
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
    assert_eq!(members.members[0].port, 9090, "where it listens, not where the spec says");
    // By the older of two that select it, and by no other.
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
    // One of an earlier spec proves nothing of this one.
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

#[test]
fn the_webhook_decides_by_what_is_known() {
    let setup = setup(Some("operator"));
    let older = prober(
        "zz",
        "2026-01-01T00:00:00Z",
        &json!({"podSelector": {"matchLabels": {"tier": "x"}}}),
    );
    let younger = prober("np", "2026-01-02T00:00:00Z", &json!({"namespaceSelector": {}}));
    let mut snapshot = Snapshot { synced: true, ..Snapshot::default() };
    for prober in [&older, &younger] {
        let view = view_among(prober, &snapshot, &[], &setup);
        let name = prober.metadata.name.clone().unwrap();
        snapshot.views.insert(("team".into(), name), Arc::new(view));
    }
    let new = |change: &Value| {
        let mut pod = json!({"metadata": {"generateName": "p-", "labels": {"app": "a"}},
            "spec": {"containers": [{"name": "app"}]}});
        json_patch::merge(&mut pod, change);
        serde_json::from_value::<PodObject>(pod).unwrap()
    };
    let plain = new(&json!({}));
    let asked = |prober: &str, namespace: &str, pod: &PodObject| {
        decide(&snapshot, ("team", prober), namespace, pod)
    };
    assert!(
        matches!(asked("np", "team", &plain), Decision::Inject(recipe) if recipe.prober == "team/np")
    );
    for (namespace, pod, reason) in [
        ("silent", &plain, SkipReason::NamespaceNotConsenting),
        ("kube-system", &plain, SkipReason::NamespaceExcluded),
        ("team", &new(&json!({"metadata": {"labels": {"tier": "x"}}})), SkipReason::OtherProber),
        ("team", &new(&json!({"spec": {"hostNetwork": true}})), SkipReason::HostNetwork),
    ] {
        assert_eq!(asked("np", namespace, pod), Decision::Skip(reason));
    }
    let other = new(&json!({"metadata": {"labels": {"app": "b"}}}));
    for (prober, namespace, pod) in
        [("none", "team", &plain), ("np", "team", &other), ("zz", "silent", &plain)]
    {
        assert!(
            matches!(asked(prober, namespace, pod), Decision::Unknown(_) | Decision::NotYet(_)),
            "{prober} {namespace}"
        );
    }
    let empty = Snapshot::default();
    assert!(matches!(decide(&empty, ("team", "np"), "team", &plain), Decision::NotYet(_)));
}

#[test]
fn nothing_is_changed_before_the_pods_are_known() {
    let prober = prober("np", "2026-01-01T00:00:00Z", &json!({}));
    let mut blind = observed(view(&json!({}), &[]));
    blind.view = None;
    blind.existing = vec![webhook_key()];
    let decided = plan(&prober, &blind).unwrap();
    assert_eq!((decided.desired.apply.len(), decided.desired.delete.len()), (0, 0));
    assert_eq!(decided.conditions[0].status, None);
    // What was said before a restart stands: it was true, and nothing says that it is not.
    let mut known = prober;
    known.status =
        serde_json::from_value(json!({"conditions": [{"type": "Ready", "status": "True",
        "reason": "Serving", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}))
        .unwrap();
    assert!(plan(&known, &blind).unwrap().conditions.is_empty());
}

fn webhook_key() -> ChildKey {
    ChildKey::webhook("team", "np")
}

#[test]
fn what_is_not_wanted_any_more_goes_and_what_is_not_known_stays() {
    let stray =
        ChildKey { kind: ChildKind::ConfigMap, namespace: Some("left".into()), name: "np".into() };
    let prober = prober("np", "2026-01-01T00:00:00Z", &json!({}));
    let mut world = observed(view(&json!({}), &[]));
    world.existing = vec![stray.clone(), webhook_key()];
    let decided = plan(&prober, &world).unwrap().desired;
    assert_eq!(decided.delete, [stray]);
    let kinds: Vec<_> = decided.apply.iter().map(|child| child.key.kind).collect();
    assert_eq!(kinds, [ChildKind::ConfigMap, ChildKind::Webhook]);
    // Applied and untouched: not again.
    world.unchanged = decided.apply.iter().map(|child| (child.key.clone(), child.hash)).collect();
    assert!(plan(&prober, &world).unwrap().desired.apply.is_empty());
    // Without a certificate neither the webhook nor the agents' CA is known: both are left.
    world.bundle = None;
    let decided = plan(&prober, &world).unwrap().desired;
    assert_eq!((decided.apply, decided.delete), (vec![], vec![]));
}

#[test]
fn an_image_must_be_known() {
    let prober = prober("np", "2026-01-01T00:00:00Z", &json!({}));
    let view = view_among(&prober, &Snapshot::default(), &[], &setup(None));
    let error = plan(&prober, &observed(view)).unwrap_err();
    assert!(
        matches!(&error, Error::Invalid(text) if text.starts_with("spec.agentImage")),
        "{error}"
    );
}

fn member(i: usize) -> Member {
    Member {
        namespace: if i.is_multiple_of(7) { "other" } else { "team" }.into(),
        name: format!("pod-{i}"),
        uid: format!("uid-{i}"),
        ips: vec![format!("10.0.{}.{}", i / 250, i % 250 + 1).parse().unwrap()],
        port: 9090,
        node: format!("node-{}", i % 11),
        zone: format!("zone-{}", i % 3),
    }
}

fn settings(spec: &Value) -> Settings {
    Settings::of(&prober("np", "2026-01-01T00:00:00Z", spec), &Tenancy::of("ops")).unwrap()
}

/// The original's file: its agents read these three fields and nothing else.
#[test]
fn the_file_has_the_shape_of_the_original() {
    let settings = settings(&json!({"agentImage": "x", "httpPort": "9090"}));
    let file: Value =
        serde_json::from_slice(&config_json(&settings, &[member(0), member(1)])).unwrap();
    assert_eq!(file["pollingPeriod"], json!(10_000_000_000_u64));
    let endpoints = file["endpointsMap"].as_object().unwrap();
    assert_eq!(endpoints.keys().collect::<Vec<_>>(), ["other/pod-0", "pod-1"]);
    let endpoint = &endpoints["pod-1"];
    assert_eq!((&endpoint["ip"], &endpoint["port"]), (&json!("10.0.0.2"), &json!("9090")));
}

proptest! {
    /// Everybody is probed by as many as the spec says, nobody by itself, and the lists are as many
    /// as there are agents, whatever the order in which pods are seen; by fewer only where a list
    /// is cut.
    #[test]
    fn lists_follow_the_neighbours(count in 1_usize..60, in_zone in 0_u32..6, other in 0_u32..4, turn in 0_usize..60) {
        let settings = settings(&json!({"neighbours": {"inZone": in_zone, "perOtherZone": other}}));
        let mut members = super::members::Members { members: (0..count).map(member).collect(), ..Default::default() };
        let lists = super::pinglists::Pinglists::of_members(&settings, &members, Duration::ZERO);
        members.members.rotate_left(turn % count);
        let turned = super::pinglists::Pinglists::of_members(&settings, &members, Duration::ZERO);
        prop_assert_eq!(&lists.version, &turned.version);
        prop_assert_eq!(lists.len(), count);
        let mut probed = BTreeMap::<String, usize>::new();
        for one in &members.members {
            let served = lists.of(&one.uid).unwrap();
            let list: Pinglist = serde_json::from_slice(&served.body()).unwrap();
            prop_assert_eq!(&list.own.uid, &one.uid);
            prop_assert!(list.peers.iter().all(|peer| peer.uid != one.uid));
            for peer in list.peers {
                *probed.entry(peer.uid).or_default() += 1;
            }
        }
        let zone = |z: &str| members.members.iter().filter(|m| m.zone == z).count();
        let (in_zone, other) = (in_zone as usize, other as usize);
        for one in &members.members {
            let expected = if in_zone == 0 && other == 0 {
                count - 1
            } else {
                let others: BTreeSet<_> = members.members.iter().map(|m| &m.zone).filter(|z| **z != one.zone).collect();
                in_zone.min(zone(&one.zone) - 1) + others.iter().map(|z| other.min(zone(z))).sum::<usize>()
            };
            let found = probed.get(&one.uid).copied().unwrap_or_default();
            if lists.rotation.members == 0 {
                prop_assert_eq!(found, expected);
            } else {
                prop_assert!(found <= expected);
            }
        }
    }
}

/// A full mesh beyond its limit is refused: no agent gets a list with all pods.
#[test]
fn a_refused_mesh_has_no_edges_and_keeps_its_webhook() {
    let spec = json!({"neighbours": {"inZone": 0, "perOtherZone": 0}});
    let lists = |count: usize| {
        let members = (0..count).map(member).collect();
        let all = super::members::Members { members, ..Default::default() };
        super::pinglists::Pinglists::of_members(&settings(&spec), &all, Duration::ZERO)
    };
    assert_eq!((lists(100).refused, lists(100).len()), (false, 100));
    assert_eq!((lists(101).refused, lists(101).len()), (true, 0));
    let prober = prober("np", "2026-01-01T00:00:00Z", &spec);
    let pods: Vec<_> =
        (0..101).map(|i| pod(&format!("p{i}"), Some("team/np"), &json!({}))).collect();
    let view = view_among(&prober, &Snapshot::default(), &pods, &setup(Some("operator")));
    let decided = plan(&prober, &observed(view)).unwrap();
    assert_eq!(
        (decided.conditions[0].status, decided.conditions[0].reason),
        (Some(false), "InvalidSpec")
    );
    let kinds: Vec<_> = decided.desired.apply.iter().map(|child| child.key.kind).collect();
    assert_eq!(kinds, [ChildKind::ConfigMap, ChildKind::Webhook], "certificates go on");
}

/// Each creation of a pod costs the API server a look at every webhook.
#[test]
fn s15_webhooks_have_a_limit_and_the_older_keep_theirs() {
    let mut all = Snapshot { synced: true, ..Snapshot::default() };
    let webhook = |decided: &crate::controller::Plan<_, _>| {
        let desired: &super::plan::Desired = &decided.desired;
        desired.apply.iter().any(|child| child.key.kind == ChildKind::Webhook)
    };
    for number in 0..=WEBHOOKS {
        let prober = prober(&format!("np-{number:03}"), "2026-01-01T00:00:00Z", &json!({}));
        let view = view_among(&prober, &all, &[], &setup(Some("operator")));
        all.views.insert(("team".into(), format!("np-{number:03}")), Arc::new(view));
    }
    let last = prober("np-100", "2026-01-01T00:00:00Z", &json!({}));
    let decide = |all: &Snapshot| {
        plan(&last, &observed(view_among(&last, all, &[], &setup(Some("operator"))))).unwrap()
    };
    let mut older = all.clone();
    older.views.remove(&("team".into(), "np-100".into()));
    let beyond = decide(&older);
    assert!(!webhook(&beyond), "one too many");
    let condition = &beyond.conditions[0];
    assert_eq!((condition.status, condition.reason), (Some(false), "InvalidSpec"));
    assert!(condition.message.contains("100 older NetworkProbers"), "{}", condition.message);
    // As soon as one of the older ones is gone, or runs on nodes.
    older.views.pop_first();
    let decided = decide(&older);
    assert!(webhook(&decided) && decided.conditions[0].reason != "InvalidSpec");
    let before = view_among(&last, &all, &[], &setup(Some("operator")));
    let after = view_among(&last, &older, &[], &setup(Some("operator")));
    assert!(!before.is_same(&after), "the last one has to hear of it");
}

/// All entries are in one object, and etcd refuses one that is too large.
#[test]
fn s15_entries_fit_into_one_object_and_one_that_is_too_large_takes_no_room() {
    let mut all = Snapshot { synced: true, ..Snapshot::default() };
    let webhook = |name: &str, all: &Snapshot| {
        let prober = prober(name, "2026-01-01T00:00:00Z", &json!({}));
        let decided =
            plan(&prober, &observed(view_among(&prober, all, &[], &setup(Some("operator")))));
        let decided = decided.unwrap();
        let applied = decided.desired.apply.iter();
        let written = applied.filter(|child| child.key.kind == ChildKind::Webhook).count();
        (written, decided.conditions[0].clone())
    };
    let add = |all: &mut Snapshot, name: &str, bytes: usize| {
        let prober = prober(name, "2026-01-01T00:00:00Z", &json!({}));
        let mut view = view_among(&prober, all, &[], &setup(Some("operator")));
        assert!(view.webhook_bytes > 4_000, "{}", view.webhook_bytes);
        view.webhook_bytes = bytes;
        all.views.insert(("team".into(), name.into()), Arc::new(view));
    };
    add(&mut all, "a-too-large", WEBHOOK_BYTES + 1);
    assert_eq!(webhook("np", &all).0, 1, "one that has none takes no room");
    add(&mut all, "b-large", WEBHOOK_BYTES - 1_000);
    let (written, condition) = webhook("np", &all);
    assert_eq!((written, condition.status, condition.reason), (0, Some(false), "InvalidSpec"));
    assert!(
        condition.message.contains("one MutatingWebhookConfiguration"),
        "{}",
        condition.message
    );
    // An existing entry is removed: the older ones need its room.
    let np = prober("np", "2026-01-01T00:00:00Z", &json!({}));
    let mut there = observed(view_among(&np, &all, &[], &setup(Some("operator"))));
    there.existing = vec![webhook_key()];
    assert_eq!(plan(&np, &there).unwrap().desired.delete, [webhook_key()]);
}

#[test]
fn s15_without_the_object_of_webhooks_everything_else_goes_on_and_the_status_says_so() {
    let prober = prober("np", "2026-01-01T00:00:00Z", &json!({}));
    let mut missing = observed(view(&json!({}), &[]));
    missing.configuration = false;
    let decided = plan(&prober, &missing).unwrap();
    let kinds: Vec<_> = decided.desired.apply.iter().map(|child| child.key.kind).collect();
    assert_eq!(kinds, [ChildKind::ConfigMap]);
    let condition = &decided.conditions[0];
    assert_eq!((condition.status, condition.reason), (Some(false), "WebhookMissing"));
    assert!(condition.message.contains("-f deploy/base/webhook.yaml"), "{}", condition.message);
    // On nodes nobody needs it.
    let spec = json!({"mode": "DaemonSet"});
    let nodes = super::tests::prober("np", "2026-01-01T00:00:00Z", &spec);
    missing.view = Some(Arc::new(view(&spec, &[])));
    assert_ne!(plan(&nodes, &missing).unwrap().conditions[0].reason, "WebhookMissing");
}

/// Its pods are not known: nothing of it changes, but it says why, and no pod gets an agent without
/// a list.
#[test]
fn s02_one_over_budget_says_so_and_injects_nothing() {
    let setup = setup(Some("operator"));
    let prober = prober("np", "2026-01-01T00:00:00Z", &json!({}));
    let over = Over::Pods(Payer::Namespace("team".into()));
    let look = |pods| {
        let reach = Reach::of(Settings::of(&prober, &setup.tenancy), &setup, &namespaces());
        let before = Snapshot::default();
        let nodes = Nodes { zone: &|_| String::new(), readiness: &|_| Some(Readiness::Ready) };
        let constraints = BTreeMap::new();
        let surroundings =
            Surroundings { before: &before, constraints: &constraints, nodes, now: Duration::ZERO };
        ProberState::of(&prober, reach, pods, None, &surroundings)
    };
    let (listed, refused) = (look(Pods::Listed(&[])), look(Pods::OverBudget(&over)));
    assert!(!listed.is_same(&refused));
    let mut world = observed(refused);
    world.existing = vec![webhook_key()];
    let decided = plan(&prober, &world).unwrap();
    assert_eq!(decided.desired, super::plan::Desired::default());
    let ready = &decided.conditions[0];
    assert_eq!((ready.type_, ready.status, ready.reason), ("Ready", Some(false), "OverBudget"));
    assert!(ready.message.contains("5000 pods"), "{}", ready.message);
    let asked = |view: ProberState| {
        let mut snapshot = Snapshot { synced: true, ..Snapshot::default() };
        snapshot.views.insert(("team".into(), "np".into()), Arc::new(view));
        let pod = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{}]}});
        decide(&snapshot, ("team", "np"), "team", &serde_json::from_value(pod).unwrap())
    };
    assert!(matches!(asked(listed), Decision::Inject(_)));
    let refused = look(Pods::OverBudget(&over));
    assert_eq!(asked(refused), Decision::Skip(SkipReason::OverBudget));
}

/// The file of many pods is not written at each of their changes.
#[test]
fn a_large_file_is_written_less_often() {
    let spec = json!({"agentImage": "x"});
    let prober = prober("np", "2026-01-01T00:00:00Z", &spec);
    let pods: Vec<_> =
        (0..500).map(|i| pod(&format!("p{i}"), Some("team/np"), &json!({}))).collect();
    let view = Arc::new(view_among(&prober, &Snapshot::default(), &pods, &setup(None)));
    let key =
        ChildKey { kind: ChildKind::ConfigMap, namespace: Some("team".into()), name: "np".into() };
    let maps = |seconds: Option<u64>| {
        let mut world = observed(view_among(&prober, &Snapshot::default(), &[], &setup(None)));
        world.view = Some(Arc::clone(&view));
        let ago = seconds.map(std::time::Duration::from_secs);
        world.written = ago.into_iter().map(|ago| (key.clone(), ago)).collect();
        let decided = plan(&prober, &world).unwrap();
        let written = decided.desired.apply.iter().any(|child| child.key == key);
        (written, decided.period)
    };
    assert!(maps(None).0, "the first at once");
    let (written, again) = maps(Some(0));
    assert!(!written && again.as_secs() < 10, "looked at again soon: {again:?}");
    assert!(maps(Some(30)).0);
}

/// A pod that is alone in its zone cannot probe a hundred others at a time: the condition reports
/// this, and the duration.
#[test]
fn n01_what_takes_turns_is_said() {
    let text = |spec: &Value, all: Range<usize>| {
        let prober = prober("np", "2026-01-01T00:00:00Z", spec);
        let pods: Vec<_> = all
            .map(|i| {
                let mut pod = pod(&format!("p{i}"), Some("team/np"), &json!({}));
                pod["spec"]["nodeName"] = json!(if i == 0 { "alone" } else { "shared" });
                pod
            })
            .collect();
        let view = view_among(&prober, &Snapshot::default(), &pods, &setup(Some("operator")));
        let decided = plan(&prober, &observed(view)).unwrap();
        let ready = decided.conditions.iter().find(|condition| condition.type_ == "Ready");
        let ready = ready.unwrap();
        assert_eq!(ready.status, Some(true));
        ready.message.clone()
    };
    let turns = "; 1 lists would have up to 100 peers by zones and spec.neighbours: their agents \
                 probe 17 at a time (2000 series each), in turns of 15m, all within 2h";
    let all = json!({"probes": ["HTTP", "TCP", "UDP"]});
    let said = text(&all, 0..101);
    assert!(said.ends_with(turns), "{said}");
    for (spec, all) in [(all, 0..18), (json!({}), 1..101)] {
        let said = text(&spec, all);
        assert!(said.ends_with("and agents their peers"), "{said}");
    }
}

/// Agents that were not restarted continue: those that ask need `ca.crt`, those that read need
/// `config.json`, whatever the current spec.
#[test]
fn n05_a_changed_delivery_stops_nobody() {
    let with_env = |name: &str, env: Value| {
        let change = json!({"spec": {"initContainers": [{
            "name": "net-prober", "image": "x", "restartPolicy": "Always", "env": env,
            "ports": [{"name": "np-ping", "containerPort": 8080}]}]}});
        pod(name, Some("team/np"), &change)
    };
    let says = |how: &str| json!([{"name": "NET_PROBER_DELIVERY", "value": how}]);
    let (asks, reads) = (with_env("asks", says("Pull")), with_env("reads", says("ConfigMap")));
    let original = with_env("original", Value::Null);
    let keys = |spec: &Value, pods: &[Value]| {
        let prober = prober("np", "2026-01-01T00:00:00Z", spec);
        let decided = plan(&prober, &observed(view(spec, pods))).unwrap().desired;
        let map = decided.apply.iter().find(|child| child.key.kind == ChildKind::ConfigMap);
        let map = map.expect("a ConfigMap").object.clone();
        (map["data"].get("ca.crt").is_some(), map["binaryData"].get("config.json").is_some())
    };
    let (pull, file) = (json!({"delivery": "Pull"}), json!({"delivery": "ConfigMap"}));
    // From the file to asking, and back; the original's image taken out of the spec.
    assert_eq!(keys(&pull, &[asks.clone(), reads]), (true, true));
    assert_eq!(keys(&pull, &[original]), (true, true));
    assert_eq!(keys(&file, std::slice::from_ref(&asks)), (true, true));
    // Once the last of them was restarted, its file goes.
    assert_eq!(keys(&pull, &[asks]), (true, false));
    assert_eq!(keys(&pull, &[]), (true, false));
}
