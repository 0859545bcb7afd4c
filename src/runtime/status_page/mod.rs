//! The status page, and the JSON that it shows: which nodes are fit, and why.
//!
//! Everything is in the binary and read-only. Names come from the API server, so the page writes
//! text and never markup, and its policy lets the browser run and load nothing else.
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Router,
    extract::{RawQuery, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use k8s_openapi::jiff::Timestamp;

use crate::{
    prometheus::Exporters,
    traffic_watch::{
        self, Memories,
        overview::{Filter, Overview},
    },
};

mod probers;

pub use probers::{PROBERS_PATH, router as probers_router};

/// Path of the state.
pub const STATE_PATH: &str = "/api/v1/trafficwatches";

const PAGE: &str = include_str!("index.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const SHARED: &str = include_str!("shared.js");

/// Allows only our own files; no other site may frame the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

/// A source of the state.
pub trait StateSource: Send + Sync + 'static {
    /// Returns the current state, filtered.
    fn view(&self, filter: &Filter) -> Overview;
}

/// This process: a follower until [`Self::lead`] is called.
#[derive(Debug)]
pub struct Live {
    identity: String,
    started: Timestamp,
    exporters: Exporters,
    memories: Memories,
    leads: AtomicBool,
}

impl Live {
    /// Creates the state of a replica that starts now, with these exporters.
    #[must_use]
    pub fn new(identity: String, exporters: Exporters, memories: Memories) -> Self {
        let leads = AtomicBool::new(false);
        Self { identity, started: Timestamp::now(), exporters, memories, leads }
    }

    /// Marks this replica as the leader, until the process ends.
    pub fn lead(&self) {
        self.leads.store(true, Ordering::Relaxed);
    }

    /// Reports whether this replica leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }
}

impl StateSource for Live {
    fn view(&self, filter: &Filter) -> Overview {
        Overview {
            leader: self.leads(),
            identity: self.identity.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now: Timestamp::now(),
            started: self.started,
            watches: traffic_watch::watches(&self.memories, filter, &self.exporters),
        }
    }
}

/// The routes `/`, `/page.css`, `/shared.js`, `/page.js` and [`STATE_PATH`].
pub fn router(source: Arc<dyn StateSource>) -> Router {
    Router::new()
        .route("/", get(async || file("text/html; charset=utf-8", PAGE)))
        .route("/page.css", get(async || file("text/css; charset=utf-8", STYLE)))
        .route("/shared.js", get(async || file("text/javascript; charset=utf-8", SHARED)))
        .route("/page.js", get(async || file("text/javascript; charset=utf-8", SCRIPT)))
        .route(STATE_PATH, get(state).with_state(source))
}

async fn state(State(source): State<Arc<dyn StateSource>>, RawQuery(query): RawQuery) -> Response {
    match Filter::parse(query.as_deref().unwrap_or_default()) {
        Ok(filter) => match serde_json::to_vec(&source.view(&filter)) {
            Ok(text) => answer(StatusCode::OK, "application/json", text),
            Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("state: {error}")),
        },
        Err(error) => refusal(StatusCode::BAD_REQUEST, &error),
    }
}

fn file(kind: &'static str, text: &'static str) -> Response {
    answer(StatusCode::OK, kind, text)
}

fn refusal(status: StatusCode, why: &str) -> Response {
    answer(status, "text/plain; charset=utf-8", format!("{why}\n"))
}

fn answer(status: StatusCode, kind: &'static str, body: impl IntoResponse) -> Response {
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(kind))];
    (status, safety(), kind, body).into_response()
}

/// Returns the headers; `no-store`, because after an update of the operator the files must match.
fn safety() -> [(HeaderName, HeaderValue); 4] {
    [
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ]
}
