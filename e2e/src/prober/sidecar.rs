//! The operator's own agent, as a native sidecar, and what it measures.

use anyhow::Result;

use super::figures::{has_sidecar, matrix, reasons};
use super::{PROBER, apply, pods_ready, prober_status, ready};
use crate::stage::{PATIENCE, Stage};
use lab::checks::Check;

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    apply(stage, "prober.yaml").await?;
    ready(stage).await?;
    apply(stage, "pods.yaml").await?;
    stage.kubectl(&["scale", "deployment/web", "--replicas=4"])?;
    apply(stage, "uncovered.yaml").await?;
    let pods = pods_ready(stage, 4).await?;
    let sidecars = pods.iter().filter(|pod| has_sidecar(pod)).count();
    for pod in &pods {
        stage.say(&format!(
            "    {} on {}: {}",
            pod["metadata"]["name"].as_str().unwrap_or_default(),
            pod["spec"]["nodeName"].as_str().unwrap_or_default(),
            if has_sidecar(pod) {
                "net-prober is an init container with restartPolicy: Always"
            } else {
                "no native sidecar"
            }
        ));
    }
    stage.check(Check::new(
        "own agent: a native sidecar in every pod",
        sidecars == 4,
        format!("{sidecars} of 4"),
    ));

    let status = stage
        .until("six pods selected, two without agent", PATIENCE, async || {
            let status = prober_status(stage)?;
            let settled = status["selected"] == 6 && status["injected"] == 4;
            Ok((settled && reasons(&status).len() == 2).then_some(status))
        })
        .await?;
    let listed: Vec<String> =
        reasons(&status).iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let figure = format!("6 selected, 4 injected, {}", listed.join(", "));
    stage.say(&format!("==> coverage: {figure}"));
    stage.check(Check::new(
        "pods without agent are listed with the reason",
        reasons(&status) == [("HostNetwork".to_owned(), 1), ("OptedOut".to_owned(), 1)].into(),
        figure,
    ));
    round_trips(stage).await
}

/// Shows the round trips between nodes and between zones.
async fn round_trips(stage: &Stage<'_>) -> Result<()> {
    let median = |ends: &str| {
        format!(
            r#"histogram_quantile(0.5, sum by ({ends}, le) (rate(netprober_rtt_seconds_bucket{{job="{PROBER}",protocol="http"}}[20s])))"#
        )
    };
    let nodes = stage
        .until("round trips of all pairs of nodes", PATIENCE, async || {
            let pairs = stage.by(&["src_node", "dst_node"], &median("src_node, dst_node")).await?;
            Ok((pairs.len() >= 12).then_some(pairs))
        })
        .await?;
    let zones = stage.by(&["src_zone", "dst_zone"], &median("src_zone, dst_zone")).await?;
    stage.say(&format!("==> median round trip (HTTP) by node:\n{}", matrix(&nodes)));
    stage.say(&format!("==> and by zone:\n{}", matrix(&zones)));
    stage.check(Check::new(
        "every node measures every other, every zone every other",
        nodes.len() == 12 && zones.len() == 4,
        format!("{} of 12 pairs of nodes, {} of 4 of zones", nodes.len(), zones.len()),
    ));
    let count = |samples: &[lab::cluster::Sample]| samples.first().map_or(0.0, |(_, n)| *n);
    let selector = format!(r#"{{job="{PROBER}"}}"#);
    // Only native histograms have a count that is a function's.
    let native = format!("count(histogram_count(rate(netprober_rtt_seconds{selector}[20s])) >= 0)");
    let native = count(&stage.query(&native).await?);
    stage.check(Check::new(
        "round trips are native histograms too",
        native > 0.0,
        format!("{native:.0} series (4 agents, 3 peers, 3 protocols: 36)"),
    ));
    Ok(())
}
