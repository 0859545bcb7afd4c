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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_one_line_and_none_replaces_another() {
        let folder = super::super::workspace::run().join(super::super::workspace::unique());
        let path = folder.join("left-out");
        append(&path, "one needs root").unwrap();
        append(&path, "two needs root").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one needs root\ntwo needs root\n");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
