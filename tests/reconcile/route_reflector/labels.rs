//! Users choose the names of labels; and the samples of the documentation are served.
use std::{fs, path::Path};

use k8s_openapi::api::{admissionregistration::v1::ValidatingAdmissionPolicy, core::v1::Node};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Stage,
    stage::{LABEL, SLOT, two},
};
use crate::{
    bench::{eventually, run},
    network_prober::with,
};

#[test]
fn label_and_zone_have_the_names_that_the_spec_says() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        for (number, zone) in [(1, "a"), (2, "a"), (3, "b"), (4, "b")] {
            let labels = json!({"metadata": {"labels": {"rack": zone}}});
            stage.odd_node(&format!("node-{number}"), number, "", labels).await;
        }
        allow(&stage, "example.com/rr").await;
        let _operator = stage.operator().await;
        stage
            .set(
                "main",
                two(json!({"nodeLabel": "calico-route-reflector=yes", "zoneLabel": "rack"})),
            )
            .await;
        // One in each zone.
        stage.converged("main", &["node-1", "node-3"]).await;
        for (node, slot) in [("node-1", "0"), ("node-3", "1")] {
            assert_eq!(stage.bench.label(node, SLOT).await.as_deref(), Some(slot));
            assert_eq!(stage.bench.label(node, LABEL).await.as_deref(), Some("yes"));
        }
        let peer = stage.peers().get("peer-to-rrs-1").await.expect("peer");
        // Bug 13: selectors do not know the value.
        let has = format!("has({LABEL})");
        assert_eq!(peer["spec"], json!({"nodeSelector": format!("!{has}"), "peerSelector": has}));
        stage.routes_were_kept();
    });
}

/// Applies the documented change for another label: the admission policy must name it.
async fn allow(stage: &Stage, key: &str) {
    let policies = Api::<ValidatingAdmissionPolicy>::all(stage.bench.client.clone());
    let policy = policies.get("traffic-operator-nodes").await.expect("policy");
    let mut variables = policy.spec.and_then(|spec| spec.variables).expect("variables");
    for variable in variables.iter_mut().filter(|variable| variable.name == "reflectorKeys") {
        variable.expression = format!("{} + ['{key}']", variable.expression);
    }
    let patch = Patch::Merge(json!({"spec": {"variables": variables}}));
    let params = PatchParams::default();
    policies.patch("traffic-operator-nodes", &params, &patch).await.expect("patch");
    let nodes = Api::<Node>::all(stage.bench.as_operator().await);
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(json!({"metadata": {"labels": {key: "yes"}}}));
    let allowed = async || nodes.patch("node-1", &dry, &patch).await.ok();
    eventually("the policy to be in force", allowed).await;
}

#[test]
fn every_sample_is_accepted_and_served() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        stage.nodes(2).await;
        let _operator = stage.operator().await;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/samples");
        let mut served = 0;
        for entry in fs::read_dir(folder).expect("samples") {
            let path = entry.expect("entry").path();
            let Ok(text) = fs::read_to_string(&path) else { continue };
            for document in serde_yaml::Deserializer::from_str(&text) {
                let sample = Value::deserialize(document).expect("YAML");
                if sample["kind"] != "RouteReflectorSet" {
                    continue;
                }
                // The sample must be read and judged; no write is necessary for that.
                let spec = with(sample["spec"].clone(), &json!({"mode": "Observe"}));
                let name = format!("sample-{served}");
                stage.set(&name, spec).await;
                // Retire waits for a pool of which Felix programs the routes.
                let (status, reason) = match sample["spec"]["mesh"].as_str() {
                    Some("Retire") => ("Unknown", "RoutesUnknown"),
                    _ => ("True", "Planned"),
                };
                stage.condition(&name, "Ready", status, reason).await;
                served += 1;
            }
        }
        assert!(served >= 2, "{served}");
    });
}
