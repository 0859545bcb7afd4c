//! The remains of a ground whose process was killed, and their removal.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::network;
use crate::cluster::{guard, teardown};
use crate::workspace;

const PREFIX: &str = "bgp-";

/// Returns the directory of a ground.
fn dir(id: &str) -> PathBuf {
    workspace::run().join(format!("{PREFIX}{id}"))
}

/// Makes the directory of a ground.
pub(super) fn create(id: &str) -> Result<PathBuf> {
    workspace::own(&format!("{PREFIX}{id}"))
}

/// Ends a ground: processes by recorded pid and only if they carry its mark, then namespaces and
/// files.
pub(super) fn end(id: &str) -> Result<()> {
    let dir = dir(id);
    teardown::kill_all(&dir)?;
    network::delete(id)?;
    workspace::remove(&dir)
}

/// Ends every ground whose owner is gone. Returns how many there were.
pub(crate) fn sweep() -> Result<usize> {
    let mut count = 0;
    for id in workspace::runs(PREFIX).into_iter().filter(|id| !is_owned(&dir(id))) {
        end(&id)?;
        count += 1;
    }
    Ok(count)
}

/// Reports whether the process that a ground belongs to runs; one that is being made has not said
/// yet whose it is.
fn is_owned(dir: &Path) -> bool {
    workspace::is_owned(dir).unwrap_or_else(|| workspace::is_younger(dir, Duration::from_mins(1)))
}

/// Returns what grounds have left on this machine; one that runs shows up whole.
pub(crate) fn leftovers() -> Vec<String> {
    let mut found = Vec::new();
    for id in workspace::runs(PREFIX) {
        let dir = dir(&id);
        found.push(format!("directory {}", dir.display()));
        found.extend(teardown::marked_processes(&dir));
        let namespaces = network::existing(&id).into_iter();
        found.extend(namespaces.map(|name| format!("network namespace {name}")));
    }
    found
}

/// Runs the guard of a ground: waits for the end of its starter, then removes what is left.
pub(crate) fn run_guard(id: &str) -> Result<()> {
    guard::wait(&dir(id));
    end(id)
}
