//! Nodes of a usual size.
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

pub fn name(i: usize) -> String {
    format!("ip-10-{}-{}-{}.eu-central-1.compute.internal", i / 65536, i / 256 % 256, i % 256)
}

pub fn address(i: usize) -> String {
    format!("10.{}.{}.{}", i / 65536, i / 256 % 256, i % 256)
}

/// Returns a node of a usual size: with the labels of a cloud provider, and 5 kB that the operator
/// skips.
pub fn node(i: usize) -> serde_json::Value {
    let name = name(i);
    let images: Vec<_> = (0..50)
        .map(|n| json!({"names": [format!("registry.example.com/team/image-{n}@sha256:{n:064}")], "sizeBytes": 1}))
        .collect();
    json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
            "topology.kubernetes.io/zone": format!("eu-central-1{}", ["a", "b", "c"][i % 3]),
            "topology.kubernetes.io/region": "eu-central-1",
            "node.kubernetes.io/instance-type": "m6i.4xlarge",
            "node-pool": format!("pool-{}", i % 10), "team": "a", "kernel": "6.1",
        }},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address(i)}],
            "images": images,
        }
    })
}

/// Removes all objects of a kind, and all nodes.
pub async fn clean<K>(client: &Client, api: Api<K>) -> anyhow::Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + k8s_openapi::serde::de::DeserializeOwned,
{
    let strip = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for object in api.list(&ListParams::default()).await? {
        api.patch(&object.name_any(), &PatchParams::default(), &strip).await?;
        // Without its finalizer it may be gone already.
        let _ = api.delete(&object.name_any(), &DeleteParams::default()).await;
    }
    let nodes = Api::<Node>::all(client.clone());
    nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}

pub async fn create(
    client: &Client,
    nodes: impl Iterator<Item = serde_json::Value>,
) -> anyhow::Result<()> {
    let api = Api::<Node>::all(client.clone());
    futures::stream::iter(nodes)
        .map(|node| {
            let api = api.clone();
            async move {
                let node: Node = serde_json::from_value(node)?;
                let status = Patch::Merge(json!({"status": node.status}));
                api.create(&PostParams::default(), &node).await?;
                api.patch_status(&node.name_any(), &PatchParams::default(), &status).await?;
                Ok::<_, anyhow::Error>(())
            }
        })
        .buffer_unordered(16)
        .try_collect()
        .await
}
