//! Decides which streams to stop and start, and when a version is reached: it first waits until the
//! revoked streams are gone, then starts the new ones, then reports the version. It leaves the
//! other streams alone.
use std::{
    collections::{BTreeMap, BTreeSet},
    future,
    sync::Arc,
};

use anyhow::Context;
use tokio::{sync::oneshot, task::JoinSet};

use super::{
    metrics::{Looked, Metrics},
    process::Processes,
    report::Reporter,
    share::{Newest, Share},
    status::Status,
};

/// A way to run streams.
pub(super) enum Work {
    /// Runs a process for each stream.
    Process(Processes),
    /// Intervals that are reported.
    Report(Box<Reporter>),
    /// A name.
    Nothing,
}

/// A stream that was started and is not gone yet.
struct Held {
    /// Tells its process to end; used until the process has been signaled.
    stop: Option<oneshot::Sender<()>>,
}

/// The streams of one worker.
pub(super) struct Streams {
    work: Work,
    status: Status,
    metrics: Metrics,
    newest: Newest,
    /// The version that is fully applied; `None` before the first.
    loaded: Option<u64>,
    held: BTreeMap<Arc<str>, Held>,
    /// One task for each stream with a process.
    tasks: JoinSet<Arc<str>>,
    /// No stream is started any more.
    closed: bool,
}

impl Streams {
    pub(super) fn new(work: Work, status: Status, metrics: Metrics) -> Self {
        Self {
            work,
            status,
            metrics,
            newest: Newest::default(),
            loaded: None,
            held: BTreeMap::new(),
            tasks: JoinSet::new(),
            closed: false,
        }
    }

    /// Returns the number of streams that are not gone.
    pub(super) fn left(&self) -> usize {
        self.held.len()
    }

    /// Follows another file, if it is newer.
    pub(super) fn follow(&mut self, share: Share) -> Looked {
        let looked = self.newest.offer(share);
        let Some(share) = self.newest.get().filter(|_| looked == Looked::Changed) else {
            return looked;
        };
        self.metrics.file(share.version);
        let wanted: BTreeSet<_> = share.streams.iter().collect();
        let revoked = self.held.keys().filter(|stream| !wanted.contains(*stream)).cloned();
        for stream in revoked.collect::<Vec<_>>() {
            self.stop(&stream);
        }
        self.settle();
        Looked::Changed
    }

    /// Stops everything, for good.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for stream in self.held.keys().cloned().collect::<Vec<_>>() {
            self.stop(&stream);
        }
        self.show();
    }

    /// Waits until a stopped stream is gone, and continues from there.
    ///
    /// # Errors
    /// When its task panicked: it is unknown then whether parts of the stream still run.
    pub(super) async fn ended(&mut self) -> anyhow::Result<()> {
        let Some(ended) = self.tasks.join_next().await else { return future::pending().await };
        self.gone(&ended.context("the task of a stream died")?);
        self.settle();
        Ok(())
    }

    fn stop(&mut self, stream: &Arc<str>) {
        match &self.work {
            Work::Process(_) => {
                let stop = self.held.get_mut(stream).and_then(|held| held.stop.take());
                // If its task has ended, the stream is about to be removed.
                let _ = stop.map(|stop| stop.send(()));
            }
            Work::Report(reporter) => {
                reporter.end(stream);
                self.gone(stream);
            }
            Work::Nothing => self.gone(stream),
        }
    }

    fn gone(&mut self, stream: &Arc<str>) {
        if self.held.remove(stream).is_some() {
            self.metrics.stopped();
        }
    }

    fn start(&mut self, stream: &Arc<str>, epoch: u64) {
        let stop = match &self.work {
            Work::Process(processes) => {
                let process = processes.start(stream.clone(), epoch);
                let (stop, stopped) = oneshot::channel();
                let stream = stream.clone();
                self.tasks.spawn(async move {
                    process.run(stopped).await;
                    stream
                });
                Some(stop)
            }
            Work::Report(reporter) => {
                reporter.begin(stream.clone(), epoch);
                None
            }
            Work::Nothing => None,
        };
        self.held.insert(stream.clone(), Held { stop });
    }

    /// As soon as no revoked stream is left, starts the new streams of the newest file, and then
    /// reports its version.
    fn settle(&mut self) {
        if let Some(share) = self.newest.get() {
            let wanted: BTreeSet<_> = share.streams.iter().collect();
            // A stream that is assigned again while it is stopping must stop before it runs again.
            let stopping =
                |held: &Held| matches!(self.work, Work::Process(_)) && held.stop.is_none();
            let revoked = |(stream, held)| stopping(held) || !wanted.contains(stream);
            if !self.closed && !self.held.iter().any(revoked) {
                for stream in &share.streams {
                    if !self.held.contains_key(stream) {
                        self.start(stream, share.epoch);
                    }
                }
                if self.loaded != Some(share.version) {
                    tracing::info!(version = share.version, "reached");
                    self.loaded = Some(share.version);
                }
            }
        }
        self.show();
    }

    /// Publishes the streams in the order of the file; those that are stopping come last.
    fn show(&self) {
        let newest = self.newest.get();
        let order = newest.iter().flat_map(|share| &share.streams);
        let mut streams: Vec<_> =
            order.filter(|stream| self.held.contains_key(*stream)).cloned().collect();
        let wanted: BTreeSet<_> = streams.iter().cloned().collect();
        streams.extend(self.held.keys().filter(|stream| !wanted.contains(*stream)).cloned());
        self.status.show(streams, self.loaded.unwrap_or_default());
    }
}
