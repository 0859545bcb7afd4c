//! Limits of the cluster, and the conditions that report them.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::*;
use crate::{
    api::NetworkProberStatus,
    network_prober::{
        places::{Full, Group, OF_ALL, OF_AUTHORS, OF_NAMESPACE},
        plan::Desired,
        watches::{Over, Payer},
    },
};

fn writes_webhook(decided: &crate::controller::Plan<Desired, NetworkProberStatus>) -> bool {
    decided.desired.apply.iter().any(|child| child.key.kind == ChildKind::Webhook)
}

fn prober_in(namespace: &str, name: &str) -> NetworkProber {
    let mut prober = prober(name, "2026-01-01T00:00:00Z", &json!({}));
    prober.metadata.namespace = Some(namespace.into());
    if namespace == "ops" {
        prober.spec.namespace_selector = Some(LabelSelector::default());
    }
    prober
}

/// Views one after the other, in the order of their names; all are equally old.
fn look(all: &Snapshot, namespace: &str, name: &str) -> ProberState {
    view_among(&prober_in(namespace, name), all, &[], &setup(Some("operator")))
}

fn add(all: &mut Snapshot, namespace: &str, name: &str, bytes: Option<usize>) -> Option<Full> {
    let mut view = look(all, namespace, name);
    assert!(view.webhook_bytes > 4_000, "{}", view.webhook_bytes);
    view.webhook_bytes = bytes.unwrap_or(view.webhook_bytes);
    let full = view.full.clone();
    all.views.insert((namespace.into(), name.into()), Arc::new(view));
    full
}

/// The state of one whose nodes are ready, beside others and with their places.
fn seen(
    prober: &NetworkProber,
    reach: Reach,
    pods: Pods<'_>,
    places: &Places,
    before: &Snapshot,
) -> ProberState {
    let nodes = Nodes {
        zone: &|_| String::new(),
        readiness: &|_| Some(Readiness::Ready),
        ends: &|_| false,
    };
    let (constraints, now) = (BTreeMap::new(), Duration::ZERO);
    let constraints = &constraints;
    let surroundings =
        Surroundings { before, places, constraints, nodes, entry_written: None, now };
    ProberState::of(prober, reach, pods, None, &surroundings)
}

/// At each creation of a pod, the API server evaluates every webhook.
#[test]
fn webhooks_have_a_limit_and_the_older_keep_theirs() {
    let mut all = Snapshot { synced: true, ..Snapshot::default() };
    let most = OF_NAMESPACE.webhooks;
    for number in 0..=most {
        let full = add(&mut all, "team", &format!("np-{number:03}"), None);
        assert_eq!(full.is_some(), number == most);
    }
    let last = prober_in("team", "np-025");
    let decide = |all: &Snapshot| plan(&last, &observed(look(all, "team", "np-025"))).unwrap();
    let mut older = all.clone();
    older.views.remove(&("team".into(), "np-025".into()));
    let beyond = decide(&older);
    assert!(!writes_webhook(&beyond), "one too many");
    let condition = &beyond.conditions[0];
    assert_eq!((condition.status, condition.reason), (Some(false), "InvalidSpec"));
    let text = &condition.message;
    assert!(text.contains("of the namespace team may have 25 webhooks"), "{text}");
    // As soon as one of the older ones is gone, or runs on nodes.
    older.views.pop_first();
    let decided = decide(&older);
    assert!(writes_webhook(&decided) && decided.conditions[0].reason != "InvalidSpec");
    let (before, after) = (look(&all, "team", "np-025"), look(&older, "team", "np-025"));
    assert!(!before.is_same(&after), "the last one must be notified");
}

/// Adds one to a namespace, with a size; returns why it has no webhook.
type Add<'a> = dyn FnMut(&str, &str, Option<usize>) -> Option<Full> + 'a;

