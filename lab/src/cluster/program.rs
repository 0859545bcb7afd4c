//! The `lab` program itself, which a cluster's helpers (relay, sink, guard, a node's first process)
//! are run from.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

use crate::workspace;

static FOUND: OnceLock<PathBuf> = OnceLock::new();

/// Returns the path of the `lab` program of the same sources as this code.
///
/// That is this process, if it says so ([`crate::cli::stand_in`]), or, in a test, the program that
/// Cargo builds: `cargo test` does not build the binaries of a dependency.
pub(crate) fn find() -> Result<PathBuf> {
    if let Some(path) = FOUND.get() {
        return Ok(path.clone());
    }
    let path = build()?;
    Ok(FOUND.get_or_init(|| path).clone())
}

/// From now on this process' program is taken for the `lab` program.
pub(crate) fn this_is_it() -> Result<()> {
    let this = std::env::current_exe()?;
    FOUND.get_or_init(|| this);
    Ok(())
}

fn build() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Cargo sets these for a test. Build scripts that depend on them would run again, and with them
    // the compiler on most dependencies: here, and with the next command outside of the test.
    let of_the_test = ["CARGO_MANIFEST_", "CARGO_PKG_", "OUT_DIR"];
    for (name, _) in std::env::vars_os() {
        if of_the_test.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(&name);
        }
    }
    let output = command
        .args(["build", "--quiet", "--bin", "lab", "--message-format", "json-render-diagnostics"])
        .current_dir(workspace::root())
        .stdin(Stdio::null())
        .output()
        .context("running cargo to build the lab program")?;
    if !output.status.success() {
        bail!("building the lab program failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .find(|path| path.file_name().is_some_and(|name| name == "lab"))
        .context("cargo built no lab program")
}
