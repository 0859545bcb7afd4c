//! The original's sample, as it was published.

use anyhow::Result;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::figures::agent_image;
use super::pods::left;
use super::{PODS, SAMPLE, apply, pods_ready, ready};
use crate::stage::{PATIENCE, Stage};
use lab::checks::Check;
use lab::workspace;

const FILE: &str = "deploy/samples/networkprober-original.yaml";
const METRIC: &str = "netprober_interpod_latency_s_count";

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    let cluster = stage.cluster;
    let sample = workspace::root().join(FILE);
    let sample = sample.to_string_lossy();
    let file = sample.clone().into_owned();
    stage.finally(move |cluster| {
        cluster.kubectl(&["delete", "-f", &file, "--ignore-not-found", "--timeout=60s"]).map(drop)
    });
    stage.kubectl(&["apply", "-f", &sample])?;
    let again = cluster.kubectl(&["apply", "-f", &sample])?;
    let figure = again.trim().to_owned();
    stage.claim(
        "original sample: kubectl apply twice changes nothing",
        again.contains("unchanged"),
        figure,
    );
    ready(stage).await?;
    // Two first, then two that find them in their ConfigMap: kubelets bring changes to running pods
    // with a delay.
    apply(stage, "pods.yaml").await?;
    pods_ready(stage, 2).await?;
    cluster.kubectl(&["scale", "deployment/web", "--replicas=4"])?;
    let pods = pods_ready(stage, 4).await?;
    let images: Vec<&str> = pods.iter().filter_map(agent_image).collect();
    let annotated = pods
        .iter()
        .filter(|pod| pod["metadata"]["annotations"]["netprober-container-deployed"] == "true")
        .count();
    let figure =
        format!("{} of 4 pods, {annotated} annotated, image {}", images.len(), images.join(", "));
    stage.say(&format!("==> injected: {figure}"));
    stage.check(Check::new(
        "original sample: every pod gets the named agent",
        annotated == 4 && images == [image::ORIGINAL_AGENT_SAMPLE_NAME; 4],
        format!("{} of 4", images.len()),
    ));

    let (shape, shown) = stage
        .until("the ConfigMap with all pods", PATIENCE, async || {
            let config = config(&stage.get(&["configmap", SAMPLE])?);
            let listed = config["endpointsMap"].as_object().map_or(0, serde_json::Map::len);
            Ok((listed == 4).then(|| (has_the_original_shape(&config, &pods), config)))
        })
        .await?;
    stage.say(&format!(
        "==> config.json in ConfigMap {SAMPLE}, every {} ns:",
        shown["pollingPeriod"]
    ));
    for (pod, entry) in shown["endpointsMap"].as_object().into_iter().flatten() {
        stage.say(&format!("    {pod}: {} {}", entry["ip"], entry["port"]));
    }
    stage.check(Check::new(
        "original sample: config.json as the original agent reads it",
        shape,
        format!("{} endpoints", shown["endpointsMap"].as_object().map_or(0, serde_json::Map::len)),
    ));

    let query = format!("sum by (pod, dest_pod_name) ({METRIC})");
    let pairs = stage
        .until("latency between pods in Prometheus", PATIENCE, async || {
            let pairs = stage.by(&["pod", "dest_pod_name"], &query).await?;
            // The two that came later know the two that were there.
            Ok((pairs.len() >= 4).then_some(pairs))
        })
        .await?;
    stage.say(&format!("==> {METRIC}, through the PodMonitor that the operator keeps:"));
    for (pair, count) in &pairs {
        stage.say(&format!("    {pair}: {count:.0} probes"));
    }
    stage.check(Check::new(
        "original sample: netprober_interpod_latency_s in Prometheus",
        pairs.len() >= 4,
        format!("{} pairs of pods", pairs.len()),
    ));
    stage.kubectl(&["delete", "networkprober", SAMPLE, "--timeout=60s"])?;
    stage.kubectl(&["delete", "deployment", "web"])?;
    let gone = async || {
        let left = left(stage, "default", SAMPLE)?.is_empty();
        Ok(left && stage.list(&["pods", "-l", PODS])?.is_empty())
    };
    stage.wait("nothing left of it", gone).await?;
    let figure = "ConfigMap, PodMonitor, rules and webhook are gone";
    stage.claim("deleted: it leaves nothing behind", true, figure);
    Ok(())
}

/// Returns what a `ConfigMap` holds for the agents.
fn config(map: &Value) -> Value {
    let encoded = map["binaryData"]["config.json"].as_str();
    let decoded = encoded.and_then(|text| BASE64_STANDARD.decode(text).ok());
    let plain = map["data"]["config.json"].as_str().map(|text| text.as_bytes().to_vec());
    decoded.or(plain).and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Pods by name, each with address and port as text; the period in nanoseconds.
fn has_the_original_shape(config: &Value, pods: &[Value]) -> bool {
    let listed = pods.iter().all(|pod| {
        let entry = &config["endpointsMap"][pod["metadata"]["name"].as_str().unwrap_or_default()];
        entry["ip"] == pod["status"]["podIP"] && entry["port"] == "9090"
    });
    listed && config["pollingPeriod"] == 10_000_000_000_u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_original_s_file_is_recognized_in_either_form() {
        let text = r#"{"endpointsMap":{"web-1":{"ip":"10.0.0.1","port":"9090"}},"pollingPeriod":10000000000}"#;
        let pods = [json!({"metadata": {"name": "web-1"}, "status": {"podIP": "10.0.0.1"}})];
        let binary = json!({"binaryData": {"config.json": BASE64_STANDARD.encode(text)}});
        for map in [binary, json!({"data": {"config.json": text}})] {
            assert!(has_the_original_shape(&config(&map), &pods), "{map}");
        }
        assert!(!has_the_original_shape(&config(&json!({})), &pods));
        let number = text.replace("\"9090\"", "9090");
        assert!(!has_the_original_shape(&config(&json!({"data": {"config.json": number}})), &pods));
    }
}
