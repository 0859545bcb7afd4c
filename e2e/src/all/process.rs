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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controllers_are_found_by_their_command_and_agents_are_not() {
        let line = |words: &[&str]| words.join("\0").into_bytes();
        let run = ["/traffic-operator", "run", "--component=controller", "--x"];
        assert!(is_controller(&line(&run)));
        assert!(is_controller(b"/traffic-operator\0run\0--component=controller\0"));
        assert!(!is_controller(&line(&["/traffic-operator", "run", "--component=webhook"])));
        assert!(!is_controller(&line(&["/traffic-operator-agent", "worker"])));
        assert!(!is_controller(b""));
    }

    #[test]
    fn memory_is_read_from_the_kernels_status() {
        let status = "Name:\ttraffic-operato\nVmHWM:\t   30720 kB\nVmRSS:\t   20480 kB\n";
        assert_eq!(memory(status), Some(Memory { now: 20.0, peak: 30.0 }));
        assert_eq!(memory("Name:\tkthreadd\n"), None);
    }
}
