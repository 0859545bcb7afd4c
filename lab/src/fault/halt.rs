//! A proxy whose client is killed at one request: the request gets as far as a test says, and
//! nothing after it reaches the server.

use anyhow::{Context, Result};
use axum::response::Response;
use serde_json::Value;

use super::upstream::Upstream;
use super::{Halt, Proxy, Shared};

impl Proxy {
    /// Returns the version of the store before the request that halted the proxy, once that request
    /// has got as far as it should; 0 before servers other than an API server.
    ///
    /// The test kills the client then, and starts it again behind another proxy.
    pub fn halted(&self) -> Option<u64> {
        self.shared.script().halted
    }

    /// Freezes the view at this version, as [`freeze`](Self::freeze) does at the present one.
    pub fn freeze_at(&self, version: u64) {
        self.shared.change(|script| script.frozen = Some(version));
    }
}

/// Lets a request get as far as its halt says.
pub(super) async fn pass(
    shared: &Shared,
    halt: Halt,
    number: usize,
    onward: impl Future<Output = Response>,
) -> Response {
    let version = version(shared).await.unwrap_or_default();
    let answer = if halt == Halt::Before { None } else { Some(onward.await) };
    if let Some(answer) = &answer {
        shared.answered(number, answer.status().as_u16());
    }
    shared.change(|script| script.halted = Some(version));
    match answer {
        Some(answer) if halt == Halt::Answered => answer,
        _ => std::future::pending().await,
    }
}

/// Returns the present version of an API server's store.
pub(super) async fn version(shared: &Shared) -> Result<u64> {
    let Upstream::Kubernetes(client) = &shared.upstream else {
        anyhow::bail!("only the view of an API server can be frozen");
    };
    // The version of every list is that of the whole store.
    let request = http::Request::get("/api/v1/nodes?limit=1").body(Vec::new())?;
    let list: Value = client.request(request).await?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a list's version")?;
    version.parse::<u64>().context("a list's version")
}
