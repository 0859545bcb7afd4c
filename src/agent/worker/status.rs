//! What a worker says of itself: the original's two pages, by which the operator knows what runs.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use serde::Serialize;

use super::metrics::Metrics;
use crate::agent::server::{self, Site};

/// What is reported; clones share it.
#[derive(Clone)]
pub struct Status {
    worker: Arc<str>,
    shown: Arc<Mutex<Shown>>,
    metrics: Metrics,
}

#[derive(Default)]
struct Shown {
    streams: Vec<Arc<str>>,
    version: u64,
}

/// `GET /internal/version`, the original's with the worker's name.
#[derive(Serialize)]
struct Says<'a> {
    jobs: Vec<&'a str>,
    version: u64,
    worker: &'a str,
}

/// `GET /internal/health`, the original's. Its date is that of the build, which we do not tell.
#[derive(Serialize)]
struct Health {
    version: &'static str,
    date: &'static str,
}

impl Status {
    /// Version 0 and no streams.
    #[must_use]
    pub fn new(worker: Arc<str>, metrics: Metrics) -> Self {
        Self { worker, shown: Arc::default(), metrics }
    }

    /// Says from now on that these streams run, by this version of the file.
    pub fn show(&self, streams: Vec<Arc<str>>, version: u64) {
        self.metrics.shows(streams.len(), version);
        *self.shown() = Shown { streams, version };
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn version(&self) -> Response<Full<Bytes>> {
        let shown = self.shown();
        let jobs = shown.streams.iter().map(AsRef::as_ref).collect();
        json(&Says { jobs, version: shown.version, worker: &self.worker })
    }
}

impl Site for Status {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        match request.uri().path() {
            "/internal/version" => server::read_only(request, || self.version()),
            "/internal/health" => server::read_only(request, || {
                json(&Health { version: env!("CARGO_PKG_VERSION"), date: "" })
            }),
            "/metrics" => server::read_only(request, || {
                server::exposition::page(self.metrics.registry(), request.headers())
            }),
            path => server::other(path),
        }
    }
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
