//! Takes a cluster, or another set of namespaces, down when the process that started it is killed.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::{state, teardown};
use crate::process::MARK;

pub(crate) const PID_FILE: &str = "guard.pid";

/// Starts the guard of the run in directory `dir`. It waits for the end of its standard input,
/// whose other end only this process holds: the kernel closes it however this process ends.
pub(crate) fn start(program: &Path, dir: &Path, arguments: &[&str]) -> Result<Child> {
    use std::os::unix::process::CommandExt;
    let log = fs::File::create(dir.join("log/guard.log"))?;
    let guard = Command::new(program)
        .args(arguments)
        .env(MARK, dir)
        .stdin(Stdio::piped())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Ctrl-C must not reach it: that is when it is needed.
        .process_group(0)
        .spawn()
        .context("starting the guard")?;
    fs::write(dir.join(PID_FILE), guard.id().to_string())?;
    Ok(guard)
}

/// Runs the guard: waits, then removes what is left.
pub fn run(id: &str) -> Result<()> {
    wait(&state::dir(id));
    if state::read(id).is_some_and(|state| state.keep) {
        return Ok(());
    }
    teardown::teardown(id)
}

/// Waits until the process that started the guard of the run in directory `dir` is gone.
pub(crate) fn wait(dir: &Path) {
    // Nothing is ever written: this returns at the end of the input.
    let _ = std::io::stdin().read(&mut [0]);
    // Its own pid is recorded like the others: it must not be killed by itself.
    let _ = fs::remove_file(dir.join(PID_FILE));
}

/// Keeps the logs of a cluster that is taken down because something failed.
pub(crate) fn save_logs(dir: &Path) {
    let (Some(run), Some(name)) = (dir.parent(), dir.file_name()) else { return };
    let kept = run.join(format!("logs-{}", name.to_string_lossy()));
    if fs::rename(dir.join("log"), &kept).is_ok() {
        crate::progress(&format!("the cluster's logs are kept in {}", kept.display()));
    }
}
