//! The status of nodes: of all that it holds, only our extended resources.
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::refused;
use crate::bench::{Bench, eventually, run};

/// Tries a patch of a node's status with the operator's account, as a dry run.
async fn patch(bench: &Bench, patch: &Value) -> Result<(), String> {
    let nodes = Api::<Node>::all(bench.as_operator().await);
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    match nodes.patch_status("node-1", &params, &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn of_a_nodes_status_only_our_resources_are_written() {
    run(async |bench| {
        bench.node("node-1").await;
        let resources = json!({"cpu": "4", "nvidia.com/gpu": "8", "example.com/mbps": "9"});
        let status = json!({"status": {"capacity": resources, "allocatable": resources}});
        let params = PatchParams::default();
        bench.nodes().patch_status("node-1", &params, &Patch::Merge(&status)).await.expect("set");
        let gpus = json!({"status": {"capacity": {"nvidia.com/gpu": "1"}}});
        let refusal = async || {
            let answer = patch(&bench, &gpus).await;
            answer.err().filter(|text| text.contains("ValidatingAdmissionPolicy"))
        };
        eventually("the policy to be in force", refusal).await;
        let foreign = "only the extended resources of nodes whose prefix";
        for (part, name, amount) in [
            ("capacity", "cpu", json!("8")),
            ("allocatable", "cpu", json!("1")),
            ("capacity", "nvidia.com/gpu", json!(null)),
            ("allocatable", "example.com/mbps", json!("10")),
            ("capacity", "nottraffic.example.com/mbps", json!("1")),
            ("capacity", "traffic.example.com.org/mbps", json!("1")),
        ] {
            let change = json!({"status": {part: {name: amount}}});
            refused(patch(&bench, &change).await, &change, foreign);
        }
        let nothing = "may change nothing of a node's status but its own";
        for change in [
            json!({"status": {"conditions": null}}),
            json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.66"}]}}),
            json!({"status": {"nodeInfo": {"kubeletVersion": "v9.9.9"}}}),
            json!({"status": {"phase": "Terminated"}}),
            json!({"metadata": {"labels": {"a": "b"}}}),
            json!({"metadata": {"annotations": {"a": "b"}}}),
        ] {
            refused(patch(&bench, &change).await, &change, nothing);
        }
        for name in ["traffic.example.com/egress-mbps", "team-a.traffic.example.com/mbps"] {
            let resources = json!({name: "500"});
            let own = json!({"status": {"capacity": resources, "allocatable": resources}});
            patch(&bench, &own).await.expect(name);
        }
    });
}
