//! The `TrafficWatches` of a bench, of which some write labels.
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use traffic_operator::api::TrafficWatch;

use crate::nodes;

pub const LABEL: &str = "w0.traffic.example.com/unfit";

/// Creates objects, of which the first ones write labels. Those with one window share one
/// measurement.
pub async fn create(
    client: &Client,
    count: u32,
    writers: u32,
    interval: &str,
    window: impl Fn(u32) -> String,
) -> anyhow::Result<()> {
    let api = Api::<TrafficWatch>::namespaced(client.clone(), "default");
    for i in 0..count {
        let watch = json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
            "metadata": {"name": format!("w{i}")},
            "spec": {"maxBandwidthPercent": "60", "interval": interval, "window": window(i),
                     "mode": if i < writers { "Enforce" } else { "Observe" }}
        });
        api.create(&PostParams::default(), &serde_json::from_value(watch)?).await?;
    }
    Ok(())
}

/// Removes all objects and all nodes.
pub async fn clean(client: &Client) -> anyhow::Result<()> {
    let watches = Api::<TrafficWatch>::namespaced(client.clone(), "default");
    nodes::clean(client, watches).await
}
