//! The reference worker of a Swarm: runs the streams that the file gives it, and says which file it
//! has come up to. It needs no API server.
//!
//! Read in this order:
//!
//! - [`share`]: the file, as one worker reads it.
//! - [`status`]: what it says of itself; [`metrics`].
//! - `streams`: the streams to stop and to start, and when a version has been reached.
//! - `process`: a process for each stream; [`report`] and [`ledger`]: the built-in work, which
//!   reports the intervals in which streams ran.
use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, interval, sleep_until},
};

use self::{
    metrics::{Looked, Metrics, Role},
    process::Processes,
    report::{Report, Reporter},
    share::Share,
    status::{Signer, Status},
    streams::{Streams, Work},
};
use super::{
    file::{self, Found},
    server::{self, Limits},
};

pub mod ledger;
pub mod metrics;
mod process;
pub mod report;
pub mod share;
pub mod status;
mod streams;

/// Time between two checks of the file: the handover of a stream waits for it, and one `stat` costs
/// nothing.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);

/// Maximum number of connections: the operator, the kubelet's probes, some replicas of Prometheus,
/// and an occasional user. Connections are kept between requests, for as long as the original's
/// server keeps them.
pub(super) const CONNECTIONS: Limits =
    Limits { connections: 64, of_one_source: 16, headers: Duration::from_secs(10) };

/// Time between two passes that reap orphans.
const REAP: Duration = Duration::from_secs(1);

/// The time that the worker may need beyond that of its streams: the kernel's work after a SIGKILL.
const GRACE: Duration = Duration::from_millis(500);

/// The settings of a worker at startup.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of the file with the list.
    pub file: PathBuf,
    /// The name of the worker in the file.
    pub worker: String,
    /// The number of the part of a divided file, and the number of parts.
    pub part: Option<(u32, u32)>,
    /// Port on which it reports what it runs.
    pub port: u16,
    /// Signs the reports.
    pub signer: Signer,
    /// The way to run a stream.
    pub kind: Kind,
    /// The time that a stream may take to end by itself.
    pub stop_timeout: Duration,
}

/// The way to run a stream.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A process: a program and its arguments.
    Command(Vec<String>),
    /// Intervals that are reported.
    Report(Report),
    /// A name that is kept, as by the original's worker.
    Nothing,
}

/// Runs a worker until it receives the signal to stop.
///
/// # Errors
/// When the port is taken, any of its tasks ends, or streams are left at the end.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let metrics = Metrics::new(Role::Worker);
    let worker: Arc<str> = config.worker.into();
    let status = Status::new(worker.clone(), config.signer, metrics.clone());
    let port = config.port;
    let listener = server::listen(port)
        .await
        .with_context(|| format!("HTTP_PORT: cannot listen on TCP port {port}"))?;
    tracing::info!(%worker, file = %config.file.display(), http = %listener.local_addr()?, "worker");

    let mut tasks = JoinSet::new();
    let mut part = |name: &'static str, task: futures::future::BoxFuture<'static, _>| {
        tasks.spawn(async move { (name, task.await) })
    };
    part("server", Box::pin(server::serve(listener, status.clone(), CONNECTIONS)));
    let (mut processes, mut reporter) = (None, None);
    let work = match config.kind {
        Kind::Command(command) => {
            let all = Processes::new(command, worker.clone(), config.stop_timeout, metrics.clone());
            Work::Process(processes.insert(all).clone())
        }
        Kind::Report(report) => {
            let all = Reporter::new(report, worker.clone(), metrics.clone())?;
            let reports = part("reports", Box::pin(all.clone().run()));
            Work::Report(Box::new(reporter.insert((all, reports)).0.clone()))
        }
        Kind::Nothing => {
            tracing::info!("neither a command nor --report: streams are only named");
            Work::Nothing
        }
    };
    // One is enough: a file that nobody took yet makes the next one wait.
    let (files, mut found) = mpsc::channel(1);
    let of = config.part;
    let parse = move |text: &[u8]| share::parse(text, &worker, of);
    part("configuration file", Box::pin(file::watch(config.file, INTERVAL, parse, files)));

    let mut streams = Streams::new(work, status, metrics.clone());
    let mut reap = interval(REAP);
    let mut outcome = Ok(());
    // The time at which everything must be over, once it is stopping.
    let mut until = None;
    loop {
        let ending = until.is_some();
        let end = tokio::select! {
            _ = terminate.recv(), if !ending => Some(Ok(())),
            _ = interrupt.recv(), if !ending => Some(Ok(())),
            Some(found) = found.recv(), if !ending => {
                look(&mut streams, &metrics, found);
                None
            }
            ended = streams.ended() => ended.err().map(Err),
            ended = tasks.join_next(), if !ending => Some(Err(match ended {
                Some(Ok((name, Ok(())))) => anyhow::anyhow!("{name} ended"),
                Some(Ok((name, Err(error)))) => error.context(name),
                Some(Err(error)) => anyhow::Error::new(error).context("a task died"),
                None => anyhow::anyhow!("there is nothing to do"),
            })),
            _ = reap.tick(), if processes.is_some() => {
                processes.iter().for_each(Processes::reap);
                None
            }
            () = sleep_until(until.unwrap_or_else(Instant::now)), if ending => break,
        };
        if let Some(end) = end {
            tracing::info!(streams = streams.left(), "told to stop");
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

/// Follows what was found.
fn look(streams: &mut Streams, metrics: &Metrics, found: Found<Share>) {
    metrics.looked(match found {
        Found::Changed(share) => streams.follow(share),
        Found::Unchanged => Looked::Unchanged,
        Found::Error => Looked::Error,
    });
}
