//! Bad input: what policies check, and the status for errors that depend on the nodes; `schema` has
//! what the API server refuses.

use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::Stage;
use crate::bench::{eventually, run};

/// The reference has no type, so policies check it and its combination with other fields.
#[test]
fn credentials_and_endpoints_have_the_same_author_in_either_form() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let etcd = |etcd: Value| json!({"datastore": {"type": "etcd", "etcd": etcd}});
        let neither = etcd(json!({}));
        // Policies take a moment to come into force.
        let refusal = async || {
            let error = stage.try_set("bad", neither.clone()).await.err();
            let is_refused =
                error.is_some_and(|error| error.to_string().contains("needs a secretRef, or"));
            if !is_refused {
                // It may be gone already.
                let _ = stage.sets().delete("bad", &DeleteParams::default()).await;
            }
            is_refused.then_some(())
        };
        eventually("the policies", refusal).await;
        let both =
            "datastore.etcd.endpoints: with secretRef, the endpoints belong in the Secret too";
        let form = "datastore.etcd.secretRef must be {name: ...}, with the name of a Secret";
        for (spec, text) in [
            (neither.clone(), "datastore.etcd: needs a secretRef, or"),
            (etcd(json!({"endpoints": ["https://x:1"], "secretRef": "s"})), both),
            (etcd(json!({"endpoints": ["https://x:1"], "secretRef": {"name": "s"}})), both),
            (etcd(json!({"secretRef": "A"})), form),
            (etcd(json!({"secretRef": {"name": "../a"}})), form),
            (etcd(json!({"secretRef": {"name": "a", "namespace": "b"}})), form),
            (etcd(json!({"secretRef": 5})), form),
        ] {
            let error = stage.try_set("bad", spec.clone()).await.err();
            let error = error.map_or_else(String::new, |error| error.to_string());
            assert!(error.contains(text), "{spec}: {error:?} has no {text:?}");
        }
    });
}

#[test]
fn what_the_nodes_do_not_allow_is_reported_with_the_field_and_nothing_is_written() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        for number in 1..=4 {
            stage.node(number, "").await;
        }
        let _operator = stage.operator().await;
        let since = Timestamp::now();
        let zonal = |more: Value| {
            let base = json!({"topology": "Zonal", "count": {"min": 4, "max": 4}});
            crate::network_prober::with(base, &more)
        };
        stage.set("main", zonal(json!({}))).await;
        let refused = async |text: &str| {
            let text = text.to_owned();
            let said = async || {
                let reported = stage.condition("main", "Ready", "False", "PlanRefused").await;
                reported.contains(&text).then_some(())
            };
            stage.wait(&text, said).await;
        };
        refused("no node has the label topology.kubernetes.io/zone; label the nodes").await;
        // In this order no plan is possible on the way: with a alone it would be.
        for (node, zone) in [("node-3", "b"), ("node-1", "a"), ("node-2", "a")] {
            let labels = json!({"topology.kubernetes.io/zone": zone});
            stage.patch_node(node, json!({"metadata": {"labels": labels}})).await;
        }
        refused("two eligible nodes in each zone").await;
        // The count first: with four nodes in two zones the former plan would be carried out.
        stage.change("main", json!({"count": {"min": 3, "max": 3}})).await;
        refused("two eligible nodes in each zone").await;
        let labels = json!({"topology.kubernetes.io/zone": "b"});
        stage.patch_node("node-4", json!({"metadata": {"labels": labels}})).await;
        refused("set count.min to 4, and count.max as well (it is 3)").await;
        let more = json!({"count": {"min": 4, "max": 4}, "clusterID": {"pool": "224.0.0.1"}});
        stage.change("main", more).await;
        refused("spec.clusterID.pool: 224.0.0.1/32 has 1 address that can be cluster ids").await;
        let events = stage.until_event("main", "PlanRefused").await;
        assert!(!events.is_empty());
        let invalid = json!({"transition": {"prometheus": "elsewhere"}});
        stage.change("main", invalid).await;
        let text = stage.condition("main", "Ready", "False", "InvalidSpec").await;
        assert!(text.starts_with("spec.transition.prometheus: no endpoint"), "{text}");
        assert_eq!(stage.changes_since(since).await, []);
        stage.routes_were_kept();
    });
}
