//! The distribution's programs that nodes are made of, the routers of the BGP ground, and the
//! browser of the tests: checked, and installed where that is possible.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::progress;

/// A program (or file) and the Debian package that provides it.
type Need = (&'static str, &'static str);

/// For how long another process may hold the lock of the package manager.
const PATIENCE: Duration = Duration::from_mins(5);

const NODES: [Need; 10] = [
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("nft", "nftables"),
    ("/bin/busybox", "busybox-static"),
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
];

/// The packages that the nodes of the BGP ground need.
const ROUTERS: [Need; 5] = [
    (BIRD, "bird2"),
    (EXPORTER, "prometheus-bird-exporter"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
];

/// The router. Calico's own is a fork of BIRD 1.6, which Debian has too, but not beside this one.
pub(crate) const BIRD: &str = "bird";
pub(crate) const EXPORTER: &str = "prometheus-bird-exporter";
/// The configuration that the lab writes is that of BIRD 2.
const BIRD_SAYS: &str = "BIRD version 2.";

/// The browser that shows the status page.
const BROWSER: [Need; 1] = [("chromium", "chromium")];

/// Other names of the browser; all of them take the same flags.
const BROWSERS: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Finds a program on `PATH` or where root's programs are.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(name)).find(|path| path.is_file())
}

fn is_there(what: &str) -> bool {
    if what.starts_with('/') { Path::new(what).exists() } else { find(what).is_some() }
}

/// Returns the packages that are missing, each once.
fn missing(needs: &[Need]) -> Vec<&'static str> {
    let mut packages: Vec<&str> =
        needs.iter().filter(|need| !is_there(need.0)).map(|need| need.1).collect();
    packages.dedup();
    packages
}

/// Makes sure that everything nodes are made of is installed.
pub(crate) fn ensure_installed() -> Result<()> {
    ensure_all(&NODES)
}

/// Makes sure that everything the nodes of the BGP ground are made of is installed, and returns the
/// versions.
pub fn ensure_routers() -> Result<String> {
    ensure_all(&ROUTERS)?;
    let said = said(BIRD, "--version")?;
    let bird = said.lines().find(|line| line.starts_with("BIRD version")).unwrap_or_default();
    ensure!(
        bird.starts_with(BIRD_SAYS),
        "{BIRD} is {said:?}; the lab writes configurations for \"{BIRD_SAYS}x\" (Debian's package bird2)"
    );
    let exporter = self::said(EXPORTER, "-version")?;
    let version = exporter.lines().find_map(|line| line.strip_prefix("Version: "));
    Ok(format!("{bird}, {EXPORTER} {}", version.unwrap_or("of unknown version")))
}

/// Returns the answer of a program to a flag, from either output.
fn said(program: &str, question: &str) -> Result<String> {
    let path = find(program).with_context(|| format!("no {program}"))?;
    let output = Command::new(&path)
        .arg(question)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("asking {} for its version", path.display()))?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Returns the browser that is installed, if one is.
pub fn browser() -> Option<PathBuf> {
    BROWSERS.iter().find_map(|name| find(name))
}

/// Returns the browser; installs it if there is none.
pub fn ensure_browser() -> Result<PathBuf> {
    if let Some(path) = browser() {
        return Ok(path);
    }
    ensure_all(&BROWSER)?;
    browser().context("a browser was installed, and none is found on PATH")
}

fn ensure_all(needs: &[Need]) -> Result<()> {
    let packages = missing(needs);
    if packages.is_empty() {
        return Ok(());
    }
    let command = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    ensure!(nix::unistd::geteuid().is_root(), "missing packages; run as root: {command}");
    if find("apt-get").is_none() {
        bail!(
            "missing packages, under Debian's names: {}; install them and try again",
            packages.join(" ")
        );
    }
    progress(&format!("installing {} (apt-get)", packages.join(", ")));
    let _quiet = NoServices::declare()?;
    apt(&["update", "-q"])?;
    let mut arguments = vec!["install", "-y", "-q", "--no-install-recommends"];
    arguments.extend(&packages);
    apt(&arguments).with_context(|| format!("`{command}` failed"))?;
    let left = missing(needs);
    ensure!(left.is_empty(), "installed, but still missing: {}", left.join(", "));
    Ok(())
}

fn apt(arguments: &[&str]) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    let (output, said) = loop {
        let output = Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output()
            .context("running apt-get")?;
        let said = [&*output.stdout, &output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        // Two clusters that start beside each other install the same.
        let is_locked = !output.status.success() && said.contains("Could not get lock");
        if !is_locked || Instant::now() > until {
            break (output, said);
        }
        std::thread::sleep(Duration::from_secs(1));
    };
    let lines: Vec<&str> = said.lines().collect();
    let end = lines[lines.len().saturating_sub(15)..].join("\n    ");
    ensure!(
        output.status.success(),
        "apt-get {}: {}\n    {end}",
        arguments.join(" "),
        output.status
    );
    Ok(())
}

/// While it lives, packages do not start services: the lab must not touch the machine's own
/// containerd.
struct NoServices(Option<PathBuf>);

impl NoServices {
    /// Debian's convention: this program decides, and 101 means "not allowed".
    fn declare() -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let path = PathBuf::from("/usr/sbin/policy-rc.d");
        if path.exists() {
            return Ok(Self(None));
        }
        std::fs::write(&path, "#!/bin/sh\nexit 101\n")
            .with_context(|| format!("writing {}", path.display()))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self(Some(path)))
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}
