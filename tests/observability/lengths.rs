//! Files are short enough to be read as a whole.
use crate::files::{below, name, read, root};

/// The most lines that a file of code has.
const MOST: usize = 400;

#[test]
fn no_file_of_code_is_longer_than_it_may_be() {
    let folders = ["src", "crates", "lab", "tests", "examples"];
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
