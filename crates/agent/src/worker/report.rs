//! Streams that only report that they run: the worker sends the intervals to a URL, so that the
//! collector can prove that no stream ran twice.
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context;
use http::Uri;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::{
    ledger::{Batch, Interval, Ledger},
    metrics::Metrics,
};
use crate::{client::Client, schedule::Clock};

/// The time that one report may take: anything not accepted is sent with the next one.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time between two attempts of the last report.
const AGAIN: Duration = Duration::from_millis(100);

/// The recipient of reports, and the sender's identity.
#[derive(Clone, Debug)]
pub struct Report {
    /// URL to which reports are posted.
    pub url: Uri,
    /// Time between two reports.
    pub interval: Duration,
    /// Identifies the pod among those of its name: a replacement counts as another pod.
    pub pod: String,
}

/// Runs streams that only report; clones share it.
#[derive(Clone)]
pub(super) struct Reporter {
    report: Arc<Report>,
    worker: Arc<str>,
    client: Client,
    clock: Clock,
    ledger: Arc<Mutex<Ledger>>,
    metrics: Metrics,
}

#[derive(Serialize)]
struct Body<'a> {
    worker: &'a str,
    pod: &'a str,
    intervals: &'a [Interval],
}

impl Reporter {
    pub(super) fn new(report: Report, worker: Arc<str>, metrics: Metrics) -> anyhow::Result<Self> {
        let client = Client::plain()?;
        let ledger = Arc::default();
        Ok(Self { report: Arc::new(report), worker, client, clock: Clock::new(), ledger, metrics })
    }

    /// Records that a stream runs from now on.
    pub(super) fn begin(&self, stream: Arc<str>, epoch: u64) {
        let now = self.now();
        self.ledger().begin(stream, epoch, now);
    }

    /// Records that a stream no longer runs.
    pub(super) fn end(&self, stream: &str) {
        let now = self.now();
        let lost = self.ledger().end(stream, now);
        if lost > 0 {
            self.metrics.lost(lost);
        }
    }

    /// Reports for ever.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let mut tick = interval(self.report.interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failures = 0_u64;
        loop {
            tick.tick().await;
            let Some(batch) = self.batch() else { continue };
            match self.send(&batch).await {
                Ok(()) if failures > 0 => {
                    tracing::info!(failures, "reports are taken again");
                    failures = 0;
                }
                Ok(()) => {}
                Err(error) => {
                    // Logged once, when failures begin: the following ones are the same.
                    if failures == 0 {
                        let url = &self.report.url;
                        tracing::warn!(%url, error = format!("{error:#}"), "a report is not taken");
                    }
                    failures += 1;
                }
            }
        }
    }

    /// Reports the remaining intervals, until then at the latest.
    pub(super) async fn last(&self, until: Instant) {
        while let Some(batch) = self.batch() {
            let left = until.saturating_duration_since(Instant::now());
            match timeout(left, self.send(&batch)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) if Instant::now() + AGAIN < until => sleep(AGAIN).await,
                Ok(Err(error)) => {
                    let intervals = batch.intervals.len();
                    let error = format!("{error:#}");
                    tracing::warn!(intervals, error, "the last report is not taken");
                    return;
                }
                Err(_) => {
                    let intervals = batch.intervals.len();
                    tracing::warn!(intervals, "the last report is not taken in time");
                    return;
                }
            }
        }
    }

    async fn send(&self, batch: &Batch) -> anyhow::Result<()> {
        let sent = self.post(&batch.intervals).await;
        self.metrics.reported(sent.is_ok());
        if sent.is_ok() {
            self.ledger().taken(batch);
        }
        sent
    }

    async fn post(&self, intervals: &[Interval]) -> anyhow::Result<()> {
        let body = Body { worker: &self.worker, pod: &self.report.pod, intervals };
        let body = serde_json::to_vec(&body).context("the report")?;
        self.client.post(&self.report.url, Some("application/json"), body, PATIENCE).await
    }

    fn batch(&self) -> Option<Batch> {
        let now = self.now();
        self.ledger().report(now)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.now().as_millis()).unwrap_or(u64::MAX)
    }
}
