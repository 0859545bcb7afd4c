//! Records tests that this machine cannot execute.

use std::io::Write;
use std::path::Path;

/// The variable with which nothing may be left out.
const NO_SKIPS: &str = "NO_SKIPS";

/// Records that a test, or a part of one, cannot be executed here; `hack/test` repeats these at its
/// end.
///
/// # Panics
///
/// If `NO_SKIPS` is set, or the record cannot be written.
pub fn left_out(what: &str) {
    assert!(std::env::var_os(NO_SKIPS).is_none(), "left out, though {NO_SKIPS} is set: {what}");
    eprintln!("LEFT OUT: {what}");
    let path = super::workspace::state().join("left-out");
    if let Err(error) = append(&path, what) {
        panic!("{}: {error}", path.display());
    }
}

/// Appends a line at once: several processes may do so.
fn append(path: &Path, line: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = std::fs::File::options().create(true).append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}
