//! The parts of names by which scripts and workflows select tests: one that no test has any more
//! selects nothing, and nobody sees it.
use crate::files::{below, name, read, root};
use std::{fs, path::Path};

/// Returns the path of every test, as the harness writes it without the name of its binary.
fn tests() -> Vec<String> {
    let mut all = Vec::new();
    let suites = ["tests", "src", "lab/src", "crates"].map(|dir| below(&root().join(dir), &["rs"]));
    for file in suites.concat() {
        let module = module(&name(&file));
        let text = read(&file);
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let declared = line.trim_start_matches("async ").strip_prefix("fn ");
            if let (true, Some((function, _))) = (is_test, declared.and_then(|d| d.split_once('(')))
            {
                all.push(format!("{module}::{function}"));
                is_test = false;
            }
        }
    }
    all
}

/// Returns the path of every scenario: a list for each group, and what stands beside them.
fn scenarios() -> Vec<String> {
    let mut all = Vec::new();
    let mut group = None;
    for line in read(&root().join("tests/cluster/scenarios.rs")).lines().map(str::trim) {
        if let Some(name) = line.strip_suffix(": [") {
            group = Some(name.to_owned());
        } else if line == "]," {
            group = None;
        } else if let (Some(group), Some(scenario)) = (&group, line.strip_suffix(',')) {
            all.push(format!("{group}::{scenario}"));
        }
    }
    let main = read(&root().join("tests/cluster/main.rs"));
    let texts = main.split('"').skip(1).step_by(2).filter(|text| text.contains("::"));
    all.extend(texts.map(str::to_owned));
    all
}

/// Returns the module of a file: `tests/reconcile/swarm/parts.rs` is `swarm::parts`.
fn module(file: &str) -> String {
    let within = file.split_once("src/").map(|(_, path)| path);
    let within = within.or_else(|| file.strip_prefix("tests/")?.split_once('/').map(|(_, p)| p));
    let path = within.unwrap_or(file).trim_end_matches(".rs").trim_end_matches("/mod");
    path.replace('/', "::")
}

/// Returns the words of a script that can only be parts of the names of tests.
fn selections(script: &str) -> impl Iterator<Item = &str> {
    let lines = script.lines().filter(|line| !line.trim_start().starts_with('#'));
    let separates = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c));
    let words = lines.flat_map(move |line| line.split(separates));
    words.filter(|word| {
        let is_path = word.contains("::") && word.contains(|c: char| c.is_ascii_lowercase());
        is_path || word.matches('_').count() > 3
    })
}

#[test]
fn what_scripts_select_exists() {
    let tests = [tests(), scenarios()].concat();
    assert!(tests.len() > 1000, "{}", tests.len());
    let mut scripts = below(&root().join(".github"), &["yaml", "yml"]);
    scripts.push(root().join("Makefile"));
    let hack = fs::read_dir(root().join("hack")).expect("hack");
    scripts.extend(hack.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file()));
    let (mut count, mut missing) = (0, Vec::new());
    for script in scripts {
        for word in selections(&read(&script)) {
            count += 1;
            if !tests.iter().any(|test| test.contains(word)) {
                missing.push(format!("{}: {word}", name(&script)));
            }
        }
    }
    assert!(count > 40, "{count}");
    assert!(missing.is_empty(), "no test has these names:\n{}", missing.join("\n"));
}

#[test]
fn modules_are_named_by_their_files() {
    for (file, expected) in [
        ("tests/reconcile/swarm/parts.rs", "swarm::parts"),
        ("src/simulation/tests.rs", "simulation::tests"),
        ("crates/core/src/handover/mod.rs", "handover"),
    ] {
        assert_eq!(module(file), expected);
        assert!(Path::new(&root().join(file)).exists(), "{file}");
    }
}
