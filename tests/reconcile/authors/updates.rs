//! Only a field that changes is checked.
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Author, WATCH, kinds, refused, rule};
use crate::{bench::run, traffic_watch::judging::deployment};

const FLUX: &str = "system:serviceaccount:flux:flux";

/// Every field that needs a right of its own.
fn everything() -> Value {
    json!({
        "label": "platform", "taint": "PreferNoSchedule", "maxUnfit": "100%", "minFit": 0,
        "query": "sum by (node) (load)", "window": null, "prometheus": "thanos",
        "criteria": [{"name": "loss", "query": "loss", "max": 1}], "deployment": deployment(),
    })
}

#[test]
fn a_gitops_account_re_applies_what_an_administrator_made_and_changes_none_of_it() {
    run(async |bench| {
        let root = Author::administrator(&bench, "root-gitops").await;
        let create = rule("apps", "deployments", &["create"]);
        let flux = Author::with_rules(&bench, FLUX, &[kinds(), create.clone()]).await;
        flux.until_granted(&bench, &create).await;
        let first = refused(flux.apply(WATCH, "web", everything()).await, &["patch nodes"]);
        assert!(first.contains(&format!("--user='{FLUX}'")), "{first}");
        root.apply(WATCH, "web", everything()).await.expect("an administrator");
        flux.apply(WATCH, "web", everything()).await.expect("the same once more");
        let metadata = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}});
        flux.patch(WATCH, "web", metadata).await.expect("metadata");
        for (spec, text) in [
            (json!({"taint": "NoSchedule"}), "spec.taint: "),
            (json!({"maxUnfit": "99%", "taint": null}), "spec.maxUnfit: 99%"),
            (json!({"query": "other", "taint": null}), "spec.query: "),
            (json!({"prometheus": "default", "taint": null}), "spec.query: "),
        ] {
            refused(flux.change("web", spec).await, &[text]);
        }
        let mut whole = everything();
        whole["taint"] = "NoSchedule".into();
        refused(flux.apply(WATCH, "web", whole).await, &["spec.taint: ", "patch nodes"]);
        // A change that the account may make itself.
        let replicas = json!({"deployment": {"replicas": 3}});
        flux.change("web", replicas).await.expect("its own right");
        flux.change("web", json!({"taint": null})).await.expect("less");
        refused(flux.change("web", json!({"taint": "PreferNoSchedule"})).await, &["spec.taint: "]);
        flux.delete(WATCH, "web").await.expect("deletion asks for nothing else");
    });
}

#[test]
fn finalizers_and_status_pass_from_any_author() {
    run(async |bench| {
        let root = Author::administrator(&bench, "root-finalizers").await;
        let clerk = Author::with_rules(&bench, "clerk-finalizers", &[kinds()]).await;
        root.create(WATCH, "web", everything()).await.expect("web");
        // The operator's own account may neither query nor taint through an object.
        let operator = Author { client: bench.as_operator().await, user: "operator".into() };
        let finalizers = |of: Value| json!({"metadata": {"finalizers": of}});
        let ours = finalizers(json!(["traffic.example.com/node-labels"]));
        operator.patch(WATCH, "web", ours).await.expect("its finalizer");
        let status = Patch::Merge(json!({"status": {"ready": true}}));
        let api = operator.api(WATCH);
        api.patch_status("web", &PatchParams::default(), &status).await.expect("the status");
        // The finalizer is also removed while the object is being deleted.
        clerk.delete(WATCH, "web").await.expect("delete");
        let there = clerk.api(WATCH).get("web").await.expect("waits for the finalizer");
        assert!(there.metadata.deletion_timestamp.is_some());
        operator.patch(WATCH, "web", finalizers(Value::Null)).await.expect("its finalizer");
        assert!(clerk.api(WATCH).get_opt("web").await.expect("get").is_none());
        // Users who may edit the kind may remove an object's finalizer.
        root.create(WATCH, "web", everything()).await.expect("web");
        clerk.patch(WATCH, "web", finalizers(json!(["example.com/a"]))).await.expect("add");
        clerk.patch(WATCH, "web", finalizers(Value::Null)).await.expect("remove");
    });
}

/// The API server limits the cost of an expression.
#[test]
fn the_largest_object_is_judged_within_the_limits_of_cost() {
    run(async |bench| {
        let root = Author::administrator(&bench, "root-cost").await;
        let jane = Author::tenant(&bench, "jane-cost").await;
        // Equal up to the end, so that a comparison has to read all of it.
        let query = |i: usize| format!("{}{i:04}", "x".repeat(16_380));
        let criteria: Vec<_> = (0..10)
            .map(|i| json!({"name": format!("c-{i}"), "query": query(i), "max": 1}))
            .collect();
        let mut template = deployment();
        let annotations: serde_json::Map<_, _> =
            (0..200).map(|i| (format!("a-{i}"), Value::from("y".repeat(1000)))).collect();
        template["template"]["metadata"]["annotations"] = annotations.into();
        let mut spec = everything();
        json_patch::merge(
            &mut spec,
            &json!({"query": query(10), "criteria": criteria, "deployment": template,
                "label": format!("{}.team-a", "l".repeat(60))}),
        );
        root.create(WATCH, "large", spec.clone()).await.expect("large");
        jane.change("large", json!({"interval": "7s"})).await.expect("nothing that is asked about");
        jane.apply(WATCH, "large", spec.clone()).await.expect("the same");
        refused(jane.change("large", json!({"query": query(11)})).await, &["spec.query: "]);
        refused(jane.create(WATCH, "other", spec).await, &["patch nodes"]);
    });
}
