//! The files of the Helm chart, `deploy/chart/files`: copies, so that the chart renders the same
//! objects as the overlays of kustomize.
use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

use super::File;

/// The folder of the copies, below `deploy/`.
pub const FILES: &str = "chart/files";

/// Folders that are copied, relative to `deploy/`, and the names of their copies.
const FOLDERS: [(&str, &str); 6] = [
    ("base", "base"),
    ("overlays/kube-prometheus", "kube-prometheus"),
    ("overlays/standalone", "standalone"),
    ("components/priority", "priority"),
    ("../monitoring", "monitoring"),
    ("../grafana", "dashboards"),
];

/// Files that are not copied: only kustomize reads the first, Helm creates the namespace of a
/// release itself, and the last is a patch for `make grafana`.
const LEFT_OUT: [&str; 3] =
    ["kustomization.yaml", "base/namespace.yaml", "dashboards/kube-prometheus.yaml"];

/// Folders of files that the code generates, which the chart has as well.
const GENERATED: [&str; 2] = ["crds/", "rbac/"];

/// Reports whether this is the folder `deploy/` of the repository.
#[must_use]
pub fn has_sources(deploy: &Path) -> bool {
    FOLDERS.iter().all(|(from, _)| deploy.join(from).is_dir())
}

/// Returns the chart's copies of the generated files, and of those in and next to `deploy/`.
///
/// # Errors
/// When a file cannot be read.
pub fn files(generated: &[File], deploy: &Path) -> anyhow::Result<Vec<File>> {
    let ours = |file: &&File| GENERATED.iter().any(|folder| file.path.starts_with(folder));
    let copy =
        |file: &File| File { path: format!("{FILES}/{}", file.path), text: file.text.clone() };
    let mut files: Vec<_> = generated.iter().filter(ours).map(copy).collect();
    for (from, to) in FOLDERS {
        for path in listed(&deploy.join(from))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if LEFT_OUT.contains(&&*name) || LEFT_OUT.contains(&&*format!("{to}/{name}")) {
                continue;
            }
            let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
            // Dashboards and the configuration of Prometheus are copied unchanged, as data.
            let head = if path.extension().is_some_and(|end| end == "yaml") {
                let source = format!("deploy/{from}/{name}").replace("deploy/../", "");
                format!("# Copied from {source} by `make generate`; do not edit.\n")
            } else {
                String::new()
            };
            files.push(File { path: format!("{FILES}/{to}/{name}"), text: head + &text });
        }
    }
    Ok(files)
}

/// Returns the files of a folder, sorted.
fn listed(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("{}", folder.display()))?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
