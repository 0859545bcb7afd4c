//! `hack/try` (`make try`): without kind on a generated history, and with programs in place of
//! kind, Docker and kubectl that record their calls.
use std::{
    env, fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use lab::history::History;

/// The programs that the script needs beside those that it looks for.
const NEEDED: [&str; 6] = ["bash", "cat", "dirname", "mktemp", "rm", "timeout"];

/// Variables of the tester's environment that change what the script does.
const SETTINGS: [&str; 7] =
    ["IMG", "KUBECONFIG", "KUBECTL", "MAKEFLAGS", "MAKELEVEL", "NAMESPACE", "OVERLAY"];

/// A directory of one test, empty at first.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("try").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a directory");
    dir
}

fn script() -> Command {
    let mut script = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/try"));
    for name in SETTINGS {
        script.env_remove(name);
    }
    script
}

/// Writes a program into `dir` that runs this script.
fn program(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a program");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// Runs the script, which must succeed, and returns its output.
fn run(script: &mut Command) -> String {
    let output = script.output().expect("hack/try runs");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    out.into_owned()
}

#[test]
fn without_kind_it_names_what_is_missing_and_judges_a_made_up_history() {
    let bin = scratch("without-kind");
    let path = env::var_os("PATH").expect("PATH");
    for name in NEEDED {
        let found = env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file());
        symlink(found.unwrap_or_else(|| panic!("no {name}")), bin.join(name)).expect("a link");
    }
    program(&bin, "docker", "exit 1");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let history = runtime.block_on(History::start(&scratch("history"))).expect("a history");
    let said = run(script()
        .env("PATH", &bin)
        .env("PROMETHEUS_URL", history.url())
        .env("TRAFFIC_OPERATOR", env!("CARGO_BIN_EXE_traffic-operator")));
    for missing in
        ["kind is not installed", "kubectl is not installed", "docker does not answer: see docker"]
    {
        assert!(said.contains(&format!("\n- {missing}")), "{missing}:\n{said}");
    }
    let rows: Vec<Vec<_>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    let has = |words: &[&str]| rows.iter().any(|row| row.starts_with(words));
    // The operator's own code judges the history.
    assert!(has(&["node-1", "Fit", "bandwidth", "8", "%"]), "{said}");
    assert!(has(&["node-2", "Unfit", "bandwidth", "72", "%"]), "{said}");
    assert!(has(&["node-3", "Fit", "bandwidth", "48", "%"]), "{said}");
    for node in ["node-2", "node-3"] {
        let began = |row: &Vec<&str>| row.get(1..4) == Some(&[node, "Fit", "Unfit"][..]);
        assert!(rows.iter().any(began), "{node} never became unfit:\n{said}");
    }
}
