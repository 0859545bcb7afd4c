//! Checks of the dependencies, and the way to report a vulnerability that they miss.
use std::process::{Command, Output};

use crate::files::{Scratch, below, name, read, root};

/// Runs `hack/deny`, with cargo-deny itself, against a data base that has an advisory with this id
/// for each of these crates; `None` is a data base that cannot be reached.
fn deny(test: &str, advisories: Option<&[(&str, &str)]>, required: bool) -> (bool, String) {
    let dir = Scratch::new(test);
    let origin = dir.0.join("origin");
    for (id, package) in advisories.unwrap_or_default() {
        let folder = origin.join("crates").join(package);
        std::fs::create_dir_all(&folder).expect("a directory");
        let text = format!(
            "```toml\n[advisory]\nid = \"{id}\"\npackage = \"{package}\"\ndate = \"2025-01-01\"\n\
             [versions]\npatched = []\n```\n\n# Played\n\nFor a test.\n"
        );
        std::fs::write(folder.join(format!("{id}.md")), text).expect("an advisory");
    }
    if advisories.is_some() {
        let commit = "git init --quiet --initial-branch main . && git add --all && git -c user.name=Test \
            -c user.email=test@example.com -c commit.gpgsign=false commit --quiet --allow-empty --message Test";
        std::fs::create_dir_all(&origin).expect("a directory");
        let status = Command::new("sh").args(["-ec", commit]).current_dir(&origin).status();
        assert!(status.expect("git").success());
    }
    // Git fetches the played one in place of the real one, into a folder of its own.
    let own = format!("[advisories]\ndb-path = \"{}\"", dir.0.join("fetched").display());
    let config = read(&root().join("deny.toml")).replace("[advisories]", &own);
    let config = dir.write("deny.toml", &config);
    let mut command = Command::new(root().join("hack/deny"));
    command.args(["--config", &config]).env_remove("DENY_ADVISORIES");
    command.env("GIT_CONFIG_COUNT", "1");
    command.env("GIT_CONFIG_KEY_0", format!("url.file://{}.insteadOf", origin.display()));
    command.env("GIT_CONFIG_VALUE_0", "https://github.com/RustSec/advisory-db");
    if required {
        command.env("DENY_ADVISORIES", "required");
    }
    let Output { status, stdout, stderr } = command.output().expect("hack/deny");
    let said = [stdout, stderr].concat();
    (status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn advisories_are_checked_where_they_are_available_and_never_left_out_in_silence() {
    // One that deny.toml ignores.
    let ignored = ("RUSTSEC-2025-0141", "bincode");
    let (ok, said) = deny("deny-online", Some(&[ignored]), true);
    assert!(ok && said.contains("advisories ok") && !said.contains("LEFT OUT"), "{said}");

    let found = ("RUSTSEC-2025-9999", "anyhow");
    let (ok, said) = deny("deny-found", Some(&[ignored, found]), false);
    assert!(!ok && said.contains(found.0) && !said.contains(ignored.0), "{said}");

    let (ok, said) = deny("deny-offline", None, false);
    assert!(ok && said.contains("LEFT OUT: the advisories"), "{said}");
    let (ok, said) = deny("deny-required", None, true);
    assert!(!ok, "{said}");
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