/// Administrators come last here, and still have some.
#[test]
fn one_namespace_never_takes_all_webhooks() {
    let names = ["a0", "a1", "a2", "a3", "b", "ops"];
    let facts: Vec<_> =
        names.map(|name| NamespaceFacts { name: name.into(), ..NamespaceFacts::default() }).into();
    let setup = setup(Some("operator"));
    let (mut places, mut all) = (Places::new(&setup.tenancy), Snapshot::default());
    let mut add = |namespace: &str, name: &str, bytes: Option<usize>| {
        let prober = prober_in(namespace, name);
        let reach = Reach::of(Settings::of(&prober, &setup.tenancy), &setup, &facts);
        let mut view = seen(&prober, reach, Pods::Listed(&[]), &places, &all);
        view.webhook_bytes = bytes.unwrap_or(view.webhook_bytes);
        let full = places.full(namespace, view.webhook_bytes);
        view.take_place(&mut places);
        all.views.insert((namespace.into(), name.into()), Arc::new(view));
        full
    };
    let many = |add: &mut Add<'_>, namespace: &str| {
        let tried = (0..OF_ALL.webhooks).map(|n| add(namespace, &format!("np-{n:03}"), None));
        let tried: Vec<_> = tried.collect();
        (tried.iter().filter(|full| full.is_none()).count(), tried.last().cloned().flatten())
    };
    for namespace in ["a0", "a1", "a2"] {
        let group = Group::Namespace(namespace.into());
        assert_eq!(many(&mut add, namespace), (OF_NAMESPACE.webhooks, Some(Full::Webhooks(group))));
    }
    assert_eq!(many(&mut add, "a3"), (5, Some(Full::Webhooks(Group::Authors))));
    assert_eq!(add("b", "np", None), Some(Full::Webhooks(Group::Authors)));
    let rest = OF_ALL.webhooks - OF_AUTHORS.webhooks;
    assert_eq!(many(&mut add, "ops"), (rest, Some(Full::Webhooks(Group::All))));
}

/// All entries are in one object, and etcd refuses one that is too large.
#[test]
fn entries_fit_into_one_object_and_one_that_is_too_large_takes_no_room() {
    let mut all = Snapshot { synced: true, ..Snapshot::default() };
    let webhook = |name: &str, all: &Snapshot| {
        let decided = plan(&prober_in("team", name), &observed(look(all, "team", name))).unwrap();
        (writes_webhook(&decided), decided.conditions[0].clone())
    };
    add(&mut all, "team", "a-too-large", Some(OF_NAMESPACE.bytes + 1));
    assert!(webhook("np", &all).0, "one without a webhook takes no room");
    add(&mut all, "team", "b-large", Some(OF_NAMESPACE.bytes - 1_000));
    let (written, condition) = webhook("np", &all);
    assert_eq!((written, condition.status, condition.reason), (false, Some(false), "InvalidSpec"));
    let text = &condition.message;
    assert!(
        text.contains("may take 250000 bytes in the one MutatingWebhookConfiguration"),
        "{text}"
    );
    // The others have theirs, and the administrators.
    let (shop, ops) = (look(&all, "shop", "np"), look(&all, "ops", "np"));
    assert_eq!((shop.full, ops.full), (None, None));
    // An existing entry is removed: the older ones need its room.
    let mut there = observed(look(&all, "team", "np"));
    there.existing = vec![webhook_key()];
    assert_eq!(plan(&prober_in("team", "np"), &there).unwrap().desired.delete, [webhook_key()]);
}

#[test]
fn without_the_object_of_webhooks_everything_else_goes_on_and_the_status_reports_it() {
    let prober = prober("np", "2026-01-01T00:00:00Z", &json!({}));
    let mut missing = observed(view(&json!({}), &[]));
    missing.configuration = false;
    let decided = plan(&prober, &missing).unwrap();
    let kinds: Vec<_> = decided.desired.apply.iter().map(|child| child.key.kind).collect();
    assert_eq!(kinds, [ChildKind::ConfigMap]);
    let condition = &decided.conditions[0];
    assert_eq!((condition.status, condition.reason), (Some(false), "WebhookMissing"));
    assert!(condition.message.contains("-f deploy/base/webhook.yaml"), "{}", condition.message);
    // Agents on nodes do not need it.
    let spec = json!({"mode": "DaemonSet"});
    let nodes = super::prober("np", "2026-01-01T00:00:00Z", &spec);
    missing.view = Some(Arc::new(view(&spec, &[])));
    assert_ne!(plan(&nodes, &missing).unwrap().conditions[0].reason, "WebhookMissing");
}

