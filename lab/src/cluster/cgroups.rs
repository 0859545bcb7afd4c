//! A cgroup for each node, below one for the cluster, in version 1 and version 2.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::addresses::node_name;

const ROOT: &str = "/sys/fs/cgroup";

/// The controllers a kubelet insists on.
const NEEDED: [&str; 3] = ["cpu", "memory", "pids"];

/// Returns whether the machine has the unified hierarchy (version 2) alone.
pub(crate) fn is_unified() -> bool {
    Path::new(ROOT).join("cgroup.controllers").exists()
}

/// Returns a node's cgroup, as in the settings of its kubelet.
pub(crate) fn node_root(id: &str, number: usize) -> String {
    format!("/lab-{id}/{}", node_name(number))
}

/// Makes the cgroups. What nodes run is measured by the clock: it comes before the other processes of
/// the machine, while by default all nodes together weigh as much as one of these.
pub(super) fn create(id: &str, nodes: usize) -> Result<()> {
    let mut dirs = vec![format!("lab-{id}")];
    dirs.extend((1..=nodes).map(|number| format!("lab-{id}/{}", node_name(number))));
    if is_unified() {
        delegate(Path::new(ROOT))?;
        for dir in dirs {
            let path = Path::new(ROOT).join(dir);
            fs::create_dir_all(&path)
                .with_context(|| format!("making the cgroup {}", path.display()))?;
            delegate(&path)?;
        }
        fs::write(Path::new(ROOT).join(format!("lab-{id}/cpu.weight")), "10000")?;
        return Ok(());
    }
    for hierarchy in hierarchies()? {
        for dir in &dirs {
            let path = hierarchy.join(dir);
            fs::create_dir_all(&path)
                .with_context(|| format!("making the cgroup {}", path.display()))?;
            // A new cpuset allows nothing, and then nothing can run in it.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(all) = fs::read_to_string(hierarchy.join(file)) {
                    fs::write(path.join(file), all)?;
                }
            }
        }
        let shares = hierarchy.join(format!("lab-{id}/cpu.shares"));
        if shares.exists() {
            fs::write(shares, "262144")?;
        }
    }
    Ok(())
}

/// Offers a version 2 cgroup's controllers to the cgroups below it.
fn delegate(path: &Path) -> Result<()> {
    let available = fs::read_to_string(path.join("cgroup.controllers"))?;
    let available: Vec<&str> = available.split_whitespace().collect();
    for needed in NEEDED {
        let there = available.contains(&needed);
        ensure!(there, "{} has no controller {needed:?}, which a kubelet needs", path.display());
    }
    for controller in available {
        let result = fs::write(path.join("cgroup.subtree_control"), format!("+{controller}"));
        if NEEDED.contains(&controller) {
            result.with_context(|| {
                format!(
                    "enabling {controller} below {}: processes in that cgroup itself must be moved into a cgroup below it first",
                    path.display()
                )
            })?;
        }
    }
    Ok(())
}

/// Returns the version 1 hierarchies (`/sys/fs/cgroup/memory`, …).
fn hierarchies() -> Result<Vec<PathBuf>> {
    let mut dirs = below(Path::new(ROOT));
    ensure!(!dirs.is_empty(), "no cgroups in {ROOT}");
    // A mixed machine has version 2 here for systemd alone, without controllers.
    dirs.retain(|dir| {
        dir.join("cgroup.procs").exists() && !dir.join("cgroup.controllers").exists()
    });
    Ok(dirs)
}

fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

pub(super) fn existing(id: &str) -> Vec<PathBuf> {
    let name = format!("lab-{id}");
    // On a mixed machine runc makes one in the version 2 hierarchy too, by itself.
    let roots = below(Path::new(ROOT)).into_iter().chain([PathBuf::from(ROOT)]);
    roots.map(|root| root.join(&name)).filter(|path| path.is_dir()).collect()
}

/// Removes what is below a node's cgroups: leftovers of a killed node cost its next kubelet seconds
/// each.
pub(super) fn clear_node(id: &str, number: usize) {
    for root in existing(id) {
        remove_trees(&below(&root.join(node_name(number))));
    }
}

/// Removes a cluster's cgroups. Those of processes just killed are busy for a moment.
pub(super) fn delete(id: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        remove_trees(&existing(id));
        let left = existing(id);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("cgroups cannot be removed, something still runs in them: {left:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Removes cgroups and those below them, as far as they are empty.
fn remove_trees(paths: &[PathBuf]) {
    for path in paths {
        remove_trees(&below(path));
        let _ = fs::remove_dir(path);
    }
}
