//! Taking clusters down from their files on disk, whichever process started them, and finding
//! leftovers.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{cgroups, network, state, sysctls};
use crate::process::{is_alive, is_marked, kill_recorded};
use crate::workspace;

/// Takes a cluster down: processes by recorded pid and only if they carry its mark, then
/// namespaces, cgroups, machine-wide settings and files.
pub(super) fn teardown(id: &str) -> Result<()> {
    let dir = state::dir(id);
    kill_all(&dir)?;
    network::delete(id)?;
    cgroups::delete(id)?;
    if state::ids().iter().all(|other| other == id) {
        sysctls::restore()?;
    }
    let mounts = mounts_below(&dir);
    if !mounts.is_empty() {
        bail!(
            "not removing {}: something is still mounted in it: {}",
            dir.display(),
            mounts.join(", ")
        );
    }
    workspace::remove(&dir)
}

/// Takes down every cluster whose starter is gone and that was not meant to stay; with `kept`,
/// those too.
///
/// Returns how many there were.
pub(crate) fn teardown_leftovers(kept: bool) -> Result<usize> {
    let mut count = 0;
    for id in state::ids() {
        let spared = match state::read(&id) {
            Some(state) if state.keep => !kept,
            Some(state) => is_alive(state.starter),
            // It is being made, or its starter was killed before it could write anything.
            None => workspace::is_younger(&state::dir(&id), Duration::from_mins(1)),
        };
        if spared {
            continue;
        }
        teardown(&id)?;
        count += 1;
    }
    Ok(count)
}

/// Kills every process recorded in a run's directory.
///
/// Nodes go with the process that holds their pid namespace. The ones that started others go first,
/// so that nothing is started again meanwhile.
pub(crate) fn kill_all(dir: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "pid"));
    files.sort();
    files.reverse();
    for file in files {
        if let Some(pid) = recorded(&file) {
            kill_recorded(pid, dir).with_context(|| format!("ending {}", file.display()))?;
        }
        let _ = fs::remove_file(&file);
    }
    Ok(())
}

pub(super) fn recorded(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn mounts_below(dir: &Path) -> Vec<String> {
    let prefix = format!("{}/", dir.display());
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // The fifth column is the mount point.
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| point.starts_with(&prefix)).map(str::to_owned).collect()
}

/// Returns what clusters have left on this machine: processes, network namespaces, cgroups, mounts,
/// directories.
///
/// Empty after a clean end. A cluster that runs shows up whole.
pub fn leftovers() -> Vec<String> {
    let run = workspace::run();
    let mut found = Vec::new();
    for id in state::ids() {
        let dir = state::dir(&id);
        found.push(format!("directory {}", dir.display()));
        found.extend(marked_processes(&dir));
        found.extend(mounts_below(&dir).into_iter().map(|point| format!("mount {point}")));
        found.extend(
            network::existing(&id).into_iter().map(|name| format!("network namespace {name}")),
        );
        found.extend(
            cgroups::existing(&id).into_iter().map(|path| format!("cgroup {}", path.display())),
        );
    }
    if run.join("sysctls.json").exists() {
        found.push("machine-wide settings not put back".to_owned());
    }
    found
}

/// Lists the processes that carry a run's mark.
pub(crate) fn marked_processes(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| is_marked(*pid, dir))
        .map(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({})", name.trim())
        })
        .collect()
}
