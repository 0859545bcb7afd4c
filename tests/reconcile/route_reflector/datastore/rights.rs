//! Limits on Calico's objects that RBAC cannot express: the admission policies enforce them.
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use lab::calico::Group;
use serde_json::{Value, json};

use super::{Kind, installed, kind};
use crate::bench::{Bench, eventually, run};

async fn both(bench: &Bench, group: Group, name: &str, plural: &str) -> (Kind, Kind) {
    let operator = bench.as_operator().await;
    (kind(&bench.client, group, name, plural), kind(&operator, group, name, plural))
}

async fn patched(kind: &Kind, name: &str, patch: Value) -> Result<(), String> {
    let patch = Patch::Merge(patch);
    let result = kind.0.patch(name, &PatchParams::default(), &patch).await;
    result.map(drop).map_err(|error| error.to_string())
}

async fn created(kind: &Kind, what: &str, metadata: Value, spec: Value) -> Result<(), String> {
    let api_version = kind.1.api_version();
    let object = json!({
        "apiVersion": api_version, "kind": what, "metadata": metadata, "spec": spec,
    });
    let object = serde_json::from_value(object).expect("object");
    let result = kind.0.create(&PostParams::default(), &object).await;
    result.map(drop).map_err(|error| error.to_string())
}

async fn deleted(kind: &Kind, name: &str) -> Result<(), String> {
    let result = kind.0.delete(name, &DeleteParams::default()).await;
    result.map(drop).map_err(|error| error.to_string())
}

fn is_refused(result: &Result<(), String>) -> bool {
    result.as_ref().is_err_and(|text| text.contains("traffic-operator may write only objects of"))
}

#[test]
fn the_operators_account_can_write_no_bgppeer_but_its_own() {
    run(async |bench| {
        for group in [Group::V1, Group::V3] {
            installed(&bench, &[group]).await;
            let (admin, operator) = both(&bench, group, "BGPPeer", "bgppeers").await;
            let spec = json!({"nodeSelector": "all()", "peerIP": "10.0.0.9"});
            admin.create("BGPPeer", json!({"name": "tor"}), spec.clone()).await;
            let before = admin.get("tor").await;
            let label = json!({"app.kubernetes.io/managed-by": "traffic-operator"});
            // A policy takes a moment to come into force.
            eventually("the policy to be in force", async || {
                let patch = json!({"spec": {"peerIP": "10.0.0.9"}});
                is_refused(&patched(&operator, "tor", patch).await).then_some(())
            })
            .await;
            // Neither may it take over a foreign object, nor give its own away.
            let patch = json!({"metadata": {"labels": label}, "spec": {"peerIP": "10.0.0.8"}});
            assert!(is_refused(&patched(&operator, "tor", patch).await));
            assert!(is_refused(&deleted(&operator, "tor").await));
            let stranger = created(&operator, "BGPPeer", json!({"name": "x"}), spec.clone()).await;
            assert!(is_refused(&stranger), "{stranger:?}");
            assert_eq!(admin.get("tor").await, before);

            let metadata = json!({"name": "rrs-to-rrs", "labels": label});
            created(&operator, "BGPPeer", metadata, spec).await.expect("its own");
            let away = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}});
            assert!(is_refused(&patched(&operator, "rrs-to-rrs", away).await));
            let patch = json!({"spec": {"peerIP": "10.0.0.7"}});
            patched(&operator, "rrs-to-rrs", patch).await.expect("its own");
            deleted(&operator, "rrs-to-rrs").await.expect("its own");
            // Other users are not restricted.
            patched(&admin, "tor", json!({"spec": {"peerIP": "10.0.0.6"}})).await.expect("others");
        }
    });
}

#[test]
fn the_operators_account_can_change_of_a_bgpconfiguration_only_whether_there_is_a_mesh() {
    run(async |bench| {
        for group in [Group::V1, Group::V3] {
            installed(&bench, &[group]).await;
            let (admin, operator) =
                both(&bench, group, "BGPConfiguration", "bgpconfigurations").await;
            let what = "BGPConfiguration";
            let spec = json!({"asNumber": 64512, "nodeToNodeMeshEnabled": true});
            admin.create(what, json!({"name": "default"}), spec).await;
            eventually("the policy to be in force", async || {
                let result = patched(&operator, "default", json!({"spec": {"asNumber": 1}})).await;
                result.is_err_and(|text| text.contains("only spec.nodeToNodeMesh")).then_some(())
            })
            .await;
            for patch in [
                json!({"spec": {"asNumber": null}}),
                json!({"spec": {"listenPort": 178}}),
                json!({"metadata": {"labels": {"a": "b"}}}),
                json!({"metadata": {"annotations": {"a": "b"}}}),
            ] {
                let error =
                    patched(&operator, "default", patch.clone()).await.expect_err("refused");
                assert!(error.contains("only spec.nodeToNodeMeshEnabled"), "{patch}: {error}");
            }
            let mesh = |on| json!({"spec": {"nodeToNodeMeshEnabled": on}});
            for on in [json!(false), json!(true), json!(null)] {
                patched(&operator, "default", mesh(on)).await.expect("the mesh");
            }
            let spec = json!({"nodeToNodeMeshEnabled": false});
            let other = created(&operator, what, json!({"name": "node.a"}), spec.clone()).await;
            assert!(other.is_err_and(|text| text.contains("only the BGPConfiguration default")));
            deleted(&admin, "default").await.expect("others");
            let more = json!({"nodeToNodeMeshEnabled": false, "asNumber": 1});
            let more = created(&operator, what, json!({"name": "default"}), more).await;
            assert!(more.is_err_and(|text| text.contains("only spec.nodeToNodeMeshEnabled")));
            created(&operator, what, json!({"name": "default"}), spec).await.expect("the mesh");
        }
    });
}
