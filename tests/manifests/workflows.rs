//! The GitHub workflows: a linter passes them, they call only existing programs, and each job has
//! no more rights than it needs.
use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::rendering::{read, root, scratch, tool};

type Rights = &'static [(&'static str, &'static str)];

/// The rights of each job.
const RIGHTS: [(&str, &str, Rights); 6] = [
    ("ci.yml", "check", &[("contents", "read")]),
    ("nightly.yml", "campaigns", &[("contents", "read")]),
    ("release.yml", "check", &[("contents", "read")]),
    ("release.yml", "build", &[("contents", "read")]),
    (
        "release.yml",
        "push",
        &[("packages", "write"), ("id-token", "write"), ("attestations", "write")],
    ),
    (
        "release.yml",
        "publish",
        &[("contents", "write"), ("id-token", "write"), ("attestations", "write")],
    ),
];

fn path(name: &str) -> PathBuf {
    root().join(".github/workflows").join(name)
}

/// Returns the workflows by file name.
fn workflows() -> BTreeMap<String, Value> {
    let entries = std::fs::read_dir(path("")).expect("workflows");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let each = names.map(|name| {
        let name = name.to_string_lossy().into_owned();
        let workflow = serde_yaml::from_str(&read(&path(&name))).expect("YAML");
        (name, workflow)
    });
    each.collect()
}

fn jobs(workflow: &Value) -> impl Iterator<Item = (&String, &Value)> {
    workflow["jobs"].as_object().expect("jobs").iter()
}

fn steps(workflow: &Value) -> impl Iterator<Item = &Value> {
    jobs(workflow).flat_map(|(_, job)| job["steps"].as_array().into_iter().flatten())
}

/// Runs the linter and returns its complaints, one a line.
fn complaints(file: &Path) -> String {
    let mut command = Command::new(tool("actionlint"));
    // Optional programs of the machine must not change the result.
    command.args(["-no-color", "-oneline", "-shellcheck=", "-pyflakes="]).arg(file);
    let output = command.output().expect("actionlint");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr);
    // 1 means that there are complaints; anything else means that the linter did not run.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}{failed}");
    assert_eq!(output.status.success(), said.is_empty(), "{said}{failed}");
    said
}

#[test]
fn the_linter_of_workflows_has_no_complaint() {
    for name in workflows().keys() {
        let said = complaints(&path(name));
        assert!(said.is_empty(), "{said}");
    }
    // The linter is effective: it finds a job that does not exist.
    let text = read(&path("release.yml"));
    let broken = text.replace("needs: check", "needs: chek");
    assert_ne!(text, broken);
    let file = scratch("workflow").join("release.yml");
    std::fs::write(&file, broken).expect("a file");
    let said = complaints(&file);
    assert!(said.contains("chek"), "{said}");
}

fn assert_program(name: &str, by: &str) {
    let metadata = std::fs::metadata(root().join(name));
    let metadata = metadata.unwrap_or_else(|error| panic!("{by} calls {name}: {error}"));
    assert!(metadata.permissions().mode() & 0o111 != 0, "{by} calls {name}, not a program");
}

#[test]
fn every_script_and_target_that_a_workflow_calls_exists() {
    let makefile = read(&root().join("Makefile"));
    let mut called = BTreeSet::new();
    for (name, workflow) in workflows() {
        for line in steps(&workflow).filter_map(|step| step["run"].as_str()).flat_map(str::lines) {
            let mut words = line.split_whitespace();
            let Some(program) = words.next() else { continue };
            if program == "make" {
                for target in words.filter(|word| !word.contains('=')) {
                    let rule = format!("{target}:");
                    let there = makefile.lines().any(|line| line.starts_with(&rule));
                    assert!(there, "{name}: there is no target {target}");
                    called.insert(format!("make {target}"));
                }
            } else if program.starts_with("hack/") || program.starts_with(".ci/") {
                assert_program(program, &name);
                called.insert(program.to_owned());
            }
        }
        for (_, job) in jobs(&workflow) {
            if let Some(local) = job["uses"].as_str() {
                assert!(root().join(local).is_file(), "{name}: {local}");
                called.insert(local.to_owned());
            }
        }
    }
    for name in ["make release", "make soak", "make bench", ".ci/run", "./.github/workflows/ci.yml"]
    {
        assert!(called.contains(name), "{called:?}");
    }
}

