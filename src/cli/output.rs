//! Standard output, which a reader may close early: `| head` is not an error.
use std::io::{self, ErrorKind, Write};

use anyhow::Context;
use serde::Serialize;

/// Writes text unchanged.
pub(super) fn text(text: &str) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

/// Writes one JSON document.
pub(super) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(value).context("JSON")?;
    text(&format!("{json}\n"))
}

/// Runs a command that waits for the network; it needs one thread only.
pub(super) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("async runtime")?.block_on(command)
}
