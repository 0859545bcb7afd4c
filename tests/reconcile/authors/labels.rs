//! Keys of node labels: a namespace has its own, and no tenant blocks a label of the platform.
use serde_json::json;

use super::{Author, LABEL, TENANT, WATCH, bind, cluster_role, kinds, object, refused, rule};
use crate::bench::run;

#[test]
fn a_tenant_claims_only_labels_of_the_namespace() {
    run(async |bench| {
        let jane = Author::tenant(&bench, "jane-labels").await;
        for label in ["web", "platform", "xteam-a", "team-a.web", "web.team-ab", "web.team-b"] {
            let text = format!(
                "spec.label: {label} is no label of namespace team-a; set it to {label}.team-a, or \
                 (user 'jane-labels' has no right to use nodelabels.traffic.example.com {label}) \
                 grant it with: kubectl create rolebinding 'node-labels:jane-labels' -n team-a \
                 --clusterrole=traffic-operator-node-labels --user='jane-labels'"
            );
            refused(jane.try_create(WATCH, json!({"label": label})).await, &[&text]);
            jane.try_create(WATCH, json!({"label": label, "mode": "Observe"}))
                .await
                .expect("Observe");
        }
        for label in [LABEL, TENANT, "a.b.team-a"] {
            jane.try_create(WATCH, json!({"label": label})).await.unwrap_or_else(|e| panic!("{e}"));
        }
        // The name stands in for a missing label.
        refused(
            jane.try_create(WATCH, json!({"label": null})).await,
            &["spec.label: offered is no label"],
        );
        for name in ["team-a", "web.team-a"] {
            jane.create(WATCH, name, json!({"label": null}))
                .await
                .unwrap_or_else(|e| panic!("{e}"));
            jane.change(name, json!({"interval": "7s"})).await.expect("no change of the label");
        }
    });
}

#[test]
fn who_may_patch_nodes_or_has_the_label_by_name_takes_any() {
    run(async |bench| {
        let root = Author::administrator(&bench, "root-labels").await;
        root.try_create(WATCH, json!({"label": "platform"})).await.expect("an administrator");
        // The right to one label, in this namespace.
        let gold = json!({"apiGroups": ["traffic.example.com"], "resources": ["nodelabels"],
            "resourceNames": ["gold"], "verbs": ["use"]});
        let golden = Author::with_rules(&bench, "golden", &[kinds(), gold.clone()]).await;
        golden.until_granted(&bench, &gold).await;
        golden.try_create(WATCH, json!({"label": "gold"})).await.expect("its label");
        refused(
            golden.try_create(WATCH, json!({"label": "silver"})).await,
            &["spec.label: silver"],
        );
        // That right does not extend to taints.
        let taint = json!({"label": "gold", "taint": "NoSchedule"});
        refused(golden.try_create(WATCH, taint).await, &["spec.taint: "]);
        // Users who may patch nodes need no other right to label them.
        let patcher = Author::with_rules(&bench, "patcher", &[kinds()]).await;
        cluster_role(&bench, "patcher", &[rule("", "nodes", &["patch"])]).await;
        // A binding of a namespace gives no right to nodes.
        bind(&bench, "patcher-here", "patcher", json!({"kind": "ClusterRole", "name": "patcher"}))
            .await;
        patcher.until_granted(&bench, &rule("", "nodes", &["patch"])).await;
        refused(patcher.try_create(WATCH, json!({"label": "platform"})).await, &["spec.label: "]);
        super::bind_everywhere(&bench, "patcher", "patcher", "patcher").await;
        let allowed = async || patcher.try_create(WATCH, json!({"label": "platform"})).await.ok();
        crate::bench::eventually("the right to patch nodes", allowed).await;
    });
}

/// A label that an administrator has claimed stays claimed when a tenant edits other fields.
#[test]
fn a_label_that_is_there_already_may_stay_and_is_not_given_to_another_object() {
    run(async |bench| {
        let root = Author::administrator(&bench, "root-claims").await;
        let jane = Author::tenant(&bench, "jane-claims").await;
        root.create(WATCH, "web", json!({"label": "platform"})).await.expect("web");
        jane.change("web", json!({"maxBandwidthPercent": "70"})).await.expect("another field");
        jane.apply(WATCH, "web", json!({"label": "platform"})).await.expect("the same");
        refused(jane.create(WATCH, "heir", json!({"label": "platform"})).await, &["spec.label: "]);
        jane.change("web", json!({"mode": "Observe"})).await.expect("nothing is written");
        // A label cannot change, so that the advice is another one.
        let again = "create the TrafficWatch again with spec.label platform.team-a, or (user";
        refused(
            jane.change("web", json!({"mode": "Enforce"})).await,
            &["spec.label: platform", again],
        );
        // The samples name no namespace: only an administrator may create them, unless they get a
        // label.
        let sample = include_str!("../../../deploy/samples/trafficwatch.yaml");
        let sample: serde_json::Value = serde_yaml::from_str(sample).expect("YAML");
        let spec = &sample["spec"];
        let mut own = object(WATCH, "sample", spec)["spec"].clone();
        jane.try_create(WATCH, own.clone()).await.expect("with a label");
        own["label"] = serde_json::Value::Null;
        refused(jane.try_create(WATCH, own.clone()).await, &["spec.label: offered is no label"]);
        root.try_create(WATCH, own).await.expect("an administrator");
    });
}
