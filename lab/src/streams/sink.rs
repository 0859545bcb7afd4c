//! The server that takes the reports.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::{Router, routing};

use super::ledger::Ledger;
use super::report::Report;
use crate::wait::{Task, lock};

/// A worker that was cut off reports up to ten thousand intervals at once, each of a few hundred
/// bytes at most.
const LONGEST_REPORT: usize = 8 * 1024 * 1024;

/// Takes reports and keeps them; dropping it ends it.
#[derive(Debug)]
pub struct Sink {
    ledger: Arc<Mutex<Ledger>>,
    address: SocketAddr,
    _server: Task,
}

impl Sink {
    /// Listens on a free port of the loopback device, for workers in the caller's network
    /// namespace.
    pub fn on_loopback() -> Result<Self> {
        Self::serve(TcpListener::bind(("127.0.0.1", 0)).context("listening on loopback")?)
    }

    /// Serves a socket, in whichever network namespace it was made.
    pub fn serve(listener: TcpListener) -> Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let router = Router::new()
            .fallback(routing::post(take))
            .layer(DefaultBodyLimit::max(LONGEST_REPORT))
            .with_state(Arc::clone(&ledger));
        let server = Task::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { ledger, address, _server: server })
    }

    pub fn url(&self) -> String {
        format!("http://{}/report", self.address)
    }

    /// Returns the ledger of the reports so far. Further reports wait for it, so do not hold it for
    /// long.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }
}

async fn take(State(ledger): State<Arc<Mutex<Ledger>>>, body: Bytes) -> (StatusCode, String) {
    match serde_json::from_slice::<Report>(&body) {
        Ok(report) => {
            lock(&ledger).enter(&report);
            (StatusCode::NO_CONTENT, String::new())
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("no report: {error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::streams::Stretch;

    async fn post(sink: &Sink, body: String) -> reqwest::StatusCode {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        client.post(sink.url()).body(body).send().await.unwrap().status()
    }

    #[tokio::test]
    async fn what_workers_post_is_in_the_ledger() {
        let sink = Sink::on_loopback().unwrap();
        let interval = |from: u64, to: u64| {
            let interval = json!({"stream": "stream:xxrtve1", "epoch": 12, "from": from, "to": to});
            json!({"worker": "swarm-worker-0", "pod": "a-b", "intervals": [interval]}).to_string()
        };
        assert_eq!(post(&sink, interval(100, 300)).await, 204);
        assert_eq!(post(&sink, interval(300, 500)).await, 204);
        let ledger = sink.ledger();
        assert_eq!((ledger.reports(), ledger.runs("stream:xxrtve1").len()), (2, 1));
        assert_eq!(ledger.runs("stream:xxrtve1")[0].time, Stretch::new(100, 500));
    }
}
