//! The `TrafficWatches` of a bench, of which one writes labels.
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use traffic_operator::api::TrafficWatch;

pub const LABEL: &str = "w0.traffic.example.com/unfit";

/// Creates objects that share one measurement.
pub async fn create(
    client: &Client,
    count: usize,
    interval: &str,
    window: &str,
) -> anyhow::Result<()> {
    let api = Api::<TrafficWatch>::namespaced(client.clone(), "default");
    for i in 0..count {
        let watch = json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
            "metadata": {"name": format!("w{i}")},
            // One writes labels, so that flips are counted once; the others read the same answer.
            "spec": {"maxBandwidthPercent": "60", "interval": interval, "window": window,
                     "mode": if i == 0 { "Enforce" } else { "Observe" }}
        });
        api.create(&PostParams::default(), &serde_json::from_value(watch)?).await?;
    }
    Ok(())
}

/// Removes all objects and all nodes.
pub async fn clean(client: &Client) -> anyhow::Result<()> {
    let api = Api::<TrafficWatch>::namespaced(client.clone(), "default");
    let strip = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for watch in api.list(&ListParams::default()).await? {
        api.patch(&watch.name_any(), &PatchParams::default(), &strip).await?;
        api.delete(&watch.name_any(), &DeleteParams::default()).await?;
    }
    let nodes = Api::<Node>::all(client.clone());
    nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}
