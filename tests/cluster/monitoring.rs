//! The shipped dashboard, alerts and scrapes at the cluster's Prometheus.
use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use lab::dashboard;
use serde_json::Value;

use crate::stage::Stage;

/// Waits until the decision metrics, as scraped by Prometheus, show a judgment after `time`.
pub async fn judged_after(stage: &Stage, name: &str, time: Timestamp) -> Result<()> {
    let query = format!(
        "max(traffic_operator_trafficwatch_last_success_timestamp_seconds{{name=\"{name}\"}})"
    );
    let time = time.as_duration().as_secs_f64();
    stage
        .until("a judgment", async || {
            Ok(stage.cluster.query(&query).await?.first().is_some_and(|s| s.1 > time))
        })
        .await
}

pub async fn every_panel_of_the_dashboard_has_data(stage: &Stage) -> Result<()> {
    // A measure of each unit: percent, bits per second, and a custom one.
    let criterion = "criteria:\n  - {name: load, query: 'node_load1', max: 1k}";
    stage.watch("panels", criterion).await?;
    let absolute = "apiVersion: traffic.example.com/v1alpha1\nkind: TrafficWatch\n\
         metadata: {name: absolute, namespace: default}\n\
         spec: {maxBandwidth: 900M, interval: 2s, window: 20s, \
         reservation: {resource: traffic.example.com/egress-mbps}}\n";
    stage.cluster.apply(absolute).await?;
    // The value exceeds the threshold everywhere, so that some nodes are not fit.
    let busy = "apiVersion: traffic.example.com/v1alpha1\nkind: TrafficWatch\n\
         metadata: {name: busy, namespace: default}\n\
         spec: {mode: Observe, criteria: [{name: load, query: node_load1 + 1, max: 500m}], interval: 2s}\n";
    stage.cluster.apply(busy).await?;
    for name in ["panels", "absolute", "busy"] {
        stage.until_ready(name).await?;
    }
    judged_after(stage, "panels", Timestamp::now()).await?;
    let mut queries = 0;
    for file in ["grafana/trafficwatch.json", "grafana/overview.json"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        for panel in dashboard::panels(&path, "30s", "10m")? {
            // "No Swarm": this cluster has none, and the query must be right even so.
            let absent = panel.no_value.is_some_and(|text| text.starts_with("No "));
            for query in panel.queries {
                queries += 1;
                if absent {
                    stage.cluster.query(&query).await?;
                    continue;
                }
                stage
                    .until(&format!("data of panel {}: {query}", panel.title), async || {
                        Ok(!stage.cluster.query(&query).await?.is_empty())
                    })
                    .await?;
            }
        }
    }
    ensure!(queries > 50, "{queries} queries");
    for name in ["busy", "absolute", "panels"] {
        stage.delete(name)?;
    }
    Ok(())
}

/// Waits until every panel of the dashboard of a kind has data of the last minutes, but those of
/// what a scenario does not make happen.
pub async fn has_data(stage: &Stage, kind: &str, minutes: u64, quiet: &[&str]) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("grafana/{kind}.json"));
    stage
        .until(&format!("data in every panel of {}", file.display()), async || {
            let mut empty = dashboard::without_data(&stage.cluster, &file, minutes).await?;
            empty.retain(|title| !quiet.contains(&title.as_str()));
            ensure!(empty.is_empty(), "without data: {}", empty.join(", "));
            Ok(true)
        })
        .await
}

pub async fn the_shipped_alerts_and_scrapes_are_taken_by_prometheus(stage: &Stage) -> Result<()> {
    // Two controllers and two webhooks through the ServiceMonitor, which the Role in our namespace
    // lets Prometheus see.
    stage
        .until("all replicas scraped", async || {
            let up = stage.cluster.query("count(traffic_operator_build_info)").await?;
            Ok(up.first().is_some_and(|s| (s.1 - 4.0).abs() < 0.5))
        })
        .await?;
    let leaders = stage.cluster.query("sum(traffic_operator_leader)").await?;
    ensure!(leaders.first().is_some_and(|s| (s.1 - 1.0).abs() < 0.5), "{leaders:?}");
    let url = format!("{}/api/v1/rules", stage.cluster.prometheus_url().await?);
    let http = reqwest::Client::builder().tls_certs_only([]).build()?;
    stage
        .until("our rules", async || {
            let rules: Value = serde_json::from_str(&http.get(&url).send().await?.text().await?)?;
            let groups = rules["data"]["groups"].as_array().context("groups")?;
            let rules = groups.iter().filter_map(|g| g["rules"].as_array()).flatten();
            let ours = rules
                .filter(|r| r["name"].as_str().is_some_and(|n| n.starts_with("TrafficOperator")));
            let (mut count, mut healthy) = (0, true);
            for rule in ours {
                count += 1;
                healthy &= rule["health"] == "ok";
            }
            Ok(count >= 4 && healthy)
        })
        .await
}
