//! Bad input: what policies check, and the status for errors that depend on the nodes; `schema` has
//! what the API server refuses.

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
