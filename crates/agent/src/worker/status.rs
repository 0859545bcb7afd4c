//! The worker's reports about itself: the original's two pages, from which the operator learns what
//! runs.
use std::{
    fs::File,
    io::Read,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Context;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use serde::Serialize;
use tokio::sync::mpsc;
use traffic_operator_core::acknowledgement::{Grant, Key, Question, Statement};

use super::{Found, Metrics, Role, Share, share};
use crate::{
    file,
    server::{self, Limits, Site},
    tasks::Tasks,
};

/// Maximum number of bytes read from the key file: a key with a line break is shorter.
const LONGEST_KEY: u64 = 128;

/// The reported state; clones share it.
#[derive(Clone)]
pub struct Status {
    worker: Arc<str>,
    signer: Arc<Signer>,
    shown: Arc<Mutex<Shown>>,
    metrics: Metrics,
    grants: mpsc::Sender<Grant>,
}

/// The key and identity with which answers are signed.
#[derive(Clone, Debug, Default)]
pub struct Signer {
    /// The file with the key, beside the one with the shares. It is read for each answer: the
    /// kubelet may replace it.
    pub key: PathBuf,
    /// The UID of this pod; `None` if unknown, in which case answers are not signed.
    pub uid: Option<String>,
}

impl Signer {
    fn key(&self) -> Option<Key> {
        let mut text = String::new();
        File::open(&self.key).ok()?.take(LONGEST_KEY).read_to_string(&mut text).ok()?;
        Key::read(&text)
    }
}

#[derive(Default)]
struct Shown {
    streams: Vec<Arc<str>>,
    prepared: Option<Vec<Arc<str>>>,
    version: u64,
}

/// `GET /internal/version`: the original's, with the worker's name and, on request, a signature.
#[derive(Serialize)]
struct Says<'a> {
    jobs: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prepared: Option<Vec<&'a str>>,
    version: u64,
    worker: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
}

/// `GET /internal/health`, the original's. Its date is that of the build, which we do not reveal.
#[derive(Serialize)]
struct Health {
    version: &'static str,
    date: &'static str,
}

impl Status {
    /// Creates the status of a worker with version 0 and no streams.
    #[must_use]
    pub fn new(
        worker: Arc<str>,
        signer: Signer,
        metrics: Metrics,
        grants: mpsc::Sender<Grant>,
    ) -> Self {
        Self { worker, signer: Arc::new(signer), shown: Arc::default(), metrics, grants }
    }

    /// Reports from now on that these streams run, according to this version of the file, and which
    /// ones of those that will come are prepared; `None`: it prepares none.
    pub fn show(&self, streams: Vec<Arc<str>>, prepared: Option<Vec<Arc<str>>>, version: u64) {
        self.metrics.shows(streams.len(), prepared.as_ref().map_or(0, Vec::len), version);
        *self.shown() = Shown { streams, prepared, version };
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request; one for another pod, which had this address or name before, is answered
    /// but not signed.
    fn version(&self, query: &str) -> Response<Full<Bytes>> {
        let question = Question::read(query);
        let uid = self.signer.uid.as_deref();
        let own = question.as_ref().filter(|question| uid == Some(&*question.uid));
        let key = own.and_then(|_| self.signer.key());
        let grant = own
            .zip(key.as_ref())
            .and_then(|(question, key)| Grant::read(query, &question.uid, &self.worker, key));
        // A grant that is lost costs only time: the file follows.
        let _ = grant.map(|grant| self.grants.try_send(grant));
        let shown = self.shown();
        let jobs = names(&shown.streams);
        let prepared = shown.prepared.as_deref().map(names);
        let (version, worker) = (shown.version, &*self.worker);
        let signed = own.zip(key).map(|(question, key)| {
            (&*question.nonce, Statement { question, worker, version, jobs: &jobs }.sign(&key))
        });
        let (nonce, mac) = signed.unzip();
        let uid = uid.filter(|_| question.is_some());
        json(&Says { jobs, prepared, version, worker, uid, nonce, mac })
    }
}

impl Site for Status {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        match request.uri().path() {
            "/internal/version" => server::read_only(request, || {
                self.version(request.uri().query().unwrap_or_default())
            }),
            "/internal/health" => server::read_only(request, || {
                json(&Health { version: env!("CARGO_PKG_VERSION"), date: "" })
            }),
            "/metrics" => server::read_only(request, || {
                server::exposition(self.metrics.registry(), request.headers())
            }),
            path => server::other(path),
        }
    }
}

