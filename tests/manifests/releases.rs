//! The scripts that build a release, as far as they can be tested without building.
use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::rendering::{read, root, run, scratch, tool};

fn script(name: &str) -> Command {
    let mut command = Command::new(root().join("hack").join(name));
    for variable in ["RELEASE", "SKIP", "VERSION", "AGAINST", "KEEP", "TARGETS"] {
        command.env_remove(variable);
    }
    command
}

/// Returns the reason for which a command refuses to run.
fn refusal(command: &mut Command) -> String {
    run(command).expect_err("a refusal")
}

fn write_program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    std::fs::write(path, text).expect("a program");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, executable).expect("permissions");
}

fn sha256(path: &Path) -> String {
    use std::fmt::Write;
    let bytes = std::fs::read(path).expect("a file");
    let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("text");
        text
    })
}

/// Creates a repository with these scripts, in which everything is committed.
fn repository(name: &str, scripts: &[&str]) -> PathBuf {
    let dir = scratch(name);
    for script in scripts {
        let to = dir.join("hack").join(script);
        write_program(&to, &read(&root().join("hack").join(script)));
    }
    for file in ["Cargo.toml", "CHANGELOG.md", "deploy/chart/Chart.yaml"] {
        let to = dir.join(file);
        std::fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
        std::fs::write(to, read(&root().join(file))).expect("a file");
    }
    std::fs::write(dir.join(".gitignore"), "/target\n/.lab\n").expect("a file");
    commit(&dir);
    dir
}

fn commit(dir: &Path) {
    let all = "git init --quiet . && git add --all && git -c user.name=Test \
        -c user.email=test@example.com -c commit.gpgsign=false commit --quiet --message Test";
    run(Command::new("sh").args(["-ec", all]).current_dir(dir)).expect("a commit");
}

