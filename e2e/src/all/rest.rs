//! Nothing changes any more.

use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};

use super::stage::{STEPS, Stage};
use super::{figures, process};
use crate::judge::operator_writes;
use lab::checks::Check;
use lab::dashboard;
use lab::workspace;

/// The time for which nothing must be written while nothing changes.
const QUIET: Duration = Duration::from_secs(30);
/// The time without writes after which everything has settled: streams that come back, conditions,
/// events.
const SETTLED: Duration = Duration::from_secs(10);

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    stage.say("at rest: counting the operator's writes, its memory, and its dashboard");
    stage
        .until("everything settled", STEPS, async || {
            let since = Timestamp::now();
            tokio::time::sleep(SETTLED).await;
            let events = stage.cluster.audit_since(since)?;
            let writes = operator_writes(&events).into_iter();
            Ok((writes.filter(|event| event.subresource != "status").count() == 0).then_some(()))
        })
        .await?;
    let (since, began) = (Timestamp::now(), Instant::now());
    tokio::time::sleep(QUIET).await;
    let window = SignedDuration::try_from(began.elapsed())?;
    stage.check(figures::quiet(&stage.cluster.audit_since(since)?, window));

    stage.check(disruptions(stage).await?);
    let memory = process::controllers(stage.cluster)?;
    let most = memory.iter().map(|memory| memory.now).fold(0.0, f64::max);
    let peak = memory.iter().map(|memory| memory.peak).fold(0.0, f64::max);
    stage.check(Check::new(
        "operator: memory of each replica, by the kernel",
        most <= stage.most_memory(),
        format!(
            "{most:.1} MiB resident in {} replicas (at most {:.0}), {peak:.1} at its peak",
            memory.len(),
            stage.most_memory()
        ),
    ));
    stage.check(panels(stage).await?);
    Ok(())
}

/// Asks Prometheus for the largest number of objects that disrupted one zone at the same time.
async fn disruptions(stage: &Stage<'_>) -> Result<Check> {
    let minutes = stage.age().as_secs() / 60 + 1;
    let query = format!(
        "max(max_over_time(count by (zone) (traffic_operator_disruption_in_progress)[{minutes}m:2s]))"
    );
    let most = stage.query(&query).await?.first().map(|sample| sample.1);
    let acts = stage.by(&["kind"], "sum by (kind) (traffic_operator_disruptions_total)").await?;
    Ok(Check::new(
        "one disruption at a time: never two objects in a zone, by Prometheus",
        most.is_some_and(|most| most < 1.5) && acts.len() > 1,
        format!("at most {:.0} at once; acts by kind: {acts:?}", most.unwrap_or(f64::NAN)),
    ))
}

/// Asks for every panel of the dashboards of all kinds and of the operator, over the whole demo.
async fn panels(stage: &Stage<'_>) -> Result<Check> {
    let minutes = stage.age().as_secs() / 60 + 1;
    let mut empty = Vec::new();
    for name in ["overview", "operator"] {
        let file = workspace::root().join(format!("grafana/{name}.json"));
        empty.extend(dashboard::without_data(stage.cluster, &file, minutes).await?);
    }
    Ok(Check::new(
        "dashboards overview and operator: data in every panel",
        empty.is_empty(),
        format!(
            "without data: {}",
            if empty.is_empty() { "none".into() } else { empty.join(", ") }
        ),
    ))
}
