//! Building one program from the Go module that pins all of them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::catalog::Tool;
use crate::{process, progress, workspace};

/// Time between two messages during a long build.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Builds a tool into the cache and returns its path.
pub(super) fn build(tool: &Tool) -> Result<PathBuf> {
    let target = workspace::bin().join(tool.name);
    let flags = tool.linker_flags();
    let module = workspace::root().join("lab/tools");
    // Without debug information, which the linker leaves out.
    let compiler = "-gcflags=all=-dwarf=false";
    let mut arguments = vec!["build", "-trimpath", compiler, "-ldflags", flags.as_str()];
    if !tool.tags.is_empty() {
        arguments.extend(["-tags", tool.tags]);
    }
    go(tool.name, &module, &arguments, tool.package, &target)?;
    if super::cached(tool).is_none() {
        bail!(
            "{} was built but does not report {:?}",
            target.display(),
            tool.version_says().trim()
        );
    }
    Ok(target)
}

/// Runs `go <arguments> -o <target> <package>` in a directory; Go's output goes into a log.
///
/// The target appears whole or not at all. Proxy, cache and flags are Go's own affair and come from
/// the environment.
pub(crate) fn go(
    name: &str,
    module: &Path,
    arguments: &[&str],
    package: &str,
    target: &Path,
) -> Result<()> {
    ensure!(
        crate::packages::find("go").is_some(),
        "{name} has to be built, and there is no `go`: install Go 1.26 or newer (https://go.dev/dl/) and put it on PATH"
    );
    let logs = workspace::state().join("cache/log");
    let parent = target.parent().context("a target has a directory")?;
    fs::create_dir_all(parent)?;
    fs::create_dir_all(&logs)?;
    let log_path = logs.join(format!("build-{name}.log"));
    let log = File::create(&log_path)?;
    let partial = parent.join(format!(".{name}.partial"));
    let started = Instant::now();
    progress(&format!("building {name} …"));
    // If this process is killed, the build goes with it.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--", "go"])
        .args(arguments)
        .arg("-o")
        .arg(&partial)
        .arg(package)
        .current_dir(module)
        // Static programs run in images that hold nothing else.
        .env("CGO_ENABLED", "0")
        // Compilers live for seconds: a fifth of their time would go into collecting garbage.
        .env("GOGC", std::env::var_os("GOGC").unwrap_or_else(|| "400".into()))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let mut child =
        process::spawn(command).context("running setpriv: apt-get install util-linux")?;
    let mut next = HEARTBEAT;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() >= next {
            progress(&format!("  still building {name}, {} s", started.elapsed().as_secs()));
            next += HEARTBEAT;
        }
        // A build takes seconds to minutes: tenths are fine enough, and cost nothing.
        std::thread::sleep(Duration::from_millis(100));
    };
    if !status.success() {
        bail!(
            "building {name} in {} failed ({status}){}",
            module.display(),
            process::tail(&log_path)
        );
    }
    fs::rename(&partial, target)
        .with_context(|| format!("moving {} into place", target.display()))?;
    progress(&format!("built {name} in {:.1} s", started.elapsed().as_secs_f64()));
    Ok(())
}
