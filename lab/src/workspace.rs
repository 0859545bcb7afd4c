//! The locations of files: the workspace root and the ignored `.lab` directory below it.

use std::path::{Path, PathBuf};

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
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds this from the system's randomness, differently for every call.
    let random = std::hash::RandomState::new().build_hasher().finish();
    format!("{:08x}", random & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_holds_the_tools() {
        assert!(root().join("lab/tools/go.mod").is_file());
    }

    #[test]
    fn unique_names_differ() {
        assert_ne!(unique(), unique());
        assert_eq!(unique().len(), 8);
    }
}
