//! Arrows between the modules of the operator lead downwards, which the compiler does not check.
use crate::files::{below, name, read, root};

/// Parts that stand above the kinds and all that kinds share: nothing below imports them.
const ABOVE: [&str; 3] = ["cli", "inspect", "runtime"];

/// Returns the names in the paths that code imports from its crate, or names in full.
fn imported(code: &str) -> impl Iterator<Item = &str> {
    code.split("crate::").skip(1).flat_map(|rest| {
        let end = if rest.starts_with('{') { rest.find(';') } else { rest.find("::") };
        let path = &rest[..end.unwrap_or(rest.len())];
        path.split(|c: char| !c.is_alphanumeric() && c != '_')
    })
}

#[test]
fn no_part_imports_one_above_it() {
    let mut files = below(&root().join("src"), &["rs"]);
    // The last two are about the whole of the operator.
    let free = ["main.rs", "manifests", "simulation"];
    let free = ABOVE.iter().chain(&free).map(|part| format!("src/{part}")).collect::<Vec<_>>();
    files.retain(|file| !free.iter().any(|free| name(file).starts_with(free)));
    assert!(files.len() > 300, "{}", files.len());
    for file in files {
        let text = read(&file);
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code = code.collect::<Vec<_>>().join("\n");
        let wrong: Vec<_> = imported(&code).filter(|word| ABOVE.contains(word)).collect();
        assert!(wrong.is_empty(), "{} imports {wrong:?}", name(&file));
    }
}
