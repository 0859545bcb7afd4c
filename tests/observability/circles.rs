//! Files that import each other can only be read together, so none do.
//!
//! A module and its submodules belong together: what they import from each other does not count.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::files::{below, name, read, root};

/// The sources of each crate, and its name in paths.
const CRATES: [(&str, &str); 4] = [
    ("src", "traffic_operator"),
    ("crates/agent/src", "traffic_operator_agent"),
    ("crates/core/src", "traffic_operator_core"),
    ("lab/src", "lab"),
];

/// The path of a module, the name of its crate first.
type Module = Vec<String>;

/// Returns the module of a source, or `None` for a program or for tests.
fn module(dir: &Path, file: &Path, of_crate: &str) -> Option<Module> {
    let path = file.strip_prefix(dir).ok()?.with_extension("");
    let mut module = vec![of_crate.to_owned()];
    module.extend(path.iter().map(|part| part.to_string_lossy().into_owned()));
    if module.iter().any(|part| part == "tests") {
        return None;
    }
    match module.last()?.as_str() {
        "main" => return None,
        "lib" | "mod" => drop(module.pop()),
        _ => {}
    }
    Some(module)
}

/// Adds the paths of a tree like `a::{b, c::d}` at the beginning of a text without spaces, each
/// after this prefix. Returns what follows it.
fn expand<'a>(mut text: &'a str, prefix: &[String], paths: &mut Vec<Vec<String>>) -> &'a str {
    let mut path = prefix.to_vec();
    loop {
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let end = text.find(|letter| !is_word(letter)).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        path.push(word.to_owned());
        let Some(rest) = rest.strip_prefix("::") else {
            paths.push(path);
            // A glob, or the name that an import gets here.
            let ends = |letter| ",};".contains(letter);
            return match rest.strip_prefix('*').or_else(|| rest.strip_prefix(" as ")) {
                Some(rest) => &rest[rest.find(ends).unwrap_or(rest.len())..],
                None => rest,
            };
        };
        text = rest;
        let Some(mut group) = text.strip_prefix('{') else { continue };
        loop {
            group = expand(group, &path, paths);
            match group.strip_prefix(',') {
                Some(rest) if !rest.starts_with('}') => group = rest,
                Some(rest) => return rest.strip_prefix('}').unwrap_or(rest),
                None => return group.strip_prefix('}').unwrap_or(group),
            }
        }
    }
}

/// Returns the modules that a source names, as far as they are in this workspace.
fn imports(source: &str, of: &Module) -> Vec<Module> {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = code.collect::<Vec<_>>().join("\n");
    // Names of imports do not matter.
    let mut dense = String::new();
    for word in code.split_whitespace() {
        dense.push_str(word);
        // Keeps words apart that are no path.
        if word.chars().next_back().is_some_and(char::is_alphanumeric) {
            dense.push(' ');
        }
    }
    let dense = dense.replace(" ,", ",").replace(" }", "}");
    let mut paths = Vec::new();
    let firsts = ["crate", "super", "self"].into_iter().chain(CRATES.map(|(_, name)| name));
    for first in firsts {
        for (at, _) in dense.match_indices(&format!("{first}::")) {
            let before = dense[..at].chars().next_back();
            if before.is_none_or(|letter| !letter.is_alphanumeric() && !"_:".contains(letter)) {
                expand(&dense[at..], &[], &mut paths);
            }
        }
    }
    let resolved = paths.into_iter().map(|path| {
        let mut module = of.clone();
        for (at, part) in path.into_iter().enumerate() {
            match part.as_str() {
                "crate" => module.truncate(1),
                "super" => drop(module.pop()),
                "self" => {}
                _ if at == 0 => module = vec![part],
                _ => module.push(part),
            }
        }
        module
    });
    resolved.collect()
}

/// The files that each file imports.
fn graph() -> BTreeMap<String, BTreeSet<String>> {
    let mut files = BTreeMap::new();
    for (dir, of_crate) in CRATES {
        let dir = root().join(dir);
        for file in below(&dir, &["rs"]) {
            if let Some(module) = module(&dir, &file, of_crate) {
                files.insert(module, file);
            }
        }
    }
    let mut graph = BTreeMap::new();
    for (module, file) in &files {
        let found = imports(&read(file), module).into_iter().filter_map(|path| {
            let mut target = (1..=path.len()).rev().map(|len| path[..len].to_vec());
            let (target, file) = target.find_map(|path| files.get_key_value(&path))?;
            let related = target.starts_with(module) || module.starts_with(target);
            (!related).then(|| name(file))
        });
        graph.insert(name(file), found.collect());
    }
    graph
}

/// Returns the files of one circle, if there is one.
fn circle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk<'a>(
        graph: &'a BTreeMap<String, BTreeSet<String>>,
        path: &mut Vec<&'a String>,
        done: &mut BTreeSet<&'a String>,
    ) -> Option<Vec<String>> {
        let last = *path.last()?;
        for next in graph.get(last).into_iter().flatten() {
            if let Some(begin) = path.iter().position(|file| *file == next) {
                return Some(path[begin..].iter().map(|file| (*file).clone()).collect());
            }
            if !done.contains(next) {
                path.push(next);
                if let Some(circle) = walk(graph, path, done) {
                    return Some(circle);
                }
                path.pop();
            }
        }
        done.insert(last);
        None
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|file| walk(graph, &mut vec![file], &mut done))
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let graph = graph();
    let circle = circle(&graph).unwrap_or_default();
    assert!(circle.is_empty(), "each imports the next one: {circle:#?}");
    // Imports are found at all.
    let driver = &graph["src/runtime/mod.rs"];
    assert!(driver.contains("src/swarm/mod.rs"), "{driver:?}");
}

#[test]
fn a_circle_is_found() {
    let of = vec!["lab".to_owned(), "a".to_owned(), "b".to_owned()];
    let source = "use super::{\n c::{D, e as f},\n g,\n};\nfn x() { crate::h::i() }\n// crate::j\n";
    let found: BTreeSet<_> =
        imports(source, &of).into_iter().map(|module| module.join("::")).collect();
    let expected = ["lab::a::c::D", "lab::a::c::e", "lab::a::g", "lab::h::i"];
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    let edges = [("x", "a"), ("a", "b"), ("b", "c"), ("c", "a")];
    let graph = edges.map(|(from, to)| (from.to_owned(), BTreeSet::from([to.to_owned()])));
    assert_eq!(circle(&graph.clone().into()).unwrap(), ["a", "b", "c"]);
    assert_eq!(circle(&graph.into_iter().take(3).collect()), None);
}
