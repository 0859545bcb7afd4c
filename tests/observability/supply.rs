//! Checks of the dependencies, and the way to report a vulnerability that they miss.
use std::{
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
};

use crate::files::{Scratch, below, name, read, root};

/// Runs `hack/deny` with a stand-in for cargo-deny that fails if its arguments contain `refuses`.
fn deny(name: &str, refuses: &str, required: bool) -> (bool, String, String) {
    let dir = Scratch::new(name);
    let log = dir.0.join("log");
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> '{}'\ncase \"$*\" in *'{refuses}'*) exit 1;; esac\n",
        log.display()
    );
    let program = dir.write("cargo-deny", &script);
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("permissions");
    let mut command = Command::new(root().join("hack/deny"));
    command.env("CARGO_DENY", program).env_remove("DENY_ADVISORIES");
    if required {
        command.env("DENY_ADVISORIES", "required");
    }
    let Output { status, stderr, .. } = command.output().expect("hack/deny");
    let said = String::from_utf8_lossy(&stderr).into_owned();
    (status.success(), said, read(&log))
}

#[test]
fn s16_advisories_are_checked_where_they_are_available_and_never_left_out_in_silence() {
    let (ok, said, asked) = deny("deny-online", "nothing", false);
    assert!(ok && said.is_empty(), "{said}");
    assert!(asked.lines().any(|line| line.starts_with("check") && line.contains("advisories")));

    let (ok, said, asked) = deny("deny-offline", "fetch", false);
    assert!(ok, "{said}");
    assert!(said.contains("LEFT OUT: the advisories"), "{said}");
    assert!(!asked.contains("advisories"), "{asked}");

    let (ok, _, _) = deny("deny-required", "fetch", true);
    assert!(!ok);
    // Every finding fails the check.
    for found in ["bans", "advisories"] {
        let (ok, _, _) = deny(&format!("deny-{found}"), found, false);
        assert!(!ok, "{found}");
    }
}

#[test]
fn s16_a_reporter_finds_where_to_report() {
    let text = read(&root().join("SECURITY.md"));
    let reporting = text.split("## Reporting").nth(1).and_then(|rest| rest.split("\n## ").next());
    let reporting = reporting.expect("a section on reporting");
    assert!(reporting.contains("Report a vulnerability"), "{reporting}");
    assert!(!reporting.contains('@'), "an unverified address: {reporting}");
}

/// The only internet address in the programs: the SVG namespace, which nothing fetches.
const SVG: &str = "www.w3.org";

/// Reports whether a host is in the cluster or on the machine, or an example without a domain.
fn is_near(host: &str) -> bool {
    host.rsplit('.').next() == Some("svc")
        || !host.contains('.')
        || host.parse::<std::net::IpAddr>().is_ok()
}

/// The page for clusters without internet access states that nothing is fetched from there.
#[test]
fn the_programs_name_no_host_of_the_internet() {
    let mut hosts = 0;
    for folder in ["src", "crates/agent/src", "crates/core/src"] {
        let files = below(&root().join(folder), &["css", "html", "js", "rs"]);
        for file in files.iter().filter(|file| !name(file).contains("tests")) {
            let text = read(file);
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
                for rest in line.split("://").skip(1) {
                    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-.".contains(c)));
                    let host = &rest[..end.unwrap_or(rest.len())];
                    assert!(is_near(host) || host == SVG, "{}: {host}", name(file));
                    hosts += usize::from(!host.is_empty());
                }
            }
        }
    }
    assert!(hosts > 3, "{hosts}: the search finds nothing");
}
