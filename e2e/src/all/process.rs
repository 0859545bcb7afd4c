//! The memory of the operator's processes, by the kernel.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use lab::cluster::Cluster;
use lab::process::kib;

/// The program's path in its image, and its command.
const CONTROLLER: [&str; 3] = ["/traffic-operator", "run", "--component=controller"];

/// Resident memory in MiB.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Memory {
    pub now: f64,
    /// The largest so far.
    pub peak: f64,
}

/// Returns the memory of each process of the controllers on this cluster; the nodes' processes are
/// processes of this machine too.
pub(super) fn controllers(cluster: &Cluster) -> Result<Vec<Memory>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("reading /proc")?.flatten() {
        let dir = entry.path();
        // A process may end while it is looked at.
        let read = |file: &str| fs::read(dir.join(file)).unwrap_or_default();
        if !is_controller(&read("cmdline")) || !is_of(cluster, &dir) {
            continue;
        }
        found.extend(memory(&String::from_utf8_lossy(&read("status"))));
    }
    ensure!(!found.is_empty(), "no process of the operator's controllers runs");
    Ok(found)
}

/// Reports whether a command line is that of the controllers.
fn is_controller(cmdline: &[u8]) -> bool {
    let words = cmdline.split(|byte| *byte == 0).take(CONTROLLER.len());
    words.eq(CONTROLLER.map(str::as_bytes))
}

/// Reports whether a process runs in a cgroup of one of the cluster's nodes.
fn is_of(cluster: &Cluster, process: &Path) -> bool {
    let cgroups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    cgroups.contains(&cluster.cgroup())
}

/// Reads the kernel's figures, which are in KiB.
fn memory(status: &str) -> Option<Memory> {
    let mib = |key: &str| Some(kib(status, key).ok()? / 1024.0);
    Some(Memory { now: mib("VmRSS:")?, peak: mib("VmHWM:")? })
}