fn names(list: &[Arc<str>]) -> Vec<&str> {
    list.iter().map(AsRef::as_ref).collect()
}

fn json(page: &impl Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec(page) {
        Ok(text) => server::response(StatusCode::OK, "application/json", text),
        Err(error) => {
            let what = format!("cannot encode: {error}\n");
            server::text(StatusCode::INTERNAL_SERVER_ERROR, what)
        }
    }
}

/// Time between two checks of the file: the handover of a stream waits for it, and one `stat` costs
/// nothing.
const INTERVAL: Duration = Duration::from_millis(250);

/// The same while streams will come: the file that gives them is about to arrive.
const SOON: Duration = Duration::from_millis(25);

/// Grants that wait to be followed: the operator sends one per file.
const GRANTS: usize = 8;

/// Maximum number of connections: the operator, the kubelet's probes, some replicas of Prometheus,
/// and an occasional user. Connections are kept between requests, for as long as the original's
/// server keeps them.
const CONNECTIONS: Limits =
    Limits { connections: 64, of_one_source: 16, headers: Duration::from_secs(10) };

/// The file of a worker's streams, and the port of its reports.
#[derive(Clone, Debug)]
pub struct Place {
    /// Path of the file with the list.
    pub file: PathBuf,
    /// The name of the worker in the file.
    pub worker: String,
    /// The number of the part of a divided file, and the number of parts.
    pub part: Option<(u32, u32)>,
    /// Port on which it reports what runs.
    pub port: u16,
    /// Signs the reports.
    pub signer: Signer,
}

/// A place in use: its port answers, and its file is followed.
pub(crate) struct Taken {
    pub(crate) worker: Arc<str>,
    pub(crate) status: Status,
    pub(crate) metrics: Metrics,
    /// Results of the checks of the file.
    pub(crate) found: mpsc::Receiver<Found<Share>>,
    /// The operator's word on streams that a newer file gives to this worker.
    pub(crate) grants: mpsc::Receiver<Grant>,
    pub(crate) tasks: Tasks,
}

impl Place {
    /// Serves the port, and follows the file.
    pub(crate) async fn take(self, role: Role) -> anyhow::Result<Taken> {
        let metrics = Metrics::new(role);
        let worker: Arc<str> = self.worker.into();
        let (grant, grants) = mpsc::channel(GRANTS);
        let status = Status::new(worker.clone(), self.signer, metrics.clone(), grant);
        let port = self.port;
        let listener = server::listen(port)
            .await
            .with_context(|| format!("HTTP_PORT: cannot listen on TCP port {port}"))?;
        let http = listener.local_addr()?;
        tracing::info!(%worker, file = %self.file.display(), %http, "in a Swarm");
        let mut tasks = Tasks::default();
        tasks.start("server", server::serve(listener, status.clone(), CONNECTIONS));
        // One is enough: the next file waits until this one is taken.
        let (files, found) = mpsc::channel(1);
        let (name, part) = (worker.clone(), self.part);
        let comes = Arc::new(AtomicBool::new(false));
        let soon = comes.clone();
        let interval = move || if soon.load(Relaxed) { SOON } else { INTERVAL };
        let parse = move |text: &[u8]| {
            let share = share::parse(text, &name, part)?;
            comes.store(!share.next.is_empty(), Relaxed);
            Ok(share)
        };
        tasks.start("configuration file", file::watch(self.file, interval, parse, files));
        Ok(Taken { worker, status, metrics, found, grants, tasks })
    }
}
