//! The shipped dashboards, alerts and scrapes at the cluster's Prometheus.

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use lab::dashboard;
use serde_json::Value;

use crate::stage::Stage;
use crate::traffic_watch::{judged_after, until_ready, watch_by};

/// A measure of each unit: percent, bits per second, and a custom one; the last exceeds its
/// threshold everywhere, so that some nodes are not fit.
const WATCHES: [(&str, &str); 3] = [
    (
        "panels",
        "maxBandwidthPercent: \"30\"\ninterval: 2s\nwindow: 20s\n\
         criteria: [{name: load, query: node_load1, max: 1k}]",
    ),
    (
        "absolute",
        "maxBandwidth: 900M\ninterval: 2s\nwindow: 20s\n\
         reservation: {resource: traffic.example.com/egress-mbps}",
    ),
    (
        "busy",
        "mode: Observe\ninterval: 2s\n\
         criteria: [{name: load, query: node_load1 + 1, max: 500m}]",
    ),
];

pub async fn dashboards(stage: &Stage<'_>) -> Result<()> {
    for (name, spec) in WATCHES {
        watch_by(stage, name, spec).await?;
    }
    for (name, _) in WATCHES {
        until_ready(stage, name).await?;
    }
    judged_after(stage, "panels", Timestamp::now()).await?;
    let mut queries = 0;
    for file in ["grafana/trafficwatch.json", "grafana/overview.json", "grafana/operator.json"] {
        for panel in dashboard::panels(&lab::workspace::root().join(file), "30s", "10m")? {
            // "No Swarm": there may be none, and the query must be right even so.
            let absent = panel.no_value.is_some_and(|text| text.starts_with("No "));
            for query in panel.queries {
                queries += 1;
                let what = format!("data of panel {}: {query}", panel.title);
                let has = async || Ok(!stage.cluster.query(&query).await?.is_empty() || absent);
                stage.wait(&what, has).await?;
            }
        }
    }
    let figure = format!("{queries} queries");
    stage.claim("every panel of the dashboards has data", queries > 50, figure);
    Ok(())
}

/// Waits until every panel of the dashboard of a kind has data of the last minutes, or a text for
/// what an act does not make happen.
pub async fn has_data(stage: &Stage<'_>, kind: &str, minutes: u64) -> Result<()> {
    let file = lab::workspace::root().join(format!("grafana/{kind}.json"));
    let has = async || {
        let empty = dashboard::without_data(stage.cluster, &file, minutes).await?;
        ensure!(empty.is_empty(), "without data: {}", empty.join(", "));
        Ok(true)
    };
    stage.wait(&format!("data in every panel of {kind}"), has).await?;
    stage.claim(
        &format!("every panel of the dashboard {kind} has data"),
        true,
        format!("{minutes} minutes"),
    );
    Ok(())
}

/// The `ServiceMonitor`, which the Role in our namespace lets Prometheus see, and the rules.
pub async fn rules(stage: &Stage<'_>) -> Result<()> {
    // Two controllers and two webhooks.
    let scraped = async || {
        let count = async |query: &str| -> Result<String> {
            let found = stage.cluster.query(query).await?;
            Ok(found.first().map_or(String::new(), |sample| format!("{:.0}", sample.1)))
        };
        let up = count("count(traffic_operator_build_info)").await?;
        Ok(up == "4" && count("sum(traffic_operator_leader)").await? == "1")
    };
    stage.wait("all replicas scraped, and one leads", scraped).await?;
    stage.claim("all replicas are scraped through the ServiceMonitor", true, "4, and 1 leads");
    let url = format!("{}/api/v1/rules", stage.cluster.prometheus_url().await?);
    let http = reqwest::Client::builder().no_proxy().build()?;
    let taken = async || {
        let rules: Value = serde_json::from_str(&http.get(&url).send().await?.text().await?)?;
        let groups = rules["data"]["groups"].as_array().context("groups")?;
        let all = groups.iter().filter_map(|group| group["rules"].as_array()).flatten();
        let is_ours =
            |rule: &&Value| rule["name"].as_str().is_some_and(|n| n.starts_with("TrafficOperator"));
        let ours: Vec<&Value> = all.filter(is_ours).collect();
        let healthy = ours.len() >= 4 && ours.iter().all(|rule| rule["health"] == "ok");
        Ok(healthy.then_some(ours.len()))
    };
    let count = stage.until("our rules", crate::stage::PATIENCE, taken).await?;
    stage.claim(
        "the shipped alerts are taken by Prometheus",
        true,
        format!("{count} rules, all ok"),
    );
    Ok(())
}
