//! Taints, and marks on more than half of the nodes: only for authors who may patch nodes.
use serde_json::json;

use super::{Author, WATCH, refused};
use crate::bench::run;

#[test]
fn a_tenant_neither_taints_nor_marks_more_than_half_of_the_nodes() {
    run(async |bench| {
        let jane = Author::tenant(&bench, "jane-limits").await;
        let many = "may be more than half of the nodes";
        for (spec, text) in [
            (json!({"taint": "NoSchedule"}), "spec.taint: keeps everybody's pods off nodes"),
            (json!({"taint": "PreferNoSchedule"}), "spec.taint: keeps everybody's pods off nodes"),
            (json!({"maxUnfit": "51%"}), "spec.maxUnfit: 51% may be more than half"),
            (json!({"maxUnfit": "100%", "minFit": "50%"}), many),
            // 2 of 3 nodes, for example; their number is not known at admission.
            (json!({"maxUnfit": 2}), "spec.maxUnfit: 2 may be more than half"),
            (json!({"maxUnfit": 2, "minFit": 5}), many),
            (json!({"maxUnfit": 2, "minFit": "49%"}), many),
            (json!({"minFit": 0}), "spec.minFit: 0 may leave no node fit"),
            (json!({"minFit": "0%"}), "spec.minFit: 0 may leave no node fit"),
        ] {
            let right = "user 'jane-limits' has no right to patch nodes; grant it with: \
                kubectl create clusterrolebinding 'patch-nodes:jane-limits' \
                --clusterrole=traffic-operator-patch-nodes --user='jane-limits'";
            let answer = jane.try_create(WATCH, spec.clone()).await;
            refused(answer, &[text, right]);
            // Observe writes nothing.
            let mut observe = spec;
            observe["mode"] = "Observe".into();
            jane.try_create(WATCH, observe).await.expect("Observe");
        }
        for spec in [
            json!({}),
            json!({"maxUnfit": "50%"}),
            json!({"maxUnfit": "0%"}),
            json!({"maxUnfit": 0}),
            // With 50 % one node may be marked as well, even in the smallest cluster.
            json!({"maxUnfit": 1}),
            json!({"maxUnfit": 7, "minFit": "50%"}),
            json!({"maxUnfit": 7, "minFit": "100%"}),
            json!({"minFit": 1}),
            json!({"minFit": "1%"}),
            // The choice of the judged nodes affects nobody else: labels alone keep away only pods
            // that ask for it.
            json!({"nodeSelector": {"matchLabels": {"pool": "a"}}}),
            json!({"nodeSelector": {}}),
            json!({"maxBandwidthPercent": "0.0001", "consecutive": {"unfit": 1}}),
        ] {
            jane.try_create(WATCH, spec.clone()).await.unwrap_or_else(|e| panic!("{spec}: {e}"));
        }
        let root = Author::administrator(&bench, "root-limits").await;
        let all = json!({"taint": "NoSchedule", "maxUnfit": "100%", "minFit": 0});
        root.try_create(WATCH, all).await.expect("an administrator");
    });
}

#[test]
fn a_tenant_asks_prometheus_every_five_seconds_at_most() {
    run(async |bench| {
        let jane = Author::tenant(&bench, "jane-often").await;
        let root = Author::administrator(&bench, "root-often").await;
        for (interval, allowed) in [("1s", false), ("4.999s", false), ("5s", true), ("1h", true)] {
            for mode in ["Enforce", "Observe"] {
                let spec = json!({"interval": interval, "mode": mode});
                root.try_create(WATCH, spec.clone()).await.expect("an administrator");
                let answer = jane.try_create(WATCH, spec).await;
                if allowed {
                    answer.unwrap_or_else(|e| panic!("{interval}: {e}"));
                } else {
                    let text = format!("spec.interval: {interval} asks Prometheus about all nodes");
                    refused(answer, &[&text, "user 'jane-often' has no right to patch nodes"]);
                }
            }
        }
        // The default, and what an administrator has set.
        jane.try_create(WATCH, json!({"interval": null})).await.expect("the default");
        root.create(WATCH, "often", json!({"interval": "1s"})).await.expect("an administrator");
        jane.change("often", json!({"maxBandwidthPercent": "70"})).await.expect("no change of it");
        refused(jane.change("often", json!({"interval": "2s"})).await, &["spec.interval: 2s asks"]);
    });
}