#[test]
fn the_krew_manifest_names_each_archive_with_its_checksum() {
    let dir = scratch("krew");
    let archive = |arch: &str| dir.join(format!("kubectl-traffic_1.2.3_linux_{arch}.tar.gz"));
    for arch in ["amd64", "arm64"] {
        std::fs::write(archive(arch), format!("the archive for {arch}")).expect("an archive");
    }
    let krew = |downloads: &str| {
        let mut command = script("krew");
        command.arg("1.2.3").arg(&dir);
        command.env("DOWNLOADS", downloads).env("HOMEPAGE", "https://project.example.com");
        run(&mut command)
    };
    let text = krew("https://example.com/v1.2.3").unwrap_or_else(|error| panic!("{error}"));
    let manifest: Value = serde_yaml::from_str(&text).expect("YAML");
    assert_eq!(manifest["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!(manifest["kind"], "Plugin");
    // `kubectl traffic` runs kubectl-traffic.
    assert_eq!(manifest["metadata"]["name"], "traffic");
    let spec = &manifest["spec"];
    assert_eq!(spec["version"], "v1.2.3");
    assert_eq!(spec["homepage"], "https://project.example.com");
    // krew's limit, so that `kubectl krew search` shows it in one line.
    assert!(spec["shortDescription"].as_str().is_some_and(|text| text.len() <= 50));
    let platforms = spec["platforms"].as_array().expect("platforms");
    assert_eq!(platforms.len(), 2);
    for (platform, arch) in platforms.iter().zip(["amd64", "arm64"]) {
        assert_eq!(platform["selector"]["matchLabels"], json!({"os": "linux", "arch": arch}));
        let file = archive(arch);
        let name = file.file_name().expect("a name").to_string_lossy();
        assert_eq!(platform["uri"], format!("https://example.com/v1.2.3/{name}"));
        assert_eq!(platform["sha256"], sha256(&file));
        assert_eq!(platform["bin"], "kubectl-traffic");
        let files = platform["files"].as_array().expect("files");
        assert!(files.contains(&json!({"from": "kubectl-traffic", "to": "."})), "{files:?}");
        assert!(files.contains(&json!({"from": "LICENSE", "to": "."})), "{files:?}");
    }
    // hack/release puts these files into the archive.
    assert!(read(&root().join("hack/release")).contains("install -m 0644 LICENSE README.md"));

    assert!(krew("https://example.com/a|b").expect_err("a refusal").contains("DOWNLOADS"));
    std::fs::remove_file(archive("arm64")).expect("removed");
    let error = krew("https://example.com").expect_err("a refusal");
    assert!(error.contains("there is no") && error.contains("arm64"), "{error}");
}

#[test]
fn what_is_unreleased_goes_into_a_version_once() {
    let file = scratch("changelog").join("CHANGELOG.md");
    let text = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- New.\n\n## [0.1.0]\n\n- Old.\n";
    std::fs::write(&file, text).expect("a file");
    let changelog =
        |arguments: &[&str]| run(script("changelog").args(arguments).env("CHANGELOG", &file));
    assert_eq!(changelog(&["notes", "0.1.0"]).as_deref(), Ok("- Old.\n"));
    assert_eq!(changelog(&["notes", "Unreleased"]).as_deref(), Ok("### Added\n\n- New.\n"));
    assert!(changelog(&["cut", "0.1.0"]).is_err_and(|error| error.contains("released once")));
    assert!(changelog(&["cut", "v0.2.0"]).is_err_and(|error| error.contains("without the v")));
    assert!(changelog(&["cut", "next"]).is_err_and(|error| error.contains("no version")));
    assert_eq!(read(&file), text);
    assert!(changelog(&["cut", "0.2.0", "2026-01-02"]).is_ok());
    let cut = text.replace("[Unreleased]\n", "[Unreleased]\n\n## [0.2.0] - 2026-01-02\n");
    assert_eq!(read(&file), cut);
    assert_eq!(changelog(&["notes", "0.2.0"]).as_deref(), Ok("### Added\n\n- New.\n"));
    assert!(changelog(&["notes", "Unreleased"]).is_err_and(|error| error.contains("is empty")));
    assert!(changelog(&["cut", "0.3.0"]).is_err_and(|error| error.contains("nothing is under")));
    assert!(changelog(&["notes", "0.3.0"]).is_err_and(|error| error.contains("no section")));
}

/// Otherwise `hack/changelog cut` refuses that version, and so does `make release`.
#[test]
fn a_version_has_a_section_once_it_is_released_and_the_date_of_that() {
    let text = read(&root().join("CHANGELOG.md"));
    let mut headings = text.lines().filter_map(|line| line.strip_prefix("## "));
    assert_eq!(headings.next(), Some("[Unreleased]"));
    for heading in headings {
        let date = heading.split_once("] - ").map(|(_, date)| date.len());
        assert_eq!(date, Some("2026-01-02".len()), "{heading}: no date, so it is Unreleased");
    }
}

#[test]
fn a_release_refuses_what_a_rehearsal_may_do() {
    let dir = repository("release", &["release", "changelog"]);
    let release = |variables: &[(&str, &str)]| {
        let mut command = Command::new(dir.join("hack/release"));
        for variable in ["RELEASE", "SKIP", "VERSION"] {
            command.env_remove(variable);
        }
        refusal(command.envs(variables.iter().copied()))
    };
    let error = release(&[("VERSION", "9.9.9")]);
    assert!(error.contains(env!("CARGO_PKG_VERSION")) && error.contains("9.9.9"), "{error}");
    let error = release(&[("SKIP", "tests")]);
    assert!(error.contains("no step is called tests") && error.contains("reproducible"), "{error}");
    let error = release(&[("RELEASE", "yes"), ("SKIP", "sbom")]);
    assert!(error.contains("leaves out no step"), "{error}");

    let changelog = dir.join("CHANGELOG.md");
    std::fs::write(&changelog, "## [Unreleased]\n\n- New.\n").expect("a file");
    let error = release(&[("RELEASE", "yes")]);
    assert!(error.contains("not committed"), "{error}");
    commit(&dir);
    let error = release(&[("RELEASE", "yes")]);
    assert!(error.contains("under Unreleased"), "{error}");
    std::fs::write(&changelog, "## [Unreleased]\n").expect("a file");
    commit(&dir);
    // There is no section for the version either.
    let error = release(&[("RELEASE", "yes")]);
    assert!(error.contains("no section"), "{error}");
    let chart = dir.join("deploy/chart/Chart.yaml");
    let text = read(&chart).replace("appVersion: ", "appVersion: 9");
    std::fs::write(&chart, text).expect("a file");
    let error = release(&[]);
    assert!(error.contains("another appVersion"), "{error}");
    assert!(!dir.join("dist").exists());
}

#[test]
fn a_program_that_needs_a_library_or_names_a_folder_is_refused() {
    let target = |machine: &str| format!("{machine}-unknown-linux-gnu");
    let here = target(std::env::consts::ARCH);
    let there = target(if std::env::consts::ARCH == "x86_64" { "aarch64" } else { "x86_64" });
    let check =
        |target: &str, program: &Path| run(script("check-program").arg(target).arg(program));
    // Go programs are static.
    let fine = tool("kubectl");
    assert_eq!(check(&here, &fine).as_deref(), Ok(""));
    let error = check(&there, &fine).expect_err("another machine");
    assert!(error.contains("and not for"), "{error}");
    let this = std::env::current_exe().expect("this program");
    let error = check(&here, &this).expect_err("shared libraries");
    assert!(error.contains("is not static: it needs") && error.contains("libc.so"), "{error}");
    let named = scratch("check-program").join("program");
    let mut bytes = std::fs::read(&fine).expect("a program");
    bytes.extend(format!("{}/target/image/out.rs", root().display()).bytes());
    std::fs::write(&named, bytes).expect("a program");
    let error = check(&here, &named).expect_err("a folder");
    assert!(error.contains("contains the name of the folder"), "{error}");
    std::fs::remove_file(named).expect("removed");
}

/// Stands in for the build: writes the two programs, with the folder or cargo's home in one of them
/// if `LEAK` requests it.
const FAKE_PROGRAMS: &str = r#"#!/bin/sh
set -e
mkdir -p "target/image/$1/release" "target/image/$1/agent"
{ cat Cargo.toml; case ${LEAK:-} in folder) pwd ;; home) echo "$CARGO_HOME" ;; esac; } \
  > "target/image/$1/release/traffic-operator"
