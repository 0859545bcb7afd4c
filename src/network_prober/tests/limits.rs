//! Limits of the cluster, and the conditions that report them.
use super::*;
use crate::network_prober::{
    conflict::{WEBHOOK_BYTES, WEBHOOKS},
    plan::Desired,
    watches::budget::{Over, Payer},
};

/// At each creation of a pod, the API server evaluates every webhook.
#[test]
fn s15_webhooks_have_a_limit_and_the_older_keep_theirs() {
    let mut all = Snapshot { synced: true, ..Snapshot::default() };
    let webhook = |decided: &crate::controller::Plan<_, _>| {
        let desired: &Desired = &decided.desired;
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
    assert!(!before.is_same(&after), "the last one must be notified");
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
    assert_eq!(webhook("np", &all).0, 1, "one without a webhook takes no room");
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
    // Agents on nodes do not need it.
    let spec = json!({"mode": "DaemonSet"});
    let nodes = super::prober("np", "2026-01-01T00:00:00Z", &spec);
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
    assert_eq!(decided.desired, Desired::default());
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
