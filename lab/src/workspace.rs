//! The locations of files: the workspace root and the ignored `.lab` directory below it.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::is_alive;

/// Returns the root of the workspace this lab belongs to.
///
/// Looks upwards from the current directory first, so that a binary built in one clone serves
/// another; falls back to the directory it was compiled in.
pub fn root() -> PathBuf {
    let compiled = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"));
    std::env::current_dir()
        .ok()
        .and_then(|cwd| cwd.ancestors().find(|dir| is_root(dir)).map(Path::to_path_buf))
        .unwrap_or_else(|| compiled.to_path_buf())
}

fn is_root(dir: &Path) -> bool {
    dir.join("lab/tools").is_dir()
        && std::fs::read_to_string(dir.join("Cargo.toml"))
            .is_ok_and(|text| text.contains("[workspace]"))
}

/// Returns `.lab`, which holds everything the lab writes.
pub fn state() -> PathBuf {
    root().join(".lab")
}

/// Returns the directory of built binaries.
pub fn bin() -> PathBuf {
    state().join("cache/bin")
}

/// Returns the directory of what is running now: one subdirectory per control plane or cluster.
pub fn run() -> PathBuf {
    state().join("run")
}

/// Returns a name that no other run has: eight hexadecimal digits.
pub fn unique() -> String {
    format!("{:08x}", random())
}

/// A random number.
pub(crate) fn random() -> u32 {
    // The standard library seeds this from the system's randomness, differently for every call.
    let [.., a, b, c, d] = RandomState::new().hash_one(()).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// A random number from 0 up to 1.
pub(crate) fn share() -> f64 {
    f64::from(random()) / (f64::from(u32::MAX) + 1.0)
}

/// Writes a file so that nobody ever reads half of it.
pub(crate) fn write_whole(path: &Path, text: &[u8]) -> Result<()> {
    let partial = path.with_extension("partial");
    let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, path));
    written.with_context(|| format!("writing {}", path.display()))
}

/// Reads a file.
pub fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// Removes a directory, as far as it exists.
pub(crate) fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Holds the pid of the process that a run belongs to.
const OWNER: &str = "owner";

/// Makes the directory of a run that belongs to this process.
pub(crate) fn own(name: &str) -> Result<PathBuf> {
    let dir = run().join(name);
    fs::create_dir_all(dir.join("log"))?;
    fs::write(dir.join(OWNER), std::process::id().to_string())?;
    Ok(dir)
}

/// Reports whether the process that a run belongs to runs, if the run has said whose it is.
pub(crate) fn is_owned(dir: &Path) -> Option<bool> {
    let owner = fs::read_to_string(dir.join(OWNER)).ok()?;
    Some(owner.trim().parse().is_ok_and(is_alive))
}

/// Reports whether a file or directory was changed within some time.
pub(crate) fn is_younger(path: &Path, than: Duration) -> bool {
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|time| time.elapsed().is_ok_and(|age| age < than))
}

/// Returns the ends of the names of all runs whose names begin like this.
pub(crate) fn runs(beginning: &str) -> Vec<String> {
    let entries = fs::read_dir(run()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut ends: Vec<String> =
        names.filter_map(|name| name.strip_prefix(beginning).map(str::to_owned)).collect();
    ends.sort();
    ends
}
