//! Files are short enough to be read as a whole.
use crate::files::{below, name, read, root};

/// Maximum number of lines of a code file.
const MOST: usize = 400;

/// Maximum number of lines of the README: longer texts belong in `docs/`.
const MOST_OF_README: usize = 200;

#[test]
fn the_readme_is_short() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= MOST_OF_README, "README.md has {lines} lines");
}

#[test]
fn no_file_of_code_is_longer_than_it_may_be() {
    let folders = ["src", "crates", "lab", "tests", "bench"];
    let files: Vec<_> =
        folders.iter().flat_map(|folder| below(&root().join(folder), &["rs"])).collect();
    assert!(files.len() > 500, "{} files", files.len());
    let long: Vec<_> = files
        .iter()
        .map(|file| (name(file), read(file).lines().count()))
        .filter(|(_, lines)| *lines > MOST)
        .map(|(name, lines)| format!("{name}: {lines} lines"))
        .collect();
    assert!(long.is_empty(), "divide what is above {MOST} lines:\n{}", long.join("\n"));
}
