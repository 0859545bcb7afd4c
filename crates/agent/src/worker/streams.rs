//! Decides which streams to stop and start, and when a version is reached: it first waits until the
//! revoked streams are gone, then starts the new ones, then reports the version. It leaves the
//! other streams alone.
use std::{
    collections::{BTreeMap, BTreeSet},
    future,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use traffic_operator_core::acknowledgement::Grant;

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
#[derive(Default)]
struct Held {
    /// Tells its process to end; used until the process has been signaled.
    stop: Option<oneshot::Sender<()>>,
    /// Lets its process work, with the fencing token; used until the stream is this worker's own.
    go: Option<oneshot::Sender<u64>>,
    /// It will come, and its process only loads.
    coming: bool,
    /// Its fencing token, while a stream without a process loads.
    begins: Option<u64>,
}

impl Held {
    /// A stream whose process has been told to end.
    fn is_stopping(&self, work: &Work) -> bool {
        matches!(work, Work::Process(_)) && self.stop.is_none()
    }
}

/// The streams of one worker.
pub(super) struct Streams {
    work: Work,
    status: Status,
    metrics: Metrics,
    load_time: Duration,
    prepare: bool,
    newest: Newest,
    /// The version that is fully applied; `None` before the first.
    loaded: Option<u64>,
    held: BTreeMap<Arc<str>, Held>,
    /// Streams that will come or have been started, and load until then.
    loading: BTreeMap<Arc<str>, Instant>,
    /// Those that had loaded then are known.
    looked: Instant,
    /// Streams that a newer file than the last gives to this worker, with its version.
    granted: BTreeMap<Arc<str>, u64>,
    /// One task for each stream with a process.
    tasks: JoinSet<Arc<str>>,
    /// No stream is started any more.
    closed: bool,
}

impl Streams {
    pub(super) fn new(
        work: Work,
        status: Status,
        metrics: Metrics,
        load_time: Duration,
        prepare: bool,
    ) -> Self {
        Self {
            work,
            status,
            metrics,
            load_time,
            prepare,
            newest: Newest::default(),
            loaded: None,
            held: BTreeMap::new(),
            loading: BTreeMap::new(),
            looked: Instant::now(),
            granted: BTreeMap::new(),
            tasks: JoinSet::new(),
            closed: false,
        }
    }

    /// Returns the number of streams that are not gone.
    pub(super) fn left(&self) -> usize {
        self.held.len()
    }

    /// Follows another file, if it is newer.
    pub(super) fn follow(&mut self, mut share: Share) -> Looked {
        let granted = std::mem::take(&mut self.granted).into_iter();
        let still = |(stream, version): &(Arc<str>, u64)| {
            *version > share.version && share.next.contains(stream)
        };
        self.granted = granted.filter(still).collect();
        share.add(&self.granted);
        let looked = self.newest.offer(share);
        let Some(share) = self.newest.get().filter(|_| looked == Looked::Changed) else {
            return looked;
        };
        self.metrics.file(share.version);
        let wanted: BTreeSet<_> = share.streams.iter().collect();
        let next: BTreeSet<_> = share.next.iter().collect();
        let revoked = self.held.iter().filter(|(stream, held)| {
            !(wanted.contains(stream) || held.coming && next.contains(stream))
        });
        for stream in revoked.map(|(stream, _)| stream.clone()).collect::<Vec<_>>() {
            self.stop(&stream);
        }
        self.settle();
        Looked::Changed
    }

    /// Starts streams that will come, and that a newer file gives to this worker.
    pub(super) fn grant(&mut self, grant: &Grant) {
        let newest = self.newest.get().filter(|share| share.version < grant.version);
        let Some(share) = newest.filter(|_| !self.closed) else { return };
        let coming: BTreeSet<_> = share.next.iter().collect();
        let jobs = grant.jobs.iter().filter_map(|job| coming.get(&Arc::from(job.as_str())));
        self.granted.extend(jobs.map(|stream| (Arc::clone(stream), grant.version)));
        self.newest.add(&self.granted);
        tracing::info!(version = grant.version, streams = grant.jobs.len(), "granted");
        for stream in &share.next {
            if self.granted.contains_key(stream) {
                self.start(stream, grant.version);
            }
        }
        self.show();
    }

    /// Loads the streams that will come.
    fn prepare(&mut self, share: &Share) {
        let named: BTreeSet<_> = share.streams.iter().chain(&share.next).collect();
        self.loading.retain(|stream, _| named.contains(stream));
        if !self.prepare || self.closed {
            return;
        }
        let loaded = Instant::now() + self.load_time;
        for stream in &share.next {
            // One that is still stopping is prepared after that.
            if self.held.contains_key(stream) {
                continue;
            }
            self.loading.entry(stream.clone()).or_insert(loaded);
            if let Work::Process(processes) = &self.work {
                let held = Self::run(&mut self.tasks, processes, stream, None);
                self.held.insert(stream.clone(), held);
            }
        }
    }

    /// Begins the streams that have loaded.
    fn begin(&mut self) {
        let now = Instant::now();
        self.looked = now;
        let loaded = self.loading.iter().filter(|(_, at)| **at <= now);
        for stream in loaded.map(|(stream, _)| stream.clone()).collect::<Vec<_>>() {
            let Some(held) = self.held.get_mut(&stream).filter(|held| !held.coming) else {
                continue;
            };
            self.loading.remove(&stream);
            if let (Some(epoch), Work::Report(reporter)) = (held.begins.take(), &self.work) {
                reporter.begin(stream, epoch);
            }
        }
    }

    /// Stops everything, for good.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for stream in self.held.keys().cloned().collect::<Vec<_>>() {
            self.stop(&stream);
        }
        self.show();
    }

    /// Waits until a stopped stream is gone or another one has loaded, and continues from there.
    ///
    /// # Errors
    /// When its task panicked: it is unknown then whether parts of the stream still run.
    pub(super) async fn ended(&mut self) -> anyhow::Result<()> {
        let loaded = self.loading.values().filter(|at| **at > self.looked).min().copied();
        tokio::select! {
            Some(ended) = self.tasks.join_next() => {
                self.gone(&ended.context("the task of a stream died")?);
                self.settle();
            }
            () = sleep_until(loaded.unwrap_or(self.looked)), if loaded.is_some() => {
                self.begin();
                self.show();
            }
            else => future::pending().await,
        }
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
                self.loading.remove(stream);
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

    /// Starts a stream that this worker does not have; lets a prepared one begin.
    fn start(&mut self, stream: &Arc<str>, epoch: u64) {
        if let Some(held) = self.held.get_mut(stream) {
            if held.coming && !held.is_stopping(&self.work) {
                held.coming = false;
                self.loading.remove(stream);
                // If its task has ended, the stream is about to be removed.
                let _ = held.go.take().map(|go| go.send(epoch));
            }
            return;
        }
        let held = match &self.work {
            Work::Process(processes) => Self::run(&mut self.tasks, processes, stream, Some(epoch)),
            Work::Report(_) => {
                let loaded = Instant::now() + self.load_time;
                self.loading.entry(stream.clone()).or_insert(loaded);
                Held { begins: Some(epoch), ..Held::default() }
            }
            Work::Nothing => Held::default(),
        };
        self.held.insert(stream.clone(), held);
        self.begin();
    }

    /// Runs the process of a stream; without a token, it only loads.
    fn run(
        tasks: &mut JoinSet<Arc<str>>,
        processes: &Processes,
        stream: &Arc<str>,
        epoch: Option<u64>,
    ) -> Held {
        let process = processes.start(stream.clone(), epoch);
        let (stop, stopped) = oneshot::channel();
        let (go, begins) = oneshot::channel();
        let stream = stream.clone();
        tasks.spawn(async move {
            process.run(stopped, begins).await;
            stream
        });
        Held { stop: Some(stop), go: Some(go), coming: epoch.is_none(), begins: None }
    }

    /// As soon as no revoked stream is left, starts the new streams of the newest file, and then
    /// reports its version.
    fn settle(&mut self) {
        if let Some(share) = self.newest.get() {
            let wanted: BTreeSet<_> = share.streams.iter().collect();
            // A stream that is assigned again while it is stopping must stop before it runs again.
            // One that has only loaded has done nothing.
            let revoked = |(stream, held): (&Arc<str>, &Held)| {
                let wanted = wanted.contains(stream);
                if held.coming && !wanted { false } else { !wanted || held.is_stopping(&self.work) }
            };
            if !self.closed && !self.held.iter().any(revoked) {
                for stream in &share.streams {
                    let granted = self.granted.get(stream).copied();
                    self.start(stream, granted.unwrap_or(share.epoch));
                }
                if self.loaded != Some(share.version) {
                    tracing::info!(version = share.version, "reached");
                    self.loaded = Some(share.version);
                }
            }
            self.prepare(&share);
        }
        self.show();
    }

    /// Publishes the streams in the order of the file; those that are stopping come last.
    fn show(&self) {
        let newest = self.newest.get();
        let now = Instant::now();
        let is_ready = |stream: &&Arc<str>| self.loading.get(*stream).is_some_and(|at| *at <= now);
        let next = newest.iter().flat_map(|share| &share.next);
        let prepared = next.filter(is_ready).cloned().collect();
        let order = newest.iter().flat_map(|share| &share.streams);
        let runs = |stream: &Arc<str>| self.held.get(stream).is_some_and(|held| !held.coming);
        let mut streams: Vec<_> = order.filter(|stream| runs(stream)).cloned().collect();
        let wanted: BTreeSet<_> = streams.iter().cloned().collect();
        let others = self.held.keys().filter(|stream| runs(stream) && !wanted.contains(*stream));
        streams.extend(others.cloned());
        let prepared = self.prepare.then_some(prepared);
        self.status.show(streams, prepared, self.loaded.unwrap_or_default());
    }
}