#[test]
fn every_script_that_a_script_or_the_makefile_names_exists() {
    let mut files = vec![root().join("Makefile"), root().join("Dockerfile")];
    let hack = std::fs::read_dir(root().join("hack")).expect("hack");
    files.extend(hack.map(|entry| entry.expect("an entry").path()));
    let mut named = BTreeSet::new();
    for file in files {
        let text = read(&file);
        let words = text.split(|c: char| !c.is_alphanumeric() && !"/-_".contains(c));
        for word in words.filter(|word| word.starts_with("hack/") && word.len() > "hack/".len()) {
            assert_program(word, &file.display().to_string());
            named.insert(word.to_owned());
        }
    }
    assert!(named.len() > 15, "{named:?}");
}

#[test]
fn a_job_has_the_rights_that_it_needs_and_a_workflow_none() {
    let expected: BTreeMap<_, BTreeMap<_, _>> = RIGHTS
        .iter()
        .map(|(file, job, rights)| ((*file, *job), rights.iter().copied().collect()))
        .collect();
    let all = workflows();
    let mut found = BTreeMap::new();
    for (name, workflow) in &all {
        assert_eq!(workflow["permissions"], json!({}), "{name}");
        for (job, object) in jobs(workflow) {
            let rights = object["permissions"].as_object().into_iter().flatten();
            let rights: BTreeMap<_, _> = rights
                .map(|(name, right)| (name.as_str(), right.as_str().expect("a word")))
                .collect();
            found.insert((name.as_str(), job.as_str()), rights);
        }
        let triggers = workflow["on"].as_object().expect("triggers");
        // That trigger would give a stranger's pull request our rights.
        assert!(!triggers.contains_key("pull_request_target"), "{name}");
        for step in steps(workflow) {
            let checkout =
                step["uses"].as_str().is_some_and(|of| of.starts_with("actions/checkout@"));
            assert!(!checkout || step["with"]["persist-credentials"] == false, "{name}: {step}");
        }
        // Signatures need no key, and registries accept the token of the job.
        assert!(!read(&path(name)).contains("secrets."), "{name}");
    }
    assert_eq!(found, expected);
}

#[test]
fn an_action_is_pinned_by_its_commit_and_everywhere_by_the_same() {
    let mut pins = BTreeMap::new();
    for (name, workflow) in workflows() {
        let text = read(&path(&name));
        for uses in steps(&workflow).filter_map(|step| step["uses"].as_str()) {
            let (action, commit) = uses.split_once('@').expect("a version");
            let is_commit =
                commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(is_commit, "{name}: {uses}");
            // The tag of the commit, for readers and for tools that propose updates.
            assert!(text.contains(&format!("uses: {uses} # v")), "{name}: {uses} without its tag");
            let earlier = pins.insert(action.to_owned(), commit.to_owned());
            assert!(earlier.is_none_or(|earlier| earlier == commit), "{name}: another {action}");
        }
    }
    assert!(pins.len() >= 6, "{pins:?}");
}

#[test]
fn workflows_and_the_dockerfile_build_with_the_same_programs() {
    let all = workflows();
    let container = all["release.yml"]["jobs"]["build"]["container"].as_str().expect("an image");
    let from = format!("FROM --platform=$BUILDPLATFORM {container} AS build");
    assert!(read(&root().join("Dockerfile")).lines().any(|line| line == from), "no {from}");
    let toolchain = &all["ci.yml"]["jobs"]["check"]["env"]["RUSTUP_TOOLCHAIN"];
    let nightly = &all["nightly.yml"]["jobs"]["campaigns"]["env"]["RUSTUP_TOOLCHAIN"];
    assert_eq!(nightly, toolchain);
    let toolchain = toolchain.as_str().expect("a version");
    assert!(container.starts_with(&format!("rust:{toolchain}-")), "{container}, {toolchain}");
    let module = read(&root().join("lab/tools/go.mod"));
    let mut looked = 0;
    for version in all.values().flat_map(steps).map(|step| &step["with"]["go-version"]) {
        let Some(version) = version.as_str() else { continue };
        let needs = module.lines().any(|line| line.starts_with(&format!("go {version}.")));
        assert!(needs, "Go {version}");
        looked += 1;
    }
    assert_eq!(looked, 3);
}