#[test]
fn from_observe_to_enforce_is_a_change_of_all_that_is_written_then() {
    run(async |bench| {
        let jane = Author::tenant(&bench, "jane-observe").await;
        for (name, field, value) in [
            ("taint", "spec.taint", json!({"taint": "NoSchedule"})),
            ("most", "spec.maxUnfit", json!({"maxUnfit": "60%"})),
            ("number", "spec.maxUnfit", json!({"maxUnfit": 3, "minFit": 1})),
            ("none", "spec.minFit", json!({"minFit": 0})),
        ] {
            let mut spec = value;
            spec["mode"] = "Observe".into();
            jane.create(WATCH, name, spec).await.expect("Observe");
            refused(jane.change(name, json!({"mode": "Enforce"})).await, &[field, "patch nodes"]);
            refused(jane.change(name, json!({"mode": null})).await, &[field, "patch nodes"]);
            let harmless =
                json!({"mode": "Enforce", "taint": null, "maxUnfit": null, "minFit": null});
            jane.change(name, harmless).await.expect("without it");
            jane.delete(WATCH, name).await.expect("delete");
        }
    });
}

/// A user who may not taint nodes cannot choose which nodes an administrator's object taints
/// either.
#[test]
fn what_decides_which_nodes_are_tainted_is_the_administrators() {
    run(async |bench| {
        let root = Author::administrator(&bench, "root-taint").await;
        let jane = Author::tenant(&bench, "jane-taint").await;
        root.create(WATCH, "web", json!({"taint": "NoSchedule", "maxUnfit": "20%"}))
            .await
            .expect("web");
        for (field, spec) in [
            ("maxBandwidthPercent", json!({"maxBandwidthPercent": "0.0001"})),
            ("nodeSelector", json!({"nodeSelector": {"matchLabels": {"pool": "others"}}})),
            ("consecutive", json!({"consecutive": {"unfit": 1}})),
            ("onUnknown", json!({"onUnknown": {"after": "0s", "action": "Unfit"}})),
            ("maxUnfit", json!({"maxUnfit": "50%"})),
            ("taint", json!({"taint": "PreferNoSchedule"})),
        ] {
            refused(jane.change("web", spec).await, &[&format!("spec.{field}: "), "patch nodes"]);
        }
        // Fields that affect only the tenant's own objects.
        for spec in [
            json!({"interval": "5s"}),
            json!({"paused": true}),
            json!({"paused": false}),
            json!({"placement": "Preferred"}),
            json!({"mode": "Observe"}),
        ] {
            jane.change("web", spec.clone()).await.unwrap_or_else(|e| panic!("{spec}: {e}"));
        }
        refused(
            jane.change("web", json!({"mode": "Enforce"})).await,
            &["spec.taint: ", "patch nodes"],
        );
        root.change("web", json!({"mode": "Enforce", "maxBandwidthPercent": "70"}))
            .await
            .expect("web");
        // Without the taint the object is like any other.
        jane.change("web", json!({"taint": null, "maxBandwidthPercent": "10"}))
            .await
            .expect("less");
        refused(jane.change("web", json!({"taint": "NoSchedule"})).await, &["spec.taint: "]);
    });
}

/// An existing limit may stay, but may not be raised further.
#[test]
fn limits_of_an_administrator_stay_and_only_he_changes_them() {
    run(async |bench| {
        let root = Author::administrator(&bench, "root-stay").await;
        let jane = Author::tenant(&bench, "jane-stay").await;
        root.create(WATCH, "web", json!({"maxUnfit": "80%", "minFit": 0})).await.expect("web");
        jane.change("web", json!({"maxBandwidthPercent": "70"})).await.expect("another field");
        jane.change("web", json!({"minFit": "0%"})).await.expect("the same");
        refused(jane.change("web", json!({"maxUnfit": "90%"})).await, &["spec.maxUnfit: 90%"]);
        jane.change("web", json!({"maxUnfit": "30%", "minFit": 1})).await.expect("less");
        refused(jane.change("web", json!({"minFit": 0})).await, &["spec.minFit: "]);
        // A number that minFit bounds to half of the nodes, and then without that bound.
        jane.change("web", json!({"maxUnfit": 9, "minFit": "50%"})).await.expect("bounded");
        refused(jane.change("web", json!({"minFit": 1})).await, &["spec.maxUnfit: 9"]);
    });
}
