//! The pure core, from a spec and pods to the outputs and writes.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    children::{ChildKey, ChildKind},
    injector::decide,
    members::Nodes,
    observe::Observed,
    places::Places,
    plan::plan,
    scope::NamespaceFacts,
    settings::{Settings, Tenancy},
    snapshot::{Pods, ProberState, Reach, Setup, Snapshot, Surroundings},
};
use crate::{
    api::NetworkProber,
    controller::Error,
    nodes::Readiness,
    pods::PodObject,
    webhook::{configuration::Endpoint, injection::SkipReason, review::Decision},
};

mod limits;
mod membership;
mod pinglists;
mod planning;

pub(super) fn prober(name: &str, created: &str, spec: &Value) -> NetworkProber {
    let mut full = json!({"podSelector": {"matchLabels": {"app": "a"}}});
    full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
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
        runbooks: None,
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
    let mut places = Places::new(&setup.tenancy);
    for view in before.views.values() {
        view.take_place(&mut places);
    }
    let surroundings = Surroundings {
        before,
        places: &places,
        constraints: &BTreeMap::new(),
        nodes: Nodes {
            zone: &|node| format!("zone-of-{node}"),
            readiness: &|_| Some(Readiness::Ready),
            ends: &|_| false,
        },
        entry_written: None,
        now: Duration::ZERO,
    };
    let reach = Reach::of(Settings::of(prober, &setup.tenancy), setup, &namespaces());
    ProberState::of(prober, reach, Pods::Listed(&pods), None, &surroundings)
}

/// What follows at a time, with an entry that was written at another, after the previous result.
fn next(
    prober: &NetworkProber,
    pods: &[Value],
    last: Option<&ProberState>,
    (entry_written, now): (Option<i64>, u64),
) -> ProberState {
    let setup = setup(Some("operator"));
    let read = |pod: &Value| Arc::new(serde_json::from_value::<PodObject>(pod.clone()).unwrap());
    let pods: Vec<_> = pods.iter().map(read).collect();
    let surroundings = Surroundings {
        before: &Snapshot::default(),
        places: &Places::new(&setup.tenancy),
        constraints: &BTreeMap::new(),
        nodes: Nodes {
            zone: &|_| String::new(),
            readiness: &|_| Some(Readiness::Ready),
            ends: &|_| false,
        },
        entry_written,
        now: Duration::from_secs(now),
    };
    let reach = Reach::of(Settings::of(prober, &setup.tenancy), &setup, &namespaces());
    ProberState::of(prober, reach, Pods::Listed(&pods), last, &surroundings)
}

/// A claim that new pods get an agent has a witness: a pod that was created since it should.
#[test]
fn pods_that_the_webhook_should_have_seen_and_has_not_are_counted() {
    let np = |generation: i64| {
        let mut np = prober("np", "1970-01-01T00:00:00Z", &json!({}));
        np.metadata.generation = Some(generation);
        np
    };
    let at = |second: u64| json!({"metadata": {"creationTimestamp": format!("1970-01-01T00:{:02}:{:02}Z", second / 60, second % 60)}});
    let bare = |name: &str, second| pod(name, None, &at(second));
    let seen = |name: &str, second| pod(name, Some("team/np"), &at(second));
    let counts = |view: &ProberState| {
        ["CreatedBefore", "NotCalled"]
            .map(|reason| view.members.not_injected.get(reason).copied().unwrap_or(0))
    };
    let old = [bare("old", 50)];
    let first = next(&np(1), &old, None, (Some(100), 101));
    assert_eq!(counts(&first), [1, 0]);
    // Each replica of the API server has its time to learn of the entry.
    let soon = [&old[..], &[bare("soon", 103)]].concat();
    let view = next(&np(1), &soon, Some(&first), (Some(100), 112));
    assert_eq!(counts(&view), [2, 0]);
    let late = [&soon[..], &[bare("late", 115)]].concat();
    let view = next(&np(1), &late, Some(&view), (Some(100), 120));
    assert_eq!(counts(&view), [2, 1]);
    // Neither a new spec nor another entry is a sign that it is called.
    let view = next(&np(2), &late, Some(&view), (Some(118), 121));
    assert_eq!(counts(&view), [2, 1]);
    // A younger pod was seen: the older ones only need a restart.
    let called = [&late[..], &[seen("called", 125)]].concat();
    let view = next(&np(2), &called, Some(&view), (Some(118), 126));
    assert_eq!(counts(&view), [3, 0]);
    // And if it is not called any more:
    let again = [&called[..], &[bare("again", 150)]].concat();
    let view = next(&np(2), &again, Some(&view), (Some(118), 151));
    assert_eq!(counts(&view), [3, 1]);
    // Another process knows what the status says, and nothing without it.
    assert_eq!(counts(&next(&np(2), &late, None, (Some(100), 200))), [3, 0]);
    let mut known = np(2);
    known.status = serde_json::from_value(json!({"conditions": [{
        "type": "Ready", "status": "False", "reason": "NotCalled", "message": "",
        "lastTransitionTime": "1970-01-01T00:00:00Z"}]}))
    .unwrap();
    assert_eq!(counts(&next(&known, &late, None, (Some(100), 200))), [2, 1]);
    // Where the entry is not known, nothing is claimed.
    assert_eq!(counts(&next(&known, &late, None, (None, 200))), [3, 0]);
}

/// They look like pods that the webhook has not seen.
#[test]
fn pods_that_were_skipped_while_the_spec_was_another_are_not_counted() {
    let np = prober("np", "1970-01-01T00:00:00Z", &json!({}));
    let changed = |generation: i64, spec: &Value| {
        let mut np = prober("np", "1970-01-01T00:00:00Z", spec);
        np.metadata.generation = Some(generation);
        np
    };
    let port = json!({"metadata": {"creationTimestamp": "1970-01-01T00:02:00Z"}, "spec": {"containers": [
        {"name": "app", "image": "app", "ports": [{"containerPort": 22080}]}]}});
    let pods = [pod("p", None, &port)];
    let first = next(&np, &[], None, (Some(10), 20));
    let taken = next(&np, &pods, Some(&first), (Some(10), 130));
    assert_eq!(taken.members.not_injected, [("PortTaken", 1)].into());
    let other = changed(2, &json!({"httpPort": "9999"}));
    let free = next(&other, &pods, Some(&taken), (Some(10), 140));
    assert_eq!(free.members.not_injected, [("CreatedBefore", 1)].into());
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
        failed_creates: BTreeMap::new(),
        traced: vec![],
        monitoring: BTreeSet::new(),
        existing: vec![],
        unchanged: BTreeMap::new(),
        contests: BTreeMap::new(),
        written: BTreeMap::new(),
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

/// Its webhook stays until the controller removes it.
#[test]
fn a_prober_that_is_being_deleted_delays_no_pod() {
    let key = ("team".to_owned(), "np".to_owned());
    let mut snapshot = Snapshot { synced: true, ..Snapshot::default() };
    let pod = serde_json::from_value(json!({"spec": {"containers": [{}]}})).unwrap();
    let asked = |snapshot: &Snapshot| decide(snapshot, ("team", "np"), "team", &pod);
    assert!(matches!(asked(&snapshot), Decision::NotYet(_)), "its event may be on its way");
    snapshot.ending.insert(key);
    assert!(matches!(asked(&snapshot), Decision::Unknown(_)));
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
    // The report from before a restart stays: it was true, and nothing contradicts it.
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
