//! The remains of a ground whose process was killed, and their removal.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::network;
use crate::cluster::{guard, teardown};
use crate::process::is_alive;
use crate::workspace;

const PREFIX: &str = "bgp-";
/// Holds the pid of the process that a ground belongs to.
const OWNER: &str = "owner";

/// Returns the directory of a ground.
fn dir(id: &str) -> PathBuf {
    workspace::run().join(format!("{PREFIX}{id}"))
}

/// Makes the directory of a ground.
pub(super) fn create(id: &str) -> Result<PathBuf> {
    let dir = dir(id);
    fs::create_dir_all(dir.join("log"))?;
    fs::write(dir.join(OWNER), std::process::id().to_string())?;
    Ok(dir)
}

/// The ids of all grounds that have a directory.
fn ids() -> Vec<String> {
    let Ok(entries) = fs::read_dir(workspace::run()) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut ids: Vec<String> =
        names.filter_map(|name| name.strip_prefix(PREFIX).map(str::to_owned)).collect();
    ids.sort();
    ids
}

/// Ends a ground: processes by recorded pid and only if they carry its mark, then namespaces and
/// files.
pub(super) fn end(id: &str) -> Result<()> {
    let dir = dir(id);
    teardown::kill_all(&dir)?;
    network::delete(id)?;
    match fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Ends every ground whose owner is gone. Returns how many there were.
pub(crate) fn sweep() -> Result<usize> {
    let mut count = 0;
    for id in ids().into_iter().filter(|id| !is_owned(&dir(id))) {
        end(&id)?;
        count += 1;
    }
    Ok(count)
}

/// Reports whether the process that a ground belongs to runs; one that is being made has not said
/// yet whose it is.
fn is_owned(dir: &Path) -> bool {
    if let Ok(owner) = fs::read_to_string(dir.join(OWNER)) {
        return owner.trim().parse().is_ok_and(is_alive);
    }
    let changed = fs::metadata(dir).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|time| time.elapsed().is_ok_and(|age| age < Duration::from_mins(1)))
}

/// Returns what grounds have left on this machine; one that runs shows up whole.
pub(crate) fn leftovers() -> Vec<String> {
    let mut found = Vec::new();
    for id in ids() {
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
