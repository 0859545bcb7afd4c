//! The result of the whole demo.

use std::fmt::Write;

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::settled::STREAMS;
use super::stage::{NAMESPACE, Stage};
use super::table::{Row, beside_the_original, gaps_of_streams, prepared, table};
use crate::judge::operator_writes;
use crate::leader;
use lab::AuditEvent;
use lab::checks::Check;
use lab::exposition;
use lab::streams::{Millis, Stretch};

/// `--load-time` of the workers.
const LOAD_TIME: Millis = 1000;

/// Number of scalings that the demo must perform.
const SCALINGS: usize = 20;

/// Shows the steps, and the known ones of the original beside them.
pub(super) fn print(stage: &Stage<'_>) {
    let rows = &stage.rows;
    let streams = gaps_of_streams(&stage.sink.ledger(), rows);
    println!("\n{}\n{streams}\n{}", table(rows), beside_the_original(rows));
}

/// Judges the reports of the workers.
pub(super) fn reported(stage: &Stage<'_>) {
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
    let gaps = prepared(&stage.rows);
    let at = |share: usize| gaps.get((gaps.len() * share).div_ceil(100).max(1) - 1).copied();
    let (median, longest) = (at(50).unwrap_or(Millis::MAX), at(99).unwrap_or(Millis::MAX));
    let regressions = ledger.regressions();
    let first = regressions.first().map(|regression| format!("; {regression:?}"));
    let claims = [
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
            "a stream has loaded before it moves for balance",
            median < LOAD_TIME,
            format!(
                "without a worker: p50 {median} ms, p99 {longest} ms, of {} moves; loading takes \
                 {LOAD_TIME} ms",
                gaps.len()
            ),
        ),
        Check::new(
            "each next worker of a stream has a newer fencing token",
            regressions.is_empty(),
            format!("{} went back{}", regressions.len(), first.unwrap_or_default()),
        ),
    ];
    drop(ledger);
    for claim in claims {
        stage.check(claim);
    }
}

/// Judges the operator's writes.
pub(super) fn written(stage: &Stage<'_>) -> Result<()> {
    let events = stage.cluster.audit()?;
    let (evicted, nudged) = refreshes(&events);
    let mut needless = needless(&stage.rows, &evicted, |_, _| false);
    needless
        .extend(self::needless(&stage.rows, &nudged, |row, worker| row.excused.contains(worker)));
    let figure = format!("{} evictions and {} nudges, all due", evicted.len(), nudged.len());
    let claims = [
        Check::new(
            "only workers whose share changed are refreshed",
            needless.is_empty() && !evicted.is_empty() && !nudged.is_empty(),
            listed(&figure, &needless),
        ),
        Check::new(
            "nothing is restarted or moved without need",
            stage.wrong.is_empty(),
            listed("0 exceptions", &stage.wrong),
        ),
    ];
    for claim in claims {
        stage.check(claim);
    }
    Ok(())
}

/// Checks the operator's own metrics.
pub(super) async fn own_metrics(stage: &Stage<'_>) -> Result<()> {
    let metrics = leader::metrics(&stage.client).await?;
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
    stage.check(Check::new(
        "the operator's own metrics say the same",
        !duplicates.is_empty() && worst < 0.5 && all && releasing + free + unassigned < 0.5,
        format!(
            "{worst:.0} duplicate owners; {owned:.0} owned, {releasing:.0} releasing, {free:.0} free, {unassigned:.0} unassigned"
        ),
    ));
    Ok(())
}

fn listed(good: &str, bad: &[String]) -> String {
    if bad.is_empty() {
        return good.to_owned();
    }
    let first: Vec<&str> = bad.iter().take(3).map(String::as_str).collect();
    format!("{} wrong: {}", bad.len(), first.join("; "))
}

/// The pods that the operator refreshed, with the times.
type Refreshes = Vec<(Timestamp, String)>;

/// The pods that the operator has evicted, and those that it has written to.
fn refreshes(events: &[AuditEvent]) -> (Refreshes, Refreshes) {
    let done = operator_writes(events).into_iter().filter(|event| {
        event.code < 300 && event.resource == "pods" && event.namespace == NAMESPACE
    });
    let (evictions, others): (Vec<_>, Vec<_>) =
        done.partition(|event| event.subresource == "eviction");
    let listed = |events: Vec<&AuditEvent>| {
        events.into_iter().map(|event| (event.time, event.name.clone())).collect()
    };
    (listed(evictions), listed(others))
}

/// Refreshes of workers whose share did not change in the step in which they were refreshed, but
/// for those that may.
fn needless(rows: &[Row], refreshes: &Refreshes, may: impl Fn(&Row, &str) -> bool) -> Vec<String> {
    let is_needless = |(time, worker): &(Timestamp, String)| {
        let row = rows.iter().rfind(|row| row.since <= *time)?;
        let due = row.changed.contains(worker) || may(row, worker);
        (!due).then(|| format!("{worker} in {}", row.step))
    };
    refreshes.iter().filter_map(is_needless).collect()
}

#[cfg(test)]
mod tests {
    use super::super::table::Ran;
    use super::*;

    #[test]
    fn a_refresh_is_due_only_in_the_step_that_changes_the_share() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let row = |second, step: &str, changed: &[&str]| Row {
            strategy: "HotReload",
            step: step.to_owned(),
            workers: 2,
            since: at(second),
            time: Stretch::ALWAYS,
            changed: changed.iter().map(|&worker| worker.to_owned()).collect(),
            excused: ["w2".to_owned()].into(),
            ran: Ran::default(),
            moved: 0,
            epoch: 1,
            restarted: 0,
            millis: 0,
        };
        let rows = [row(10, "start", &["w0", "w1"]), row(20, "2 -> 3", &["w0"])];
        let refreshes: Refreshes = [(11, "w1"), (19, "w0"), (20, "w0"), (25, "w1"), (99, "w2")]
            .map(|(second, worker)| (at(second), worker.to_owned()))
            .to_vec();
        let never = needless(&rows, &refreshes, |_, _| false);
        assert_eq!(never, ["w1 in 2 -> 3", "w2 in 2 -> 3"]);
        let may = needless(&rows, &refreshes, |row, worker| row.excused.contains(worker));
        assert_eq!(may, ["w1 in 2 -> 3"]);
    }
}