cat Cargo.toml > "target/image/$1/agent/traffic-operator-agent"
"#;

#[test]
fn two_builds_that_differ_are_found() {
    let dir = repository("reproducible", &["reproducible", "copy-sources"]);
    write_program(&dir.join("hack/programs"), FAKE_PROGRAMS);
    write_program(&dir.join("bin/cargo"), "#!/bin/sh\n");
    write_program(&dir.join("target/debug/image"), "#!/bin/sh\necho name sha256:00 0 MB file\n");
    let path = format!("{}:{}", dir.join("bin").display(), std::env::var("PATH").expect("PATH"));
    let reproducible = |variables: &[(&str, &str)]| {
        let mut command = Command::new(dir.join("hack/reproducible"));
        command.env("PATH", &path).env("TARGETS", "one two");
        for variable in ["AGAINST", "KEEP", "LEAK"] {
            command.env_remove(variable);
        }
        run(command.envs(variables.iter().copied()))
    };
    let said = reproducible(&[]).unwrap_or_else(|error| panic!("{error}"));
    assert!(said.contains("PASS: two builds, one digest: sha256:00"), "{said}");
    for leak in ["folder", "home"] {
        let error = reproducible(&[("LEAK", leak)]).expect_err(leak);
        assert!(error.contains("FAIL: the two builds differ"), "{leak}: {error}");
    }
    // Against a given result.
    let given = dir.join("target/given");
    std::fs::write(&given, "00  something\n").expect("a file");
    let error = reproducible(&[("AGAINST", given.to_str().expect("a path"))]).expect_err("differs");
    assert!(error.contains("FAIL"), "{error}");
    let left = std::fs::read_dir(dir.join(".lab")).expect("a directory").count();
    assert_eq!(left, 0);
}

#[test]
fn a_bill_of_materials_does_not_name_the_folder_it_was_made_in() {
    let dir = scratch("sbom");
    let cyclonedx = dir.join("cargo-cyclonedx");
    let fake = |purl: &str| {
        let text = format!(
            "#!/bin/sh\nfor file in traffic-operator crates/agent/traffic-operator-agent; do\n\
             printf '{{\"bomFormat\": \"CycloneDX\", \"ref\": \"%s\", {purl}}}' \"$PWD/x $*\" \
             > \"$file.cdx.json\"\ndone\n"
        );
        write_program(&cyclonedx, &text);
        let mut command = script("sbom");
        command.arg("x86_64-unknown-linux-gnu").arg(dir.join("out"));
        run(command.env("CARGO_CYCLONEDX", &cyclonedx))
    };
    fake(r#""purl": "pkg:cargo/x""#).unwrap_or_else(|error| panic!("{error}"));
    for program in ["traffic-operator", "traffic-operator-agent"] {
        let text = read(&dir.join("out").join(format!("{program}.cdx.json")));
        let bill: Value = serde_json::from_str(&text).expect("JSON");
        let said = bill["ref"].as_str().expect("text");
        assert!(said.starts_with("/traffic-operator/x "), "{said}");
        assert!(said.contains("--target x86_64-unknown-linux-gnu"), "{said}");
        let library = &bill["components"][0];
        let version = library["version"].as_str().expect("a version of the C library");
        assert!(version.starts_with("2."), "{version}");
        let purl = library["purl"].as_str().expect("text");
        assert!(
            purl.starts_with("pkg:deb/debian/glibc@2.") && purl.contains("arch=amd64"),
            "{purl}"
        );
        // The script runs in a copy: nothing is left beside a Cargo.toml.
        assert!(!root().join(format!("{program}.cdx.json")).exists());
    }
    let error = fake(r#""components": []"#).expect_err("no package");
    assert!(error.contains("is no bill of materials"), "{error}");
}