/// Its pods are not known: nothing of it changes, but it says why, and no pod gets an agent without
/// a list.
#[test]
fn one_over_budget_reports_it_and_injects_nothing() {
    let setup = setup(Some("operator"));
    let prober = prober("np", "2026-01-01T00:00:00Z", &json!({}));
    let over = Over::Pods(Payer::Namespace("team".into()));
    let look = |pods| {
        let reach = Reach::of(Settings::of(&prober, &setup.tenancy), &setup, &namespaces());
        seen(&prober, reach, pods, &Places::new(&setup.tenancy), &Snapshot::default())
    };
    let (listed, refused) = (look(Pods::Listed(&[])), look(Pods::OverBudget(&over)));
    assert!(!listed.is_same(&refused));
    let mut world = observed(refused);
    world.existing = vec![webhook_key()];
    let decided = plan(&prober, &world).unwrap();
    assert_eq!(decided.desired.delete, []);
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

/// With failurePolicy Fail, the API server would refuse the pods if it did not trust the webhook.
#[test]
fn a_prober_over_budget_follows_the_ca() {
    let prober = prober_in("team", "np");
    let mut view = look(&Snapshot::default(), "team", "np");
    view.over = Some(Over::Pods(Payer::Namespace("team".into())));
    let mut world = observed(view);
    let writes = |world: &Observed| plan(&prober, world).unwrap().desired;
    assert_eq!(writes(&world), Desired::default(), "it gets none if it has none");
    world.existing = vec![webhook_key()];
    let applied = writes(&world).apply;
    assert_eq!(applied.iter().map(|child| &child.key).collect::<Vec<_>>(), [&webhook_key()]);
    world.unchanged = applied.iter().map(|child| (child.key.clone(), child.hash)).collect();
    assert_eq!(writes(&world), Desired::default());
    world.bundle = Some("NEW PEM".into());
    assert!(writes_webhook(&plan(&prober, &world).unwrap()));
    // What is not known is not written.
    world.bundle = None;
    assert_eq!(writes(&world), Desired::default());
}

/// Otherwise nobody would inject into its pods.
#[test]
fn one_that_can_inject_nothing_leaves_its_pods_to_the_next() {
    let pod = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{}]}});
    let pod = serde_json::from_value::<PodObject>(pod).unwrap();
    // Both are equally old: the names decide.
    let asked = |change: &dyn Fn(&mut ProberState)| {
        let mut all = Snapshot { synced: true, ..Snapshot::default() };
        let mut older = look(&all, "team", "a");
        change(&mut older);
        all.views.insert(("team".into(), "a".into()), Arc::new(older));
        let younger = look(&all, "team", "b");
        all.views.insert(("team".into(), "b".into()), Arc::new(younger));
        decide(&all, ("team", "b"), "team", &pod)
    };
    assert_eq!(asked(&|_| {}), Decision::Skip(SkipReason::OtherProber));
    let over = Over::Pods(Payer::Namespace("team".into()));
    let changes: [&dyn Fn(&mut ProberState); 3] = [
        &|older| older.over = Some(over.clone()),
        &|older| older.full = Some(Full::Webhooks(Group::All)),
        &|older| older.recipe = None,
    ];
    for change in changes {
        let decision = asked(change);
        assert!(matches!(decision, Decision::Inject(_)), "{decision:?}");
    }
}

/// Its webhook would not follow the CA, and with failurePolicy Fail refuse pods.
#[test]
fn one_that_becomes_invalid_loses_its_webhook_and_nothing_else() {
    let spec = json!({"injection": {
        "failurePolicy": "Fail", "resources": {"requests": {"memory": "128Mi"}},
    }});
    let invalid = prober("np", "2026-01-01T00:00:00Z", &spec);
    let map =
        ChildKey { kind: ChildKind::ConfigMap, namespace: Some("team".into()), name: "np".into() };
    let valid = prober_in("team", "np");
    let imageless = view_among(&valid, &Snapshot::default(), &[], &setup(None));
    for (prober, view, path) in [
        (&invalid, view(&spec, &[]), "spec.injection.resources."),
        (&valid, imageless, "spec.agentImage"),
    ] {
        let mut world = observed(view);
        world.existing = vec![map.clone(), webhook_key()];
        let decided = plan(prober, &world).unwrap();
        assert_eq!((decided.desired.apply, decided.desired.delete), (vec![], vec![webhook_key()]));
        let ready = &decided.conditions[0];
        assert_eq!(
            (ready.type_, ready.status, ready.reason),
            ("Ready", Some(false), "InvalidSpec")
        );
        assert!(ready.message.contains(path), "{}", ready.message);
        // From then on, it is an error like any other.
        world.existing = vec![map.clone()];
        assert!(matches!(plan(prober, &world), Err(Error::Invalid(_))), "{path}");
    }
}
