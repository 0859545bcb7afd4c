//! `make deploy`, with the real kubectl.
use std::{path::Path, process::Output};

use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use serde_json::json;
use traffic_operator::manifests;

use crate::bench::{Bench, run};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs a target of `make` against the test's API server; returns whether it succeeded, and its
/// output.
async fn make(bench: &Bench, arguments: &[&str]) -> (bool, String) {
    let kubectl = tokio::task::spawn_blocking(|| lab::tools::ensure("kubectl"));
    let kubectl = kubectl.await.expect("task").expect("kubectl: cargo run --bin lab -- tools");
    let Output { status, stdout, stderr } = tokio::process::Command::new("make")
        .current_dir(Path::new(ROOT))
        .args(arguments)
        .arg(format!("KUBECTL={}", kubectl.display()))
        .env("KUBECONFIG", bench.plane().kubeconfig())
        // Nothing was loaded a moment ago.
        .env("IMAGE_SECONDS", "0")
        .env_remove("IMG")
        .env_remove("MAKEFLAGS")
        .env_remove("MAKEOVERRIDES")
        .output()
        .await
        .expect("make");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (status.success(), text(&stdout) + &text(&stderr))
}

/// Sets the images in a node's status, as its kubelet does.
async fn has_image(bench: &Bench, node: &str, image: &str) {
    let status = json!({"status": {"images": [
        {"names": ["docker.io/library/other:1"], "sizeBytes": 2},
        {"names": [image], "sizeBytes": 1},
    ]}});
    let patch = Patch::Merge(status);
    bench.nodes().patch_status(node, &PatchParams::default(), &patch).await.expect("status");
}

#[test]
#[ignore = "needs kubectl: `make verify` runs it"]
fn make_deploy_without_an_image_on_a_cluster_that_lacks_it_stops_with_a_sentence() {
    run(async |bench| {
        let image = format!("registry.invalid/traffic-operator:{}", env!("CARGO_PKG_VERSION"));
        // A field of a definition that only `make install` writes.
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let resource = ApiResource::from_gvk(&kind);
        let definitions = Api::<DynamicObject>::all_with(bench.client.clone(), &resource);
        let name = "swarms.traffic.example.com";
        let version = async || definitions.get(name).await.expect("definition").resource_version();
        let before = version().await;
        bench.node("node-1").await;
        has_image(&bench, "node-1", "docker.io/traffic-operator/traffic-operator:0.1.0").await;
        let (went_on, text) = make(&bench, &["deploy", "OVERLAY=standalone"]).await;
        assert!(!went_on, "{text}");
        assert!(text.contains(&format!("The image {image} is on no node")), "{text}");
        assert!(text.contains("make docker-build docker-push deploy IMG="), "{text}");
        assert_eq!(version().await, before, "something was applied: {text}");
        let deployments = Api::<k8s_openapi::api::apps::v1::Deployment>::namespaced(
            bench.client.clone(),
            manifests::NAMESPACE,
        );
        assert!(deployments.get_opt(manifests::NAME).await.expect("get").is_none());

        // An explicit image is the user's responsibility; and a loaded image is found on the node.
        let (went_on, text) = make(&bench, &["image-there", "IMG=registry.example.com/x:1"]).await;
        assert!(went_on, "{text}");
        let (went_on, text) = make(&bench, &["image-there", &format!("IMG={image}")]).await;
        assert!(went_on, "{text}");
        let (went_on, _) = make(&bench, &["image-there"]).await;
        assert!(!went_on);
        bench.node("node-2").await;
        has_image(&bench, "node-2", &image).await;
        let (went_on, text) = make(&bench, &["image-there"]).await;
        assert!(went_on, "{text}");
        bench.nodes().delete("node-2", &DeleteParams::default()).await.expect("delete");
    });
}
