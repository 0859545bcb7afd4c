//! The programs the lab runs: found where the user has them in the right version, else built once.

mod build;
mod catalog;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

pub(crate) use build::go;
use catalog::Tool;
pub use catalog::names;

use crate::workspace;

/// The programs of a control plane.
pub const CONTROL_PLANE: &[&str] =
    &["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// Finds a program, or builds it.
///
/// Looks in `LAB_BIN_DIR`, `KUBEBUILDER_ASSETS` and `PATH`, each only if it reports the pinned
/// version, then in the cache. Otherwise builds it into the cache.
///
/// # Errors
///
/// If the name is unknown, or the build fails (the error shows the end of its log).
pub fn ensure(name: &str) -> Result<PathBuf> {
    // Asking a program for its version takes longer than most of what it is then run for.
    static FOUND: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let found = || FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = found().get(name) {
        return Ok(path.clone());
    }
    let path = look_up(name)?;
    found().insert(name.to_owned(), path.clone());
    Ok(path)
}

fn look_up(name: &str) -> Result<PathBuf> {
    let tool = catalog::find(name)?;
    if let Some(path) = present(tool) {
        return Ok(path);
    }
    // One builder at a time, whatever the number of test processes; the others find the result.
    let _lock = lock("build")?;
    match cached(tool) {
        Some(path) => Ok(path),
        None => build::build(tool),
    }
}

/// Finds or builds several programs, and reports progress.
///
/// # Errors
///
/// As [`ensure`].
pub fn ensure_all(names: &[&str]) -> Result<Vec<PathBuf>> {
    let missing = names
        .iter()
        .filter_map(|name| catalog::find(name).ok())
        .filter(|tool| present(tool).is_none());
    let missing = missing.count();
    if missing > 0 {
        crate::progress(&format!(
            "{missing} of {} programs have to be built; this happens once",
            names.len()
        ));
    }
    names.iter().map(|name| ensure(name)).collect()
}

/// The same without blocking the caller's runtime: a first build takes minutes, and signals must be
/// heard meanwhile.
pub(crate) async fn prepare(names: &'static [&'static str]) -> Result<()> {
    tokio::task::spawn_blocking(|| ensure_all(names)).await?.map(drop)
}

fn present(tool: &Tool) -> Option<PathBuf> {
    offered()
        .into_iter()
        .map(|dir| dir.join(tool.name))
        .find(|path| is_right(tool, path))
        .or_else(|| cached(tool))
}

/// The directories in which a user may have put the programs; the cache itself is checked by its
/// stamps.
fn offered() -> Vec<PathBuf> {
    let single = ["LAB_BIN_DIR", "KUBEBUILDER_ASSETS"]
        .into_iter()
        .filter_map(std::env::var_os)
        .map(PathBuf::from);
    let path =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    single.chain(path.unwrap_or_default()).filter(|dir| *dir != workspace::bin()).collect()
}

/// Reports whether a program has the pinned version.
fn is_right(tool: &Tool, path: &Path) -> bool {
    path.is_file()
        && Command::new(path).args(tool.version_arguments).stdin(Stdio::null()).output().is_ok_and(
            |output| {
                let said = [output.stdout, output.stderr].concat();
                String::from_utf8_lossy(&said).contains(&tool.version_says())
            },
        )
}

/// Looks in the cache. A stamp beside the program saves starting it to ask.
fn cached(tool: &Tool) -> Option<PathBuf> {
    let path = workspace::bin().join(tool.name);
    let stamp = stamp(tool, &path)?;
    let file = stamp_file(tool);
    if fs::read_to_string(&file).is_ok_and(|text| text == stamp) {
        return Some(path);
    }
    is_right(tool, &path).then(|| {
        let _ = fs::write(&file, stamp);
        path
    })
}

fn stamp(tool: &Tool, path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let changed = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(format!("{} {} {}\n", tool.version_says(), metadata.len(), changed.as_nanos()))
}

fn stamp_file(tool: &Tool) -> PathBuf {
    workspace::bin().join(format!(".{}.version", tool.name))
}

/// Takes a lock shared by all processes of the lab; it is released when the file is dropped.
pub(crate) fn lock(name: &str) -> Result<fs::File> {
    let dir = workspace::state().join("cache");
    fs::create_dir_all(&dir)?;
    let path = dir.join(format!("{name}.lock"));
    let file = fs::File::options().create(true).truncate(false).write(true).open(&path)?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}
