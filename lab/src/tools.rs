//! The programs the lab runs: found where the user has them in the pinned version, else built once
//! by the script `lab/tools/build`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};

use crate::process::{CommandLine, output};
use crate::{versions, wait, workspace};

/// A program: its name, the arguments that make it print its version, and what it prints, up to the
/// character after the number.
type Tool = (&'static str, &'static [&'static str], String);

fn all() -> Vec<Tool> {
    let kubernetes = format!("Kubernetes {}\n", versions::KUBERNETES);
    // All of Prometheus' programs: `prometheus, version 1.2.3 (…)`.
    let prometheus = |version: &str| format!("version {} ", version.trim_start_matches('v'));
    let with = |name, arguments, says| -> Tool { (name, arguments, says) };
    let of = |name, says: String| with(name, &["--version"], says);
    // Those that leave out the `v` of the tag.
    let plain = |version: &'static str| version.trim_start_matches('v');
    let kubectl = format!("Client Version: {}\n", versions::KUBERNETES);
    let helm = format!("helm {}\n", versions::HELM);
    let bundles = format!("bundle-validate {}\n", versions::OPERATOR_FRAMEWORK);
    let victoria = format!("victoria-metrics-{}\n", versions::VICTORIA_METRICS);
    let linter = format!("{}\ninstalled ", plain(versions::ACTIONLINT));
    vec![
        of("kube-apiserver", kubernetes.clone()),
        of("kube-controller-manager", kubernetes.clone()),
        of("kube-scheduler", kubernetes.clone()),
        of("kubelet", kubernetes.clone()),
        of("kube-proxy", kubernetes),
        of("etcd", format!("etcd Version: {}\n", plain(versions::ETCD))),
        with("kubectl", &["version", "--client"], kubectl),
        of("prometheus-operator", prometheus(versions::PROMETHEUS_OPERATOR)),
        of("prometheus-config-reloader", prometheus(versions::PROMETHEUS_OPERATOR)),
        of("prometheus", prometheus(versions::PROMETHEUS)),
        of("promtool", prometheus(versions::PROMETHEUS)),
        of("node_exporter", prometheus(versions::NODE_EXPORTER)),
        of("otelcol", format!("version {}\n", plain(versions::COLLECTOR))),
        with("victoria-metrics", &["-version"], victoria),
        with("coredns", &["-version"], format!("CoreDNS-{}\n", plain(versions::COREDNS))),
        with("helm", &["version", "--template", "helm {{.Version}}\n"], helm),
        with("bundle-validate", &["-version"], bundles),
        with("actionlint", &["-version"], linter),
        of("jsonnet", format!("(Go implementation) {}\n", versions::JSONNET)),
    ]
}

pub fn names() -> Vec<&'static str> {
    all().into_iter().map(|(name, ..)| name).collect()
}

/// Finds a program, or builds it.
pub fn ensure(name: &str) -> Result<PathBuf> {
    Ok(ensure_all(&[name])?.remove(0))
}

/// Finds several programs, and builds all that are missing at once.
///
/// Looks in `LAB_BIN_DIR`, `KUBEBUILDER_ASSETS` and `PATH`, each only if the program there reports
/// the pinned version, then in the cache.
pub fn ensure_all(names: &[&str]) -> Result<Vec<PathBuf>> {
    // Asking a program for its version takes longer than most of what it is then run for.
    static FOUND: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut found = wait::lock(&FOUND);
    let mut missing = Vec::new();
    for name in names {
        if found.contains_key(*name) {
            continue;
        }
        match offered(name)? {
            Some(path) => drop(found.insert((*name).to_owned(), path)),
            None => missing.push(*name),
        }
    }
    if !missing.is_empty() {
        build(&missing)?;
        for name in missing {
            found.insert(name.to_owned(), workspace::bin().join(name));
        }
    }
    Ok(names.iter().map(|name| found[*name].clone()).collect())
}

pub(crate) fn prometheus(config: &str, data: &str, address: &str) -> Result<CommandLine> {
    let arguments = [
        format!("--config.file={config}"),
        format!("--storage.tsdb.path={data}"),
        format!("--web.listen-address={address}"),
        "--log.level=warn".to_owned(),
    ];
    Ok(CommandLine::new(ensure("prometheus")?, arguments))
}

/// A program that is only built here: Karpenter with its provider of simulated nodes, or a server
/// in Prometheus' place.
pub fn only(name: &str) -> Result<PathBuf> {
    build(&[name])?;
    Ok(workspace::bin().join(name))
}

/// The same without blocking the caller's runtime: a first build takes minutes, and signals must be
/// heard meanwhile.
pub(crate) async fn prepare(names: Vec<&'static str>) -> Result<()> {
    tokio::task::spawn_blocking(move || ensure_all(&names)).await?.map(drop)
}

/// Builds what the cache does not have.
pub(crate) fn build(names: &[&str]) -> Result<()> {
    let script = workspace::root().join("lab/tools/build");
    // If this process is killed, the build ends too.
    let status = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(&script)
        .arg(workspace::bin())
        .args(names)
        .stdin(Stdio::null())
        // Standard output is for results.
        .stdout(Stdio::null())
        .status()
        .context("running setpriv: apt-get install util-linux")?;
    ensure!(status.success(), "{} {} failed ({status})", script.display(), names.join(" "));
    Ok(())
}

/// Returns where Go keeps the sources of a module that the Go module in `folder` requires, fetching
/// them if need be.
pub fn module_dir(folder: &str, module: &str) -> Result<PathBuf> {
    let folder = workspace::root().join(folder);
    let folder = folder.to_str().context("a path that is no UTF-8")?;
    output("go", &["-C", folder, "mod", "download", module])?;
    let dir = output("go", &["-C", folder, "list", "-m", "-f", "{{.Dir}}", module])?;
    Ok(PathBuf::from(dir.trim()))
}

/// Returns where Go keeps the sources of a version of a module (`path@version`) that no Go module
/// here requires, fetching them if need be.
pub fn fetched_dir(module: &str) -> Result<PathBuf> {
    #[derive(serde::Deserialize)]
    struct Fetched {
        #[serde(rename = "Dir")]
        dir: PathBuf,
    }
    // Outside of any module of ours.
    let fetched = output("go", &["-C", "/", "mod", "download", "-json", module])?;
    Ok(serde_json::from_str::<Fetched>(&fetched).context("what go mod download says")?.dir)
}

/// Finds a program where a user may have put it.
fn offered(name: &str) -> Result<Option<PathBuf>> {
    let tool = all().into_iter().find(|tool| tool.0 == name).with_context(|| {
        format!("the lab knows no program {name:?}; it knows {}", names().join(", "))
    })?;
    let single = ["LAB_BIN_DIR", "KUBEBUILDER_ASSETS"]
        .into_iter()
        .filter_map(std::env::var_os)
        .map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = single.chain(std::env::split_paths(&path)).filter(|dir| *dir != workspace::bin());
    Ok(dirs.map(|dir| dir.join(name)).find(|path| is_right(&tool, path)))
}

/// Reports whether a program has the pinned version.
fn is_right((_, arguments, says): &Tool, path: &Path) -> bool {
    path.is_file()
        && Command::new(path).args(*arguments).stdin(Stdio::null()).output().is_ok_and(|output| {
            let said = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&said).contains(says)
        })
}

/// Takes a lock shared by all processes of the lab; it is released when the file is dropped.
pub(crate) fn lock(name: &str) -> Result<fs::File> {
    let dir = workspace::state().join("cache");
    fs::create_dir_all(&dir)?;
    let path = dir.join(format!("{name}.lock"));
    let file = fs::File::options().create(true).truncate(false).write(true).open(&path)?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}
