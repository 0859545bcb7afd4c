//! What the whole story comes to.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};

use super::file;
use super::settled::STREAMS;
use super::stage::{NAMESPACE, Stage};
use super::table::{beside_the_original, table};
use crate::audit::AuditEvent;
use crate::demo::checks::operator_writes;
use crate::demo::{Check, exposition, leader};
use crate::streams::Stretch;

/// What the demo owes its name.
const SCALINGS: usize = 20;

/// Shows the steps, and those that are known of the original beside it.
pub(super) fn print(stage: &Stage<'_>) {
    println!("\n{}\n{}", table(&stage.rows), beside_the_original(&stage.rows));
}

/// Judges what the workers have reported.
pub(super) fn reported(stage: &Stage<'_>) -> Vec<Check> {
    let ledger = stage.sink.ledger();
    let overlaps = ledger.overlaps(Stretch::ALWAYS);
    let mut figure = format!(
        "{} in {} scalings and {} faults, by {} reports",
        overlaps.len(),
        stage.scalings,
        stage.faults,
        ledger.reports()
    );
    for overlap in overlaps.iter().take(3) {
        let (stream, workers) = (&overlap.stream, overlap.workers.join(" and "));
        let _ = write!(figure, "; {stream} on {workers} for {} ms", overlap.time.millis());
    }
    let regressions = ledger.regressions();
    let first = regressions.first().map(|regression| format!("; {regression:?}"));
    vec![
        Check::new(
            "no stream ever ran on two workers",
            overlaps.is_empty() && ledger.reports() > 0 && stage.scalings >= SCALINGS,
            figure,
        ),
        Check::new(
            "after each step every stream runs on one worker",
            stage.rows.len() > SCALINGS / 2 && ledger.streams().count() == STREAMS,
            format!("{} steps, {} streams", stage.rows.len(), ledger.streams().count()),
        ),
        Check::new(
            "whoever gets a stream has a newer fencing token",
            regressions.is_empty(),
            format!("{} went back{}", regressions.len(), first.unwrap_or_default()),
        ),
    ]
}

/// Judges what the operator has written.
pub(super) fn written(stage: &Stage<'_>) -> Result<Vec<Check>> {
    let files = stage.history.files();
    let faults = file::faults(&files);
    let epochs = files.first().zip(files.last()).map(|(first, last)| (first.epoch, last.epoch));
    let (first, last) = epochs.unwrap_or_default();
    let told = format!("{} files, epoch {first} to {last}", files.len());
    let mut changes = file::changes(&files);
    // The first file is new to all that stand in it.
    for worker in files.first().iter().flat_map(|file| file.shares.keys()) {
        *changes.entry(worker.clone()).or_default() += 1;
    }
    let events = stage.cluster.audit()?;
    let (evicted, nudged) = refreshes(&events);
    let more = |done: &BTreeMap<String, usize>| {
        let too_often = done
            .iter()
            .filter(|(worker, times)| changes.get(*worker).is_none_or(|changes| *times > changes));
        too_often.map(|(worker, times)| format!("{worker} {times} times")).collect::<Vec<_>>()
    };
    let (count, wrong) =
        (|done: &BTreeMap<String, usize>| done.values().sum::<usize>(), more(&evicted));
    let figure = format!(
        "{} changes of shares, {} evictions, {} nudges; {} evicted more often than changed {}",
        count(&changes),
        count(&evicted),
        count(&nudged),
        wrong.len(),
        wrong.join(", ")
    );
    Ok(vec![
        Check::new(
            "every file follows from the one before",
            faults.is_empty() && !files.is_empty(),
            listed(&told, &faults),
        ),
        Check::new("only workers whose share changed are refreshed", wrong.is_empty(), figure),
        Check::new(
            "nothing is restarted or moved without need",
            stage.wrong.is_empty(),
            listed("0 exceptions", &stage.wrong),
        ),
    ])
}

/// Asks the operator's own metrics.
pub(super) async fn told(stage: &Stage<'_>) -> Result<Vec<Check>> {
    let metrics = leader::metrics(&stage.cluster.client()?).await?;
    let duplicates = exposition::samples(&metrics, "traffic_operator_swarm_duplicate_owners");
    let worst = duplicates.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let streams = exposition::samples(&metrics, "traffic_operator_swarm_streams");
    let state = |state: &str| {
        let found =
            streams.iter().find(|(labels, _)| labels.get("state").is_some_and(|s| s == state));
        found.map(|(_, value)| *value).with_context(|| format!("no swarm_streams of state {state}"))
    };
    let (owned, releasing) = (state("owned")?, state("releasing")?);
    let (free, unassigned) = (state("free")?, state("unassigned")?);
    #[allow(clippy::cast_precision_loss, reason = "27")]
    let all = (owned - STREAMS as f64).abs() < 0.5;
    Ok(vec![Check::new(
        "the operator's own metrics say the same",
        !duplicates.is_empty() && worst < 0.5 && all && releasing + free + unassigned < 0.5,
        format!(
            "{worst:.0} duplicate owners; {owned:.0} owned, {releasing:.0} releasing, {free:.0} free, {unassigned:.0} unassigned"
        ),
    )])
}

fn listed(good: &str, bad: &[String]) -> String {
    if bad.is_empty() {
        return good.to_owned();
    }
    let first: Vec<&str> = bad.iter().take(3).map(String::as_str).collect();
    format!("{} wrong: {}", bad.len(), first.join("; "))
}

/// How often the operator has evicted each pod, and how often written to it.
fn refreshes(events: &[AuditEvent]) -> (BTreeMap<String, usize>, BTreeMap<String, usize>) {
    let (mut evicted, mut nudged) = (BTreeMap::new(), BTreeMap::new());
    let done = operator_writes(events).into_iter().filter(|event| {
        event.code < 300 && event.resource == "pods" && event.namespace == NAMESPACE
    });
    for event in done {
        let counts = if event.subresource == "eviction" { &mut evicted } else { &mut nudged };
        *counts.entry(event.name.clone()).or_default() += 1;
    }
    (evicted, nudged)
}
