//! The reference worker of a Swarm: runs the streams that the file assigns to it, and reports the
//! version that it has applied. It needs no API server.
//!
//! Read in this order:
//!
//! - [`share`]: the file, as one worker reads it.
//! - [`status`]: where its file and the port of its reports are, and its report about itself;
//!   [`metrics`].
//! - `streams`: the streams to stop and to start, and when a version has been reached.
//! - `process`: a process for each stream; [`report`] and [`ledger`]: the built-in work: it reports
//!   the intervals in which streams ran.
use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, interval, sleep_until};

use self::{
    metrics::{Looked, Metrics, Role},
    process::Processes,
    report::{Report, Reporter},
    share::Share,
    status::{Place, Taken},
    streams::{Streams, Work},
};
use super::{file::Found, tasks::Signals};

pub mod ledger;
pub mod metrics;
mod process;
pub mod report;
pub mod share;
pub mod status;
mod streams;

/// Time between two passes that reap orphans.
const REAP: Duration = Duration::from_secs(1);

/// The time that the worker may need in addition to its streams: the kernel's work after a SIGKILL.
const GRACE: Duration = Duration::from_millis(500);

/// The settings of a worker at startup.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file of its streams, and the port of its reports.
    pub place: Place,
    /// The way to run a stream.
    pub kind: Kind,
    /// The time that a stream may take to end by itself.
    pub stop_timeout: Duration,
    /// Streams are loaded as soon as it is known that they will come.
    pub prepare: bool,
    /// The time that a stream takes to load.
    pub load_time: Duration,
}

/// The way to run a stream.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A process: a program and its arguments.
    Command(Vec<String>),
    /// Intervals that are reported.
    Report(Report),
    /// A name without any work, as in the original's worker.
    Nothing,
}

/// Runs a worker until it receives the signal to stop.
///
/// # Errors
/// When the port is taken, any of its tasks ends, or streams are left at the end.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let Taken { worker, status, metrics, mut found, mut grants, mut tasks } =
        config.place.take(Role::Worker).await?;
    let (mut processes, mut reporter) = (None, None);
    let work = match config.kind {
        Kind::Command(command) => {
            let (timeout, waits) = (config.stop_timeout, config.prepare);
            let all = Processes::new(command, worker, timeout, waits, metrics.clone());
            Work::Process(processes.insert(all).clone())
        }
        Kind::Report(report) => {
            let all = Reporter::new(report, worker, metrics.clone())?;
            let reports = tasks.start("reports", all.clone().run());
            Work::Report(Box::new(reporter.insert((all, reports)).0.clone()))
        }
        Kind::Nothing => {
            tracing::info!("neither a command nor --report: streams are only named");
            Work::Nothing
        }
    };
    let mut streams = Streams::new(work, status, metrics.clone(), config.load_time, config.prepare);
    let mut reap = interval(REAP);
    let mut outcome = Ok(());
    // The time at which everything must be over, once it is stopping.
    let mut until = None;
    loop {
        let ending = until.is_some();
        let end = tokio::select! {
            () = signals.stop(), if !ending => Some(Ok(())),
            Some(found) = found.recv(), if !ending => {
                look(&mut streams, &metrics, found);
                None
            }
            Some(grant) = grants.recv(), if !ending => {
                streams.grant(&grant);
                None
            }
            ended = streams.ended() => ended.err().map(Err),
            error = tasks.ended(), if !ending => Some(Err(error)),
            _ = reap.tick(), if processes.is_some() => {
                processes.iter().for_each(Processes::reap);
                None
            }
            () = sleep_until(until.unwrap_or_else(Instant::now)), if ending => break,
        };
        if let Some(end) = end {
            tracing::info!(streams = streams.left(), "stopping");
            outcome = outcome.and(end);
            until.get_or_insert_with(|| Instant::now() + config.stop_timeout + GRACE);
            streams.close();
        }
        if until.is_some() && streams.left() == 0 {
            break;
        }
    }
    if let Some(((reporter, reports), until)) = reporter.zip(until) {
        reports.abort();
        reporter.last(until).await;
    }
    if streams.left() > 0 {
        bail!("{} streams have not ended", streams.left());
    }
    outcome
}

/// Applies the result of a check.
fn look(streams: &mut Streams, metrics: &Metrics, found: Found<Share>) {
    metrics.looked(match found {
        Found::Changed(share) => streams.follow(share),
        Found::Unchanged => Looked::Unchanged,
        Found::Error => Looked::Error,
    });
}
